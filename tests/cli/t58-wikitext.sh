#!/bin/sh
# The script of the published run, with a small text and a small model: it makes
# data sets, trains, resumes, and prints the perplexities.
. "$(dirname "$0")/../lib/tap.sh"

if ! find_gpt2; then
    skip "GPT-2's vocabulary is not here: set GPT2_VOCAB_DIR"
    tap_done
    exit
fi
mkdir text
for split in train valid; do
    awk 'BEGIN { for (i = 0; i < 400; i++)
        printf " = %d = \n\tThe \"%d\" \\ of <unk> and %d .\n", i, i * i, i % 7
    }' >text/wiki.$split.raw
done
script=$top/share/examples/gpt2-large-wikitext2.sh
small() { # options...
    sh "$script" text "$gpt2" run --num-layers 1 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 16 --micro-batch-size 2 \
        --global-batch-size 4 --train-iters 10 --eval-interval 4 --lr 0.01 \
        --device cpu "$@"
}
expect 0 'runs' small --exit-interval 5
out_has '  step 4: '
check 'the text is one document' test "$(gpt-dataset info --json \
    run/wikitext2-train_text_document | tr ',' '\n' |
    sed -n 's/.*"documents": *\([0-9]*\).*/\1/p' | head -n 1)" = 1
gpt-dataset cat run/wikitext2-train_text_document \
    --vocab-file "$gpt2/vocab.json" --merge-file "$gpt2/merges.txt" >text.out \
    2>cat.err || sed 's/^/# /' cat.err
check 'and all of it' grep -qF 'The "159201" \ of <unk> and 0 .' text.out
expect 0 'resumes' small
err_has 'loaded checkpoint'
out_has '  step 8: '
expect 1 'a text that is not there' sh "$script" nowhere "$gpt2" other
err_has 'there is no nowhere/wiki.train.raw'
expect 2 'prints its usage' sh "$script" text
err_has 'usage: '
tap_done
