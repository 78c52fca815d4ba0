#!/bin/sh
# Compares models with experts with megatron-core, if GPT_ORACLE_PYTHON, or
# python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, psutil, megatron.core' 'megatron-core and psutil'
run_tap "$python" -W ignore tests/parity/megatron_experts_parity.py \
    "${BUILD:-build}"
