#!/bin/sh
# Checkpoints of nanoGPT, LitGPT and Meta's code of Llama, which are read: models
# that tests/golden/make_pth.py computes by PyTorch, and files that were changed.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden/pth
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}
gen() { # checkpoint option...
    from=$1
    shift
    gpt-generate --load "$from" --tokenizer-type NullTokenizer \
        --vocab-size 60 --device cpu -q "$@"
}
same_as_torch() { # name checkpoint
    expect 0 "$1: a text" gen "$2" --prompt '1 2 3' --greedy --tokens 8 \
        --ignore-eod
    sed -n 1p "$golden/${1%% *}/expected.txt" >want
    check 'is that of PyTorch' sh -c '[ "$(echo $(cat out))" = "$(cat want)" ]'
    echo '{"context":"4 5 6","continuation":" 7 8 9"}' >pair
    expect 0 'a score' gen "$2" --score --prompt-file pair
    check 'is that of PyTorch' perl -ne '
        BEGIN { open F, $ARGV[0]; $want = (<F>)[1]; shift }
        /"logprob":([-0-9.e]+)/ or die; exit abs($1 - $want) > 1e-4' \
        "$golden/${1%% *}/expected.txt" out
}

for name in nanogpt nanogpt_plain llama llama_parts llama_copies litgpt \
    litgpt_old litgpt_experts; do
    same_as_torch $name "$golden/$name"
    expect 0 "$name: into two ranks" into "$golden/$name" $name.two --verify \
        --target-tensor-model-parallel-size 2
    same_as_torch "$name of two ranks" $name.two
done
for parts in llama_parts llama_copies; do
    check "one file and $parts are the same model" gpt-reshape verify \
        "$golden/llama" "$golden/$parts"
done

# ---- nanoGPT ----
expect 0 'inspect a file' gpt-reshape inspect "$golden/nanogpt/ckpt.pt"
out_has 'nanoGPT'
out_has 'transformer.h.1.attn.c_attn.weight  F32   [36, 12]'
# bytes of all elements
moments() { # name iteration bytes
    into "$golden/$1" "$1.one" --make-vocab-size-divisible-by 61 -q
    for kind in model optimizer_exp_avg optimizer_exp_avg_sq; do
        tail -c "$3" "$1.one/iter_$2/${kind}_tp00_pp00.safetensors" >$kind
    done
    check "$1: first moments are those of their parameters" \
        cmp model optimizer_exp_avg
    check 'and others are not' sh -c '! cmp -s model optimizer_exp_avg_sq'
}
moments nanogpt 0000002 19248
moments nanogpt_plain 0000002 18144
printf '%s\n' '{"text":"5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"}' \
    >lines
gpt-preprocess --input lines --output-prefix data --workers 1 -q \
    --tokenizer-type NullTokenizer --vocab-size 60
expect 0 'its training goes on' gpt-train --load "$golden/nanogpt" --save more \
    --use-checkpoint-args --data-path data_text_document --split 1,0,0 \
    --tokenizer-type NullTokenizer --vocab-size 60 --seq-length 8 \
    --micro-batch-size 1 --global-batch-size 2 --train-iters 4 --lr 1e-3 \
    --device cpu --log-interval 1 --override-opt_param-scheduler
check 'at its step' [ -d more/iter_0000004 ]
err_has 'iteration        3/'

copied() { # directory copy
    rm -rf "$2"
    cp -r "$golden/$1" "$2"
    chmod -R u+w "$2"
}
changed() { # directory expression: a copy whose file was changed in place
    copied "$1" changed
    LC_ALL=C perl -pi -e "$2" changed/*.pt* changed/*.json changed/*.yaml 2>/dev/null
}
refused() { # what directory expression message
    changed "$2" "$3"
    expect 3 "$1" gpt-reshape inspect changed
    err_has "$4"
}
refused 'an argument that is missing' nanogpt_plain 's/n_layer/n_layex/' \
    "changed/ckpt.pt: model_args has n_layex, which nanoGPT's model does"
refused 'no arguments' nanogpt_plain 's/model_args/model_argx/' \
    "no dict 'model_args'"
refused 'a tensor that is missing' nanogpt_plain 's/ln_f.weight/ln_g.weight/' \
    "no tensor 'transformer.ln_f.weight'"
err_has 'ckpt.pt describes another model than the files hold'
changed nanogpt_plain 's/exp_avg_sq/exp_avg_sx/g'
expect 0 'a state that is not of Adam' into changed left -q
err_has 'its optimizer state is left out: it is not that of Adam, but has exp_avg'
changed nanogpt_plain \
    '$n ||= s/\x01\0{7}\0{3}\x40/\x01\0\0\0\0\0\0\0\0\0\x40\x40/'
expect 0 'steps that differ' into changed uneven -q
err_has 'left out: its parameters have different counts of steps'
changed nanogpt_plain 's/X\x04\0{3}step/X\x03\0\0\0sumK\x01$&/'
expect 0 'a state that has more than Adam' into changed more.state
err_has 'iter_0000002: left out: sum'
check 'keeps moments' [ -f \
    more.state/iter_0000002/optimizer_exp_avg_tp00_pp00.safetensors ]
expect 2 'an iteration' gen "$golden/nanogpt" --ckpt-step 2 -p 1
err_has 'holds one model and no iterations'
mkdir empty
: >empty/ckpt.pt
expect 3 'an empty file' gpt-reshape inspect empty

# ---- Meta ----
expect 0 'a warning' gpt-reshape inspect "$golden/llama"
err_has 'no max_seq_len: texts are taken to have at most 8192 tokens'
refused 'a key that is not known' llama 's/"multiple_of"/"moe"/' \
    "changed/params.json: 'moe' is not known, and may change what"
refused 'biases' llama 's/"multiple_of": 8/"use_biases": true/' \
    'a model with use_biases is not read'
refused 'other heads' llama 's/"n_heads": 4/"n_heads": 3/' \
    'hidden_size (16) is not a multiple of num_attention_heads (3)'
changed llama 's/"multiple_of": 8/"use_scaled_rope": true/'
expect 0 'scaled positions' gpt-reshape inspect changed
out_has 'rotary_scaling           "llama3"'
err_has 'positions are scaled by 8, as the code of Llama 3.1 does'
changed llama 's/"multiple_of": 8/"sliding_window": 5, "tied_embeddings": null/'
expect 0 'a window, and null' gpt-reshape inspect changed
err_has 'no max_seq_len'
out_has 'window_size              4'
changed llama 's/"multiple_of": 8/"max_position_embeddings": 77/'
expect 0 'positions by a longer name' gpt-reshape inspect changed
out_has 'max_positions            77'
refused 'a part that is missing' llama_parts \
    's/layers.1.attention.wo/layers.1.attention.wx/ if $ARGV =~ /01/' \
    "consolidated.01.pth: tensor 'layers.1.attention.wo.weight' is missing"
rm -f changed/consolidated.01.pth
expect 3 'a file that is missing' gpt-reshape inspect changed
err_has "tensor 'tok_embeddings.weight' has 2 dimensions, 61 x 8"
# of four ranks two each have a copy of a head of keys and values
swapped() { # layer: keys and values of the second rank
    printf 's/layers.%s.attention.w([kv])/"layers.%s.attention.w" .
        ($1 eq "k" ? "v" : "k")/ge if $ARGV =~ /[.]01/' "$1" "$1"
}
refused 'copies of a head that differ' llama_copies "$(swapped 0)" \
    "01.pth: tensor 'layers.0.attention.wk.weight' is not that of consolidated"
err_has 'n_kv_heads is 2, and each of them has copies in 2 files, which differ'
changed llama_copies "$(swapped 1)"
expect 3 'and in another layer, when it is converted' into changed mixed -q
err_has "01.pth: tensor 'layers.1.attention.wk.weight' is not that of consolidated"
expect 0 'of which nobody asks' into changed unasked -q --no-verify-input
changed llama_copies \
    's/layers.([01]).ffn/"layers." . (1 - $1) . ".ffn"/ge if $ARGV =~ /03/'
expect 0 'copies of norms that differ' into changed mixed -q
err_has "differ, 2 in all, first 'layers.0.ffn_norm.weight' of consolidated.03"
expect 0 'nor of those' into changed unasked -q -f --no-verify-input
check 'without a word' sh -c '! grep -q "in all, first" "$1"' \
    sh "$scratch/err"

# ---- LitGPT ----
moments litgpt 0000001 32704
moments litgpt_experts 0000001 32192
refused 'a router that chooses by groups' litgpt_experts \
    's/n_expert_groups: null/n_expert_groups: 2/' "n_expert_groups '2' is not"
refused 'fewer experts than a token has' litgpt_experts \
    's/n_expert: 4/n_expert: 1/' 'moe_router_topk is above num_experts'
refused 'a field that is not known' litgpt \
    's/sliding_window_size: null/sliding_window_size: 9/' \
    "sliding_window_size '9' is not known, and may change what the model"
refused 'a class that is not known' litgpt 's/RMSNorm/RMSNorx/' \
    "norm_class_name 'RMSNorx' is not known"
refused 'a list that is not known' litgpt \
    's/sliding_window_indices: null/sliding_window_indices:\n- 1/' \
    "sliding_window_indices '...' is not known"
refused 'numbers in a line' litgpt \
    's/^rope_adjustments:/rope_adjustments: {factor: 2}/; s/^  .*\n//' \
    "rope_adjustments '{factor: 2}' is not known"
refused 'a word for a switch' litgpt \
    's/^parallel_residual: false/parallel_residual: no/' \
    "parallel_residual 'no' is not known"
refused 'a field that is missing' litgpt 's/^parallel_residual: .*\n//' \
    "changed/model_config.yaml: no field 'parallel_residual'"
changed litgpt 'if ($ARGV =~ /yaml/) { s/^  (?!factor).*\n//; s/false$/False/;
    s/\n/\r\n/; s/^att/---\r\n # x\r\natt/ }'
expect 0 'one factor, words of Python, lines of Windows' \
    gpt-reshape inspect changed
out_has 'rotary_scaling           "linear"'
out_has 'parallel_blocks          false'
refused 'another scaling' litgpt 's/  low_freq_factor/  beta_fast/' \
    "beta_fast '1.0' is not that of Llama 3's scaling, nor"
refused 'a line that is none' litgpt 's/^n_head: 4/n_head 4/' "no 'name: value'"
refused 'a word for a number' litgpt 's/^n_layer: 2/n_layer: x/' \
    "n_layer 'x' is not known"
expect 0 'what is left out of a run' into "$golden/litgpt" other
err_has 'train_dataloader'

copied llama lacking
rm lacking/params.json
expect 3 'without params.json' gpt-reshape inspect lacking
err_has 'params.json is missing beside them'
mkdir lit
: >lit/lit_model.pth
expect 3 'without model_config.yaml' gpt-reshape inspect lit
err_has 'model_config.yaml is missing beside them'

# Llama 3's vocabulary, whose name is that of another kind of file
copied llama llama3
printf 'IQ== 0\nIg== 1\n' >llama3/tokenizer.model
expect 3 'ranks as tokenizer.model' gpt-generate --load llama3 -p abc --tokens 4
err_has 'no SentencePiece model, but ranks of a TikTokenizer, as Llama 3 has'
tap_done
