#!/bin/sh
# gpt-reshape against transformers and safetensors, when a Python with them is
# there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers, safetensors' 'transformers'
run_tap "$python" tests/parity/hf_parity.py "${BUILD:-build}"
