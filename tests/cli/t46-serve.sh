#!/bin/sh
# gpt-generate --serve: answers are the filter's texts, streamed or not; mistakes
# of clients; keys; a full queue; clients that hang up; and its end. The OpenAI
# client is in tests/parity/serve.sh.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/quick.sh"

command -v curl >/dev/null || {
    skip 'there is no curl'
    tap_done
}
make_quick_model
gpt-generate --load ckpt --serve 0.0.0.0:0 >out 2>err
grep -q 'no libmicrohttpd' err && {
    skip 'this build has no libmicrohttpd'
    tap_done
}

. "$top/tests/lib/server.sh"

serve --load ckpt/./ --batch-size 3
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
ask /v1/completions '{"prompt": "quick", "temperature": 1, "top_p": 0, "n": 9}'
check 'the smallest set of tokens has one' test "$(grep -o '"text":" brown"' out |
    wc -l)" = 9
answers 'an empty prompt' 200 /v1/completions \
    '{"prompt": "", "echo": true, "temperature": 0, "logprobs": 0, "max_tokens": 1}'
out_has '"text":"q","logprobs":{"tokens":["<|endoftext|>","q"]'
out_has '"text_offset":[0,0]'
ask /metrics ''
sed -n 's/^gpt_prompt_passes_total //p' out >passes
check 'every figure says what it is and of which kind' sh -c "
    sed -n 's/^\(gpt_[a-z_]*\) .*/\1/p' out | sort >figures
    for what in HELP TYPE; do
        sed -n \"s/^# \$what \(gpt_[a-z_]*\) .*/\1/p\" out | sort |
            cmp - figures || exit 1
    done
    test -s figures"
answers 'a prompt that many texts repeat' 200 /v1/completions '{"prompt": "qu",
    "n": 50, "echo": true, "max_tokens": 0, "logprobs": 0}'
check 'all of them' test "$(grep -o '"text":"qu","logprobs":{"tokens":\["q","u"\],"token_logprobs":\[null,-' out |
    wc -l)" = 50
ask /metrics ''
out_has "gpt_prompt_passes_total $(($(cat passes) + 1))"
answers 'a token that is not among the most probable' 200 /v1/completions \
    '{"prompt": "qz", "echo": true, "max_tokens": 0, "logprobs": 1}'
out_has '"top_logprobs":[null,{"u":-'
check 'is there, too' grep -q '"top_logprobs":\[null,{"u":-[^}]*,"z":-' out
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
check 'and null in all pieces before' test \
    "$(grep -c '"usage":null}$' out)" = "$(($(grep -c '^data: {' out) - 1))"
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
    '{"prompt": "a", "suffix": "b"}' '{"prompt": "a", "stop": ""}' \
    '{"prompt": "a", "response_format": {"type": "json_object"}}' \
    '{"prompt": "a", "response_format": "text"}' \
    '{"prompt": "a prompt that is longer than all of the positions"}'; do
    answers "$bad" 400 /v1/completions "$bad"
done
# What clients raise as an error's param is the field, by its name.
while read -r field said; do
    answers "param is $field" 400 /v1/completions \
        "{\"prompt\": \"a\", \"$field\": $said}"
    out_has "\"message\":\"'$field'"
    out_has "\"type\":\"invalid_request_error\",\"param\":\"$field\",\"code\":null}"
done <<'END'
temperature "hot"
n 2000000
best_of 2
stop [1]
logit_bias {"x": 1}
suffix "b"
max_tokens 2000000000
response_format {"type": "json_object"}
stream_options 5
stream_options {"include_usage": true}
END
answers 'limits in digits' 400 /v1/completions \
    '{"prompt": "a", "seed": 9e17, "max_tokens": 1}'
out_has "'seed' must be a number from -1 to 9007199254740991, and not 9e+17"
answers 'a seed that JSON would round to another' 400 /v1/completions \
    '{"prompt": "a", "seed": 9007199254740993, "max_tokens": 1}'
answers 'what is no integer' 400 /v1/completions '{"prompt": "a", "n": 1.5}'
out_has "'n' must be an integer, and not 1.5"
answers 'an id that is too large' 400 /v1/completions '{"prompt": [1, 300]}'
out_has "'prompt' holds 300, which is no token id of 0 to 256"
for bad in '{}' '{"prompt": "a prompt that is longer than all of the positions"}'
do
    answers "param of $bad" 400 /v1/completions "$bad"
    out_has '"param":"prompt"'
done
out_has '"code":"context_length_exceeded"'
answers 'no field, no param' 400 /v1/completions '{"prompt": "a'
out_has '"param":null'
answers 'fields that say nothing' 200 /v1/completions '{"prompt": "quick",
    "temperature": 0, "logprobs": false, "suffix": null, "best_of": null,
    "echo": null, "store": false, "user": "u", "stop": [], "max_tokens": 6}'
out_has '"text":" brown","logprobs":null'
answers 'another model' 404 /v1/completions '{"prompt": "a", "model": "other"}'
out_has '"param":"model","code":"model_not_found"'
answers 'a seed that is drawn' 200 /v1/completions '{"prompt": "a", "seed": -1,
    "max_tokens": 1, "response_format": {"type": "text"}}'
many=$(awk 'BEGIN { for (i = 0; i < 1024; i++) printf "\"a\"," }')
answers 'more prompts than a request may have' 400 /v1/completions \
    "{\"prompt\": [$many \"a\"]}"
out_has "'prompt': 1025 texts in one request, limit 1024"
long=$(awk 'BEGIN { for (i = 0; i < 40; i++) printf "\303\251" }')
answers 'a field of which a part is shown' 400 /v1/completions "{\"a$long\": 1}"
check 'is shown without half a character' sh -c \
    "iconv -f UTF-8 -t UTF-8 out >/dev/null"
answers 'no such path' 404 /v2 ''
out_has 'POST /v1/completions makes texts'
out_has '"param":null,"code":null}'
answers 'one model' 200 /v1/models/ckpt ''
out_has '{"id":"ckpt","object":"model",'
answers 'and no other one' 404 /v1/models/other ''
out_has "'model': there is no such model here; GET /v1/models names the one"
answers 'a head alone' 200 /health '' -I
answers 'a whole address as the target' 200 /health '' \
    --request-target "http://localhost/health"
while read -r want header; do
    answers "$header" "$want" /v1/completions '{"prompt": "a"}' -H "$header"
done <<'END'
200 Host: LOCALHOST:1
200 Host: model.localhost
200 Host: localhost.:8080
200 Host;
200 Host: [::1]:8
200 Host: 127.0.0.2
200 Host: Host.Docker.internal:8080
403 Host: example.com:8080
403 Host: notlocalhost
403 Host: 127.0.0.1.example.com
403 Host: internal.example.com
200 Sec-Fetch-Site: same-origin
403 Sec-Fetch-Site: cross-site
403 Sec-Fetch-Site: same-site
END
out_has 'a page of another address cannot ask here'
answers 'a link of another page' 200 / '' -H 'Sec-Fetch-Site: cross-site'
answers 'another method' 405 /v1/completions '' -i
out_has 'Allow: POST'
out_has 'the method of this path is POST'
out_has '"code":"method_not_supported"'
answers 'and of what is read' 405 /health '{}' -i
out_has 'Allow: GET, HEAD'
answers 'a body in another form' 415 /v1/completions '{"prompt": "a"}' \
    -H 'Content-Encoding: gzip'
out_has 'the body has a Content-Encoding; send it as it is'
answers 'in no other form' 200 /v1/completions '{"prompt": "a"}' \
    -H 'Content-Encoding: identity'
head -c 9000000 /dev/zero | tr '\0' a >long
ask /v1/completions '' --data-binary @long
check 'a body that is too long' test "$status" = 413
answers 'text to ids' 200 /tokenize '{"content": "ab"}'
out_has '{"tokens":[97,98],"count":2}'
answers 'what is no id' 400 /detokenize '{"tokens": [97.5]}'
out_has "'tokens' holds 97.5, which is no token id of 0 to 256"
while read -r path body; do
    answers "what $path does not know" 400 "$path" "$body"
done <<'END'
/detokenize {"tokens": [97], "skip_special_tokens": true}
/detokenize [97]
/tokenize {"prompt": "a", "content": "b"}
END
answers 'ids of another model' 404 /detokenize '{"tokens": [97], "model": "b"}'
answers 'ids to text' 200 /detokenize '{"tokens": [97, 98, 255]}'
check 'which is UTF-8' grep -q "$(printf 'ab\357\277\275')" out
answers 'what lm-eval asks' 200 /tokenizer_info ''
out_has '{"bos_token":null,"eos_token":"<|endoftext|>"'
answers 'the token of that name' 200 /tokenize \
    '{"prompt": "<|endoftext|>", "add_special_tokens": false}'
out_has '{"tokens":[256],"count":1}'
answers 'a text that holds it is text' 200 /tokenize '{"prompt": "<|endoftext|>a"}'
out_has '"count":14}'
answers 'a field that is not known' 400 /tokenize '{"prompt": "a", "pieces": 1}'
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
until_true 60 is_idle
out_has 'gpt_requests_running 0'
body='{"prompt": "a", "n": 1000, "max_tokens": 31, "ignore_eos": true}'
ask /metrics ''
sed -n 's/^gpt_generated_tokens_total //p' out >before
for client in 1 2; do # the second waits
    curl -s -m 0.3 -o cut "$url/v1/completions" -d "$body"
done
until_true 60 is_idle
out_has 'gpt_requests_running 0'
sed -n 's/^gpt_generated_tokens_total //p' out >tokens
check 'nor those who wait for a whole answer' test \
    "$(($(cat tokens) - $(cat before)))" -lt 62000
answers 'a server that goes on' 200 /v1/completions '{"prompt": "a"}'
curl -s -m 60 -N -o last "$url/v1/completions" -d \
    '{"prompt": "a", "n": 100, "max_tokens": 31, "ignore_eos": true, "stream": true}' &
client=$!
until_true 60 test -s last
kill -TERM $pid
wait $client
wait $pid
got=$?
check 'SIGTERM ends it' test $got = 143
check 'after what was under way' grep -q 'DONE' last
check 'and it says so' grep -q 'stopping' log

# ---- keys and a full queue ----
printf '\357\273\277secret\r\n\n \t\n# of Ann\n\tother \n' >keys
awk 'BEGIN { for (i = 0; i < 500; i++) printf "long-key-%d\n", i }' >>keys
serve --load ckpt --batch-size 1 --max-queue 1 --api-key-file keys --served-model-name m
answers 'no key' 401 /v1/models ''
out_has '"code":"invalid_api_key"'
answers 'a wrong key' 401 /v1/models '' -H 'Authorization: Bearer secre'
answers 'a comment' 401 /v1/models '' -H 'Authorization: Bearer # of Ann'
answers 'a key' 200 /v1/models '' -H 'Authorization: Bearer other'
out_has '"id":"m"'
answers 'the first, and any name of the server' 200 /v1/models '' \
    -H 'Authorization: Bearer secret' -H 'Host: example.com'
answers 'the last of many keys' 200 /v1/models '' \
    -H 'Authorization: bearer long-key-499'
answers 'a part of one' 401 /v1/models '' -H 'Authorization: Bearer long-key-'
answers 'health needs none' 200 /health ''
ask /v1/completions '' --data-binary @long
check 'a long body without a key is not looked at' test "$status" = 401
busy='{"prompt": "a", "n": 1000, "max_tokens": 31, "ignore_eos": true}'
curl -s -m 100 -o busy -d "$busy" -H 'Authorization: Bearer secret' \
    "$url/v1/completions" &
client=$!
has_metric() { # figure value
    ask /metrics '' -H 'Authorization: Bearer secret' &&
        grep -q "^gpt_requests_$1 $2\$" out
}
metric() { # figure value: waits for it
    until_true 60 has_metric "$1" "$2"
    out_has "gpt_requests_$1 $2"
}
# One whose texts are being made, however many are not begun, does not wait.
metric running 1
out_has 'gpt_requests_waiting 0'
curl -s -m 100 -o waits -d '{"prompt": "quick", "temperature": 0}' \
    -H 'Authorization: Bearer secret' "$url/v1/completions" &
waits=$!
metric waiting 1
answers 'a full queue' 429 /v1/completions '{"prompt": "a"}' -i \
    -H 'Authorization: Bearer secret'
out_has 'Retry-After: 1'
out_has '"code":"rate_limit_exceeded"'
wait $waits
check 'the one that waits is answered' grep -q '"text":" brown"' waits
wait $client
check 'the one before is answered' grep -q '"index":999' busy
kill -TERM $pid
wait $pid

expect 2 'an address of the network without a key' gpt-generate --load ckpt \
    --serve 0.0.0.0:0
err_has '--api-key-file'
for bad in host: :x :70000 no.such.host.invalid:1; do
    expect 2 "$bad" gpt-generate --load ckpt --serve "$bad"
done
expect 2 'a port alone' gpt-generate --load ckpt --serve 8080
err_has ':8080 is port 8080 of this machine alone'
expect 2 'a prompt beside it' gpt-generate --load ckpt --serve :0 -p a
for bad in '' "$(printf 'a\377')"; do
    expect 2 "a model's name '$bad'" gpt-generate --load ckpt --serve :0 \
        --served-model-name "$bad"
    err_has '--served-model-name'
done
printf 'a\0b\n' >odd
expect 3 'a key file with a byte 0' gpt-generate --load ckpt --serve :0 \
    --api-key-file odd
printf ' \n\n' >odd
expect 3 'a key file of blanks' gpt-generate --load ckpt --serve :0 \
    --api-key-file odd
err_has 'odd: no key in it'
expect 4 'no key file' gpt-generate --load ckpt --serve :0 --api-key-file none
tap_done
