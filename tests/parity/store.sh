#!/bin/sh
# Tests client and server of the store with PyTorch's TCPStore, if
# GPT_ORACLE_PYTHON, or python3, has torch.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || {
    echo "1..0 # SKIP no $python (GPT_ORACLE_PYTHON)"
    exit 0
}
exec "$python" tests/parity/store_parity.py "${BUILD:-build}"
