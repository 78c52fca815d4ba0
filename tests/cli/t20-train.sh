#!/bin/sh
# gpt-train: runs, logs, checkpoints; a run that is stopped in any way and
# resumed ends with the same bytes; wrong options, hostile files and full disks.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data

common="--num-layers 2 --hidden-size 16 --num-attention-heads 2
--seq-length 16 --micro-batch-size 2 --global-batch-size 4 --lr 0.01
--split 80,20,0 --eval-interval 10 --eval-iters 2 --log-interval 5
--make-vocab-size-divisible-by 1 --threads 1"
data_options="--tokenizer-type ByteTokenizer --data-path $data"
train() { # options...
    # shellcheck disable=SC2086 # word lists
    gpt-train $common $data_options --train-iters 30 "$@"
}
# The same for the background: $! is then the pid of gpt-train.
train_exec() {
    # shellcheck disable=SC2086 # word lists
    exec gpt-train $common $data_options --train-iters 30 "$@"
}
same_weights() { # directory: its end is that of the undisturbed run
    for f in model optimizer_exp_avg optimizer_exp_avg_sq; do
        cmp "$1/iter_0000030/${f}_tp00_pp00.safetensors" \
            "whole/iter_0000030/${f}_tp00_pp00.safetensors" || return 1
    done
}
tracker() { cat "$1/latest_checkpointed_iteration.txt"; }
lines() { grep -c '"lm_loss"' "$1/metrics.jsonl"; }
metric() { # directory iteration: its loss
    sed -n "s/^{\"iteration\":$2,.*\"lm_loss\":\([^,]*\),.*/\1/p" \
        "$1/metrics.jsonl"
}

# ---- a run ----
expect 0 'trains' train --save whole --save-interval 10
err_has ' > padded vocab (size: 257) with 0 dummy tokens (new size: 257)'
err_has ' > number of parameters on (tensor, pipeline) model parallel rank (0, 0): '
err_has '> learning rate decay style: linear'
n='[0-9.E+-]*'
check 'log lines have the form that scripts parse' \
    test "$(grep -cE "^ iteration +[0-9]+/ +30 \| consumed samples: +[0-9]+ \| elapsed time per iteration \(ms\): $n \| learning rate: $n \| global batch size: +4 \| lm loss: $n \| loss scale: 1\.0 \| grad norm: $n \| number of skipped iterations: +0 \| number of nan iterations: +0 \|\$" err)" = 6
check 'validation lines, too' \
    test "$(grep -cE "^ validation loss at (iteration [12]0|the end of training) \| lm loss value: $n \| lm loss PPL: $n \| bits per byte: $n \| \$" err)" = 3
check 'one metrics line a log line' test "$(lines whole)" = 6
check 'and one a validation' \
    test "$(grep -c '"validation_ppl"' whole/metrics.jsonl)" = 3
check 'loss falls' awk "BEGIN { exit !($(metric whole 30) < $(metric whole 5)) }"
check 'the tracker has the last step' test "$(tracker whole)" = 30
check 'every interval was saved' test -d whole/iter_0000010 -a \
    -d whole/iter_0000020 -a -d whole/iter_0000030
expect 0 'a finished run has nothing to do' train --save whole --load whole
err_has 'nothing to do: iteration 30 of 30'

# A dry run fails where the run would.
expect 0 'planned once more' train --save whole --load whole --dry-run
expect 0 'planned before its first step' train --save new --load new --dry-run
expect 4 'planned from nothing' train --load new --dry-run
err_has 'new: no such directory'
expect 2 'planned with another model' train --load whole --num-layers 1 --dry-run
err_has 'its model has num_layers 2, the options say 1'
expect 7 "planned into another run's directory" train --save whole --dry-run
err_has 'whole: holds checkpoints of another run'
check 'and nothing was made' test ! -e new
cp -r whole altered
rm -r altered/iter_00000[12]0
weights=altered/iter_0000030/model_tp00_pp00.safetensors
printf X | dd of="$weights" bs=1 conv=notrunc \
    seek="$(($(wc -c <"$weights") - 1))" 2>/dev/null
expect 0 'planned without reading weights' train --load altered --dry-run
expect 3 'which the run reads' train --load altered
err_has 'altered: CRC-32C is'

(train --save unread; echo $? >status) 2>&1 | head -n 1 >first
check 'messages that nothing reads end no run' test "$(cat status)" = 0
check 'which is the same' same_weights unread

expect 0 'another number of threads' train --save threads --threads 2
check 'gives the same bytes' same_weights threads

# ---- stopped and resumed ----
expect 0 'leaves at --exit-interval' train --save part --load part \
    --exit-interval 13
err_has 'starting from random weights'
check 'having saved' test "$(tracker part)" = 13
expect 0 'resumes' train --save part --load part
check 'to the same bytes as without a stop' same_weights part
check 'metrics have every line once, and one of the stop' \
    test "$(lines part)" = 7
check 'and the same last loss' test "$(metric part 30)" = "$(metric whole 30)"

expect 0 'leaves at --exit-duration-in-mins' train --save minutes \
    --exit-duration-in-mins 0.00001
check 'having saved after the first step' test "$(tracker minutes)" = 1

expect 0 'saves at step 20 of a longer past' train --save cut --exit-interval 20
printf '{"iteration":25,"lm_loss":1}\n{"iteration":30,"lm' >>cut/metrics.jsonl
expect 0 'resumes it' train --save cut --load cut
check 'lines past the checkpoint are cut off' test "$(lines cut)" = 6
check 'the rest is as without a stop' same_weights cut

killed() { # kill -9 at several moments, then run to the end
    for delay in 0.03 0.06 0.1 0.15 0.2 0.3; do
        train_exec --save killed --load killed --save-interval 1 >/dev/null 2>&1 &
        pid=$!
        sleep $delay
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        echo "killed after $delay s at step $(tracker killed 2>/dev/null)"
    done
    train --save killed --load killed --save-interval 5 && same_weights killed
}
check 'kill -9 at any moment costs no byte' killed
check 'and leaves no temporary file' \
    sh -c '! find killed | grep -i tmp'

until_step() { until_true 60 test -s "$1/metrics.jsonl"; } # directory
signalled() { # signal directory: status of a long run that gets it
    train_exec --train-iters 100000 --save "$2" --eval-iters 0 \
        --log-interval 1 2>err &
    pid=$!
    until_step "$2" || return 1
    kill "-$1" $pid
}
stopped() { # signal number
    signalled "$1" "stop-$1" || return 1
    wait $pid
    [ $? = $((128 + $2)) ] && grep -q "after receiving SIG$1\.$" err &&
        [ "$(tracker "stop-$1")" -ge 1 ]
}
check 'SIGTERM: saves, reports it, ends by the signal' stopped TERM 15
check 'SIGHUP, too' stopped HUP 1
check 'SIGUSR2, which batch systems are asked for' stopped USR2 12
saved_and_went_on() {
    signalled USR1 usr1 || return 1
    until_true 60 test -e usr1/latest_checkpointed_iteration.txt || return 1
    kill -0 $pid || return 1
    kill -TERM $pid
    wait $pid
    [ "$(find usr1 -name 'iter_*' | wc -l)" = 2 ]
}
check 'SIGUSR1: saves and continues' saved_and_went_on

# ---- a terminal ----
if script -qec true /dev/null >/dev/null 2>&1; then
    # A run on a terminal, until it has shown the text, and some time more.
    shown() { # terminal text seconds
        TERM=$1 script -qec "echo \$\$ >pid-$1; exec gpt-train --mock-data \
            --config gpt2-tiny --vocab-size 300 --train-iters 1000000 \
            --eval-iters 0 --log-interval 1000000 --threads 1" /dev/null \
            </dev/null >"shown-$1" 2>&1 &
        until_true 60 grep -q "$2" "shown-$1"
        sleep "$3"
        kill -TERM "$(cat "pid-$1")"
        wait $!
    }
    escape=$(printf '\033')
    shown xterm "$escape\[Ktrain" 0
    check 'progress is drawn on a terminal' grep -q "$escape\[Ktrain" shown-xterm
    # longer than it takes to draw for the first time
    shown dumb 'nothing of this run' 1.5
    check 'and a dumb one gets no escapes' \
        sh -c "grep -q 'nothing of this run' shown-dumb &&
            ! grep -q '$escape' shown-dumb"
else
    skip 'no script(1)'
fi

# ---- options of checkpoints ----
expect 0 'keeps two checkpoints' train --save keep --save-interval 5 \
    --keep-checkpoints 2
check 'and no more' test "$(find keep -name 'iter_*' | wc -l)" = 2
expect 0 'fewer when it resumes' train --save keep --load keep \
    --keep-checkpoints 1
check 'without a save' test "$(echo keep/iter_*)" = keep/iter_0000030
expect 0 'saves without optimizer' train --save light --exit-interval 10 \
    --no-save-optim
check 'which is smaller' test ! -e \
    light/iter_0000010/optimizer_exp_avg_tp00_pp00.safetensors
expect 3 'does not resume from it by itself' train --load light
err_has 'holds no optimizer state'
expect 0 'but with --no-load-optim' train --load light --no-load-optim
expect 0 'finetunes' train --load whole --finetune --save tuned
check 'from step 0' test "$(tracker tuned)" = 30
expect 2 'another schedule is an error' train --load part --lr 0.02 \
    --train-iters 40
err_has '--lr: max_lr is 0.02 here and 0.01 in'
expect 0 'unless it is to override' train --load part --lr 0.02 \
    --train-iters 40 --override-opt_param-scheduler --clip-grad 0.5
err_has ' had: lr 0.01 -> 0.02, clip-grad 1 -> 0.5'
expect 0 'the schedule as it was, in other words' train --load part \
    --lr-decay-iters 30 --global-batch-size 4
check 'is no change' sh -c '! grep "other options than the run of" err'
expect 0 'the batch of one microbatch' train --load cut --global-batch-size 0 \
    --train-iters 60 --override-opt_param-scheduler --muon-tp-mode distributed
check 'is told alone, as a number' grep -q \
    'than the run of .* had: global-batch-size 4 -> 2$' err
expect 0 'or the checkpoint is to' train --load part --lr 0.02 \
    --train-iters 40 --use-checkpoint-opt_param-scheduler
check 'nothing is said to have changed' \
    sh -c '! grep "other options than the run of" err'
gpt-train --print-config >config
check 'every option that is compared is one' sh -c "
    sed -n 's/^    {\"\([a-z0-9-]*\)\", [tf][a-z]*},\$/\1/p' \
        '$top/cmd/train/changes.c' >rows
    [ -s rows ] && while read -r name; do
        grep -qE \"^(# )?\$name =\" config || { echo \$name; exit 1; }
    done <rows"
expect 2 'another model is an error' train --load part --hidden-size 32
err_has 'its model has hidden_size 16, the options say 32'
expect 7 'no run writes over another' train --save whole
err_has 'holds checkpoints of another run'
expect 7 'nor does one that finetunes' train --load whole --save whole --finetune
err_has 'continue it with --load whole and without --finetune'
expect 0 'without --force' train --save tuned --force
expect 2 'threads beyond all machines' \
    env OMP_NUM_THREADS=99999 gpt-train --dry-run
err_has 'OMP_NUM_THREADS: 99999 threads, at most 4096'
# What is left of the run before would be resumed where the new one is damaged.
cp -r tuned forced
mv forced/iter_0000030 forced/iter_0000040
ln -sfn iter_0000040 forced/best
expect 0 'which replaces that run' train --save forced --force
check 'its checkpoints are gone' test ! -e forced/iter_0000040
check 'and so is the link to its best one' test ! -L forced/best
check 'the new ones are there' test "$(tracker forced)" = 30
expect 0 'a run of three checkpoints' train --save branch --save-interval 10
expect 0 'one that goes on from an iteration there' train --force \
    --load branch/iter_0000010 --save branch --exit-interval 20
check 'keeps it' test -e branch/iter_0000010/manifest.json
check 'and replaces those after it' test ! -e branch/iter_0000030
expect 0 'loads other data with a warning' train --load minutes --seed 99
err_has 'its run had other data'
expect 0 'a longer run of the same epoch' train --load minutes \
    --train-iters 40 --exit-interval 2
check 'has the same samples' sh -c '! grep "its run had" err'
expect 0 'one of more epochs' train --load minutes --train-iters 4000 \
    --exit-interval 2
err_has 'its run had another length, and this one reads its data in another'
err_has '4 samples count as read'

# A directory without its tracker is no empty one.
cp -r whole untracked
rm untracked/latest_checkpointed_iteration.txt
cp untracked/iter_0000030/manifest.json before
expect 0 'a run whose tracker was lost' train --load untracked --save untracked \
    --train-iters 40
err_has 'using untracked/iter_0000030 instead'
check 'keeps its checkpoint' cmp before untracked/iter_0000030/manifest.json
rm untracked/latest_checkpointed_iteration.txt
expect 7 'another run does not write over it' train --save untracked
# Iterations after the tracked one are those that a user went back from.
expect 0 'a run of four checkpoints' train --save back --save-interval 10
echo 20 >back/latest_checkpointed_iteration.txt
for f in back/iter_0000020/model*; do
    head -c 100 "$f" >stub && mv stub "$f"
done
expect 0 'a damaged one is not replaced by a later one' train --load back \
    --save back --exit-interval 15
err_has 'using back/iter_0000010 instead'
# One that cannot be looked at may be good: no older one is taken.
cp -r back unseen
newest=unseen/iter_0000030/manifest.json
rm -f "$newest"
ln -s manifest.json "$newest"
echo 30 >unseen/latest_checkpointed_iteration.txt
expect 4 'a checkpoint that cannot be seen' train --load unseen
err_has "$newest"

two_runs() {
    signalled TERM busy >/dev/null || return 1
    wait $pid
    train_exec --train-iters 100000 --save busy --load busy --eval-iters 0 \
        2>/dev/null &
    pid=$!
    until_true 60 grep -qx "$pid" busy/.lock
    train --save busy --load busy 2>err
    status=$?
    kill -TERM $pid
    wait $pid
    cat err
    [ $status = 7 ] && grep -q "another run saves there, process $pid" err
}
check 'two runs in one directory: the second names the first' two_runs

# A name that can be guessed is no way to another file.
mkdir linked
echo precious >victim
ln -s ../victim linked/.lock
expect 4 'a lock that is a link' train --save linked
err_has '.lock: is a link or no regular file'
rm linked/.lock
ln victim linked/.lock
expect 4 'or a second name' train --save linked
check 'the file is as it was' test "$(cat victim)" = precious
rm linked/.lock
: >empty
ln -s ../empty linked/metrics.jsonl
expect 4 'metrics that are a link' train --save linked
err_has "metrics.jsonl' is a symbolic link"
check 'the file is as it was, again' test ! -s empty

# ---- memory, plan ----
expect 0 '--dry-run needs no data' gpt-train --config gpt2-124m \
    --vocab-size 50257 --dry-run
out_has 'rank (0, 0): 124475904'
out_has '(size: 50257) with 47 dummy tokens (new size: 50304)'
check 'and prints memory by kind' test "$(grep -cE '^   [a-z ]+ +[0-9]+ bytes' \
    out)" = 12
expect 0 'quiet does not silence the plan' gpt-train --config gpt2-124m \
    --vocab-size 50257 --dry-run -q
out_has 'rank (0, 0): 124475904'
check 'other presets' test "$(for p in 345m 774m 1.5b; do
    gpt-train --config gpt2-$p --vocab-size 50257 --dry-run 2>&1 |
        sed -n 's/.*rank (0, 0): //p'; done | tr '\n' ' ')" = \
    '354871296 774090240 1557686400 '
# shellcheck disable=SC2086 # word lists
expect 0 'batches grow' gpt-train $common $data_options --train-samples 60 \
    --rampup-batch-size 2 2 24 --log-interval 1
check 'as told' test "$(sed -n 's/.*global batch size: *\([0-9]*\).*/\1/p' err |
    sort | uniq -c | awk '{ print $2 }' | tr '\n' ' ')" = '4 2 4 ' -o \
    "$(grep -cE 'global batch size: +2 ' err)" = 12
# 16 tokens a sample: 2 samples a step up to 8, 6 up to 20, then 4
steps() { # samples file options...: appends the batches and losses
    n=$1 to=$2
    shift 2
    # shellcheck disable=SC2086 # word lists
    expect 0 "a schedule of batches, $n samples" gpt-train $common \
        $data_options --global-batch-size 0 --train-samples "$n" \
        --step-batch-size-schedule "0:2, 0.32K:4 128:6" --lr-decay-style \
        constant --log-interval 1 "$@"
    sed -n 's/.*global batch size: *\([0-9]*\) |.*lm loss: \([^ ]*\).*/\1 \2/p' \
        err >>"$to"
}
steps 30 at-once
check 'of the sizes told' test "$(cut -d' ' -f1 at-once | tr '\n' ' ')" = \
    '2 2 2 2 6 6 4 4 '
steps 14 parts --save stepped
steps 30 parts --save stepped --load stepped
check 'resumes in the middle' cmp parts at-once
# shellcheck disable=SC2086 # word lists
expect 2 'a size that does not divide' gpt-train $common $data_options \
    --global-batch-size 0 --train-samples 9 --step-batch-size-schedule 0:4 48:3
err_has 'the batch of 3 must be a multiple of micro batch'


# ---- what is kept, and what replaces a preset ----
# shellcheck disable=SC2086 # word lists
expect 0 'a run without --save' gpt-train $common $data_options --train-iters 1
check 'says so at its start and at its end' test "$(grep -c 'save DIR' err)" = 2
# shellcheck disable=SC2086 # word lists
expect 0 'the preset has --lr-warmup-fraction' gpt-train --config gpt2-124m \
    --vocab-size 9 --lr-warmup-iters 2000 --print-config
out_has 'lr-warmup-fraction = 0 '
expect 0 'the preset has --min-lr' gpt-train --config gpt2-124m \
    --vocab-size 9 --lr 1e-9 --print-config
cp out gave-way.conf
expect 0 'what is printed runs' gpt-train --config ./gave-way.conf --dry-run
expect 2 'two of one source contradict' gpt-train --vocab-size 9 --lr 1 \
    --train-iters 9 --lr-warmup-iters 2 --lr-warmup-fraction 0.1 --dry-run
err_has '--lr-warmup-fraction excludes'

expect 5 'more memory than there is' train --num-layers 4096 \
    --hidden-size 16384 --micro-batch-size 4
err_has 'this machine has'

# ---- documents, vocabulary files ----
expect 0 'masks and resets at the end of documents' train --eod-mask-loss \
    --reset-position-ids --reset-attention-mask --metrics masks.jsonl
check 'change the loss' test "$(head -n 1 masks.jsonl | cut -d, -f3)" != \
    "$(head -n 1 whole/metrics.jsonl | cut -d, -f3)"
expect 0 'makes a vocabulary' gpt-vocab --input corpus.jsonl \
    --vocab-size 300 --output-prefix v
expect 0 'and its data set' gpt-preprocess --input corpus.jsonl \
    --output-prefix bpe --vocab-file v-vocab.json --merge-file v-merges.txt \
    --append-eod
# shellcheck disable=SC2086 # word lists
expect 0 'trains with vocabulary files' gpt-train $common --train-iters 5 \
    --vocab-file v-vocab.json --merge-file v-merges.txt --eod-mask-loss \
    --data-path bpe_text_document --save files
check 'which the checkpoint keeps' cmp v-vocab.json files/iter_0000005/vocab.json
check 'both' cmp v-merges.txt files/iter_0000005/merges.txt
# shellcheck disable=SC2086 # word lists
expect 2 'masks need the end-of-document token' gpt-train $common \
    --vocab-size 300 --data-path bpe_text_document --train-iters 5 \
    --eod-mask-loss
err_has '--eod-mask-loss needs'
expect 0 'an output layer of its own, saved and loaded' train --save untied \
    --untie-embeddings-and-output-weights --exit-interval 7
expect 0 'to the end' train --save untied --load untied \
    --untie-embeddings-and-output-weights

# ---- wrong use ----
wrong() { # text option...
    wrong_text=$1
    shift
    expect 2 "refuses $*" train "$@"
    err_has "$wrong_text"
}
wrong 'did you mean' --num-layer 2
wrong 'num-layers' --num-layers 0
wrong 'hidden-dropout' --hidden-dropout 1.5
wrong 'hidden' --num-attention-heads 3
wrong 'num_query_groups' --num-query-groups 4
wrong 'seq-length' --max-position-embeddings 8
wrong 'global' --global-batch-size 3
wrong 'exclude each other' --train-samples 100
wrong '--rampup-batch-size takes START INCREMENT SAMPLES' --rampup-batch-size 2
wrong '--rampup-batch-size needs --train-samples' --rampup-batch-size 2 2 24
err_has '30 steps are --train-samples 96'
wrong '--step-batch-size-schedule needs --train-samples' \
    --step-batch-size-schedule 0:2 48:4 --global-batch-size 0
wrong "--step-batch-size-schedule: '0=2' is no step" \
    --step-batch-size-schedule '0:2,0=2' --global-batch-size 0
wrong 'and --global-batch-size exclude each other' \
    --step-batch-size-schedule '0:2 48:4'
err_has 'leave --global-batch-size out'
wrong 'a batch has 1 to 16777216 samples' --global-batch-size 0 \
    --step-batch-size-schedule 0:16.8M
# shellcheck disable=SC2086 # word lists
expect 2 'fewer samples than the first batch' gpt-train $common $data_options \
    --global-batch-size 0 --train-samples 3 --step-batch-size-schedule 0:4 48:6
err_has '--train-samples 3 is below one batch of 4'
wrong 'the first step begins at sample 62' --global-batch-size 0 \
    --step-batch-size-schedule 1K:2
wrong '--vocab-size 100 is below' --vocab-size 100
wrong 'lr-decay-style' --lr-decay-style quadratic
wrong 'warm' --lr-warmup-iters 31
wrong '--start-weight-decay' --weight-decay-incr-style linear
wrong '--finetune needs --load' --finetune
wrong '--train-iters goes with --lr-warmup-iters' --lr-warmup-samples 8
# shellcheck disable=SC2086 # word lists
expect 2 'needs a length' gpt-train $common $data_options
# shellcheck disable=SC2086 # word lists
expect 2 'needs a vocabulary' gpt-train $common --data-path $data \
    --train-iters 1 --load whole
err_has 'the vocabulary size is not known'
err_has '--use-checkpoint-args takes them'
expect 5 'refuses a device that is not there' train --device quantum
expect 4 'refuses a checkpoint that is not there' train --load nowhere

# ---- hostile data ----
# shellcheck disable=SC2086 # word lists
expect 3 'a token past the vocabulary' gpt-train $common --vocab-size 100 \
    --data-path $data --train-iters 30
err_has data_text_document
cp $data.bin lie.bin
cp $data.idx lie.idx
printf '\377\377\377\177' | dd of=lie.idx bs=1 seek=40 conv=notrunc 2>/dev/null
expect 3 'an .idx that lies' train --data-path lie
err_has lie
head -c 100 $data.bin >short.bin
cp $data.idx short.idx
expect 3 'a .bin that is short' train --data-path short
expect 4 'a data set that is not there' train --data-path missing

# ---- hostile checkpoints ----
copy_of() { rm -rf hurt && cp -r "$1" hurt && rm -f hurt/.lock; }
copy_of minutes
f=hurt/iter_0000001/model_tp00_pp00.safetensors
head -c 2000 minutes/iter_0000001/model_tp00_pp00.safetensors >$f
expect 3 'a checkpoint cut short' train --load hurt
err_has model_tp00_pp00.safetensors
copy_of minutes
dd if=/dev/zero of=$f bs=1 seek=3000 count=1 conv=notrunc 2>/dev/null
printf '\125' | dd of=$f bs=1 seek=3001 conv=notrunc 2>/dev/null
expect 3 'a checkpoint with some bits changed' train --load hurt
err_has model_tp00_pp00.safetensors
copy_of whole
rm hurt/iter_0000030/model_tp00_pp00.safetensors
expect 0 'falls back to the one before' train --load hurt --save hurt
err_has 'iteration 20'
check 'and makes the same end again' same_weights hurt
printf 'my notes\n' >notes
expect 3 'does not take any file for metrics' train --metrics notes
check 'nor touch it' test "$(cat notes)" = 'my notes'

# ---- output that cannot be written ----
printf x >file
expect 4 'a directory that cannot be made' train --save file/dir
err_has "'file' is no directory"
if [ "$(id -u)" != 0 ]; then
    mkdir closed && chmod 555 closed
    expect 4 'a directory that cannot be written' train --save closed
fi
limited() { (ulimit -f 40; train "$@"); }
expect 4 'a save that fails' limited --save limited --save-interval 5
err_has 'steps 1 to 5 are lost: there is no checkpoint'
expect 4 'a save in the background that fails' limited --save limited-async \
    --save-interval 5 --async-save
check 'loses steps, too' grep -q \
    'steps 1 to [0-9]* are lost: there is no checkpoint' err
# shellcheck disable=SC3045 # dash and bash have it; else the test is left out
if (ulimit -v 90000 && gpt-train --version) 2>/dev/null | grep -q oneDNN; then
    narrow() { (ulimit -v 90000; GPT_CPU_MATMUL=dnnl train "$@"); }
    expect 5 'no room for the code of products' narrow --train-iters 1
    err_has 'of address space (ulimit -v)'
    narrow_bf16() { # limits: whatever there is room for, no signal ends it
        for limit; do
            status=0
            # shellcheck disable=SC3045
            (ulimit -v "$limit"; ulimit -c 0
                GPT_THREADS=1 GPT_CPU_MATMUL=dnnl gpt-train --mock-data \
                    --config gpt2-tiny --vocab-size 500 --bf16 --lr 0.001 \
                    --train-iters 1 --eval-iters 0) || status=$?
            [ $status = 0 ] || [ $status = 5 ] || return 1
        done
    }
    check 'nor for that of bf16' narrow_bf16 112000 114000 116000 118000 120000 \
        122000 124000 126000
else
    skip 'this build does not start with so little address space, or needs less'
fi
cp $data.idx late.idx
cp $data.bin late.bin
printf '\377\377' | dd of=late.bin bs=1 seek=3000 conv=notrunc 2>/dev/null
expect 3 'nor can the steps before a bad sample be saved' limited \
    --data-path late --train-iters 200 --save limited-late --async-save
check 'which is told' grep -q 'warning: the save of iteration' err
err_has 'are lost: there is no checkpoint; '
ln -s nowhere dangling
expect 4 'a directory that is a link to nothing' train --save dangling
err_has "cannot make directory 'dangling': a symbolic link to nothing"
full_disk() { # every write of a save fails in its turn
    total=$(GPT_FAULT=count train --save count --exit-interval 12 2>&1 |
        sed -n 's/^faults:.* write \([0-9]*\).*/\1/p')
    [ "$total" -gt 3 ] || return 1
    for n in 2 3 $((total / 2)) $((total - 1)) "$total"; do
        rm -rf full && cp -r minutes full && rm -f full/.lock
        GPT_FAULT=write:$n:ENOSPC train --save full --load full \
            --exit-interval 12 2>err
        status=$?
        echo "write $n of $total: status $status"
        cat err
        [ $status = 4 ] || [ $status = 0 ] || return 1
        find full | grep -i tmp && return 1
        train --load full --exit-interval 2 || return 1
    done
}
if [ -x "$BUILD/faults/gpt-train" ]; then
    PATH=$BUILD/faults:$PATH
    check 'a full disk: status 4, the last checkpoint intact' full_disk
else
    skip 'build/faults/gpt-train is not built'
fi

# ---- divergence ----
expect 6 'a loss that is not finite ends the run' train --save lost --lr 900 \
    --clip-grad 0 --save-interval 1 --init-method-std 10 --lr-decay-style \
    constant --adam-eps 1e-30 --weight-decay 900 --train-iters 1000
err_has 'not finite'
check 'with its last checkpoint complete' test "$(tracker lost)" -ge 1

tap_done
