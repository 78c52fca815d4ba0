#!/bin/sh
# Random trainings against PyTorch and megatron-core, if GPT_ORACLE_PYTHON, or
# python3, has them; GPT_TRAININGS=66 is the long form, three cases of each
# family.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
modules='megatron.core, openai, safetensors, tokenizers, torch, transformers'
need_python "$modules" 'megatron-core, transformers and openai'
run_tap "$python" tests/parity/trainings_parity.py "${BUILD:-build}" \
    "${GPT_TRAININGS:-3}"
