#!/bin/sh
# Compares models of Hugging Face's families with transformers, if
# GPT_ORACLE_PYTHON, or python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors' 'transformers'
run_tap "$python" tests/parity/hf_families_parity.py "${BUILD:-build}"
