#!/bin/sh
# The language model evaluation harness against gpt-generate --serve, and its
# figures against those of --score, if GPT_ORACLE_PYTHON, or python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'lm_eval.evaluator, torch, transformers' 'lm_eval[api]'
run_tap "$python" tests/parity/lm_eval_parity.py "${BUILD:-build}"
