#!/bin/sh
# Trains GPT-2 345M under Slurm: srun starts the ranks, and gpt-train reads from
# Slurm's environment who it is and where rank 0 runs.
#
#   sbatch slurm.sh [gpt-train options]
#
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
# Five minutes before the end all ranks get SIGTERM: they finish the step, save
# and leave. Submitted again with the same line, the run goes on.
exec srun gpt-train --config "${CONFIG:-gpt2-345m}" \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --use-distributed-optimizer "$@"
