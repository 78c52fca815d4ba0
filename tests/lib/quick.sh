# shellcheck shell=sh
# A model that knows one text by heart, "quick brown", for tests of what is
# generated. Source it after tap.sh.

# Makes corpus.jsonl, d_text_document and the checkpoint ckpt.
make_quick_model() {
    awk 'BEGIN {
        for (i = 0; i < 200; i++) print "{\"text\": \"quick brown\"}" }' \
        >corpus.jsonl
    expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
        --tokenizer-type ByteTokenizer --append-eod
    expect 0 'a model that knows it' gpt-train --data-path d_text_document \
        --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 32 \
        --num-attention-heads 2 --seq-length 32 --micro-batch-size 4 \
        --split 100,0,0 --hidden-dropout 0 --attention-dropout 0 \
        --eval-iters 0 --save ckpt --no-save-optim --train-iters 80 --lr 1e-2 \
        --lr-decay-style constant
}
