#!/bin/sh
# Every family of tokenizers against the library that its files come from: a
# short run of families_parity.py. Published files are taken from
# GPT_TOKENIZERS_DIR; GPT_FAMILIES_COUNT strings are drawn for each family.
# The Python is GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
find_python 'tiktoken, tokenizers, sentencepiece, numpy' || {
    echo "1..0 # SKIP no $python with tiktoken, tokenizers and" \
        'sentencepiece (GPT_ORACLE_PYTHON)'
    exit 0
}
set -- --programs "$build" --count "${GPT_FAMILIES_COUNT:-200}"
for dir in "${GPT_TOKENIZERS_DIR:-}" ../shared/data/families; do
    [ -n "$dir" ] && [ -d "$dir" ] && set -- "$@" --files "$dir" && break
done
for text in /usr/share/debian-reference/debian-reference.*.txt; do
    [ -f "$text" ] && [ -n "${GPT_FAMILIES_COUNT:-}" ] && set -- "$@" "$text"
done
echo 1..1
status=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
if "$python" tests/parity/families_parity.py "$@" >"$log" 2>&1; then
    echo 'ok 1 - the same ids and texts'
else
    echo 'not ok 1 - the same ids and texts'
    status=1
fi
sed 's/^/# /' "$log"
exit $status
