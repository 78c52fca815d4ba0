#!/bin/sh
# Measures the peak memory of gpt-preprocess with a small and a large input from
# a pipe. Both must be within what its manual promises, whatever the size of the
# input; below that, the caches of words fill slowly, so that a larger input may
# take more. The sizes are 100 and 1000 megabytes, or those of the command line:
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
    echo '# SKIP /usr/bin/time is not installed'
    exit 0
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

# The promise is read from the manual, so that the two cannot differ.
promise=$(sed -n \
    's/^input: some \([0-9]*\) MiB, \([0-9]*\) MiB for each worker.*/\1 \2/p' \
    man/gpt-preprocess.1)
case $promise in
*' '*) ;;
*)
    echo 'memory: man/gpt-preprocess.1 does not say how much it takes' >&2
    exit 1
    ;;
esac
limit=$((${promise% *} + ${promise#* } * workers))
echo "limit for $workers workers: $limit MiB"
status=0
for size in "$small" "$large"; do
    # shellcheck disable=SC2046 # two words
    set -- $(peak "$size")
    echo "$size MB: peak $(($1 / 1024)) MiB, $2 s"
    if [ "$1" -gt $((limit * 1024)) ]; then
        echo "memory: more than the manual promises" >&2
        status=1
    fi
done
exit $status
