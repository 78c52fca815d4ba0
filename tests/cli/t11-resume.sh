#!/bin/sh
# gpt-preprocess is killed, stopped or made to fail at any moment: the same
# command resumes the run, and its output has the same bytes. GPT_KILLS=50 kills
# it 50 times; the default is a few times.
# shellcheck disable=SC2010,SC2046,SC2086,SC2154 # word lists; $top is tap.sh's
. "$(dirname "$0")/../lib/tap.sh"

vocab="--vocab-file $top/tests/golden/gpt2/vocab.json"
vocab="$vocab --merge-file $top/tests/golden/gpt2/merges.txt --append-eod"
bytes='--tokenizer-type ByteTokenizer --append-eod'
outputs() { for e in bin idx json; do echo "$1_text_document.$e"; done; }
same_as() { # wanted-prefix prefix
    cmp "$1_text_document.bin" "$2_text_document.bin" &&
        cmp "$1_text_document.idx" "$2_text_document.idx"
}
nothing_but_outputs() { # prefix
    check "$1: nothing else is left" \
        [ "$(echo $(ls -A | grep "^$1[_.]" | grep -v '\.bad$'))" = \
            "$(echo $(outputs "$1"))" ]
}

# A plain file, a compressed one, one without a last newline, some bad lines.
awk 'BEGIN { srand(2); for (i = 0; i < 90000; i++) {
    if (i % 30000 == 17) { print "bad line " i; continue }
    printf "{\"id\":%d,\"text\":\"", i
    n = int(rand() * 12)
    for (k = 0; k < n; k++) printf "word%d it'\''s %c\\n ", rand() * 999, 97 + k
    print "\"}" } }' >corpus.jsonl
split -l 30000 corpus.jsonl part.
printf '{"text":"the last"}' >>part.ac
inputs='part.aa part.ab part.ac'
if gpt-preprocess --version | grep -q zlib; then
    gzip -1 part.ab
    inputs='part.aa part.ab.gz part.ac'
fi
run() { # prefix options...
    run_prefix=$1
    shift
    gpt-preprocess --input $inputs --output-prefix "$run_prefix" $vocab \
        --sources --on-error "quarantine=$run_prefix.bad" --resume-interval 0 "$@"
}
expect 0 'undisturbed' run want
check 'three bad lines' [ "$(wc -l <want.bad)" = 3 ]

# ---- killed ----

# Kills runs after random times, until one is complete. A run may also be killed
# after it published its output and before it exits; then the next run refuses
# to replace the output.
killed_run() { # prefix
    tries=0
    while :; do
        tries=$((tries + 1)) # each lives longer, so that slow ones end, too
        gpt-preprocess --input $inputs --output-prefix "$1" $vocab \
            --on-error "quarantine=$1.bad" --resume-interval 0 --sources \
            2>>killed.log </dev/null &
        pid=$!
        seed=$((seed + 1))
        sleep "$(awk -v s=$seed -v n=$tries 'BEGIN {
            srand(s); printf "%.3f", rand() * n / 8 }')"
        kill -KILL $pid 2>/dev/null && kills=$((kills + 1))
        status=0
        wait $pid 2>/dev/null || status=$?
        [ $status = 137 ] || break
    done
    [ $status = 0 ] || { [ $status = 7 ] && ! [ -e "$1.resume" ]; } || {
        tail -n 3 killed.log
        return 1
    }
}
seed=$$
kills=0
round=0
while [ $kills -lt "${GPT_KILLS:-5}" ] ||
    ! grep -q 'resuming after' killed.log; do
    [ $round -lt 100 ] || break
    round=$((round + 1))
    rm -f kill_* kill.bad
    check 'killed until it is done' killed_run kill || break
    check 'same bytes' same_as want kill
    check 'same bad lines' cmp want.bad kill.bad
    sed 's/want/kill/g' want_text_document.json >want.json
    check 'same provenance' cmp want.json kill_text_document.json
    check 'same sources' cmp want_text_document.sources \
        kill_text_document.sources
    rm kill_text_document.sources
    nothing_but_outputs kill
done
check 'some runs went on from the middle' grep -q 'resuming after' killed.log
echo "# killed $kills times in $round rounds"

# ---- stopped by a bad line, a full disk or a limit, then resumed ----

stopped() { # prefix: what is left of a run that was stopped
    check 'a journal is left' [ -s "$1.resume" ]
    check 'and tokens' [ -s "$1_text_document.bin.part" ]
    check 'but no output' [ ! -e "$1_text_document.bin" ]
}
gpt-preprocess --input part.aa --output-prefix skip $bytes --on-error skip -q \
    2>/dev/null
rest='--resume-interval 0'
begin() { # prefix: a run that stops at line 60000 of tail.jsonl
    expect 3 "$1: stops at a bad line" gpt-preprocess --output-prefix "$1" \
        --input part.aa.good tail.jsonl $bytes $rest --workers 1
    err_has 'tail.jsonl:60000: not JSON'
    err_has 'the same command resumes'
    stopped "$1"
}
grep -v '^bad' part.aa >part.aa.good
{ grep -v '^bad' corpus.jsonl | head -n 59999
  echo bad
  head -n 1000 part.aa.good; } >tail.jsonl
begin stop
expect 0 'resumes, and skips it' gpt-preprocess --output-prefix stop \
    --input part.aa.good tail.jsonl $bytes $rest --on-error skip
err_has 'resuming after document'
expect 0 'the same at once' gpt-preprocess --output-prefix once \
    --input part.aa.good tail.jsonl $bytes --on-error skip
check 'same bytes' same_as once stop
nothing_but_outputs stop

begin other
expect 7 'another command' gpt-preprocess --output-prefix other \
    --input part.aa.good tail.jsonl --tokenizer-type ByteTokenizer
err_has "belongs to an unfinished run"
err_has 'append_eod is false, was true'
expect 7 'other input' gpt-preprocess --output-prefix other --input tail.jsonl \
    $bytes
err_has 'inputs[0].path is "tail.jsonl", was "part.aa.good"'
expect 7 'less input' gpt-preprocess --output-prefix other \
    --input part.aa.good $bytes --force
err_has 'inputs has 1 items, had 2'
stopped other
for name in other other_text_document; do
    expect 4 "$name is no set yet" gpt-dataset info $name
    err_has 'a gpt-preprocess that has not finished: the same command resumes'
done
cp -p tail.jsonl kept.jsonl
touch -d '2001-02-03' tail.jsonl
expect 7 'an input that was touched' gpt-preprocess --output-prefix other \
    --input part.aa.good tail.jsonl $bytes
err_has "differs from this one: input 'tail.jsonl' was modified since it began"
cp -p kept.jsonl tail.jsonl
echo '{"text":"more"}' >>tail.jsonl
expect 7 'changed input' gpt-preprocess --output-prefix other \
    --input part.aa.good tail.jsonl $bytes --on-error skip
err_has "input 'tail.jsonl' was modified since it began"
expect 0 'started over' gpt-preprocess --output-prefix other --on-error skip \
    --input part.aa.good tail.jsonl $bytes --no-resume
nothing_but_outputs other
mv kept.jsonl tail.jsonl

begin damaged
cp damaged.resume whole
head -c $(($(wc -c <whole) - 30)) whole >damaged.resume
expect 0 'half a line of the journal counts for nothing' gpt-preprocess \
    --output-prefix damaged --input part.aa.good tail.jsonl $bytes \
    --on-error skip
check 'same bytes' same_as once damaged
rm damaged_*
begin damaged
cp damaged.resume whole
sed -n '1p;$p' whole >damaged.resume
expect 3 'lines of the journal are lost' gpt-preprocess \
    --output-prefix damaged --input part.aa.good tail.jsonl $bytes \
    --on-error skip
err_has "damaged.resume: 'first_sum' is 1, out of range"
err_has '--no-resume gives the unfinished run up'
mv whole damaged.resume
head -c 1000 part.aa >damaged_text_document.bin.part
expect 3 'lost tokens' gpt-preprocess --output-prefix damaged \
    --input part.aa.good tail.jsonl $bytes --on-error skip
err_has 'bytes, must have'
err_has '--no-resume gives the unfinished run up'
expect 0 'given up' gpt-preprocess --output-prefix damaged --no-resume \
    --input part.aa $bytes --on-error skip
check 'same bytes' same_as skip damaged
nothing_but_outputs damaged

expect 3 'bad lines left out' gpt-preprocess --output-prefix quota $rest \
    --input part.aa tail.jsonl corpus.jsonl $bytes --on-error skip --max-errors 2
expect 7 'and then not any more' gpt-preprocess --output-prefix quota $rest \
    --input part.aa tail.jsonl corpus.jsonl $bytes
err_has 'which skipped bad lines with --on-error skip'
expect 0 'the limit may be raised' gpt-preprocess --output-prefix quota $rest \
    --input part.aa tail.jsonl corpus.jsonl $bytes --on-error skip
err_has '5 bad lines skipped'
nothing_but_outputs quota

expect 4 'a limit on file size' sh -c "ulimit -f 12000; trap '' XFSZ
    exec gpt-preprocess --input part.aa tail.jsonl --output-prefix lim $bytes \
    --on-error skip $rest"
stopped lim
expect 0 'raised' gpt-preprocess --input part.aa tail.jsonl \
    --output-prefix lim $bytes --on-error skip
nothing_but_outputs lim

# ---- a file that is not a journal ----

echo 'notes on what to resume' >notes.resume
cp notes.resume kept
expect 7 'a foreign file' gpt-preprocess --input part.aa.good $bytes \
    --output-prefix notes
err_has "'notes.resume' exists already, and is no journal"
expect 7 'is not removed either' gpt-preprocess --input part.aa.good $bytes \
    --output-prefix notes --no-resume
check 'it is as it was' cmp kept notes.resume
printf '12345678 {"ve' >torn.resume
expect 0 'a line that a crash cut' gpt-preprocess --input part.aa.good $bytes \
    --output-prefix torn
nothing_but_outputs torn

# ---- runs that cannot be resumed, and commands that may resume ----

mkfifo fifo
gpt-preprocess --input fifo --output-prefix pipe $bytes $rest 2>pipe.log &
pid=$!
exec 9>fifo
cat part.aa.good >&9
sleep 0.2
kill -TERM $pid
wait $pid
check 'a pipe leaves nothing' sh -c '! ls -A | grep "^pipe[_.]" | grep -vx pipe.log'
exec 9>&-
gpt-preprocess --input part.aa.good fifo --output-prefix none $bytes $rest \
    2>none.log &
pid=$!
exec 9>fifo
exec 9>&-
wait $pid
check 'a file and a pipe' same_as none none
if command -v flock >/dev/null; then
    begin locked
    expect 7 'a run that is on its way' flock locked.resume gpt-preprocess \
        --output-prefix locked --input part.aa.good tail.jsonl $bytes
    err_has 'another process has it'
    expect 7 'is not given up' flock locked.resume gpt-preprocess --no-resume \
        --output-prefix locked --input part.aa.good tail.jsonl $bytes
    stopped locked
else
    skip 'no flock program'
fi
expect 0 'a short run' gpt-preprocess --input part.aa.good $bytes \
    --output-prefix short
expect 3 'that fails' gpt-preprocess --input part.aa.good tail.jsonl $bytes \
    --output-prefix brief
check 'leaves nothing' sh -c '! ls -A | grep ^brief'

# ---- after any failure the same command gives the same bytes ----

faulty=$BUILD/faults/gpt-preprocess
fault_run() {
    "$faulty" --input small.jsonl $small_packed --output-prefix f $bytes \
        --resume-interval 0 --threads 1 2>err </dev/null
}
faults() { # kind error
    total=$(sed -n "s/^faults:.* $1 \([0-9]*\).*/\1/p" count)
    step=$((total / ${GPT_FAULT_SAMPLES:-8} + 1))
    n=1
    while [ $n -le "$total" ]; do
        rm -f f_* f.resume
        status=0
        GPT_FAULT=$1:$n:$2 fault_run || status=$?
        if [ $status != 4 ] || ! grep -q ': error: ' err; then
            [ $status = 0 ] || { echo "$1:$n: status $status"; cat err; return 1; }
        fi
        if [ $status != 0 ] && ! fault_run && [ -e f.resume ]; then
            echo "$1:$n: cannot go on"
            cat err
            return 1
        fi
        same_as small f || { echo "$1:$n: other bytes"; return 1; }
        n=$((n + step))
    done
}
if [ -x "$faulty" ]; then
    head -n 15000 part.aa.good >small.jsonl
    small_packed=
    gzip -1 -c small.jsonl >small.gz
    case $inputs in *.gz*) small_packed=small.gz ;; esac
    expect 0 'undisturbed' gpt-preprocess --input small.jsonl $small_packed \
        --output-prefix small $bytes
    GPT_FAULT=count fault_run
    cp err count
    check 'a full disk' faults write ENOSPC
    check 'reads fail' faults read EIO
    check 'syncing fails' faults fsync EIO
    check 'publishing fails' faults rename EIO
else
    skip 'no programs with fault injection'
fi
tap_done
