#!/bin/sh
# Templates of chats against transformers' apply_chat_template(), if
# GPT_ORACLE_PYTHON, or python3, has it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'jinja2, transformers' 'transformers'
run_tap "$python" tests/parity/chat_parity.py "${BUILD:-build}"
