#!/bin/sh
# gpt-generate over tensor and pipeline parallel ranks: every byte is that of
# one process, one text is written, and a rank that dies is named.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/port.sh"
unset RANK WORLD_SIZE OMP_NUM_THREADS 2>/dev/null
GPT_THREADS=1
export GPT_THREADS

needs_gloo

make_data
# A checkpoint of four ranks, whose words four ranks cannot share equally.
expect 0 'a model of four ranks' timeout 200 gpt-launch --standalone \
    --nproc-per-node 4 gpt-train --data-path $data \
    --tokenizer-type ByteTokenizer --num-layers 5 --hidden-size 32 \
    --num-attention-heads 4 --seq-length 64 --micro-batch-size 2 \
    --tensor-model-parallel-size 4 --make-vocab-size-divisible-by 1 \
    --split 1,0,0 --eval-iters 0 --train-iters 20 --lr 1e-2 --save ckpt \
    --no-save-optim -q

# Prompts of all lengths, one of which is refused.
awk 'BEGIN {
    text = "the cat sees a red dog and the dog likes to run to the old house"
    for (i = 1; i <= 17; i++)
        printf "{\"prompt\": \"%s\", \"id\": %d}\n",
               substr(text, 1, i * 37 % 53 + 1), i
    print "{\"id\": 18}"
}' >prompts.jsonl

ranks() { # tp pp options...
    tp=$1
    pp=$2
    shift 2
    timeout 200 gpt-launch -q --standalone --stdio \
        --nproc-per-node $((tp * pp)) gpt-generate --load ckpt -q \
        --tensor-model-parallel-size "$tp" \
        --pipeline-model-parallel-size "$pp" "$@"
}
one() { # options...
    gpt-generate --load ckpt -q "$@"
}
draw='--jsonl --prompt-file prompts.jsonl --tokens 12 --seed 4 --top-k 20
--temperature 0.8 --logprobs 2 --return-logits'
# shellcheck disable=SC2086 # a word list
expect 3 'one process' one $draw --batch-size 1
cp out want
for batch in 3 17; do
    # shellcheck disable=SC2086
    expect 3 "batch $batch" one $draw --batch-size $batch
    check 'the same bytes' cmp want out
done
# shellcheck disable=SC2086
expect 3 'two threads' one $draw --threads 2
check 'the same bytes' cmp want out
# All layouts by GPT_LAYOUTS=all.
layouts() {
    printf '%s\n' '4 1 17' '1 4 1' '2 2 3'
    [ "${GPT_LAYOUTS:-}" = all ] && printf '%s\n' '2 1 3' '1 2 17' '2 4 17' \
        '4 2 3' '4 4 1'
}
while read -r tp pp batch; do
    # shellcheck disable=SC2086
    expect 3 "TP $tp, PP $pp, batch $batch" \
        ranks "$tp" "$pp" $draw --batch-size "$batch"
    check 'the same bytes, once' cmp want out
done <<END
$(layouts)
END

# PyTorch's launcher, where there is one: GPT_ORACLE_PYTHON's, or that on PATH.
# A status other than 0 is its own, so that no prompt is refused here.
torchrun=$(command -v torchrun)
[ -z "${GPT_ORACLE_PYTHON:-}" ] ||
    torchrun=$(dirname "$GPT_ORACLE_PYTHON")/torchrun
if [ -x "$torchrun" ]; then
    draw=$(echo "$draw" | sed 's/prompts.jsonl/good.jsonl/')
    sed '$d' prompts.jsonl >good.jsonl
    # shellcheck disable=SC2086
    expect 0 'prompts that are all answered' one $draw
    cp out want
    for layout in tensor pipeline; do
        # shellcheck disable=SC2086
        expect 0 "torchrun, two $layout ranks" timeout 200 "$torchrun" \
            --standalone --no-python --nproc-per-node 2 gpt-generate \
            --load ckpt -q --$layout-model-parallel-size 2 $draw
        check 'the same bytes, once' cmp want out
    done
else
    skip 'no torchrun'
fi

# ---- every kind of work ----
expect 0 'beams of one process' one -p 'a re' --num-beams 5 --num-samples 5 \
    --tokens 9
cp out want
expect 0 'beams of ranks' ranks 1 2 -p 'a re' --num-beams 5 --num-samples 5 \
    --tokens 9
check 'the same texts' cmp want out
printf '%s\n' '{"context": "the red ", "continuation": "house and a dog"}' \
    '{"context": "the red ", "continuation": "cat"}' >pairs.jsonl
expect 0 'scores of one process' one --score --prompt-file pairs.jsonl
cp out want
expect 0 'scores of ranks' ranks 2 1 --score --prompt-file pairs.jsonl
check 'the same scores' cmp want out
expect 0 'perplexity of one process' one --perplexity training \
    --data-path $data --window 63
cp out want
expect 0 'perplexity of ranks' ranks 1 2 --perplexity training \
    --data-path $data --window 63
check 'the same figures' cmp want out
expect 0 'guesses of ranks' ranks 2 1 --speculate 7 --greedy -p 'the cat'
cp out want
expect 0 'and without' one --greedy -p 'the cat'
check 'the same text' cmp want out

talk() { # command...
    printf 'the cat\n\na dog\n' >lines
    "$@" --interactive --greedy --tokens 20 <lines >talked
}
expect 0 'a conversation' talk one
cp talked want
expect 0 'a conversation with ranks' talk ranks 1 2
check 'the same answers' cmp want talked

# A server: the address is in a message of the first rank.
if gpt-generate --load ckpt --serve 0.0.0.0:0 2>&1 |
    grep -q 'no libmicrohttpd' || ! command -v curl >/dev/null; then
    skip 'no libmicrohttpd, or no curl'
else
    timeout 200 gpt-launch --standalone --nproc-per-node 2 gpt-generate \
        --load ckpt --serve 127.0.0.1:0 --tensor-model-parallel-size 2 \
        2>log &
    job=$!
    until_true 60 grep 'http://' log
    url=$(sed -n 's/.* at \(http.*\)\/$/\1/p' log)
    expect 0 'the first rank serves' curl -s -m 60 "$url/v1/completions" \
        -d '{"prompt": "the cat", "temperature": 0, "max_tokens": 20}'
    sed 's/.*"text":"\([^"]*\)".*/\1/' out | tr -d '\n' >served
    expect 0 'what one process writes' one --greedy --tokens 20 -p 'the cat'
    check 'the same text' sh -c 'printf "%s\n" "$(cat served)" | cmp - out'
    kill -TERM $job
    wait $job 2>/dev/null
    check 'and all ranks end' grep -q 'requests that are here are finished' log
fi

# ---- ends ----
expect 0 'no prompt at all' ranks 1 2 --jsonl
err_has 'no prompts'
expect 3 'a prompt that is refused' ranks 2 1 -p "$(printf '%99s' '')"
err_has 'positions'
expect 2 'a number of ranks that does not fit' timeout 200 gpt-launch -q \
    --standalone --nproc-per-node 3 gpt-generate --load ckpt -p a \
    --tensor-model-parallel-size 2
err_has '--tensor-model-parallel-size 2 x --pipeline-model-parallel-size 1 are 2'
expect 2 'one process for two' one -p a --pipeline-model-parallel-size 2
err_has 'gpt-launch'
expect 2 'more stages than layers' ranks 1 6 -p a
err_has '5 layers'

# A rank that dies while the first one waits for a line: that one learns of it
# when it next computes, or by the launcher, which ends it.
for launcher in gpt-launch by-hand; do
    mkfifo line.$launcher
    rm -f pid.* status talked
    run='echo $$ >pid.$RANK; exec gpt-generate --load ckpt --interactive \
        --pipeline-model-parallel-size 2 --greedy --tokens 9'
    if [ $launcher = gpt-launch ]; then
        (timeout 200 gpt-launch --standalone --stdio --nproc-per-node 2 \
            --grace 5 sh -c "$run" <line.$launcher >talked 2>log
        echo $? >status) &
    else
        next_port
        WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
        export WORLD_SIZE MASTER_ADDR MASTER_PORT
        RANK=1 timeout 200 sh -c "$run" >talk1 2>log1 &
        (RANK=0 timeout 200 sh -c "$run" <line.$launcher >talked 2>log
        echo $? >status) &
    fi
    job=$!
    exec 9>line.$launcher
    echo 'the cat' >&9
    until_true 60 test -s talked
    check "$launcher: the first answer" test -s talked
    kill -KILL "$(cat pid.1)"
    sleep 0.5
    (trap '' PIPE; echo 'a dog' >&9) 2>/dev/null
    wait $job 2>/dev/null
    exec 9>&-
    check 'the job fails' sh -c 'test "$(cat status)" != 0 &&
        test "$(cat status)" != 124'
    check 'and names the rank' grep -q 'rank 1' log
done
tap_done
