#!/bin/sh
# Every program that writes, as it is installed, under faults from outside
# (tests/lib/preload.c): each call on files fails in turn, the program dies
# before each of them, and is killed at moments of chance. What is there
# afterwards is the old output or the new one, whole, and the reason is told.
#
# Without more, one call of a kind fails for some of the commands. GPT_OUTPUTS=all
# takes every call, error and command, GPT_KILLS=200 as many deaths by chance a
# command; GPT_ONLY=merge takes the commands whose names have that in them.
. "$(dirname "$0")/../lib/tap.sh"
golden=$top/tests/golden
preload=$BUILD/tests/lib/preload.so

if [ ! -f "$preload" ] || ! LD_PRELOAD=$preload GPT_PRELOAD=count \
    gpt-dataset --version 2>&1 >/dev/null | grep -q '^preload: open'; then
    skip 'no calls can be intercepted here'
    tap_done
fi
# Sanitizers want to be the first library.
if LD_PRELOAD=$preload gpt-vocab --version 2>&1 | grep -q 'ASan runtime'; then
    skip 'this build does not take an LD_PRELOAD'
    tap_done
fi

# What each kind of call fails with, and how. "stops": the run must not succeed;
# "goes": something else does the work; "may": both are fine.
faults='open:EMFILE:may open:EACCES:may read:EIO:stops read:EINTR:goes
    read:SHORT:goes write:SHORT:goes copy:SHORT:goes
    write:ENOSPC:stops write:EIO:stops write:EINTR:goes fsync:EIO:stops
    fsync:EINTR:goes rename:EIO:stops mmap:ENOMEM:may truncate:EIO:stops
    reserve:ENOSPC:stops reserve:EOPNOTSUPP:goes copy:EIO:stops copy:EXDEV:goes
    copy:ENOSPC:stops mkdir:ENOSPC:stops opendir:EMFILE:may close:EIO:may
    unlink:EIO:may lock:ENOLCK:may mode:EPERM:stops thread:EAGAIN:may'
deaths='open write fsync rename truncate reserve copy mkdir close unlink'
if [ -z "${GPT_OUTPUTS:-}" ]; then
    faults='open:EMFILE:may read:EIO:may write:ENOSPC:stops write:SHORT:goes
        fsync:EIO:stops
        rename:EIO:stops mmap:ENOMEM:may reserve:ENOSPC:stops copy:EIO:stops
        mkdir:ENOSPC:may'
    deaths=rename
fi
reason() { # error: as a message gives it
    case $1 in
    EMFILE) echo 'Too many open files' ;;
    EACCES) echo 'Permission denied' ;;
    EIO) echo 'Input/output error' ;;
    ENOSPC) echo 'No space left on device' ;;
    ENOMEM) echo 'Cannot allocate memory\|out of memory' ;;
    ENOLCK) echo 'No locks available' ;;
    EPERM) echo 'Operation not permitted' ;;
    EAGAIN) echo 'Resource temporarily unavailable' ;;
    *) echo 'no reason is known' ;;
    esac
}

# All files with their contents, but for those that are between two states: what
# a killed program left under temporary names, locks, a run that can be resumed,
# and logs.
state() { # directory
    (cd "$1" && find . -type f ! -name '*.tmp.*' ! -path '*.tmp.*/*' \
        ! -name '.lock' ! -name '*.part' ! -name '*.resume' \
        ! -name '*.publish' ! -path '*.part/*' ! -name metrics.jsonl \
        ! -name manifest.json -exec cksum {} + && manifests) |
        LC_ALL=C sort -k 3
}
# A checkpoint tells how often its run was resumed, which a death adds to.
manifests() {
    find . -name manifest.json ! -path '*.tmp.*/*' ! -path '*.part/*' |
        while read -r name; do
            echo "$(sed 's/"restarts":.*//; s/^"crc32c": .*//' "$name" |
                cksum) $name"
        done
}
is() { # old|new
    state work >now
    cmp -s now "$1.state"
}
between() { is old || is new || also; }
# Whether a third state is whole, for runs that write more than once.
also() { false; }
restore() { rm -rf work && cp -rp old work; }
# The shell that reads the command must not be the one whose calls fail.
run() { # GPT_PRELOAD
    (cd work && under="env LD_PRELOAD=$preload GPT_PRELOAD=$1" &&
        export under && exec sh ../run) >out 2>err <stdin
}
left_over() { find work -name '*.tmp.*' -o -name '.*.publish' | grep .; }
show() { # short: a check tells the last 20 lines
    tail -n 3 err
    diff new.state now | head -n 10
}

# The numbers of the calls to try, of those that an undisturbed run makes.
numbers() { # kind
    total=$(sed -n "s/^preload: $1 //p" count)
    awk -v n="${total:-0}" -v all="${GPT_OUTPUTS:-}" 'BEGIN {
        for (i = all ? 1 : int((n + 1) / 2); i > 0 && i <= n; i++) {
            print i
            if (!all) exit
        } }'
}

one_fault() { # kind number error how
    restore
    status=0
    run "$1:$2:$3" || status=$?
    fault="$1:$2:$3, exit status $status"
    [ $status = 0 ] || ! left_over || { echo "$fault: left over"; return 1; }
    case $status in
    0) is new || { echo "$fault, and not the new files"; show; return 1; } ;;
    [1-7])
        between || { echo "$fault: mixed"; show; return 1; }
        grep -q ': error: \|^libgomp: ' err || {
            echo "$fault and no message"
            cat err
            return 1
        }
        grep -q "$(reason "$3")" err || {
            echo "$fault and not the reason"
            cat err
            return 1
        }
        ;;
    *) echo "$fault"; show; return 1 ;;
    esac
    case $4$status in
    goes[1-9]*) echo "$fault: it has to go on"; show; return 1 ;;
    stops0) passed="$passed $1:$2" ;;
    esac
}
# Calls may fail without harm in ways that only their program knows: those that
# it makes to clean up, or to look for what need not be there. All cannot.
each_call() { # kind error how
    passed=
    tried=0
    for number in $(numbers "$1"); do
        one_fault "$1" "$number" "$2" "$3" || return 1
        tried=$((tried + 1))
    done
    echo "$tried of $1, passed over:$passed"
    # shellcheck disable=SC2086 # a list of words
    set -- $passed
    [ $# = 0 ] || [ $# -lt $tried ]
}

# After a death: old or new, at the latest when a program opens the files; and
# the same command then makes the new ones.
after_death() { # moment
    (cd work && sh ../reader) >read.out 2>&1
    between || {
        echo "$1: mixed after a reader"
        cat read.out
        show
        return 1
    }
    run '' && is new || {
        echo "$1: the same command does not complete it"
        show
        return 1
    }
}
each_death() {
    died=0
    for kind in $deaths; do
        for number in $(numbers "$kind"); do
            restore
            run "$kind:$number:KILL" && continue # other threads were faster
            died=$((died + 1))
            after_death "$kind:$number:KILL" || return 1
        done
    done
    echo "$died deaths"
    [ $died -gt 0 ]
}
# A number below $1, from the i-th of a sequence.
draw() {
    awk -v i="$2" -v seed="${GPT_SEED:-11}" -v n="$1" 'BEGIN {
        srand(seed * 1000 + i); printf "%.4f", rand() * n }'
}
chance() {
    i=0
    killed=0
    # some moments come after the end
    while [ $killed -lt "${GPT_KILLS:-1}" ] &&
        [ $i -lt $((${GPT_KILLS:-1} * 9)) ]; do
        restore
        delay=$(draw "$seconds" $i)
        # timeout takes the place of a shell that would outlive the program. In
        # the foreground it waits until the killed program is gone: else it
        # kills its own group, itself too, and the program holds its locks yet.
        if (cd work && under='' && export under &&
            exec timeout --foreground -s KILL "$delay" sh ../run) \
            >out 2>err <stdin; then
            # the machine is less busy than while the time was taken
            seconds=$(echo "$seconds" | awk '{ print $1 * 0.5 }')
        else
            killed=$((killed + 1))
            seconds=$(echo "$seconds" | awk '{ print $1 * 1.5 }')
        fi
        after_death "killed after $delay s" || return 1
        i=$((i + 1))
    done
    echo "$killed of $i died"
    [ $killed -ge "${GPT_KILLS:-1}" ]
}

# The command is in `run`, one that opens its output in `reader`; old/ is there.
try() { # name ["short": also in the short run]
    case $1 in
    *"${GPT_ONLY:-}"*) ;;
    *) return ;;
    esac
    [ -n "${GPT_OUTPUTS:-}" ] || [ "${2:-}" = short ] || return
    restore
    began=$(date +%s%N)
    check "$1: undisturbed" run count || { cat err; return; }
    # a run under timeout and load takes longer
    seconds=$(awk -v a="$began" -v b="$(date +%s%N)" \
        'BEGIN { print (b - a) * 1.3e-9 }')
    cp err count
    left_over
    rm -rf new && cp -rp work new
    state old >old.state
    state new >new.state
    check "$1: makes something new" sh -c '! cmp -s old.state new.state'
    kinds=
    for fault in $faults; do
        how=${fault##*:}
        kind=${fault%%:*}
        error=${fault#*:}
        error=${error%:*}
        [ "$(sed -n "s/^preload: $kind //p" count)" != 0 ] || continue
        each_call "$kind" "$error" "$how" >log 2>&1 || {
            check "$1: $kind fails with $error" sh -c 'cat log; false'
            continue
        }
        kinds="$kinds $kind:$error"
        sed "s/^/# $error: /" log
    done
    check "$1:$kinds" test -n "$kinds"
    [ -s reader ] || return
    check "$1: dies before each call" each_death && sed 's/^/# /' check.log
    check "$1: dies at moments of chance" chance && sed 's/^/# /' check.log
}

awk 'BEGIN { for (i = 0; i < 60; i++) {
    printf "{\"text\": \"line %d of it\", \"title\": \"the title %d\"}\n", i, i
    if (i == 20) print "a line that is none" } }' >corpus.jsonl
grep -v none corpus.jsonl | head -n 20 >older.jsonl
: >stdin
tok='--tokenizer-type ByteTokenizer --threads 1'
fresh() { rm -rf old reader && mkdir old; }
says() { printf '%s\n' "exec \$under $*" >run; }
opens() { printf '%s\n' "$@" >reader; }

# ---- data sets ----

preprocess="gpt-preprocess $tok --json-keys text title --on-error skip"
# shellcheck disable=SC2086 # a list of words, here and below
sets() { # name corpus
    gpt-preprocess $tok --input "$2.jsonl" --on-error skip --sources -q \
        --output-prefix "$1" 2>err
}
fresh
$preprocess --input older.jsonl --output-prefix old/x --sources -q
says "$preprocess --input ../corpus.jsonl --output-prefix x --force --sources"
opens 'gpt-dataset info x_text_document' 'gpt-dataset info x_title_document'
try 'preprocess a file' short
says "$preprocess --input ../corpus.jsonl --output-prefix x --force \
    --no-resume --threads 2"
try 'preprocess without resuming'
says "$preprocess --input - --output-prefix x --force --dataset-impl lazy"
cp corpus.jsonl stdin
try 'preprocess standard input' short
: >stdin

sets older older
sets corpus corpus
fresh
gpt-dataset merge older_text_document --output-prefix old/x -q
cp corpus_text_document.idx broken_text_document.idx
(cat corpus_text_document.bin && echo and more) >broken_text_document.bin
opens 'gpt-dataset info x'
short=short # of these the first
for command in \
    'merge ../older_text_document ../corpus_text_document' \
    'slice ../corpus_text_document --documents 3:30' \
    'head ../corpus_text_document -n 5' \
    'repair ../broken_text_document' \
    'convert ../corpus_text_document' \
    'convert ../corpus_text_document --to tntidx'; do
    says "gpt-dataset $command --output-prefix x --force"
    try "dataset $command" "$short"
    short=
done
fresh
gpt-dataset convert older_text_document --to ds --output-prefix old/x -q
opens 'gpt-dataset convert x --output-prefix ../y --force'
says 'gpt-dataset convert ../corpus_text_document --to ds --output-prefix x \
    --force'
try 'dataset convert --to ds' short
fresh
gpt-dataset merge older_text_document --output-prefix old/x -q
says 'gpt-dataset convert ../corpus_text_document --to llmc --output-prefix x \
    --force'
try 'dataset convert --to llmc'

fresh
gpt-vocab --input older.jsonl --output-prefix old/v --vocab-size 260 -q
says 'gpt-vocab --input ../corpus.jsonl --input-format text --force -q \
    --output-prefix v --vocab-size 270 --threads 1'
opens 'gpt-preprocess --input ../older.jsonl --vocab-file v-vocab.json \
    --merge-file v-merges.txt --output-prefix ../y --force'
try vocab short

# ---- checkpoints ----

megatron=$golden/megatron/tp2pp2
fresh
gpt-reshape --load-path "$megatron" --save-path old/m -q
says "gpt-reshape --load-path $megatron --save-path m -q --force --verify \
    --target-tensor-model-parallel-size 1 --target-params-dtype bf16"
opens 'gpt-reshape inspect m'
try 'reshape to native' short
fresh
gpt-reshape --load-path "$megatron" --save-path old/m --to megatron -q \
    --target-tensor-model-parallel-size 1
says "gpt-reshape --load-path $megatron --save-path m --to megatron -q --force"
opens 'gpt-reshape inspect m'
try 'reshape to megatron' short
fresh
gpt-reshape --load-path "$megatron" --save-path old/m --to hf -q
says "gpt-reshape --load-path $megatron --save-path m --to hf -q --force \
    --max-shard-size 9KB"
opens 'gpt-reshape inspect m'
try 'reshape to hf' short
fresh
gpt-reshape --load-path "$golden/hf" --save-path old/m.gguf -q \
    --target-params-dtype bf16
says "gpt-reshape --load-path $golden/gguf/plain.gguf --save-path m.gguf -q \
    --force --verify --target-params-dtype q8_0"
opens 'gpt-reshape inspect m.gguf'
try 'reshape to gguf' short
fresh
gpt-reshape --load-path "$golden/hf" --save-path old/m.bin --to llmc -q \
    --target-params-dtype bf16
says "gpt-reshape --load-path $golden/hf --save-path m.bin --to llmc -q --force"
opens 'gpt-reshape inspect m.bin'
try 'reshape to llmc' short
fresh
says "gpt-reshape --load-path $golden/hf --save-path m -q --force"
opens true
# A checkpoint of an iteration is complete before the tracker names it.
also() {
    [ "$(cut -d ' ' -f 3- now)" = './m/iter_0000000/manifest.json
./m/iter_0000000/model_tp00_pp00.safetensors' ] &&
        ! diff now new.state | grep '^<'
}
try 'reshape to a new directory'
also() { false; }

# ---- training: three steps, of which the first is there, each saved ----

fresh
train="gpt-train --data-path ../older_text_document --num-layers 1
    --hidden-size 16 --num-attention-heads 2 --seq-length 16 --lr 1e-3
    --micro-batch-size 1 --split 100,0,0 --eval-iters 0 --lr-decay-style
    constant --log-interval 1 --train-iters 3 --save-interval 1 --save ckpt
    --load ckpt $tok"
(cd old && $train --exit-interval 1) >out 2>err
says $train
opens 'gpt-reshape inspect ckpt'
# A checkpoint that has its name is whole; the tracker names one that is there.
also() {
    last=$(cat work/ckpt/latest_checkpointed_iteration.txt)
    [ -d "work/ckpt/iter_000000$last" ] || return 1
    for dir in work/ckpt/iter_*; do
        case $dir in *.tmp.*) continue ;; esac
        diff -r "$dir" "new/${dir#work/}" || return 1
    done
}
try train short
also() { false; }
rm -f reader

# ---- few descriptors, and records that stay ----

few() { # limit command...
    rm -rf few && mkdir few
    (cd few && exec 3>&- 4>&- 5>&- 6>&- && ulimit -n "$1" && shift &&
        exec "$@") >out 2>err </dev/null
}
# Fails for want of descriptors up to a number, leaves nothing then, and ends
# well with more.
enough_or_nothing() { # command...
    limit=4 failed=0
    while ! few $limit "$@"; do
        grep -q 'Too many open files' err || { cat err; return 1; }
        ! find few -name '*.tmp.*' -o -name '*.part' -empty -o \
            -name '*.resume' -empty | grep . || return 1
        failed=$((failed + 1)) limit=$((limit + 1))
        [ $limit -lt 20 ] || return 1
    done
    [ $failed -gt 1 ]
}
check 'gpt-preprocess leaves nothing for want of descriptors' \
    enough_or_nothing gpt-preprocess --input ../older.jsonl $tok \
    --output-prefix x
check 'gpt-reshape, too' enough_or_nothing gpt-reshape --load-path \
    "$golden/hf" --save-path x --to hf
check 'gpt-train, too' enough_or_nothing $train --train-iters 1 \
    --device cpu
mkdir stays
expect 0 'a journal that cannot be removed' env LD_PRELOAD="$preload" \
    GPT_PRELOAD=unlink:7:EIO gpt-preprocess --input older.jsonl $tok \
    --output-prefix stays/x
err_has "'stays/x.resume' cannot be removed: Input/output error; nothing is left"
expect 0 'a list that cannot be removed' env LD_PRELOAD="$preload" \
    GPT_PRELOAD=unlink:1:EIO gpt-reshape --load-path "$golden/hf" \
    --save-path stays/hf --to hf
err_has "'stays/.hf.resume' cannot be removed: Input/output error; nothing"

expect 0 'threads that the system does not start' env LD_PRELOAD="$preload" \
    GPT_PRELOAD=thread:1:EAGAIN gpt-reshape --load-path "$golden/hf" \
    --save-path stays/few --to hf --threads 4
err_has '1 of 4 threads compute: the system starts no more than 0'
# ... which reading a checkpoint needs already, before a model computes.
expect 4 'nor before anything is read' env LD_PRELOAD="$preload" \
    GPT_PRELOAD=thread:1:EAGAIN gpt-generate --load none --threads 4
err_has '1 of 4 threads compute: the system starts no more than 0'

# ---- what is no file: standard output ----

cp -r old/ckpt ckpt
fresh
also() { true; } # what the shell has opened
says 'gpt-generate --load ../ckpt --prompt "line 1" --tokens 3 --greedy >text'
try 'generate'
says 'gpt-dataset cat ../corpus_text_document --tokenizer-type ByteTokenizer \
    >text'
try 'dataset cat' short
tap_done
