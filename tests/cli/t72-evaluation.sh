#!/bin/sh
# A run that looks at its model: several validation sets, bits a byte, tasks,
# samples, the best checkpoint, early stop, --eval-only. Figures are those of
# gpt-generate, weights those of a run that does not look.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

make_data
# A second language, in short documents of one sample each; and tasks.
awk 'BEGIN {
    x = 3
    for (i = 0; i < 8; i++) {
        text = ""
        for (j = 0; j < 5; j++) {
            x = (x * 1103 + 12345) % 65536
            text = text substr("abcdefghijklmnop", x % 16 + 1, 1) " "
        }
        printf "{\"text\":\"%s\"}\n", text
    }
}' >short.jsonl
expect 0 'short documents' gpt-preprocess --input short.jsonl \
    --output-prefix short --tokenizer-type ByteTokenizer
cat >words.jsonl <<'X'
{"text": "the cat sees the dog"}
{"context": "a red", "continuation": " dog"}
{"context": "the old house", "continuation": " r"}
X
cat >ends.jsonl <<'X'
{"ctx": "the cat", "endings": ["sees", "zzzz", "runs to"], "label": 0}
{"ctx": "a dog", "endings": ["qqq", "likes red", "9"], "label": "1"}
{"ctx": "to", "endings": ["a", "and the", "xy"], "label": 2}
X
printf 'the cat\na dog\n' >prompts.txt

rest="--num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 24
--micro-batch-size 1 --global-batch-size 4 --lr 0.01 --log-interval 1
--eval-interval 4 --eval-iters 2 --make-vocab-size-divisible-by 2 --threads 1
--tokenizer-type ByteTokenizer --train-iters 8"
common="$rest --split 80,20,0 --data-path $data"
looks="--valid-set short=short_text_document two=0.3 $data 0.7
short_text_document --score-set words.jsonl hella=ends.jsonl
--sample-prompts prompts.txt --sample-tokens 12 --sample-temperature 0"
train() { # option...
    # shellcheck disable=SC2086 # word lists
    gpt-train $common "$@"
}
same_weights() { # directory directory iteration
    for f in model optimizer_exp_avg optimizer_exp_avg_sq; do
        cmp "$1/iter_000000$3/${f}_tp00_pp00.safetensors" \
            "$2/iter_000000$3/${f}_tp00_pp00.safetensors" || return 1
    done
}
value() { # metrics iteration field
    sed -n "s/^{\"iteration\":$2,.*\"$3\":\([^,}]*\).*/\1/p" "$1" | tail -n 1
}
near() { # number number: to five digits
    awk "BEGIN { a = $1; b = $2; d = a - b; exit !(d * d <= 1e-10 * b * b) }"
}

# ---- the run is the same ----
expect 0 'a run that does not look' train --save plain --eval-iters 0
# shellcheck disable=SC2086 # a word list
expect 0 'one that does' train --save looked $looks --tensorboard-dir tb
check 'has the same weights' same_weights plain looked 8
check 'and the same losses' sh -c "grep -o '\"lm_loss\":[^,]*' plain/metrics.jsonl >a
    grep -o '\"lm_loss\":[^,]*' looked/metrics.jsonl >b && cmp a b"
cp err whole.log
# shellcheck disable=SC2086 # a word list
expect 0 'stopped' train --save part $looks --exit-interval 5
# shellcheck disable=SC2086 # a word list
expect 0 'and resumed' train --save part --load part $looks
check 'the weights are those' same_weights looked part 8
for f in metrics samples; do
    check "its $f are those of a run without a stop" sh -c \
        "for d in looked part; do
            grep -v lm_loss \$d/$f.jsonl >\$d.$f; done
        cmp looked.$f part.$f"
done

# ---- validation sets ----
check 'each set has its line' test "$(grep -c \
    'validation-short loss at iteration 4 | lm loss value: [0-9.E+-]* | lm loss PPL' \
    whole.log)" = 1
check 'and its field' test -n "$(value looked/metrics.jsonl 8 validation-two_loss)"
# shellcheck disable=SC2086 # a word list
expect 0 'the set as the only one' gpt-train $rest --load looked --eval-only \
    --valid-data-path short_text_document --metrics only.jsonl
# shellcheck disable=SC2086 # a word list
expect 0 'and with a name' gpt-train $rest --load looked --eval-only \
    --valid-set x=short_text_document --metrics named.jsonl
check 'has the same loss' test "$(value only.jsonl 8 validation_loss)" = \
    "$(value named.jsonl 8 validation-x_loss)"
# shellcheck disable=SC2086 # a word list
expect 0 "Megatron-LM's option" gpt-train $rest --train-data-path $data \
    --save numbered --multiple-validation-sets \
    --valid-data-path short_text_document $data
check 'calls sets by numbers' \
    grep -q '"validation-1_ppl"' numbered/metrics.jsonl
echo "{\"train\": [\"$data\"], \"valid\": [1, \"short_text_document\"]}" >per.json
# shellcheck disable=SC2086 # a word list
expect 0 'a file of data sets' gpt-train $rest \
    --per-split-data-args-path per.json --save per
check 'is the same data' test \
    "$(value per/metrics.jsonl 8 validation_loss)" = \
    "$(value numbered/metrics.jsonl 8 validation-0_loss)"
echo "{\"train\": \"$data\", \"valid\": \"1 short_text_document\"}" >text.json
# shellcheck disable=SC2086 # a word list
expect 0 'with texts in place of lists' gpt-train $rest \
    --per-split-data-args-path text.json --save text
check 'is the same data, too' test \
    "$(value text/metrics.jsonl 8 validation_loss)" = \
    "$(value per/metrics.jsonl 8 validation_loss)"
echo "{\"train\": \"$data\", \"validation\": []}" >text.json
# shellcheck disable=SC2086 # a word list
expect 3 'a key that is none' gpt-train $rest \
    --per-split-data-args-path text.json
err_has "text.json: 'validation' is none of train, valid and test"
# A plan without data knows what the samples of each set need.
planned() { # option...: bytes
    # shellcheck disable=SC2086 # a word list
    gpt-train $rest --dry-run --train-data-path none "$@" 2>&1 |
        sed -n 's/^   sample index *\([0-9]*\) bytes.*/\1/p'
}
alone=$(planned)
one=$(($(planned --valid-data-path none) - alone))
check "memory of a named set ($alone, $one)" test "$one" -gt 0 -a \
    "$(planned --valid-set a=none)" = $((alone + one))
check 'and of three' test "$((alone + 3 * one))" = \
    "$(planned --valid-set a=none b=none c=none)"
expect 2 'a set without a name' train --valid-set short_text_document
err_has 'write NAME=short_text_document'
expect 2 'a name that no log line has room for' train \
    --valid-set a123456789b123456789c123456789d123456789e=$data
err_has 'is longer than 40 characters'
expect 2 'a name without a data set' train --valid-set a=
err_has "nothing is after 'a='"
expect 2 'a name twice' train --valid-set a=$data a=$data
err_has 'the name a comes twice'
expect 2 'a weight' train --multiple-validation-sets
err_has 'needs --valid-data-path'

# ---- bits a byte: as gpt-generate's ----
expect 0 'documents of a sample each' train --load looked --eval-only \
    --document-samples --bos-token-id 256 --no-shuffle --metrics docs.jsonl \
    --valid-set short=short_text_document
expect 0 'the harness counts' gpt-generate --load looked --jsonl \
    --prompt-file short.jsonl --perplexity lm-eval
check 'the same bits a byte' near \
    "$(value docs.jsonl 8 validation-short_bits_per_byte)" \
    "$(sed -n 's/.*"bits_per_byte":\([^,}]*\).*/\1/p' out)"

# ---- tasks: as gpt-generate's ----
expect 0 'scores' gpt-generate --load looked --score --jsonl \
    --prompt-file words.jsonl
check 'accuracy and perplexity are the same' awk \
    -v acc="$(value looked/metrics.jsonl 8 score-words_acc)" \
    -v ppl="$(value looked/metrics.jsonl 8 score-words_ppl)" '
    /are greedy/ {
        sub(/.* tokens: /, ""); a = $1
        sub(/.*perplexity /, ""); p = $1
    }
    function differ(x, y, d) { d = x - y; return (d < 0 ? -d : d) > 1e-4 * y + 6e-5 }
    END { exit differ(acc, a) || differ(ppl, p) }' err
sed 's/{"ctx": \("[^"]*"\), "endings": \["\([^"]*\)", "\([^"]*\)", "\([^"]*\)"\].*/{"context": \1, "continuation": " \2"}\
{"context": \1, "continuation": " \3"}\
{"context": \1, "continuation": " \4"}/' ends.jsonl >each.jsonl
expect 0 'every ending' gpt-generate --load looked --score --jsonl \
    --prompt-file each.jsonl
check 'the right ones are counted' awk \
    -v acc="$(value looked/metrics.jsonl 8 score-hella_acc)" \
    -v norm="$(value looked/metrics.jsonl 8 score-hella_acc_norm)" '
    BEGIN { split("4 4 7 3 9 1 1 7 2", chars, " "); split("1 2 3", right, " ") }
    {
        match($0, /"logprob":[^,]*/)
        x = substr($0, RSTART + 10, RLENGTH - 10) + 0
        k = (NR - 1) % 3 + 1; line = int((NR - 1) / 3) + 1
        if (k == 1 || x > most) { most = x; best = k }
        if (k == 1 || x / chars[NR] > most_norm) { most_norm = x / chars[NR]; best_norm = k }
        if (k == 3) { hits += best == right[line]; hits_norm += best_norm == right[line] }
    }
    END {
        exit !(NR == 9 && (acc - hits / 3) ^ 2 < 1e-9 && (norm - hits_norm / 3) ^ 2 < 1e-9)
    }' out
echo '{"ctx": "a", "endings": ["b", "c"], "label": 2}' >bad.jsonl
expect 3 'a wrong label' train --score-set bad.jsonl
err_has 'bad.jsonl:1'
cat words.jsonl ends.jsonl >both.jsonl
expect 3 'two kinds of lines' train --score-set both.jsonl
err_has 'both.jsonl:4'

# ---- samples: as gpt-generate's ----
texts() { sed -n 's/.*"text":\("\([^"\\]\|\\.\)*"\).*/\1/p' "$1"; }
sed 's/.*/{"prompt":"&"}/' prompts.txt >prompts.jsonl
grep '^{"iteration":8,' looked/samples.jsonl >last.jsonl
texts last.jsonl >mine
expect 0 'greedy texts' gpt-generate --load looked --jsonl \
    --prompt-file prompts.jsonl --tokens 12 --greedy
texts out >its
check 'are the same' cmp mine its
check 'there are two' test "$(wc -l <mine)" = 2
check 'and the log has them' grep -q '^ sample 2 at iteration 8 | "a dog" -> ' whole.log
expect 0 'by chance' train --load looked --eval-only --eval-iters 0 \
    --sample-prompts prompts.jsonl --sample-tokens 12 --sample-seed 5 \
    --sample-top-k 9
sed -n 's/.*| "[^"]*" -> \(.*\) |$/\1/p' err >mine
expect 0 'gpt-generate by the same' gpt-generate --load looked --jsonl \
    --prompt-file prompts.jsonl --tokens 12 --seed 5 --top-k 9
texts out >its
check 'chooses the same' cmp mine its
if [ -e "$BUILD/libgpt-cuda-emu.so" ]; then
    expect 0 'by the kernels of a GPU' train --load looked --eval-only \
        --eval-iters 0 --sample-prompts prompts.txt --sample-tokens 12 \
        --sample-temperature 0 --device cuda-emu --cuda-graph-impl local
    sed -n 's/.*| "[^"]*" -> \(.*\) |$/\1/p' err >its
    texts last.jsonl >mine
    check 'the same texts' cmp mine its
else
    skip 'no emulated GPU' || :
fi
awk 'BEGIN { for (i = 0; i < 30; i++) printf "x"; print "" }' >long.txt
expect 3 'a prompt that is too long' train --sample-prompts long.txt
err_has 'long.txt:1'

# ---- the best checkpoint, and early stop ----
# At this rate the loss on the other language falls, and then rises.
expect 0 'the best one is kept' train --save best --save-best \
    --keep-checkpoints 1 --valid-set s=short_text_document --split 100,0,0 \
    --train-iters 24 --eval-interval 2 --lr 0.03
lowest() { # metrics: the iteration of the lowest validation loss
    sed -n 's/^{"iteration":\([0-9]*\),"validation-s_loss":\([^,]*\).*/\2 \1/p' \
        "$1" | sort -g | awk 'NR == 1 { printf "iter_%07d", $2 }'
}
check 'the link names the lowest loss' \
    test "$(readlink best/best)" = "$(lowest best/metrics.jsonl)"
expect 0 'reported' gpt-report best --json
out_has "\"best_iteration\":$(readlink best/best | sed 's/iter_0*//'),"
check 'which is not the last' test "$(readlink best/best)" != iter_0000024
check 'two checkpoints are left' test "$(find best -name 'iter_*' | wc -l)" = 2
expect 0 'it loads' gpt-generate --load best/best --prompt x --tokens 2
mkdir -p taken/best
expect 0 'its mark cannot be made' train --save taken --save-best \
    --valid-set s=short_text_document --split 100,0,0 --train-iters 4 \
    --eval-interval 2
err_has 'is saved, and not marked as the best one: '
check 'the checkpoint is there' [ -e taken/iter_0000004/manifest.json ]
stops() { # directory option...
    dir=$1
    shift
    train --save "$dir" --load "$dir" --save-best --keep-checkpoints 1 \
        --valid-set s=short_text_document --split 100,0,0 --train-iters 24 \
        --eval-interval 2 --lr 0.03 --early-stopping-patience 2 "$@"
}
expect 0 'a run stops early' stops early
err_has 'stopped early at iteration'
at=$(cat early/latest_checkpointed_iteration.txt)
check 'before its end' test "$at" -lt 24
check 'the link is the same' test "$(readlink early/best)" = \
    "$(readlink best/best)"
expect 0 'resumed in between' stops early2 --exit-interval $((at - 1))
expect 0 'it' stops early2
check 'stops at the same step' test \
    "$(cat early2/latest_checkpointed_iteration.txt)" = "$at"
expect 0 'and has nothing to do then' stops early2
err_has 'a larger --early-stopping-patience'
expect 0 'a larger difference' stops delta --early-stopping-min-delta 10
check 'stops it at once' test \
    "$(cat delta/latest_checkpointed_iteration.txt)" = 6
rm early2/best
expect 0 'a mark that is missing' stops early2
check 'comes back' test "$(readlink early2/best)" = "$(readlink early/best)"
# Killed before any of its renames, a run leaves a mark that opens or none, and
# resumed it ends as the whole one.
killed() {
    kills=0
    while [ $kills -lt 40 ]; do
        kills=$((kills + 4))
        rm -rf killed
        (GPT_FAULT=rename:$kills:KILL PATH=$BUILD/faults:$PATH
            export GPT_FAULT; stops killed) && break
        [ ! -L killed/best ] || [ -e killed/best/manifest.json ] || return 1
        stops killed && [ "$(readlink killed/best)" = \
            "$(readlink early/best)" ] &&
            [ "$(find killed -name 'iter_*' | wc -l)" -le 2 ] || return 1
    done
    [ $kills -gt 10 ]
}
if [ -x "$BUILD/faults/gpt-train" ]; then
    check 'kills before any rename' killed
else
    skip 'no build with fault injection' || :
fi
expect 2 'no validation' train --save x --save-best --eval-iters 0
err_has '--save-best needs a validation loss'
expect 2 'in a plan, too' train --save x --save-best --eval-iters 0 --dry-run
err_has '--save-best needs a validation loss'
# shellcheck disable=SC2086
expect 0 'unless it names no data' gpt-train $rest --save x --save-best \
    --dry-run
expect 2 'no data for it' train --save x --early-stopping-patience 1 \
    --split 100,0,0
err_has '--early-stopping-patience needs a validation loss'

# ---- evaluation alone ----
# shellcheck disable=SC2086 # a word list
expect 0 'evaluates only' train --load looked --eval-only $looks
check 'a row for each' test "$(awk '{ print $1 }' out | tr '\n' ' ')" = \
    'name validation validation-short validation-two score-words score-hella '
check 'with its figures' awk -v acc="$(value looked/metrics.jsonl 8 score-hella_acc)" '
    $1 == "score-hella" { found = ($5 - acc) ^ 2 < 1e-8 && $2 == "-" && $6 != "-" }
    END { exit !found }' out
err_has 'sample 1 at iteration 8'
expect 2 'without a model' train --eval-only
err_has '--eval-only needs --load'

# ---- reports ----
expect 0 'a report' gpt-report looked --text --ascii --width 100
out_has 'Accuracy of tasks: '
out_has 'looked validation-short_loss'
out_has 'Bits a byte: '
expect 0 'of the log' gpt-report whole.log --csv
check 'has the sets' grep -q 'validation-two_bits_per_byte' out
if "${GPT_ORACLE_PYTHON:-python3}" -c 'import tensorboard' 2>/dev/null; then
    cat >read.py <<'X'
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
a = EventAccumulator("tb")
a.Reload()
tags = a.Tags()
want = {}
for line in open("looked/metrics.jsonl"):
    line = json.loads(line)
    want.setdefault(line["iteration"], {}).update(line)
def scalar(tag, field):
    got = {e.step: e.value for e in a.Scalars(tag)}
    for step, values in want.items():
        if field in values:
            assert abs(got[step] - values[field]) <= 1e-5 * abs(values[field]), (tag, step)
    assert len(got) == sum(field in v for v in want.values()) > 0, tag
scalar("lm loss validation", "validation_loss")
scalar("lm loss validation-short", "validation-short_loss")
scalar("lm loss validation-two ppl", "validation-two_ppl")
scalar("lm loss validation-short bits per byte", "validation-short_bits_per_byte")
scalar("score-hella_acc_norm", "score-hella_acc_norm")
texts = {}
for line in open("looked/samples.jsonl"):
    line = json.loads(line)
    texts[line["number"], line["iteration"]] = line["prompt"] + line["text"]
assert set(tags["tensors"]) == {"sample 1", "sample 2"}, tags
for n in 1, 2:
    assert a.SummaryMetadata(f"sample {n}").plugin_data.plugin_name == "text"
    for e in a.Tensors(f"sample {n}"):
        got = tensor_util.make_ndarray(e.tensor_proto)
        assert got.shape == (1,), got
        assert got[0].decode() == texts.pop((n, e.step))
assert not texts
X
    expect 0 "TensorBoard's reader reads curves and texts back" \
        "${GPT_ORACLE_PYTHON:-python3}" read.py
else
    skip 'no python3 with tensorboard (GPT_ORACLE_PYTHON)' || :
fi

# ---- layouts ----
if gpt-train --version | grep -q ' Gloo'; then
    ranks() { # number option...
        n=$1
        shift
        # shellcheck disable=SC2086 # word lists
        timeout 120 gpt-launch --standalone --nproc-per-node "$n" gpt-train \
            $common $looks "$@"
    }
    agree() { # metrics: figures of the last evaluation are near the others'
        for field in validation-two_loss validation-short_bits_per_byte \
            score-words_acc score-words_ppl score-hella_acc_norm; do
            near "$(value "$1" 8 $field)" \
                "$(value looked/metrics.jsonl 8 $field)" || return 1
        done
    }
    while read -r name n options; do
        # shellcheck disable=SC2086 # a word list
        expect 0 "$name" ranks "$n" --save "$name" $options
        check "$name: the same figures" agree "$name/metrics.jsonl"
        check "$name: the same texts" cmp looked/samples.jsonl \
            "$name/samples.jsonl"
    done <<X
tp 2 --tensor-model-parallel-size 2 --sequence-parallel
pp 2 --pipeline-model-parallel-size 2
dp 2 --use-distributed-optimizer --overlap-param-gather
X
    # Weights are gathered while the next step begins, which may be a look.
    # shellcheck disable=SC2086 # word lists
    expect 0 'dp, not looking' timeout 120 gpt-launch --standalone \
        --nproc-per-node 2 gpt-train $common --save blind --eval-iters 0 \
        --use-distributed-optimizer --overlap-param-gather
    check 'the weights are the same' cmp \
        blind/iter_0000008/model_tp00_pp00_dp01.safetensors \
        dp/iter_0000008/model_tp00_pp00_dp01.safetensors
    expect 0 'two stages of a best checkpoint' ranks 2 --save pp-best \
        --pipeline-model-parallel-size 2 --save-best --async-save
    check 'has its mark' test -e pp-best/best/manifest.json
else
    skip 'built without Gloo' || :
fi

# ---- nothing to look at: every document is one token ----
yes '{"text":"a"}' | head -n 60 >one.jsonl
expect 0 'documents of one token' gpt-preprocess --input one.jsonl \
    --output-prefix one --tokenizer-type ByteTokenizer
# shellcheck disable=SC2086 # a word list
expect 0 'of which none counts a loss' gpt-train $rest --document-samples \
    --data-path one_text_document --split 80,20,0 --save one --save-best
err_has 'no token of the first step counts a loss'
err_has 'validation: no token of its batches counts a loss'
check 'which is no figure' grep -q '"validation_loss":null' one/metrics.jsonl
check 'and not the best one' [ ! -e one/best ]
tap_done
