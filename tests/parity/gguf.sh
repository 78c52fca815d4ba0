#!/bin/sh
# Compares GGUF files with llama.cpp and gguf-py, if GPT_ORACLE_PYTHON, or
# python3, has gguf and xllamacpp, the bindings of llama.cpp.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/oracles.sh
need_python 'gguf, xllamacpp, numpy, sentencepiece' \
    'gguf, xllamacpp and sentencepiece'
run_tap "$python" tests/parity/gguf_parity.py "${BUILD:-build}"
