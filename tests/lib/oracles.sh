# shellcheck shell=sh
# Finds programs and files that tests compare with, if they are installed.
# Source it in the top folder of the tree, or with $top set to that.

# Sets $gpt2 to the folder of GPT-2's real vocabulary, or fails.
find_gpt2() {
    for gpt2 in "${GPT2_VOCAB_DIR:-}" "${top:-.}/../shared/data/gpt2"; do
        [ -n "$gpt2" ] && [ -f "$gpt2/vocab.json" ] &&
            [ -f "$gpt2/merges.txt" ] && return 0
    done
    gpt2=
    return 1
}

# The same, but ends the script with a skipped test.
need_gpt2() {
    find_gpt2 && return
    echo '1..0 # SKIP no vocabulary of GPT-2 (GPT2_VOCAB_DIR)'
    exit 0
}

# Sets $python to a Python with these modules; fails when one is missing.
find_python() { # "MODULE, MODULE..."
    python=${GPT_ORACLE_PYTHON:-python3}
    "$python" -c "import $1" 2>/dev/null
}

# The same, but ends the script with a skipped test when one is missing.
need_python() { # "MODULE, MODULE..." "words for them"
    find_python "$1" && return
    echo "1..0 # SKIP no $python with $2 (GPT_ORACLE_PYTHON)"
    exit 0
}

# What peers_*.sh that hold models against other programs begin with: sets $gpt2,
# $python with PyTorch and transformers, and $peers, the folder with the models.
need_peers() {
    need_gpt2
    need_python 'torch, transformers' 'torch and transformers'
    peers=${GPT_PEERS_DIR:-$build/peers}
    [ -d "$peers" ] && return
    echo "1..0 # SKIP no $peers (make bench-peers)"
    exit 0
}

# Runs a program that prints TAP; when it fails, shows its messages, too.
run_tap() { # command...
    oracle_log=$(mktemp) || exit 1
    oracle_status=0
    "$@" 2>"$oracle_log" || oracle_status=$?
    [ "$oracle_status" = 0 ] || tail -n 40 "$oracle_log" | sed 's/^/# /'
    rm -f "$oracle_log"
    return "$oracle_status"
}

# Runs a program as one test; its output becomes comments.
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
