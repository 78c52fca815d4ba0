#!/bin/sh
# Plans of runs that are not started: memory beside published figures, traffic,
# what fits, timelines of pipelines.
. "$(dirname "$0")/../lib/tap.sh"

# The example of Megatron-LM (examples/gpt3/train_gpt3_175b_distributed.sh).
gpt3='--num-layers 96 --hidden-size 12288 --num-attention-heads 96
    --seq-length 2048 --vocab-size 50257 --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16 --world-size 1024 --global-batch-size 1536
    --sequence-parallel --bf16 --dry-run'

# Prints the MiB of rank 0, which is in the first stage and needs most.
mib() { # names of kinds, as a pattern
    awk -v p="^   ($1) " '$0 ~ p && / bytes / { sum += $(NF - 3) }
        END { printf "%.2f", sum / 1048576 }' out
}
within() { # got want share
    awk -v a="$1" -v b="$2" -v s="$3" \
        'BEGIN { exit !(a > b * (1 - s) && a < b * (1 + s)) }' ||
        { echo "got $1, want $2"; return 1; }
}

# What megatron/training/theoretical_memory_usage.py (Megatron-LM, commit
# d98e8a64) reports for it with sequence parallelism and selective
# recomputation, which the attention here always does: weights and optimizer
# 24683.09 MB, activations 9840.03 MB; with the distributed optimizer 10284.62
# MB. That report omits the position table (432 MB here), and counts dropout
# masks, which are never kept here.
# shellcheck disable=SC2086 # word lists
expect 0 'GPT-3 175B on 1024 ranks' gpt-train $gpt3
weights='parameters|gradients|optimizer state'
check 'weights and optimizer as published, within 5 %' \
    within "$(mib "$weights")" 24683.09 0.05
check 'total as published, within 5 %' \
    within "$(mib "$weights|activations")" 34523.12 0.05
check 'activations within 7 %' within "$(mib activations)" 9840.03 0.07
# shellcheck disable=SC2086
expect 0 'with the distributed optimizer' gpt-train $gpt3 \
    --use-distributed-optimizer
check 'weights and optimizer as published, within 5 %' \
    within "$(mib "$weights")" 10284.62 0.05
check 'total as published, within 5 %' \
    within "$(mib "$weights|activations")" 20124.65 0.05
out_has 'pipeline bubble: 0.0781'

# For each of 192 microbatches: two all-reduces of (B, T, C) forward and two
# backward in each of six layers, and one in the embedding; each rank sends
# 2 * 7 / 8 of them.
# shellcheck disable=SC2086
expect 0 'without sequence parallelism' gpt-train $gpt3 --no-sequence-parallel
check 'bytes within layers' grep -qE "^   tensor parallel +$(
    awk 'BEGIN { printf "%.0f", 192 * 25 * 2 * 2048 * 12288 * 2 * 7 / 8 }') " \
    out
check 'bytes between stages' grep -qE "^   pipeline +$(
    awk 'BEGIN { printf "%.0f", 192 * 2048 * 12288 * 2 }') " out

# The index of samples has those, too, that no whole batch reaches.
# shellcheck disable=SC2086
expect 0 'with the length of the run' gpt-train $gpt3 --train-samples 4000000 \
    --eval-iters 0
check 'names what the samples need' grep -qE \
    "^   sample index +$((12 * 4000000 + 8)) bytes" out

# The micro batch that fits; the next larger divisor of 192 samples does not.
# shellcheck disable=SC2086
expect 0 'looks for the micro batch that fits' gpt-train $gpt3 \
    --memory-limit 80GiB
largest=$(sed -n 's/.* fits into .* a rank: //p' out)
check 'finds one' test "${largest:-0}" -gt 1
total() { # micro batch
    # shellcheck disable=SC2086
    gpt-train $gpt3 --micro-batch-size "$1" 2>&1 |
        awk '/^   total .* bytes/ { print $2 }'
}
check 'which fits' test "$(total "$largest")" -le 85899345920
next=$((largest + 1))
while [ $((192 % next)) != 0 ]; do next=$((next + 1)); done
check 'the next does not' test "$(total "$next")" -gt 85899345920
# shellcheck disable=SC2086
expect 0 'or reports that none fits' gpt-train $gpt3 --memory-limit 1GiB
out_has 'no micro batch fits into 1.0 GiB'

# ---- parameters and operations of published models ----
# A step of one text of T tokens, by hand: each of L layers has queries, keys
# and values of C x (Q + 2 K), an output of Q x C, and matrices of the
# feed-forward that are F wide in all; scores and values of as many tokens as
# each meets, summed over layers (half of T, or what windows leave); the output
# layer C x V. A product is two operations, backward is two products.
while read -r preset want L C Q K F V T seen options; do
    # shellcheck disable=SC2086 # options are words
    gpt-train --config "$preset" --dry-run --device cpu \
        --make-vocab-size-divisible-by 1 $options >plan 2>&1
    check "$preset has the parameters of the published model" \
        test "$(sed -n 's/.*rank (0, 0): //p' plan)" = "$want"
    layer="$C * ($Q + 2 * $K) + $Q * $C + $C * $F"
    operations=$(awk "BEGIN { printf \"%.4g\", \
        6 * $T * ($L * ($layer) + 2 * $Q * ($seen) + $C * $V) }")
    check "$preset: $operations operations a step" \
        grep -q "a step computes $operations floating" plan
done <<END
gpt2 124439808 12 768 768 768 2*3072 50257 1024 12*512 --vocab-size 50257
gpt2-medium 354823168 24 1024 1024 1024 2*4096 50257 1024 24*512 --vocab-size 50257
gpt2-large 774030080 36 1280 1280 1280 2*5120 50257 1024 36*512 --vocab-size 50257
gpt2-xl 1557611200 48 1600 1600 1600 2*6400 50257 1024 48*512 --vocab-size 50257
llama2-7b 6738415616 32 4096 4096 4096 3*11008 32000 4096 32*2048
llama3-8b 8030261248 32 4096 4096 1024 3*14336 128256 8192 32*4096
qwen2.5-0.5b 494032768 24 896 896 128 3*4864 151936 4096 24*2048
smollm2-135m 134515008 30 576 576 192 3*1536 49152 2048 30*1024
pythia-160m 162322944 12 768 768 768 2*3072 50304 2048 12*1024
mistral-7b 7241732096 32 4096 4096 1024 3*14336 32000 4096 32*2048
gemma-2b 2506172416 18 2048 2048 256 3*16384 256000 4096 18*2048
gemma2-2b 2614341888 26 2304 2048 1024 3*9216 256000 8192 13*4096+13*3072
olmo2-1b 1484916736 16 2048 2048 2048 3*8192 100352 4096 16*2048
starcoder2-3b 3030371328 30 3072 3072 256 2*12288 49152 4096 30*2048
starcoderbase-1b 1137207296 24 2048 2048 128 2*8192 49152 8192 24*4096
opt-125m 125239296 12 768 768 768 2*3072 50272 2048 12*1024
bloom-560m 559214592 24 1024 1024 1024 2*4096 250880 2048 24*1024
mixtral-8x7b 46702792704 32 4096 4096 1024 (2*3*14336+8) 32000 4096 32*2048
olmoe-1b-7b 6919161856 16 2048 2048 2048 (8*3*1024+64) 50304 4096 16*2048
qwen3-30b-a3b 30532122624 48 2048 4096 512 (8*3*768+128) 151936 4096 48*2048
falcon-40b 41303293952 60 8192 8192 512 2*32768 65024 2048 60*1024
END

# With latent attention: elements of its matrices, then of queries and values of
# all heads.
while read preset want L C attention both F V T; do
    gpt-train --config "$preset" --dry-run --device cpu \
        --make-vocab-size-divisible-by 1 >plan 2>&1
    check "$preset has the parameters of the published model" \
        test "$(sed -n 's/.*rank (0, 0): //p' plan)" = "$want"
    operations=$(awk "BEGIN { printf \"%.4g\", 6 * $T * ($L * ($attention) + \
        $C * ($F) + ($both) * $L * $T / 2 + $C * $V) }")
    check "$preset: $operations operations a step" \
        grep -q "a step computes $operations floating" plan
done <<END
deepseek-v2-lite 15706484224 27 2048 2048*(16*192+512+64+16*128)+512*16*256 \
16*(192+128) 3*10944+26*(64+(6+2)*3*1408) 102400 4096
deepseek-v3 671026419200 61 7168 \
7168*(1536+512+64+128*128)+1536*128*192+512*128*256 128*(192+128) \
3*3*18432+58*(256+(8+1)*3*2048) 129280 4096
END

# ---- parameters of the published layouts ----
counts() { # preset tp pp
    gpt-train --config "gpt2-$1" --vocab-size 50257 --dry-run \
        --tensor-model-parallel-size "$2" --pipeline-model-parallel-size "$3" \
        --world-size $(($2 * $3)) 2>&1 |
        sed -n 's/.*rank (0, [0-9]*): //p' | tr '\n' ' '
}
while read -r preset tp pp want; do
    check "parameters of gpt2-$preset at TP$tp PP$pp" \
        test "$(counts "$preset" "$tp" "$pp")" = "$want "
done <<END
124m 2 1 62708736
124m 1 2 81947136 81162240
124m 2 2 41429760 40644864
124m 4 1 31825152
124m 2 4 30791040 10638720 10638720 30006144
345m 2 2 102483968 101437440
345m 4 1 89714688
774m 2 1 387921920
774m 1 2 419893760 418585600
774m 2 2 210753280 209445120
774m 4 1 194837760
774m 2 4 122170240 88583040 88583040 120862080
1.5b 1 2 819904000 818268800
END

# ---- timelines ----
pipeline='--num-layers 4 --vocab-size 100 --hidden-size 32
    --num-attention-heads 4 --seq-length 16 --pipeline-model-parallel-size 2
    --world-size 2 --global-batch-size 2'
# shellcheck disable=SC2086
expect 0 'draws a pipeline' gpt-train $pipeline --simulate 1:2 \
    --simulate-svg p.svg
out_has 'stage 0  |0>1>....0<<<..1<<<|'
out_has 'stage 1  |..0>0<<<1>1<<<....|'
out_has 'step: 9 s, bubble: 0.5000 of the time of computing, (P - 1) / (V m) = 0.5000'
check 'and a picture' grep -q '</svg>' p.svg
# shellcheck disable=SC2086
expect 7 'which is not written over' gpt-train $pipeline --simulate 1:2 \
    --simulate-svg p.svg
# shellcheck disable=SC2086
expect 0 'virtual stages' gpt-train $pipeline --simulate 1:2:0.5 \
    --num-layers-per-virtual-pipeline-stage 1
out_has '0a>'
for bad in 1 1: :2 1:2:3:4:5:6 1:2:3:-1 -1:2 0:1 1:2:-1 nan:1 1:inf x; do
    # shellcheck disable=SC2086
    expect 2 "refuses --simulate $bad" gpt-train $pipeline "--simulate=$bad"
    err_has "'$bad' is not"
done

# 4 layers of 1 s forward and 2 s backward. Of their 16 sums of 0.1 s, 8 are
# hidden by weight gradients (0.25 and 0.33 s a layer); all weights but those of
# the first layer are hidden, too.
ranks='--num-layers 4 --vocab-size 100 --hidden-size 32
    --num-attention-heads 4 --seq-length 16 --tensor-model-parallel-size 2
    --world-size 4 --global-batch-size 2 --use-distributed-optimizer'
# shellcheck disable=SC2086
expect 0 'traffic beside computing' gpt-train $ranks --overlap-param-gather \
    --simulate 4:8:0:0.1:2
out_has 'step: 13.3 s'
out_has 'tensor parallel sums of a step: 1.6 s, waited 0.8 s, hidden 0.8 s'
out_has 'gathering weights: 2 s, waited 0.5 s, hidden 1.5 s'
# shellcheck disable=SC2086
expect 0 'traffic that is waited for' gpt-train $ranks --simulate 4:8:0:0.1:2 \
    --no-async-tensor-model-parallel-allreduce
out_has 'step: 15.6 s'
out_has 'tensor parallel sums of a step: 1.6 s, waited 1.6 s, hidden 0 s'
out_has 'gathering weights: 2 s, waited 2 s, hidden 0 s'
# shellcheck disable=SC2086
expect 2 'sums of one rank' gpt-train $pipeline --simulate 1:2:0:1
err_has 'sums need --tensor-model-parallel-size'
# shellcheck disable=SC2086
expect 2 'weights that all have' gpt-train $pipeline --simulate 1:2:0:0:1
err_has 'weights are gathered with --use-distributed-optimizer'

# ---- options that exclude each other ----
# shellcheck disable=SC2086
expect 2 'ranks are not imagined in a run' gpt-train --world-size 2 \
    --num-layers 2 --vocab-size 10
err_has '--world-size is for --dry-run, --simulate and gpt-train advise'
expect 2 'nor as many as do not fit' gpt-train --vocab-size 10 --dry-run \
    --world-size 3 --tensor-model-parallel-size 2
err_has '3 ranks are not a multiple'
err_has '--world-size 2 is the least'
expect 2 'two precisions' gpt-train --vocab-size 10 --dry-run --bf16 --fp16
err_has 'exclude each other'
expect 2 'a loss scale without half precision' gpt-train --vocab-size 10 \
    --dry-run --bf16 --loss-scale 128
err_has '--loss-scale needs --fp16'
expect 0 'nor how it would adapt, which scripts say of any type' gpt-train \
    --vocab-size 10 --dry-run --bf16 --initial-loss-scale 65536 --hysteresis 2
err_has 'without effect here: --initial-loss-scale, --hysteresis (there is no --fp16)'
expect 2 'a loss scale below its minimum' gpt-train --vocab-size 10 \
    --dry-run --fp16 --initial-loss-scale 4 --min-loss-scale 8
err_has '--min-loss-scale 8'
expect 0 'a plan without --world-size' gpt-train --config gpt2-774m \
    --vocab-size 50257 --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 --dry-run
out_has 'planned for 4 ranks, the fewest that the layout needs'
out_has 'rank (0, 0): 210753280'
tap_done
