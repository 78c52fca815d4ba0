#!/bin/sh
# gpt-preprocess against Megatron-LM's builder, fed by tiktoken, on a corpus of
# what this machine has: text in many languages and code. It takes minutes, so
# it runs when GPT_PARITY_MB says how many megabytes (200 for a release) and
# GPT_ORACLE_PYTHON names a Python with megatron-core and tiktoken.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
if [ -z "${GPT_PARITY_MB:-}" ]; then
    echo '1..0 # SKIP GPT_PARITY_MB is not set'
    exit 0
fi
if ! "$python" -c 'import megatron.core, tiktoken' 2>/dev/null; then
    echo "1..0 # SKIP no $python with megatron-core and tiktoken"
    exit 0
fi
for dir in "${GPT2_VOCAB_DIR:-}" ../shared/data/gpt2; do
    [ -n "$dir" ] && [ -f "$dir/vocab.json" ] && break
done
if ! [ -f "$dir/vocab.json" ]; then
    echo '1..0 # SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
fi
exec "$python" tests/parity/corpus_parity.py --build "${BUILD:-build}" \
    --vocab "$dir" --megabytes "$GPT_PARITY_MB"
