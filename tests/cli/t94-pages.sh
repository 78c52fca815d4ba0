#!/bin/sh
# What manual pages say is so: defaults, choices, names of other programs,
# messages, exit statuses, numbers, fields of files. tests/lib/pages.pl reads
# the pages; the programs give the rest.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

if ! command -v perl >/dev/null; then
    skip 'perl is not installed'
    tap_done
fi
page() { perl "$top/tests/lib/pages.pl" "$@"; }
sources=$(find "$top/cmd" "$top/common" "$top/kernels" -name '*.[ch]' -o \
    -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

# ---- against the tables and the sources ----
for main in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${main%/main.c}")
    "$p" --complete=table >table
    check "$p: defaults and choices" page options "$top/man/$p.1" table
    "$p" --complete=foreign >foreign
    check "$p: names of other programs" page foreign "$top/man/$p.1" foreign
    # shellcheck disable=SC2086 # names without blanks
    check "$p: messages of DIAGNOSTICS" page messages "$top/man/$p.1" $sources
done

# The checks find what is wrong.
mkdir wrong
cp "$top"/man/* wrong
sed 's/12 by default/13 by default/; s/inverse-square-root/inverse/' \
    "$top/man/gpt-train.1" >wrong/gpt-train.1
gpt-train --complete=table >table
expect 1 'a wrong default is found' page options wrong/gpt-train.1 table
out_has '13 by default, the table says 12'
out_has 'the choice inverse-square-root is not named'
cat >wrong.1 <<'END'
.Sh DIAGNOSTICS
.It "the vocabulary has N tokens, not M: no other pair is seen F times"
.It "cannot open FILE"
END
# shellcheck disable=SC2086
expect 1 'a message that nothing prints is found' \
    page messages wrong.1 $sources
out_has "no string has 'no other pair is seen'"
printf '%s\n' '.Sh NAMES OF OTHER PROGRAMS' \
    '.\" The table of names, written by tests/lib/pages.pl update' \
    '.\" End of the table' >wrong.1
gpt-launch --complete=foreign >foreign
expect 1 'names that are not listed are found' page foreign wrong.1 foreign
check 'they are written' page update wrong.1 foreign
check 'and then listed' page foreign wrong.1 foreign

# ---- presets, and what README says that they take ----
names_presets() { # file
    for f in "$top"/share/presets/*.conf; do
        name=$(basename "$f" .conf)
        grep -qF -- "$name" "$1" || echo "$1 does not name the preset $name"
    done | { ! grep .; }
}
check 'README names the presets' names_presets "$top/README"
check 'gpt-train(1) names the presets' names_presets "$top/man/gpt-train.1"
# A row is: preset, millions of parameters, "M", GiB, "GiB", operations.
awk '/^    gpt.* GiB / { print $1, $2, $4, $6 }' "$top/README" >rows
check 'README says what presets take' [ "$(wc -l <rows)" -ge 4 ]
takes() { # preset millions GiB operations: at most 3 % from a dry run
    gpt-train --config "$1" --vocab-size 50257 --bf16 --micro-batch-size 4 \
        --global-batch-size 512 --world-size 1 --dry-run -q |
        awk -v m="$2" -v gib="$3" -v ops="$4" '
            function far(a, b) { return a > 1.03 * b || b > 1.03 * a }
            / number of parameters / { p = $NF / 1e6 }
            /^   total / { g = $2 / 2 ^ 30 }
            / floating point operations / { o = $5 }
            END { print p, g, o; exit far(p, m) || far(g, gib) || far(o, ops) }'
}
while read -r preset millions gib operations; do
    check "$preset takes that" takes "$preset" "$millions" "$gib" "$operations"
done <rows

# ---- the environment: what programs read, but what is for tests ----
# shellcheck disable=SC2086
cat $sources | grep -o 'getenv("GPT_[A-Z_]*")\|{"GPT_[A-Z_]*", {' |
    tr -dc 'A-Z_\n' | grep -v '^GPT_FAULT$\|^GPT_CUDA_EMU_\|^GPT_CUDA_PTX$' | sort -u >are_read
sed -n 's/^\.It Ev \(.*\)/\1/p' "$top/man/gpt.7" | tr ' ,' '\n\n' |
    grep '^GPT_' | sort -u >named
check 'gpt(7) names the variables that programs read' diff are_read named

# ---- numbers, as gpt(7) writes them ----
number() { # option text value
    check "$1 $2 is $3" sh -c "gpt-train --$1 $2 --print-config |
        grep -q '^$1 = $3 '"
}
for text in 1000 1e3 1K; do number train-iters $text 1000; done
number train-iters 1.5K 1500
number train-samples 0.5B 500000000
number train-iters 2M 2000000
number train-iters 1Ki 1024
number memory-limit 80G 80000000000
number memory-limit 80GB 80000000000
number memory-limit 80GiB 85899345920
number memory-limit 1e3 1000

# ---- fields of files ----
make_data
train="gpt-train $tiny --num-layers 1 --train-iters 2 --save-interval 1"
# shellcheck disable=SC2086 # a list of options
expect 0 'a checkpoint' $train --save ckpt --eval-iters 1 --split 8,1,1
keys() { # FILE: names of all fields, but those that are data
    tr ',{' '\n\n' <"$1" | sed -n 's/^[[:space:]]*"\([a-z_]*\)"[[:space:]]*:.*/\1/p' | sort -u
}
all_named() { # page FILE
    keys "$2" >fields
    [ "$(wc -l <fields)" -ge 5 ] || return 1
    while read -r field; do
        grep -qE "(^|[^a-z_])$field([^a-z_]|\$)" "$top/man/$1" ||
            echo "$1 does not name $field"
    done <fields | { ! grep .; }
}
check 'gpt-checkpoint(5) has the fields of manifest.json' \
    all_named gpt-checkpoint.5 ckpt/iter_0000002/manifest.json
check 'gpt-train(1) has the fields of metrics.jsonl' \
    all_named gpt-train.1 ckpt/metrics.jsonl
check 'gpt-dataset(5) has the fields of the .json' \
    all_named gpt-dataset.5 data_text_document.json

# Files that FILES of a page names, NNNNNNN and the like filled in.
for f in ckpt/latest_checkpointed_iteration.txt ckpt/iter_0000002 \
    ckpt/iter_0000002/model_tp00_pp00.safetensors ckpt/.lock \
    ckpt/iter_0000002/optimizer_exp_avg_tp00_pp00.safetensors \
    ckpt/iter_0000002/optimizer_exp_avg_sq_tp00_pp00.safetensors \
    data_text_document.bin data_text_document.idx data_text_document.json; do
    check "$f is made" test -e "$f"
done

# ---- exit statuses ----
# Ways to each status that a page names; one that has none here is a failure.
no_memory() { # program argument...: the first allocation fails
    program=$BUILD/faults/$1
    shift
    GPT_FAULT=alloc:1 "$program" "$@"
}
reach() { # program status
    input='--input corpus.jsonl --output-prefix'
    byte='--tokenizer-type ByteTokenizer'
    case $2 in
    2) "$1" --no-such-option; return ;;
    esac
    # shellcheck disable=SC2086 # lists of options
    case $1:$2 in
    gpt-vocab:0) gpt-vocab $input v0 --vocab-size 260 ;;
    gpt-vocab:1) no_memory gpt-vocab $input v1 --vocab-size 260 ;;
    gpt-vocab:3) gpt-vocab --input broken.jsonl --output-prefix v3 ;;
    gpt-vocab:4) gpt-vocab --input missing.jsonl --output-prefix v4 ;;
    gpt-vocab:7) gpt-vocab $input v0 --vocab-size 260 ;;
    gpt-preprocess:0) gpt-preprocess $input p0 $byte ;;
    gpt-preprocess:1) no_memory gpt-preprocess $input p1 $byte ;;
    gpt-preprocess:3)
        gpt-preprocess --input broken.jsonl --output-prefix p3 $byte ;;
    gpt-preprocess:4)
        gpt-preprocess --input missing.jsonl --output-prefix p4 $byte ;;
    gpt-preprocess:7) gpt-preprocess $input p0 $byte ;;
    gpt-dataset:0) gpt-dataset verify $data ;;
    gpt-dataset:1) no_memory gpt-dataset info $data ;;
    gpt-dataset:3) gpt-dataset verify half ;;
    gpt-dataset:4) gpt-dataset info missing ;;
    gpt-dataset:7) gpt-dataset head $data --output-prefix half ;;
    gpt-train:0) $train ;;
    gpt-train:1) no_memory $train ;;
    gpt-train:3) $train --data-path half ;;
    gpt-train:4) $train --data-path missing ;;
    gpt-train:5) $train --device no-device ;;
    gpt-train:6) $train --lr 1000 --train-iters 200 ;;
    gpt-train:7) $train --save ckpt ;;
    gpt-launch:0) gpt-launch true ;;
    gpt-launch:1) no_memory gpt-launch true ;;
    gpt-launch:3) gpt-launch sh -c 'exit 3' ;;
    gpt-launch:5) gpt-launch sh -c 'exit 5' ;;
    gpt-launch:7) gpt-launch sh -c 'exit 7' ;;
    gpt-launch:4) gpt-launch ./missing ;;
    gpt-report:0) gpt-report ckpt ;;
    gpt-report:1) no_memory gpt-report ckpt ;;
    gpt-report:3) gpt-report corpus.jsonl ;;
    gpt-report:4) gpt-report missing ;;
    gpt-report:7) gpt-report ckpt ;;
    gpt-reshape:0) gpt-reshape --load-path ckpt --save-path hf --to hf ;;
    gpt-reshape:1) no_memory gpt-reshape inspect ckpt ;;
    gpt-reshape:3) gpt-reshape inspect damaged ;;
    gpt-reshape:4) gpt-reshape --load-path missing --save-path r4 ;;
    gpt-reshape:7) gpt-reshape --load-path ckpt --save-path hf --to hf ;;
    gpt-generate:0) gpt-generate --load ckpt --prompt a --tokens 1 ;;
    gpt-generate:1) no_memory gpt-generate --load ckpt --prompt a ;;
    gpt-generate:3) gpt-generate --load damaged --prompt a ;;
    gpt-generate:4) gpt-generate --load missing --prompt a ;;
    gpt-generate:5)
        gpt-generate --load ckpt --prompt a --device no-device ;;
    gpt-generate:6) gpt-generate --load nan --no-verify --prompt a ;;
    gpt-generate:7)
        gpt-generate --load ckpt --prompt a --stats-file corpus.jsonl ;;
    *) return 99 ;;
    esac
}
reached() { # program status: out of the text of the page
    reach "$1" "$2" >out 2>err </dev/null
    status=$?
    [ "$status" = "$2" ] || { echo "exit status $status"; cat err; return 1; }
}
echo '{"text": "a' >broken.jsonl
cp data_text_document.idx half.idx
head -c 100 data_text_document.bin >half.bin
cp -r ckpt damaged
rm -r damaged/iter_0000001
: >damaged/iter_0000002/manifest.json
# Bytes 0xff make every float NaN. A file begins with the length of its header.
cp -r ckpt nan
perl -0777 -pi -e 'my $at = 8 + unpack "Q<", $_;
    substr($_, $at) = "\xff" x (length($_) - $at)' \
    nan/iter_0000002/model_tp00_pp00.safetensors
for main in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${main%/main.c}")
    statuses=$(page statuses "$top/man/$p.1")
    check "$p: the page names exit statuses" [ -n "$statuses" ]
    for status in $statuses; do
        case $status in
        *[!0-9]* | 1[0-9][0-9]) continue ;; # signals: t20-train.sh and others
        esac
        if [ "$status" = 1 ] && ! [ -x "$BUILD/faults/$p" ]; then
            skip "$p without faults: it does not fail"
            continue
        fi
        check "$p ends with $status" reached "$p" "$status"
    done
done
tap_done
