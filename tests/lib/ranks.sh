# shellcheck shell=sh
# Runs ranks of gpt-train in the background, for tests that kill or stop them.
# Source it after tap.sh and train.sh. $n is the number of ranks.

n=0
. "$top/tests/lib/port.sh"
# Starts ranks in the background; their messages go to err.RANK, their statuses
# to status.RANK. A word @RANK:WORD is for that rank only, and so are the
# variables in env.RANK and the address space in limit.RANK.
start() { # options...
    next_port
    rm -f err.* status.* pid.*
    r=0
    while [ $r -lt $n ]; do
        words="--data-path $data"
        [ -f data.$r ] && words="--data-path $(cat data.$r)"
        for word; do
            case $word in
            @"$r":*) words="$words ${word#@*:}" ;;
            @*) ;;
            *) words="$words $word" ;;
            esac
        done
        # shellcheck disable=SC2086 # word lists
        (
            env RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 \
                MASTER_PORT=$port sh -c 'echo $$ >pid.$RANK
                    [ -f env.$RANK ] && . ./env.$RANK
                    [ -f limit.$RANK ] && ulimit -v $(cat limit.$RANK)
                    exec "$@"' sh gpt-train ${tiny%--data-path*} \
                --num-layers 2 --global-batch-size 6 --train-iters 20000 \
                $words >/dev/null 2>err.$r </dev/null
            echo $? >status.$r
        ) &
        r=$((r + 1))
    done
}
end_all() {
    for pid in pid.*; do
        [ -f "$pid" ] && kill -9 "$(cat "$pid")" 2>/dev/null
    done
    wait
}
trap 'end_all; rm -rf "$scratch"' EXIT

begun() { until_true 60 test -s "$1/latest_checkpointed_iteration.txt"; }
pid() { cat "pid.$1"; }
# True when these ranks end soon, with a status, and all print a message. "Soon"
# is less than five seconds, and more on a machine with other work.
all_end() { # status text ranks...
    want=$1
    text=$2
    shift 2
    for r; do
        until_true 60 test -s "status.$r" || {
            echo "rank $r goes on"
            return 1
        }
        [ "$(cat "status.$r")" = "$want" ] || {
            echo "rank $r: status $(cat "status.$r")"
            cat "err.$r"
            return 1
        }
        grep -qF "$text" "err.$r" || {
            cat "err.$r"
            return 1
        }
    done
}
