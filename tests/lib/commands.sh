# shellcheck shell=sh
# Commands that documents tell readers to type.

# Prints each "$ command" of a file, joined with the lines after its
# backslashes; of a manual page those of EXAMPLES.
commands() { # file
    case $1 in
    *.[157]) awk '/^\.Sh/ { on = $2 == "EXAMPLES" } on' "$1" ;;
    *) cat "$1" ;;
    esac | sed 's/^\.Dl //; s/^"\(.*\)"$/\1/; s/^ *//; s/\\e$/\\/' | awk '
        on || /^\$ / {
            sub(/^\$ /, "")
            on = sub(/\\$/, "")
            printf "%s%s", $0, on ? "" : "\n"
        }' | tr -s ' '
}
