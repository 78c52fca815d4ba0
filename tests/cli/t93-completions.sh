#!/bin/sh
# Completions offer what the option tables say: bash's functions are driven as
# bash drives them, for every row of every program; fish answers by itself.
. "$(dirname "$0")/../lib/tap.sh"

mkdir dir bin work
PATH=$scratch/bin:$PATH
printf '#!/bin/sh\n' >bin/my-own-trainer
chmod +x bin/my-own-trainer
cd work || exit 1
mkdir parts
touch a.bin a.idx b_text_document.bin b_text_document.idx run.conf vocab.json

silent() { # command...: prints nothing, which would be what is wrong
    "$@" 2>&1 | { ! grep .; }
}
offered() { # program word...
    bash "$top/tests/lib/complete.bash" "$@" | sort -u | tr '\n' ' '
}
completes() { # description expected program word...
    what=$1 want=$2
    shift 2
    got=$(offered "$@")
    check "$what" [ "$got" = "$want" ] || echo "# $*: '$got'"
}

if ! command -v bash >/dev/null; then
    skip 'bash is not installed'
    tap_done
fi
for source in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${source%/main.c}")
    check "$p: bash offers what the table says" \
        silent bash "$top/tests/lib/complete.bash" "$p"
done

# ---- the same, written out ----
presets=$(cd "$top/share/presets" && ls ./g*.conf | sed 's/^..//; s/\.conf$//' |
    sort | tr '\n' ' ')
completes 'presets, after a first letter' "$presets" gpt-train --config g
completes 'presets of another letter' 'llama-tiny llama2-7b llama3-8b ' \
    gpt-train --config l
completes 'a file of options' 'run.conf ' gpt-train --config ru
completes 'no preset of another program' 'vocab.json ' gpt-vocab --config v
check 'none of them is an option' [ "$(offered gpt-vocab --config gpt2)" = '' ]
completes 'data sets by their prefix' 'a b_text_document parts ' \
    gpt-train --data-path ''
completes 'a second data set, after weights' 'b_text_document ' \
    gpt-train --data-path 0.3 a 0.7 b
completes 'a data set of a command' 'b_text_document ' gpt-dataset info b
completes 'directories only' 'parts ' gpt-train --save ''
completes 'a name with _' '--vocab_file ' gpt-train --vocab_f
completes 'its value' 'vocab.json ' gpt-train --vocab_file v
completes 'a value after =' 'cosine ' gpt-train --lr-decay-style = cos
completes 'in one word' '--lr-decay-style=cosine ' \
    gpt-train --lr-decay-style=cos
completes 'a form that turns a flag off' '--no-overlap-param-gather ' \
    gpt-train --no-overlap-p
completes 'a command' 'verify ' gpt-dataset ver
completes 'the command of gpt-reshape' 'convert diff globals inspect plan verify ' gpt-reshape ''
completes 'words after --' 'vocab.json ' gpt-reshape inspect -- v

# ---- gpt-launch: a program, then what that one offers ----
completes 'a program of these' 'gpt-train ' gpt-launch gpt-t
completes 'any other on PATH' 'my-own-trainer ' gpt-launch my-own-t
completes 'after options with values' 'gpt-train ' \
    gpt-launch --nproc-per-node 2 --standalone gpt-t
completes 'nothing typed: the programs of this package' \
    "$(cd "$top/cmd" && ls -d ./*/main.c | sed 's,^./\(.*\)/main.c,gpt-\1,' |
        sort | tr '\n' ' ')" gpt-launch ''
completes 'its own option before the program' '--standalone ' \
    gpt-launch --stand
check 'and not after it' [ "$(offered gpt-launch gpt-train --standal)" = '' ]
completes 'an option of the program' '--use-distributed-optimizer ' \
    gpt-launch --standalone gpt-train --use-dist
completes 'a value of it' 'cosine ' \
    gpt-launch --standalone gpt-train --lr-decay-style = cos
completes 'a data set for it' 'a ' gpt-launch gpt-train --data-path a
completes 'a program with a path' 'cosine ' \
    gpt-launch /usr/bin/gpt-train --lr-decay-style cos
completes 'files for other programs' 'vocab.json ' \
    gpt-launch my-own-trainer --vocab v

# ---- fish ----
fish_row() { # name kind offer choices other: commands that ask fish
    echo "complete -C '$p $1'"
    [ "$5" = - ] || echo "complete -C '$p $5'"
    [ "$3" != choices ] || echo "complete -C '$p $1 '"
}
if command -v fish >/dev/null; then
    HOME=$scratch
    export HOME
    for source in "$top"/cmd/*/main.c; do
        p=gpt-$(basename "${source%/main.c}")
        "$p" --complete=fish >c.fish
        "$p" --complete=table | grep '^--' >table
        {
            echo 'source c.fish'
            while IFS='	' read -r name _ kind offer choices other _; do
                fish_row "$name" "$kind" "$offer" "$choices" "$other"
            done <table
        } >ask.fish
        { cut -f1 table
          cut -f6 table | grep '^--'
          awk -F '\t' '$4 == "choices" {
              gsub(" ", "\n", $5)
              print $5 }' table; } | sort -u >want
        fish ask.fish 2>&1 | cut -f1 | sort -u >got
        check "$p: fish offers what the table says" \
            sh -c '[ -s want ] && ! comm -23 want got | grep .'
    done
    gpt-train --complete=fish >c.fish
    ask() { fish -c "source c.fish; complete -C '$1'" | cut -f1 | sort |
        tr '\n' ' '; }
    check 'fish: presets' \
        [ "$(ask 'gpt-train --config gpt2')" = "${presets#"${presets%%gpt2*}"}" ]
    check 'fish: data sets' \
        [ "$(ask 'gpt-train --data-path ')" = 'a b_text_document parts/ ' ]
    check 'fish: directories' [ "$(ask 'gpt-train --save ')" = 'parts/ ' ]
    gpt-launch --complete=fish >>c.fish
    check 'fish: an option of the program that is launched' \
        [ "$(ask 'gpt-launch gpt-train --use-dist')" = \
        '--use-distributed-optimizer ' ]
else
    skip 'fish is not installed'
fi
tap_done
