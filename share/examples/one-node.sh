#!/bin/sh
# Trains GPT-2 345M on one machine with four ranks: two ranks share every layer
# (tensor parallel), and each of the two pairs takes half of every batch (data
# parallel). After any interruption the same line resumes the run from the last
# checkpoint in SAVE.
#
# usage: one-node.sh OPTION of gpt-train...
#
#   sh one-node.sh --data-path my-gpt2_text_document --vocab-file vocab.json \
#       --merge-file merges.txt --train-iters 10000 --global-batch-size 64
#
# The options of the command line come last, so they override those below.
# In the environment:
#   RANKS    ranks on this machine, by default 4
#   CONFIG   preset or file of options, by default gpt2-345m
#   SAVE     directory of checkpoints, by default checkpoints
[ $# -ge 1 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
exec gpt-launch --standalone --nproc-per-node "${RANKS:-4}" \
    gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --use-distributed-optimizer --save-interval 500 \
    --save "${SAVE:-checkpoints}" --load "${SAVE:-checkpoints}" "$@"
