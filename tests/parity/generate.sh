#!/bin/sh
# Compares gpt-generate's logits and greedy texts with those of transformers, if
# GPT_ORACLE_PYTHON, or python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers' 'transformers'
run_tap "$python" tests/parity/generate_parity.py "${BUILD:-build}"
