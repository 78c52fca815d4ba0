#!/bin/sh
# Architectures beside GPT-2: options and what they refuse; training resumes bit
# for bit, computes the same at TP 2, SP and PP 2, in bf16 nearly the same; a
# text is continued; memory is allocated as predicted.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

make_data
rope='--position-embedding-type rotary'
llama="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--num-query-groups 2 --kv-channels 6 --ffn-hidden-size 44
--untie-embeddings-and-output-weights"
neox="$rope --rotary-percent 0.5 --activation-function gelu_exact
--parallel-residual"
falcon="$rope --activation-function gelu_exact --disable-bias-linear
--shared-norm --num-query-groups 2"
gemma="$rope --normalization RMSNorm --apply-layernorm-1p --geglu
--rotary-interleaved --rotary-scaling-type linear --rotary-scaling-factor 2"
gemma2="$rope --normalization RMSNorm --apply-layernorm-1p --geglu
--disable-bias-linear --post-norm --scale-embedding --num-query-groups 2
--window-size 3,0 --window-attn-skip-freq 2 --query-pre-attn-scalar 6
--attn-logit-softcapping 2 --final-logit-softcapping 3"
olmo2="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--no-pre-norm --qk-norm-whole --num-query-groups 2
--untie-embeddings-and-output-weights"
bloom="--position-embedding-type alibi --embedding-norm"
opt="--position-offset 2 --activation-function relu"
qwen="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--add-qkv-bias --window-size 4 --window-full-layers 1"
gptj="$rope --rotary-percent 0.5 --rotary-interleaved --shared-norm
--no-attention-bias --output-bias --untie-embeddings-and-output-weights"
granite="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--embedding-multiplier 3 --residual-multiplier 0.4 --logit-multiplier 0.5"
cohere2="$rope --swiglu --disable-bias-linear --no-norm-bias --shared-norm
--rotary-interleaved --window-size 4 --window-attn-skip-freq 2
--no-rope-freq [0]+[1] --logit-multiplier 0.25"
# the text that is generated is longer than those of pretraining
longrope="$rope --rotary-scaling-type longrope --rotary-original-positions 7"
phi4="$longrope --normalization RMSNorm --swiglu --disable-bias-linear
--rotary-short-factors 1,1.5 --rotary-long-factors 1.0,9.75"
ministral3="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--rotary-scaling-type yarn --rotary-scaling-factor 4
--rotary-original-positions 3 --rotary-query-growth 0.5"
gptneo='--no-qkv-bias --query-pre-attn-scalar 1 --window-size 3
--window-full-layers 1'
hunyuan="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--qk-norm-turned --rotary-scaling-type ntk_alpha --rotary-scaling-factor 3"
olmo="$rope --swiglu --disable-bias-linear --no-norm-weight --clip-qkv 0.3
--num-query-groups 2"
nanochat="$rope --normalization RMSNorm --no-norm-weight --embedding-norm
--qk-norm-turned --squared-relu --disable-bias-linear
--final-logit-softcapping 2"
stablelm="$rope --rotary-percent 0.5 --swiglu --disable-bias-linear
--qk-norm-each --num-query-groups 2 --untie-embeddings-and-output-weights"
apertus="$rope --normalization RMSNorm --qk-layernorm --disable-bias-linear
--activation-function xielu"
biases="$rope --normalization RMSNorm --swiglu --no-mlp-bias"
latents="$rope --rotary-interleaved --normalization RMSNorm --swiglu
--disable-bias-linear --kv-lora-rank 12 --qk-head-dim 5 --qk-pos-emb-head-dim 4
--latent-norm-epsilon 1e-6 --untie-embeddings-and-output-weights"
deepseek2="$latents --v-head-dim 9"
deepseek3="$latents --v-head-dim 6 --q-lora-rank 10 --num-experts 8
--moe-router-topk 3 --moe-ffn-hidden-size 24 --moe-dense-layers 1
--moe-shared-expert-intermediate-size 16 --moe-router-score-function sigmoid
--moe-router-expert-bias --moe-router-num-groups 4 --moe-router-group-topk 2
--moe-router-topk-scaling-factor 2.5"
names='llama neox falcon gemma gemma2 olmo2 bloom opt qwen gptj granite cohere2
phi4 ministral3 hunyuan gptneo olmo nanochat apertus stablelm
biases deepseek2 deepseek3'
train() { # options...
    # shellcheck disable=SC2086 # options are words
    gpt-train --num-layers 2 $tiny --global-batch-size 4 --train-iters 6 \
        --device cpu "$@"
}
ranks() { # options...
    # shellcheck disable=SC2086 # options are words
    gpt-launch --standalone --nproc-per-node 2 gpt-train --num-layers 2 \
        $tiny --global-batch-size 4 --train-iters 6 --device cpu "$@"
}
losses() { # directory
    sed -n 's/.*"lm_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"
}
near() { # directory directory share
    losses "$1" >a
    losses "$2" >b
    paste a b | awk -v s="$3" '{ d = $1 / $2 - 1; if (d < 0) d = -d
        if (d > worst) worst = d } END { print NR " losses, worst " worst
        exit !(NR == 6 && worst <= s) }'
}

for name in $names; do
    eval "options=\$$name"
    [ $name = llama ] && options="$options --add-qkv-bias --qk-layernorm"
    # shellcheck disable=SC2086 # options are words
    {
        expect 0 "$name trains" train $options --save $name
        expect 0 "$name: half a run" train $options --save $name-half \
            --exit-interval 3
        expect 0 "$name: resumes" train $options --save $name-half \
            --load $name-half
        check "$name: to the same weights" cmp \
            $name/iter_0000006/model_tp00_pp00.safetensors \
            $name-half/iter_0000006/model_tp00_pp00.safetensors
        expect 0 "$name in bf16" train $options --save $name-bf16 --bf16
        check "$name: nearly the same" near $name $name-bf16 0.02
        expect 0 "$name recomputed" train $options --save $name-again \
            --recompute-granularity selective
        check "$name: the same bits" cmp \
            $name/iter_0000006/model_tp00_pp00.safetensors \
            $name-again/iter_0000006/model_tp00_pp00.safetensors
        expect 0 "$name at TP 2 and SP" ranks $options --save $name-tp \
            --tensor-model-parallel-size 2 --sequence-parallel
        check "$name: the same losses" near $name $name-tp 1e-4
        expect 0 "$name at PP 2" ranks $options --save $name-pp \
            --pipeline-model-parallel-size 2
        check "$name: the same losses, too" near $name $name-pp 1e-4
        expect 0 "$name continues a text" gpt-generate --load $name \
            --prompt 'the cat' --tokens 6 --greedy --device cpu
    }
done
expect 2 'another architecture does not resume' train --load llama --save llama
err_has 'num_query_groups'

# ---- the checkpoint says what the model is ----
for name in $names; do
    expect 0 "$name: its own arguments" train --load $name --save $name-more \
        --use-checkpoint-args --train-iters 7
done
expect 0 'a window in the words of Megatron-LM' train --load gemma2 \
    --save gemma2-same --use-checkpoint-args --train-iters 7 \
    --window-size '(3, 0)'
expect 2 'another window' train --load gemma2 --save gemma2-same \
    --use-checkpoint-args --train-iters 7 --window-size 4
err_has '--window-size is 4 here and 3 in gemma2'
expect 0 'the same layers as a list' train --load gemma2 --save gemma2-same \
    --use-checkpoint-args --train-iters 7 --window-attn-skip-freq '[1]+[0]' \
    --force
expect 2 'other layers' train --load gemma2 --save gemma2-same --force \
    --use-checkpoint-args --train-iters 7 --window-attn-skip-freq '[0,1]'
err_has '--window-attn-skip-freq is [0,1] here and 2 in gemma2'
expect 0 'a word for the same positions' train --load llama --save llama-same \
    --use-checkpoint-args --train-iters 7 --position-embedding-type rotary
expect 0 'the same factors' train --load phi4 --save phi4-same \
    --use-checkpoint-args --train-iters 7 --rotary-short-factors 1.0,1.50
expect 2 'other factors' train --load phi4 --save phi4-same --force \
    --use-checkpoint-args --train-iters 7 --rotary-long-factors 1,2.25
err_has '--rotary-long-factors is 1,2.25 here and 1,9.75 in phi4'
expect 0 'a preset gives way' train --config llama-tiny --load neox \
    --save neox-preset --use-checkpoint-args --train-iters 7 \
    --use-checkpoint-opt-param-scheduler

# ---- to Hugging Face's files and back ----
texts() { # directory
    # the tokenizer does not go along: ids are bytes
    gpt-generate --load "$1" --tokenizer-type ByteTokenizer --greedy \
        --prompt 'the cat' --tokens 6 --device cpu
}
while read -r name type; do
    expect 0 "$name goes out" gpt-reshape --load-path $name \
        --save-path $name-hf --to hf --verify
    check "as $type" grep -q "\"model_type\":.*\"$type\"" $name-hf/config.json
    expect 0 "$name comes back" gpt-reshape --load-path $name-hf \
        --save-path $name-back --verify
    texts $name >a
    texts $name-back >b
    check "$name: the same text" cmp a b
done <<END
gemma2 gemma2
olmo2 olmo2
bloom bloom
opt opt
qwen qwen2
gptj gptj
granite granite
cohere2 cohere2
phi4 phi3
ministral3 ministral3
hunyuan hunyuan_v1_dense
gptneo gpt_neo
stablelm stablelm
biases llama
END
# the output layer of a state of memory, which transformers saves otherwise
# shellcheck disable=SC2086 # options are words
expect 0 'GPT-NeoX with an output layer' train $neox --save head \
    --train-iters 1 --untie-embeddings-and-output-weights
expect 0 'goes out' gpt-reshape --load-path head --save-path head-hf --to hf
expect 0 'comes back' gpt-reshape --load-path head-hf --save-path head-first
perl -pi -e 's/"embed_out.weight"/"lm_head.weight"  /' \
    head-hf/model.safetensors
check 'by its other name' grep -q '"lm_head.weight"' head-hf/model.safetensors
expect 0 'and from its name in memory' gpt-reshape \
    --load-path head-hf --save-path head-back --verify
check 'the same' cmp head-first/*/model_tp00_pp00.safetensors \
    head-back/*/model_tp00_pp00.safetensors
# Mistral without a window is Llama by another name, which training keeps
# shellcheck disable=SC2086 # options are words
expect 0 'a model of Llama' train $llama --save plain --train-iters 1
expect 0 'goes out' gpt-reshape --load-path plain --save-path plain-hf --to hf
sed -i 's/"llama"/"mistral"/; s/LlamaFor/MistralFor/; /"mlp_bias"/d
    s/"attention_bias":.*/"sliding_window": null,/' plain-hf/config.json
expect 0 'as Mistral it is trained' train --load plain-hf --finetune \
    --use-checkpoint-args --save tuned --train-iters 1
expect 0 'its samples are as long as its texts, which is said' gpt-train \
    --load plain-hf --finetune --use-checkpoint-args --dry-run
out_has ' --seq-length 8'
expect 0 'and resumed' train --load tuned --save tuned --train-iters 2 \
    --use-checkpoint-args --override-opt-param-scheduler
expect 0 'it goes out again' gpt-reshape --load-path tuned \
    --save-path tuned-hf --to hf
check 'as Mistral' grep '"model_type":.*"mistral"' tuned-hf/config.json
expect 0 'nor is that lost on the way over Megatron-LM' gpt-reshape \
    --load-path tuned --save-path tuned-megatron --to megatron
expect 0 'and back' gpt-reshape --load-path tuned-megatron \
    --save-path over-hf --to hf
check 'it is Mistral' grep '"model_type":.*"mistral"' over-hf/config.json
expect 0 'of weights alone' gpt-reshape --load-path plain-hf \
    --save-path weights-megatron --to megatron
expect 0 'into a native one' gpt-reshape --load-path weights-megatron \
    --save-path weights
expect 0 'and out' gpt-reshape --load-path weights --save-path weights-hf --to hf
check 'it is, too' grep '"model_type":.*"mistral"' weights-hf/config.json
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
changed gemma2 's/"attention_bias":.*/"attention_bias": true,/' \
    "no tensor 'model.layers.0.self_attn.q_proj.bias'"
changed biases 's/"llama"/"internlm3"/' 'qkv_bias is true: only false'
changed gemma2 "$(add '"use_bidirectional_attention": true')" \
    'use_bidirectional_attention is true'
changed gemma2 "$(add '"altup_scale": 2')" "'altup_scale' is not known"
changed gemma2 's/full_attention/chunked_attention/' \
    'layer_types has chunked_attention'
changed gemma2 's/"sliding_window":.*/"sliding_window": null,/' \
    'there is no sliding_window'
changed gemma2 's/"sliding_window":.*/"sliding_window": 1,/' \
    'sliding_window is 1'
changed opt 's/"do_layer_norm_before":.*/"do_layer_norm_before": false,/' \
    'do_layer_norm_before is false'
changed opt 's/"word_embed_proj_dim":.*/"word_embed_proj_dim": 8/' \
    'word_embed_proj_dim is 8'
changed opt "$(add '"layerdrop": 0.1')" 'layerdrop is 0.1'
changed bloom "$(add '"apply_residual_connection_post_layernorm": true')" \
    'apply_residual_connection_post_layernorm is true'
changed phi4 's/"long_factor":.*/"long_factor": [1, 2.5, 3],/' \
    'rotary_long_factors has 3 factors, but rotary positions turn 2 pairs'
changed phi4 's/"short_factor":.*/"short_factor": [1, 0],/' \
    "'short_factor' is not a list of numbers above 0"
changed phi4 's/"short_factor":.*/"short_factor": 2,/' \
    "'short_factor' is not a list"
changed phi4 's/"original_max_position_embeddings":.*/\
"original_max_position_embeddings": 1,/' \
    'the positions of pretraining, 2 or more'
changed phi4 's/"longrope"/"mrope"/' 'type is mrope'
changed phi4 "$(add '"interpolate_factor": 2')" 'interpolate_factor is 2'
changed ministral3 's/"llama_4_scaling_beta":.*//' \
    'no llama_4_scaling_beta, without which Ministral3ForCausalLM'
changed ministral3 's/"yarn"/"default"/' \
    'llama_4_scaling_beta is 0.5: only 0 without yarn, llama3 or longrope'
changed phi4 's/"longrope"/"longrope", "mscale": 1/' \
    'mscale is 1: only its absence without yarn'
changed phi4 's/"longrope"/"longrope", "llama_4_scaling_beta": 1/' \
    'llama_4_scaling_beta is 1'
# no class but some turns a share of a head
changed hunyuan 's/"dynamic"/"dynamic", "partial_rotary_factor": 0.5/' \
    'partial_rotary_factor is 0.5: only 1'
changed hunyuan 's/"dynamic"/"ntk_alpha"/' 'type is ntk_alpha'
changed hunyuan "$(add '"use_qk_norm": false')" 'use_qk_norm is false'
changed hunyuan "$(add '"mlp_bias": true')" 'mlp_bias is true: only false'
# biases of the feed-forward, which the only class with such a layer has not
for name in hunyuan apertus; do
    eval "options=\$$name"
    # shellcheck disable=SC2086 # options are words
    expect 0 "$name with biases" train --train-iters 1 --save $name-biases \
        ${options%--disable-bias-linear*} --no-attention-bias \
        ${options#*--disable-bias-linear}
    expect 3 'does not go out' gpt-reshape --load-path $name-biases \
        --save-path $name-biases-hf --to hf
    err_has 'no family of Hugging Face is this model'
done
changed phi4 's/"longrope"/"longrope", "alpha": 1/' 'alpha is 1'
changed gptneo 's/"attention_types":.*/"attention_types": [[["local"], "x"]],/' \
    "'attention_types' is not a list of names and their number"
changed gptneo 's/"attention_types":.*/"attention_types": [[["far"], 2]],/' \
    'attention_types has a name that is neither global nor local'
changed gptneo 's/"attention_types":.*/"attention_types": [[["local"], 3]],/' \
    'has 3 entries for 2 layers'
changed gptneo 's/"attention_types":.*/"attention_types": 2,/' \
    "'attention_types' is not a list"
changed gptneo 's/"attention_types":.*/\
"attention_types": [[["local","local"], 65536]],/' 'has too many layers'
expect 3 'no biases of GPT-Neo for Megatron-LM' gpt-reshape \
    --load-path gptneo --save-path x --to megatron
changed stablelm 's/"qk_layernorm":.*/"qk_layernorm": false,/' \
    'k_layernorm.norms.0.weight'
changed stablelm 's/"num_key_value_heads":.*/"num_key_value_heads": 4,/' \
    'has 2 dimensions, 8 x 16; config.json says 16 x 16'
expect 3 'no norms of each head for Megatron-LM' gpt-reshape \
    --load-path stablelm --save-path x --to megatron
err_has 'qk_norm_each'
hybrid='s/"granite"/"granitemoehybrid"/; /"mlp_bias"/d'
changed granite "$hybrid" "no field 'layer_types'"
changed granite "$hybrid; $(add '"layer_types": ["attention", "mamba"]')" \
    'layer_types is mamba: only attention'
changed granite "$hybrid; $(add '"layer_types": ["attention"]')" \
    "no field 'position_embedding_type'"
cp -r ministral3-hf null-hf
sed -i 's/"head_dim":.*/"head_dim": null,/' null-hf/config.json
expect 0 'heads of no size' gpt-reshape --load-path null-hf --save-path null-back
check 'share the width' cmp null-back/*/model_tp00_pp00.safetensors \
    ministral3-back/*/model_tp00_pp00.safetensors
# the class divides by them with any scaling
cp -r ministral3-hf linear-hf
sed -i 's/"yarn"/"linear"/; s/"llama_4_scaling_beta":.*/"llama_4_scaling_beta": 0,/' \
    linear-hf/config.json
expect 0 'linear scaling without growth' gpt-reshape --load-path linear-hf \
    --save-path linear-out --to hf
check 'has positions of pretraining' \
    grep -q '"original_max_position_embeddings"' linear-out/config.json
cp -r phi4-hf phi4-su
sed -i 's/"longrope"/"su"/' phi4-su/config.json
expect 0 'an early name' gpt-reshape --load-path phi4-su --save-path phi4-new
check 'is the same' cmp phi4-new/*/model_tp00_pp00.safetensors \
    phi4-back/*/model_tp00_pp00.safetensors
changed olmo2 's/"hidden_act":.*/"hidden_act": "quick_gelu",/' 'hidden_act is quick_gelu'

changed gptj 's/"rotary_dim":.*/"rotary_dim": 64,/' 'rotary_dim is 64'
changed granite 's/"residual_multiplier":.*/"residual_multiplier": 0,/' \
    'residual_multiplier is 0'
changed cohere2 's/sliding_attention/full_attention/' \
    'no layer has the sliding_window'
changed cohere2 's/"sliding_window":.*/"sliding_window": null,/' \
    'sliding_window is null: only a number'

# ---- text parts of models that read pictures, too ----
ids() { # directory
    gpt-generate --load "$1" --tokenizer-type NullTokenizer --vocab-size 60 \
        --greedy --prompt '5 17 2 40 9' --tokens 24 --ignore-eod --device cpu
}
while read -r name type left; do
    cp -r "$top/tests/golden/pictures/$name" "$name-hf"
    expect 0 "the text part of $name" gpt-reshape --load-path "$name-hf" \
        --save-path "$name-out" --to hf --verify
    err_has "model_type $name reads pictures, too: the $left tensors for that"
    check "it goes out as $type" grep -q "\"model_type\":.*\"$type\"" \
        "$name-out/config.json"
    for dir in "$name-hf" "$name-out"; do
        ids "$dir" >a
        check "$dir: the text of transformers" diff -w a "$name-hf/text.txt"
    done
done <<END
gemma3 gemma3_text 23
mistral3 ministral3 15
qwen3_vl_moe qwen3_moe 27
mllama llama 54
END
# an object of the part; or its keys beside those of pictures, as in older files
{
    printf '{"model_type": "llava", "tie_word_embeddings": false,
        "vision_config": {}, "text_config": '
    cat plain-hf/config.json
    printf '}'
} >llava.json
cp -r plain-hf llava-hf
mv llava.json llava-hf/config.json
cp -r qwen-hf flat-hf
three='{"type": "mrope", "mrope_section": [1, 1]}'
sed -i 's/"model_type":.*/"model_type": "qwen2_vl", "vision_config": {},/
    s/"rope_scaling":.*/"rope_scaling": '"$three"',/' flat-hf/config.json
check 'a flat file' grep -q mrope_section flat-hf/config.json
for pair in llava=plain:mistral flat=qwen:qwen2; do
    name=${pair%=*} of=${pair#*=}
    expect 0 "the text part of $name" gpt-reshape --load-path $name-hf \
        --save-path $name-out --to hf --verify
    check "it goes out as ${of#*:}" grep -q "\"model_type\":.*\"${of#*:}\"" \
        $name-out/config.json
    check "$name: the same weights" cmp $name-out/model.safetensors \
        "${of%:*}-hf/model.safetensors"
done
changed flat "$(add '"experts": 2')" "'experts' is not known of model_type qwen2"
changed llava 's/"vision_config"/"other_config"/' "'other_config' is not known"
changed gemma3 's/"text_config"/"other"/' "no object 'text_config'"
changed gemma3 "$(add '"experts": 2')" "'experts' is not known of model_type"
changed mistral3 's/"vision_feature_layer"/"quantization_config"/' \
    'its weights are quantized'
changed mistral3 's/"ministral3"/"mistral3"/' 'model_type is mistral3'

# ---- what is typed, and a preset ----
for word in rotary absolute; do
    expect 0 "a preset of rope, and $word" train --config llama-tiny --dry-run \
        --position-embedding-type $word
done
printf 'rotary-interleaved = true\nrotary-scaling-type = linear\n%s\n' \
    'rotary-scaling-factor = 2' >scaled.conf
expect 0 'no positions, over a file with scaled ones' train \
    --config scaled.conf --dry-run --position-embedding-type none
expect 0 'no scaling, over a file with one' train --config scaled.conf \
    --dry-run --position-embedding-type rope --rotary-scaling-type none

# ---- options that contradict ----
# shellcheck disable=SC2086 # options are words
refused() { # message options...
    expect 2 "refused: $1" train --dry-run $2
    err_has "$1"
}
refused '--rotary-interleaved needs --position-embedding-type rope' \
    --rotary-interleaved
refused '--rotary-beta-fast needs --rotary-scaling-type yarn' \
    "$rope --rotary-beta-fast 3"
refused '--rotary-scaling-type linear needs --rotary-scaling-factor' \
    "$rope --rotary-scaling-type linear"
refused '--rotary-scaling-type yarn needs --rotary-original-positions' \
    "$rope --rotary-scaling-type yarn --rotary-scaling-factor 2"
refused 'longrope needs --rotary-original-positions' \
    "$rope --rotary-scaling-type longrope"
refused 'longrope needs --rotary-short-factors LIST' "$longrope"
refused '--rotary-long-factors needs --rotary-scaling-type longrope' \
    "$rope --rotary-long-factors 1,2"
refused 'no_qkv_bias excludes no_linear_bias' \
    '--no-qkv-bias --disable-bias-linear'
refused 'qk_norm_turned needs position_embedding rope' --qk-norm-turned
refused '--rotary-original-positions needs --rotary-scaling-type dynamic' \
    "$rope --rotary-scaling-type ntk_alpha --rotary-scaling-factor 2
    --rotary-original-positions 8"
refused 'rotary_query_growth needs rotary_positions' \
    "$rope --rotary-percent 0.5 --rotary-scaling-type llama3
    --rotary-query-growth 1"
refused '--rotary-query-growth needs --rotary-scaling-type dynamic' \
    "$rope --rotary-query-growth 1"
refused "--rotary-short-factors: '1,,2' is no list of factors" \
    "$longrope --rotary-short-factors 1,,2"
refused 'rotary_long_factors has 1 factors, but rotary positions turn 2 pairs' \
    "$longrope --kv-channels 4 --rotary-short-factors 1,2
    --rotary-long-factors 1"
refused 'rotary_scaling longrope turns 129 pairs of a head: at most 128' \
    "$longrope --kv-channels 258 --rotary-short-factors 1
    --rotary-long-factors 1"
latent="$rope --normalization RMSNorm --disable-bias-linear --kv-lora-rank 8"
refused 'v_head_dim and latent_norm_epsilon need kv_lora_rank' '--v-head-dim 4'
refused 'need kv_lora_rank: they are of latent attention' \
    "--latent-norm-epsilon 1e-6"
refused 'kv_lora_rank needs position_embedding rope' \
    '--multi-latent-attention --normalization RMSNorm --disable-bias-linear'
refused 'kv_lora_rank needs normalization RMSNorm' \
    "$rope --disable-bias-linear --kv-lora-rank 8"
refused 'kv_lora_rank needs no_linear_bias or no_attention_bias' \
    "$rope --normalization RMSNorm --kv-lora-rank 8"
refused 'kv_lora_rank needs no_linear_bias or no_attention_bias' \
    "$latent --add-qkv-bias"
refused 'kv_lora_rank excludes num_query_groups' "$latent --num-query-groups 1"
refused 'needs a head_size of qk_head_dim + qk_pos_emb_head_dim' \
    "$latent --kv-channels 8"
refused 'v_head_dim is above qk_head_dim' \
    "$latent --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 13"
refused 'kv_lora_rank excludes qk_norm and clip_qkv' "$latent --qk-layernorm"
refused 'kv_lora_rank excludes rotary_percent' "$latent --rotary-percent 0.5"
refused 'turn 3 of a head' "$latent --qk-pos-emb-head-dim 3"
refused "--q-lora-rank: 'x'" "$latent --q-lora-rank x"
refused '--squared-relu excludes' '--swiglu --squared-relu'
refused '--attention-head-type multiquery has 1 query groups' \
    '--attention-head-type multiquery --num-query-groups 2'
refused '--window-size 3,1: must be N or N,0' '--window-size 3,1'
refused 'window_attn_skip_freq needs window_size' '--window-attn-skip-freq 2'
refused 'post_norm excludes parallel_blocks' '--post-norm --parallel-residual'
refused 'qk_norm_whole needs normalization RMSNorm' '--qk-norm-whole'
refused 'qk_norm_each needs qk_norm, and excludes qk_norm_whole' \
    '--normalization RMSNorm --qk-norm-each --qk-norm-whole'
refused 'no_norm_weight excludes qk_norm_each' '--no-norm-weight --qk-norm-each'
refused "--qk-norm-each: 'maybe' is neither true nor false" \
    --qk-norm-each=maybe
refused 'position_offset needs position_embedding learned_absolute' \
    "$rope --position-offset 2"
refused 'rotary positions of base' "$rope --kv-channels 5"
refused "'[1,2]' is neither a number" "--window-size 3 \
--window-attn-skip-freq [1,2]"
refused "'[1]*3' has 3 entries for 2 layers" "--window-size 3 \
--window-attn-skip-freq [1]*3"
refused 'the option is --no-rope-freq' "$rope --no-rope-freq [1]*3"
refused '--no-rope-freq needs --position-embedding-type rope' '--no-rope-freq 2'
refused '--group-query-attention needs --num-query-groups N' \
    --group-query-attention
refused "'--context-parallel-size 2', a name of Megatron-LM" \
    '--context-parallel-size 2'
refused '--no-rope-freq names none of the 2 layers' "$rope --no-rope-freq 3"
refused '--no-rope-freq names none' "$rope --no-rope-freq [0]*2"
refused '--window-size: none of the 2 layers has a window' \
    '--window-size 3 --window-full-layers 2'
refused '2 layers are too few: the first and last pipeline stages take 5' \
    '--decoder-first-pipeline-num-layers 5 --pipeline-model-parallel-size 2'
refused 'no_norm_bias needs normalization LayerNorm' \
    '--no-norm-bias --normalization RMSNorm'
refused 'no_norm_weight excludes norm_plus_one and no_norm_bias' \
    '--no-norm-weight --apply-layernorm-1p'
refused 'activation xielu excludes gated' \
    '--activation-function xielu --gated-linear-unit'
refused 'no_mlp_bias excludes no_linear_bias' \
    '--no-mlp-bias --disable-bias-linear'
refused 'clip_qkv excludes qk_norm_turned' \
    "$rope --clip-qkv 1 --qk-norm-turned"
refused "--clip-qkv: -1 is out of range (0 to 1000000)" '--clip-qkv -1'
refused 'scale_embedding excludes embedding_multiplier' \
    '--scale-embedding --embedding-multiplier 2'

# ---- one thing in other words ----
same() { # options, other options
    # shellcheck disable=SC2086 # options are words
    train --dry-run $1 >a 2>&1 || return 1
    # shellcheck disable=SC2086 # options are words
    train --dry-run $2 >b 2>&1 || return 1
    cmp a b
}
check 'absolute positions' same '' '--position-embedding-type absolute'
check 'groups as scripts of Megatron-LM say them' same '--num-query-groups 2' \
    '--group-query-attention --num-query-groups 2'
expect 0 'an option whose value is the only one here' train --dry-run \
    --context-parallel-size 1
err_has '--context-parallel-size (a name of Megatron-LM) has no effect here'
check 'one query group' same '--num-query-groups 1' \
    '--attention-head-type multiquery'
check 'what is typed replaces what a preset says' sh -c '
    gpt-train --config pythia-160m --swiglu --dry-run --device cpu 2>&1 |
    grep -q "rank (0, 0): 162335232$"'
check 'layers as a list' same '--window-size 3 --window-attn-skip-freq 2' \
    '--window-size 3 --window-attn-skip-freq [1,0]'
check 'a gate' same '--swiglu' '--activation-function silu --gated-linear-unit'

# ---- GPUs, emulated ----
if [ -f "$BUILD/libgpt-cuda-emu.so" ]; then
    for name in gemma2 olmo2 bloom opt qwen gptj granite cohere2 phi4 \
        ministral3 hunyuan gptneo stablelm; do
        eval "options=\$$name"
        # shellcheck disable=SC2086 # options are words
        expect 0 "$name on a GPU" gpt-train --num-layers 2 $tiny \
            --global-batch-size 4 --train-iters 6 $options --save $name-gpu \
            --device cuda-emu
        check "$name: the losses of the CPU" near $name $name-gpu 1e-4
        gpt-generate --load $name --prompt 'the cat' --tokens 6 --greedy \
            --device cpu >a
        gpt-generate --load $name --prompt 'the cat' --tokens 6 --greedy \
            --device cuda-emu >b
        check "$name: the same text" cmp a b
    done
fi

# ---- bases of layers with a window ----
# Older files of OLMo 3 say one base for all layers, newer ones two objects, and
# what these leave out is the class's default.
olmo3="$rope --normalization RMSNorm --swiglu --disable-bias-linear
--untie-embeddings-and-output-weights --post-norm --no-pre-norm
--qk-norm-whole --window-size 3 --window-attn-skip-freq 4 --rotary-base 1000
--rotary-local-base 1000 --rotary-scaling-type yarn --rotary-scaling-factor 4
--rotary-original-positions 4"
# shellcheck disable=SC2086 # options are words
expect 0 'OLMo 3' gpt-train $tiny --num-layers 4 --global-batch-size 1 \
    --train-iters 1 --device cpu --no-save-optim --save olmo3 $olmo3
expect 0 'to Hugging Face' gpt-reshape --load-path olmo3 --save-path olmo3-hf \
    --to hf
yarn='"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 4'
bases() { # base of full layers, of others, keys
    rm -rf bases-hf bases bases-out
    cp -r olmo3-hf bases-hf
    perl -0777 -pe 'BEGIN { $keys = shift }
        s/"rope_(scaling|parameters|theta)":\s*(\{([^{}]|\{[^{}]*\})*\}|[^,{}]*),\s*//g;
        s/\{/{$keys, /' "$3" olmo3-hf/config.json >bases-hf/config.json
    expect 0 "bases $1 and $2" gpt-reshape --load-path bases-hf \
        --save-path bases
    grep -c neither err >said
    expect 0 'and back' gpt-reshape --load-path bases --save-path bases-out \
        --to hf
    check 'the same' [ "$1 $2" = "$(perl -0777 -ne 'my $t = $_;
        print join " ", map { $t =~ /"$_":\s*\{[^}]*"rope_theta":\s*([0-9]+)/ }
        qw(full_attention sliding_attention)' bases-out/config.json)" ]
}
bases 1000 1000 "\"rope_theta\": 1000, \"rope_scaling\": {$yarn}"
bases 500000 500000 "\"rope_scaling\": {$yarn}"
for sliding in '' ', "sliding_attention": {"rope_type": "default"}'; do
    bases 1000 500000 "\"rope_parameters\": {\"full_attention\": {$yarn,
        \"rope_theta\": 1000}$sliding}"
done
bases 1000 100 "\"rope_parameters\": {\"full_attention\": {$yarn,
    \"rope_theta\": 1000}, \"sliding_attention\": {\"rope_theta\": 100}}"
check 'without a warning' [ "$(cat said)" = 0 ]
bases 1000 1000 "\"rope_parameters\": {$yarn, \"rope_theta\": 1000}"
check 'with one, of an object that is neither' [ "$(cat said)" = 1 ]
tap_done
