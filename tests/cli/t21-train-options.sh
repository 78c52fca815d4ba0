#!/bin/sh
# gpt-train: options beside each other, beside presets and beside a checkpoint;
# options without effect; the length of a run that resumes; the summary.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data

model="--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16
--make-vocab-size-divisible-by 1 --threads 1 --tokenizer-type ByteTokenizer"
run="--micro-batch-size 2 --global-batch-size 4 --lr 0.01 --eval-interval 10
--eval-iters 2 --log-interval 5 --split 80,20,0 --data-path $data"
train() { # options...
    # shellcheck disable=SC2086 # word lists
    gpt-train $model $run "$@"
}
tracker() { cat "$1/latest_checkpointed_iteration.txt"; }
err_lacks() { check "error does not say '$1'" sh -c \
    '! grep -qF -e "$1" "$2"' sh "$1" "$scratch/err"; }

# ---- data that are made up ----
mock() { # options...
    # shellcheck disable=SC2086 # word lists
    gpt-train $model --micro-batch-size 2 --global-batch-size 4 --lr 0.01 \
        --log-interval 1 --eval-iters 1 --mock-data "$@"
}
expect 0 'tokens that are made up' mock --train-iters 6 --metrics whole.jsonl
err_has 'the data are made up (--mock-data)'
err_has 'validation loss at the end of training'
expect 0 'saved' mock --train-iters 6 --exit-interval 3 --save mock
expect 0 'resumed' mock --train-iters 6 --load mock --metrics rest.jsonl
losses() { sed 's/.*"lm_loss":\([^,]*\),.*/\1/' "$1" | grep -v iteration; }
check 'are the same' test "$(losses whole.jsonl | tail -n 3)" = \
    "$(losses rest.jsonl)"
expect 0 'or counted' mock --train-iters 6 --dry-run
out_has 'an epoch: '
expect 2 'beside data' mock --train-iters 6 --data-path "$data"
err_has '--mock-data excludes --data-path'
expect 0 'other data' train --train-iters 7 --load mock
err_has 'its run had other data'

# ---- the length of a run that resumes ----
expect 0 'a run of 10 steps' train --train-iters 10 --save short
expect 0 'is made longer' train --train-iters 12 --load short --save longer
err_has 'the learning rate decays over 48 samples, not 40'
err_has 'the next step has 0.00166667, with --use-checkpoint-opt-param-scheduler it has 0'
check 'to its new end' test "$(tracker longer)" = 12
expect 0 'the schedule of the checkpoint needs no word' train --train-iters 12 \
    --load short --use-checkpoint-opt_param-scheduler
err_lacks 'another length'
expect 0 'a warm-up that is a fraction of the run' train --train-iters 10 \
    --lr-warmup-fraction 0.2 --save fraction
expect 0 'follows the length, too' train --train-iters 20 \
    --lr-warmup-fraction 0.2 --load fraction
expect 0 'a fraction of a sample' train --train-iters 9 \
    --lr-warmup-fraction 0.1 --exit-interval 4 --save part
check 'is not dropped' grep -q '"warmup_samples":.*3\.6' \
    part/iter_0000004/manifest.json
expect 0 'and resumes' train --train-iters 9 --lr-warmup-fraction 0.1 \
    --load part
rm -rf part
expect 2 'another fraction does not' train --train-iters 20 \
    --lr-warmup-fraction 0.4 --load fraction
err_has 'warmup_samples is 16 here and 8 in'
expect 2 'what was typed contradicts' train --train-iters 20 \
    --lr-decay-iters 15 --load short
err_has 'decay_samples is 60 here and 40 in'
expect 0 'a run with a decay of its own' train --train-iters 10 \
    --lr-decay-iters 8 --save decayed
expect 2 'whose option is missing' train --train-iters 10 --load decayed
err_has 'decay_samples is 40 here and 32 in'

expect 0 'a run in samples' train --train-samples 40 --exit-interval 5 \
    --save samples
expect 0 'resumes with another batch' train --train-samples 40 \
    --global-batch-size 2 --load samples --save half
err_has '--train-samples 40 are reached at iteration 15'
check 'and ends at its samples' grep -q '"iteration":15,"consumed_samples":40,' \
    half/metrics.jsonl
expect 0 'in steps it ends at its steps' train --train-iters 12 \
    --global-batch-size 2 --load samples --override-opt_param-scheduler \
    --save steps
check 'all of them' test "$(tracker steps)" = 12
# The schedule ends with the run, whatever a step takes: 20 + 5 x 2 samples.
expect 0 'a run in steps' train --train-iters 10 --exit-interval 5 --save five
expect 0 'resumes with half the batch' train --train-iters 10 \
    --global-batch-size 2 --load five --save less --log-interval 1
err_has 'the learning rate decays over 30 samples, not 40'
check 'and has a rate until its end' grep -q \
    '"iteration":9,"consumed_samples":28,.*"learning_rate":0.000666' \
    less/metrics.jsonl
err_lacks 'other data'
expect 0 'with twice the batch' train --train-iters 10 \
    --global-batch-size 8 --load five
err_has 'the learning rate decays over 60 samples, not 40'
expect 0 'or as before' train --train-iters 10 --global-batch-size 8 \
    --load five --use-checkpoint-opt-param-scheduler
err_lacks 'decays over 60'
expect 0 'a run whose last batch would be a part' train --train-samples 38 \
    --global-batch-size 8 --exit-interval 2 --save part
check 'weight decay grows until all samples' grep -q \
    '"wd_incr_samples":[^0-9]*38' part/iter_0000002/manifest.json
expect 0 'resumes with a smaller one' train --train-samples 38 \
    --global-batch-size 2 --load part
err_has '--train-samples 38 are reached at iteration 13'
# An epoch has 348 samples, which 350 samples exceed, though not in a batch.
for n in 350 352; do
    expect 0 "the first of $n samples" train --train-samples $n --lr 0 \
        --exit-interval 1 --metrics first-$n
done
check 'are those of two epochs' test "$(losses first-350)" = \
    "$(losses first-352)"
expect 0 'samples of another length' train --train-iters 12 --seq-length 8 \
    --max-position-embeddings 16 --load short --save shorter
err_has 'its run had --seq-length 16, this one 8'
expect 0 'a first start, the directory in two writings' train \
    --train-iters 1 --save new --load ./new/
err_has 'no checkpoint in ./new/ yet'
expect 2 'a last part without a length' train --train-iters 5 \
    --lr-decay-style WSD
err_has '--lr-wsd-decay-iters gives the length of the last part'
expect 2 'validations without end' train --train-iters 5 \
    --eval-iters 1000000000000000 --global-batch-size 10000
err_has '--eval-iters 1000000000000000 x --global-batch-size 10000'

# ---- nothing to train ----
expect 0 'a finished run says how to go on' train --train-iters 10 --load short
err_has 'nothing to do: iteration 10 of 10; a larger --train-iters continues'
expect 0 'no steps: the losses of a model' train --train-iters 0 --load short
err_has ' validation loss at iteration 10 |'
err_has ' last validation loss: '
expect 0 'and then more steps' train --train-iters 12 --load short --lr 0.01 \
    --override-opt_param-scheduler --exit-interval 10
expect 2 'of no model' train --train-iters 0
err_has 'with --load DIR --train-iters 0 evaluates the model in DIR'
expect 2 'and without losses' train --train-iters 0 --load short --eval-iters 0
err_has 'nothing to train and nothing to evaluate'
expect 0 'saves nothing' train --train-iters 0 --load short --save none
err_has '--save (no step is made)'
check 'nowhere' test ! -e none
expect 0 'a rate of 0 trains nothing' train --lr 0 --train-iters 5 \
    --weight-decay 0 --save zero
expect 2 'no rate is no rate' gpt-train $model --data-path "$data" \
    --train-iters 5
err_has 'give the learning rate: --lr'

# ---- precision, summary ----
expect 0 'resumes in another precision' train --train-iters 12 --load short \
    --bf16 --save half-precision
err_has 'its run computed in F32, this one computes in BF16'
expect 0 'within a log interval' train --train-iters 12 --load short \
    --save summary --log-interval 100
err_has ' trained iterations 11 to 12: 128 tokens in '
err_has ' last lm loss: '
err_has ' last validation loss: '
err_has ' metrics are in summary/metrics.jsonl'
err_has ' the checkpoint of iteration 12 is in summary'
expect 0 'throughput of CPUs' train --train-iters 5 --log-throughput
err_has 'throughput per rank (TFLOP/s): '

# ---- the options of a checkpoint ----
# shellcheck disable=SC2086 # word lists
expect 0 'resumes with the options of the checkpoint' gpt-train $run \
    --train-iters 12 --load short --use-checkpoint-args --save taken \
    --make-vocab-size-divisible-by 1 --threads 1
err_has '--hidden-size 16'
err_has '--tokenizer-type ByteTokenizer'
check 'as with the same options' cmp \
    taken/iter_0000012/optimizer_exp_avg_tp00_pp00.safetensors \
    longer/iter_0000012/optimizer_exp_avg_tp00_pp00.safetensors
for typed in '--hidden-size 32' '--num-layers 3' '--tokenizer-type NullTokenizer' \
    '--position-embedding-type rope' '--untie-embeddings-and-output-weights'; do
    # shellcheck disable=SC2086 # word lists
    expect 2 "refuses $typed" gpt-train $run --train-iters 12 --load short \
        --use-checkpoint-args $typed
    err_has "--use-checkpoint-args: ${typed%% *} is"
done
# shellcheck disable=SC2086 # word lists
expect 2 'refuses one group for all heads' gpt-train $run --train-iters 12 \
    --load short --use-checkpoint-args --attention-head-type multiquery
err_has '--attention-head-type is multiquery here, and short/iter_'
err_has 'has 2 query groups for 2 heads'
# shellcheck disable=SC2086 # word lists
expect 0 'a preset gives way' gpt-train --config gpt2-tiny $run \
    --train-iters 0 --load short --use-checkpoint-args
# shellcheck disable=SC2086 # word lists
expect 2 'without a checkpoint' gpt-train $model $run --train-iters 12 \
    --use-checkpoint-args
err_has '--use-checkpoint-args needs --load'
expect 0 'a first start has none yet' train --train-iters 2 --save first \
    --load first --use-checkpoint-args
expect 2 'another model says how to take its options' train --train-iters 12 \
    --load short --hidden-size 32
err_has '--use-checkpoint-args takes the model'
# shellcheck disable=SC2086 # word lists
expect 2 'an option that stands for several says so' gpt-train $run \
    --train-iters 12 --load short --use-checkpoint-args --geglu
err_has 'leave out the option that says so, as --swiglu, --geglu'
expect 0 'a checkpoint of Hugging Face' gpt-reshape --load-path short \
    --save-path hf --to hf
# shellcheck disable=SC2086 # word lists
expect 0 'has them, too' gpt-train $run --train-iters 2 --finetune --load hf \
    --use-checkpoint-args --tokenizer-type ByteTokenizer --micro-batch-size 1 \
    --lr 0.001
err_has '--hidden-size 16'

# ---- files of options against typed ones ----
preset() { # options...
    # shellcheck disable=SC2086 # word lists
    gpt-train --config gpt2-tiny --tokenizer-type ByteTokenizer \
        --data-path "$data" --split 80,20,0 --eval-iters 0 --train-iters 1 "$@"
}
expect 0 'a rate below the least of the preset' preset --lr 1e-5
err_has '--min-lr, which --lr replaces'
echo 'global-batch-size = 8' >batch.conf
printf '%s\n' 'train-samples = 8' 'step-batch-size-schedule = 0:4 64:8' \
    >steps.conf
expect 0 'a ramp-up for the schedule of batches of a file' gpt-train \
    --config gpt2-tiny --config batch.conf --config steps.conf \
    --vocab-size 9 --print-config --rampup-batch-size 4 4 4
out_has '--step-batch-size-schedule, which --rampup-batch-size replaces'
expect 0 'samples longer than its positions' preset --seq-length 256
err_has '--max-position-embeddings, which --seq-length replaces'
expect 0 'fewer positions than its samples' preset --max-position-embeddings 64
err_has '--seq-length, which --max-position-embeddings changes'
expect 0 'what changes an option is the source of its value' gpt-train \
    --config gpt2-tiny --vocab-size 9 --max-position-embeddings 64 \
    --print-config
out_has 'seq-length = 64  # command line'
expect 0 'a batch that its micro batch does not divide' preset \
    --global-batch-size 6
err_has 'micro batch size: 3, global batch size: 6'
expect 2 'what was typed is refused' preset --lr 1e-5 --min-lr 1e-3
err_has '--min-lr is 0.001, must be'
cat >run.conf <<END
recompute-granularity = full
recompute-num-layers = 2
fp16 = true
loss-scale = 128
data-parallel-sharding-strategy = no_shard
train-samples = 400
lr-warmup-samples = 40
END
expect 0 'exclusive options of a file' preset --config run.conf --bf16 \
    --recompute-activations --use-distributed-optimizer
expect 0 'a flag that is switched off replaces nothing' gpt-train \
    --config run.conf --vocab-size 9 --no-bf16 --print-config
out_has 'fp16 = true'

# ---- options without effect ----
idle() { # text option...
    idle_text=$1
    shift
    expect 0 "no effect: $*" train --train-iters 1 "$@"
    err_has 'warning: without effect here: '
    err_has "$idle_text"
    check 'in one line' test "$(grep -c 'without effect' err)" = 1
}
idle '--distributed-backend (there is one rank)' --distributed-backend nccl
idle '--use-distributed-optimizer, --overlap-param-gather (there is one data' \
    --use-distributed-optimizer --overlap-param-gather
idle '--min-lr, --lr-decay-iters (--lr-decay-style is constant)' \
    --lr-decay-style constant --min-lr 0.001 --lr-decay-iters 1
idle '--lr-wsd-decay-iters (--lr-decay-style is not WSD)' --lr-wsd-decay-iters 1
idle '--eval-interval, --eval-iters (nothing is validated' --split 1,0,0
idle '--save-interval, --keep-checkpoints, --async-save (there is no --save)' \
    --save-interval 1 --keep-checkpoints 1 --async-save
idle '--no-load-optim (no run is resumed' --no-load-optim
idle '--reset-position-ids (there is no table of positions' \
    --reset-position-ids --position-embedding-type rope
idle '--override-opt-param-scheduler (no run' --override-opt_param-scheduler
idle '--product-efficiency, --memory-bandwidth, --intra-node-latency, ' \
    --product-efficiency 0.5 --memory-bandwidth 1 --intra-node-latency 1 \
    --inter-node-latency 1
err_has '--inter-node-latency (it is for gpt-train advise)'
idle '--score-interval (there is no --score-set), --sample-interval (there is' \
    --score-interval 1 --sample-interval 1 --sample-top-p 0.5
err_has '--sample-top-p (nothing is drawn by chance'
expect 0 'a warm-up that is a fraction of the decay' train --train-iters 9 \
    --lr-decay-style constant --lr-decay-iters 6 --lr-warmup-fraction 0.5
err_lacks 'without effect'
expect 0 'nothing to say' train --train-iters 1
err_lacks 'without effect'
expect 2 'the file of another tokenizer' train --train-iters 1 \
    --tokenizer-model nope
err_has '--tokenizer-model has no effect on ByteTokenizer'
expect 0 'more threads than cores' train --train-iters 1 --threads 1000
err_has '--threads 1000: this process has'

expect 2 'a seed that the order of samples does not take' train \
    --train-iters 1 --seed 4294967296
err_has '--seed: 4294967296 is out of range (0 to 4294967295)'
expect 0 'any separator of a split' train --train-iters 1 --split 80/20/0
err_has ' validation loss at the end of training'

# ---- what to do next ----
hinted() { # status text option...: a mistake, and what its hint has
    hinted_status=$1 hinted_text=$2
    shift 2
    expect "$hinted_status" "a hint for $*" train --train-iters 3 "$@"
    err_has "hint: $hinted_text"
}
hinted 2 'gpt-launch --standalone --nproc-per-node 3' \
    --tensor-model-parallel-size 3
hinted 2 '--decoder-first-pipeline-num-layers and' --dry-run \
    --pipeline-model-parallel-size 3
err_has '--num-layers 2 is not a multiple of --pipeline-model-parallel-size 3'
hinted 2 '--global-batch-size 4, or --micro-batch-size 1' --global-batch-size 3
hinted 2 'give both the same value' --max-position-embeddings 8
hinted 2 'a shorter warm-up' --lr-warmup-iters 3
hinted 2 'the fields of the model are options' --num-attention-heads 3
hinted 2 "try 'gpt-train --help'" --train-samples 100
hinted 4 'it is the name of a directory; models are not fetched' --load nowhere
hinted 3 'it is not a checkpoint itself' --load "$scratch"
hinted 2 'YAML and JSON are not read' --config corpus.jsonl
echo "lr 1" >words.conf
hinted 2 "'gpt-train --print-config' prints such a file" --config words.conf
expect 2 'no arguments' gpt-train
err_has "hint: they are those that gpt-preprocess was given"
expect 0 'a plan for ranks' gpt-train --config gpt2-124m --vocab-size 50257 \
    --dry-run --world-size 4
out_has '> 4 ranks (planned)'
expect 0 'a file system without room for a checkpoint' gpt-train \
    --num-layers 2000 --hidden-size 65536 --num-attention-heads 64 \
    --vocab-size 50257 --dry-run --save big
err_has '--save big: a checkpoint takes '
expect 6 'a loss that is not a number' train --train-iters 50 --lr 1000 \
    --clip-grad 0 --lr-decay-style constant
err_lacks '-nan'
expect 0 'a step too far' train --train-iters 1 --lr 1000 --weight-decay 1e3 \
    --lr-decay-style constant --save far
err_has '| lm loss value: NAN | lm loss PPL: NAN |'
expect 0 'a model whose loss is no number' train --load far --eval-only
check 'has no perplexity either, and no dash in their places' \
    grep -q '^validation *nan *nan *nan *- *-$' out

# ---- a sample that cannot be read at a later step ----
awk 'BEGIN { for (i = 0; i < 60; i++) {
    text = ""
    for (j = 0; j < 40; j++) text = text "ab"
    printf "{\"text\": \"%s%s\"}\n", text, i == 37 ? "z" : "y" } }' >rare.jsonl
expect 0 'a rare token' gpt-preprocess --input rare.jsonl --output-prefix rare \
    --tokenizer-type ByteTokenizer
rare() { # options...
    gpt-train --num-layers 2 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 16 --micro-batch-size 1 --lr 0.01 --eval-iters 0 \
        --split 1,0,0 --threads 1 --data-path rare_text_document \
        --train-iters 280 "$@"
}
expect 3 'is above the vocabulary' rare --vocab-size 122 --save rare
err_has 'is 122, must be from 0 to 121'
err_has 'info shows which tokenizer'
err_has ' saved checkpoint at iteration '
check 'what was trained is kept' test "$(tracker rare)" -gt 1
expect 0 'and resumed with the right one' rare --vocab-size 122 --load rare \
    --train-iters "$(tracker rare)"

tap_done
