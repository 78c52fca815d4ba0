#!/bin/sh
# Tokenizes a corpus as an array job of Slurm, one shard in each task:
#
#   sbatch --array=1-64 preprocess-array.sh 64 --input oscar \
#       --output-prefix parts/my-gpt2 OPTION of gpt-preprocess...
#
# Input and output must be in a place that all nodes see. A task that has
# reached its time limit resumes when it is submitted again, here tasks 3, 17:
#
#   sbatch --array=3,17 preprocess-array.sh 64 --input oscar ...
#
# When all tasks are complete, merge the shards:
#
#   gpt-dataset merge parts/my-gpt2-*-of-00064_text_document.idx \
#       --output-prefix my-gpt2_text_document
#
#SBATCH --job-name=preprocess
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@60
shards=${1:?usage: sbatch --array=1-N preprocess-array.sh N OPTIONS}
shift
exec gpt-preprocess --shard "$SLURM_ARRAY_TASK_ID/$shards" \
    --threads "${SLURM_CPUS_PER_TASK:-0}" "$@"
