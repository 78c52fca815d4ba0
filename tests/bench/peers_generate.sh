#!/bin/sh
# Runs peers_generate.py: gpt-generate beside llama.cpp and transformers, in
# turns. Arguments go to peers_generate.py:
#     sh tests/bench/peers_generate.sh --shape 124m --form bf16
# The Python is GPT_ORACLE_PYTHON, or python3, with transformers. llama.cpp is
# PyPI's llama-cpp-python, built for this processor into GPT_PEERS_DIR with
# GPT_PEERS_INSTALL=1, which takes up to half an hour and is done once. Models
# are made there once, too: 13 GB, so that without that folder nothing is done.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_peers
PYTHONPATH=$peers${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
if [ -n "${GPT_PEERS_INSTALL:-}" ] && ! find_python llama_cpp; then
    CMAKE_ARGS="-DGGML_NATIVE=ON ${CMAKE_ARGS:-}" "$python" -m pip install \
        --quiet --no-binary llama-cpp-python --target "$peers" \
        llama-cpp-python >"$peers/llama-cpp-python.log" 2>&1 ||
        echo "# absent: llama.cpp (see $peers/llama-cpp-python.log)"
fi
exec "$python" tests/bench/peers_generate.py --build "$build" \
    --vocab "$gpt2" --models "$peers/models" "$@"
