#!/bin/sh
# Option table, manual page and completions name the same options; pages are
# well-formed, complete, and point to pages that exist.
. "$(dirname "$0")/../lib/tap.sh"

same() { # file file: the difference is the diagnosis
    diff -u "$1" "$2"
}

man_options() { # page: one --name a line, of every ".It Fl"
    grep '^\.It Fl' "$1" | tr ' ' '\n' | grep '^-[a-z]' | sed 's/^/-/' |
        sort -u
}

# An option without a letter is written '--name[', one with it '{-n,--name}';
# before the end there is a '=' where a value follows.
zsh_options() {
    grep -oE "('|,)--[a-z0-9-]+=?(\[|\})" "$1" | tr -d "',[}=" | sort -u
}

section() { # page title
    awk -v want=".Sh $2" '/^\.Sh/ { on = ($0 == want) } on' "$1"
}

has_sections() {
    for title in NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES \
        'EXIT STATUS' EXAMPLES DIAGNOSTICS 'SEE ALSO'; do
        grep -q "^\.Sh $title\$" "$1" || echo "no section $title"
    done | { ! grep .; }
}

names_exit_codes() {
    for code in 0 1 2 3 4 7; do
        section "$1" 'EXIT STATUS' | grep -qE "^\.It (.* )?$code( |\$)" ||
            echo "exit status $code is not named"
    done | { ! grep .; }
}

refers_to_gpt() {
    section "$1" ENVIRONMENT | grep -q '^\.Xr gpt 7'
}

# Pages outside the tree to which pages may refer.
system_pages='xz.1 gzip.1 zstd.1 sh.1 make.1 prove.1 jq.1 nohup.1 regex.7
signal.7 utf-8.7 sbatch.1 srun.1 mpirun.1 torchrun.1'

xrefs_exist() {
    sed -n 's/^\.Xr \([^ ]*\) \([0-9]\).*/\1.\2/p' "$1" | while read -r page; do
        [ -f "$top/man/$page" ] && continue
        case " $(echo $system_pages) " in
        *" $page "*) ;;
        *) echo "no page $page" ;;
        esac
    done | { ! grep .; }
}

# A command of .Dl that is wider than the text, 67 columns, is broken where its
# words end, and a shell then takes it for two.
commands_fit() {
    sed -n 's/^\.Dl //p' "$1" | sed -e 's/^"\(.*\)"$/\1/' -e 's/\\e/\\/g' \
        -e 's/\\(dq/"/g' -e 's/\\&//g' | { ! grep -E '^.{68}'; }
}

if command -v mandoc >/dev/null; then
    for page in "$top"/man/*.[157]; do
        check "mandoc -Tlint ${page##*/}" mandoc -Tlint -W warning "$page"
    done
else
    skip 'mandoc is not installed'
fi
for page in "$top"/man/*.[157]; do
    check "${page##*/} refers to pages that exist" xrefs_exist "$page"
    check "${page##*/} breaks no command" commands_fit "$page"
done

for source in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${source%/main.c}")
    page=$top/man/$p.1

    "$p" --complete=options | sort >table
    check "$p has options" test -s table
    man_options "$page" >in_page
    check "$p: manual page and table agree" same table in_page
    check "$p: the page has its sections" has_sections "$page"
    check "$p: the page names exit codes" names_exit_codes "$page"
    check "$p: the page leads to the common environment" refers_to_gpt "$page"

    # t93-completions.sh asks the shells; here scripts are only read.
    "$p" --complete=table | grep '^--' >rows
    { cat table; cut -f6 rows | grep '^--'; } | sort -u >with_negations
    "$p" --complete=bash >c.bash
    grep -oE "_names ' --[^']*'" c.bash | tr " '" '\n\n' | grep '^--[a-z]' |
        sort -u >names
    check "$p: bash completion and table agree" same table names
    check "$p: bash takes its completion" bash -n c.bash
    "$p" --complete=zsh >c.zsh
    zsh_options c.zsh >names
    check "$p: zsh completion and table agree" same with_negations names
    "$p" --complete=fish | sed -n 's/.* -l \([^ ]*\).*/--\1/p' | sort -u >names
    check "$p: fish completion and table agree" same with_negations names
    # A help text that has the first choice is taken to have them all. Others of
    # these have more values than the words that completions offer.
    "$p" --help >help
    "$p" --complete=table | grep -vE '^--(device|nproc-per-node|hardware)' |
        awk -F'\t' '$4 == "choices" { print $1, $5 }' |
        while read -r name words; do
            awk -v name="$name" 'substr($0, 1, 9) ~ /^ +-/ {
                    on = index(substr($0, 1, 8 + length(name)) " ", name " ") }
                on' help >text
            for word in $words; do
                grep -qwF -- "$word" text || echo "$name: $word"
            done
        done >not_named
    check "$p: --help names all choices" sh -c '! grep . not_named'
    for shell in zsh fish; do
        if command -v $shell >/dev/null; then
            "$p" --complete=$shell >c.$shell
            check "$p: $shell takes its completion" $shell -n c.$shell
        fi
    done
done
sed 's/decoder\.layers\.L\.//' "$top/man/gpt-checkpoint.5" >page
# Every parameter is on the page of the format.
names=$top/common/model/params_table.c
check 'gpt-checkpoint(5) has the names of all parameters' awk '
    NR == FNR { while (match($0, /[a-z_0-9.]+\.[{](weight|bias)/) ||
                       match($0, /[a-z_0-9]+\.[a-z_0-9.]+/)) {
                    name = substr($0, RSTART, RLENGTH)
                    both = sub(/[{].*/, "", name) > 0
                    if (both) { on[name "weight"]; on[name "bias"] }
                    else on[name]
                    $0 = substr($0, RSTART + RLENGTH) }
                next }
    !/^#/ && match($0, /"[a-z_0-9]+\.[a-z_0-9.]+"/) {
        name = substr($0, RSTART + 1, RLENGTH - 2); n++
        if (!(name in on)) { print name " is missing"; bad = 1 } }
    END { exit bad || n < 25 }' page "$names"

# Every key of what programs print as JSON is a word of their page.
keys_named() { # page: of what is in "out"; "config" and "state" are elsewhere
    sed 's/"config":{[^}]*}//; s/"state":.*"path"/"path"/; s/"[^"]*":"[^"]*"/&\n/g' out |
        grep -oE '"[a-z_0-9]+": *' | tr -d '": ' | sort -u >keys
    [ -s keys ] || return 1
    while read -r key; do
        grep -qwF -- "$key" "$top/man/$1" || echo "$1: no $key"
    done <keys | { ! grep .; }
}
shown() { # page command...
    page=$1
    shift
    expect 0 "JSON: $*" "$@"
    check "$page names its keys" keys_named "$page"
}
printf '{"text": "%s"}\n' one two three >json.jsonl
expect 0 'a data set' gpt-preprocess --input json.jsonl --no-provenance \
    --tokenizer-type ByteTokenizer --output-prefix json
set=json_text_document
shown gpt-dataset.1 gpt-dataset info $set --json
shown gpt-dataset.1 gpt-dataset stat $set --json --top 2 \
    --tokenizer-type ByteTokenizer
expect 3 'damage' gpt-dataset verify $set --json --eod 9
check 'gpt-dataset.1 names its keys, too' keys_named gpt-dataset.1
hf=$top/tests/golden/hf
shown gpt-reshape.1 gpt-reshape plan --load-path "$hf" --save-path none --json
shown gpt-reshape.1 gpt-reshape diff "$hf" "$hf" --json
shown gpt-reshape.1 gpt-reshape inspect "$top/tests/golden/trainer/accelerate" \
    --json
if [ -x "$BUILD/gpt-generate" ]; then
    model="--load $hf --vocab-size 66 --tokenizer-type NullTokenizer"
    # shellcheck disable=SC2086 # a word list
    expect 0 'statistics' gpt-generate $model --prompt '1 2' --tokens 2 \
        --stats-file stats
    mv stats out
    check 'gpt-generate.1 names their keys' keys_named gpt-generate.1
    # shellcheck disable=SC2086 # a word list
    shown gpt-generate.1 gpt-generate $model --perplexity megatron --prompt '1 2 3'
fi
shown gpt-train.1 gpt-train advise --config gpt2-124m --vocab-size 50257 \
    --gpus 2 --top 1 --json
check 'a size is a whole number' grep -qE '"memory_limit_bytes":[^0-9]*[0-9]+,' out
echo '{"iteration": 1, "lm_loss": 2}' >metrics.jsonl
shown gpt-report.1 gpt-report metrics.jsonl --json
tap_done
