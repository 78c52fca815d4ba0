# shellcheck shell=sh
# What tests compare with, where somebody has it. Sourced from the top of the
# tree, or with $top set to it.

# GPT-2's real vocabulary: sets $gpt2 to its folder, or fails.
find_gpt2() {
    for gpt2 in "${GPT2_VOCAB_DIR:-}" "${top:-.}/../shared/data/gpt2"; do
        [ -n "$gpt2" ] && [ -f "$gpt2/vocab.json" ] &&
            [ -f "$gpt2/merges.txt" ] && return 0
    done
    gpt2=
    return 1
}

# A Python with modules: sets $python, and fails when one is missing.
find_python() { # "MODULE, MODULE..."
    python=${GPT_ORACLE_PYTHON:-python3}
    "$python" -c "import $1" 2>/dev/null
}

# The same, or the end of a script that has nothing to compare with.
need_python() { # "MODULE, MODULE..." "words for them"
    find_python "$1" && return
    echo "1..0 # SKIP no $python with $2 (GPT_ORACLE_PYTHON)"
    exit 0
}

# A program that says TAP itself; what it says beside it is shown when it fails.
run_tap() { # command...
    oracle_log=$(mktemp) || exit 1
    oracle_status=0
    "$@" 2>"$oracle_log" || oracle_status=$?
    [ "$oracle_status" = 0 ] || tail -n 40 "$oracle_log" | sed 's/^/# /'
    rm -f "$oracle_log"
    return "$oracle_status"
}

# A program whose success is one test, and all that it says a comment.
run_one() { # description command...
    oracle_what=$1
    shift
    echo 1..1
    oracle_log=$(mktemp) || exit 1
    oracle_status=0
    "$@" >"$oracle_log" 2>&1 || oracle_status=1
    [ "$oracle_status" = 0 ] || printf 'not '
    echo "ok 1 - $oracle_what"
    sed 's/^/# /' "$oracle_log"
    rm -f "$oracle_log"
    return "$oracle_status"
}
