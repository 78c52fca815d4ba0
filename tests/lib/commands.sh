# shellcheck shell=sh
# Commands that documents tell readers to type.

# Prints each "$ command" of a file, also of a manual page, joined with the
# lines after its backslashes.
commands() { # file
    sed 's/^\.Dl //; s/^"\(.*\)"$/\1/; s/^ *//; s/\\e$/\\/
        s/\\(dq/"/g' "$1" | awk '
        on || /^\$ / {
            sub(/^\$ /, "")
            on = sub(/\\$/, "")
            printf "%s%s", $0, on ? "" : "\n"
        }' | tr -s ' '
}
