#!/bin/sh
# Measures the peak memory of gpt-preprocess with a small and a large input from
# a pipe: it must not grow with the input. The sizes are 100 and 1000 megabytes,
# or those of the command line:
#     sh tests/bench/memory.sh 1000 10000
# The large output is written to $TMPDIR and removed.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
small=${1:-100}
large=${2:-1000}
workers=${3:-2}
work=$(mktemp -d "${TMPDIR:-/tmp}/gpt-memory.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! [ -x /usr/bin/time ]; then
    echo 'memory: /usr/bin/time is not installed' >&2
    exit 1
fi

# Lines of all lengths. Each has its own number, so that caches get new words
# all the time. Most of a line is text.
lines() { # megabytes
    awk -v bytes="$1" 'BEGIN {
        bytes *= 1000000
        for (k = 0; k < 400; k++) words = words " word" k * 37 % 1000
        for (i = 0; bytes > 0; i++) {
            line = "{\"id\":" i ",\"text\":\"document " i * 7919 " w" i "x" \
                substr(words, 1, i * 97 % 2900) "\"}"
            print line
            bytes -= length(line) + 1
        }
    }'
}

peak() { # megabytes: prints KiB and seconds
    lines "$1" | /usr/bin/time -f '%M %e' -o "$work/time" \
        "$build/gpt-preprocess" --input - --output-prefix "$work/x" \
        --vocab-file tests/golden/gpt2/vocab.json \
        --merge-file tests/golden/gpt2/merges.txt --append-eod \
        --workers "$workers" --force --quiet
    cat "$work/time"
}

for size in "$small" "$large"; do
    # shellcheck disable=SC2046 # two words
    set -- $(peak "$size")
    echo "$size MB: peak $(($1 / 1024)) MiB, $2 s"
    eval "peak_$size=$1"
done
eval "before=\$peak_$small after=\$peak_$large"
limit=$((256 * 1024 + 64 * 1024 * workers))
echo "limit for $workers workers: $((limit / 1024)) MiB"
if [ "$after" -gt $((before + before / 10 + 4096)) ]; then
    echo "memory: grows from $before to $after KiB" >&2
    exit 1
fi
[ "$after" -le "$limit" ]
