#!/bin/sh
# Models with experts in Megatron-LM's classic files: to layouts of tensor,
# pipeline and expert ranks and back as the same bytes, with optimizer state;
# what is missing or wrong among the files is refused by name.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data
llama="--position-embedding-type rope --normalization RMSNorm --swiglu
--disable-bias-linear --untie-embeddings-and-output-weights"
mixtral='--num-experts 4 --moe-router-topk 2 --ffn-hidden-size 24'
some='--add-qkv-bias --num-experts 4 --moe-router-topk 2
--ffn-hidden-size 24 --moe-ffn-hidden-size 12 --moe-layer-freq [0,1,1,0]
--moe-shared-expert-intermediate-size 20 --moe-shared-expert-gate
--moe-router-pre-softmax --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001'
sigmoid='--num-experts 4 --moe-router-topk 3 --ffn-hidden-size 24
--moe-ffn-hidden-size 12 --moe-dense-layers 1
--moe-shared-expert-intermediate-size 24 --moe-router-score-function sigmoid
--moe-router-expert-bias --moe-router-topk-scaling-factor 2.5'
groups='--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 12
--moe-router-num-groups 4 --moe-router-group-topk 2'

train() { # model, options...
    eval "options=\$$1"
    shift
    # shellcheck disable=SC2086 # options are words
    gpt-train --num-layers 4 $tiny $llama $options --device cpu \
        --make-vocab-size-divisible-by 4 --global-batch-size 2 "$@"
}
into() { # from to tp pp ep option...
    from=$1 to=$2 tp=$3 pp=$4 ep=$5
    shift 5
    rm -rf "$to"
    gpt-reshape --load-path "$from" --save-path "$to" --to megatron \
        --target-tensor-model-parallel-size "$tp" \
        --target-pipeline-model-parallel-size "$pp" \
        --target-expert-parallel-size "$ep" "$@"
}
back() { # from to
    rm -rf "$2"
    gpt-reshape --load-path "$1" --save-path "$2" -q \
        --target-tensor-model-parallel-size 1 \
        --target-pipeline-model-parallel-size 1
}
same() { # checkpoint, checkpoint: all files of tensors
    for file in "$1"/iter_*/*.safetensors; do
        cmp "$file" "$2"/iter_*/"$(basename "$file")" || return 1
    done
}
for name in mixtral some sigmoid groups; do
    expect 0 "$name trains" train $name --train-iters 3 --save $name
    for style in transformer_engine local; do
        for layout in '1 1 1' '2 2 2' '4 1 1' '1 4 4'; do
            # shellcheck disable=SC2086 # three numbers
            expect 0 "$name: to TP, PP, EP $layout, $style" into $name m \
                $layout --saver-transformer-impl $style --verify
            expect 0 "$name: and back" back m b
            check "$name: the same bytes" same $name b
        done
    done
    expect 0 "$name: in bf16" into $name m 2 1 2 --target-params-dtype bf16
    expect 0 "$name: and back" back m b
    check "$name: the same bytes" same $name b
    for layout in '2 2 1' '2 1 2' '1 4 4'; do
        # shellcheck disable=SC2086 # three numbers
        expect 0 "$name: of a distributed optimizer, $layout" into $name m \
            $layout --use-distributed-optimizer
        expect 0 "$name: and back" back m b
        check "$name: the same bytes" same $name b
    done
done

# ---- names ----
into some m 1 2 2 -q
check 'directories have three numbers' [ -f \
    m/iter_0000003/mp_rank_00_001_001/model_optim_rng.pt ]
into some m 2 1 2 -q
check 'and two with one stage' [ -f \
    m/iter_0000003/mp_rank_01_001/model_optim_rng.pt ]
expect 0 'lists them' gpt-reshape inspect m
shape() { # name, shape, of a tensor of the listing
    check "$1 has shape $2" grep -q "$1  *F32  *\[$2\]" out
}
shape decoder.layers.1.mlp.experts.linear_fc1.weight1 '12, 16'
out_has 'decoder.layers.1.mlp.shared_experts.gate_weight'
out_has 'decoder.layers.1.pre_mlp_layernorm.weight'
out_has 'decoder.layers.0.mlp.linear_fc1.layer_norm_weight'
into some m 2 1 2 -q --saver-transformer-impl local
expect 0 'lists them' gpt-reshape inspect m
shape decoder.layers.1.mlp.experts.local_experts.1.linear_fc2.weight '16, 6'

# ---- a run ----
expect 0 'goes on' train sigmoid --train-iters 5 --load sigmoid --save on
into sigmoid m 2 1 2 -q
rm -rf run
expect 0 'goes on from the files of Megatron-LM' train sigmoid --train-iters 5 \
    --load m --save run
check 'to the same weights' same on run

# ---- what is wrong ----
expect 2 'experts do not divide' into mixtral x 1 1 3
err_has 'num_experts (4) does not divide by the expert model parallel size (3)'
err_has 'choose a divisor of num_experts'
expect 2 'names before experts' into some x 1 1 1 \
    --saver-transformer-impl legacy
err_has 'names of style legacy are older than experts'
expect 2 'other formats' gpt-reshape --load-path some --save-path x --to hf \
    --target-expert-model-parallel-size 2
err_has 'has no effect on format hf'
scores="$mixtral --moe-router-score-function sigmoid --moe-router-pre-softmax"
biases="$mixtral --moe-router-expert-bias"
for name in scores biases; do
    expect 0 "$name trains" train $name --train-iters 1 --save $name
    expect 3 "$name: no argument says it" into $name x 1 1 1
done
err_has 'no argument says that moe_router_expert_bias is true'
expect 3 'nor of scores' into scores x 1 1 1
err_has 'no argument says that moe_router_pre_softmax is true'
damage() { # tp pp ep
    into some bad "$@" -q
}
damage 1 2 2
rm -r bad/iter_0000003/mp_rank_00_001_001
expect 3 'a missing rank of experts' back bad x
err_has 'no file of expert rank 1, tensor rank 0 in stage 1, of 2 x 1 x 2 ranks'
damage 1 1 2
rm -r bad/iter_0000003/mp_rank_00_001
expect 3 'all experts of a rank' back bad x
err_has 'has files of 1 ranks of experts, its arguments say 2'
damage 1 1 2
mv bad/iter_0000003/mp_rank_00_001/* bad/iter_0000003/mp_rank_00_000
expect 3 'a file of another rank' back bad x
into mixtral other 1 1 2 -q
damage 1 1 2
cp other/iter_0000003/mp_rank_00_001/* bad/iter_0000003/mp_rank_00_001
expect 3 'a rank of another model' back bad x
err_has "mp_rank_00_001/model_optim_rng.pt: no tensor"
check 'nothing is left of them' test ! -e x
tap_done
