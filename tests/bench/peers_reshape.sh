#!/bin/sh
# Runs peers_reshape.py: gpt-reshape beside what a script with PyTorch does,
# time and memory, where there is a Python that has it.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
find_python 'torch, safetensors' || {
    echo "# SKIP no $python with torch and safetensors (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/bench/peers_reshape.py --build "$build"
