#!/bin/sh
# Ranks that meet: what they wait for is reported after 5 s, a signal ends the
# wait at once, and a rank that dies is named by the others, whoever serves the
# store.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/ranks.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

needs_gloo
make_data

# Waits until a file has a line with the text.
until_line() { # file text
    until_true 60 grep -F -e "$2" "$1"
    grep -F -e "$2" "$1"
}
# Sends a signal to $job; it ends soon, with that status. By itself it would
# wait for ten minutes.
ends_on() { # signal status file
    kill "-$1" "$job"
    until_true 30 has_ended "$job" || {
        kill -9 "$job"
        echo 'it goes on'
    }
    wait "$job"
    got=$?
    cat "$3"
    [ "$got" = "$2" ]
}
# A rank that is alone of two, in the background.
lonely() { # rank host
    next_port
    # shellcheck disable=SC2086 # a word list
    RANK=$1 WORLD_SIZE=2 MASTER_ADDR=$2 MASTER_PORT=$port gpt-train $tiny \
        --num-layers 2 --global-batch-size 2 --train-iters 2 2>err.lonely \
        >/dev/null &
    job=$!
}

lonely 1 127.0.0.1
check 'the store is not there: reported' until_line err.lonely \
    "waiting for the store of rank 0 at 127.0.0.1:$port (Connection refused)"
check 'SIGTERM ends the wait' ends_on TERM 143 err.lonely
check 'and is the reason' grep -F 'was stopped by SIGTERM' err.lonely

lonely 1 no-such-host.invalid
check 'a name that is not there: reported' until_line err.lonely \
    "waiting for the store of rank 0 at no-such-host.invalid:$port"
check 'SIGHUP ends the wait' ends_on HUP 129 err.lonely

lonely 0 127.0.0.1
check 'the other rank is not there: reported' until_line err.lonely \
    'waiting for a connection to rank 1'
check 'SIGTERM ends that wait, too' ends_on TERM 143 err.lonely

# a rank that is there twice, in place of another
next_port
twins=
for rank in 0 1 1; do
    # shellcheck disable=SC2086 # a word list
    RANK=$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port gpt-train \
        $tiny --num-layers 2 --global-batch-size 3 --train-iters 2 \
        2>"err.twin$rank" >/dev/null &
    twins="$twins $!"
done
# shellcheck disable=SC2086 # a word list
wait $twins
check 'a rank that is there twice is named by itself' \
    grep -F 'two processes are rank 1, one at 127.0.0.1 and one at' err.twin1
check 'and by the others' grep -F 'two processes are rank 1' err.twin0

# one that is started for a job that runs
next_port
# In the place of a shell of its own, so that $! is the program. The run ends by
# itself if the test is ended before it.
twin() { # rank
    # shellcheck disable=SC2086 # a word list
    exec env RANK="$1" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
        gpt-train $tiny --num-layers 2 --global-batch-size 2 \
        --train-iters 1000000 --log-interval 1 --exit-duration-in-mins 5
}
(twin 0) >/dev/null 2>err.run0 &
run0=$!
(twin 1) >/dev/null 2>err.run1 &
run1=$!
second() (
    twin 1
)
until_line err.run0 ' iteration        3/' >/dev/null
expect 2 'a second process of a rank of a job that runs ends' second
check 'with its reason' grep -F 'two processes are rank 1, one at' err
seen=$(grep -c ' iteration ' err.run0)
check 'the job goes on' until_line err.run0 " iteration $(
    printf %8d $((seen + 20)))/"
kill -TERM $run0 $run1
wait $run0
status0=$?
wait $run1
check 'until it is ended' test $status0 = 143
check 'and knows nothing of it' test "$(grep -c 'two processes' err.run0)" = 0

# two nodes
next_port
# shellcheck disable=SC2086 # a word list
node() { # rank
    exec gpt-launch --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 \
        --master-port "$port" --nproc-per-node 2 gpt-train $tiny \
        --num-layers 2 --global-batch-size 4 --train-iters 2
}
(node 1) >/dev/null 2>err.1 &
job=$!
check 'node 1 reports that it waits' until_line err.1 \
    "waiting for the store of the launcher at 127.0.0.1:$port"
check 'and ends on SIGTERM' ends_on TERM 143 err.1
next_port
(node 0) >/dev/null 2>err.0 &
job=$!
check 'node 0 reports that it waits' until_line err.0 \
    '[rank 0] gpt-train: info: waiting for a connection to rank'
check 'and ends on SIGTERM, with its ranks' ends_on TERM 143 err.0
next_port
(node 0) >/dev/null 2>err.0 &
job=$!
until_line err.0 'node 0 of 2: ranks 0 to 1 are started' >/dev/null
expect 2 'a launcher of a node that is there ends' sh -c "
    set -- --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 \
        --master-port $port --nproc-per-node 2
    gpt-launch \"\$@\" sleep 600 2>first &
    until grep -q 'node 1 of 2: ranks 2 to 3 are started' first ||
        [ \$((i += 1)) = 1200 ]; do sleep 0.05; done
    gpt-launch \"\$@\" echo never; status=\$?; kill \$!; wait
    exit \$status"
check 'with its reason' grep -F 'two processes are node 1' err
check 'without a rank' test ! -s out
kill $job
wait $job
next_port
(node 0) >/dev/null 2>err.0 &
job=$!
until_line err.0 'node 0 of 2: ranks 0 to 1 are started' >/dev/null
expect 2 'a node of another job ends alone' gpt-launch --nnodes 3 \
    --node-rank 2 --master-addr 127.0.0.1 --master-port "$port" true
check 'and the job goes on' kill -0 $job
expect 2 'a node that counts ranks in another way ends' gpt-launch --nnodes 2 \
    --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" true
err_has 'node 1 has --nnodes 2 --nproc-per-node 1, and the first one to come'
wait $job
check 'and so does the one that waits for it' test $? = 1
check 'which knows why' grep -F 'node 1 has --nnodes 2 --nproc-per-node 1' err.0
next_port
gpt-launch --master-addr 127.0.0.1 --master-port "$port" --nproc-per-node 2 \
    --log-dir alone sh -c 'echo begun; sleep 600' >/dev/null 2>&1 &
job=$!
until_line alone/rank-1.log begun >/dev/null
expect 2 'a second node of a job of one node ends' gpt-launch --nnodes 2 \
    --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" \
    --nproc-per-node 2 true
err_has 'and the first one to come --nnodes 1 --nproc-per-node 2'
check 'and that job goes on, too' kill -0 $job
kill $job
wait $job
next_port
(node 0) >/dev/null 2>err.0 &
job=$!
(node 1) >/dev/null 2>err.1
check 'two nodes meet' test $? = 0
check 'node 0 ends' wait $job
check 'node 1 reports its ranks' grep -F \
    "node 1 of 2: ranks 2 to 3 are started; the store is at 127.0.0.1:$port" \
    err.1
check 'and their end' grep -F 'node 1 of 2: its ranks have ended' err.1

# A launcher that serves the store and reports nothing, as torchrun's: a shell
# program that starts ranks under gpt-launch's store.
mkdir agent
cat >agent/run.sh <<'END'
echo $$ >agent/shell.$RANK
gpt-train "$@" 2>agent/err.$RANK &
echo $! >agent/pid.$RANK
wait $!
echo $? >agent/status.$RANK
END
# shellcheck disable=SC2086 # a word list
silent_launcher() { # options...
    rm -f agent/err.* agent/pid.* agent/status.*
    # the launcher sees a shell, which ends well: it has nothing to report
    gpt-launch --standalone --nproc-per-node "$n" sh agent/run.sh $tiny \
        --num-layers 2 --global-batch-size 4 --train-iters 20000 "$@" \
        >/dev/null 2>agent/log &
    job=$!
}
# The other ranks end and name the dead one.
others_name() { # dead others...
    dead=$1
    shift
    for r; do
        until_true 60 test -s "agent/status.$r" || {
            echo "rank $r goes on"
            return 1
        }
        cat "agent/err.$r"
        grep -qF "rank $dead: " "agent/err.$r" || return 1
    done
}
n=2
run=0
for layout in "--tensor-model-parallel-size 2" \
    "--pipeline-model-parallel-size 2" "" \
    "--data-parallel-sharding-strategy optim_grads"; do
    round=0
    while [ $round -lt "${GPT_TEST_KILLS:-1}" ]; do
        round=$((round + 1))
        run=$((run + 1))
        # shellcheck disable=SC2086 # a word list
        silent_launcher $layout --save "agent/$run" --save-interval 10 \
            --log-interval 100
        check "trains: ${layout:-data parallel}" begun "agent/$run"
        kill -9 "$(cat agent/pid.1)"
        check 'a rank is killed: the other one names it' others_name 1 0
        check 'by what was seen' grep -F 'ended without a word' agent/err.0
        kill -9 "$(cat agent/pid.0)" 2>/dev/null
        wait $job
        rm -rf "agent/$run"
    done
done
tap_done
