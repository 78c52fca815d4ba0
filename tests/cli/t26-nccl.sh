#!/bin/sh
# NCCL between emulated GPUs: trainings of many ranks have the losses of
# trainings with Gloo; impossible settings are refused; all ranks report in time
# a rank that is killed or stopped, and errors of the library.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/ranks.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE LOCAL_RANK 2>/dev/null

if [ ! -e "$BUILD/libgpt-cuda-emu.so" ]; then
    skip 'there is no libgpt-cuda-emu.so: this build had no C++ compiler'
    tap_done
fi
make_data

job() { # ranks options...
    ranks=$1
    shift
    # shellcheck disable=SC2086 # a word list
    gpt-launch --standalone --nproc-per-node "$ranks" gpt-train $tiny \
        --num-layers 4 --global-batch-size 8 --train-iters 6 \
        --device cuda-emu "$@"
}
with() ( # NAME=VALUE command...
    export "${1?}"
    shift
    "$@"
)

# ---- the same losses ----
three_d='--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2'
shared='--tensor-model-parallel-size 2 --sequence-parallel
--use-distributed-optimizer'
chunks='--pipeline-model-parallel-size 2
--num-virtual-stages-per-pipeline-rank 2'
# shellcheck disable=SC2086 # word lists
{
    if gpt-train --version | grep -q ' Gloo'; then
        expect 0 'TP 2 PP 2 DP 2 through Gloo' job 8 $three_d --save gloo \
            --distributed-backend gloo
        err_has 'data 2; through Gloo'
    else
        expect 0 'TP 2 PP 2 DP 2 through nothing else' job 1 --save gloo
    fi
    expect 0 'TP 2 PP 2 DP 2 through NCCL' job 8 $three_d --save nccl \
        --distributed-backend nccl
    err_has 'data 2; through emulated NCCL'
    err_has 'kernels loaded at once'
    check 'the same losses and norms' compare_metrics gloo/metrics.jsonl \
        nccl/metrics.jsonl 6
    expect 0 'TP 2 SP DP 2 ZeRO-1, by default, its queues late' \
        with GPT_CUDA_EMU_STREAMS=late job 4 $shared --overlap-param-gather --save late
    err_has 'through emulated NCCL'
    check 'the same losses and norms' compare_metrics gloo/metrics.jsonl \
        late/metrics.jsonl 6
    expect 0 'PP 2 in two chunks, DP 2 with shared gradients' job 4 $chunks \
        --data-parallel-sharding-strategy optim_grads --save chunks
    check 'the same losses and norms' compare_metrics gloo/metrics.jsonl \
        chunks/metrics.jsonl 6
    expect 0 'bf16' job 2 $shared --bf16
    err_has 'iteration        6/'
    expect 0 'fp16' job 2 --tensor-model-parallel-size 2 --fp16 \
        --loss-scale 1024
    err_has 'iteration        6/'
}

# ---- the choice between NCCL and Gloo ----
expect 2 'two ranks on one GPU' with GPT_CUDA_EMU_DEVICES=1 job 2 \
    --distributed-backend nccl
err_has '--distributed-backend nccl: '
err_has 'ranks share a GPU, and NCCL needs one for each'
err_has '--distributed-backend gloo works on the CPU, and lets ranks share'
expect 2 'the CPU' job 2 --device cpu --distributed-backend nccl
err_has '--distributed-backend nccl: device cpu has no NCCL'
expect 2 'no library' with GPT_CUDA_EMU_NCCL=absent job 2 \
    --distributed-backend nccl
err_has '--distributed-backend nccl: no usable emulated NCCL'
if gpt-train --version | grep -q ' Gloo'; then
    expect 0 'unless it is asked for, Gloo does it' \
        with GPT_CUDA_EMU_DEVICES=1 job 2 --train-iters 1
    err_has 'data 2; through Gloo ('
    err_has 'ranks share a GPU'
fi

# ---- failures ----
n=4
run=0
# shellcheck disable=SC2086 # a word list
fails() { # description what minutes-of-a-step text ranks...
    description=$1
    what=$2
    minutes=$3
    shift 3
    run=$((run + 1))
    start $three_d --device cuda-emu --distributed-backend nccl \
        --save "ckpt.$run" --save-interval 2 --log-interval 1000 \
        --distributed-step-timeout-minutes "$minutes"
    check "ranks train: run $run" begun "ckpt.$run"
    $what
    check "$description" all_end 1 "$@"
    end_all
}
kill_one() { kill -9 "$(pid 1)"; }
stop_one() { kill -STOP "$(pid 1)"; }
fails 'a rank is killed: the others name it' kill_one 5 \
    'rank 1: ended without a word' 0 2 3
echo 'export GPT_CUDA_EMU_NCCL=silent' | tee env.0 env.2 >env.3
fails 'also when the library does not notice' kill_one 5 \
    'rank 1: ended without a word' 0 2 3
rm env.*
echo 'export GPT_CUDA_EMU_NCCL=fail=100' >env.2
fails 'an error on the way: all say whose it is' true 5 \
    'rank 2: ' 0 1 2 3
check 'and of what' grep -F 'NCCL: internal error: forced' err.0 err.2
echo 'export GPT_CUDA_EMU_NCCL=hang-abort' | tee env.0 >env.3
rm env.2
fails 'a rank hangs: also those that cannot abort name it' stop_one 0.1 \
    'not arrived after 6 s: rank' 0 2 3
tap_done
