#!/bin/sh
# nanoGPT's smallest published run (config/train_shakespeare_char.py with the
# CPU settings of its README): characters of tinyshakespeare, 4 layers, 4
# heads, width 128, context 64, batch 12, 2000 steps. The published validation
# loss is 1.88; the loss here, over all of the last tenth, must be <= 1.90.
#
# It takes a minute or two on two cores, so it runs only on request:
#     GPT_LONG=1 sh tests/parity/shakespeare.sh [FILE]
# FILE is tinyshakespeare (input.txt of nanoGPT's char-rnn data), by default
# ../shared/data/tinyshakespeare.txt. The text is ASCII with 65 characters, so
# bytes are characters; the other ids of the byte vocabulary never occur.
. "$(dirname "$0")/../lib/tap.sh"

text=${1:-$top/../shared/data/tinyshakespeare.txt}
if [ ! -f "$text" ]; then
    skip "no tinyshakespeare at $text"
    tap_done
fi
if [ -z "${GPT_LONG:-}" ]; then
    skip 'takes minutes: GPT_LONG=1'
    tap_done
fi
bytes=$(wc -c <"$text")
train_bytes=$((bytes * 9 / 10))
valid_tokens=$((bytes - train_bytes))

jsonl() { # plain text to one JSON line
    awk 'BEGIN { printf "{\"text\": \"" }
         { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); printf "%s\\n", $0 }
         END { print "\"}" }'
}
head -c "$train_bytes" "$text" | jsonl >train.jsonl
tail -c "$valid_tokens" "$text" | jsonl >valid.jsonl
for part in train valid; do
    expect 0 "tokenizes the $part part" gpt-preprocess --input $part.jsonl \
        --output-prefix $part --tokenizer-type ByteTokenizer
done

samples=$(((valid_tokens - 1) / 64))
expect 0 'trains 2000 steps' gpt-train --threads "${THREADS:-0}" \
    --num-layers 4 --num-attention-heads 4 --hidden-size 128 --seq-length 64 \
    --micro-batch-size 12 --train-iters 2000 --seed "${SEED:-1337}" \
    --hidden-dropout 0 --attention-dropout 0 --init-method-std 0.02 \
    --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 100 \
    --adam-beta1 0.9 --adam-beta2 0.99 --weight-decay 0.1 --clip-grad 1.0 \
    --tokenizer-type ByteTokenizer --make-vocab-size-divisible-by 64 \
    --train-data-path train_text_document \
    --valid-data-path valid_text_document \
    --eval-interval 2000 --eval-iters $((samples / 12)) \
    --log-interval 100 --metrics metrics.jsonl
grep -E 'lm loss|validation' err | sed 's/^/#/'
loss=$(sed -n 's/.*"validation_loss":\([0-9.]*\).*/\1/p' metrics.jsonl |
    tail -n 1)
check "validation loss $loss over $((samples / 12 * 12)) samples is <= 1.90" \
    awk "BEGIN { exit !(${loss:-9} <= 1.90) }"

tap_done
