#!/bin/sh
# Compares gpt-generate's scores and perplexities with a slow reference: a model
# of transformers in double, and the conventions as their programs write them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'torch, transformers' 'transformers'
run_tap "$python" tests/parity/scores_parity.py "${BUILD:-build}"
