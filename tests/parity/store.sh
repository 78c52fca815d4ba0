#!/bin/sh
# The store against PyTorch's TCPStore, client and server, when a Python with
# torch is there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || {
    echo "1..0 # SKIP no $python (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/parity/store_parity.py "${BUILD:-build}"
