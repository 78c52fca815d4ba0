#!/bin/sh
# A rank is killed within a step, under gpt-launch and under torchrun, in each
# layout: the other one names it and ends, within seconds, and so does the job.
# GPT_TEST_KILLS rounds of each (1), the rank and the moment drawn at random.
# torchrun is the one of GPT_ORACLE_PYTHON, or the one on PATH; it takes part
# when rounds are asked for, as it needs many seconds to start.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

needs_gloo
make_data
seed=${GPT_TEST_SEED:-$$}
echo "# GPT_TEST_SEED=$seed"
draw() { # below: sets $drawn
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}
now() { date +%s%N; }

cat >rank.sh <<'END'
echo $$ >pid.$RANK
exec gpt-train "$@" 2>err.$RANK
END
torchrun=$(command -v torchrun)
[ -z "${GPT_ORACLE_PYTHON:-}" ] ||
    torchrun=$(dirname "$GPT_ORACLE_PYTHON")/torchrun
launchers=gpt-launch
if [ -n "${GPT_TEST_KILLS:-}" ] && [ -x "$torchrun" ]; then
    launchers='gpt-launch torchrun'
fi
# shellcheck disable=SC2086 # word lists
start() { # launcher options...
    case $1 in
    torchrun) launcher="$torchrun --standalone --no-python --nproc-per-node 2" ;;
    *) launcher='gpt-launch --standalone --nproc-per-node 2' ;;
    esac
    shift
    rm -f pid.* err.* metrics.jsonl
    $launcher sh rank.sh $tiny --num-layers 2 --global-batch-size 4 \
        --train-iters 1000000 --metrics metrics.jsonl "$@" >out 2>log &
    job=$!
}
begun() { until_true 60 test -s metrics.jsonl; }
kill_one() {
    draw 2
    dead=$drawn
    other=$((1 - dead))
    survivor=$(cat pid.$other)
    draw 100
    sleep "$(printf '0.%02d' "$drawn")"
    at=$(now)
    kill -9 "$(cat pid.$dead)"
    until_true 60 has_ended "$survivor" || {
        echo "rank $other goes on"
        kill -9 "$survivor" $job
        return 1
    }
    took=$((($(now) - at) / 1000000))
    echo $took >>durations
    cat err.$other
    grep -q "error: rank $dead: " err.$other
}
job_fails() { wait $job && return 1 || :; }

: >durations
for launcher_name in $launchers; do
    for layout in '--tensor-model-parallel-size 2' \
        '--pipeline-model-parallel-size 2' '' \
        '--data-parallel-sharding-strategy optim_grads'; do
        round=0
        while [ $round -lt "${GPT_TEST_KILLS:-1}" ]; do
            round=$((round + 1))
            what="$launcher_name ${layout:-data parallel}"
            # shellcheck disable=SC2086 # a word list
            start "$launcher_name" $layout
            check "$what: trains" begun || cat log
            check "$what: the other rank names the dead one" kill_one
            check "$what: the job fails" job_fails
        done
    done
    sort -n durations | awk -v name="$launcher_name" '{ t[NR] = $1 } END {
        printf "# %s: %d kills, %d to %d ms, median %d\n", name, NR, t[1],
            t[NR], t[int((NR + 1) / 2)] }'
    : >durations
done
tap_done
