#!/bin/sh
# The OpenAI client against gpt-generate --serve: completions whole and streamed,
# their probabilities, models, and its exceptions, if GPT_ORACLE_PYTHON, or
# python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'openai, torch, transformers' 'openai and transformers'
run_tap "$python" tests/parity/serve_parity.py "${BUILD:-build}"
