#!/bin/sh
# Compares models with adapters merged with peft's, if GPT_ORACLE_PYTHON, or
# python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors, peft' 'peft'
run_tap "$python" tests/parity/adapters_parity.py "${BUILD:-build}"
