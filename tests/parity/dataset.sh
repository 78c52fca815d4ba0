#!/bin/sh
# gpt-dataset against Megatron-LM itself, when a Python with megatron-core is
# there: GPT_ORACLE_PYTHON, or python3.
cd "$(dirname "$0")/../.." || exit 1
python=${GPT_ORACLE_PYTHON:-python3}
if ! "$python" -c 'import megatron.core' 2>/dev/null; then
    echo "1..0 # SKIP no $python with megatron-core (GPT_ORACLE_PYTHON)"
    exit 0
fi
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
status=0
"$python" tests/parity/dataset_parity.py "${BUILD:-build}/gpt-dataset" \
    2>"$log" || status=$?
[ "$status" = 0 ] || sed 's/^/# /' "$log"
exit "$status"
