#!/bin/sh
# Compares gpt-dataset with Megatron-LM itself, if GPT_ORACLE_PYTHON, or
# python3, has megatron-core.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'megatron.core' 'megatron-core'
run_tap "$python" tests/parity/dataset_parity.py "${BUILD:-build}/gpt-dataset"
