#!/bin/sh
# A rank is killed, is stopped, has too little memory, or has other data or
# options: every other rank reports it with the reason, in time, and ends. The
# last checkpoint is intact.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/ranks.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

needs_gloo
make_data
sed 's/the/THE/g' corpus.jsonl | head -n 50 >other.jsonl
expect 0 'and another' gpt-preprocess --input other.jsonl \
    --output-prefix other --tokenizer-type ByteTokenizer --append-eod

# A single rank resumes the run of several.
continues() { # directory
    last=$(cat "$1/latest_checkpointed_iteration.txt") || return
    # shellcheck disable=SC2086 # a word list
    timeout 60 gpt-train $tiny --num-layers 2 --global-batch-size 6 \
        --train-iters $((last + 1)) --override-opt-param-scheduler \
        --save "$1" --load "$1" 2>&1 &&
        [ "$(cat "$1/latest_checkpointed_iteration.txt")" = $((last + 1)) ]
}

n=3
start --save killed --save-interval 10 --log-interval 100
check 'three ranks train' begun killed
kill -9 "$(pid 1)"
check 'a rank is killed: the others name it' all_end 1 \
    'rank 1: ended without a word' 0 2
end_all
check 'and one rank resumes from the checkpoint' continues killed

start --save first --save-interval 10 --log-interval 100
check 'three more' begun first
kill -9 "$(pid 0)"
check 'rank 0 is killed, and the store with it' all_end 1 'rank 0' 1 2
end_all
check 'and its checkpoint is intact' continues first

start --save stopped --save-interval 10 --log-interval 100 \
    --distributed-step-timeout-minutes 0.1
check 'and three' begun stopped
kill -STOP "$(pid 1)" # in a step, or in a save: that is told in other words
check 'a rank hangs: the others name it after the timeout' \
    all_end 1 'rank 1' 0 2
end_all
check 'and the checkpoint is intact' continues stopped

start --save asked --save-interval 1000000 --log-interval 1
check 'three that save when they end' until_true 60 test -s asked/metrics.jsonl
# KiB of address space that a rank of a small model takes
usual=$(awk '/^VmSize/ { print $2 }' "/proc/$(pid 1)/status" 2>/dev/null)
kill -TERM "$(pid 2)"
check 'a signal to one rank stops all' sh -c '
    for r in 0 1 2; do
        i=0
        until [ -s status.$r ] || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done
    done
    cat status.0 status.1 status.2 err.*
    [ "$(cat status.0 status.1 status.2 | tr "\n" " ")" = "143 143 143 " ]'
last=$(sed -n 's/^{"iteration":\([0-9]*\),.*/\1/p' asked/metrics.jsonl |
    tail -n 1)
check 'after the same step, which is saved' \
    grep -qx "${last:-none}" asked/latest_checkpointed_iteration.txt
end_all

n=2
echo other_text_document >data.1
start
check 'another data set is noticed' all_end 2 \
    "not given the same data set: rank 1 differs from rank 0: 'digest = " 0 1
end_all
rm data.1
start @1:--clip-grad @1:0.5
check 'another option, too' all_end 2 \
    "same options: rank 1 differs from rank 0: 'clip-grad = 0.5'" 0 1
end_all
echo missing >data.1
start
check 'a data set that one rank cannot read' all_end 4 \
    "rank 1: cannot open 'missing.idx'" 0 1
end_all
rm data.1
start --save "$scratch/full/ckpt" --metrics /dev/null @1:--save @1:elsewhere
check 'another directory' all_end 2 \
    "same options: rank 1 differs from rank 0: 'save = elsewhere'" 0 1
end_all

# What may lie or be called otherwise on another machine is not compared.
cp "$top/tests/golden/families/small.tiktoken" .
cp small.tiktoken elsewhere.tiktoken
echo 'CUDA_VISIBLE_DEVICES=; export CUDA_VISIBLE_DEVICES' >env.0
start --train-iters 2 --metrics /dev/null --tokenizer-type TikTokenizer \
    --tokenizer-model small.tiktoken @1:--tokenizer-model=elsewhere.tiktoken \
    --tiktoken-pattern v2 --allow-vocab-mismatch @1:--device @1:cpu
check 'other names of files and devices are not' all_end 0 'running on' 0
until_true 60 test -s status.1
check 'by the other rank either' test "$(cat status.1)" = 0
end_all
rm env.0

# shellcheck disable=SC2086 # a word list
expect 0 'a checkpoint' timeout 60 gpt-train $tiny --num-layers 2 \
    --global-batch-size 6 --train-iters 1 --save seen
mkdir away
echo 'cd away' >env.1
echo "$PWD/$data" >data.1
start --train-iters 2 --load seen --save seen
check 'that one rank does not see: all fail' all_end 2 \
    'the ranks were not given the same checkpoint to load: rank 1' 0 1
end_all
rm env.1 data.1

start --metrics /dev/full
check 'rank 0 cannot write' all_end 4 'rank 0: cannot write' 0 1
end_all

# A sanitizer reserves terabytes. Else the model takes 340 MB more than the small
# one.
usual=${usual:-0}
# shellcheck disable=SC3045 # dash and bash have it; else the test is left out
if [ $usual -gt 0 ] && [ $usual -lt 9000000 ] && (ulimit -v $usual); then
    echo $usual >limit.1
    start --hidden-size 384 --num-layers 12
    check 'a rank without memory' all_end 5 \
        'rank 1: cpu: out of memory: ' 0 1
    end_all
    rm limit.1
else
    skip 'no limit of address space, or a sanitizer'
fi

mkdir launched
# shellcheck disable=SC2016,SC2086 # for the shell of each rank; a word list
gpt-launch --standalone --nproc-per-node 3 sh -c 'echo $$ >pid.$RANK
    exec gpt-train "$@"' sh $tiny --num-layers 2 --global-batch-size 6 \
    --train-iters 20000 --save launched/ckpt --save-interval 10 \
    --log-interval 100 >/dev/null 2>log &
check 'ranks under gpt-launch train' begun launched/ckpt
kill -9 "$(pid 2)"
wait $!
check 'gpt-launch reports the rank that was killed' test $? = 137
check 'and so do the other ranks' sh -c '
    cat log
    grep -F "[rank 0] gpt-train: error: rank 2: was killed by SIGKILL" log &&
        grep -F "[rank 1] gpt-train: error: rank 2: was killed by SIGKILL" log'
tap_done
