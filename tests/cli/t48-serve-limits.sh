#!/bin/sh
# gpt-generate --serve: beginnings of prompts that are kept, and that they
# change no byte; limits of sizes, times and connections; how it stops.
. "$(dirname "$0")/../lib/tap.sh"

for tool in gpt-train curl; do
    command -v $tool >/dev/null || {
        skip "there is no $tool"
        tap_done
    }
done
. "$top/tests/lib/server.sh"
echo '{"text": "words to begin with, a few of them at least"}' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 64 \
    --num-attention-heads 2 --seq-length 32 --max-position-embeddings 1024 \
    --micro-batch-size 1 --split 100,0,0 --eval-iters 0 --save ckpt \
    --no-save-optim --train-iters 2 --lr 1e-2 --lr-decay-style constant \
    --init-method-std 0.5
text() { # seed bytes: letters that look random
    awk -v seed="$1" -v n="$2" 'BEGIN { x = seed
        for (i = 0; i < n; i++) { x = (x * 1103515245 + 12345) % 2147483648
            printf "%c", 97 + int(x / 65536) % 26 } }'
}
begin=$(text 1 600)
other=$(text 2 600)
third=$(text 3 600)
short=$(text 4 200)
fourth=$(text 5 250)

# ---- beginnings of prompts ----
# shellcheck disable=SC2086 # options are words
round() { # name option...: answers of eight prompts, without their counts
    name=$1
    shift
    serve --load ckpt "$@" || return 1
    : >"$name"
    : >"$name.cached"
    for prompt in "$begin" "${begin}x" "$other" "$begin" "$third" "$short" \
        "$short" "$begin$fourth"
    do
        ask /v1/completions "{\"prompt\": \"$prompt\", \"seed\": 5, \"n\": 2,
            \"max_tokens\": 20, \"logprobs\": 2}"
        sed 's/.*"choices"//; s/,"prompt_tokens_details.*//' out >>"$name"
        sed 's/.*"cached_tokens":\([0-9]*\).*/\1/' out | tr '\n' ' ' \
            >>"$name.cached"
    done
    ask /metrics ''
    cp out "$name.metrics"
    stop_server
}
round none --prefix-cache-size 0 || {
    skip 'this build has no libmicrohttpd'
    tap_done
}
check 'eight answers' test "$(grep -c '"finish_reason"' none)" = 8
check 'without a cache nothing is copied' test "$(cat none.cached)" = \
    '0 0 0 0 0 0 0 0 '
round full
check 'the same bytes with a cache' cmp none full
check 'whole blocks are copied' test "$(cat full.cached)" = \
    '0 512 0 512 0 0 0 512 '
check 'and counted' grep -q '^gpt_prompt_tokens_cached_total 1536$' full.metrics
check 'entries, too' grep -q '^gpt_prefix_cache_entries 3$' full.metrics
check 'and tokens in them' grep -q '^gpt_prefix_cache_tokens 1792$' full.metrics
# a slot has 2 layers x 2 x 64 x 1024 floats: 1 MiB
round one --prefix-cache-size 1500Ki
check 'the same bytes with one entry' cmp none one
check 'the last prompt takes its place' test "$(cat one.cached)" = \
    '0 512 0 0 0 0 0 0 '
check 'within the limit' grep -q '^gpt_prefix_cache_bytes 1048576$' one.metrics
# half of that in bf16: the same limit has room for two
round narrow --kv-cache-dtype bf16 --prefix-cache-size 0
round two --kv-cache-dtype bf16 --prefix-cache-size 1500Ki
check 'the same bytes of keys and values in bf16' cmp narrow two
check 'others than of floats' test "$(cksum <none)" != "$(cksum <narrow)"
check 'two entries' grep -q '^gpt_prefix_cache_entries 2$' two.metrics
check 'within the limit' grep -q '^gpt_prefix_cache_bytes 1048576$' two.metrics

# ---- sizes ----
long='"prompt": "a", "n": 1000, "max_tokens": 900, "ignore_eos": true'
serve --load ckpt --max-request-size 1Ki \
    --client-timeout 1 --max-connections 2 --batch-size 2
answers 'a body that is too long' 413 /v1/completions \
    "{\"prompt\": \"$begin$other\"}"
out_has 'longer than 1.0 KiB'
answers 'a client that waits for a word sends no body' 413 /v1/completions \
    "{\"prompt\": \"$begin$other\"}" -i -H 'Expect: 100-continue'
check 'and is not asked for one' sh -c '! grep -q "100 Continue" out'
answers 'nor is one at a path that is not there' 404 /v1/nothing x -i \
    -H 'Expect: 100-continue'
check 'by any answer' sh -c '! grep -q "100 Continue" out'
answers '99 GB are refused at once' 413 /v1/completions x -m 60 \
    -H 'Content-Length: 99000000000'
answers 'one that fits' 200 /v1/completions '{"prompt": "a"}'
answers 'an answer that would be too long' 413 /v1/completions \
    '{"prompt": "a", "n": 4, "max_tokens": 30, "logprobs": 90, "ignore_eos": true}'
out_has 'the answer is too long; ask for fewer'
slow='use IO::Socket::INET; use Time::HiRes "time";
    my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]);
    my $begun = time;
    print $s "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
        $ARGV[1] eq "head" ? "X-Slow: " : "Content-Length: 100\r\n\r\n";
    $SIG{PIPE} = "IGNORE";
    my $cut = 0;
    for (1 .. 240) {
        $s->send(".");
        my $in = "";
        vec($in, fileno($s), 1) = 1;
        $cut = select($in, undef, undef, 0.25) && !$s->sysread($in, 1);
        last if $cut;
    }
    printf "%s %.1f\n", $cut ? "cut" : "served", time - $begun;'
# Two readers of such a head could disagree about where the body ends: nothing
# of what follows it is taken for a request.
framed='use IO::Socket::INET;
    my ($port, @head) = @ARGV;
    my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port);
    print $s join("\r\n", "POST /v1/completions HTTP/1.1", "Host: localhost", @head),
        "\r\n\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    local $/;
    $_ = <$s>;
    my @got = m{HTTP/1\.1 (\d+)}g;
    print "@got; ", /^Connection: close\r$/mi ? "closed" : "open", "\n";
    print STDERR $_;'
framing() { # what fault header...
    framing_what=$1
    framing_fault=$2
    shift 2
    check "$framing_what" test \
        "$(perl -e "$framed" "$number" "$@" 2>out)" = '400; closed' ||
        sed 's/^/# /' out
    out_has "$framing_fault"
}
if perl -MIO::Socket::INET -MTime::HiRes -e 1 2>/dev/null; then
    number=${url##*:}
    chunks='Transfer-Encoding: chunked'
    both='both Content-Length and Transfer-Encoding'
    framing 'chunks and a length' "$both" 'Content-Length: 4' "$chunks"
    framing 'in the other order' "$both" "$chunks" 'content-length: 5'
    framing 'and one that is too long' "$both" 'Content-Length: 99000000000' \
        "$chunks"
    framing 'two lengths' 'several headers Content-Length' 'Content-Length: 5' \
        'Content-Length: 3'
    framing 'of which the first is 0' 'several headers Content-Length' \
        'Content-Length: 0' 'Content-Length: 5'
    framing 'chunks twice' "Transfer-Encoding may be 'chunked' alone" \
        "$chunks" "$chunks"
    # newer versions of the library say so themselves
    framing 'a coding that is not known' 'Transfer-Encoding' \
        'Transfer-Encoding: xchunked'
    framing 'one below chunks' 'Transfer-Encoding' \
        'Transfer-Encoding: gzip, chunked'
    for name in 'Transfer-Encoding ' 'transfer-encoding	' 'Content-Length '; do
        framing "'$name' before the colon" 'HTTP/1.1 400' \
            'Content-Length: 5' "$name: chunked"
    done
    framing 'a folded coding' 'HTTP/1.1 400' 'Content-Length: 5' \
        'Transfer-Encoding:' ' chunked'
    for part in head body; do
        perl -e "$slow" "$number" $part >slow.time &
        client=$!
        sleep 0.3
        answers 'beside a slow client' 200 /health ''
        wait $client
        check "a client that sends bytes of the $part now and then is cut" \
            grep -q '^cut' slow.time || sed 's/^/# /' slow.time
    done
else
    skip 'perl has no sockets' || :
fi
answers 'and others are served' 200 /v1/completions '{"prompt": "a"}'
stop_server

# ---- answers that are taken slowly ----
# A client that takes a megabyte a second is never idle for long; its answer of
# ten has to be gone after three seconds.
taking='use Socket; use Time::HiRes "sleep";
    my ($port, $stream) = @ARGV;
    socket(my $s, PF_INET, SOCK_STREAM, 0);
    setsockopt($s, SOL_SOCKET, SO_RCVBUF, 65536);
    connect($s, sockaddr_in($port, inet_aton("127.0.0.1"))) or die;
    my $b = "{\"prompt\": \"a\", \"n\": 12, \"max_tokens\": 400,
        \"logprobs\": 100, \"ignore_eos\": true, \"stream\": $stream}";
    syswrite $s, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        . "Connection: close\r\nContent-Length: " . length($b) . "\r\n\r\n$b";
    my $end = "";
    while (sysread $s, my $part, 65536) {
        $end = substr $end . $part, -20;
        sleep 0.06;
    }
    print $end =~ /\}\n$|DONE/ ? "whole" : "cut", "\n";'
if perl -MSocket -MTime::HiRes -e 1 2>/dev/null; then
    serve --load ckpt --client-timeout 3 --max-request-size 32Mi
    for stream in false true; do
        check "an answer that is taken slowly, stream $stream" test \
            "$(perl -e "$taking" "${url##*:}" $stream)" = cut
    done
    ask /metrics ''
    out_has 'gpt_answers_untaken_total 2'
    out_has 'gpt_answer_bytes 0'
    stop_server
else
    skip 'perl has no sockets' || :
fi

# ---- answers that are too long together ----
# Each of four is shorter than the megabyte that it may have, and all are longer
# than two. They wait behind a call that takes all places, so that they are
# under way at the same time.
crowd() { # texts of the first call
    serve --load ckpt --batch-size 4 --max-request-size 32Ki
    curl -s -m 100 -o first "$url/v1/completions" -d "{\"prompt\": \"a\",
        \"n\": $1, \"max_tokens\": 900, \"ignore_eos\": true}" &
    clients=$!
    until ask /metrics '' && grep -q '^gpt_requests_running [1-9]' out; do
        kill -0 "$clients" || break
    done
    for i in 1 2 3 4; do
        curl -s -m 100 -o "one.$i" -w '%{http_code}' "$url/v1/completions" \
            -d '{"prompt": "a", "max_tokens": 400, "logprobs": 90,
            "ignore_eos": true}' >"status.$i" &
        clients="$clients $!"
    done
    waited=false
    while ask /metrics '' && ! grep -q '^gpt_requests_running 0$' out; do
        ! grep -q '^gpt_requests_waiting 4$' out || waited=true
        sleep 0.05
    done
    for p in $clients; do
        wait "$p"
    done
    $waited
}
texts=8
until crowd $texts || [ $texts -ge 512 ]; do
    stop_server
    texts=$((texts * 4))
done
check 'two make room for the others' test "$(for i in 1 2 3 4; do
    cat status.$i
    echo
done | sort | tr -d '\n')" = 200200507507 || grep . status.?
cat one.? >out
out_has 'the server has no memory for the answer beside others'
answers 'and one alone has it' 200 /v1/completions \
    '{"prompt": "a", "max_tokens": 400, "logprobs": 90, "ignore_eos": true}'
is_taken() { ask /metrics '' && grep -q '^gpt_answer_bytes 0$' out; }
check 'no memory is held in the end' until_true 10 is_taken
stop_server
# A text that ends within what could be a stop string gives its client more bytes
# than its tokens brought: those are not taken from the call's other texts.
serve --load ckpt --batch-size 1
answers 'short texts' 200 /v1/completions '{"prompt": "a", "n": 100,
    "max_tokens": 2, "stream": true, "stop": ["xy"], "logit_bias": {"120": 100}}'
check 'are no long answer' \
    test "$(grep -c '"finish_reason":"length"' out)" = 100
stop_server

# ---- prompts that wait ----
# A call of many texts takes both places in turns. Two calls come meanwhile: the
# places of its last two texts are free after the same step, and both prompts
# go through the model together. A machine where the two come too late, as the
# first call is done, gets a longer one.
together() { # texts of the first call
    serve --load ckpt --batch-size 2 --prefix-cache-size 0
    curl -s -m 100 -o many "$url/v1/completions" -d "{\"prompt\": \"a\",
        \"n\": $1, \"max_tokens\": 400, \"ignore_eos\": true}" &
    clients=$!
    until ask /metrics '' && grep -q '^gpt_prompt_passes_total [1-9]' out; do
        kill -0 "$clients" || break
    done
    for prompt in b c; do
        curl -s -m 100 -o "one.$prompt" "$url/v1/completions" -d \
            "{\"prompt\": \"$prompt\", \"max_tokens\": 3, \"ignore_eos\": true}" &
        clients="$clients $!"
    done
    waited=false
    while ask /metrics '' && ! grep -q '^gpt_requests_running 0$' out; do
        ! grep -q '^gpt_requests_waiting 2$' out || waited=true
        sleep 0.05
    done
    for p in $clients; do
        wait "$p"
    done
    ask /metrics ''
    stop_server
    $waited
}
texts=8
until together $texts || [ $texts -ge 512 ]; do
    texts=$((texts * 4))
done
check 'all are answered' test "$(cat many one.b one.c |
    grep -o '"finish_reason":"length"' | wc -l)" = $((texts + 2))
check 'two prompts that wait begin in one pass' grep -q \
    "^gpt_prompt_passes_total $((texts / 2 + 1))\$" out || grep passes out

# ---- times ----
serve --load ckpt --request-timeout 1 --batch-size 2
answers 'a request that takes too long' 504 /v1/completions "{$long}" -i
out_has 'x-should-retry: false'
out_has 'took longer'
answers 'a stream that does' 200 /v1/completions "{$long, \"stream\": true}" -N
out_has '"message":"the request took longer than it may"'
check 'ends as one' test "$(tail -n 2 out | head -n 1)" = 'data: [DONE]'
ask /metrics ''
out_has 'gpt_requests_cut_total 2'
stop_server

# ---- scores of prompts ----
# A limit of time is looked at between two prompts.
serve --load ckpt --request-timeout 1
for i in 1 2 3 4 5 6 7 8 9 10; do
    for k in 0 1 2 3 4 5 6 7 8 9; do
        printf '%s"%s%d%d"' "${comma:-}" "$begin" $i $k
        comma=,
    done
done >prompts
printf '{"prompt": [%s,%s,%s,%s,%s], "echo": true, "logprobs": 0, "max_tokens": 0}' \
    "$(cat prompts)" "$(cat prompts)" "$(cat prompts)" "$(cat prompts)" \
    "$(cat prompts)" >body
answers 'many prompts to score' 504 /v1/completions '' --data-binary @body
stop_server

# ---- weights that are no numbers ----
cp -r ckpt damaged
model=$(find damaged -name 'model_*.safetensors')
size=$(wc -c <"$model")
{
    head -c 16384 "$model"
    head -c $((size - 16384)) /dev/zero | tr '\0' '\377'
} >nan
mv nan "$model"
serve --load damaged --no-verify
answers 'a model that fails' 500 /v1/completions '{"prompt": "a"}'
out_has 'the server has failed'
until_true 60 has_ended $pid
stop_server 2>/dev/null
check 'ends the server' test $got = 6

# ---- stopping ----
serve --load ckpt --stop-timeout 1 --batch-size 2
curl -s -m 60 -o cut -w '%{http_code}' "$url/v1/completions" -d "{$long}" \
    >cut.status &
client=$!
one_runs() { ask /metrics '' && grep -q '^gpt_requests_running 1' out; }
until_true 60 one_runs
begun=$(date +%s)
stop_server
wait $client
check 'a stop waits no longer than it may' test $(($(date +%s) - begun)) -le 30
check 'a request that is cut gets an answer' test "$(cat cut.status)" = 503
check 'with the reason' grep -q 'the server is stopping' cut
check 'SIGTERM ends it' test $got = 143
for bad in '--client-timeout 0' '--max-request-size 0' '--prefix-cache-size -1' \
    '--max-connections 0' '--request-timeout -1'; do
    # shellcheck disable=SC2086 # options are words
    expect 2 "$bad" gpt-generate --load ckpt --serve :0 $bad
done
for idle in '--served-model-name m' '--api-key-file keys' '--max-queue 1' \
    '--max-connections 1' '--max-request-size 1Ki' '--request-timeout 1' \
    '--client-timeout 1' '--stop-timeout 1' '--prefix-cache-size 0'; do
    # shellcheck disable=SC2086 # options are words
    expect 2 "$idle without a server" gpt-generate --load ckpt -p a $idle
    err_has "${idle%% *} is for --serve"
done

sh -c 'ulimit -n 150; exec gpt-generate --threads 1 --load ckpt --serve :0' \
    2>log &
pid=$!
until_true 60 grep -q 'http://' log
stop_server
check 'clients for which there are no files' grep -q \
    'clients than --max-connections have room: 1000 files must be open' log
expect 1 'no files for a server' sh -c "exec 3>&- 4>&- 5>&-; ulimit -n 6
    exec gpt-generate --load $top/tests/golden/gguf/plain.gguf --serve :0"
err_has 'cannot start the server: Too many open files'

# ---- options without effect ----
serve --load ckpt --temperature 0.5 --tokens 3
stop_server
check 'choices are of requests' grep -q \
    'without effect here: --tokens, --temperature (requests say it' log
expect 0 'one process' gpt-generate --load ckpt -p a --tokens 1 \
    --distributed-backend gloo --distributed-timeout-minutes 1
err_has '--distributed-timeout-minutes (there is one process)'
expect 0 'no text to guess' sh -c \
    'gpt-generate --load ckpt --score --speculate 2 </dev/null'
err_has '--speculate (no text is made)'
tap_done
