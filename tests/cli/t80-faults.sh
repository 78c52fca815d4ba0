#!/bin/sh
# Makes every system call and allocation of a program fail, one in each run.
# After any failure the exit status is a documented one, each output is the old
# complete file or the new complete one, and there is no temporary file.
. "$(dirname "$0")/../lib/tap.sh"
PATH=$BUILD/faults:$PATH

counted() { # kind: how many calls of it the last counted run made
    sed -n "s/^faults:.* $1 \([0-9]*\).*/\1/p" count
}

# Compares each output of program $name with its two allowed states.
intact() { # status: of the run that had a fault
    for f in $outputs; do
        if cmp -s "work/$f" "new/$f"; then continue; fi
        if [ "$1" != 0 ] && cmp -s "work/$f" "old/$f"; then continue; fi
        if [ "$1" != 0 ] && ! [ -e "work/$f" ] && ! [ -e "old/$f" ]; then
            continue
        fi
        echo "work/$f is neither the old nor the new file"
        return 1
    done
    ! find work -name '*.tmp.*' | grep .
}

one_fault() { # kind:number:error expected-status
    rm -rf work && cp -r old work
    status=0
    (cd work && GPT_FAULT=$1 command_under_test) >out 2>err </dev/null ||
        status=$?
    if [ "$status" != "$2" ] && [ "$status" != 0 ]; then
        echo "$1: exit status $status, want $2"
        cat err
        return 1
    fi
    # Where nothing says what failed, the status is in words.
    if [ "$status" != 0 ] && ! grep -v ': error: failed$' err |
        grep -q ': error: '; then
        echo "$1: exit status $status and no message"
        return 1
    fi
    intact "$status" || { echo "after $1, exit status $status"; return 1; }
}

# The numbers of the calls that fail: all of few, an even selection of many.
torture() { # kind error expected-status
    total=$(counted "$1")
    step=$((total / shallow + 1))
    n=1
    while [ "$n" -le "$total" ]; do
        one_fault "$1:$n:$2" "$3" || return 1
        n=$((n + step))
    done
}

a_fault_shows() { # kind: the first failure of it does not pass for success
    one_fault "$1:1:EIO" 4 && [ "$status" = 4 ]
}

# old/ holds the outputs of another input, new/ those of a run without failures.
try_program() { # name outputs...
    name=$1
    shift
    outputs=$*
    rm -rf new && cp -r old new
    shallow=${GPT_FAULT_SAMPLES:-12} # calls tried of each kind
    expect 0 "$name runs undisturbed" \
        sh -c 'cd new && GPT_FAULT=count; export GPT_FAULT; . ../run' || return
    cp err count
    check "$name counts its calls" grep -q '^faults: read [0-9]' count
    for f in $outputs; do
        check "$name changes $f" sh -c "! cmp -s 'old/$f' 'new/$f'"
    done
    for kind in write fsync rename; do
        check "$name: a failing $kind is an error" a_fault_shows $kind
    done
    check "$name: reads fail" torture read EIO 4
    check "$name: the disk is full" torture write ENOSPC 4
    check "$name: interrupted writes" torture write EINTR 0
    check "$name: syncing fails" torture fsync EIO 4
    check "$name: publishing fails" torture rename EIO 4
    check "$name: memory is out" torture alloc ENOMEM 1
}

# The command, which runs inside old/, new/ or work/.
command_under_test() { . ../run; }

i=0
while [ $i -lt 300 ]; do
    echo "{\"text\": \"line $i of a small corpus, for all it is worth\"}"
    i=$((i + 1))
done >corpus.jsonl
head -n 100 corpus.jsonl >older.jsonl

if [ -x "$BUILD/faults/gpt-preprocess" ]; then
    rm -rf old && mkdir old
    expect 0 'an older data set' gpt-preprocess --input older.jsonl \
        --output-prefix old/x --tokenizer-type ByteTokenizer
    echo 'gpt-preprocess --input ../corpus.jsonl --output-prefix x \
        --tokenizer-type ByteTokenizer --force --threads 1' >run
    try_program gpt-preprocess x_text_document.bin x_text_document.idx \
        x_text_document.json
fi

if [ -x "$BUILD/faults/gpt-dataset" ]; then
    rm -rf old && mkdir old
    for i in older corpus; do
        expect 0 "tokens of $i" gpt-preprocess --input $i.jsonl \
            --output-prefix $i --tokenizer-type ByteTokenizer
    done
    gpt-dataset merge older_text_document --output-prefix old/x --quiet
    echo 'gpt-dataset merge ../older_text_document ../corpus_text_document \
        --output-prefix x --force' >run
    try_program gpt-dataset x.bin x.idx
fi

if [ -x "$BUILD/faults/gpt-vocab" ]; then
    rm -rf old && mkdir old
    expect 0 'an older vocabulary' gpt-vocab --input older.jsonl \
        --output-prefix old/v --vocab-size 270
    echo 'gpt-vocab --input ../corpus.jsonl --output-prefix v \
        --vocab-size 280 --force --threads 1' >run
    try_program gpt-vocab v-vocab.json v-merges.txt
fi

# A run that resumes after step 1 and ends with step 2.
rm -rf old && mkdir old
train="gpt-train --data-path ../x_text_document --tokenizer-type ByteTokenizer
    --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16
    --micro-batch-size 1 --split 100,0,0 --eval-iters 0 --lr 1e-3 --threads 1
    --lr-decay-style constant --log-interval 1 --train-iters 2 --save ckpt"
expect 0 'a data set' gpt-preprocess --input older.jsonl --output-prefix x \
    --tokenizer-type ByteTokenizer
expect 0 'an older checkpoint' sh -c "cd old && $(echo $train) --exit-interval 1"
echo "$(echo $train) --load ckpt" >run
try_program gpt-train ckpt/iter_0000002/manifest.json \
    ckpt/latest_checkpointed_iteration.txt

cp -r new/ckpt ckpt
if [ -x "$BUILD/faults/gpt-report" ]; then
    rm -rf old && mkdir old
    echo 'an older report' >old/report.txt
    echo 'gpt-report ../ckpt --text --output report.txt --force' >run
    samples=${GPT_FAULT_SAMPLES:-}
    GPT_FAULT_SAMPLES=99 # all: a report takes no time
    try_program gpt-report report.txt
    GPT_FAULT_SAMPLES=$samples
fi

# Files that are trees of JSON: no member is left out.
if [ -x "$BUILD/faults/gpt-reshape" ]; then
    rm -rf old && mkdir old
    echo 'gpt-reshape --load-path ../ckpt --save-path hf --to hf \
        --max-shard-size 4KB --threads 1' >run
    try_program gpt-reshape hf/config.json hf/generation_config.json \
        hf/model.safetensors.index.json
fi

# A checkpoint that holds its vocabulary is asked for it before it is opened, and
# a data set for what it was made from: that memory is out then must not pass for
# a file without a vocabulary, or for damage.
told_as_memory() {
    total=$(counted alloc)
    n=1
    told=0
    while [ "$n" -le "${total:-0}" ]; do
        if ! GPT_FAULT=alloc:$n:ENOMEM sh ./run >out 2>err </dev/null; then
            if grep -q Sanitizer err || ! grep -q 'error: .*memory' err; then
                echo "alloc:$n"
                cat err
                return 1
            fi
            told=$((told + 1))
        fi
        n=$((n + total / 50 + 1))
    done
    [ "$told" -gt 0 ]
}
if [ -x "$BUILD/faults/gpt-generate" ]; then
    words='--vocab-file v-vocab.json --merge-file v-merges.txt'
    expect 0 'a vocabulary' gpt-vocab --input older.jsonl --output-prefix v \
        --vocab-size 270
    # shellcheck disable=SC2086 # a list of words
    expect 0 'its tokens' gpt-preprocess --input older.jsonl \
        --output-prefix v $words
    # shellcheck disable=SC2086
    expect 0 'its model' gpt-train --data-path v_text_document $words \
        --num-layers 1 --hidden-size 32 --num-attention-heads 2 \
        --seq-length 16 --micro-batch-size 1 --split 100,0,0 --eval-iters 0 \
        --lr 1e-3 --threads 1 --train-iters 1 --save v-ckpt
    expect 0 'as a file of GGUF' gpt-reshape --load-path v-ckpt \
        --save-path v.gguf
    echo 'gpt-generate --load v.gguf --greedy --prompt line --max-tokens 1 \
        --threads 1' >run
    expect 0 'gpt-generate counts its calls' env GPT_FAULT=count sh ./run
    cp err count
    check 'gpt-generate: memory is out' told_as_memory
    echo "gpt-dataset verify v_text_document $words" >run
    expect 0 'gpt-dataset verify counts its calls' \
        env GPT_FAULT=count sh ./run
    cp err count
    check 'gpt-dataset verify: memory is out' told_as_memory
fi
tap_done
