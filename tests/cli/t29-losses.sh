#!/bin/sh
# Rows of one document, and losses of one's own, against PyTorch in float64
# (tests/golden/make_training.py): losses and gradient norms of four steps, on
# one rank and on TP2 PP2, where rows, vocabulary and layers are cut.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

if gpt-train --version | grep -q ' Gloo'; then ranks=yes; else ranks=no; fi
golden=$top/tests/golden/training
cp "$golden/corpus.jsonl" "$golden/keys.txt" .
expect 0 'makes a data set' gpt-preprocess --input corpus.jsonl \
    --output-prefix data --tokenizer-type ByteTokenizer -q
model="$(cat "$golden/model.options") --data-path data_text_document"

# ---- against PyTorch ----
# Fails when a loss or a norm of metrics.jsonl differs by more than 2e-5 of it.
compare() { # case metrics.jsonl
    awk -v name="$1" '
        function differs(a, b, d) {
            d = a > b ? a - b : b - a
            return !(d <= 2e-5 * b)
        }
        FNR == NR {
            if ($1 == "case") on = $0 == "case " name
            if (on && $1 == "step") { loss[++n] = $2; norm[n] = $3 }
            next
        }
        {
            i++
            match($0, /"lm_loss":[^,]*/)
            l = substr($0, RSTART + 10, RLENGTH - 10)
            match($0, /"grad_norm":[^,]*/)
            g = substr($0, RSTART + 12, RLENGTH - 12)
            if (differs(l + 0, loss[i] + 0) || differs(g + 0, norm[i] + 0)) {
                print "# step " i ": " l " " g ", not " loss[i] " " norm[i]
                bad = 1
            }
        }
        END { exit bad || n == 0 || i != n }' "$golden/losses.txt" "$2"
}
options_of() { # case
    awk -v name="$1" '$1 == "case" { on = $0 == "case " name }
        on && $1 == "options" { sub("options ", ""); print }' \
        "$golden/losses.txt"
}
run() { # ranks options...
    n=$1
    shift
    rm -f some.jsonl
    if [ "$n" = 1 ]; then
        # shellcheck disable=SC2086 # a word list
        gpt-train $model --metrics some.jsonl "$@"
    else
        # shellcheck disable=SC2086 # a word list
        timeout 120 gpt-launch --standalone --nproc-per-node "$n" gpt-train \
            $model --metrics some.jsonl "$@"
    fi
}
tp='--tensor-model-parallel-size 2'
pp='--pipeline-model-parallel-size 2'
trial() { # case
    name=$1
    options=$(options_of "$name")
    # shellcheck disable=SC2086 # word lists
    {
        expect 0 "$name: one rank" run 1 $options
        check 'as in PyTorch' compare "$name" some.jsonl
        [ $ranks = yes ] || return 0
        expect 0 "$name: TP2 PP2" run 4 $options $tp $pp
        check 'as in PyTorch' compare "$name" some.jsonl
        expect 0 "$name: TP2 DP2, sequence parallel, ZeRO-2" run 4 $options \
            $tp --sequence-parallel --data-parallel-sharding-strategy \
            optim_grads
        check 'as in PyTorch' compare "$name" some.jsonl
    }
}
trial padded
trial 'per token'
trial 'key tokens'
trial regularised

# Padding adds nothing, though token 0 stands for it in the input.
padded="$(options_of padded | sed 's/--pad-token-id [0-9]*//')"
for token in 0 1; do
    echo "$token 5" >add$token.txt
    # shellcheck disable=SC2086 # word lists
    expect 0 "token $token, which the data lack, adds 5" run 1 $padded \
        --token-loss-weights add$token.txt
    grep -o '"lm_loss":[^,]*' some.jsonl >added$token
done
check 'to no sample' cmp added0 added1
apart() { # rank-0-option rank-1-option: options that ranks read for themselves
    # shellcheck disable=SC2016,SC2086 # for the inner shell; a word list
    expect 2 "ranks with '$1' and '$2'" timeout 120 gpt-launch --standalone \
        --nproc-per-node 2 sh -c 'r=$1; shift
        [ $RANK = 0 ] || r=$1; shift
        exec gpt-train "$@" $r' sh "$1" "$2" $model
    err_has 'the ranks were not given the same loss'
}
if [ $ranks = yes ]; then
    apart '--token-loss-weights add0.txt' '--token-loss-weights add1.txt'
    apart '' '--token-loss-weights add1.txt'
    err_has "'weights of tokens = "
    err_has "rank 0 has 'weights of tokens = none'"
fi

# Plug-ins: the examples, built as gpt_loss.h says.
plugins=no
if command -v cc >/dev/null; then
    plugins=yes
    for name in focal half; do
        expect 0 "builds loss_$name.c" cc -O2 -Wall -Wextra -Werror -shared \
            -fPIC -I "$top/common/model" -o $name.so \
            "$top/share/examples/loss_$name.c" -lm
    done
    trial focal
    trial half
    if [ $ranks = yes ]; then
        apart '--loss-plugin focal.so' ''
        err_has "'loss plug-in = none', rank 0 has 'loss plug-in = "
    fi
    cat >bad.c <<'END'
#include "gpt_loss.h"
#include <stdio.h>
static int weigh(void *state, const struct gpt_loss_rows *rows, char *message,
                 size_t room)
{
    (void)state, (void)message, (void)room;
#ifndef KEEP
    if (rows->first_sample >= 8)
        rows->weight[5] /= 0;
#endif
    return 0;
}
static int losses(void *state, const struct gpt_loss_tokens *tokens,
                  char *message, size_t room)
{
    (void)state, (void)tokens;
    snprintf(message, room, "the moon is down");
    return 1;
}
const struct gpt_loss *gpt_loss_plugin(void)
{
#ifdef WEIGH
    static const struct gpt_loss bad = {GPT_LOSS_ABI, "bad", 0, 0, weigh, 0};
    (void)losses;
#else
    static const struct gpt_loss bad = {GPT_LOSS_ABI, "bad", 0, 0, 0, losses};
    (void)weigh;
#endif
    return &bad;
}
END
    expect 0 'builds plug-ins that fail' sh -c "
        cc -shared -fPIC -I '$top/common/model' -o bad.so bad.c &&
        cc -shared -fPIC -DWEIGH -I '$top/common/model' -o nan.so bad.c &&
        cc -shared -fPIC -DWEIGH -DKEEP -I '$top/common/model' -o keep.so bad.c"
    expect 0 'without a plug-in' run 1
    mv some.jsonl plain.jsonl
    expect 0 'a plug-in that keeps the weights it is given' run 1 \
        --loss-plugin ./keep.so
    check 'they are a mean over tokens' compare_metrics plain.jsonl some.jsonl 4
    expect 1 'a plug-in that fails' run 1 --loss-plugin ./bad.so
    err_has "loss plug-in 'bad': losses: the moon is down"
    expect 1 'weights that are not finite' run 1 --loss-plugin ./nan.so
    err_has "the weight of token 5 of sample 8 is not finite"
    if [ $ranks = yes ]; then
        # shellcheck disable=SC2086 # word lists
        expect 1 'a plug-in that fails, TP2 PP2' run 4 $tp $pp \
            --loss-plugin ./bad.so
        err_has "loss plug-in 'bad': losses: the moon is down"
    fi
else
    skip 'plug-ins: no compiler here'
fi

# ---- documents, order, epochs ----
rows='--document-samples --bos-token-id 257 --eos-token-id 256'
# shellcheck disable=SC2086 # word lists
{
    free=$(echo "$model" | sed 's/--train-iters 4//; s/ -q//')
    expect 0 'three epochs' gpt-train $free $rows --epochs 3 --save three
    err_has 'an epoch: 20 samples, 5.00 steps; the run: 3.00 epochs'
    err_has 'steps: 15, samples: 60'
    expect 0 'stopped in the second' gpt-train $free $rows --epochs 3 \
        --save two --exit-interval 7
    expect 0 'and resumed' gpt-train $free $rows --epochs 3 --load two \
        --save again
    # epochs are samples: 28 of 60 are read
    for batch in 8 2; do
        expect 0 "resumed with batches of $batch" gpt-train $free $rows \
            --epochs 3 --load two --save by$batch --micro-batch-size 2 \
            --global-batch-size $batch
        err_has "--epochs 3 are reached at iteration $((7 + 32 / batch))"
        check 'in the same data' sh -c '! grep "other data" "$1"' sh \
            "$scratch/err"
        check 'to their end' grep -q '"consumed_samples":60,' \
            by$batch/metrics.jsonl
    done
    expect 0 'nothing is left' gpt-train $free $rows --epochs 3 --load by2
    err_has 'a larger --epochs continues the run, and --eval-only evaluates it'
    for i in idx bin; do cp data_text_document.$i second.$i; done
    expect 0 'an epoch of two data sets' gpt-train $free $rows --epochs 1 \
        --data-path data_text_document second
    err_has 'an epoch: 40 samples'
    expect 2 'two epochs of them' gpt-train $free $rows --epochs 2 \
        --data-path data_text_document second
    err_has '--epochs 2: several data sets without weights are read once'
    expect 2 'epochs, and samples' gpt-train $free --epochs 2 \
        --lr-warmup-samples 4
    err_has '--epochs and --lr-warmup-samples exclude each other'
    expect 0 'packed, in order' gpt-train $free --no-shuffle --epochs 2 \
        --metrics one.jsonl
    rm -f some.jsonl
    expect 0 'the order is not that of a seed' gpt-train $free --no-shuffle \
        --epochs 2 --seed 7 --metrics some.jsonl --lr 0
    expect 2 'epochs and steps' gpt-train $model --epochs 2
    err_has '--epochs and --train-iters exclude each other'
    expect 2 'epochs of a blend' gpt-train $free --epochs 2 \
        --data-path 1 data_text_document 2 data_text_document
    err_has 'a blend by weights reads its data sets unequally often'
    expect 2 'an end without rows' gpt-train $model --eos-token-id 256
    err_has '--eos-token-id needs --document-samples'
    expect 2 'an end that is no word' gpt-train $model --document-samples \
        --bos-token-id 260
    err_has '--bos-token-id 260 is not below the vocabulary size 260'
    printf '97 0.25\n260 1\n' >wrong.txt
    expect 3 'a weight of no word' gpt-train $model \
        --token-loss-weights wrong.txt
    err_has 'wrong.txt:2: token 260 is not in 0..259'
    printf '97 a\n' >wrong.txt
    expect 3 'a weight that is no number' gpt-train $model \
        --token-loss-weights wrong.txt
    err_has 'wrong.txt:1: must be a token'
    printf '97.5\n' >wrong.txt
    expect 3 'an id that is no integer' gpt-train $model \
        --token-loss-weights wrong.txt
    err_has 'wrong.txt:1: must be a token'
    printf '97 0.5\n\0\n98 1\n' >wrong.txt
    expect 3 'a NUL that would hide lines' gpt-train $model \
        --token-loss-weights wrong.txt
    err_has 'wrong.txt: holds a NUL byte'
    expect 2 'two rules for weights' gpt-train $model \
        --token-loss-weights keys.txt --calculate-per-token-loss
    expect 4 'a plug-in that is not there' gpt-train $model \
        --loss-plugin ./nowhere.so
    err_has "cannot open './nowhere.so'"
    echo text >text.so
    expect 2 'a plug-in that is no library' gpt-train $model \
        --loss-plugin text.so
    err_has 'loss plug-in:'
    err_has 'gpt_loss.h says what --loss-plugin takes'
    expect 2 'a library that is no plug-in' gpt-train $model \
        --loss-plugin "$(ldd "$(command -v gpt-train)" |
            awk '/libcjson/ { print $3 }')"
    err_has 'no function gpt_loss_plugin()'
    expect 0 'another order is noticed' gpt-train $free $rows --no-shuffle \
        --epochs 3 --load two
    err_has 'its run had other data, or other data options'
}
tensors_of() { (cd "$1" && cat ./*.safetensors | cksum); }
check 'the same bits as without stopping' test \
    "$(tensors_of three/iter_0000015)" = "$(tensors_of again/iter_0000015)"

# Kernels of attention take documents apart: CPU, and CUDA emulated.
if gpt-train --version | grep -q CUDA-EMU || [ -f "$BUILD/libgpt-cuda-emu.so" ]
then
    masks='--eod-mask-loss --reset-position-ids --reset-attention-mask'
    # shellcheck disable=SC2086 # word lists
    {
        rm -f one.jsonl
        expect 0 'documents apart, packed' run 1 $masks --no-shuffle
        mv some.jsonl one.jsonl
        expect 0 'the same on an emulated GPU' run 1 $masks --no-shuffle \
            --device cuda-emu
        check 'the same losses' compare_metrics one.jsonl some.jsonl 4
        for name in padded regularised focal; do
            [ $plugins = no ] && [ $name = focal ] && continue
            # shellcheck disable=SC2046 # a list of options
            expect 0 "$name on an emulated GPU" run 1 $(options_of $name) \
                --device cuda-emu
            check 'as in PyTorch' compare $name some.jsonl
        done
    }
fi
tap_done
