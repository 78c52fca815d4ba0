#!/bin/sh
# Runs peers_train.py: training steps of GPT-2 124M by gpt-train and by PyTorch,
# eager and compiled, in turns. Arguments go to peers_train.py:
#     sh tests/bench/peers_train.sh --cases fp32:4x64 --rounds 3
# The Python is GPT_ORACLE_PYTHON, or python3; the vocabulary is in
# GPT2_VOCAB_DIR.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
find_gpt2 || {
    echo '# SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
}
find_python torch || {
    echo "# SKIP no $python with torch (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/bench/peers_train.py --build "$build" --vocab "$gpt2" "$@"
