#!/bin/sh
# Runs peers_families.py: gpt-preprocess with the vocabularies of other
# families, beside the libraries of these families. The files are in
# GPT_TOKENIZERS_DIR; Python and texts are those of peers_text.sh.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
for dir in "${GPT_TOKENIZERS_DIR:-}" ../shared/data/families; do
    [ -n "$dir" ] && [ -d "$dir" ] && break
    dir=
done
[ -n "$dir" ] || {
    echo '# SKIP no tokenizer files (GPT_TOKENIZERS_DIR)'
    exit 0
}
need_python 'tiktoken, tokenizers, sentencepiece, numpy' \
    'tiktoken, tokenizers and sentencepiece'
. tests/lib/texts.sh
find_texts /usr/share/perl
[ -n "$texts" ] || exit 0
# shellcheck disable=SC2086 # NAME=PATHS, without blanks
exec "$python" tests/bench/peers_families.py --build "$build" --files "$dir" \
    $texts
