#!/bin/sh
# Random templates of odd shapes against jinja2, if GPT_ORACLE_PYTHON, or
# python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'jinja2, transformers' 'transformers'
run_tap "$python" tests/parity/chat_shapes.py "${BUILD:-build}"
