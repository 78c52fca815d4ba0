#!/bin/sh
# Checkpoints load in any layout: a run that eight ranks saved with a
# distributed optimizer resumes in other layouts as if it had not stopped, and
# back; in the same layout, bit for bit. gpt-reshape and gpt-generate read the
# checkpoint.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

needs_gloo
make_data

run() { # ranks options...
    ranks=$1
    shift
    # shellcheck disable=SC2086 # a word list
    timeout 120 gpt-launch --standalone --nproc-per-node "$ranks" gpt-train \
        $tiny --num-layers 4 --global-batch-size 4 --train-iters 9 -q "$@"
}
eight() {
    run 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
        --use-distributed-optimizer "$@"
}
tensors_of() { (cd "$1" && cat ./*.safetensors | cksum); }

expect 0 'one rank, 9 steps' run 1 --metrics one.jsonl
expect 0 'TP2 PP2 DP2, distributed optimizer: 9 steps' \
    eight --metrics eight.jsonl --save whole
check 'the losses of one rank' compare_metrics one.jsonl eight.jsonl 9
expect 0 'the same, stopped after 3' eight --save three --exit-interval 3
check 'ranks wrote their own files' \
    test -f three/iter_0000003/optimizer_exp_avg_tp01_pp01_dp01.safetensors

# ---- the same layout ----
expect 0 'resumes, and saves in the background' \
    eight --load three --save again --save-interval 2 --async-save \
    --metrics again.jsonl
check 'the same bits as without stopping' \
    test "$(tensors_of whole/iter_0000009)" = "$(tensors_of again/iter_0000009)"
check 'every checkpoint is there' test -f again/iter_0000004/manifest.json \
    -a -f again/iter_0000006/manifest.json -a -f again/iter_0000008/manifest.json

# Weights in bf16: each rank keeps and saves the exact values of its shards.
expect 0 'bf16, 5 steps' eight --bf16 --save bf16 --exit-interval 5
expect 0 'bf16, stopped after 3' eight --bf16 --save bf16-3 --exit-interval 3
expect 0 'and resumed' eight --bf16 --load bf16-3 --save bf16-5 \
    --exit-interval 5
check 'the same bits as without stopping' test \
    "$(tensors_of bf16/iter_0000005)" = "$(tensors_of bf16-5/iter_0000005)"
expect 0 'one rank resumes it in float' run 1 --load bf16-3

# ---- other layouts: steps 4 to 6 there, 7 to 9 at eight ranks again ----
there_and_back() { # name ranks options...
    name=$1
    shift
    ranks=$1
    shift
    expect 0 "$name goes on" run "$ranks" --load three --save "$name" \
        --exit-interval 3 --metrics "$name.jsonl" "$@"
    check "$name: the losses of one rank" \
        compare_metrics one.jsonl "$name.jsonl" 3
    expect 0 "$name: and back" eight --load "$name" --metrics "$name-8.jsonl"
    check "$name: the losses of one rank again" \
        compare_metrics one.jsonl "$name-8.jsonl" 3
}
there_and_back TP1 1
there_and_back TP4 4 --tensor-model-parallel-size 4 --sequence-parallel
there_and_back PP4 4 --pipeline-model-parallel-size 4
there_and_back DP4 4 --data-parallel-sharding-strategy optim_grads

# ---- from Hugging Face: 257 rows of words, which two ranks pad to 258 ----
expect 0 'out to Hugging Face' gpt-reshape --load-path three --save-path hf \
    --to hf --max-shard-size 4KB --make-vocab-size-divisible-by 1
expect 0 'three steps from the native checkpoint' run 1 --load three \
    --finetune --exit-interval 3 --metrics tuned.jsonl
expect 2 'the other one is no run' eight --load hf
err_has 'it holds weights only, and no run to resume'
check 'bytes have an end' grep -q '"eos_token_id":[[:space:]]*256' hf/config.json
from_hf() { # name ranks options...
    name=$1
    shift
    ranks=$1
    shift
    expect 0 "$name from Hugging Face" run "$ranks" --load hf --finetune \
        --exit-interval 3 --metrics "tuned-$name.jsonl" "$@"
    check "$name: the losses from the native one" \
        compare_metrics tuned.jsonl "tuned-$name.jsonl" 3
}
from_hf TP1 1
from_hf TP2 2 --tensor-model-parallel-size 2
from_hf TP2-PP2-DP2 8 --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 --use-distributed-optimizer
# ---- which tokens begin and end texts ----
cp -r hf said
sed -i -E 's/("bos_token_id":)[^,]*/\1 3/; s/("eos_token_id":)[^,]*/\1 4/' \
    said/config.json
echo '{"bos_token_id": 3, "eos_token_id": [4, 5], "temperature": 0.5}' \
    >said/generation_config.json
same_tokens() { # directory ends
    tr -d ' \t\n' <"$1/generation_config.json" |
        grep -F "{\"bos_token_id\":3,\"eos_token_id\":$2}" &&
        grep -E '"bos_token_id":[[:space:]]*3' "$1/config.json" &&
        grep -E '"eos_token_id":[[:space:]]*4' "$1/config.json"
}
expect 0 'a model that says it is trained' run 1 --load said --finetune \
    --exit-interval 1 --save trained
expect 0 'and resumed' run 1 --load trained --exit-interval 2 --save trained
expect 0 'it goes back' gpt-reshape --load-path trained --save-path returned \
    --to hf
check 'and says the same, and how its data end' same_tokens returned '[4,5,256]'
expect 0 'as without training' gpt-reshape --load-path said --save-path plain
err_has 'generation_config.json: temperature 0.5'
expect 0 'and back' gpt-reshape --load-path plain --save-path twice --to hf
check 'the same' same_tokens twice '[4,5]'
for to in megatron llmc; do
    expect 0 "a format without a place for them: $to" gpt-reshape \
        --load-path plain --save-path none.$to --to $to
    err_has "left out, as format $to has no place for them: \
bos_token_id 3, eos_token_id 4, eos_token_id 5"
done
expect 0 'one for two ends' gpt-reshape --load-path plain --save-path two.gguf
check 'leaves none out' sh -c '! grep -q "has no place" err'
expect 0 'and back' gpt-reshape --load-path two.gguf --save-path of-gguf \
    --to hf
check 'which keeps them without a vocabulary' same_tokens of-gguf '[4,5]'
expect 0 'three ends' gpt-reshape --load-path returned --save-path three.gguf
err_has 'left out, as format gguf has no place for them: eos_token_id 256'
cp -r hf silent
sed -i -E 's/("[be]os_token_id":)[^,]*/\1 null/' silent/config.json
expect 0 'a model that says it has none' gpt-reshape --load-path silent \
    --save-path mute
expect 0 'and back' gpt-reshape --load-path mute --save-path back --to hf
check 'has none' grep -E '"eos_token_id":[[:space:]]*null' back/config.json
rm "$(ls hf/model-*-of-*.safetensors | head -n 1)"
expect 3 'a shard is missing: all ranks end' eight --load hf --finetune
err_has 'missing, though'

# ---- the other programs ----
expect 0 'gpt-reshape makes the files of one rank of it' gpt-reshape \
    --load-path three --save-path reshaped --verify \
    --target-tensor-model-parallel-size 1 \
    --target-pipeline-model-parallel-size 1 --make-vocab-size-divisible-by 2
tensors() { # directory: names, types and shapes, whatever files they are in
    gpt-reshape inspect "$1" | sed -n '/^tensors:/,$s/\].*/]/p' >"$1.tensors"
}
tensors three
tensors reshaped
check 'with the same tensors' cmp three.tensors reshaped.tensors
check 'that are many' test "$(wc -l <three.tensors)" = 156
expect 0 'one rank resumes that' run 1 --load reshaped \
    --metrics reshaped.jsonl
losses() { # metrics.jsonl: of steps 4 to 6
    sed -n 's/.*\("iteration":[456],\).*\("lm_loss":[^,]*\).*/\1\2/p' "$1"
}
check 'to the bit as from the eight files' \
    test -n "$(losses TP1.jsonl)" -a \
    "$(losses reshaped.jsonl)" = "$(losses TP1.jsonl)"
for dir in three reshaped; do
    printf 'the cat' | gpt-generate --load $dir --greedy --tokens 12 \
        >$dir.text 2>$dir.err || cat $dir.err
done
check 'gpt-generate writes the same text with both' \
    test -s three.text -a "$(cat three.text)" = "$(cat reshaped.text)"
tap_done
