#!/bin/sh
# Compares gpt-preprocess with Megatron-LM's builder and tiktoken, on a corpus
# of text in many languages and code from this machine. It takes minutes, so it
# runs only when GPT_PARITY_MB gives the number of megabytes (200 for a release)
# and GPT_ORACLE_PYTHON names a Python with megatron-core and tiktoken.
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
