#!/bin/sh
# Chats: by the template of the model, served whole and streamed, on a terminal
# and from a pipe; what is refused; where templates are found, and that they
# travel with the model.
. "$(dirname "$0")/../lib/tap.sh"

awk 'BEGIN { for (i = 0; i < 200; i++)
    print "{\"text\": \"U:quick\\nA: brown\\n<|end|>\"}" }' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model that knows it' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 32 \
    --num-attention-heads 2 --seq-length 32 --max-position-embeddings 128 \
    --micro-batch-size 4 --split 100,0,0 --hidden-dropout 0 \
    --attention-dropout 0 --eval-iters 0 --save ckpt --no-save-optim \
    --train-iters 100 --lr 1e-2 --lr-decay-style constant
cat >template <<'EOF'
{%- for m in messages -%}
{%- if m.role == 'user' -%}U:{{ m.content }}
{% elif m.role == 'assistant' -%}A:{{ m.content }}
{% elif m.role == 'other' -%}{{ raise_exception('no role ' ~ m.role) }}
{%- else -%}S:{{ m.content }}
{% endif %}
{%- endfor -%}
{%- if add_generation_prompt -%}A:{{ mood|default('') }}{% endif -%}
EOF

# ---- lines ----
printf 'quick\nquick\n' >said
expect 0 'a chat of lines' sh -c 'gpt-generate --load ckpt --interactive --chat \
    --chat-template template --greedy --tokens 6 <said'
printf ' brown\n brown\n' >want
check 'its answers' cmp want out
expect 0 'with a variable' sh -c 'echo quick | gpt-generate --load ckpt \
    --interactive --chat --chat-template template --greedy --tokens 3 \
    --chat-template-kwargs "{\"mood\": \" br\"}"'
out_has 'own'
echo '{{ raise_exception("never") }}' >bad
expect 0 'a message that the template refuses' sh -c 'printf "a\nb\n" |
    gpt-generate --load ckpt --interactive --chat --chat-template bad --greedy'
err_has 'the chat template: line 1: the template says: never'
expect 0 'a line with a NUL' sh -c 'printf "qui\0ck\nquick\n" | gpt-generate \
    --load ckpt --interactive --chat --chat-template template --greedy --tokens 6'
err_has 'the line holds a NUL byte, which a message cannot'
check 'the next is answered' test "$(cat out)" = "$(printf '\n brown')"
# What the conversation holds is what was answered: the second message gets no
# token, and a byte 0 of an answer is none of a string.
cat >remembers <<'EOF'
{% if messages|length == 5 %}{{ raise_exception('said: <' ~
messages[1].content ~ '> <' ~ messages[3].content ~ '>') }}{% endif %}
{{- messages[-1].content }}
EOF
printf 'qui\nquick\na\n' >lines
printf '\nA' >next
expect 0 'an answer without a token' sh -c 'gpt-generate --load ckpt \
    --interactive --chat --chat-template remembers --greedy \
    --stop "$(cat next)" <lines'
err_has 'the template says: said: <ck> <>'
expect 0 'answers with bytes 0' sh -c 'gpt-generate --load ckpt --interactive \
    --chat --chat-template remembers --greedy --tokens 2 --logit-bias 0:1000 \
    <lines'
err_has "$(printf 'said: <\357\277\275\357\277\275> <')"
echo '{{ raise_exception("tools: " ~ tools ~ ", documents: " ~ documents) }}' >bad
expect 0 'variables that transformers sets' sh -c 'echo a | gpt-generate \
    --load ckpt --interactive --chat --chat-template bad --greedy'
err_has 'the template says: tools: None, documents: None'
echo '{{ raise_exception("x: " ~ x) }}' >bad
expect 0 'numbers as they are written' sh -c 'echo a | gpt-generate --load ckpt \
    --interactive --chat --chat-template bad --greedy \
    --chat-template-kwargs "{\"x\": [1, 1.0, -1e3]}"'
err_has 'the template says: x: [1, 1.0, -1000.0]'
echo '{% if 0 %}a{% endif %}' >empty
expect 0 'messages without a text' sh -c 'echo a | gpt-generate --load ckpt \
    --interactive --chat --chat-template empty --greedy'
err_has 'the template makes no text of the messages'
expect 3 'a model without a template' gpt-generate --load ckpt --interactive \
    --chat
err_has '--chat-template'
printf '\n{%% block x %%}' >bad
expect 3 'a tag that is not supported' gpt-generate --load ckpt --interactive \
    --chat --chat-template bad
err_has "bad: line 2: the tag 'block' is not supported"
expect 2 'a chat that is not interactive' gpt-generate --load ckpt --chat -p a
err_has '--chat is for --interactive'
expect 2 'instructions without a chat' gpt-generate --load ckpt --interactive \
    --system-prompt a
err_has '--system-prompt is for --chat'
for bad in '[]' '{' '{"messages": []}'; do
    expect 2 "variables that are $bad" gpt-generate --load ckpt --interactive \
        --chat --chat-template template --chat-template-kwargs "$bad"
done

# ---- where templates are ----
expect 0 'a Hugging Face directory' gpt-reshape --load-path ckpt --save-path hf \
    --to hf
python_json() { # the template as a string of JSON
    sed 's/\\/\\\\/g; s/"/\\"/g; s/$/\\n/' template | tr -d '\n'
}
printf '{"chat_template": "%s", "eos_token": "<e>", "bos_token": {"content": "<b>"}}\n' \
    "$(python_json)" >hf/tokenizer_config.json
chat() { # load option...
    from=$1
    shift
    echo quick | gpt-generate --load "$from" --tokenizer-type ByteTokenizer \
        --interactive --chat --greedy --tokens 6 "$@" 2>err
}
check 'in tokenizer_config.json' test "$(chat hf)" = ' brown'
expect 0 'back into a checkpoint' gpt-reshape --load-path hf --save-path again
check 'where it is, too' test "$(chat again)" = ' brown'
echo 'S:{{ bos_token }}{{ eos_token }}A: brow' >hf/chat_template.jinja
check 'a file of its own comes first' test "$(chat hf)" = "$(gpt-generate \
    --load hf --tokenizer-type ByteTokenizer -p 'S:<b><e>A: brow' --greedy \
    --tokens 6 2>err)"
expect 0 'and travels, too' gpt-reshape --load-path hf --save-path third
check 'as it is' sh -c 'cmp hf/chat_template.jinja \
    "$(find third -name chat_template.jinja)"'
printf '{"chat_template": [{"name": "tools", "template": "{%% x"},
    {"name": "default", "template": "%s"}]}' "$(python_json)" \
    >hf/tokenizer_config.json
rm hf/chat_template.jinja
check 'one of several' test "$(chat hf)" = ' brown'

# ---- the server ----
command -v curl >/dev/null || {
    skip 'there is no curl'
    tap_done
}
. "$top/tests/lib/server.sh"
serve --load ckpt --chat-template template --batch-size 3 || {
    skip 'this build has no libmicrohttpd'
    tap_done
}
hello='"messages": [{"role": "user", "content": "quick"}], "temperature": 0'
tools='"tools": [{"function": {"name": "f"}}]'
answers 'a chat' 200 /v1/chat/completions "{$hello, \"max_tokens\": 6}"
out_has '"object":"chat.completion"'
out_has '"message":{"role":"assistant","content":" brown"}'
out_has '"finish_reason":"length"'
out_has '"usage":{"prompt_tokens":10,"completion_tokens":6'
answers 'one number of tokens by both names' 200 /v1/chat/completions \
    "{$hello, \"max_tokens\": 6, \"max_completion_tokens\": 6}"
answers 'and two numbers' 400 /v1/chat/completions \
    "{$hello, \"max_tokens\": 6, \"max_completion_tokens\": 5}"
out_has "'max_tokens' and 'max_completion_tokens' are names of one number"
answers 'an end that the client names' 200 /v1/chat/completions \
    "{$hello, \"stop\": \"\\n\", \"max_completion_tokens\": 40}"
out_has '"content":" brown"},"logprobs":null,"finish_reason":"stop"'
answers 'a content in parts' 200 /v1/chat/completions '{"messages": [{"role":
    "user", "content": [{"type": "text", "text": "quick"}]}], "max_tokens": 6,
    "temperature": 0, "chat_template_kwargs": {"mood": " b"}}'
out_has '"content":"rown'
for first in '' ab; do
    answers "a line for each part, '$first' first" 200 /v1/chat/completions \
        '{"messages": [{"role": "user", "content": [{"type": "text", "text":
        "'"$first"'"}, {"type": "text", "text": ""}]}], "max_tokens": 1}'
    out_has '"prompt_tokens":'"$((6 + ${#first})),"
done
answers 'probabilities' 200 /v1/chat/completions \
    "{$hello, \"max_tokens\": 2, \"logprobs\": true, \"top_logprobs\": 2}"
out_has '"logprobs":{"content":[{"token":" ","logprob":-'
out_has '"bytes":[32],"top_logprobs":[{"token":" "'
answers 'a stream' 200 /v1/chat/completions \
    "{$hello, \"max_tokens\": 6, \"n\": 2, \"stream\": true}" -N
out_has '"object":"chat.completion.chunk"'
out_has '"index":1,"delta":{"role":"assistant","content":" "}'
out_has '"delta":{},"logprobs":null,"finish_reason":"length"'
check 'its pieces are the text' test "$(sed -n \
    '/"index":0/s/.*"content":"\([^"]*\)".*/\1/p' out | tr -d '\n')" = ' brown'
check 'roles come once' test "$(grep -c '"role"' out)" = 2
check 'ends as one' test "$(tail -n 2 out | head -n 1)" = 'data: [DONE]'
for bad in '{}' '{"messages": []}' '{"messages": "a"}' '{"messages": ["a"]}' \
    '{"messages": [{"role": "user"}]}' '{"messages": [{"content": "a"}]}' \
    "{$hello, \"prompt\": \"a\"}" "{$hello, \"top_logprobs\": 2}" \
    "{$hello, \"chat_template_kwargs\": {\"messages\": []}}" \
    '{"messages": [{"role": "other", "content": ""}]}' \
    '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}'; do
    answers "$bad" 400 /v1/chat/completions "$bad"
done
part='{"type": "text", "text": "a"'
while read -r value status; do
    answers "$value of a part" "$status" /v1/chat/completions "{\"messages\":
        [{\"role\": \"user\", \"content\": [$part, $value}]}], \"max_tokens\": 1}"
    test "$status" = 200 || out_has "'extra' is not known here"
done <<'END'
"extra":1 400
"cache_control":{"type":"ephemeral"} 200
END
for bad in '{}' '{"messages": []}' '{"messages": "a"}' '{"messages": ["a"]}'; do
    answers "param of $bad" 400 /v1/chat/completions "$bad"
    out_has '"param":"messages"'
done
while read -r field value; do
    answers "$field" 400 /v1/chat/completions "{$hello, \"$field\": $value}"
    out_has "'$field'"
done <<'END'
echo true
tools true
tool_choice "required"
functions [{}]
function_call {"name": "f"}
store true
modalities ["text", "audio"]
service_tier "flex"
parallel_tool_calls 1
reasoning_effort "low"
logprobs 0
prediction {"type": "content", "content": "a"}
stream_options 5
stream_options {"continuous_usage_stats": true}
stream_options {"include_usage": 1}
stream_options {"include_usage": true}
END
answers 'what can be said of a field' 400 /v1/chat/completions \
    "{$hello, \"tools\": [], \"tool_choice\": \"required\"}"
out_has "'tool_choice' can only be \\\"none\\\" or \\\"auto\\\" here"
while read -r fields; do
    answers "$fields" 200 /v1/chat/completions \
        "{$hello, \"max_completion_tokens\": 6, $fields}"
    out_has '"content":" brown"'
done <<'END'
"tools": [], "tool_choice": "none", "parallel_tool_calls": true
"tools": null, "tool_choice": "auto", "parallel_tool_calls": false
"functions": [], "function_call": "auto", "modalities": ["text"]
"store": false, "metadata": {"a": "b"}, "user": "u", "service_tier": "auto"
"safety_identifier": "u", "prompt_cache_key": "k", "service_tier": "default"
"logprobs": false, "top_logprobs": 0, "stop": [], "logit_bias": {}
"stream": false, "stream_options": {}, "response_format": {"type": "text"}
"stream": null, "stream_options": {}
END
nulls=$(for field in max_tokens temperature top_p top_k n stream stream_options \
    logprobs top_logprobs stop seed presence_penalty frequency_penalty \
    logit_bias user tools tool_choice functions function_call store metadata \
    modalities audio prediction reasoning_effort verbosity service_tier \
    response_format web_search_options parallel_tool_calls model; do
    printf ', "%s": null' $field
done)
answers 'null is not given' 200 /v1/chat/completions '{"messages": [{"role":
    "user", "content": "quick"}], "max_completion_tokens": 2'"$nulls}"
# what the client makes of an answer, and of one without a text
printf 'U:a\nA:\nU:quick\nA:' | wc -c >bytes
for said in '"content": null, "refusal": null, "tool_calls": null' \
    '"name": null, "tool_calls": []' '"content": "", "annotations": []'; do
    answers "an answer with $said" 200 /v1/chat/completions '{"messages":
        [{"role": "user", "content": "a"}, {"role": "assistant", '"$said"'},
        {"role": "user", "content": "quick"}], "max_tokens": 1}'
    out_has "\"prompt_tokens\":$(($(cat bytes)))"
done
answers 'a refusal that was said' 400 /v1/chat/completions \
    '{"messages": [{"role": "assistant", "refusal": "no"}]}'
out_has "'refusal' is not known here"
answers 'another form' 400 /v1/chat/completions \
    "{$hello, \"response_format\": {\"type\": \"json_object\"}}"
out_has "'response_format' can only be {"
answers 'the only form' 200 /v1/chat/completions \
    "{$hello, \"response_format\": {\"type\": \"text\"}, \"max_tokens\": 1}"
answers 'a type that every message has' 200 /v1/chat/completions '{"messages":
    [{"role": "user", "content": "quick", "type": "text"}], "max_tokens": 1}'
answers 'and no other one' 400 /v1/chat/completions '{"messages":
    [{"role": "user", "content": "quick", "type": "image"}], "max_tokens": 1}'
awk -v hello="$hello" 'BEGIN { printf "{%s, \"chat_template_kwargs\": {", hello
    for (i = 0; i < 20000; i++) printf "%s\"v%d\": 0", i ? ", " : "", i
    print "}}" }' >many
answers 'thousands of variables' 400 /v1/chat/completions '' --data-binary @many
out_has "'chat_template_kwargs' has 20000 members, limit 64"
answers 'tools that the template does not look at' 400 /v1/chat/completions \
    "{$hello, $tools}"
out_has "'tools': the template of the model has no place for them"
call='{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}'
answers 'and calls of them' 400 /v1/chat/completions \
    '{"messages": [{"role": "assistant", "tool_calls": ['"$call"']}]}'
out_has "'tool_calls': the template of the model has no place for them"
answers 'but tools that are not to be called' 200 /v1/chat/completions \
    "{$hello, $tools,
    \"tool_choice\": \"none\", \"max_tokens\": 1}"
answers 'what the template refuses' 400 /v1/chat/completions \
    '{"messages": [{"role": "other", "content": "a"}]}'
out_has 'the template says: no role other'
stop_server
# ---- tools: the template shows in an error what it sees of them ----
cat >tools <<'EOF'
{%- for m in messages -%}
{%- set call = m.tool_calls[0] if m.tool_calls else none -%}
{{ raise_exception([m.role, m.content, m.name|default(none),
    m.tool_call_id|default(none), call, tools]|tojson) if loop.last }}
{%- endfor -%}
EOF
serve --load ckpt --chat-template tools
sees() { # description, members of the body, what the template says
    answers "$1" 400 /v1/chat/completions "{$2}"
    out_has "the template says: $(printf '%s' "$3" | sed 's/"/\\"/g')\""
}
tool='{"type": "function", "function": {"name": "f", "strict": null,
    "parameters": {"b": 1.0, "a": [1e3, 7]}}}'
sees 'tools as they are' '"messages": [{"role": "user", "content": "a"}],
    "tool_choice": "auto", "parallel_tool_calls": true, "tools": ['"$tool"']' \
    '["user", "a", null, null, null, [{"type": "function", "function": {"name": "f", "strict": null, "parameters": {"b": 1.0, "a": [1000.0, 7]}}}]]'
sees 'none where none is to be called' '"messages": [{"role": "user", "content":
    "a"}], "tool_choice": "none", "tools": ['"$tool"']' \
    '["user", "a", null, null, null, null]'
sees 'arguments are an object' '"messages": [{"role": "assistant", "content":
    null, "tool_calls": [{"id": "x", "index": 0, "function": {"name": "f",
    "arguments": "{\"k\": 1.0, \"n\": [{}]}"}, "type": "function"}]}]' \
    '["assistant", "", null, null, {"id": "x", "function": {"name": "f", "arguments": {"k": 1.0, "n": [{}]}}, "type": "function"}, null]'
sees 'none are an empty one' '"messages": [{"role": "assistant", "tool_calls":
    [{"function": {"name": "f", "arguments": ""}}]}]' \
    '["assistant", "", null, null, {"function": {"name": "f", "arguments": {}}}, null]'
sees 'a result' '"messages": [{"role": "tool", "tool_call_id": "x", "name": "f",
    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]' \
    '["tool", "a\\nb", "f", "x", null, null]'
while read -r field body; do
    answers "$body" 400 /v1/chat/completions "{$hello, $body}"
    out_has "\"param\":\"$field\""
done <<'END'
type "tools": [{"type": "custom", "custom": {"name": "f"}}]
function "tools": [{"type": "function"}]
function "tools": [{}]
function "tools": [5]
tool_choice "tools": [{"function": {"name": "f"}}], "tool_choice": "required"
parallel_tool_calls "tools": [{"function": {"name": "f"}}], "parallel_tool_calls": false
END
while read -r field message; do
    answers "$message" 400 /v1/chat/completions "{\"messages\": [{$message}]}"
    out_has "\"param\":\"$field\""
done <<'END'
tool_calls "role": "user", "content": "a", "tool_calls": [{}]
tool_call_id "role": "user", "content": "a", "tool_call_id": "x"
tool_call_id "role": "tool", "content": "a", "tool_call_id": 5
content "role": "tool", "tool_call_id": "x"
role "role": "function", "name": "f", "content": "a"
tool_calls "role": "assistant", "tool_calls": {}
tool_calls "role": "assistant", "tool_calls": [5]
function "role": "assistant", "tool_calls": [{}]
kind "role": "assistant", "tool_calls": [{"kind": 1, "function": {"name": "f"}}]
type "role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]
more "role": "assistant", "tool_calls": [{"function": {"name": "f", "more": 1}}]
arguments "role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]
arguments "role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]
arguments "role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]
END
stop_server

# A template of its own for chats with tools.
mkdir -p two
cp -r hf/. two
says() { printf '{"name": "%s", "template": "{{ raise_exception('"'%s'"' ~ %s) }}"}' "$@"; }
printf '{"chat_template": [%s, %s]}' "$(says default plain messages)" \
    "$(says tool_use special tools)" >two/tokenizer_config.json
serve --load two --tokenizer-type ByteTokenizer
answers 'a template of their own' 400 /v1/chat/completions "{$hello, $tools}"
out_has 'the template says: special'
answers 'and the one of other chats' 400 /v1/chat/completions "{$hello}"
out_has 'the template says: plain'
stop_server
printf '{"chat_template": [{"name": "tool_use", "template": "{%% block a %%}"},
    {"name": "default", "template": "%s"}]}' "$(python_json)" \
    >two/tokenizer_config.json
serve --load two --tokenizer-type ByteTokenizer
answers 'one that is not supported' 400 /v1/chat/completions "{$hello, $tools}"
out_has "the template for tools: line 1: the tag 'block' is not supported"
answers 'is none of other chats' 200 /v1/chat/completions \
    "{$hello, \"max_tokens\": 1}"
stop_server

# Templates as files, which go before those of the configuration.
mkdir two/additional_chat_templates
template() { printf '{{ raise_exception("%s" ~ %s) }}' "$@"; }
template one messages >two/chat_template.jinja
template with tools >two/additional_chat_templates/tool_use.jinja
template rag messages >two/additional_chat_templates/rag.jinja
touch two/additional_chat_templates/README
serve --load two --tokenizer-type ByteTokenizer
answers 'a file for tools' 400 /v1/chat/completions "{$hello, $tools}"
out_has 'the template says: with'
answers 'and the file of other chats' 400 /v1/chat/completions "{$hello}"
out_has 'the template says: one'
check 'others are named' grep -qF 'templates of chats, which are not used (rag)' \
    log
stop_server
echo '{% block a %}' >two/additional_chat_templates/tool_use.jinja
serve --load two --tokenizer-type ByteTokenizer
answers 'a file that is not supported' 400 /v1/chat/completions "{$hello, $tools}"
out_has "tool_use.jinja: line 1: the tag 'block' is not supported"
stop_server

serve --load ckpt --chat-template empty
answers 'messages without a text' 400 /v1/chat/completions "{$hello}"
out_has 'the template makes no text of the messages'
stop_server
serve --load ckpt
answers 'a model without a template' 501 /v1/chat/completions "{$hello}" -i
out_has 'x-should-retry: false'
out_has 'no template of chats'
stop_server
mkdir -p odd
cp -r hf/. odd
printf '{"chat_template": "{%% include x %%}"}' >odd/tokenizer_config.json
serve --load odd --tokenizer-type ByteTokenizer
check 'a template that is not supported is reported' grep -q "'include'" log
answers 'and chats are refused with the reason' 501 /v1/chat/completions \
    "{$hello}"
out_has "the tag 'include' is not supported"
answers 'but not texts' 200 /v1/completions '{"prompt": "a"}'
stop_server
tap_done
