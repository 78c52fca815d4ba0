#!/bin/sh
# Classic checkpoints of Megatron-LM, read and written. The model is that of
# tests/golden/hf: what is read must be the same bytes, whatever the version,
# the names, the ranks and the container (tests/golden/make_megatron.py).
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden
hf=$golden/hf
tp=--target-tensor-model-parallel-size
pp=--target-pipeline-model-parallel-size
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}
into "$hf" want --to hf 2>/dev/null
is_model() { # directory: converts to the model of tests/golden/hf
    rm -rf got
    into "$1" got --to hf -q && cmp got/model.safetensors want/model.safetensors
}

# ---- reading ----
# As the 345M release is: a stream of 2019, no version, "release" and a newline.
release=$golden/megatron/release
check 'its tracker ends in a newline' [ "$(wc -l \
    <"$release/latest_checkpointed_iteration.txt")" = 1 ]
expect 0 'a release' into "$release" a --verify
check 'is the model' is_model "$release"
check 'as is its directory' is_model "$release/release"
expect 0 'inspect' gpt-reshape inspect "$release"
out_has 'release: megatron'
out_has 'language_model.transformer.layers.0.attention.query_key_value.weight'
expect 0 '2 x 2 ranks' into "$golden/megatron/tp2pp2" b --verify
err_has 'left out: rng_state'
check 'are the model' is_model "$golden/megatron/tp2pp2"
check 'which keeps its iteration' [ -d b/iter_0001234 ]
check 'and its layout' [ -f b/iter_0001234/model_tp01_pp01.safetensors ]
expect 0 'inspect a run' gpt-reshape inspect b
grep -o '[0-9.k ]*parameters' out >count
expect 0 'inspect all ranks' gpt-reshape inspect "$golden/megatron/tp2pp2"
check 'copies count once' grep -qFf count out
expect 0 'inspect them' gpt-reshape inspect "$golden/megatron/tp2pp2" --json
out_has '"format":"megatron"'
out_has '"layout":{"tensor_parallel":2,"pipeline_parallel":2},"iteration":1234'
out_has '"consumed_train_samples":4936'

# ---- copies ----
# The same model after rounding is that of another run.
into "$hf" rounded --to hf --target-params-dtype bf16 -q
into rounded rounded32 --to hf --target-params-dtype fp32 -q
into "$hf" first --to megatron $tp 2 $pp 2 -q
into rounded32 second --to megatron $tp 2 $pp 2 -q
cp -r first mixed
expect 0 'ranks of one run' into first one --to hf
check 'have equal copies' sh -c '! grep -q copies "$0"' "$scratch/err"
cp second/release/mp_rank_01_001/* mixed/release/mp_rank_01_001
expect 0 'a rank of another run' into mixed two --to hf
err_has 'ranks have copies of one tensor that differ, '
err_has "of mp_rank_01_001/model_optim_rng.pt: a file may be of another run"
expect 0 'of whom nobody asks' into mixed two --to hf -f --no-verify-input
check 'is not told' sh -c '! grep -q copies "$0"' "$scratch/err"
rm -rf mixed
cp -r first mixed
for rank in 00 01; do
    cp second/release/mp_rank_${rank}_001/* mixed/release/mp_rank_${rank}_001
done
expect 0 'a stage of another run' into mixed two --to hf -f
err_has "differ, 2 in all, first 'output_layer.weight' of mp_rank_00_001/"

# ---- what a directory is ----
cp -r "$golden/hf" named
mkdir named/mp_rank_00
expect 0 'a name alone makes no ranks' gpt-reshape inspect named
out_has 'huggingface'

# ---- messages ----
damage() {
    rm -rf bad
    cp -r "$golden/megatron/tp2pp2" bad
}
damage
rm -r bad/iter_0001234/mp_rank_01_000
expect 3 'a missing rank' into bad x
err_has 'no file of tensor rank 1 in stage 0, of 2 x 2 ranks'
rm -r bad/iter_0001234/mp_rank_01_001
expect 3 'a missing row of ranks' into bad x
err_has 'has files of 1 x 2 ranks, its arguments say 2 x 2'
err_has 'copy the directories mp_rank_* of all into one'
mv bad/iter_0001234/mp_rank_00_000 bad/iter_0001234/mp_rank_01_000
for dir in bad bad/iter_0001234; do
    expect 3 "only ranks of another node: $dir" into $dir x
    err_has 'no file of tensor rank 0 in stage 0, of 2 x 2 ranks'
    err_has 'each node may have written its own ranks'
done
damage
rm bad/iter_0001234/mp_rank_*/model_optim_rng.pt
expect 3 'directories of ranks alone' into bad x
err_has 'iter_0001234: no model_optim_rng.pt in its directories mp_rank_*'
damage
for rank in bad/iter_0001234/mp_rank_*; do
    mv "$rank" "${rank}_000"
done
check 'ranks of the only part of experts' is_model bad
mv bad/iter_0001234/mp_rank_01_000_000 bad/iter_0001234/mp_rank_01_000_001
expect 3 'and a part of them alone' into bad x
err_has 'no file of expert rank 0, tensor rank 1 in stage 0, of 2 x 2 x 2 ranks'
damage
printf ' 1234 \n' >bad/latest_checkpointed_iteration.txt
expect 0 'blanks around the iteration' gpt-reshape inspect bad
cp -r "$release" blank
printf ' release \n' >blank/latest_checkpointed_iteration.txt
expect 0 'blanks around the release' gpt-reshape inspect blank
damage
cp bad/iter_0001234/mp_rank_00_000/model_optim_rng.pt \
    bad/iter_0001234/mp_rank_00_001/model_optim_rng.pt
expect 3 'the wrong stage' into bad x
err_has "no tensor for 'decoder.final_layernorm.weight'"
damage
: >bad/iter_0001234/mp_rank_01_001/model_optim_rng.pt
expect 3 'an empty file' into bad x
err_has 'mp_rank_01_001/model_optim_rng.pt: byte 0: 0 bytes'
damage
echo 99 >bad/latest_checkpointed_iteration.txt
expect 3 'a tracker of an iteration that is gone' into bad x
check 'nothing was written' [ ! -e x/latest_checkpointed_iteration.txt ]

# ---- writing ----
for style in transformer_engine local legacy; do
    rm -rf m
    expect 0 "to 2 x 2 ranks, names: $style" into "$hf" m --to megatron \
        $tp 2 $pp 2 --saver-transformer-impl $style --verify \
        --make-vocab-size-divisible-by 8
    check 'and back' is_model m
done
check 'legacy names are there' sh -c "gpt-reshape inspect m | \
    grep -q 'word_embeddings_for_head.weight  *F32  *\[40, 16\]'"
check 'the tracker says release' grep -q '^release' \
    m/latest_checkpointed_iteration.txt
expect 7 'it is there already' into "$hf" m --to megatron
expect 0 'except with --force' into "$hf" m --to megatron --force
into "$golden/megatron/tp2pp2" n --to megatron $tp 1 $pp 1 2>/dev/null
check 'an iteration keeps its number' grep -q '^1234' \
    n/latest_checkpointed_iteration.txt
check 'in one file' [ -f n/iter_0001234/mp_rank_00/model_optim_rng.pt ]
check 'of the model' is_model n
expect 0 'to bf16' into n h --to megatron --target-params-dtype bf16 --verify
err_has 'equals the input after rounding to bf16'
expect 2 'heads do not divide' into n x --to megatron $tp 4
expect 2 'names of another format' into n x --saver-transformer-impl local
err_has 'has no effect on format native'
expect 2 'shards' into n x --to megatron --max-shard-size 1GB
err_has 'has no effect on format megatron'
rm -rf x

# ---- the command lines of others ----
# accelerate's guide, verbatim but for the paths' names
ln -s "$golden/megatron/tp2pp2/iter_0001234" megatron-lm-gpt2
expect 0 'the first line of the guide of accelerate' gpt-reshape \
    --convert_checkpoint_from_megatron_to_transformers \
    --load_path megatron-lm-gpt2 --save_path hub-gpt2 \
    --max_shard_size "200MB" --tokenizer_name gpt2 --print-checkpoint-structure
check 'writes the model' cmp hub-gpt2/model.safetensors want/model.safetensors
expect 0 'and the second' gpt-reshape --load_path hub-gpt2 \
    --save_path megatron-back --target_tensor_model_parallel_size 2 \
    --target_pipeline_model_parallel_size 2 --target_data_parallel_size 2 \
    --target_params_dtype "bf16" --make_vocab_size_divisible_by 128 \
    --use_distributed_optimizer --print-checkpoint-structure
check 'four ranks' [ -f \
    megatron-back/release/mp_rank_01_001/model_optim_rng.pt ]
expect 0 "Megatron-LM's converter" gpt-reshape --model-type GPT --loader core \
    --saver core --load-dir "$golden/megatron/tp2pp2" --save-dir conv \
    --target-tensor-parallel-size 1 --target-pipeline-parallel-size 2
check 'writes the model' is_model conv

# ---- programs ----
if [ -x "$BUILD/gpt-generate" ]; then
    for dir in "$hf" "$golden/megatron/tp2pp2"; do
        gpt-generate --load "$dir" --tokenizer-type NullTokenizer \
            --vocab-size 66 --prompt '1 2 3' --tokens 8 --seed 1 \
            >"text-$(basename "$dir")" 2>err || cat err
    done
    check 'gpt-generate writes the same' cmp text-hf text-tp2pp2
    check 'something' [ -s text-hf ]
fi
if [ -x "$BUILD/gpt-train" ]; then
    echo '{"text": "1234567890, 1234567890, 1234567890 (1234567890)!"}' >x.jsonl
    gpt-preprocess --input x.jsonl --output-prefix x -q \
        --tokenizer-type ByteTokenizer
    train() {
        gpt-train --data-path x_text_document \
            --vocab-size 67 --num-layers 2 --hidden-size 16 \
            --num-attention-heads 2 --seq-length 16 --train-iters 2 \
            --lr 1e-3 --split 100,0,0 --finetune "$@"
    }
    expect 0 'gpt-train begins with it' train --load "$release" --save run1
    expect 0 'as with Hugging Face' train --load "$hf" --save run2
    for run in run1 run2; do
        into $run $run-hf --to hf -q
    done
    check 'to the same weights' cmp run1-hf/model.safetensors \
        run2-hf/model.safetensors
fi

# ---- PyTorch ----
if ! find_python 'torch, safetensors'; then
    skip 'no python3 with torch (GPT_ORACLE_PYTHON)'
    tap_done
    exit
fi
check 'every version, name and layout is made' "$python" \
    "$golden/make_megatron.py" all
n=0
for dir in all/*; do
    is_model "$dir" >log 2>&1 && n=$((n + 1)) || { echo "# $dir"; cat log; }
done
check 'and read' [ $n = "$(find all -maxdepth 1 -mindepth 1 | wc -l)" ]
cat >load.py <<'END'
import argparse, sys, zipfile
import torch
from safetensors.torch import load_file
torch.serialization.add_safe_globals([argparse.Namespace])
want = load_file(sys.argv[1] + "/model.safetensors")
for mmap in (False, True):
    one = torch.load(sys.argv[2], weights_only=True, mmap=mmap)
    model = one["model"]
    got = model["decoder.layers.1.mlp.linear_fc1.weight"]
    assert torch.equal(got, want["transformer.h.1.mlp.c_fc.weight"].t())
    got = model["embedding.word_embeddings.weight"]
    assert torch.equal(got[:67], want["transformer.wte.weight"])
    assert one["checkpoint_version"] == 3.0 and one["iteration"] == 1234
    args = one["args"]
    assert args.num_layers == 2 and args.params_dtype is torch.float32
    assert args.consumed_train_samples == 4936
assert zipfile.ZipFile(sys.argv[2]).testzip() is None
END
check 'PyTorch loads what is written, with weights_only' "$python" load.py \
    want n/iter_0001234/mp_rank_00/model_optim_rng.pt
if [ -x "$BUILD/gpt-train" ]; then
    train() {
        gpt-train --data-path x_text_document --vocab-size 67 \
            --num-layers 2 --hidden-size 16 --num-attention-heads 2 \
            --seq-length 16 --train-iters 6 --lr 1e-3 --split 100,0,0 "$@"
    }
    weights() { # of the last iteration of a run
        echo "$1/iter_0000006/model_tp00_pp00.safetensors"
    }
    expect 0 'a run that stops' train --exit-interval 3 --save run
    expect 0 'and goes on' train --load run --save on
    for ranks in 1 2; do
        dir=run-megatron$ranks
        check "its checkpoint as one of Megatron-LM, $ranks ranks" "$python" \
            "$golden/make_megatron_run.py" run/iter_0000003 $dir $ranks
        expect 0 'becomes native again' into $dir $dir-back $tp 1 --verify
        for file in model optimizer_exp_avg optimizer_exp_avg_sq; do
            check "bit for bit: $file" cmp \
                run/iter_0000003/${file}_tp00_pp00.safetensors \
                $dir-back/iter_0000003/${file}_tp00_pp00.safetensors
        done
        expect 0 'gpt-train resumes from that' train --load $dir-back \
            --save $dir-on
        check 'to the same weights' cmp "$(weights on)" "$(weights $dir-on)"
        expect 0 'and from the files of Megatron-LM' train --load $dir \
            --save $dir-on2
        check 'to the same weights' cmp "$(weights on)" "$(weights $dir-on2)"
    done
    expect 2 'but not with another schedule' train --load run-megatron1 --lr 2
    expect 0 'weights alone are bf16' into run-megatron1 run-hf --to hf --verify
    check 'as they are in the file' sh -c \
        "gpt-reshape inspect run-hf | grep -q 'wte.weight *BF16'"
fi
refused() { # argument, value, error
    rm -rf changed
    "$python" - "$golden/megatron/release/release/mp_rank_00/model_optim_rng.pt" \
        "$1" "$2" <<'END'
import argparse, os, sys, types, torch, enum
class ModelType(enum.Enum):
    encoder_or_decoder = 1
for name in ("megatron", "megatron.core", "megatron.core.enums"):
    sys.modules[name] = types.ModuleType(name)
ModelType.__module__ = "megatron.core.enums"
sys.modules["megatron.core.enums"].ModelType = ModelType
d = torch.load(sys.argv[1], weights_only=False)
setattr(d["args"], sys.argv[2], eval(sys.argv[3]))
os.makedirs("changed/mp_rank_00")
torch.save(d, "changed/mp_rank_00/model_optim_rng.pt")
END
    expect 3 "$1 $2" into changed x
    err_has "$3"
}
refused swiglu True 'its model says 16 x 32'
refused normalization '"RMSNorm"' "input_layernorm.bias' is not one of a GPT model"
refused normalization '"BatchNorm"' 'its run had normalization BatchNorm'
refused quick_geglu True 'its run had quick_geglu'
refused multi_latent_attention True 'its run had multi_latent_attention'
refused window_size '(128, 0)' 'its run had window_size'
refused num_experts 8 'no layer of a GPT'
refused num_layers 3 'its files have 2 layers, its arguments say 3'
refused num_attention_heads 3 'its model says 72 x 16'
refused position_embedding_type '"mrope"' 'position_embedding_type'
refused hidden_dropout 7.5 'hidden_dropout is 7.5'
tap_done
