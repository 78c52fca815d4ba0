#!/bin/sh
# gpt-preprocess against Megatron-LM's builder, fed by tiktoken, on a corpus of
# what this machine has: text in many languages and code. It takes minutes, so
# it runs when GPT_PARITY_MB says how many megabytes (200 for a release) and
# GPT_ORACLE_PYTHON names a Python with megatron-core and tiktoken.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
if [ -z "${GPT_PARITY_MB:-}" ]; then
    echo '1..0 # SKIP GPT_PARITY_MB is not set'
    exit 0
fi
need_python 'megatron.core, tiktoken' 'megatron-core and tiktoken'
find_gpt2 || {
    echo '1..0 # SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
}
exec "$python" tests/parity/corpus_parity.py --build "${BUILD:-build}" \
    --vocab "$gpt2" --megabytes "$GPT_PARITY_MB"
