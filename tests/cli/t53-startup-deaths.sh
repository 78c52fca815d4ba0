#!/bin/sh
# A rank dies or hangs while the ranks meet, in twelve ways: the others end in
# time, and every one of them names it. GPT_TEST_DEATHS rounds of each (1), at
# moments that are drawn at random.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/port.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

needs_gloo
make_data
seed=${GPT_TEST_SEED:-$$}
echo "# GPT_TEST_SEED=$seed"

# Sets $moment, of up to half a second: ranks take about that long to meet.
draw_moment() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    moment=$(printf '0.%02d' $((seed / 65536 % 50)))
}
# Each rank reads what it does first from act.RANK, and its options of its own
# from more.RANK.
cat >rank.sh <<'END'
echo $$ >pid.$RANK
[ -f act.$RANK ] && . ./act.$RANK
more=
[ -f more.$RANK ] && more=$(cat more.$RANK)
exec gpt-train "$@" $more 2>err.$RANK
END
# shellcheck disable=SC2086 # a word list
start() { # minutes: how long the ranks wait for one that says nothing
    rm -f pid.* err.*
    gpt-launch --standalone --nproc-per-node 3 --grace 4 sh rank.sh $tiny \
        --num-layers 2 --global-batch-size 3 --train-iters 100000 \
        --metrics /dev/null --distributed-timeout-minutes "$1" \
        --distributed-step-timeout-minutes "$1" >/dev/null 2>log &
    job=$!
}
# The job fails, and all of its ranks end with it. Nothing but what is tested
# would end it within these minutes.
job_ends() {
    until_true 60 has_ended $job || {
        echo 'it goes on'
        kill -9 $job
        wait $job
        return 1
    }
    wait $job
    [ $? != 0 ]
}
# Every other rank that got so far as to print something names the rank.
all_name() { # rank
    for r in 0 1 2; do
        [ $r = "$1" ] || [ ! -s err.$r ] || grep -Eq "ranks? ([0-9]+, )*$1([^0-9]|\$)" err.$r || {
            echo "rank $r does not name rank $1:"
            cat err.$r
            return 1
        }
    done
    grep -Eq "ranks? ([0-9]+, )*$1" log err.*
}
dies() { # description rank
    if job_ends >end.log && all_name "$2" >>end.log; then
        result=0
    else
        result=1
    fi
    cat log err.* >>end.log 2>/dev/null
    rm -f act.* more.*
    check "$1" sh -c "cat end.log; exit $result"
}
signal_rank() { # signal rank
    draw_moment
    sleep "$moment"
    until [ -s pid."$2" ]; do sleep 0.02; done
    kill -"$1" "$(cat pid."$2")" 2>/dev/null
}

round=0
while [ $round -lt "${GPT_TEST_DEATHS:-1}" ]; do
    round=$((round + 1))
    for rank in 0 1; do
        start 5
        signal_rank KILL $rank
        dies "rank $rank is killed" $rank
        start 5
        signal_rank SEGV $rank
        dies "rank $rank crashes" $rank
        start 0.1
        signal_rank STOP $rank
        dies "rank $rank hangs" $rank
        echo "exit 9" >act.$rank
        start 5
        dies "rank $rank does not start" $rank
        echo '--no-such-option' >more.$rank
        start 5
        dies "rank $rank has a wrong option" $rank
        echo '--data-path missing' >more.$rank
        start 5
        dies "rank $rank cannot read the data" $rank
    done
done
tap_done
