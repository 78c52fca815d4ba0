#!/bin/sh
# Compares the sample order with that of Megatron-LM itself, if
# GPT_ORACLE_PYTHON, or python3, has megatron-core.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'megatron.core' 'megatron-core'
run_tap "$python" tests/parity/samples_parity.py \
    "${BUILD:-build}/tests/parity/samples_dump"
