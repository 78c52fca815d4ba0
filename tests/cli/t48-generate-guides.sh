#!/bin/sh
# Commands that others document, as the manual page has them: the prompts and
# options of accelerate's guide to Megatron-LM. And figures that two programs
# must agree on.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
make_data
expect 0 'a model' gpt-train --data-path $data --tokenizer-type ByteTokenizer \
    --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 96 \
    --micro-batch-size 4 --split 1,0,0 --eval-iters 0 --train-iters 40 \
    --lr 1e-2 --save ckpt --no-save-optim -q

# ---- the guide's commands, from the manual page ----
# Each begins with "$ gpt-generate" and goes on after a backslash; the page
# writes \e for it and \(dq for a quote.
sed -n '/^\.Ss Commands of accelerate/,/^\.S[hs] [^C]/p' \
    "$top/man/gpt-generate.1" | sed -n 's/^\.Dl \(.*\)$/\1/p' |
    sed -e 's/^"\(.*\)"$/\1/' -e 's/\\e$/\\/' -e 's/\\(dq/"/g' \
        -e "s/\\\\(aq/'/g" -e 's/^\$ //' >guide.sh
check 'the page has four commands' test "$(grep -c '^gpt-generate' guide.sh)" = 4
awk '/^gpt-generate/ { n++ } { print > ("guide" n ".sh") }' guide.sh
for i in 1 2 3 4; do
    expect 0 "command $i" sh "guide$i.sh"
    texts=$(($(grep -c '^---$' out) + 1))
    check "$texts texts" test $texts = "$([ $i = 4 ] && echo 1 || echo 4)"
done
check 'the last one has the length penalty' grep -q 'length-penalty 1.5' guide4.sh

# ---- guesses ----
for rule in --greedy '--temperature 0.7 --top-p 0.9 --seed 3'; do
    # shellcheck disable=SC2086 # a word list
    expect 0 "$rule" gpt-generate --load ckpt $rule --tokens 80 -q \
        --num-samples 3 -p 'the cat sees the' 'the cat sees the dog' \
        --stats-file plain.json -f
    cp out want
    # shellcheck disable=SC2086
    expect 0 'with guesses' gpt-generate --load ckpt $rule --tokens 80 -q \
        --num-samples 3 -p 'the cat sees the' 'the cat sees the dog' \
        --stats-file guess.json -f --speculate 7
    check 'the same texts' cmp want out
    steps() {
        sed -n 's/.*"steps":\([0-9]*\),.*/\1/p' "$1"
    }
    check "fewer steps: $(steps guess.json), not $(steps plain.json)" \
        test "$(steps guess.json)" -lt "$(steps plain.json)"
done
expect 2 'beams do not guess' gpt-generate --load ckpt -p a --num-beams 2 \
    --speculate 2
err_has 'speculate'

# ---- the validation loss of training ----
# Unshuffled samples of training are the windows here.
expect 0 'the loss here' gpt-generate --load ckpt --perplexity training \
    --data-path $data -q
loss=$(sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' out)
samples=$(($(sed -n 's/.*"scored":\([0-9]*\),.*/\1/p' out) / 96))
expect 0 'the loss there' gpt-train --load ckpt --use-checkpoint-args \
    --train-data-path $data --valid-data-path $data --no-shuffle \
    --tokenizer-type ByteTokenizer --train-iters 0 --micro-batch-size 1 \
    --global-batch-size 1 --eval-iters "$samples"
there=$(cat out err | sed -n \
    's/.* validation loss at .*lm loss value: *\([0-9.E+-]*\).*/\1/p' | tail -n 1)
check "$loss and $there agree: $samples samples" awk \
    -v a="$loss" -v b="$there" 'BEGIN {
    d = a - b; if (d < 0) d = -d; exit !(b > 0 && d <= 1e-6 * b) }'
tap_done
