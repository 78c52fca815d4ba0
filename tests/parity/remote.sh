#!/bin/sh
# Compares models whose code came with their files with classes of transformers
# that compute the same, if GPT_ORACLE_PYTHON, or python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors' 'transformers'
run_tap "$python" tests/parity/remote_parity.py "${BUILD:-build}"
