#!/bin/sh
# Runs peers_score.py: gpt-generate --score beside transformers, in turns, and
# whether both say the same. The Python is GPT_ORACLE_PYTHON, or python3, with
# transformers. The model of peers_generate.sh is made in GPT_PEERS_DIR once;
# without that folder nothing is done.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
. tests/lib/oracles.sh
need_peers
exec "$python" tests/bench/peers_score.py --build "$build" --vocab "$gpt2" \
    --models "$peers/models" "$@"
