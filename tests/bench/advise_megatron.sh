#!/bin/sh
# Simulated against published throughput of Megatron-LM: `gpt-train advise` on
# the published configurations, with their layouts and with its own choice.
# Prints the tables of RESULTS.md. Nothing is measured here: minutes of one
# core, whatever else the machine does.
#
# First table: Narayanan et al., SC'21 (arXiv 2104.04473), table 1: A100 of
# 80 GB, sequences of 2048, a vocabulary of 51200, all layers recomputed. Its
# TFLOP/s count recomputation: F = 96 B s l h^2 (1 + s / 6h + V / 16 l h). The
# micro batch is not in the table: the simulated best of 1 to 8 is taken.
# Second table: Korthikanti et al. 2022 (arXiv 2205.05198), table 4, and the
# figures of Megatron-LM's README: sequence parallel, selective recomputation,
# model FLOP/s. Our attention keeps no scores, so that no recomputation is the
# same there.
# Both had attention whose scores go through memory, softmax, mask and dropout
# each: the last columns add that, 43 bytes an element for forward, forward again
# and backward, over the memory's bandwidth and the bubble.
# Third table: steps of llm.c, which has attention without scores. The shares of
# the peak in cmd/train/hardware.c were chosen by these, and by nothing else.
BUILD=${BUILD:-build}

# seconds of a step, and megabytes, of the best layout that the options leave
simulate() { # options...
    "$BUILD/gpt-train" advise --hardware a100 --vocab-size 51200 \
        --make-vocab-size-divisible-by 128 --seq-length 2048 --bf16 --top 1 \
        --hidden-dropout 0.1 --attention-dropout 0 --json "$@" 2>/dev/null |
        tr -d '\t\n'
}
field() { sed "s/.*\"$1\":[\" ]*\([^,\"}]*\).*/\1/"; }
layout() { # JSON: "TP8 PP2 V1 b2 none"
    echo "TP$(echo "$1" | field tensor_parallel)" \
        "PP$(echo "$1" | field pipeline_parallel)" \
        "V$(echo "$1" | field virtual_stages)" \
        "b$(echo "$1" | field micro_batch)" \
        "$(echo "$1" | field sharding)" \
        "$(echo "$1" | field recompute)"
}

echo 'Narayanan et al. 2021, table 1 (all layers recomputed):'
printf '%8s %5s %6s  %-9s %9s %9s %7s %9s %7s   %s\n' params GPUs batch \
    layout published simulated error +scores error 'own choice: time, layout'
while read -r params heads hidden layers tp pp gpus batch tflops; do
    model="--num-layers $layers --hidden-size $hidden
        --num-attention-heads $heads --gpus $gpus --global-batch-size $batch"
    # shellcheck disable=SC2086 # word lists
    theirs=$(simulate $model --tensor-model-parallel-size "$tp" \
        --pipeline-model-parallel-size "$pp" \
        --num-virtual-stages-per-pipeline-rank 1 --no-sequence-parallel \
        --recompute-granularity full --memory 1000G \
        --data-parallel-sharding-strategy no_shard)
    # shellcheck disable=SC2086
    own=$(simulate $model --memory 80G)
    awk -v params="$params" -v gpus="$gpus" -v b="$batch" -v h="$hidden" \
        -v l="$layers" -v tp="$tp" -v pp="$pp" -v tf="$tflops" -v heads="$heads" \
        -v micro="$(echo "$theirs" | field micro_batch)" -v v=1 \
        -v sim="$(echo "$theirs" | field step_s)" \
        -v own="$(echo "$own" | field step_s)" \
        -v layout="$(layout "$own")" 'BEGIN {
            s = 2048; V = 51200
            F = 96 * b * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h))
            t = F / (tf * 1e12 * gpus)
            samples = b / (gpus / (tp * pp))
            more = samples * l / pp * heads / tp * s * s * 43 / 2039e9
            more = sim + more * (1 + (pp - 1) / (v * samples / micro))
            printf "%7.1fB %5d %6d  TP%d PP%-4d %8.2fs %8.2fs %+6.1f%% %8.2fs %+6.1f%%  %7.2fs %s\n",
                params, gpus, b, tp, pp, t, sim, 100 * (sim / t - 1), more,
                100 * (more / t - 1), own, layout
        }'
done <<'END'
1.7 24 2304 24 1 1 32 512 137
3.6 32 3072 30 2 1 64 512 138
7.5 32 4096 36 4 1 128 512 142
18.4 48 6144 40 8 1 256 1024 135
39.1 64 8192 48 8 2 512 1536 138
76.1 80 10240 60 8 4 1024 1792 140
145.6 96 12288 80 8 8 1536 2304 148
310.1 128 16384 96 8 16 1920 2160 155
529.6 128 20480 105 8 35 2520 2520 163
1008.0 160 25600 128 8 64 3072 3072 163
END

echo
echo 'Korthikanti et al. 2022 (sequence parallel, selective):'
printf '%8s %5s %6s  %-12s %9s %9s %7s %9s %7s   %s\n' params GPUs batch \
    layout published simulated error +scores error 'own choice: time, layout'
while read -r params heads hidden layers tp pp v gpus batch micro mfu; do
    model="--num-layers $layers --hidden-size $hidden
        --num-attention-heads $heads --gpus $gpus --global-batch-size $batch"
    # shellcheck disable=SC2086
    theirs=$(simulate $model --tensor-model-parallel-size "$tp" \
        --pipeline-model-parallel-size "$pp" --memory 1000G \
        --num-virtual-stages-per-pipeline-rank "$v" --sequence-parallel \
        --micro-batch-size "$micro" --no-recompute-activations)
    # shellcheck disable=SC2086
    own=$(simulate $model --memory 80G)
    awk -v params="$params" -v gpus="$gpus" -v b="$batch" -v tp="$tp" \
        -v pp="$pp" -v v="$v" -v mfu="$mfu" -v h="$hidden" -v l="$layers" -v heads="$heads" \
        -v micro="$micro" \
        -v sim="$(echo "$theirs" | field step_s)" \
        -v own="$(echo "$own" | field step_s)" \
        -v layout="$(layout "$own")" 'BEGIN {
            s = 2048; V = 51200
            F = 72 * b * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h))
            t = F / (mfu / 100 * 312e12 * gpus)
            samples = b / (gpus / (tp * pp))
            more = samples * l / pp * heads / tp * s * s * 43 / 2039e9
            more = sim + more * (1 + (pp - 1) / (v * samples / micro))
            printf "%7.0fB %5d %6d  TP%d PP%d V%-4d %8.2fs %8.2fs %+6.1f%% %8.2fs %+6.1f%%  %7.2fs %s\n",
                params, gpus, b, tp, pp, v, t, sim, 100 * (sim / t - 1), more,
                100 * (more / t - 1), own, layout
        }'
done <<'END'
22 64 6144 48 8 1 1 8 4 4 41.5
175 96 12288 96 8 8 3 64 64 1 51.4
530 128 20480 105 8 35 3 280 280 1 56.0
1000 160 25600 128 8 64 1 512 512 1 56.3
END

echo
echo 'llm.c (data parallel, ZeRO-1, GELU recomputed):'
printf '%6s %5s %10s %9s %7s\n' preset GPUs published simulated error
while read -r preset gpus hardware batch micro seconds; do
    step=$("$BUILD/gpt-train" advise --config "gpt2-$preset" --json --top 1 \
        --vocab-size 50257 --hidden-dropout 0 --attention-dropout 0 \
        --gpus "$gpus" --hardware "$hardware" --memory 1000G \
        --global-batch-size "$batch" --micro-batch-size "$micro" \
        --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
        --data-parallel-sharding-strategy optim --no-recompute-activations |
        tr -d '\t\n' | field step_s)
    awk -v p="$preset" -v g="$gpus" -v h="$hardware" -v t="$seconds" \
        -v s="$step" 'BEGIN {
            printf "%6s %5s %5.2fs %9.2fs %+6.1f%%\n", p, g " " h, t, s,
                100 * (s / t - 1) }'
done <<'END'
124m 8 a100 512 64 0.30
1.5b 8 h100 1024 16 2.75
END
