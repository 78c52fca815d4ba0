#!/bin/sh
# Makes the pictures of this folder, with headless Chromium: two runs on the
# manual pages of this tree, one of which is resumed, then the page of
# gpt-report about them with a schedule and a plan, and the same in a terminal.
# Takes a minute. Numbers of speed differ from machine to machine; curves do
# not. Start it in the source tree after make.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${BUILD:-$top/build}" && pwd)
PATH=$build:$PATH
GPT_DATADIR=$top/share
export PATH GPT_DATADIR

for b in chromium chromium-browser google-chrome; do
    command -v $b >/dev/null && browser=$b
done
[ -n "${browser:-}" ] || { echo "$0: no Chromium" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"

# A paragraph is a document: what stands between two requests of a page.
for page in "$top"/man/*.[157]; do
    awk '/^\./ { if (length(text) > 200) printf "{\"text\":\"%s\"}\n", text
            text = ""; next }
        { gsub(/[\\"]/, ""); text = text $0 " " }' "$page"
done >corpus.jsonl
gpt-vocab --input corpus.jsonl --output-prefix demo --vocab-size 1000 -q
gpt-preprocess --input corpus.jsonl --output-prefix demo --append-eod -q \
    --vocab-file demo-vocab.json --merge-file demo-merges.txt

# The peak is given: what is measured depends on other work of the machine.
train() { # options...
    gpt-train --config gpt2-tiny --data-path demo_text_document -q \
        --vocab-file demo-vocab.json --merge-file demo-merges.txt \
        --train-iters 400 --log-interval 5 --eval-interval 40 --eval-iters 2 \
        --split 9,1,0 --lr-warmup-iters 40 --device-peak-tflops 0.3 "$@"
}
train --lr 3e-3 --save fast --exit-interval 200
train --lr 3e-3 --save fast --load fast
train --lr 5e-4 --save slow
pipeline='--config gpt2-1.5b --vocab-size 50257 --bf16
    --pipeline-model-parallel-size 4 --world-size 4 --global-batch-size 8'
# shellcheck disable=SC2086 # a word list
gpt-train $pipeline --simulate 1:2:0.1 --simulate-svg schedule.svg -q >/dev/null
# shellcheck disable=SC2086
gpt-train $pipeline --dry-run --distributed-backend nccl >plan.txt
gpt-report 'lr 3e-3=fast' 'lr 5e-4=slow' --title 'Two learning rates' \
    --timeline schedule.svg --plan plan.txt --smoothing 0.5 --output page.html

# One picture of the top of the page; the schedule and the plan are below it.
shoot() { # file height page
    # shellcheck disable=SC2046 # no word when not root
    "$browser" --headless --disable-gpu --hide-scrollbars \
        $([ "$(id -u)" = 0 ] && echo --no-sandbox) \
        --user-data-dir="$work/browser" --virtual-time-budget=3000 \
        --window-size=1300,"$2" --screenshot="$work/$1" "file://$work/$3" \
        >browser.log 2>&1
    [ -s "$work/$1" ] || { cat browser.log >&2; exit 1; }
    cp "$work/$1" "$top/share/screenshots/$1"
}
shoot report.png 1120 page.html
sed 's|</style>|header, section:not(.timeline) { display: none }</style>|' \
    page.html >schedule.html
shoot schedule.png 190 schedule.html
ls -l "$top"/share/screenshots/*.png
