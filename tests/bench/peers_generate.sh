#!/bin/sh
# Runs peers_generate.py: gpt-generate beside llama.cpp and transformers, in
# turns. Arguments go to peers_generate.py:
#     sh tests/bench/peers_generate.sh --shape 124m --form bf16
# The Python is GPT_ORACLE_PYTHON, or python3, with transformers. llama.cpp is
# PyPI's llama-cpp-python, built for this processor into GPT_PEERS_DIR, a folder
# of its own; that takes minutes and is done once, with GPT_PEERS_INSTALL=1.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
find_gpt2 || {
    echo '# SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
}
find_python 'torch, transformers' || {
    echo "# SKIP no $python with torch and transformers (GPT_ORACLE_PYTHON)"
    exit 0
}
peers=${GPT_PEERS_DIR:-$build/peers}
if [ -n "${GPT_PEERS_INSTALL:-}" ] && [ ! -d "$peers/llama_cpp" ]; then
    CMAKE_ARGS="-DGGML_NATIVE=ON ${CMAKE_ARGS:-}" "$python" -m pip install \
        --no-binary llama-cpp-python --target "$peers" llama-cpp-python ||
        exit 1
fi
exec "$python" tests/bench/peers_generate.py --build "$build" \
    --vocab "$gpt2" --peers "$peers" "$@"
