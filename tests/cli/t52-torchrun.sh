#!/bin/sh
# Ranks that PyTorch's torchrun starts, on one machine and on two, have the
# losses of one rank. torchrun is the one of GPT_ORACLE_PYTHON, or the one on
# PATH.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/nodes.sh"
torchrun=$(command -v torchrun)
[ -z "${GPT_ORACLE_PYTHON:-}" ] ||
    torchrun=$(dirname "$GPT_ORACLE_PYTHON")/torchrun

if [ ! -x "$torchrun" ]; then
    skip 'no torchrun'
    tap_done
fi
needs_gloo
unset OMP_NUM_THREADS GPT_THREADS
make_data

steps=10
options="$tiny --num-layers 4 --global-batch-size 4 --train-iters $steps"
two="$options --tensor-model-parallel-size 2"
same() { compare_metrics one.jsonl "$1" $steps; }
# shellcheck disable=SC2086 # word lists
expect 0 'one rank' gpt-train $options --metrics one.jsonl

# shellcheck disable=SC2086
expect 0 'torchrun --standalone' timeout 100 "$torchrun" --standalone \
    --no-python --nproc-per-node 2 gpt-train $two --metrics standalone.jsonl
err_has '2 ranks (torchrun): tensor 2'
check 'the same losses' same standalone.jsonl

# shellcheck disable=SC2086
expect 1 'a failure is that of the job' timeout 100 "$torchrun" --standalone \
    --no-python --nproc-per-node 2 gpt-train $two --data-path missing
err_has 'gpt-train: error: rank'
sed -n '/Root Cause/,$p' err >cause
check 'and torchrun tells its reason' grep -F "cannot open 'missing.idx'" cause

# Rank 1 is killed when there is a checkpoint; torchrun starts all ranks again.
cat >once.sh <<'END'
if [ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ]; then
    pid=$$
    (
        until [ -s again/latest_checkpointed_iteration.txt ]; do
            sleep 0.1
        done
        kill -9 $pid
    ) &
fi
exec gpt-train "$@"
END
long=$(echo "$two" | sed "s/--train-iters $steps/--train-iters 1000/")
# shellcheck disable=SC2086
expect 0 'a killed rank is started again' timeout 100 "$torchrun" \
    --standalone --max-restarts 1 --no-python --nproc-per-node 2 \
    sh once.sh $long --log-interval 100 --save-interval 20 \
    --keep-checkpoints 2 --save again --load again
err_has 'loaded checkpoint again/iter_'
check 'to the end' grep -q 1000 again/latest_checkpointed_iteration.txt

two_nodes() { # metrics
    for node in 0 1; do
        # shellcheck disable=SC2086
        on $node timeout 100 "$torchrun" --nnodes 2 --node-rank $node \
            --master-addr 192.0.2.1 --master-port 29500 --nproc-per-node 1 \
            --no-python gpt-train $two --metrics "$1" >log.$node 2>&1 &
        [ $node = 0 ] && first=$!
    done
    wait $! && wait "$first"
}
if make_nodes; then
    check 'two machines' two_nodes nodes.jsonl
    check 'the same losses' same nodes.jsonl
else
    skip 'two machines need root, ip and network namespaces'
fi
tap_done
