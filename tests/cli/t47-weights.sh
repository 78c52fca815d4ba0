#!/bin/sh
# gpt-generate --weights, --round-inputs and --kv-cache-dtype: matrices in fewer
# bits, inputs of their products, and keys and values. What each form costs in
# perplexity, how much memory weights take, and that texts depend neither on the
# number of threads and processes nor on what is generated beside them. Products are compared with sums in double by
# test_kernels_quant.
. "$(dirname "$0")/../lib/tap.sh"

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

# 17 prompts of many lengths
awk 'BEGIN {
    text = "aa0 bb1 cc2 dd3 ee4 fa0 gb1 ac2 bd3 ce4 da0 eb1"
    for (i = 1; i <= 17; i++)
        printf "{\"prompt\": \"%s\"}\n", substr(text, 1, i * 29 % 43 + 1)
}' >prompts.jsonl
draw='--jsonl --prompt-file prompts.jsonl --tokens 12 --seed 4 --top-k 20'

layouts=
if gpt-train --version | grep -q ' Gloo'; then
    layouts='tensor pipeline'
else
    skip 'built without Gloo'
fi

float=$(loss)
check 'fp32 is the default' test "$float" = "$(loss --weights fp32)"
for form in bf16 int8 int8-32; do
    before=$float
    for rounds in '' --round-inputs; do
        what="$form${rounds:+ $rounds}"
        lossy=$(loss --weights $form $rounds)
        check "$what: the loss is within 2 % ($float, $lossy)" \
            within "$float" "$lossy" 0.02
        check "$what: and another one" test "$before" != "$lossy"
        before=$lossy
        # shellcheck disable=SC2086 # word lists
        expect 0 "$what: texts" gen --weights $form $rounds $draw
        cp out want
        for batch in 1 3 17; do
            # shellcheck disable=SC2086
            expect 0 "$what: $batch at once" gen --weights $form $rounds $draw \
                --batch-size $batch
            check 'the same texts' cmp want out
        done
        # shellcheck disable=SC2086
        expect 0 "$what: two threads" gpt-generate --load ckpt --threads 2 \
            --weights $form $rounds $draw
        check 'the same texts' cmp want out
        # units of int8 are those of whole rows, which ranks share
        for layout in $layouts; do
            # shellcheck disable=SC2086
            expect 0 "$what: two $layout ranks" timeout 60 gpt-launch -q \
                --standalone --stdio --nproc-per-node 2 gpt-generate \
                --load ckpt -q --$layout-model-parallel-size 2 \
                --weights $form $rounds $draw
            check 'the same texts' cmp want out
        done
    done
done

# a server's texts are the filter's
if gen --serve 0.0.0.0:0 2>&1 | grep -q 'no libmicrohttpd' ||
    ! command -v curl >/dev/null; then
    skip 'no libmicrohttpd, or no curl'
else
    . "$top/tests/lib/server.sh"
    serve --load ckpt --weights int8 --round-inputs
    answers 'a completion' 200 /v1/completions \
        '{"prompt": "aa0 b", "temperature": 0, "max_tokens": 20}'
    sed 's/.*"text":"\([^"]*\)".*/\1/' out >served
    expect 0 'what the filter writes' gen --weights int8 --round-inputs \
        --greedy --tokens 20 -p 'aa0 b'
    check 'the same text' cmp served out
    stop_server
fi

# keys and values in fewer bits: for every kind of work, without a change of
# text by what is beside it
cache='--kv-cache-dtype bf16'
lossy=$(loss $cache)
check "keys and values of bf16: the loss is within 1 % ($float, $lossy)" \
    within "$float" "$lossy" 0.01
check 'and another one' test "$float" != "$lossy"
check 'rounded inputs come with it' test "$(loss --weights bf16 \
    --round-inputs)" = "$(loss --weights bf16 --round-inputs $cache)"
check 'which can be refused' test "$(loss --weights bf16 --round-inputs)" != \
    "$(loss --weights bf16 --round-inputs --kv-cache-dtype fp32)"
check 'fp32 is the default' test "$float" = "$(loss --kv-cache-dtype fp32)"
# shellcheck disable=SC2086 # word lists
expect 0 'keys and values of bf16: texts' gen $cache $draw
cp out want
for how in '--batch-size 1' '--batch-size 17' '--speculate 4' '--threads 2'; do
    # shellcheck disable=SC2086
    expect 0 "with $how" gen $cache $draw $how
    check 'the same texts' cmp want out
done
for layout in $layouts; do
    # shellcheck disable=SC2086
    expect 0 "two $layout ranks" timeout 60 gpt-launch -q --standalone --stdio \
        --nproc-per-node 2 gpt-generate --load ckpt -q \
        --$layout-model-parallel-size 2 $cache $draw
    check 'the same texts' cmp want out
done
# a beam's keys and values are copied
# shellcheck disable=SC2086
expect 0 'beams' gen $cache --num-beams 3 --tokens 8 --jsonl \
    --prompt-file prompts.jsonl
cp out want
# shellcheck disable=SC2086
expect 0 'beams, fewer prompts at once' gen $cache --num-beams 3 --tokens 8 \
    --jsonl --prompt-file prompts.jsonl --batch-size 3
check 'the same texts' cmp want out
printf '{"context": "aa0 b", "continuation": "b1 cc2"}\n' >pairs
# shellcheck disable=SC2086
expect 0 'scores' sh -c "gpt-generate --load ckpt --score $cache <pairs"
out_has '"logprob"'
memory() {
    gen "$@" --verbose --tokens 1 -p a 2>&1 | grep 'of weights'
}
check 'memory is said, and is another' test "$(memory)" != "$(memory $cache)"
if [ -e "$BUILD/libgpt-cuda-emu.so" ]; then
    # shellcheck disable=SC2086
    expect 5 'GPUs have no such cache' gen --device cuda-emu $cache -p a
    err_has 'the CPU keeps them in bf16'
else
    skip 'there is no libgpt-cuda-emu.so'
fi

expect 2 'floats are not rounded' gen --round-inputs --tokens 1 -p a
err_has '--round-inputs is for --weights bf16, int8 and int8-32'

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
expect 2 'another type of keys and values' gen --kv-cache-dtype int8 -p a
err_has '--kv-cache-dtype'
expect 2 'another form' gen --weights int4 -p a
err_has 'int8-32'
tap_done
