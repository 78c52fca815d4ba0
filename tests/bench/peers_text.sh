#!/bin/sh
# Runs peers_text.py: gpt-preprocess beside other tokenizers and beside xz, with
# English, and with Chinese and Japanese. Arguments go to peers_text.py:
#     sh tests/bench/peers_text.sh --only xz,two-cores
# The Python is GPT_ORACLE_PYTHON, or python3; the texts are GPT_BENCH_ENGLISH
# and GPT_BENCH_CJK (files and folders, separated by colons), or Debian's
# manuals; GPT-2's vocabulary is in GPT2_VOCAB_DIR. Texts and peers that are not
# installed are named and left out.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_gpt2
need_python numpy numpy
. tests/lib/texts.sh
find_texts /usr/share/doc /usr/share/perl /usr/share/man/man1
[ -n "$texts" ] || exit 0
# shellcheck disable=SC2086 # NAME=PATHS, without blanks
exec "$python" tests/bench/peers_text.py --build "$build" --vocab "$gpt2" \
    "$@" $texts
