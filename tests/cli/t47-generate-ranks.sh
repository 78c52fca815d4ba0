#!/bin/sh
# gpt-generate over tensor and pipeline parallel ranks: every byte is that of
# one process, one text is written, and a rank that dies is named.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
unset RANK WORLD_SIZE OMP_NUM_THREADS 2>/dev/null
GPT_THREADS=1
export GPT_THREADS

if gpt-train --version | grep -q ' Gloo'; then :; else
    skip 'built without Gloo'
    tap_done
fi

make_data
# A checkpoint of four ranks, whose words four ranks cannot share equally.
expect 0 'a model of four ranks' timeout 100 gpt-launch --standalone \
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
    timeout 100 gpt-launch -q --standalone --stdio \
        --nproc-per-node $((tp * pp)) gpt-generate --load ckpt -q \
        --tensor-model-parallel-size "$tp" \
        --pipeline-model-parallel-size "$pp" "$@"
}
one() { # options...
    gpt-generate --load ckpt -q "$@"
}
draw='--jsonl --prompt-file prompts.jsonl --tokens 12 --seed 4 --top-k 20
--temperature 0.8 --logprobs 2'
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
while read -r tp pp batch; do
    # shellcheck disable=SC2086
    expect 3 "TP $tp, PP $pp, batch $batch" \
        ranks "$tp" "$pp" $draw --batch-size "$batch"
    check 'the same bytes, once' cmp want out
done <<END
2 1 3
4 1 17
1 2 17
1 4 1
2 2 3
2 4 17
END

# ---- every kind of work ----
expect 0 'logits of one process' one --jsonl -p 'the cat' --greedy \
    --tokens 3 --return-logits
cp out want
expect 0 'logits of ranks' ranks 2 2 --jsonl -p 'the cat' --greedy --tokens 3 \
    --return-logits
check 'the same bits' cmp want out
expect 0 'beams of one process' one -p 'a re' --num-beams 5 --num-samples 5 \
    --tokens 9
cp out want
expect 0 'beams of ranks' ranks 2 2 -p 'a re' --num-beams 5 --num-samples 5 \
    --tokens 9
check 'the same texts' cmp want out
printf '%s\n' '{"context": "the red ", "continuation": "house and a dog"}' \
    '{"context": "the red ", "continuation": "cat"}' >pairs.jsonl
expect 0 'scores of one process' one --score --prompt-file pairs.jsonl
cp out want
expect 0 'scores of ranks' ranks 2 2 --score --prompt-file pairs.jsonl
check 'the same scores' cmp want out
expect 0 'perplexity of one process' one --perplexity training \
    --data-path $data --window 63
cp out want
expect 0 'perplexity of ranks' ranks 2 2 --perplexity training \
    --data-path $data --window 63
check 'the same figures' cmp want out
expect 0 'guesses of ranks' ranks 2 2 --speculate 7 --greedy -p 'the cat'
cp out want
expect 0 'and without' one --greedy -p 'the cat'
check 'the same text' cmp want out

talk() { # command...
    printf 'the cat\n\na dog\n' >lines
    "$@" --interactive --greedy --tokens 20 <lines >talk
}
expect 0 'a conversation' talk one
cp talk want
expect 0 'a conversation with ranks' talk ranks 2 2
check 'the same answers' cmp want talk

# ---- ends ----
expect 0 'no prompt at all' ranks 1 2 --jsonl
err_has 'no prompts'
expect 3 'a prompt that is refused' ranks 2 1 -p "$(printf '%99s' '')"
err_has 'positions'
expect 2 'a number of ranks that does not fit' timeout 60 gpt-launch -q \
    --standalone --nproc-per-node 3 gpt-generate --load ckpt -p a \
    --tensor-model-parallel-size 2
err_has '--tensor-model-parallel-size 2 x --pipeline-model-parallel-size 1 are 2'
expect 2 'one process for two' one -p a --pipeline-model-parallel-size 2
err_has 'gpt-launch'
expect 2 'more stages than layers' ranks 1 6 -p a
err_has '5 layers'

# A rank that dies while the first one waits for a line; the first one learns of
# it when it next asks for something.
mkfifo line
(timeout 60 gpt-launch --standalone --stdio --nproc-per-node 2 --grace 5 \
    gpt-generate --load ckpt --interactive --pipeline-model-parallel-size 2 \
    --greedy --log-format json <line >talk 2>log; echo $? >status) &
job=$!
exec 9>line
echo 'the cat' >&9
tries=0
until [ -s talk ] || [ $tries = 200 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
check 'the first answer' test -s talk
victim=$(sed -n 's/.*rank 1 is process \([0-9]*\).*/\1/p' log)
[ -n "$victim" ] || victim=$(for p in /proc/[0-9]*; do
    tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx RANK=1 &&
        tr '\0' ' ' <"$p/cmdline" | grep -q "^gpt-generate --load ckpt --inter" &&
        [ "$(readlink "$p/cwd")" = "$scratch" ] && echo "${p#/proc/}"
done)
kill -KILL "$victim"
echo 'a dog' >&9
wait $job
exec 9>&-
check 'the job fails' test "$(cat status)" != 0
check 'and names the rank' grep -q 'rank 1' log
tap_done
