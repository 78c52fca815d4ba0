#!/bin/sh
# Where a run's numbers go beside metrics.jsonl: TensorBoard's event files, and
# the standard input of a command.
. "$(dirname "$0")/../lib/tap.sh"

awk 'BEGIN { for (i = 0; i < 300; i++) printf "{\"text\":\"%d a b c\"}\n", i }' \
    >corpus.jsonl
expect 0 'a data set' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod
train() { (train_exec "$@"); } # option...
train_exec() { # the same for the background: $! is then the pid of gpt-train
    exec gpt-train --num-layers 1 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 16 --max-position-embeddings 16 --vocab-size 257 \
        --data-path d_text_document --micro-batch-size 2 \
        --global-batch-size 2 --lr 1e-3 --threads 1 --device cpu \
        --eval-interval 4 --eval-iters 1 --log-interval 1 --train-iters 8 "$@"
}

# ---- metrics of a run that ends within an interval ----
expect 0 'one interval is longer' train --save short --log-interval 100 \
    --eval-interval 100
check 'its last step has metrics' \
    grep -q '"iteration":8,"consumed_samples":16,"lm_loss":[1-9]' \
    short/metrics.jsonl
check 'and a line in the log' grep -q 'iteration  *8/ .* lm loss: [1-9]' err
expect 0 'one that is stopped between two lines' train --save short3 \
    --log-interval 2 --exit-interval 3 --eval-interval 100
check 'its last step has them, too' \
    grep -q '"iteration":3,"consumed_samples":6,' short3/metrics.jsonl
check 'once' test "$(grep -c 'iteration  *3/ ' err)" = 1

# ---- a command ----
expect 0 'a command gets the lines' train --save ckpt \
    --log-metrics-command "grep SigIgn /proc/self/status > ignored
    cat > got.jsonl; echo \$\$ > ended"
check 'all of them' cmp got.jsonl ckpt/metrics.jsonl
check 'there are some' test "$(wc -l <got.jsonl)" -ge 10
check 'the run waits for its end' test -s ended
check 'SIGPIPE and SIGXFSZ end it as any command' \
    test $((0x$(sed 's/.*[^0-9a-f]//' ignored) & 0x1001000)) = 0
expect 0 'a command that is wrong' train --log-metrics-command 'exit 3'
err_has "'exit 3' ended with status 3"
expect 0 'one that reads a line' train \
    --log-metrics-command 'head -n 1 > first; exec <&-; sleep 0.5'
check 'it got it' test "$(wc -l <first)" = 1
expect 0 'one that is killed' train --log-metrics-command 'kill -9 $$'
err_has 'was ended by SIGKILL'
# A command that does not read holds up nothing: 30 seconds are what it has.
train_exec --train-iters 3 --log-metrics-command 'sleep 100' >slow.log 2>&1 &
slow=$!
until_true 60 grep 'iteration *3/' slow.log
check 'one that does not read does not hold up steps' \
    grep -q 'iteration *3/' slow.log
kill -TERM $slow
wait $slow
check 'and a signal ends the wait for it' \
    grep -q 'has not ended; it is left alone' slow.log

# One that reads gets all lines, and may end.
rm -f got.jsonl
train_exec --train-iters 1000000 --metrics own.jsonl \
    --log-metrics-command 'sleep 0.5; cat > got.jsonl' >quick.log 2>&1 &
quick=$!
until_true 60 test -s own.jsonl
kill -TERM $quick
wait $quick
check 'after a signal, too, all lines are sent' cmp got.jsonl own.jsonl
check 'and the command ends' sh -c '! grep "has not ended" quick.log'

# ---- lines of another run ----
lines() { wc -l <own.jsonl; }
n=$(lines)
expect 7 'a new run with a file that has lines' train --metrics own.jsonl
err_has 'own.jsonl: holds lines of another run'
check 'leaves them' test "$(lines)" = "$n"
expect 0 'an evaluation' train --metrics own.jsonl --train-iters 0 --load ckpt
check 'adds its own' test "$(lines)" -gt "$n"
expect 0 'a run that goes on' train --metrics own.jsonl --load ckpt \
    --train-iters 9 --force
check 'writes none twice' test "$(grep -c '"iteration":9,' own.jsonl)" -le 2
expect 0 'what is forced' train --metrics own.jsonl --force
check 'replaces them' test "$(grep -c '"iteration":1,' own.jsonl)" = 1

# ---- TensorBoard ----
expect 0 'event files' train --tensorboard-dir tb/run --save tb-ckpt
check 'one file' test "$(ls tb/run/events.out.tfevents.* | wc -l)" = 1
expect 0 'a run that goes on begins another' train --train-iters 12 \
    --save tb-ckpt --load tb-ckpt --tensorboard-dir tb/run
check 'two files' test "$(ls tb/run/events.out.tfevents.* | wc -l)" = 2
early() { # says that nothing was loaded
    err_has "$1"
    check 'before anything is loaded' sh -c '! grep -q memory err'
}
expect 4 'a directory that cannot be' train --tensorboard-dir d_text_document.bin/x
early "cannot make 'd_text_document.bin/x': Not a directory"
expect 4 'a file in no directory' train --metrics none/m.jsonl
early "cannot create 'none/m.jsonl'"
expect 4 'a directory in place of a file' train --metrics .
early "cannot write '.': it is a directory"
expect 0 'but in one that the run makes' train --metrics made/m.jsonl --save made
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 closed
    expect 4 'a closed directory' train --tensorboard-dir closed/tb
    early "cannot write 'closed/tb': Permission denied"
fi
if "${GPT_ORACLE_PYTHON:-python3}" -c 'import tensorboard' 2>/dev/null; then
    cat >read.py <<'X'
import json, math
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator("tb/run")
a.Reload()
tags = {"lm_loss": ("lm loss", 1), "learning_rate": ("learning-rate", 1),
        "global_batch_size": ("batch-size", 1), "loss_scale": ("loss-scale", 1),
        "grad_norm": ("grad-norm", 1), "elapsed_ms": ("iteration-time", 1e-3),
        "validation_loss": ("lm loss validation", 1),
        "validation_ppl": ("lm loss validation ppl", 1)}
want = {}
for line in open("tb-ckpt/metrics.jsonl"):
    line = json.loads(line)
    step = line.pop("iteration")
    for k, v in line.items():
        tag, factor = tags.get(k, (k, 1))
        if v is not None:
            want.setdefault(tag, {})[step] = v * factor
n = 0
assert set(a.Tags()["scalars"]) == set(want), (a.Tags()["scalars"], want.keys())
for tag, values in want.items():
    got = {e.step: e.value for e in a.Scalars(tag)}
    assert got.keys() == values.keys(), (tag, got, values)
    for step, v in values.items():
        n += 1
        assert math.isclose(got[step], v, rel_tol=1e-5, abs_tol=0.06), (tag, step)
print(n, "values")
X
    expect 0 "TensorBoard's reader reads every tag and value back" \
        "${GPT_ORACLE_PYTHON:-python3}" read.py
    out_has values
else
    skip 'no python3 with tensorboard (GPT_ORACLE_PYTHON)' || :
fi
# The checksum of a length and of an event, known from the format's definition:
# the first event of each file is its version.
check 'the first event says the version' sh -c \
    'head -c 64 "$(ls tb/run/events.out.tfevents.* | head -n 1)" |
        grep -q "brain.Event:2"'
tap_done
