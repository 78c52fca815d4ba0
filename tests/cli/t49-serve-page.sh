#!/bin/sh
# The page of gpt-generate --serve in a headless Chromium: prompt, settings, the
# text as it comes, and the probabilities of its tokens. With GPT_SCREENSHOT a
# picture of it is written there.
. "$(dirname "$0")/../lib/tap.sh"

browser=
for b in chromium chromium-browser google-chrome; do
    command -v $b >/dev/null && browser=$b
done
[ -n "$browser" ] || {
    skip 'there is no chromium'
    tap_done
}
. "$top/tests/lib/server.sh"
awk 'BEGIN { for (i = 0; i < 200; i++)
    print "{\"text\": \"The quick brown fox is <quick> & brown.\"}" }' >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
expect 0 'a model' gpt-train --data-path d_text_document \
    --tokenizer-type ByteTokenizer --num-layers 2 --hidden-size 32 \
    --num-attention-heads 2 --seq-length 64 --micro-batch-size 4 \
    --split 100,0,0 --eval-iters 0 --save ckpt --no-save-optim \
    --train-iters "${TRAIN:-60}" --lr 1e-2 --lr-decay-style constant
open_page() { # link option...
    hash=$1
    shift
    # shellcheck disable=SC2046 # no word when not root
    timeout 120 "$browser" --headless --disable-gpu \
        $([ "$(id -u)" = 0 ] && echo --no-sandbox) \
        --user-data-dir="$scratch/browser" --virtual-time-budget=20000 \
        "$@" "$url/#$hash" >dom.html 2>browser.log
}
text_of() { # the elements of the text, without their tags
    sed -n '/<div id="text"/,/<\/div>/p' dom.html | tr -d '\n' |
        sed 's/.*<div id="text"[^>]*>//; s/<\/div>.*//; s/<[^>]*>//g'
}
serve --load ckpt || {
    skip 'this build has no libmicrohttpd'
    tap_done
}
link='prompt=The%20quick&max_tokens=24&temperature=0&seed=3&go'
open_page "$link" --dump-dom || {
    skip "the browser does not start here: $(tail -n 1 browser.log)"
    stop_server
    tap_done
}
check 'no message of the browser about the page' \
    sh -c '! grep -i "CONSOLE" browser.log'
gpt-generate --load ckpt -p 'The quick' --tokens 24 --greedy 2>err |
    sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' | tr -d '\n' >want
check 'the text of the filter is on the page' test "$(text_of)" = "$(cat want)" ||
    { text_of; echo; cat want; }
check 'an element a token, which the pointer finds' \
    test "$(grep -o '<span tabindex="0">' dom.html | wc -l)" = 24
check 'probabilities of the last one' \
    test "$(grep -o '<td>[0-9.]* %</td>' dom.html | wc -l)" = 5
check 'settings are those of the link' grep -q 'id="note" role="status"></span>' \
    dom.html
# The pointer is moved by a script in a copy of the page, which the server's
# own page does not have: the copy asks the same server.
{
    sed "s|fetch(\"v1/completions\"|fetch(\"$url/v1/completions\"|" \
        "$top/share/serve/page.html"
    cat <<'EOF'
<script>
const wait = setInterval(() => {
  const spans = document.querySelectorAll("#text span");
  if (spans.length < 24) return;
  clearInterval(wait);
  spans[0].dispatchEvent(new MouseEvent("mouseenter"));
  document.title = "first: " + $("top").innerText.split("\n")[0];
}, 50);
</script>
EOF
} >copy.html
# shellcheck disable=SC2046 # no word when not root
timeout 120 "$browser" --headless --disable-gpu --disable-web-security \
    $([ "$(id -u)" = 0 ] && echo --no-sandbox) \
    --user-data-dir="$scratch/browser" --virtual-time-budget=20000 \
    --dump-dom "file://$scratch/copy.html#$link" >dom.html 2>browser.log
check 'and of any other one under the pointer' \
    grep -q '<title>first: "' dom.html || grep -o '<title>.*</title>' dom.html
open_page 'prompt=The&max_tokens=0&go' --dump-dom
check 'a mistake is shown' grep -q "'max_tokens' must be a number" dom.html
if [ -n "${GPT_SCREENSHOT:-}" ]; then
    open_page 'prompt=The%20quick&max_tokens=96&temperature=1.2&seed=1&go' \
        --screenshot="$GPT_SCREENSHOT" \
        --window-size=720,600 --hide-scrollbars
    check 'a picture' test -s "$GPT_SCREENSHOT"
fi
stop_server
tap_done
