#!/bin/sh
# Compares every family of tokenizers with the library of its files: a short run
# of families_parity.py. Published files are in GPT_TOKENIZERS_DIR; each family
# gets GPT_FAMILIES_COUNT random strings. The Python is GPT_ORACLE_PYTHON, or
# python3.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_python 'tiktoken, tokenizers, sentencepiece, numpy' \
    'tiktoken, tokenizers and sentencepiece'
set -- --programs "$build" --count "${GPT_FAMILIES_COUNT:-200}"
for dir in "${GPT_TOKENIZERS_DIR:-}" ../shared/data/families; do
    [ -n "$dir" ] && [ -d "$dir" ] && set -- "$@" --files "$dir" && break
done
for text in /usr/share/debian-reference/debian-reference.*.txt; do
    [ -f "$text" ] && [ -n "${GPT_FAMILIES_COUNT:-}" ] && set -- "$@" "$text"
done
run_one 'the same ids and texts' "$python" tests/parity/families_parity.py "$@"
