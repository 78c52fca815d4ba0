#!/bin/sh
# gpt-launch: environment, lines, failures, signals, logs, two nodes.
# shellcheck disable=SC2016 # programs are for the shells that are started
. "$(dirname "$0")/../lib/tap.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

one() { gpt-launch --standalone "$@"; }

expect 0 'one copy' one echo hello
check 'after its rank' test "$(cat out)" = '[rank 0] hello'
check 'and says nothing else' test ! -s err

expect 0 'three copies' one --nproc-per-node 3 sh -c '
    echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK" \
        "$GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_USE_AGENT_STORE" \
        "$TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT"
    echo "to stderr $MASTER_PORT" >&2'
for r in 0 1 2; do
    echo "[rank $r] $r $r 3 3 0 1 127.0.0.1 True gpt-launch 0"
done >want
sort out >got
check 'have their variables' cmp got want
check 'one port for all' test "$(sed 's/.*stderr//' err | sort -u | wc -l)" = 1
err_has '[rank 2] to stderr'

expect 0 'options of the program are its own' one --nproc_per_node=1 \
    sh -c 'echo "$0 $*"' --grace -q -- --nproc-per-node 7
out_has '[rank 0] --grace -q -- --nproc-per-node 7'
expect 0 'after --, too' one -- sh -c 'echo "$1"' sh --help
out_has '[rank 0] --help'
expect 0 'standard input is empty' one --nproc-per-node 2 cat
check 'and nothing is written' test ! -s out

expect 0 'threads' one --nproc-per-node 2 --threads 3 \
    sh -c 'echo $OMP_NUM_THREADS $GPT_THREADS'
out_has '[rank 1] 3 3'
expect 0 'threads of the environment' env OMP_NUM_THREADS=7 gpt-launch \
    --standalone sh -c 'echo $OMP_NUM_THREADS; [ "$GPT_THREADS" -ge 1 ]'
out_has '[rank 0] 7'
expect 4 'no file of options' gpt-launch --config nothere true
check 'presets of gpt-train are none of its' sh -c '! grep presets err'
expect 0 'threads by cores' one --nproc-per-node 4096 --print-config
expect 0 'more ranks than cores' one --nproc-per-node 40 \
    sh -c 'echo $OMP_NUM_THREADS'
out_has '[rank 39] 1'

# 4 x 500 lines and half a line at the end: no line is split
expect 0 'many lines' one --nproc-per-node 4 sh -c '
    i=0
    while [ $i -lt 500 ]; do
        echo "line $i of $RANK ......................................."
        i=$((i + 1))
    done
    printf "no end $RANK"'
for r in 0 1 2 3; do
    i=0
    while [ $i -lt 500 ]; do
        echo "[rank $r] line $i of $r ......................................."
        i=$((i + 1))
    done
    echo "[rank $r] no end $r"
done | sort >want
sort out >got
check 'all whole' cmp got want
order() { sed -n 's/^\[rank 2\] line \([0-9]*\) .*/\1/p' out >seen &&
    sort -n seen | cmp - seen; }
check 'in order' order

# failures
expect 1 'no files for a store' sh -c \
    'exec 3>&- 4>&-; ulimit -n 5; exec gpt-launch --standalone true'
err_has "the store's server: Too many open files"
check 'a free port does not help' sh -c '! grep standalone err'
expect 5 'the status of the first failure' one --nproc-per-node 3 --grace 60 \
    sh -c '[ $RANK = 1 ] && exit 5; sleep 600; exit 6'
err_has 'rank 1 ended with status 5'
check 'the others are not named' sh -c '! grep "rank [02]" err'
expect 42 'any status' one sh -c 'exit 42'
expect 137 'a killed copy' one --nproc-per-node 2 \
    sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 600'
err_has 'rank 1 was killed by SIGKILL (9)'
err_has 'memory'
expect 3 'where ends of children are ignored' timeout -s KILL 60 \
    perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' gpt-launch --standalone \
    sh -c 'exit 3'
expect 139 'a crash' one sh -c 'kill -SEGV $$'
err_has 'SIGSEGV'
expect 3 'one that ignores SIGTERM is killed' one --nproc-per-node 2 \
    --grace 0.3 sh -c '[ $RANK = 0 ] && exit 3
    trap "" TERM; touch ignoring; for i in 1 2 3; do sleep 20; done'
expect 4 'a program that is not there' one --nproc-per-node 2 ./missing
err_has "cannot run './missing': No such file or directory"
launcher=$(command -v gpt-launch)
expect 4 'a program beside the launcher, not on PATH' \
    env PATH=/nowhere "$launcher" --standalone gpt-train
err_has 'it is beside gpt-launch: PATH='
expect 4 'a program that is nowhere' one gpt-trian
err_has 'no directory of PATH holds it'
expect 4 'a program that is none' one ./
expect 0 'a process that a copy started' one sh -c 'sleep 610 & echo $! >left'
check 'is killed' until_true 30 has_ended "$(cat left)"

# signals
start() { # program
    rm -f ready-* done-*
    gpt-launch --standalone --nproc-per-node 2 sh -c "$1" >out 2>err &
    pid=$!
    until_true 60 test -f ready-0 -a -f ready-1
}
waits='touch ready-$RANK; while :; do sleep 0.05; done'
for signal in TERM HUP USR2; do
    start "trap 'echo saved >done-\$RANK; exit 0' $signal; $waits"
    kill -$signal $pid
    wait $pid
    status=$?
    check "SIG$signal reaches all" test -f done-0 -a -f done-1
    check "and gpt-launch dies of it" test $status -gt 128
done
start "trap 'echo saved >done-\$RANK' USR1; touch ready-\$RANK
    while [ ! -f done-\$RANK ]; do sleep 0.05; done; exit 0"
kill -USR1 $pid
check 'SIGUSR1 reaches all, and they continue' wait $pid
check 'and all see it' test -f done-0 -a -f done-1
start "echo \$\$ >pid-\$RANK; $waits"
kill -KILL $pid
wait $pid 2>/dev/null
check 'copies do not outlive a killed gpt-launch' until_true 60 \
    has_ended "$(cat pid-1)"

# streams that nothing takes
expect 0 'a standard error that is full' sh -c 'gpt-launch --standalone \
    sh -c "echo said >&2; sleep 0.2; touch lasted" 2>/dev/full'
check 'ends no job' test -f lasted
expect 0 'one that nothing reads any more' sh -c '{ gpt-launch --standalone \
    sh -c "i=0; while [ \$i -lt 9 ]; do echo >&2; sleep 0.05; i=\$((i + 1))
        done; echo all >lasted"; echo $? >status; } 2>&1 | head -n 1
    exit $(cat status)'
check 'neither' test "$(cat lasted)" = all
expect 4 'a standard output that is full' sh -c 'gpt-launch --standalone \
    --nproc-per-node 2 sh -c "trap \"touch saved-\$RANK; exit 0\" TERM
        touch up-\$RANK; while [ ! -f up-1 ]; do :; done
        [ \$RANK = 1 ] || echo product
        while :; do sleep 0.05; done" >/dev/full'
err_has 'cannot write to standard output: No space left on device'
check 'asks the ranks to end' test -f saved-0 -a -f saved-1
expect 141 'ranks die of a broken pipe as ever' one sh -c 'kill -PIPE $$'

# logs
expect 0 'logs' one --nproc-per-node 2 --log-dir logs/a \
    sh -c 'echo out $RANK; sleep 0.1; echo err $RANK >&2; printf "last\0x"'
printf 'out 1\nerr 1\nlastx\n' >want
sort logs/a/rank-1.log >got
sort want -o want
check 'hold both streams, without prefix' cmp got want
expect 0 'the same line again' one --log-dir logs/a echo new
check 'appends, after a line that says so' test "$(sed 's/ at [0-9].*Z$//' \
    logs/a/rank-0.log | tail -n 2)" = "==== started again
new"
check 'and keeps what was there' grep -qx 'out 0' logs/a/rank-0.log
expect 0 '--force' one -f --log-dir logs/a echo new
check 'replaces them' test "$(cat logs/a/rank-0.log)" = new
# the rank writes all lines at once: it may be asked to end right after
seq 0 59 | sed 's/.*/line & of a long log/' >lines
expect 4 'a log that is full' sh -c '{ (ulimit -f 1
    gpt-launch --standalone --log-dir logs/full sh -c "
        trap \"echo asked to end >&2; exit 0\" TERM
        cat lines; while :; do sleep 0.05; done")
    echo $? >status; } | cat; exit $(cat status)'
err_has "to 'logs/full/rank-0.log': File too large; ending the ranks"
out_has '[rank 0] line 59 of'
err_has '[rank 0] asked to end'

# two nodes
. "$top/tests/lib/port.sh"
next_port
two() { # node program
    gpt-launch --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 \
        --master-port $port --nproc-per-node 2 --grace 1 sh -c "$2"
}
two 1 'echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE; touch there' >out1 \
    2>err1 &
expect 0 'node 0 of two' two 0 \
    'echo $RANK; until [ -f there ]; do sleep 0.05; done'
check 'node 1 of two' wait $!
sort out1 >got
printf '[rank 2] 2 0 1 4\n[rank 3] 3 1 1 4\n' >want
check 'ranks go on over nodes' cmp got want
two 1 '[ $RANK = 3 ] && exit 9; sleep 600' >out1 2>err1 &
expect 1 'node 0 ends' two 0 'sleep 600'
err_has 'rank 3 ended with status 9'
wait $!
check 'when node 1 fails' test $? = 9

# usage
expect 2 'no program' gpt-launch
err_has 'no program to start'
expect 2 'a node that is not there' gpt-launch --nnodes 2 --node-rank 2 \
    --master-addr a true
err_has '--node-rank: 2 is not below --nnodes 2'
expect 0 'as many nodes at least as at most' gpt-launch --nnodes 1:1 true
expect 2 'nodes that come and go' gpt-launch --nnodes 1:2 true
err_has '--nnodes: 1:2 is a range'
err_has 'write one number'
for n in 0 x 1:x 65537; do
    expect 2 "--nnodes $n" gpt-launch --nnodes $n true
    err_has '--nnodes: '
done
expect 2 'nodes without an address' gpt-launch --nnodes 2 true
err_has '--master-addr'
expect 2 'standalone with a port' one --master-port 1 true
err_has '--standalone'
expect 2 'no processes' gpt-launch --nproc-per-node 0 true
expect 2 'too many' gpt-launch --nproc-per-node 4097 --node-rank 1 true
err_has '4097 is out of range (1 to 4096)'
# the threads of a program wait in the same way as without gpt-launch
expect 0 'starts a program' env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY \
    gpt-launch --standalone --nproc-per-node 1 \
    sh -c 'echo "spins ${GOMP_SPINCOUNT-as ever}"'
out_has 'spins as ever'
tap_done
