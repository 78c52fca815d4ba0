#!/bin/sh
# gpt-vocab against Hugging Face's trainer, when a Python with `tokenizers` is
# there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || {
    echo "1..0 # SKIP no $python (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/parity/vocab_parity.py "${BUILD:-build}"
