# Holds a program's completion for bash against its option table: sources what
# `PROGRAM --complete=bash` prints, then completes words as bash does, through
# COMP_WORDS. Prints what differs; nothing when all is right.
#
# usage: bash complete.bash PROGRAM             the whole table
#        bash complete.bash PROGRAM WORD...     what is offered for the last WORD
#
# The working directory holds what is offered where names of files are.
program=$1
shift
eval "$("$program" --complete=bash)"

offer() { # word...: fills COMPREPLY for the last one
    COMP_WORDS=("$program" "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    "_${program//-/_}"
}
sorted() { sort -u | tr '\n' ' '; }
offers() { # expected words, sorted; then the words
    local want=$1 got
    shift
    offer "$@"
    got=$(for word in "${COMPREPLY[@]}"; do echo "$word"; done | sorted)
    [[ $got == "$want" ]] || echo "$program $*: offers '$got', not '$want'"
}
includes() { # one word; then the words
    local want=$1 word
    shift
    offer "$@"
    for word in "${COMPREPLY[@]}"; do
        [[ $word == "$want" ]] && return
    done
    echo "$program $*: does not offer $want"
}

if (($# > 0)); then
    offer "$@"
    for word in "${COMPREPLY[@]}"; do echo "$word"; done
    exit
fi

# What the files of this directory are to each kind of value.
files=$(compgen -f | sorted)
dirs=$(compgen -d | sorted)
sets=$({ for f in *.idx; do echo "${f%.idx}"; done; compgen -d; } | sorted)
presets=$("$program" --complete=presets)

check_value() { # option, as it is written; then: kind offer choices
    local name=$1 kind=$2 want=
    case $3 in
    choices) want=$(tr ' ' '\n' <<<"$4" | sorted) ;;
    config) want=$({ echo "$presets"; compgen -f; } | grep . | sorted) ;;
    sets) want=$sets ;;
    dirs) want=$dirs ;;
    files) want=$files ;;
    esac
    offers "$want" "$name" ''
    offers "$want" --quiet "$name" ''
    [[ $kind == list ]] && offers "$want" "$name" a ''
    [[ $name == --* ]] || return
    offers "$want" "$name" =
    offers "$(for w in $want; do echo "$name=$w"; done | sorted)" "$name="
    if [[ $3 == choices ]]; then
        local first=${4%% *}
        includes "$first" "$name" = "${first:0:2}"
    fi
}

# Names with blanks would end the words of this test.
names=
rows=0
while IFS=$'\t' read -r name letter kind offer choices other aliases _; do
    [[ $name == --* ]] || continue
    rows=$((rows + 1))
    names="$names$name "
    under=--${name#--}
    under=--$(tr - _ <<<"${under#--}")
    spellings="$name $under"
    [[ $letter == - ]] || spellings="$spellings -$letter"
    includes "$name" "$name"
    includes "$under" "$under"
    if [[ $other != - ]]; then
        includes "$other" "$other"
        includes "--$(tr - _ <<<"${other#--}")" "--$(tr - _ <<<"${other#--}")"
        "$program" "$other" --print-config 2>&1 | grep -i 'unknown option'
    fi
    [[ $aliases == - ]] || for alias in $aliases; do
        includes "--$alias" "--$alias"
        spellings="$spellings --$alias"
    done
    if [[ $kind == flag ]]; then
        offer "$name" --
        ((${#COMPREPLY[@]} > 0)) || echo "$name: nothing is offered after it"
    else
        for spelling in $spellings; do
            check_value "$spelling" "$kind" "$offer" "$choices"
        done
    fi
done < <("$program" --complete=table)
((rows > 5)) || echo "$program has $rows rows"
offers "$(tr ' ' '\n' <<<"$names" | grep . | sorted)" --
offers "$(tr ' ' '\n' <<<"$names" | grep . | sorted)" --quiet -

# Words that are no options.
commands=$("$program" --complete=table | sed -n 's/^command\t//p')
words=$("$program" --complete=table | sed -n 's/^words\t//p')
case $words in
sets) want=$sets ;;
files) want=$files ;;
dirs) want=$dirs ;;
*) want= ;;
esac
if [[ $commands ]]; then
    offers "$(sorted <<<"$commands")" ''
    offers "$(sorted <<<"$commands")" --quiet ''
    offers "$want" "${commands%%$'\n'*}" ''
    offers "$want" --quiet "${commands%%$'\n'*}" ''
elif [[ $words ]]; then
    offers "$want" ''
fi
