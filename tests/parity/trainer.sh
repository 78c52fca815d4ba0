#!/bin/sh
# Runs of Trainer of transformers and of accelerate that go on here, if
# GPT_ORACLE_PYTHON, or python3, has them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'accelerate, safetensors, torch, transformers' \
    'transformers and accelerate'
run_tap "$python" tests/parity/trainer_parity.py "${BUILD:-build}"
