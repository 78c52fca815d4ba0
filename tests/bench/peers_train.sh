#!/bin/sh
# Runs peers_train.py: training steps of GPT-2 124M by gpt-train and by PyTorch,
# eager and compiled, in turns. Arguments go to peers_train.py:
#     sh tests/bench/peers_train.sh --cases fp32:4x64 --rounds 3
# The Python is GPT_ORACLE_PYTHON, or python3; the vocabulary is in
# GPT2_VOCAB_DIR.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_gpt2
need_python torch torch
exec "$python" tests/bench/peers_train.py --build "$build" --vocab "$gpt2" "$@"
