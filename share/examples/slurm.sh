#!/bin/sh
# Trains GPT-2 345M under Slurm: srun starts the ranks, and gpt-train reads from
# Slurm's environment the place of its rank and the node of rank 0.
#
# usage: sbatch slurm.sh OPTION of gpt-train...
#
#   sbatch slurm.sh --data-path my-gpt2_text_document --vocab-file vocab.json \
#       --merge-file merges.txt --train-iters 10000 --global-batch-size 64
#
# Data and checkpoints must be in a place that all nodes see. In the
# environment: CONFIG, a preset or file of options, by default gpt2-345m; SAVE,
# the directory of checkpoints, by default checkpoints.
#
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
# Five minutes before the end of the job all ranks get SIGTERM: they finish the
# step, save and end. The same line resumes the run.
[ $# -ge 1 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
exec srun gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --use-distributed-optimizer --save-interval 500 \
    --save "${SAVE:-checkpoints}" --load "${SAVE:-checkpoints}" "$@"
