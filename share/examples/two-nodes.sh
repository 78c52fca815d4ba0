#!/bin/sh
# Trains GPT-2 345M on two machines with four ranks each. The layers are divided
# into two stages, one on each machine (pipeline parallel), because stages send
# each other least; on each machine two ranks share every layer (tensor
# parallel), and each of the two pairs takes half of every batch (data
# parallel). After any interruption the same lines resume the run from the last
# checkpoint in SAVE.
#
# usage: two-nodes.sh 0|1 NODE0 OPTION of gpt-train...
#
# Start it on both machines, in any order, with the same NODE0, which is a name
# or an address of the first:
#
#   sh two-nodes.sh 0 NODE0 --data-path ... --train-iters 10000   on the first
#   sh two-nodes.sh 1 NODE0 --data-path ... --train-iters 10000   on the second
#
# Data and checkpoints must be in a place that both machines see. In the
# environment:
#   RANKS    ranks on each machine, by default 4
#   PORT     free port of the first machine that the second can reach, by
#            default 29500
#   CONFIG   preset or file of options, by default gpt2-345m
#   SAVE     directory of checkpoints, by default checkpoints
[ $# -ge 3 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
node=$1
first=$2
shift 2
exec gpt-launch --nnodes 2 --node-rank "$node" --master-addr "$first" \
    --master-port "${PORT:-29500}" --nproc-per-node "${RANKS:-4}" \
    gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --use-distributed-optimizer --save-interval 500 \
    --save "${SAVE:-checkpoints}" --load "${SAVE:-checkpoints}" "$@"
