#!/bin/sh
# Compares quantized models with what transformers, bitsandbytes and
# compressed-tensors make of them, if GPT_ORACLE_PYTHON, or python3, has them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors' 'transformers'
run_tap "$python" tests/parity/quantized_parity.py "${BUILD:-build}"
