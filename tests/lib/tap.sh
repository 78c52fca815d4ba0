# shellcheck shell=sh
# TAP for command line tests; tests/cli/*.sh source it. A script runs in its own
# scratch directory ($scratch, removed at the end), with the built programs
# first on PATH, and ends with `tap_done`.
#
#   expect 0 'makes a data set' gpt-preprocess --input a.jsonl ...
#   expect 3 'refuses half a file' gpt-train ...; err_has 'truncated'
#   check 'same bytes' cmp a b
#   until_true 60 test -s file
#   skip 'why' && ...

# Background jobs of a shell and nohup ignore signals, and sh cannot undo that:
# tests of signals would never end. perl also unblocks what a parent has blocked;
# without perl, env does the first alone.
if [ -z "${TAP_SIGNALS:-}" ]; then
    TAP_SIGNALS=default
    export TAP_SIGNALS
    perl -MPOSIX -e 1 2>/dev/null && exec perl -MPOSIX -e '
        $SIG{$_} = "DEFAULT" for qw(HUP INT QUIT TERM USR1 USR2 PIPE CHLD);
        sigprocmask(SIG_SETMASK, POSIX::SigSet->new());
        exec @ARGV' sh "$0" "$@"
    env --default-signal true 2>/dev/null &&
        exec env --default-signal sh "$0" "$@"
fi
unset TAP_SIGNALS

set -u
LC_ALL=C
export LC_ALL
umask 022
top=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-build}
case $BUILD in
/*) ;;
*) BUILD=$top/$BUILD ;;
esac
PATH=$BUILD:$PATH
GPT_DATADIR=$top/share
export BUILD PATH GPT_DATADIR
. "$top/tests/lib/oracles.sh"
unset GPT_FAULT NO_COLOR 2>/dev/null || :
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpt-test.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
cd "$scratch" || exit 1
tap_n=0
tap_failed=0

tap_result() { # status description
    tap_n=$((tap_n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $tap_n - $2"
    else
        tap_failed=$((tap_failed + 1))
        echo "not ok $tap_n - $2"
        return 1
    fi
}

# Runs a command; the exit status must be the expected one. Its output is left
# in $scratch/out and $scratch/err.
expect() { # status description command...
    tap_want=$1
    tap_what=$2
    shift 2
    tap_got=0
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || tap_got=$?
    tap_result "$([ "$tap_got" = "$tap_want" ]; echo $?)" "$tap_what" || {
        echo "# exit status $tap_got, want $tap_want: $*"
        sed 's/^/# /' "$scratch/err" | tail -n 20
        return 1
    }
}

# Runs any command; its success is the check.
check() { # description command...
    tap_what=$1
    shift
    "$@" >"$scratch/check.log" 2>&1
    tap_result $? "$tap_what" || {
        echo "# failed: $*"
        sed 's/^/# /' "$scratch/check.log" | tail -n 20
        return 1
    }
}

# Waits until a command succeeds, and fails when it never does. The limit is
# that of a failure: it is a minute where there is no reason for another, as a
# busy machine may take ten times as long as a quiet one.
until_true() { # seconds command...
    tap_tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tap_tries=$((tap_tries - 1))
        [ $tap_tries -gt 0 ] || return 1
        sleep 0.05
    done
}
# True when a process has ended. Where orphans are not reaped, a zombie has.
has_ended() { # pid
    ! grep -q '^State:.*[DRST] (' "/proc/$1/status"
}

# Checks that the stderr (stdout) of the last expect has a fixed string.
err_has() { check "error says '$1'" grep -qF -e "$1" "$scratch/err" ||
    { sed 's/^/# stderr: /' "$scratch/err" | tail -n 5; return 1; }; }
out_has() { check "output has '$1'" grep -qF -e "$1" "$scratch/out" ||
    { sed 's/^/# stdout: /' "$scratch/out" | tail -n 5; return 1; }; }

skip() { # why
    tap_n=$((tap_n + 1))
    echo "ok $tap_n # SKIP $1"
}

# Ends a script that starts several ranks where there is nothing to carry bytes
# between them.
needs_gloo() {
    gpt-train --version | grep -q ' Gloo' && return
    skip 'built without Gloo'
    tap_done
}

tap_done() {
    echo "1..$tap_n"
    [ "$tap_failed" = 0 ]
    exit $?
}
