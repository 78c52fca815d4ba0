#!/bin/sh
# gpt-generate --serve under many clients at once, among them malformed, oversize,
# slow and aborted requests: no crash, no leak, and every valid request has its
# answer. GPT_CLIENTS=200 GPT_LOAD_SECONDS=300 is the long form, best with a build
# of `make asan` (BUILD=build/asan).
. "$(dirname "$0")/../lib/tap.sh"

perl -MIO::Socket::INET -MIO::Select -MTime::HiRes -e 1 2>/dev/null || {
    skip 'perl has no sockets'
    tap_done
}
command -v curl >/dev/null || {
    skip 'there is no curl'
    tap_done
}
. "$top/tests/lib/server.sh"
clients=${GPT_CLIENTS:-40}
seconds=${GPT_LOAD_SECONDS:-3}
echo '{"text": "some words to begin with"}' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 1 --hidden-size 16 \
    --num-attention-heads 2 --seq-length 64 --micro-batch-size 1 \
    --split 100,0,0 --eval-iters 0 --save ckpt --no-save-optim --train-iters 1 \
    --lr 1e-3 --lr-decay-style constant --init-method-std 0.4
echo '{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}' >template
serve --load ckpt --chat-template template --batch-size 16 --max-queue 64 \
    --max-request-size 64Ki --client-timeout 2 --request-timeout 60 || {
    skip 'this build has no libmicrohttpd'
    tap_done
}
perl "$top/tests/lib/clients.pl" "${url##*:}" "$clients" "$seconds" 7 \
    >clients.log 2>&1
got=$?
sed 's/^\([^#]\)/# \1/' clients.log
check "$clients clients for $seconds s have right answers" test $got = 0
until_true 60 is_idle
check 'no request is left behind' sh -c "grep -q 'requests_running 0' out &&
    grep -q 'requests_waiting 0' out"
answers 'and the server goes on' 200 /v1/completions '{"prompt": "a"}'
grep '^VmHWM' "/proc/$pid/status" 2>/dev/null | sed 's/^/# /'
stop_server
check 'SIGTERM ends it' test $got = 143
check 'without a report of a sanitizer' \
    sh -c '! grep -i "sanitizer\|runtime error" log' || sed 's/^/# /' log
tap_done
