#!/bin/sh
# Compares the reader of JSON lines with the json module of GPT_ORACLE_PYTHON,
# or python3.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || {
    echo "1..0 # SKIP no $python (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/parity/json_parity.py "${BUILD:-build}/gpt-preprocess"
