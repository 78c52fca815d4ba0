#!/bin/sh
# Types of models that users bring: those whose code came with their files,
# which transformers has no class of (tests/golden/remote), text parts of models
# that read pictures and sound, and experts in GGUF files. transformers and
# llama.cpp are compared with in tests/parity.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"

golden=$top/tests/golden
ids() { # directory
    gpt-generate --load "$1" --tokenizer-type NullTokenizer --vocab-size 60 \
        --greedy --prompt '5 17 2 40 9' --tokens 24 --ignore-eod --device cpu
}
names() { # directory: its tensors and their shapes
    perl -0777 -ne '$n = unpack "Q<", $_; $h = substr $_, 8, $n;
        print map { "$_\n" } sort $h =~ /"([^"]+":\{[^}]*"shape":\[[^]]*\])/g' \
        "$1/model.safetensors" | sed 's/"dtype":"[A-Z0-9]*"//; s/ //g'
}
renamed() { # file, perl statement: names in the header of safetensors
    perl -0777 -i -pe '$n = unpack "Q<", $_; $h = substr $_, 8, $n;
        $data = substr $_, 8 + $n; $_ = $h; '"$2"'; $h = $_;
        $_ = pack("Q<", length $h) . $h . $data' "$1/model.safetensors"
}
add() { # key and value
    echo "s/\"model_type\"/$1, \"model_type\"/"
}
changed() { # directory, sed script, message
    rm -rf changed
    cp -r "$1" changed
    chmod -R u+w changed
    sed -i "$2" changed/config.json
    expect 3 "refused: $3" gpt-reshape --load-path changed --save-path x
    err_has "$3"
}

# ---- without a class, or in another order than it ----
for dir in "$golden"/remote/*; do
    name=${dir##*/}
    ids "$dir" >a
    check "$name: the text of transformers" diff -w a "$dir/text.txt"
    expect 0 "$name: into two ranks" gpt-reshape --load-path "$dir" \
        --save-path "$name" --verify --target-tensor-model-parallel-size 2
    for from in "$dir" "$name"; do
        rm -rf back
        expect 0 "$name: goes out" gpt-reshape --load-path "$from" \
            --save-path back --to hf --verify
        check 'as its own type' grep -q "\"model_type\":[^\"]*\"$name\"" \
            back/config.json
        names back >got
        names "$dir" >want
        check 'by the same names' cmp got want
        ids back >b
        check 'with the same text' cmp a b
    done
done
remote=$golden/remote
changed "$remote/qwen" 's/"intermediate_size":.*/"intermediate_size": 41,/' \
    'intermediate_size is 41: only an even number'
changed "$remote/qwen" 's/"no_bias":.*/"no_bias": false,/' 'no_bias is false'
changed "$remote/chatglm" 's/"original_rope":.*/"original_rope": false,/' \
    'original_rope is false'
changed "$remote/chatglm" "$(add '"rope_ratio": 0')" \
    'rope_ratio is 0: only a number above 0'
changed "$remote/minicpm" 's/"scale_depth":.*/"scale_depth": -1,/' \
    'scale_depth is -1: only a number above 0'
changed "$remote/deepseek" 's/"scoring_func":.*/"scoring_func": "sigmoid",/' \
    'scoring_func is sigmoid: only "softmax"'
changed "$remote/bailing_moe" 's/"norm_head":.*/"norm_head": true,/' \
    'norm_head is true'
changed "$remote/sarvam_moe" 's/"n_group":.*/"n_group": 0.5,/' \
    "'n_group' is 0.5, out of range"
changed "$remote/internlm2" 's/"internlm2"/"baichuan"/' \
    'model_type is baichuan, whose models have an output layer that is normed'

# ---- pictures and sound ----
expect 0 'what speaks, too' gpt-reshape --save-path omni --to hf --verify \
    --load-path "$golden/pictures/qwen2_5_omni"
err_has 'model_type qwen2_5_omni reads pictures and sound, too: the'
ids omni >a
check 'the text of transformers' diff -w a "$golden/pictures/qwen2_5_omni/text.txt"
mllama=$golden/pictures/mllama
changed "$mllama" 's/"cross_attention_layers"/"other"/' \
    'cross_attention_layers names no layer'
expect 3 'an adapter of it' gpt-reshape --load-path "$mllama" --save-path x \
    --merge-adapter "$golden/adapter"
err_has 'no adapter is merged into a model of whose layers some are left out'
changed "$golden/pictures/qwen3_vl_moe" 's/"vision_config"/"other_config"/' \
    "'other_config' is not known"
# a part by another word, and keys beside those of pictures
cp -r "$remote/internlm2" plain
chmod -R u+w plain
inner=$(tr -d '\n' <plain/config.json)
mkdir chat
echo "{\"model_type\": \"internvl_chat\", \"vision_config\": {}, \"llm_config\":
    $inner, \"ps_version\": \"v2\", \"template\": \"x\"}" >chat/config.json
cp plain/model.safetensors chat
renamed chat 's/"(model|output)\./"language_model.$1./g'
expect 0 'InternVL' gpt-reshape --load-path chat --save-path chat-out --to hf
check 'the same weights' gpt-reshape verify chat-out plain
check 'of its part' grep -q '"model_type":.*"internlm2"' chat-out/config.json
changed chat 's/"llm_config"/"text_config"/' "no object 'llm_config'"
make_data
llama="--position-embedding-type rope --normalization RMSNorm --swiglu
--disable-bias-linear --untie-embeddings-and-output-weights"
model() { # name, its options
    # shellcheck disable=SC2086 # options are words
    expect 0 "$1 trains" gpt-train --num-layers 2 $tiny $llama $2 \
        --global-batch-size 1 --train-iters 2 --device cpu --save "$1" \
        --no-save-optim
    expect 0 "$1 goes out" gpt-reshape --load-path "$1" \
        --save-path "$1-hf" --to hf
}
model llama ''
model qwen2 --add-qkv-bias
whole() { # name, model, its type's keys, statement for names
    rm -rf "$1-hf" "$1-out"
    cp -r "$2-hf" "$1-hf"
    sed -i "s/\"model_type\":.*/$3,/" "$1-hf/config.json"
    renamed "$1-hf" "$4"
    expect 0 "$1" gpt-reshape --load-path "$1-hf" --save-path "$1-out" --to hf
    check "$1 is $2" cmp "$1-out/model.safetensors" "$2-hf/model.safetensors"
}
whole llava llama '"model_type": "llava_llama", "mm_hidden_size": 8' ''
whole minicpmv qwen2 '"model_type": "minicpmv", "version": 2.6' \
    's/"(model|lm_head)\./"llm.$1./g'
changed minicpmv-hf 's/2\.6/2.4/' 'model_type is minicpmv'
# matrices of Phi that adapters for pictures change, which are beside them
gpt-reshape --load-path "$golden/gguf/window.gguf" --save-path phi3-hf \
    --to hf -q
# shellcheck disable=SC2016 # perl's
for type in phi3_v phi4mm; do
    whole $type phi3 "\"model_type\": \"$type\", \"img_processor\": {}" \
        's/(qkv_proj|down_proj)\.weight/$1.base_layer.weight/g'
done

# ---- experts in GGUF files ----
moe='--num-experts 4 --moe-router-topk 2'
some="$moe --moe-ffn-hidden-size 12 --moe-shared-expert-intermediate-size 24"
deep="$some --moe-router-score-function sigmoid --moe-router-expert-bias"
latent='--rotary-interleaved --kv-lora-rank 12 --qk-head-dim 5
--qk-pos-emb-head-dim 4'
yarn='--rotary-scaling-type yarn --rotary-scaling-factor 4
--rotary-original-positions 8 --rotary-attention-factor 1
--query-pre-attn-scalar 6.213720280457906'
while IFS='|' read -r arch options; do
    rm -rf one back
    # shellcheck disable=SC2086 # options are words
    expect 0 "$arch: a model" gpt-train --num-layers 2 $tiny $llama \
        --ffn-hidden-size 24 $(eval "echo $options") --global-batch-size 1 \
        --train-iters 2 --device cpu --save one --no-save-optim
    expect 0 "$arch: into a file" gpt-reshape --load-path one \
        --save-path one.gguf --verify --force
    tr '\n' ' ' <one.gguf >words
    check "as $arch" grep -qa "general.architecture.*$arch" words
    expect 0 "$arch: and back" gpt-reshape --load-path one.gguf \
        --save-path back --target-tensor-model-parallel-size 2
    check 'as the same' gpt-reshape verify one back
done <<END
glm4moe|\$deep --rotary-percent 0.5 --moe-dense-layers 1
dots1|\$deep --qk-layernorm --moe-router-topk-scaling-factor 2.5
ernie4_5-moe|\$some --rotary-interleaved --moe-router-expert-bias --moe-dense-layers 1
hunyuan-moe|\$moe --qk-norm-turned --moe-shared-expert-intermediate-size 24
minimax-m2|\$moe --qk-norm-whole --moe-router-score-function sigmoid --moe-router-expert-bias
bailingmoe|\$some --add-qkv-bias
deepseek|\$some --moe-router-pre-softmax --moe-dense-layers 1
deepseek2|\$deep \$latent --v-head-dim 7 --moe-router-num-groups 2 --moe-router-group-topk 1
deepseek2|\$some \$latent --v-head-dim 9 --q-lora-rank 10 --moe-router-pre-softmax \$yarn
chatglm|--rotary-interleaved --rotary-percent 0.5 --add-qkv-bias
END
# shellcheck disable=SC2086 # options are words
expect 0 'every other layer' gpt-train --num-layers 2 $tiny $llama $deep \
    --moe-layer-freq 2 --global-batch-size 1 --train-iters 1 --device cpu \
    --save other --no-save-optim
expect 3 'is no file' gpt-reshape --load-path other --save-path other.gguf
err_has 'moe_layer_freq'
for name in internlm2 minicpm; do
    expect 0 "$name: into a file" gpt-reshape --verify \
        --load-path "$remote/$name" --save-path $name.gguf
    check "as $name" grep -qa "general.architecture.*$name" $name.gguf
    ids $name.gguf >a
    check 'the same text' diff -w a "$remote/$name/text.txt"
done
tap_done
