#!/bin/sh
# The outputs of a program appear together or not at all. The program dies at
# each of its writes, syncs, renames and removals in turn, and at moments of
# chance: another program's reader never finds some old and some new files, and
# after the next program that opens one of them all are old or all are new.
. "$(dirname "$0")/../lib/tap.sh"
faults=$BUILD/faults

for p in gpt-preprocess gpt-dataset gpt-vocab; do
    [ -x "$faults/$p" ] || {
        skip "no $faults/$p"
        tap_done
        exit
    }
done

same() { # directory: every output is that one's
    for f in $outputs; do
        if [ -e "$1/$f" ]; then
            cmp -s "work/$f" "$1/$f" || return 1
        else
            ! [ -e "work/$f" ] || return 1
        fi
    done
}

# What a program sees that knows nothing of journals: without its last file
# there is no set.
foreign_sees_one() {
    all=$outputs
    for set in $sets; do # prefix:last-file
        outputs=$(printf '%s\n' $all | grep "^${set%:*}")
        ! [ -e "work/${set#*:}" ] || same old || same new || {
            outputs=$all
            return 1
        }
    done
    outputs=$all
}

one_kill() { # fault
    rm -rf work && cp -rp old work
    (cd work && GPT_FAULT=$1 PATH=$faults:$PATH sh ../run) \
        >out 2>err <corpus.in
    foreign_sees_one || { echo "$1: mixed files"; ls -lA work; return 1; }
    cp -rp work dead
    (cd work && sh ../reader) >out 2>&1
    same old || same new || {
        echo "$1: neither old nor new after a reader"
        cat out; ls -lA dead work
        return 1
    }
    rm -rf work && mv dead work
    if ! (cd work && sh ../run) >out 2>&1 <corpus.in || ! same new; then
        echo "$1: the same command does not complete it"
        cat out; ls -lA work
        return 1
    fi
    ! find work -name '.*.publish' | grep .
}

kills() { # kind
    total=$(sed -n "s/^faults:.* $1 \([0-9]*\).*/\1/p" count)
    [ "${total:-0}" -gt 0 ] || { echo "no $1 was counted"; return 1; }
    n=1
    while [ "$n" -le "$total" ]; do
        one_kill "$1:$n:KILL" || return 1
        n=$((n + 1))
    done
}

# An error leaves the old files, or (when only a later one failed) the new ones,
# and nothing else.
fails() { # kind
    total=$(sed -n "s/^faults:.* $1 \([0-9]*\).*/\1/p" count)
    [ "${total:-0}" -gt 0 ] || { echo "no $1 was counted"; return 1; }
    n=1
    while [ "$n" -le "$total" ]; do
        rm -rf work && cp -rp old work
        status=0
        (cd work && GPT_FAULT=$1:$n:EIO PATH=$faults:$PATH sh ../run) \
            >out 2>err <corpus.in || status=$?
        same new || { [ $status != 0 ] && same old; } || {
            echo "$1:$n: exit status $status"
            ls -lA work
            return 1
        }
        ! find work -name '*.tmp.*' -o -name '.*.publish' | grep . || return 1
        n=$((n + 1))
    done
}

# Moments that no system call marks. The delays spread over the run.
random_kills() {
    i=0
    while [ $i -lt "${GPT_KILLS:-6}" ]; do
        rm -rf work && cp -rp old work
        delay=$(awk -v i=$i -v seed="${GPT_SEED:-7}" 'BEGIN {
            srand(seed * 1000 + i); printf "%.4f", rand() * 0.06 }')
        (cd work && exec setsid sh ../run) >out 2>&1 <corpus.in &
        pid=$!
        sleep "$delay"
        # the program, and the shell around it; too early for a group it is
        # the shell alone
        kill -9 -- -$pid $pid 2>/dev/null
        wait $pid 2>/dev/null
        foreign_sees_one || { echo "after $delay s: mixed"; return 1; }
        (cd work && sh ../reader) >out 2>&1
        same old || same new || { echo "after $delay s"; return 1; }
        i=$((i + 1))
    done
}

# The commands stand in `run`, a program that opens the files in `reader`.
try() { # name "prefix:last-file..." files...
    name=$1
    sets=$2
    shift 2
    outputs=$*
    rm -rf new && cp -rp old new
    expect 0 "$name: undisturbed" sh -c \
        "cd new && GPT_FAULT=count PATH=$faults:\$PATH sh ../run <../corpus.in"
    cp err count
    rm -rf new/*.part new/*.resume
    for kind in $kinds; do
        check "$name: dies at each $kind" kills $kind
    done
    for kind in $failing; do
        check "$name: each $kind fails" fails $kind
    done
    check "$name: dies at moments of chance" random_kills
}

i=0
while [ $i -lt 40 ]; do
    echo "{\"text\": \"line $i of it\", \"title\": \"the title $i\"}"
    [ $i != 20 ] || echo 'a line that is none'
    i=$((i + 1))
done >corpus.in
grep -v none corpus.in | head -n 10 >older.in
tok='--tokenizer-type ByteTokenizer --threads 1'
reader_of() { # prefixes: opens each
    for p in "$@"; do echo "gpt-dataset info $p"; done >reader
}

# Every kind of death for one program of each way to publish; for the others,
# and 200 moments of chance, set GPT_KILLS=200.
kinds='write fsync rename unlink'
failing='fsync rename'
[ -n "${GPT_KILLS:-}" ] && few=$kinds || few=rename

# The older set with all that may be beside it: none of it describes the new.
mkdir old
expect 0 'an older data set' gpt-preprocess --input older.in $tok \
    --output-prefix old/x --json-keys text title --sources
cp -p corpus.in corpus.jsonl
echo "exec gpt-preprocess --input - $tok --output-prefix x --force \
    --json-keys text title --on-error quarantine=bad --no-provenance" >run
reader_of x_text_document x_title_document
two='x_text:x_text_document.idx x_title:x_title_document.idx'
both='x_text_document.idx x_text_document.bin x_text_document.json x_text_document.sources
    x_title_document.idx x_title_document.bin bad'
try 'standard input' "$two" $both
check 'what described the old set is gone' \
    sh -c '! ls new | grep -q "json\|sources"'
echo "exec gpt-preprocess --input ../corpus.jsonl $tok --output-prefix x \
    --force --json-keys text title --on-error quarantine=bad --no-resume" >run
kinds=$few
try 'without resuming' "$two" $both
echo "exec gpt-preprocess --input ../corpus.jsonl $tok --output-prefix x \
    --force --json-keys text title --on-error quarantine=bad" >run
kinds='rename unlink'
failing=
try 'a run that resumes' "$two" $both

kinds=$few
rm -rf old && mkdir old
reader_of x_text_document
echo "exec gpt-preprocess --input - $tok --output-prefix x --force \
    --on-error skip" >run
try 'no older set' x:x_text_document.idx x_text_document.idx \
    x_text_document.bin x_text_document.json

for i in older corpus; do
    gpt-preprocess --input $i.in $tok --output-prefix $i --on-error skip -q \
        2>err
done
gpt-dataset merge older_text_document --output-prefix old/x -q
echo 'exec gpt-dataset merge ../older_text_document ../corpus_text_document \
    --output-prefix x --force -q' >run
reader_of x
kinds='write fsync rename unlink'
failing='fsync rename'
try merge x:x.idx x.idx x.bin x.json

rm -rf old && mkdir old
gpt-vocab --input older.in --output-prefix old/v --vocab-size 260 -q
echo 'exec gpt-vocab --input ../corpus.in --input-format text --force \
    --output-prefix v --vocab-size 270 --threads 1 -q' >run
echo 'gpt-preprocess --input ../older.in --vocab-file v-vocab.json \
    --merge-file v-merges.txt --output-prefix ../y --force' >reader
kinds=$few
try vocabulary v:v-merges.txt v-merges.txt v-vocab.json

# ---- what a reader may meet ----

rm -rf old work && mkdir old
gpt-dataset merge older_text_document --output-prefix old/x -q
echo 'exec gpt-dataset merge ../older_text_document ../corpus_text_document \
    --output-prefix x --force -q' >run
die() { # fault
    rm -rf work && cp -rp old work
    (cd work && GPT_FAULT=$1 PATH=$faults:$PATH sh ../run) >out 2>&1
}
die rename:4:KILL
check 'the death was between two names' \
    sh -c '[ -e work/.x.idx.publish ] && ! [ -e work/x.idx ]'
mv work moved
expect 0 'a directory that was moved is completed' gpt-dataset info moved/x
rm -rf moved
die rename:4:KILL
expect 0 'merge completes the sets of a directory' \
    gpt-dataset merge --input work --output-prefix all
die rename:4:KILL
for f in work/.x.bin.tmp.*; do echo >>"$f"; done
expect 3 'a file that was changed is not published' gpt-dataset info work/x
err_has 'missing or changed'
err_has 'after removing'
preload=$BUILD/tests/lib/preload.so
if [ -f "$preload" ] && LD_PRELOAD=$preload GPT_PRELOAD=count \
    gpt-dataset --version 2>&1 | grep -q '^preload: open'; then
    die rename:4:KILL
    expect 4 'a file system without locks' env LD_PRELOAD="$preload" \
        GPT_PRELOAD=lock:1:ENOLCK gpt-dataset info work/x
    err_has 'a file system with locks, or make its files again'
fi
die rename:4:KILL
printf 'gpt publication 1\0../x\0.x.tmp.1.00000000\0' >work/.x.idx.publish
expect 3 'a journal that is damaged is refused' gpt-dataset info work/x
err_has 'describes no publication'
rm -rf work && mkdir work && ln -s ../far.bin work/x.bin && mkdir far
cp old/x.bin far.bin && cp old/x.idx work/x.idx
(cd work && GPT_FAULT=rename:4:KILL PATH=$faults:$PATH sh ../run) >out 2>&1
expect 0 'a link is followed' gpt-dataset verify work/x
check 'and stays a link' test -L work/x.bin

# ---- the order on disk ----

if strace -o trace true 2>/dev/null; then
    rm -rf work && cp -rp old work
    (cd work && strace -f -e trace=fsync,rename,renameat2,unlink -o ../trace \
        sh ../run) >out 2>&1
    # Data and journal are synced before the journal has its name, the names of
    # the old files are gone on disk before a new file has one.
    check 'synced before it is named, old names gone before new ones' perl -e '
        my ($state, @seen) = (0);
        while (<>) {
            push @seen, "S" if /fsync/;
            push @seen, "J" if /rename.*\.publish"/ && !/unlink/;
            push @seen, "O" if /rename\w*\(.*"x\.(bin|idx|json)",? .*tmp/;
            push @seen, "N" if /rename\w*\(.*tmp\.[^"]*", .*"x\.(bin|idx)"/;
            push @seen, "U" if /unlink\(".x.idx.publish"/;
        }
        my $s = join "", @seen;
        print "$s\n";
        exit($s =~ /SSSS.*JS+O+S+N+S+U/ ? 0 : 1)' trace
else
    skip 'no strace'
fi
tap_done
