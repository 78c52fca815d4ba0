#!/bin/sh
# Random models on random roads against transformers, if GPT_ORACLE_PYTHON, or
# python3, has it; GPT_ROADS=66 is the long form, three cases of each family.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'openai, safetensors, tokenizers, torch, transformers' \
    'transformers and openai'
run_tap "$python" tests/parity/roads_parity.py "${BUILD:-build}" \
    "${GPT_ROADS:-3}"
