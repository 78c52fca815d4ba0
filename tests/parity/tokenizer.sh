#!/bin/sh
# Compares gpt-preprocess with tiktoken, Hugging Face tokenizers and, if
# installed, megatron-core: a short run of tokenizer_parity.py with GPT-2's
# vocabulary. The Python is GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
find_gpt2 || {
    echo '1..0 # SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
}
need_python 'tiktoken, tokenizers, numpy' 'tiktoken and tokenizers'
set -- --program "$build/gpt-preprocess" --vocab "$gpt2" --random 20000
for text in /usr/share/debian-reference/ch09.*.html; do
    [ -f "$text" ] && set -- "$@" "$text"
done
"$python" -c 'import megatron.core' 2>/dev/null && set -- "$@" --megatron
run_one 'the same ids and files' "$python" tests/parity/tokenizer_parity.py "$@"
