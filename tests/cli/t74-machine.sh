#!/bin/sh
# What a run says of the machine: metrics beside those of Megatron-LM, slow
# ranks, the end of a run.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

make_data
# shellcheck disable=SC2086 # a word list
train() { gpt-train $tiny --num-layers 2 --global-batch-size 4 "$@"; }
expect 0 'a run' train --train-iters 4 --save run --device-peak-tflops 1 \
    --tensorboard-dir events --timing-log-level 2
value() { # name file: of its last line
    sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2" | tail -n 1
}
for field in samples_per_second mfu forward_ms backward_ms optimizer_ms \
    host_memory_bytes predicted_memory_bytes; do
    check "$field is above 0" awk -v x="$(value $field run/metrics.jsonl)" \
        'BEGIN { exit !(x > 0) }'
done
check 'none of a device' sh -c '! grep device_memory run/metrics.jsonl'
check 'the utilization is that of the peak' awk \
    -v g="$(value gflops run/metrics.jsonl)" \
    -v u="$(value mfu run/metrics.jsonl)" \
    'BEGIN { d = u - g / 1000; exit !(d < 1e-5 && d > -1e-5) }'
check 'parts of a step are within it' awk \
    -v a="$(value forward_ms run/metrics.jsonl)" \
    -v b="$(value backward_ms run/metrics.jsonl)" \
    -v c="$(value optimizer_ms run/metrics.jsonl)" \
    -v all="$(value elapsed_ms run/metrics.jsonl)" \
    'BEGIN { exit !(a + b + c <= all) }'
check 'times are logged' test "$(grep -c \
    '^ times of a step (ms): forward: [0-9.]* | backward: [0-9.]* | opt' err)" = 4
err_has 'trained iterations 1 to 4:'
err_has 'of 1.00 TFLOP/s a rank, as --device-peak-tflops says'
err_has 'of the host at most;'
err_has 'metrics are in run/metrics.jsonl'
err_has 'event files are in events'
err_has 'the checkpoint of iteration 4 is in run'
expect 0 'a peak that is measured' train --train-iters 2
err_has 'a rank, what products of F32 reach here'
# A launcher of 300 MiB that becomes the program is no part of it.
# shellcheck disable=SC2086,SC2016 # a word list; perl's own names
expect 0 'a launcher that holds memory' perl -e \
    'my $x = "a" x 300e6; exec @ARGV' gpt-train $tiny --num-layers 2 \
    --global-batch-size 4 --train-iters 1
check 'does not count' awk '/of the host at most/ {
    mib = $6 == "MiB" ? $5 : $6 == "GiB" ? 1024 * $5 : 0 }
    END { exit !(mib > 0 && mib < 200) }' err
expect 0 'the best validation' train --train-iters 6 --lr 0.5 --min-lr 0.5 \
    --eval-interval 1 --eval-iters 1 --split 8,2,0
err_has 'best validation loss'

# ---- restarts ----
expect 0 'it goes on' train --train-iters 6 --save run --load run
expect 0 'and on' train --train-iters 8 --save run --load run
expect 0 'a run that gets worse' train --train-iters 14 --load run --lr 0.5 \
    --min-lr 0.5 --override-opt-param-scheduler --eval-interval 1 \
    --eval-iters 1 --split 8,2,0
err_has 'best validation loss since iteration 8'
check 'lines count the restarts' test "$(sed -n \
    's/.*"restarts":\([0-9]*\).*/\1/p' run/metrics.jsonl | tr -d '\n')" = \
    00001122
expect 0 'the report has them' gpt-report run --json
out_has '"restarts":2'
expect 0 'a page' gpt-report run -o page.html
browser=
for b in chromium chromium-browser google-chrome; do
    command -v $b >/dev/null && browser=$b
done
if [ -n "$browser" ]; then
    # shellcheck disable=SC2046 # no word when not root
    timeout 120 "$browser" --headless --disable-gpu \
        $([ "$(id -u)" = 0 ] && echo --no-sandbox) \
        --user-data-dir="$scratch/browser" --virtual-time-budget=3000 \
        --dump-dom "file://$scratch/page.html" >dom.html 2>browser.log
    check 'restarts are marked in each chart' awk '
        { n += gsub(/<line class="mark"/, ""); m += gsub(/<svg class="chart"/, "") }
        END { print n, m; exit !(m > 5 && n == 2 * m) }' dom.html
    check 'where they happened' grep -q 'data-iteration="7"' dom.html
else
    skip 'no browser: marks are not drawn' || :
fi

# ---- a rank that is slow: its losses take long ----
needs_gloo
if command -v cc >/dev/null; then :; else
    skip 'no compiler'
    tap_done
fi
cat >slow.c <<'END'
#include "gpt_loss.h"
#include <stdlib.h>
#include <time.h>

static int losses(void *state, const struct gpt_loss_tokens *t, char *message,
                  size_t room)
{
    const struct timespec time = {0, 30000000};
    const char *rank = getenv("RANK");

    (void)state;
    (void)message;
    (void)room;
    if (rank && atoi(rank) == 1)
        nanosleep(&time, NULL);
    for (int64_t i = 0; i < t->n; i++) {
        t->loss[i] = t->nll[i];
        t->slope[i] = 1;
    }
    return 0;
}

const struct gpt_loss *gpt_loss_plugin(void)
{
    static const struct gpt_loss slow = {
        .abi = GPT_LOSS_ABI, .name = "slow", .losses = losses};

    return &slow;
}
END
expect 0 'a loss that is slow on rank 1' cc -shared -fPIC \
    -I "$top/common/model" -o slow.so slow.c
ranks() { # options...
    # shellcheck disable=SC2086 # a word list
    timeout 100 gpt-launch --standalone --nproc-per-node 2 gpt-train $tiny \
        --num-layers 2 --global-batch-size 4 --log-interval 12 \
        --loss-plugin ./slow.so "$@"
}
expect 0 'two ranks' ranks --train-iters 24
check 'the slow one is named, with its host' grep -q \
    "straggler: rank 1 on $(uname -n) computes [0-9.]* ms a step, [0-9]* % more" err
check 'the other is not' sh -c "! grep 'straggler: rank 0' err"
check 'over steps but the first' grep -q 'over 11 steps' err
expect 0 'stages are not compared' ranks --train-iters 24 \
    --pipeline-model-parallel-size 2
check 'their work differs' sh -c '! grep straggler err'
tap_done
