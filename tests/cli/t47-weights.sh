#!/bin/sh
# gpt-generate --weights: matrices in fewer bits. What each form costs in
# perplexity, how much memory weights take, and that texts depend neither on the
# number of threads nor on what is generated beside them. Products are compared
# with sums in double by test_kernels_quant.
. "$(dirname "$0")/../lib/tap.sh"

command -v gpt-train >/dev/null || {
    skip 'there is no gpt-train'
    tap_done
}
awk 'BEGIN {
    printf "{\"text\": \""
    for (i = 0; i < 64; i++) printf "%c%c%d ", 97 + i % 7, 97 + i % 5, i % 10
    print "\"}" }' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model' gpt-train --train-data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 64 \
    --num-attention-heads 2 --seq-length 64 --micro-batch-size 2 \
    --hidden-dropout 0 --attention-dropout 0 --save ckpt --train-iters 30 \
    --lr 1e-2 --lr-decay-style constant

gen() {
    gpt-generate --load ckpt --threads 1 "$@"
}
loss() {
    gen --perplexity training --data-path d_text_document "$@" |
        sed 's/.*"loss":\([^,}]*\).*/\1/; q'
}
within() { # a b tolerance
    awk -v a="$1" -v b="$2" -v t="$3" \
        'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 <= (t * a) ^ 2) }'
}

float=$(loss)
check 'fp32 is the default' test "$float" = "$(loss --weights fp32)"
for form in bf16 int8 int8-32; do
    lossy=$(loss --weights $form)
    check "$form: the loss is within 2 % ($float, $lossy)" \
        within "$float" "$lossy" 0.02
    check "$form: and another one" test "$float" != "$lossy"
    gen --weights $form --seed 1 --tokens 20 -p 'aa0 ' 'bb1 cc2 ' 'dd3 ' \
        >together
    gen --weights $form --seed 1 --tokens 20 --batch-size 1 -p 'aa0 ' \
        'bb1 cc2 ' 'dd3 ' >alone
    check "$form: texts do not depend on others" cmp together alone
    gpt-generate --load ckpt --threads 2 --weights $form --seed 1 --tokens 20 \
        -p 'aa0 ' 'bb1 cc2 ' 'dd3 ' >threads
    check "$form: or on threads" cmp together threads
done

# the figures of memory and of a step follow
bytes() {
    gen --weights "$1" --tokens 4 --stats-file stats --force -p a >/dev/null
    sed 's/.*"weight_bytes_per_step":\([0-9]*\).*/\1/' stats
}
check 'a step reads about half of the bytes of fp32' \
    within "$(bytes fp32)" "$(($(bytes bf16) * 2))" 0.05
check 'about a quarter' within "$(bytes fp32)" "$(($(bytes int8) * 4))" 0.1
expect 0 'memory is said' gen --weights int8 --verbose --tokens 1 -p a
err_has 'of weights'
expect 2 'another form' gen --weights int4 -p a
err_has 'int8-32'
tap_done
