#!/bin/sh
# Quantized models of Hugging Face in gpt-reshape, gpt-train and gpt-generate:
# tests/golden/quantized has one of each method, and the digests of its floats;
# messages for what is not read, and for files that were made to harm. Files of
# the libraries themselves are in tests/parity/quantized.sh.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden/quantized
ids="--tokenizer-type NullTokenizer --vocab-size 15"
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}

# ---- the floats ----
while read -r name bytes digest; do
    from=$golden/$name
    expect 0 "$name" into "$from" "$name" --to hf --target-params-dtype fp32 \
        --verify
    err_has 'its weights are quantized ('
    tail -c "$bytes" "$name/model.safetensors" | sha256sum |
        cut -d ' ' -f 1 >got
    echo "$digest" >want
    check "$name: its floats" cmp got want
    check "$name: it says so no more" sh -c '! grep -q quantiz "$0"/config.json' \
        "$name"
    # ranks hold parts of rows and of columns
    expect 0 "$name: two ranks and two stages" into "$from" "$name-two" \
        --target-tensor-model-parallel-size 2 --target-params-dtype fp32 \
        --verify
    expect 0 "$name: are equal to it" gpt-reshape diff "$name-two" "$from"
    err_has 'its weights are quantized ('
    expect 0 "$name: for llama.cpp" into "$from" "$name.gguf" \
        --target-params-dtype fp32 --verify
    expect 0 "$name: a text of it" gpt-generate --load "$from" --prompt '1 2 3' \
        --greedy --tokens 4 $ids -q
    cp out want
    expect 0 "$name: and of its floats" gpt-generate --load "$name" \
        --prompt '1 2 3' --greedy --tokens 4 $ids -q
    check "$name: are the same" cmp out want
done <"$golden/floats.txt"

# ---- what is shown ----
shows() { # name text
    expect 0 "inspect $1" gpt-reshape inspect "$golden/$1"
    out_has "method                   \"$2\""
}
shows fp8 'fp8, 8 bits, blocks of 16 x 16'
out_has 'F8_E4M3  [40, 32]'
shows fp8_static 'fp8, 8 bits'
shows ct_channel 'compressed-tensors, float-quantized, 8 bits'
shows ct_pack4 'compressed-tensors, pack-quantized, 4 bits, groups of 8'
shows gptq 'gptq, 4 bits, groups of 8'
shows bnb_nf4 'bitsandbytes, 4 bits'
expect 0 'as JSON' gpt-reshape inspect "$golden/awq" --json
out_has '"quantization":{"method":"awq, 4 bits, groups of 8"}'

# ---- other types, adapters, training ----
expect 0 'rounded while it is read' into "$golden/gptq" gptq16 --to hf \
    --target-params-dtype bf16 --verify
expect 0 'as the floats are' into gptq floats16 --to hf \
    --target-params-dtype bf16
check 'the same' cmp gptq16/model.safetensors floats16/model.safetensors
for name in bnb_nf4 awq fp8; do
    expect 0 "$name: an adapter" into "$golden/$name" merged --to hf --force \
        --merge-adapter "$golden/adapter" --target-params-dtype fp32 --verify
    expect 0 "$name: on its floats" into "$name" merged2 --to hf --force \
        --merge-adapter "$golden/adapter"
    check "$name: is the same" cmp merged/model.safetensors \
        merged2/model.safetensors
done
if [ -x "$BUILD/gpt-train" ]; then
    echo '1 2 3 4 5 6 7 8 9 10 11 12 13 14 1 2 3 4 5 6 7 8 9 10' |
        sed 's/.*/{"text": "&"}/' >x.jsonl
    gpt-preprocess --input x.jsonl --output-prefix x -q $ids
    train() { # directory
        gpt-train --data-path x_text_document --load "$1" --finetune \
            --use-checkpoint-args --vocab-size 16 --seq-length 16 \
            --train-iters 2 --lr 1e-3 --split 100,0,0 --save "$2"
    }
    expect 0 'trained on' train "$golden/gptq" run
    check 'it says once that they are quantized' test \
        "$(grep -c 'its weights are quantized (' err)" = 1
    expect 0 'as its floats are' train gptq run-floats
    check 'to the same weights' cmp run/iter_0000002/model_tp00_pp00.safetensors \
        run-floats/iter_0000002/model_tp00_pp00.safetensors
fi

copied() { # name: into "changed"
    rm -rf changed
    cp -r "$golden/$1" changed
}

# ---- keys of newer versions ----
newer() { # name, sed script for config.json
    copied "$1"
    sed -i "$2" changed/config.json
    expect 0 "$1 by the other key" gpt-reshape diff changed "$golden/$1"
}
newer gptq_v2 's/"checkpoint_format"/"format"/'
newer awq 's/"version": "gemm"/"format": "gemm", "backend": "auto"/'

# ---- what is not read ----
refused() { # name, sed script for config.json, message
    copied "$1"
    sed -i "$2" changed/config.json
    expect 3 "refused: $3" into changed x
    err_has "$3"
}
only='only fp8, compressed-tensors (float-quantized)'
refused fp8 's/"fp8"/"aqlm"/' "its weights are quantized, by aqlm: $only"
err_has 'name the model that was quantized'
refused ct_int 's/"int-quantized"/"marlin-24"/' \
    "quantized, by compressed-tensors, marlin-24: $only"
refused fp8 's/"e4m3"/"e5m2"/' 'fmt is "e5m2": only e4m3 is read'
refused fp8 's/"weight_block_size".*/"weight_block_size": [0,/' \
    'weight_block_size is [0,16,16]: only a list of two sizes'
refused gptq 's/"bits": 4/"bits": 5/' 'bits is 5: only 2, 3, 4 and 8 are read'
refused gptq 's/"bits": 4/"bits": 3/' 'rows of words, which is no multiple of 3'
refused gptq 's/"group_size": 8/"group_size": 0/' 'group_size is 0'
refused gptq 's/"group_size": 8/"group_size": "8"/' "'group_size'"
refused gptq 's/"sym"/"checkpoint_format": "marlin", "sym"/' \
    'checkpoint_format is "marlin": only gptq is read'
refused gptq 's/"sym"/"dynamic": {"a": {"bits": 8}}, "sym"/' \
    'dynamic is {"a":{"bits":8}}: only none is read'
refused gptq 's/"sym"/"format": "marlin", "sym"/' \
    'format is "marlin": only gptq is read'
refused awq 's/"gemm"/"gemv"/' 'version is "gemv": only gemm is read'
refused awq 's/"version": "gemm"/"format": "gemv_fast"/' \
    'format is "gemv_fast": only gemm is read'
refused awq 's/"gemm"/"gemm", "backend": "llm-awq"/' \
    'backend is "llm-awq": only the layout of AutoAWQ is read'
refused awq 's/"bits": 4/"bits": 8/' 'bits is 8: only 4 is read'
refused awq 's/"zero_point": true/"zero_point": false/' \
    'zero_point is false: only true is read'
refused ct_pack4 's/"config_groups"/"transform_config": {"a": 1}, &/' \
    'transform_config is {"a":1}: only none is read'
refused ct_pack4 's/"config_groups"/"x"/' 'config_groups is absent'
refused ct_pack4 's/"group_0": {/&"weights": {"num_bits": 8, "type": "int"}}, "b": {/' \
    'numbers of different kinds'
refused ct_pack4 's/"strategy": "group"/"strategy": "token"/' \
    'strategy is "token": only tensor, channel, group or block'
refused ct_pack4 's/"symmetric": true/"actorder": "group", &/' \
    'actorder is "group": only weight is read'
refused ct_channel 's/"symmetric": true/"symmetric": false/' \
    'only symmetric numbers of 8 bits'
refused ct_channel 's/"config_groups"/"sparsity_config": {"format": "24"}, &/' \
    'format is "24": only dense is read'
rm -rf gpt2
cp -r "$top/tests/golden/hf" gpt2
sed -i 's/"n_layer"/"quantization_config": {"quant_method": "gptq"}, &/' \
    gpt2/config.json
expect 3 'matrices that are turned' into gpt2 x
err_has 'quantized (gptq, 4 bits, groups of 128), which is not read of models'
expect 2 'nor written' into fp8 x --to hf --target-params-dtype fp8

# ---- files that were made to harm ----
# Changes of the header keep its length, those of data are at a tensor's
# beginning.
harmed() { # name, sed script for the tensors' header, message
    copied "$1"
    sed -i "$2" changed/model.safetensors
    expect 3 "harmed: $3" into changed x
    err_has "$3"
}
q=model.layers.0.self_attn.q_proj
harmed fp8 "s/$q.weight_scale_inv/$q.weight_scale_in_/" \
    "no tensor '$q.weight_scale_inv', which tensor '$q.weight' is quantized with"
harmed fp8 's/weight_scale_inv":{"dtype":"F32","shape":\[3,2\]/weight_scale_inv":{"dtype":"F32","shape":[2,3]/' \
    'has 2 dimensions, 2 x 3; fp8, 8 bits, blocks of 16 x 16 asks for 3 x 2'
harmed fp8 's/q_proj.weight_scale_inv":{"dtype":"F32"/q_proj.weight_scale_inv":{"dtype":"I32"/' \
    'is of type I32, which is not read of fp8'
harmed fp8 's/q_proj.weight":{"dtype":"F8_E4M3",/q_proj.weight":{"dtype":"I8",     /' \
    'is of type I8, which is not read of fp8'
harmed gptq "s/$q.scales/$q.scale_/" "no tensor '$q.scales'"
harmed gptq "s/$q.qzeros/$q.qzero_/" "no tensor '$q.qzeros'"
harmed gptq 's/qzeros":{"dtype":"I32","shape":\[4,4\]/qzeros":{"dtype":"I32","shape":[2,8]/' \
    '2 x 8; gptq, 4 bits, groups of 8 asks for 4 x 4'
harmed gptq 's/q_proj.g_idx":{"dtype":"I32"/q_proj.g_idx":{"dtype":"F32"/' \
    "q_proj.g_idx' is of type F32"
harmed gptq "s/$q.g_idx/$q.g_idy/" "'$q.g_idy' is not one of a model"
harmed gptq 's/q_proj.qweight":{"dtype":"I32","shape":\[4,32\]/q_proj.qweight":{"dtype":"I32","shape":[8,16]/' \
    "q_proj.scales' has 2 dimensions"
harmed awq "s/$q.qweight/$q.qweighs/" "no tensor '$q.weight'"
harmed ct_pack4 "s/$q.weight_shape/$q.weight_shap_/" \
    "no tensor '$q.weight_shape'"
harmed ct_int "s/$q.weight_zero_point/$q.weight_zero_p_int/" \
    "no tensor '$q.weight_zero_point'"
harmed bnb_nf4 "s/$q.weight.absmax/$q.weight.absma_/" \
    "no tensor '$q.weight.absmax'"
harmed bnb_nf4 "s/$q.weight.nested_quant_map/$q.weight.nested_quant_m_p/" \
    "no tensor '$q.weight.nested_quant_map'"
harmed bnb_nf4 's/"shape": \[32, 32\]/"shape": [32, 16]/' \
    'it is of 32 x 16 numbers, and tensor'
harmed bnb_nf4 's/"shape": \[32, 32\]/"shape": [3 ,"2"]/' \
    "'shape' is not two sizes"
harmed bnb_nf4 's/"shape": \[32, 32\]/"shape":[32,32.5]/' \
    "'shape' is not two sizes"
harmed bnb_nf4 's/"blocksize": 64/"blocksize": -1/' "'blocksize' is -1"
harmed bnb_nf4 's/"blocksize": 64/"blocksize": 32/' \
    "q_proj.weight.absmax' has 1 dimensions, 16 x 1"
harmed bnb_nf4 's/"nested_blocksize": 5/"nested_blocksize": 1/' \
    "nested_absmax' has 1 dimensions"
harmed bnb_nf4 's/{"quant_type"/ "quant_type"/' 'quant_state of'
harmed bnb_int8 "s/$q.SCB/$q.SCX/" "no tensor '$q.SCB'"

data() { # name tensor bytes: writes them at the tensor's beginning
    copied "$1"
    perl -e '
        my ($path, $name, $bytes) = @ARGV;
        open(my $f, "+<", $path) or die;
        read($f, my $n, 8);
        read($f, my $head, unpack("V", $n));
        $head =~ /"\Q$name\E":\{[^}]*\[(\d+),/ or die;
        seek($f, 8 + unpack("V", $n) + $1, 0);
        print $f pack("H*", $bytes)' changed/model.safetensors "$2" "$3"
}
for index in 04000000 ffffffff 000000f0; do
    data gptq $q.g_idx $index
    expect 3 "a group $index" into changed x
    err_has "tensor '$q.weight': row 0 is of group "
done
err_has 'there are 4'
expect 3 'also where it is loaded' gpt-generate --load changed --prompt '1' \
    $ids --tokens 1
err_has "tensor '$q.weight': row 0 is of group "
expect 0 'though it can be listed' gpt-reshape inspect changed
data ct_pack4 $q.weight_shape ffffffffffffffff
expect 3 'a shape below zero' into changed x
err_has "tensor '$q.weight_shape' is -1, 32"
data bnb_int8 $q.weight_format 01
expect 3 'rows of another order' into changed x
err_has 'only rows, 0, are read'
data fp8 $q.weight 7f
expect 0 'what is no number' into changed nan --to hf --target-params-dtype fp32
check 'stays none' sh -c 'perl -e "read STDIN, \$x, 1e9; exit !(\$x =~
    /\\x00\\x00\\xc0[\\x7f\\xff]/s)" <nan/model.safetensors'

tap_done
