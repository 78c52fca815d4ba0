#!/bin/sh
# Runs peers_reshape.py: gpt-reshape beside what a script with PyTorch does,
# time and memory, where there is a Python that has it.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_python 'torch, safetensors' 'torch and safetensors'
exec "$python" tests/bench/peers_reshape.py --build "$build"
