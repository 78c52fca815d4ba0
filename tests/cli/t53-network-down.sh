#!/bin/sh
# The network goes down within a step: each rank ends in time and names the
# other one. In a network namespace of its own, where the system allows one.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/ranks.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

needs_gloo
if [ -z "${IN_NAMESPACE:-}" ]; then
    if unshare -rn ip link set lo up 2>/dev/null; then
        cd "$top" || exit 1
        rm -rf "$scratch"
        IN_NAMESPACE=1 exec unshare -rn sh "$top/tests/cli/${0##*/}"
    fi
    skip 'no network namespaces here'
    tap_done
fi
# Two machines: this namespace, and that of a process that sleeps, with a cable
# between them.
ip link set lo up
unshare -n sleep 1000 &
other=$!
trap 'kill $other; end_all; rm -rf "$scratch"' EXIT
there() { nsenter -t $other -n "$@"; }
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do
    sleep 0.05
done
if ip link add cable0 type veth peer name cable1 2>/dev/null &&
    ip link set cable1 netns $other && ip addr add 10.99.0.1/24 dev cable0 &&
    ip link set cable0 up && there ip link set lo up &&
    there ip addr add 10.99.0.2/24 dev cable1 && there ip link set cable1 up
then :; else
    skip 'no virtual cables here'
    tap_done
fi
make_data
# shellcheck disable=SC2086 # a word list
rank() { # rank command...
    r=$1
    shift
    (
        RANK=$r LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.99.0.1 \
            MASTER_PORT=29500 "$@" gpt-train $tiny --num-layers 2 \
            --global-batch-size 6 --train-iters 200000 --save ckpt \
            --tensor-model-parallel-size 2 --save-interval 10 \
            --log-interval 1000 --distributed-step-timeout-minutes 3 \
            >/dev/null 2>err.$r
        echo $? >status.$r
    ) &
}
rank 0 env
rank 1 nsenter -t $other -n
check 'two ranks train' begun ckpt
ip link set cable0 down
begun=$(date +%s)
check 'rank 0 names rank 1' all_end 1 'rank 1: ' 0
check 'rank 1 names rank 0' all_end 1 'rank 0: ' 1
seconds=$(($(date +%s) - begun))
check "after $seconds s, before the timeout of a step" test $seconds -lt 150
tail -n 1 err.0 err.1 | sed 's/^/# /'
tap_done
