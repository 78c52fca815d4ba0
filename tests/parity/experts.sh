#!/bin/sh
# Compares models with experts with transformers, if GPT_ORACLE_PYTHON, or
# python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors' 'transformers'
run_tap "$python" tests/parity/experts_parity.py "${BUILD:-build}"
