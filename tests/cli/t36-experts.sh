#!/bin/sh
# Models with experts: from layout to layout and to Hugging Face and back as the
# same bytes; what config.json may say of experts, and what it may not.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data
llama="--position-embedding-type rope --normalization RMSNorm --swiglu
--disable-bias-linear --untie-embeddings-and-output-weights"
mixtral='--num-experts 4 --moe-router-topk 2 --ffn-hidden-size 24'
qwen2_moe='--add-qkv-bias --num-experts 4 --moe-router-topk 2
--ffn-hidden-size 24 --moe-ffn-hidden-size 12 --moe-layer-freq [0,1,1,0]
--moe-shared-expert-intermediate-size 20 --moe-shared-expert-gate
--moe-router-pre-softmax'
glm4_moe='--num-experts 4 --moe-router-topk 3 --ffn-hidden-size 24
--moe-ffn-hidden-size 12 --moe-dense-layers 1
--moe-shared-expert-intermediate-size 24 --moe-router-score-function sigmoid
--moe-router-expert-bias --moe-router-topk-scaling-factor 2.5'

# shellcheck disable=SC2034 # names of types
latent='--rotary-interleaved --kv-lora-rank 12 --qk-head-dim 5
--qk-pos-emb-head-dim 4 --latent-norm-epsilon 1e-6 --v-head-dim 7
--ffn-hidden-size 24'
experts='--num-experts 8 --moe-router-topk 3 --moe-ffn-hidden-size 12
--moe-dense-layers 1 --moe-shared-expert-intermediate-size 24'
sigmoid='--moe-router-score-function sigmoid --moe-router-expert-bias
--moe-router-topk-scaling-factor 2.5'
groups='--moe-router-num-groups 4 --moe-router-group-topk 2'
deepseek_v3="$latent --q-lora-rank 10 $experts $sigmoid $groups"
deepseek_v2="$latent $experts $groups --moe-router-pre-softmax
--rotary-scaling-type yarn --rotary-scaling-factor 4
--rotary-original-positions 8 --rotary-attention-factor 1
--query-pre-attn-scalar 7"
glm4_moe_lite="$latent --q-lora-rank 10 $experts $sigmoid
--moe-dense-layers 0 --moe-layer-freq [0,1,0,1]"
youtu="$latent --q-lora-rank 10"

convert() { # what, from, to, options...
    what=$1
    from=$2
    to=$3
    shift 3
    expect 0 "$what" gpt-reshape --load-path "$from" --save-path "$to" \
        --verify "$@"
}
same() { # what, checkpoint, checkpoint
    check "$1" gpt-reshape verify "$2" "$3"
}
bytes() { # what, checkpoint, checkpoint
    check "$1" cmp "$2"/*/model_tp00_pp00.safetensors \
        "$3"/*/model_tp00_pp00.safetensors
}
for name in mixtral qwen2_moe glm4_moe deepseek_v3 deepseek_v2 glm4_moe_lite \
    youtu; do
    eval "options=\$$name"
    # shellcheck disable=SC2086 # options are words
    expect 0 "$name trains" gpt-train --num-layers 4 $tiny $llama $options \
        --global-batch-size 1 --train-iters 2 --device cpu --save $name \
        --no-save-optim
    convert "$name: to Hugging Face" $name $name-hf --to hf
    check "$name: as its own type" \
        grep -q "\"model_type\":[^\"]*\"$name\"" $name-hf/config.json
    convert "$name: and back" $name-hf $name-back
    same "$name: the same tensors" $name $name-back
    convert "$name: in files of 4 kB" $name $name-many --to hf \
        --max-shard-size 4KB
    convert "$name: and back" $name-many $name-whole
    bytes "$name: the same bytes" $name-back $name-whole
    for layout in '2 1' '4 2' '1 4'; do
        set -- $layout
        rm -rf cut whole
        convert "$name: to TP $1, PP $2" $name-back cut \
            --target-tensor-model-parallel-size "$1" \
            --target-pipeline-model-parallel-size "$2"
        convert "$name: and back" cut whole \
            --target-tensor-model-parallel-size 1 \
            --target-pipeline-model-parallel-size 1
        bytes "$name: the same bytes" $name-back whole
    done
done
expect 2 'three ranks of four experts' gpt-reshape --load-path mixtral \
    --save-path x --target-tensor-model-parallel-size 3
changed() { # model, sed script, message
    rm -rf changed
    cp -r "$1-hf" changed
    sed -i "$2" changed/config.json
    expect 3 "refused: $3" gpt-reshape --load-path changed --save-path x
    err_has "$3"
}
add() { # key and value
    echo "s/\"model_type\"/$1, \"model_type\"/"
}
changed mixtral 's/"num_experts_per_tok":.*/"num_experts_per_tok": 5,/' \
    'moe_router_topk is above num_experts'
changed mixtral 's/"num_local_experts":.*/"num_local_experts": 5,/' \
    "block_sparse_moe.gate.weight' has 2 dimensions, 4 x 16; config.json says 5"
changed mixtral 's/"intermediate_size":.*/"intermediate_size": 23,/' \
    "experts.0.w1.weight' has 2 dimensions, 24 x 16; config.json says 23 x 16"
changed mixtral "$(add '"norm_topk_prob": true')" \
    "'norm_topk_prob' is not known of model_type mixtral"
changed qwen2_moe "$(add '"use_sliding_window": true')" \
    'use_sliding_window is true'
changed qwen2_moe 's/"decoder_sparse_step":.*/"decoder_sparse_step": 0,/' \
    'decoder_sparse_step is 0: only 1 or more'
changed qwen2_moe 's/"norm_topk_prob":.*/"norm_topk_prob": 1,/' \
    "'norm_topk_prob' is not true or false"
changed glm4_moe 's/"n_group":.*/"n_group": 2,/' \
    'moe_router_topk is above the experts of moe_router_group_topk groups'
changed deepseek_v3 's/"n_group":.*/"n_group": 3,/' \
    'num_experts is no multiple of moe_router_num_groups'
changed deepseek_v3 "$(add '"topk_method": "greedy"')" \
    'topk_method is greedy: only "noaux_tc"'
changed deepseek_v2 's/"topk_method":.*/"topk_method": "noaux_tc",/' \
    'topk_method is noaux_tc: only greedy or group_limited_greedy'
changed deepseek_v2 's/"q_lora_rank":.*/"q_lora_rank": 10,/' \
    "no tensor 'model.layers.0.self_attn.q_a_proj.weight'"
changed deepseek_v2 's/"qk_rope_head_dim":.*/"qk_rope_head_dim": 2,/' 'says'
changed youtu 's/"num_key_value_heads":.*/"num_key_value_heads": 2,/' \
    'kv_lora_rank excludes num_query_groups'
changed youtu 's/"kv_lora_rank":.*/"kv_lora_rank": 0,/' 'need kv_lora_rank'
check 'groups, and numbers of YaRN, are written' grep -q \
    '"topk_method":[^,]*"group_limited_greedy"' deepseek_v2-hf/config.json
check 'a size that scores have' grep -q mscale_all_dim deepseek_v2-hf/config.json
changed glm4_moe 's/"n_shared_experts":.*/"n_shared_experts": 0,/' \
    'n_shared_experts is 0: only 1 or more'
changed glm4_moe 's/"first_k_dense_replace":.*/"first_k_dense_replace": 4,/' \
    'num_experts, but no layer has experts'
changed glm4_moe 's/"first_k_dense_replace":.*/"first_k_dense_replace": 2,/' \
    "no tensor 'model.layers.1.mlp.gate_proj.weight'"

changed qwen2_moe 's/"decoder_sparse_step":.*/"decoder_sparse_step": 2,/' \
    "no tensor 'model.layers.2.mlp.gate_proj.weight'"

expect 0 'to GGUF' gpt-reshape --load-path mixtral --save-path wide.gguf \
    --to gguf
perl -0777 -pe 's/(feed_forward_length\x04\0\0\0)\x18/$1\x17/' wide.gguf \
    >narrow.gguf
expect 3 'experts of another width' gpt-reshape inspect narrow.gguf
err_has "ffn_gate_exps.weight' is 4 x 24 x 16; its keys say 4 x 23 x 16"

# what other formats do not have is said
expect 3 'no experts for llmc' gpt-reshape --load-path mixtral \
    --save-path x --to llmc
err_has "llm.c's files hold GPT-2 alone"
check 'nothing is left of them' test ! -e x
tap_done
