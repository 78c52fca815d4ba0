#!/bin/sh
# Repeats a published run: GPT-2 large from random weights on WikiText-2 (raw),
# as logged in Hugging Face's guide to Megatron-LM in accelerate
# (docs/source/usage_guides/megatron_lm.md): 48 x 1024 tokens a step, 245 steps
# (5 epochs), linear decay from 5e-5, dropout 0.1, bf16, clipping at 1. The
# script prints its validation perplexities beside the published ones of the
# first four epochs.
#
# usage: gpt2-large-wikitext2.sh TEXT VOCAB DIR [OPTION of gpt-train]...
#
#   TEXT   directory of wiki.train.raw and wiki.valid.raw
#   VOCAB  directory of GPT-2's vocab.json and merges.txt
#   DIR    directory for data sets, checkpoints and metrics.jsonl; the same
#          command resumes a run that was stopped
#
# One rank alone needs 48 GiB, as --dry-run reports; with --micro-batch-size 6,
# which changes nothing else, it needs 22 GiB.
#
# RANKS=N in the environment starts N ranks on this machine. The published run
# had RANKS=4 with
#   --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
#   --sequence-parallel --recompute-activations --use-distributed-optimizer
set -eu
[ $# -ge 3 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
text=$1 vocab=$2 dir=$3
shift 3
mkdir -p "$dir"

# The whole text is one document, because the guide cuts it into consecutive
# blocks of 1024 tokens.
for split in train valid; do
    prefix=$dir/wikitext2-$split
    [ -f "${prefix}_text_document.idx" ] && continue
    [ -r "$text/wiki.$split.raw" ] || {
        echo "$0: there is no $text/wiki.$split.raw" >&2
        exit 1
    }
    {
        printf '{"text": "'
        sed 's/\\/\\\\/g; s/"/\\"/g; s/	/\\t/g; s/$/\\n/' \
            "$text/wiki.$split.raw" | tr -d '\n'
        printf '"}\n'
    } >"$prefix.jsonl"
    gpt-preprocess --input "$prefix.jsonl" --output-prefix "$prefix" \
        --tokenizer-type GPT2BPETokenizer --vocab-file "$vocab/vocab.json" \
        --merge-file "$vocab/merges.txt"
    rm "$prefix.jsonl"
done

launch=
[ "${RANKS:-1}" = 1 ] || launch="gpt-launch --standalone --nproc-per-node $RANKS"
# shellcheck disable=SC2086 # a word list
$launch gpt-train --config gpt2-774m \
    --train-data-path "$dir/wikitext2-train_text_document" \
    --valid-data-path "$dir/wikitext2-valid_text_document" \
    --tokenizer-type GPT2BPETokenizer --vocab-file "$vocab/vocab.json" \
    --merge-file "$vocab/merges.txt" \
    --seq-length 1024 --micro-batch-size 24 --global-batch-size 48 \
    --train-iters 245 --lr 5e-5 --min-lr 0 --lr-decay-style linear \
    --lr-warmup-fraction 0 --weight-decay 0 --adam-beta2 0.999 \
    --clip-grad 1 --bf16 --log-interval 1 --eval-interval 49 --eval-iters 5 \
    --save "$dir/checkpoints" --load "$dir/checkpoints" "$@"

echo "validation perplexity after each epoch (published: 1222 895 703 600):"
sed -n 's/.*"iteration":\([0-9]*\),.*"validation_ppl":\([0-9.]*\).*/  step \1: \2/p' \
    "$dir/checkpoints/metrics.jsonl"
