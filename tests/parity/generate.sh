#!/bin/sh
# gpt-generate's logits and greedy texts against transformers, when a Python
# with it is there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers' 'transformers'
run_tap "$python" tests/parity/generate_parity.py "${BUILD:-build}"
