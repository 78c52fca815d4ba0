#!/bin/sh
# gpt-generate --score and --perplexity: forms of input and output, refusals,
# the validation loss of training, and a checkpoint whose weights alone are
# whole. Figures are compared with a slow reference in tests/parity/scores.sh.
. "$(dirname "$0")/../lib/tap.sh"

# One document of 257 tokens with its end: 16 samples of 16 tokens.
awk 'BEGIN {
    printf "{\"text\": \""
    for (i = 0; i < 64; i++) printf "%c%c%d ", 97 + i % 7, 97 + i % 5, i % 10
    print "\"}" }' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model, and its validation loss' gpt-train --train-data-path \
    d_text_document --valid-data-path d_text_document --tokenizer-type \
    ByteTokenizer --num-layers 2 --hidden-size 32 --num-attention-heads 2 \
    --seq-length 16 --micro-batch-size 4 --hidden-dropout 0 \
    --attention-dropout 0 --eval-iters 4 --eval-interval 1000 --save ckpt \
    --train-iters 30 --lr 1e-2 --lr-decay-style constant
cat out err | sed -n 's/.*end of training .*lm loss value: *\([0-9.E+-]*\).*/\1/p' |
    head -n 1 >validation

gen() {
    gpt-generate --load ckpt --threads 1 "$@"
}
field() { # name: of the first object of out
    sed "s/.*\"$1\":\\([^,}]*\\).*/\\1/; q" out
}
near() { # a b
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-10 * a * a) }'
}

# ---- lines together ----
# Contexts that are the same, in one batch and over its end, one that is empty,
# a continuation longer than a piece of logits, and a line that is refused.
awk 'BEGIN {
    for (i = 0; i < 30; i++) {
        context = substr("aababcabcd", 1, int(i / 4) % 8)
        more = substr(" the end of it", 1, 1 + i * 5 % 9)
        if (i == 17) more = ""
        printf "{\"context\": \"%s\", \"continuation\": \"%s\"}\n", context, more
    } }' >pairs.jsonl
expect 3 'lines one by one' gen --score --logprobs 2 --batch-size 1 \
    --prompt-file pairs.jsonl
err_has '1 of 30 lines are not scored'
cp out single
check 'each has its answer' test "$(grep -c '"logprob":' out)" = 29
for n in 2 3 8 100; do
    expect 3 "$n at once" gen --score --logprobs 2 --batch-size $n \
        --prompt-file pairs.jsonl
    check 'have the same scores' cmp single out
done
check 'without a warning' sh -c '! grep "without effect" err'

# Texts that have together a token more than a piece of logits, which is 128: all
# but two of 8 x 17 + 11 tokens.
awk 'BEGIN { for (i = 0; i < 9; i++)
    printf "{\"context\": \"a\", \"continuation\": \"%s\"}\n",
        substr("bcdefghijklmnopq", 1, i < 8 ? 16 : 10) }' >full.jsonl
expect 0 'a full piece' gen --score --batch-size 1 --prompt-file full.jsonl
cp out single
expect 0 'one more' gen --score --batch-size 9 --prompt-file full.jsonl
check 'has the same scores' cmp single out

# ---- perplexity ----
expect 0 'the perplexity of the data set' gen --perplexity training \
    --data-path d_text_document
check 'its loss is that of validation' near "$(field loss)" "$(cat validation)"
check 'every target is scored' test "$(field scored)" = 256
cp out first
sed 's/.*: "//; s/"}$//' corpus.jsonl | tr -d '\n' >text
printf '{"convention":"megatron","window":16,"texts":1,"tokens":256,"scored":255' >want
expect 0 'that of a file' gen --perplexity megatron --prompt-file text
check 'says which it is' sh -c 'head -c "$(wc -c <want)" out | cmp - want'
out_has '"adjusted_perplexity":'
expect 0 'as a data set, where words are not known' gen --perplexity megatron \
    --data-path d_text_document
check 'it is not adjusted' sh -c '! grep -q adjusted out'
gen --perplexity lm-eval <text >want 2>err
expect 0 'lines' gen --perplexity lm-eval --jsonl --prompt-file corpus.jsonl
check 'are texts' cmp want out
awk 'BEGIN {
    printf "{\"prompt\": ["
    for (i = 0; i < 64; i++)
        printf "%d,%d,%d,32%s", 97 + i % 7, 97 + i % 5, 48 + i % 10,
            i < 63 ? "," : ""
    print "]}" }' >ids.jsonl
expect 0 'lists of token ids' gen --perplexity lm-eval --jsonl --prompt-file \
    ids.jsonl
check 'are the text that they spell' cmp want out
echo '{"prompt": [97, 300]}' >bad.jsonl
expect 3 'an id that is none' gen --perplexity lm-eval --jsonl --prompt-file \
    bad.jsonl
err_has 'text 1: token id 300 is outside the vocabulary of 257'
expect 3 'ids have no spaces of words' gen --perplexity lm-eval --jsonl \
    --detokenize wikitext --prompt-file ids.jsonl
err_has 'a list of token ids has no spaces to take out'
expect 0 'with a smaller window' gen --perplexity lm-eval --window 4 \
    --prompt-file text
check 'tokens see less' test "$(cmp out want >/dev/null 2>&1; echo $?)" = 1
expect 3 'a text that is shorter than a chunk' gen --perplexity llama.cpp -p ab
err_has 'no token is scored'
err_has '--window'
expect 2 'a window past the positions' gen --perplexity lm-eval --window 17 -p a
expect 2 'a convention with a beginning of its own' gen --perplexity lm-eval \
    --add-bos -p a
expect 2 'a text and a data set' gen --perplexity training -p a \
    --data-path d_text_document
expect 2 'a window in which nothing would be scored' gen --perplexity \
    llama.cpp --window 2 -p abc
err_has 'scores tokens of windows of 3 and more'
expect 0 'the smallest' gen --perplexity llama.cpp --window 3 -p abcdef
out_has '"scored":2'
expect 3 'an empty text' gen --perplexity llama.cpp --prompt-file /dev/null
err_has 'no token is scored: the text is empty'
check 'and no hint of windows' sh -c '! grep -q -e --window err'
expect 2 'windows that leave gaps' gen --perplexity megatron \
    --overlapping-eval 17 -p abc
err_has '--overlapping-eval is 17, but a window has 16 tokens'
expect 2 'windows of another convention' gen --perplexity lm-eval \
    --overlapping-eval 2 -p abc
expect 0 'bytes that are no characters' gen --perplexity lm-eval -p \
    "$(printf 'a\377b')"
err_has 'prompt 1: byte 2, 0xff, is no UTF-8'
# Of a script without spaces, a page is one word.
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%c", 97 + i * 7 % 26 }' >word
expect 0 'one word of many tokens' gen --perplexity lm-eval --prompt-file word
out_has '"words":1,"bytes":2000,"word_perplexity":null,"byte_perplexity":'
expect 2 'no such convention' gen --perplexity mine -p a
expect 4 'no such data set' gen --perplexity training --data-path none
echo text >some.txt
expect 4 'a text for a data set' gen --perplexity training --data-path some.txt
err_has '--data-path takes the prefix of a data set'
expect 2 'two kinds of work' gen --perplexity training --score -p a
err_has '--score and --perplexity: choose one'

# ---- scores ----
printf '%s\n' '{"context": "aa0 bb", "continuation": "1", "id": "x"}' \
    '{"context": "aa0 bb", "continuation": "1 cc2"}' '{"text": "aa0 bb1"}' \
    '{"context": "a", "continuation": ""}' 'no' '{"text": "word"}' \
    '{"context": "aa0 bb1 cc2 dd3 ", "continuation": "ee4"}' >pairs
expect 3 'pairs' gen --score --prompt-file pairs
check 'a result for each' test "$(wc -l <out)" = 7
out_has '{"id":"x","logprob":-'
out_has ',"tokens":1,"context_tokens":6}'
out_has '{"id":3,"logprob":-'
out_has ',"tokens":4,"context_tokens":3}'
out_has '{"id":4,"error":"pairs:4: the continuation is empty"}'
out_has '{"id":5,"error":"pairs:5: '
out_has '{"id":6,"error":"pairs:6: no continuation, and the text has no last word"}'
out_has '{"id":7,"error":"pairs:7: 19 tokens, but there are only 16 positions"}'
check 'a warning of each that is refused' test "$(grep -c 'pairs:[4-7]: ' err)" = 4
err_has '4 of 7 lines are not scored'
err_has '3 continuations of '
sed -n 7p pairs >long
expect 0 'a context that is too long' gen --score --truncate-context \
    --prompt-file long
out_has '"tokens":4,"context_tokens":13}'
printf '%s\n' '{"continuation": "b"}' \
    '{"ctx": "a", "endings": ["b", "c"], "label": 0}' \
    '{"text": "a b", "id": 9007199254740993}' \
    '{"text": "a b", "max_tokens": 5, "temperature": 1}' \
    '{"text": "a b", "max_tokens": 6}' \
    '{"text": "a b", "id": [{"a": [-9007199254740993]}]}' >others
expect 3 'lines of other kinds' gen --score --prompt-file others
err_has "others:1: no field 'prompt', 'text' or 'context'"
err_has "others:2: several 'endings'; write a line for each"
err_has "others:3: field 'id': a number of 2^53 or more"
err_has "others:4: the field 'max_tokens' has no effect on scores"
err_has "others:4: the field 'temperature'"
check 'once' sh -c '! grep -q others:5 err'
err_has "others:6: field 'id': a number of 2^53 or more"
head -n 1 pairs >one
for idle in '--truncate-context' '--length-penalty 2' '--early-stopping true' \
    '--window 4' '--overlapping-eval 4' '--detokenize wikitext' \
    '--data-path d_text_document'; do
    # shellcheck disable=SC2086 # options are words
    expect 2 "$idle in another kind of work" gen $idle -p a
    err_has "${idle%% *} is for --"
done
expect 0 'choices beside scores' gen --score --prompt-file one --tokens 3 \
    --temperature 0.5
err_has 'without effect here: --tokens, --temperature (no text is made)'
expect 2 'an empty stop string' gen -p a --stop ''
err_has '--stop: an empty string is in every text'
gen --score --prompt-file one --logprobs 2 >out 2>err
out_has '"logprobs":[{"id":49,"token":"1","logprob":-'
expect 0 'from a pipe' sh -c 'cat one | gpt-generate --load ckpt --score'
expect 0 'nothing' gen --score --prompt-file /dev/null
err_has 'nothing to score'

# ---- positions ----
expect 0 'fewer positions' gen --score --max-positions 3 --truncate-context \
    --prompt-file one
out_has '"tokens":1,"context_tokens":3}'
expect 0 'a text that ends with them' gen -p abc --max-positions 5 --ignore-eod \
    --jsonl
out_has '"prompt_tokens":3,"tokens":3,'
expect 2 'more than the model has' gen -p a --max-positions 17
err_has '--max-positions is 17, but the model has 16'

# ---- weights alone are read ----
expect 0 'a score' gen --score --prompt-file one
cp out want
for state in ckpt/iter_*/optimizer_*; do
    echo altered >>"$state"
done
rm ckpt/iter_*/optimizer_exp_avg_tp*
expect 0 'without the state of the optimizer' gen --score --prompt-file one
check 'the same score' cmp want out
mv ckpt/iter_0000030/model_tp00_pp00.safetensors model
expect 3 'without weights' gen --score --prompt-file one
err_has 'missing, though the manifest names it'
mv model ckpt/iter_0000030/model_tp00_pp00.safetensors
expect 1 'a full disk' sh -c 'gpt-generate --load ckpt --score <one >/dev/full ||
    test $? = 4 && exit 1'
tap_done
