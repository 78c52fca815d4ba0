# shellcheck shell=sh
# Runs of other programs, as tests/golden/named_runs.py and make_megatron_core.py
# make them: they are converted, and trained on here with the losses that these
# programs had. Source it after tap.sh. Makes the data set that they train on.

into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}

# All samples are the same sixteen bytes and the first of them again.
echo '1234567890,.-+/(' | awk '{ for (i = 0; i < 20; i++) t = t $0
    print "{\"text\": \"" t "\"}" }' >x.jsonl
gpt-preprocess --input x.jsonl --output-prefix x -q \
    --tokenizer-type ByteTokenizer
train() {
    gpt-train --data-path x_text_document --use-checkpoint-args \
        --train-iters 23 --global-batch-size 2 --micro-batch-size 2 \
        --seq-length 16 --split 100,0,0 --lr 1e-2 --weight-decay 0.01 \
        --lr-decay-style constant --log-interval 1 \
        --make-vocab-size-divisible-by 64 "$@"
}

# What was saved after three steps is trained for the twenty that follow;
# `losses` are those of all steps. Of DeepSpeed and FSDP the schedule is not kept.
schedule=--override-opt_param-scheduler
# others leave biases of routers as they are
steady=--moe-router-bias-update-rate=0
trains_on() { # checkpoint losses [tolerance]
    [ -x "$BUILD/gpt-train" ] || return 0
    rm -rf on
    expect 0 'is trained on' train --load "$1" --save on $schedule $steady
    sed -n 's/.*"lm_loss":\([0-9.e+-]*\).*/\1/p' on/metrics.jsonl |
        awk '{ print NR + 3, $1 }' >got
    awk 'NR > 3 { print NR, $1 }' "$2" >want
    check 'with the losses that it had' awk -v most="${3:-1e-4}" '
        NR == FNR { want[$1] = $2; next }
        { d = want[$1] - $2
          if (!($1 in want) || d > most || d < -most) bad = 1; n++ }
        END { exit bad || n != 20 }' want got
}
