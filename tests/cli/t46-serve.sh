#!/bin/sh
# gpt-generate --serve: answers are the filter's texts, streamed or not; mistakes
# of clients; keys; a full queue; clients that hang up; and its end. The OpenAI
# client is in tests/parity/serve.sh.
. "$(dirname "$0")/../lib/tap.sh"

command -v gpt-train >/dev/null || {
    skip 'there is no gpt-train'
    tap_done
}
command -v curl >/dev/null || {
    skip 'there is no curl'
    tap_done
}
awk 'BEGIN { for (i = 0; i < 200; i++) print "{\"text\": \"quick brown\"}" }' \
    >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model that knows it' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 32 \
    --num-attention-heads 2 --seq-length 32 --micro-batch-size 4 \
    --split 100,0,0 --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 \
    --save ckpt --no-save-optim --train-iters 80 --lr 1e-2 \
    --lr-decay-style constant
gpt-generate --load ckpt --serve 0.0.0.0:0 >out 2>err
grep -q 'no libmicrohttpd' err && {
    skip 'this build has no libmicrohttpd'
    tap_done
}

. "$top/tests/lib/server.sh"

serve --load ckpt --batch-size 3
answers 'health' 200 /health ''
out_has '"ok"'
answers 'models' 200 /v1/models ''
out_has '"id":"ckpt"'

# ---- completions ----
answers 'a completion' 200 /v1/completions '{"prompt": "quick", "temperature": 0}'
out_has '"text":" brown"'
out_has '"finish_reason":"stop"'
out_has '"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,'
answers 'ids' 200 /v1/completions \
    '{"prompt": [[113, 117], [256]], "temperature": 0, "max_tokens": 3}'
out_has '"index":0,"text":"ick"'
out_has '"index":1,"text":"qui"'
out_has '"finish_reason":"length"'
answers 'echo and probabilities' 200 /v1/completions \
    '{"prompt": "qu", "echo": true, "max_tokens": 0, "logprobs": 1}'
out_has '"text":"qu","logprobs":{"tokens":["q","u"],"token_logprobs":[null,-'
out_has '"top_logprobs":[null,{"u":-'
out_has '"text_offset":[0,1]'
answers 'a stop string' 200 /v1/completions \
    '{"prompt": "qu", "temperature": 0, "stop": ["x", "k b"]}'
out_has '"text":"ic"'
answers 'one in the prompt does not count' 200 /v1/completions \
    '{"prompt": "qu", "temperature": 0, "stop": "qu", "echo": true, "max_tokens": 2}'
out_has '"text":"quic"'

# Drawn texts are those of the filter.
gpt-generate --load ckpt --jsonl -p a --num-samples 5 --seed 6 --temperature 3 \
    --tokens 9 2>err | sed 's/.*"text":\("[^,]*"\),"prompt_tokens.*/\1/' >want
ask /v1/completions '{"prompt": "a", "n": 5, "seed": 6, "temperature": 3, "max_tokens": 9}'
tr '{' '\n' <out | sed -n 's/"index":[0-9]*,"text":\("[^,]*"\),"logprobs".*/\1/p' >got
check 'five texts are those of the filter' cmp want got || tail -n 3 want got
body='{"prompt": "a", "n": 1, "seed": 6, "temperature": 3, "max_tokens": 9, "stream": true,
    "stream_options": {"include_usage": true}}'
answers 'a stream' 200 /v1/completions "$body" -N
check 'ends as one' test "$(tail -n 2 out | head -n 1)" = 'data: [DONE]'
out_has '"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":9'
check 'pieces of the same text' test "$(sed -n \
    's/.*"text":"\(.*\)","logprobs".*/\1/p' out | tr -d '\n')" = \
    "$(head -n 1 want | sed 's/^"//; s/"$//')"

# ---- mistakes ----
answers 'no JSON' 400 /v1/completions '{"prompt": "a'
for bad in '{}' '[]' '{"prompt": []}' '{"prompt": 5}' '{"prompt": [300]}' \
    '{"prompt": [0.5]}' '{"prompt": "a", "temperature": -1}' \
    '{"prompt": "a", "n": 0}' '{"prompt": "a", "n": 2, "best_of": 3}' \
    '{"prompt": "a", "max_tokens": 0}' '{"prompt": "a", "stop": [""]}' \
    '{"prompt": "a", "logit_bias": {"x": 1}}' '{"prompt": "a", "stream": 1}' \
    '{"prompt": "a", "suffix": "b"}' '{"prompt": "a", "model": "other"}' \
    '{"prompt": "a prompt that is longer than all of the positions"}'; do
    answers "$bad" 400 /v1/completions "$bad"
done
answers 'no such path' 404 /v2 ''
answers 'another method' 405 /v1/completions ''
head -c 9000000 /dev/zero | tr '\0' a >long
ask /v1/completions '' --data-binary @long
check 'a body that is too long' test "$status" = 413
answers 'text to ids' 200 /tokenize '{"content": "ab"}'
out_has '{"tokens":[97,98],"count":2}'
answers 'what is no id' 400 /detokenize '{"tokens": [97.5]}'
out_has "'tokens' holds what is no token id of 0 to "
answers 'ids to text' 200 /detokenize '{"tokens": [97, 98, 255]}'
check 'which is UTF-8' grep -q "$(printf 'ab\357\277\275')" out
answers 'what lm-eval asks' 200 /tokenizer_info ''
out_has '"eos_token":"<|endoftext|>"'
answers 'the page' 200 / ''
check 'needs nothing from elsewhere' sh -c '! grep -q "src=\|href=\|//[a-z]" out'

# ---- many at once, and those who hang up ----
i=0
while [ $i -lt 40 ]; do
    curl -s -m 60 -o "many$i" -d '{"prompt": "quick", "temperature": 0}' \
        "$url/v1/completions" &
    clients="${clients:-} $!"
    i=$((i + 1))
done
for p in $clients; do
    wait "$p"
done
check 'forty clients' test "$(cat many* | grep -c '"text":" brown"')" = 40
curl -s -m 0.2 -N -o cut "$url/v1/completions" -d \
    '{"prompt": "a", "n": 1000, "max_tokens": 31, "stream": true, "ignore_eos": true}'
tries=0
ask /metrics ''
until grep -q '^gpt_requests_running 0$' out && grep -q '^gpt_requests_waiting 0$' out; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || break
    ask /metrics ''
done
out_has 'gpt_requests_running 0'
answers 'a server that goes on' 200 /v1/completions '{"prompt": "a"}'
curl -s -m 60 -N -o last "$url/v1/completions" -d \
    '{"prompt": "a", "n": 100, "max_tokens": 31, "ignore_eos": true, "stream": true}' &
client=$!
tries=0
until [ -s last ] || [ $tries -gt 100 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -TERM $pid
wait $client
wait $pid
got=$?
check 'SIGTERM ends it' test $got = 143
check 'after what was under way' grep -q 'DONE' last
check 'and it says so' grep -q 'stopping' log

# ---- keys and a full queue ----
printf 'secret\n\nother\n' >keys
serve --load ckpt --batch-size 1 --max-queue 1 --api-key-file keys --served-model-name m
answers 'no key' 401 /v1/models ''
answers 'a wrong key' 401 /v1/models '' -H 'Authorization: Bearer secre'
answers 'a key' 200 /v1/models '' -H 'Authorization: Bearer other'
out_has '"id":"m"'
answers 'health needs none' 200 /health ''
busy='{"prompt": "a", "n": 1000, "max_tokens": 31, "ignore_eos": true}'
curl -s -m 100 -o busy -d "$busy" -H 'Authorization: Bearer secret' \
    "$url/v1/completions" &
client=$!
tries=0
status=200
while [ "$status" != 429 ] && [ $tries -lt 100 ]; do
    ask /v1/completions '{"prompt": "a"}' -H 'Authorization: Bearer secret'
    tries=$((tries + 1))
done
check 'a full queue' test "$status" = 429
wait $client
check 'the one before is answered' grep -q '"index":999' busy
kill -TERM $pid
wait $pid

expect 2 'an address of the network without a key' gpt-generate --load ckpt \
    --serve 0.0.0.0:0
err_has '--api-key-file'
for bad in 8080 host: :x :70000 no.such.host.invalid:1; do
    expect 2 "$bad" gpt-generate --load ckpt --serve "$bad"
done
expect 2 'a prompt beside it' gpt-generate --load ckpt --serve :0 -p a
expect 4 'no key file' gpt-generate --load ckpt --serve :0 --api-key-file none
tap_done
