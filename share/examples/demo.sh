#!/bin/sh
# The whole pipeline in less than five minutes on two cores: text, vocabulary,
# tokens, training, resuming, generated text. `make demo` runs it, with BUILD.
# All files are in BUILD/demo, which is removed first. Each command is printed
# in the form in which it can be typed there.
#
#   DEMO_TEXT=FILE     train on a text file of your own, of a megabyte or more
#   DEMO_PROMPT=TEXT   the beginning of the generated texts
#   DEMO_SECONDS=N     train for about N seconds (default 150)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ -d "${BUILD:-build}" ] || {
    echo "demo: there is no folder '${BUILD:-build}'; BUILD names another" >&2
    exit 1
}
build=$(cd "${BUILD:-build}" && pwd)
demo=$build/demo
prompt=${DEMO_PROMPT:-And the LORD said unto Moses,}
seconds=${DEMO_SECONDS:-150}
PATH=$build:$PATH
GPT_DATADIR=$(cd "$here/.." && pwd)
export PATH GPT_DATADIR

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
else
    bold='' plain=''
fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
show() {
    printf '$'
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9_./,=+:-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
}
run() { # command...: shown, then run
    show "$@"
    "$@"
}
fail() {
    echo "demo: $*" >&2
    exit 1
}

# The values of a field of metrics.jsonl, one a line.
metric() { # field file
    sed -n "s/.*\"$1\":\([-+0-9.e]*\).*/\1/p" "$2"
}

rm -rf "$demo"
mkdir -p "$demo"
cd "$demo"
started=$(date +%s)

step '1. A corpus in the form of OSCAR: lines of JSON with a field "text"'
grep -q GPT_HAVE_LZMA ../config.mk 2>/dev/null || export DEMO_XZ=0
show sh "$here/demo-corpus.sh" .
corpus=$(sh "$here/demo-corpus.sh" .)
corpus=${corpus##*/}
ls -l "$corpus"

step '2. A vocabulary of 2048 tokens for it'
run gpt-vocab --input "$corpus" --vocab-size 2048 --output-prefix demo

step '3. Tokens, in the form in which training reads them'
run gpt-preprocess --input "$corpus" --output-prefix demo \
    --vocab-file demo-vocab.json --merge-file demo-merges.txt --append-eod

train() { # option...
    run gpt-train --config gpt2-tiny --data-path demo_text_document \
        --vocab-file demo-vocab.json --merge-file demo-merges.txt \
        --split 95,5,0 --eval-iters 16 "$@"
}
generate() {
    run gpt-generate --load ckpt --prompt "$prompt" --echo --tokens 100 \
        --temperature 0.8 --top-k 40 --seed 1
}

step "4. A trial of 100 steps, to see how many take $seconds seconds"
train --train-iters 100 --log-interval 50 --eval-iters 0 \
    --metrics trial.jsonl --quiet
ms=$(metric elapsed_ms trial.jsonl | tail -n 1)
steps=$(awk -v ms="$ms" -v s="$seconds" 'BEGIN {
    n = int(s * 1000 / ms / 100) * 100
    print (n < 300 ? 300 : (n > 10000 ? 10000 : n))
}')
last=$((steps - 100))
# More than the measured time: the machine may have other work.
limit=$(awk -v s="$seconds" 'BEGIN { print s * 1.4 / 60 }')
echo "$ms ms a step: $steps steps"

step '5. One step, and the text of a model that has learned nothing yet'
train --train-iters "$steps" --save ckpt --exit-interval 1 --eval-interval 1 \
    --log-interval 1 --quiet
generate

step "6. Training up to step $last, about $seconds seconds"
train --train-iters "$steps" --save ckpt --load ckpt --exit-interval "$last" \
    --eval-interval 400 --log-interval 200 --exit-duration-in-mins "$limit"

step '7. The same command resumes the run and completes it'
train --train-iters "$steps" --save ckpt --load ckpt \
    --eval-interval 50 --log-interval 50 --exit-duration-in-mins 0.5

step '8. The text after training, with the same prompt'
generate
step '9. Three new documents'
run gpt-generate --load ckpt --prompt '' --num-samples 3 --tokens 60 \
    --temperature 0.8 --top-k 40 --seed 2

first=$(metric validation_loss ckpt/metrics.jsonl | head -n 1)
final=$(metric validation_loss ckpt/metrics.jsonl | tail -n 1)
step "Validation loss: $first after one step, $final after" \
    "$(metric iteration ckpt/metrics.jsonl | tail -n 1)"
awk -v a="$first" -v b="$final" 'BEGIN { exit !(b > 0 && b < a - 1.5) }' ||
    fail "the loss only fell from '$first' to '$final'"

step 'The curves of the run' # a page; in short: the loss, drawn in text
run gpt-report ckpt --text --width 78 --height 8 | sed -n '1,/^ *1  /p'
run gpt-report ckpt --title 'Demonstration' --force

cat <<X

Done in $(($(date +%s) - started)) seconds. Everything is in $demo:
  $corpus, demo-vocab.json, demo-merges.txt, demo_text_document.{bin,idx},
  ckpt/iter_*, ckpt/metrics.jsonl (a JSON object for every line of the log),
  report.html (curves of the run: open it in a browser)

What to try next in this directory:
  PATH=$build:\$PATH GPT_DATADIR=$GPT_DATADIR; export PATH GPT_DATADIR
  gpt-generate --load ckpt --prompt 'In the beginning' --temperature 0.7
  gpt-reshape inspect ckpt
  gpt-reshape --load-path ckpt --save-path hf --to hf
  the command of step 7 with more --train-iters, to train further
What to try next in the source tree:
  DEMO_TEXT=your.txt DEMO_PROMPT='Once' make demo
  man ./man/gpt.7
X
