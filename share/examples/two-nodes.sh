#!/bin/sh
# Trains GPT-2 345M on two machines with four ranks each: the layers are cut
# into two stages, one a machine (pipeline parallel), as stages send each other
# least; on each machine two ranks share every layer (tensor parallel). To be
# started on both, in any order, with the same NODE0, a name or address of the
# first:
#
#   sh two-nodes.sh 0 NODE0 [gpt-train options]     on the first machine
#   sh two-nodes.sh 1 NODE0 [gpt-train options]     on the second
#
# Data and checkpoints must be in a place that both see. RANKS is the number of
# ranks a machine; PORT must be free on the first and reachable from the second.
node=$1
first=$2
shift 2
exec gpt-launch --nnodes 2 --node-rank "$node" --master-addr "$first" \
    --master-port "${PORT:-29500}" --nproc-per-node "${RANKS:-4}" \
    gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --use-distributed-optimizer "$@"
