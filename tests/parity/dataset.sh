#!/bin/sh
# gpt-dataset against Megatron-LM itself, when a Python with megatron-core is
# there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'megatron.core' 'megatron-core'
run_tap "$python" tests/parity/dataset_parity.py "${BUILD:-build}/gpt-dataset"
