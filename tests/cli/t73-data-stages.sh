#!/bin/sh
# --data-stages: what is read from which sample on, over resumes and layouts.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

for set in web books code; do
    awk -v set=$set 'BEGIN { for (i = 0; i < 40; i++)
        printf "{\"text\":\"%s %d %d %d\"}\n", set, i, i * i, i * i * i }' \
        >$set.jsonl
    expect 0 "data: $set" gpt-preprocess --input $set.jsonl -q \
        --output-prefix $set --append-eod --tokenizer-type ByteTokenizer
done
cat >stages.txt <<'END'
# sample  data
0         0.75 web 0.25 books
10        books                 # within the third step
24        0.5 code_text_document 0.5 web
END
model="--num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 8
    --micro-batch-size 1 --global-batch-size 4 --lr 0.003 --eval-iters 0
    --log-interval 1 --threads 1 --tokenizer-type ByteTokenizer
    --make-vocab-size-divisible-by 1 --device cpu"
train() { # options...
    # shellcheck disable=SC2086 # a word list
    gpt-train $model "$@"
}
staged() { train --data-stages stages.txt --train-iters 8 "$@"; }

expect 0 'a run in stages' staged --save whole
err_has 'data stage 1 of 3 begins at sample 0: 0.75 web_text_document 0.25'
err_has 'data stage 2 of 3 begins at sample 10: books_text_document'
err_has 'data stage 3 of 3 begins at sample 24: 0.5 code_text_document 0.5'
check 'metrics have the stage of each step' test "$(sed -n \
    's/.*"data_stage":\([0-9]*\).*/\1/p' whole/metrics.jsonl | tr -d '\n')" = \
    11122233
losses() { sed -n 's/.*"lm_loss":\([^,]*\),.*/\1/p' "$1"; }

# The words of --data-path, from a file.
printf '0.75 web\n0.25\tbooks_text_document\n' >blend.txt
expect 0 'a blend' train --train-iters 4 --data-path 0.75 web 0.25 books \
    --save blend
expect 0 'of a file' train --train-iters 4 --data-args-path blend.txt \
    --save file
losses blend/metrics.jsonl >want
losses file/metrics.jsonl >got
check 'is the same blend' sh -c '[ -s want ] && cmp want got'
expect 2 'a file of words, and words' train --train-iters 4 --data-path web \
    --data-args-path blend.txt
err_has '--data-args-path excludes --data-path'
expect 2 'two files' train --train-iters 4 --data-args-path blend.txt \
    --per-split-data-args-path stages.txt
for option in --train-data-path=web --data-stages=stages.txt; do
    expect 2 "a file of words, and $option" train --train-iters 4 \
        --data-args-path blend.txt "$option"
    err_has "--data-args-path excludes"
done
echo '1 web 0.25' >odd.txt
expect 2 'a file of too few words' train --train-iters 4 --data-args-path odd.txt
err_has 'odd.txt: --data-path: word 1 of 3 is the number'
: >empty.txt
expect 3 'a file of no words' train --train-iters 4 --data-args-path empty.txt
err_has 'empty.txt: names no data set'
expect 4 'no file' train --train-iters 4 --data-args-path none.txt

expect 0 'a plan' staged --dry-run
check 'counts the index of a blend' grep -qE \
    "^   sample index +$((18 * 32 + 8)) bytes" out

# ---- resumed ----
expect 0 'a run that stops in a stage' staged --save part --exit-interval 5
expect 0 'and goes on' staged --save part --load part
err_has 'data stage 2 of 3 goes on at sample 20: books'
losses whole/metrics.jsonl >want
losses part/metrics.jsonl >got
check 'has the same losses' cmp want got
check 'and the same weights, bit for bit' cmp \
    whole/iter_0000008/model_tp00_pp00.safetensors \
    part/iter_0000008/model_tp00_pp00.safetensors
check 'metrics count the restart' grep -q '"iteration":6,.*"restarts":1' \
    part/metrics.jsonl
constant='--lr-decay-style constant --weight-decay-incr-style constant'
# shellcheck disable=SC2086 # a word list
expect 0 'a longer run' staged --save long $constant
# shellcheck disable=SC2086
expect 0 'a shorter run' staged --train-iters 6 --save short $constant
err_has 'stage 3 begins at sample 24; the run ends after 24 samples'
# shellcheck disable=SC2086
expect 0 'that is made longer' staged --save short --load short $constant
check 'reads the same data' sh -c "! grep 'other data' err"
check 'and has the same weights' cmp \
    long/iter_0000008/model_tp00_pp00.safetensors \
    short/iter_0000008/model_tp00_pp00.safetensors
sed 's/0.75 web/0.5 web/' stages.txt >other.txt
# shellcheck disable=SC2086
expect 0 'other stages' train --data-stages other.txt --train-iters 9 \
    --save short --load short $constant
err_has 'its run had other data'

# ---- the same as other options ----
echo '0 0.75 web 0.25 books' >one.txt
expect 0 'one stage' train --data-stages one.txt --train-iters 6 \
    --metrics one.jsonl
expect 0 'is a blend' train --train-data-path 0.75 web 0.25 books \
    --train-iters 6 --metrics blend.jsonl
losses one.jsonl >got
losses blend.jsonl >want
check 'with the same losses' cmp want got

# ---- layouts ----
if gpt-train --version | grep -q ' Gloo'; then
    for options in --seed=1234 --tensor-model-parallel-size=2 \
        --pipeline-model-parallel-size=2; do
        rm -f some.jsonl
        # shellcheck disable=SC2086 # a word list
        expect 0 "two ranks $options" timeout 100 gpt-launch --standalone \
            --nproc-per-node 2 gpt-train $model --data-stages stages.txt \
            --train-iters 8 --metrics some.jsonl $options
        check 'the same losses' compare_metrics whole/metrics.jsonl \
            some.jsonl 8
        check 'one rank says when a stage begins' \
            test "$(grep -c 'data stage 2 of 3 begins' err)" = 1
    done
fi

# ---- refused ----
expect 2 'data named twice' staged --data-path web
err_has '--data-stages excludes --data-path'
expect 2 'and in another way' staged --train-data-path web
err_has '--data-stages excludes --train-data-path'
expect 2 'epochs' train --data-stages stages.txt --epochs 1
err_has '--data-stages excludes --epochs'
expect 2 'a split of common data' staged --split 8,1,1
err_has 'data sets are given for each split'
expect 4 'no such file' train --data-stages nowhere.txt --train-iters 2
printf '0 web\n0 books\n' >bad.txt
expect 3 'stages out of order' train --data-stages bad.txt --train-iters 2
err_has 'bad.txt:2: stage 2 begins at sample 0'
echo '0 nothing' >bad.txt
expect 4 'no such data set' train --data-stages bad.txt --train-iters 2
echo '0 0.5 web x books' >bad.txt
expect 2 'a weight that is none' train --data-stages bad.txt --train-iters 2
err_has 'where a data set must be'
expect 0 'validation data of their own' staged --valid-data-path code \
    --eval-iters 1
err_has 'validation loss at'
tap_done
