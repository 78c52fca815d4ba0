#!/bin/sh
# Trains GPT-2 345M on one machine with four ranks: two share every layer
# (tensor parallel), and two such pairs each take half of every batch (data
# parallel). To be started again with the same line after any interruption.
#
#   sh one-node.sh [gpt-train options]
#
# Options given here come last, so they override those below.
exec gpt-launch --standalone --nproc-per-node "${RANKS:-4}" \
    gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --use-distributed-optimizer "$@"
