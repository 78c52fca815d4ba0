#!/bin/sh
# gpt-generate's choice of tokens and ends of texts: stop strings, newlines,
# penalties, biases, log-probabilities, prompts of ids, seeds of lines. Whose
# tokens a rule keeps is tested in tests/unit/test_sample.c, and equality with
# transformers in tests/parity.
. "$(dirname "$0")/../lib/tap.sh"

i=0
while [ $i -lt 200 ]; do
    printf '%s\n' '{"text": "one:\ntwo.\n\nsix"}'
    i=$((i + 1))
done >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model that knows it' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 32 \
    --num-attention-heads 2 --seq-length 32 --micro-batch-size 4 \
    --split 100,0,0 --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 \
    --save ckpt --no-save-optim --train-iters 200 --lr 1e-2 \
    --lr-decay-style linear

gen() {
    gpt-generate --load ckpt --threads 1 "$@"
}
writes() { # what text option...: the text, after printf
    expect 0 "$1" gen --greedy "$3" "$4" $5 $6 $7 $8
    printf "$2" >want
    check "$1: its text" cmp want out || sed 's/^/# got: /' out
}

# ---- ends ----
writes 'a document' 'one:\ntwo.\n\nsix\n' --prompt '' '' '' '' ''
writes 'a stop string' 'one:\ntw\n' --prompt '' --stop o. '' ''
writes 'the first of several' 'on\n' --prompt '' --stop wo e ''
writes 'a stop string that is not there' 'one:\ntwo.\n\nsix\n' \
    --prompt '' --stop sin '' ''
writes 'the end of a line' 'one:\n' --prompt '' --stop-on-eol '' '' ''
writes 'an empty line' 'one:\ntwo.\n' --prompt '' --stop-on-double-eol '' '' ''
expect 0 'a newline after one of the prompt' gen --greedy --prompt 'two.
' --stop-on-double-eol --jsonl
out_has '"text":"","prompt_tokens":5,"tokens":0,"finish":"eod"'
expect 0 'both' gen --greedy -p '' --stop-on-double-eol --stop-on-eol
check 'the second counts' test "$(wc -l <out)" = 2
expect 0 'JSON of a stop string' gen --greedy --jsonl -p '' --stop '
tw'
out_has '"text":"one:","prompt_tokens":1,"tokens":7,"finish":"stop"'

# ---- choice ----
writes 'no newline after a colon' 'one:\n' --prompt '' \
    --prevent-newline-after-colon --tokens 4 ''
expect 0 'more of it' gen --greedy --prompt '' --prevent-newline-after-colon
check 'has no newline there' sh -c '! head -n 1 out | grep -q "one:$"'
expect 0 'a bias' gen --greedy --prompt '' --logit-bias 120:100 --tokens 5
printf 'xxxxx\n' >want
check 'chooses its token' cmp want out
expect 0 'a token that is forbidden' gen --greedy --prompt '' \
    --logit-bias 111:-inf 120=100 120:-inf
check 'does not appear' sh -c '! grep -q "[ox]" out'
expect 0 'a penalty' gen --greedy --prompt '' --presence-penalty 100 --tokens 20
check 'lets no byte come twice' test -z "$(fold -w 1 out | grep . | sort | uniq -d)"
expect 0 'a repetition penalty' gen --greedy --prompt o \
    --repetition-penalty 100 --tokens 20
check 'nor one of the prompt' sh -c '! grep -q o out'
expect 0 'one for each time' gen --greedy --prompt '' --logit-bias 120:100 \
    --frequency-penalty 30 --tokens 9
check 'works in the end' test "$(grep -o x out | wc -l)" = 4
expect 0 'top-k 1' gen --top-k 1 --prompt ''
gen --greedy --prompt '' >want 2>err
check 'is greedy' cmp want out
expect 0 'min-p 1' gen --min-p 1 --prompt '' --seed 3
check 'is, too' cmp want out
expect 0 'a p that decays at once' gen --top-p 0.9 --top-p-decay 0.001 \
    --prompt one --temperature 3 --seed 4 --tokens 12 --jsonl --logprobs 0
first=$(sed 's/.*"logprobs":\[{"id":\([0-9]*\).*/\1/' out)
tr '{' '\n' <out | sed -n 's/"id":\([0-9]*\),"token.*/\1/p' >drawn
printf '{"prompt": [111, 110, 101, %s]}\n' "$first" >line
gen --greedy --jsonl --prompt-file line --tokens 11 --logprobs 0 >out 2>err
tr '{' '\n' <out | sed -n 's/"id":\([0-9]*\),"token.*/\1/p' >chosen
check 'leaves one token to choose from after the first' sh -c \
    'tail -n +2 drawn | cmp - chosen'
expect 0 'a bound keeps it up' gen --top-p 0.9 --top-p-decay 0.001 \
    --top-p-bound 0.9 --prompt one --temperature 3 --seed 4 --tokens 12
cp out bounded
expect 0 'as if there were no decay' gen --top-p 0.9 --prompt one \
    --temperature 3 --seed 4 --tokens 12
check 'the same text' cmp bounded out
expect 0 'the semantics of transformers' gen --semantics hf --top-k 1 -p ''
check 'one token stays, but for ties' cmp want out

# ---- prompts ----
expect 0 '--add-BOS' gen --greedy --jsonl --prompt o --add-BOS
out_has '"text":"ne:'
out_has '"prompt_tokens":2'
printf '%s\n' '{"prompt": [256, 111], "id": 1}' '{"prompt": [5, 300], "id": 2}' \
    '{"prompt": [1.5], "id": 3}' >ids
expect 3 'prompts of ids' gen --greedy --jsonl --prompt-file ids --echo
out_has '{"id":1,"sample":1,"text":"<|endoftext|>one:'
out_has '{"id":2,"sample":1,"error":"ids:2: token id 300 is outside'
out_has '{"id":3,"sample":1,"error":"ids:3: element 1 of the prompt is no'
seeds() { # file line...
    printf '%s\n' "$@" >lines
    gen --jsonl --prompt-file lines --seed 9 --temperature 2 --tokens 8 2>err |
        sort
}
a='{"prompt": "one", "id": "a", "seed": 5}'
b='{"prompt": "two", "id": "b", "seed": 6}'
seeds "$a" "$b" >want
seeds "$b" "$a" >got
check 'lines with seeds: their order does not matter' cmp want got
expect 0 'a prompt alone' gen --seed 5 --temperature 2 --tokens 8 --jsonl -p one
sed 's/"id":"a"/"id":1/; q' want >first
check 'is as the line with its seed' cmp first out

# ---- probabilities ----
expect 0 'log-probabilities' gen --greedy --jsonl -p '' --logprobs 2 --tokens 2
out_has '"logprobs":[{"id":111,"token":"o","logprob":-'
out_has '"top":[{"id":111,"token":"o","logprob":-'
check 'two a token' test "$(grep -o '"token":' out | wc -l)" = 6
expect 0 'those of the chosen alone' gen --greedy --jsonl -p '' --logprobs 0
out_has '"top":[]'
expect 0 'logits' gen --greedy --jsonl -p '' --return-logits --tokens 2
check '257 a token' test "$(sed 's/.*"logits"://' out | tr , '\n' | wc -l)" = 514

# ---- beams ----
gen --greedy --prompt '' >want 2>err
expect 0 'beams' gen --num-beams 4 --prompt ''
check 'find the text that the model knows' cmp want out
expect 0 'the four best' gen --num-beams 4 --num-samples 4 --jsonl -p '' o
check 'are in order' sh -c "sed 's/.*\"score\":\\([^}]*\\)}/\\1/' out |
    awk 'NR % 4 != 1 && \$1 > last { exit 1 } { last = \$1 }'"
check 'eight in all' test "$(wc -l <out)" = 8
cp out want
expect 0 'several searches at once' gen --num-beams 4 --num-samples 4 --jsonl \
    -p '' o --batch-size 8 --threads 2
check 'find the same' cmp want out
printf '%s\n' '{"prompt": ""}' no '{"prompt": "o"}' >lines
expect 3 'a prompt that is refused' gen --num-beams 2 --num-samples 2 --jsonl \
    --prompt-file lines
check 'has an error in each place' test "$(grep -c '"error":' out)" = 2
check 'others are answered' test "$(grep -c '"score":' out)" = 4
expect 2 'more texts than beams' gen --num-beams 2 --num-samples 3 -p a
expect 2 'beams that would be drawn' gen --num-beams 2 --top-p 0.5 -p a
err_has '--top-p has no effect beside --num-beams'
expect 2 'beams with probabilities' gen --num-beams 2 --logprobs 0 -p a

# ---- refusals ----
for bad in --logprobs=1 --return-logits --top-p-decay=0.5 --top-p-bound=0.5 \
    --logit-bias=x --logit-bias=1 --logit-bias=300:1 --logit-bias=1:nan \
    --min-p=2 --repetition-penalty=0 --semantics=none; do
    expect 2 "$bad" gen --prompt a "$bad"
done
all=$(awk 'BEGIN { for (i = 0; i < 257; i++) print i ":-inf" }')
# shellcheck disable=SC2086 # a word an argument
expect 2 'no token is left' gen --prompt a --logit-bias $all
err_has '--logit-bias forbids all 257 tokens of the model'
expect 2 'a bound above p' gen -p a --top-p 0.5 --top-p-decay 0.5 \
    --top-p-bound 0.6
err_has 'above --top-p 0.5'
expect 0 'a vocabulary without newlines' gpt-vocab --input corpus.jsonl \
    --output-prefix v --vocab-size 262
expect 2 'log-probabilities without JSON' gen -p a --logprobs 1
err_has 'add --jsonl'
expect 2 'a seed that is too large' gen -p a --seed 99999999999999999999
err_has '--seed: 99999999999999999999 is out of range (-1 to 9007199254740992)'
tap_done
