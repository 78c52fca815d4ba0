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
