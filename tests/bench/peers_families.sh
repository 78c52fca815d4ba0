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
find_python 'tiktoken, tokenizers, sentencepiece, numpy' || {
    echo "# SKIP no $python with tiktoken, tokenizers and sentencepiece" \
        '(GPT_ORACLE_PYTHON)'
    exit 0
}
colons() {
    printf '%s\n' "$@" | paste -sd: -
}
ref=/usr/share/debian-reference
english=${GPT_BENCH_ENGLISH:-$(colons /usr/share/perl $ref/*.en.html)}
cjk=${GPT_BENCH_CJK:-$(colons $ref/*.ja.html $ref/*.zh-*.html)}
exec "$python" tests/bench/peers_families.py --build "$build" --files "$dir" \
    "english=$english" "cjk=$cjk"
