#!/bin/sh
# gpt-reshape: a GPT-2 that transformers saved (tests/golden/hf) goes through
# every layout and back; what it computes; messages about bad input and output.
. "$(dirname "$0")/../lib/tap.sh"

hf=$top/tests/golden/hf
tp=--target-tensor-model-parallel-size
pp=--target-pipeline-model-parallel-size
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}
# Prints the bytes of the tensors, without the header.
tensors() {
    gpt-reshape inspect "$1" --json |
        grep -oE '"name":"[a-z][^"]*","dtype":"[^"]*","shape":\[[^]]*\]' |
        sort
}
near() { # file file tolerance: numbers
    paste -d' ' "$1" "$2" | awk -v tol="$3" '
        { n = NF / 2
          for (i = 1; i <= n; i++) {
              d = $i - $(i + n); if (d < 0) d = -d
              if (d > tol) { print NR, i, $i, $(i + n); bad = 1 }
              count++
          } }
        END { exit bad || count < 100 }'
}

# ---- in, through the layouts, out ----
expect 0 'reads what transformers wrote' into "$hf" a --verify
err_has 'equals the input, bit for bit'
expect 0 'to 2 x 2 ranks' into a b $tp 2 $pp 2 --verify
check 'four files' [ "$(echo b/iter_0000000/model_*)" = \
    "b/iter_0000000/model_tp00_pp00.safetensors b/iter_0000000/model_tp00_pp01.safetensors b/iter_0000000/model_tp01_pp00.safetensors b/iter_0000000/model_tp01_pp01.safetensors" ]
expect 0 'and back to one' into b c --tensor-model-parallel-size 1 $pp 1
check 'the same bytes' diff -r a c
expect 0 'to 1 x 2' into b d $tp 1 $pp 2
expect 0 'from there to 2 x 1' into d/iter_0000000 e $tp 2 $pp 1 --threads 1
expect 0 'to one' into e f $tp 1
check 'the same bytes' diff -r a f
expect 0 'out to Hugging Face' into b g --to hf --verify
tensors "$hf" >want
tensors g >got
check 'names, types and shapes as they came' cmp want got
tail -c 31552 "$hf/model.safetensors" >want
tail -c 31552 g/model.safetensors >got
check 'the same bytes in the same order' cmp want got
check 'config.json as it was' grep -q '"eos_token_id":.*66' g/config.json
expect 0 'in shards, in the words of the script' gpt-reshape --load_path b \
    --save_path h --convert_checkpoint_from_megatron_to_transformers \
    --max_shard_size 10KB --verify
check 'four of them' [ -f h/model-00004-of-00004.safetensors ]
check 'with an index' grep -q '"transformer.h.1.mlp.c_fc.weight":' \
    h/model.safetensors.index.json
expect 0 'read again' into h i
check 'the same bytes' diff -r a i

# ---- it computes the same ----
dump=$BUILD/tests/parity/logits
if [ -x "$dump" ]; then
    tokens=$(head -n 1 "$hf/logits.txt")
    tail -n +2 "$hf/logits.txt" >want
    for dir in a b; do
        expect 0 "logits of $dir" "$dump" $dir $tokens
        check "those of transformers (1e-4)" near out want 1e-4
    done
else
    skip 'tests/parity/logits is not built'
fi

# ---- numbers that are lost ----
cp -r "$hf" large
printf '\000\000\200\107' | dd of=large/model.safetensors bs=4 conv=notrunc \
    seek=$(($(wc -c <"$hf/model.safetensors") / 4 - 1)) 2>dd.err # 65536
expect 0 'a number that fp16 does not hold' into large large16 \
    --target-params-dtype fp16
err_has 'infinite as fp16, which ends at 65504: '
expect 0 'to other formats, too' into large large16hf --to hf \
    --target-params-dtype fp16
err_has "1 element, as of 'transformer.wte.weight'"
expect 0 'to one that holds them' into large largehf --to hf \
    --target-params-dtype bf16
check 'without a warning' sh -c '! grep -q infinite "$0"' "$scratch/err"

if [ -x "$BUILD/gpt-train" ]; then
    train() {
        gpt-train --data-path x_text_document \
            --vocab-size 67 --num-layers 2 --hidden-size 16 \
            --num-attention-heads 2 --seq-length 16 --train-iters 2 \
            --lr 1e-3 --split 100,0,0 --load a "$@"
    }
    # Bytes below 67 are ids of that model.
    echo '{"text": "1234567890, 1234567890, 1234567890 (1234567890)!"}' >x.jsonl
    gpt-preprocess --input x.jsonl --output-prefix x -q \
        --tokenizer-type ByteTokenizer
    expect 2 'weights are no run' train
    err_has 'converted from another format'
    expect 0 'but the beginning of one' train --finetune --save run
    expect 0 'which goes out again' into run runhf --to hf --verify
    check 'changed' sh -c '! cmp -s runhf/model.safetensors g/model.safetensors'
    expect 0 'to 2 x 2 with its optimizer' into run run22 $tp 2 $pp 2 --verify
    expect 0 'and back' into run22 run11 $tp 1 $pp 1 --verify
    check 'the same bytes' diff -r run/iter_0000002 run11/iter_0000002
    # straight from Hugging Face, which holds no dummy rows and no run
    expect 2 'a model of Hugging Face is no run' train --load "$hf"
    err_has 'it holds weights only, and no run to resume'
    err_has '--finetune starts a new run'
    expect 0 'but the beginning of one' train --load "$hf" --finetune \
        --save runhf2
    check 'the same as by way of a native checkpoint' \
        cmp runhf2/iter_0000002/model_tp00_pp00.safetensors \
        run/iter_0000002/model_tp00_pp00.safetensors
    expect 0 'and from its shards' train --load h --finetune --save runh
    check 'the same' cmp runh/iter_0000002/model_tp00_pp00.safetensors \
        run/iter_0000002/model_tp00_pp00.safetensors
    expect 2 'another model' train --load "$hf" --finetune --vocab-size 66
    err_has 'its model has vocab_size 67'
    cp -r "$hf" hfcopy
    expect 7 'saving into it' train --load hfcopy --finetune --save hfcopy
    expect 7 'by force' train --load hfcopy --finetune --save hfcopy --force
    err_has 'hfcopy holds a checkpoint of format huggingface'
    expect 0 'it resumes from 2 x 2' train --load run22 --save on \
        --train-iters 3 --override-opt-param-scheduler
    expect 0 'and from 1 x 1' train --load run11 --save on1 \
        --train-iters 3 --override-opt-param-scheduler
    check 'to the same weights' cmp \
        on/iter_0000003/model_tp00_pp00.safetensors \
        on1/iter_0000003/model_tp00_pp00.safetensors
    expect 0 'a model without a table of positions' gpt-train --num-layers 2 \
        --data-path x_text_document --vocab-size 67 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 16 --train-iters 1 --lr 1e-3 \
        --split 100,0,0 --position-embedding-type rope --save rope
    expect 0 'goes to 2 x 2' into rope rope22 $tp 2 $pp 2 --verify
    expect 0 'and back' into rope22 rope11 $tp 1 $pp 1 --verify
    check 'to the same bytes' diff -r rope/iter_0000001 rope11/iter_0000001
    expect 0 'it goes out as the family that has it' into rope ropehf --to hf \
        --verify
    check 'which is GPT-NeoX' grep -q '"model_type":.*"gpt_neox"' \
        ropehf/config.json
    expect 0 'and comes back' into ropehf ropeback --verify
    # Llama's class refuses a width that its heads do not share
    expect 0 'heads that do not share the width' gpt-train --num-layers 1 \
        --data-path x_text_document --vocab-size 67 --hidden-size 18 \
        --num-attention-heads 4 --kv-channels 4 --seq-length 16 --lr 1e-3 \
        --train-iters 1 --split 100,0,0 --position-embedding-type rope \
        --normalization RMSNorm --swiglu --disable-bias-linear --save shares
    expect 0 'go out' into shares shareshf --to hf --verify
    check 'as Mistral' grep -q '"model_type":.*"mistral"' shareshf/config.json
    # Phi-3's class counts LongRoPE's factors by the width
    expect 0 'LongRoPE in heads of their own size' gpt-train --num-layers 1 \
        --data-path x_text_document --vocab-size 67 --hidden-size 16 \
        --num-attention-heads 4 --kv-channels 6 --seq-length 8 --lr 1e-3 \
        --train-iters 1 --split 100,0,0 --position-embedding-type rope \
        --normalization RMSNorm --swiglu --disable-bias-linear --save far \
        --rotary-scaling-type longrope --rotary-original-positions 4 \
        --rotary-short-factors 1,1,2 --rotary-long-factors 1,4,5
    expect 3 'does not go out' into far farhf --to hf
    err_has 'differ: llama in rotary_scaling; mistral in rotary_scaling'
    expect 0 'a model of no family' gpt-train --num-layers 2 \
        --data-path x_text_document --vocab-size 67 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 16 --train-iters 1 --lr 1e-3 \
        --split 100,0,0 --position-embedding-type alibi --save alibi
    expect 3 'does not go out' into alibi alibihf --to hf
    err_has 'no family of Hugging Face is this model'
    err_has 'differ: gpt2 in position_embedding; falcon in position_embedding'
    err_has '; gpt_bigcode in position_embedding'
    check 'and no other' eval '! grep -q llama "$scratch/err"'
    expect 2 'a base without rotary positions' gpt-train --rotary-base 500 \
        --data-path x_text_document --vocab-size 67
    err_has '--rotary-base needs --position-embedding-type rope'
fi

# ---- types ----
expect 0 'cast to bf16' into a half --target-params-dtype bf16 --verify
expect 0 'inspect it' gpt-reshape inspect half
out_has 'BF16'
expect 0 'cast while going out' into a halfhf --to hf --target_params_dtype \
    bf16 --verify
expect 0 'wide again' into half wide --target-params-dtype fp32 --verify
expect 0 'the other way round' into halfhf half2
check 'commutes' diff -r half half2

# ---- vocabulary ----
expect 0 'another padding' into a pad --make-vocab-size-divisible-by 100
expect 0 'inspect' gpt-reshape inspect pad
out_has 'padded_vocab_size        100'
expect 0 'and out' into pad padhf --to hf
check 'no dummy rows' cmp padhf/model.safetensors g/model.safetensors
expect 0 'a smaller true vocabulary' into a small --true-vocab-size 60
expect 2 'a larger one' into a large --true-vocab-size 129
err_has 'has 128 rows'

# ---- inspect ----
expect 0 'a file' gpt-reshape inspect b/iter_0000000/model_tp01_pp00.safetensors
out_has 'slice of decoder.layers.0.mlp.linear_fc1.weight'
out_has '"64x16 at 32,0"'
expect 0 'a Hugging Face directory' gpt-reshape inspect "$hf"
out_has 'transformer.h.0.attn.c_attn.weight'
out_has 'total: 28 tensors'
expect 0 'JSON' gpt-reshape inspect b --json
out_has '"layout":{"tensor_parallel":2,"pipeline_parallel":2}'
expect 0 'a dry run' into a nothing $tp 2 --dry-run
out_has 'model_tp01_pp00.safetensors'
check 'writes nothing' [ ! -e nothing ]
expect 0 'the structure' into a shown --print-checkpoint-structure
out_has 'embedding.word_embeddings.weight'

# ---- vocabulary files ----
echo '{"a":0,"<|endoftext|>":9}' >v.json
printf '#version: 0.2\n' >m.txt
expect 0 'attached' into a withv --vocab-file v.json --merge-file m.txt
check 'there' cmp v.json withv/iter_0000000/vocab.json
expect 0 'travel on' into withv withv2 $tp 2
check 'there' cmp m.txt withv2/iter_0000000/merges.txt
expect 0 'and out' into withv2 withvhf --to hf
check 'there' cmp v.json withvhf/vocab.json
check 'with their class' grep -q GPT2Tokenizer withvhf/tokenizer_config.json
expect 0 'and in' into withvhf withv3
check 'there' cmp m.txt withv3/iter_0000000/merges.txt
for format in native megatron hf; do
    expect 4 'below a file' into a v.json/x --to $format
    err_has "'v.json/x': 'v.json' is no directory"
    expect 4 'far below a file' into a v.json/x/y --to $format
    err_has "'v.json/x/y': 'v.json' is no directory"
done
for file in nowhere .; do
    expect 4 'a vocabulary that cannot be copied' into a early --vocab-file $file
    err_has "'$file'"
    check 'is found before the work' [ ! -e early ]
done

# ---- bad input ----
damage() { rm -rf bad; cp -r "$1" bad; }
f=bad/iter_0000000/model_tp01_pp00.safetensors
damage b
truncate -s 5000 $f
expect 3 'a truncated file' into bad x
err_has "$f: truncated: 5000 bytes"
expect 3 'is seen without checksums too' into bad x --no-verify-input
damage b
printf X | dd of=$f bs=1 seek=4500 conv=notrunc 2>/dev/null
expect 3 'a changed byte' into bad x
err_has "$f: altered"
damage b
printf X | dd of=$f bs=1 seek=$(($(wc -c <$f) - 9)) conv=notrunc 2>/dev/null
for to in native megatron hf gguf; do
    out=spoilt
    [ $to = gguf ] && out=spoilt.gguf
    [ $to = native ] && out=of/spoilt//ones
    [ $to = megatron ] && mkdir of && out=of/spoilt/ones
    expect 3 "a changed weight, to $to" into bad $out --to $to
    err_has "$f: altered"
    check 'leaves nothing' [ -z "$(find . -name '*spoilt*')" ]
    if [ $to = native ]; then check 'no parent either' [ ! -e of ]; fi
    if [ $to = megatron ]; then check 'but those before' rmdir of; fi
done
expect 2 'what cannot be is refused before a file is read' into bad x $tp 3
err_has 'does not divide by the tensor model parallel size'
rm $f
expect 3 'a missing file' into bad x
err_has "$f: missing"
damage b
sed -i 's/"hidden_size":.*16/"hidden_size": 24/' bad/iter_0000000/manifest.json
expect 3 'a changed manifest' into bad x
err_has 'manifest.json: cut short or altered'
damage "$hf"
truncate -s -1 bad/model.safetensors
expect 3 'Hugging Face, truncated' into bad x
err_has 'bad/model.safetensors: truncated'
damage h
rm bad/model-00003-of-00004.safetensors
expect 3 'a missing shard' into bad x
err_has 'model-00003-of-00004.safetensors: missing'
damage h
sed -i 's/transformer.wpe.weight/transformer.wpf.weight/' \
    bad/model.safetensors.index.json
expect 3 'an index that lies' into bad x
err_has "no tensor 'transformer.wpf.weight'"
damage h
perl -pi -e 's/transformer(?=[.]wte)/transformex/' bad/model*
expect 3 'tensors of what wraps a model' into bad x
err_has "no tensor 'transformer.wte.weight', but 'transformex.wte.weight'"
err_has 'state_dict() of the model itself'
damage h
perl -pi -e 's/wte[.]weight/wtf.weight/' bad/model*
expect 3 'no word table' into bad x
err_has "no tensor 'transformer.wte.weight'; the first is 'transformer."
config() { # sed script, error
    damage "$hf"
    sed -i "$1" bad/config.json
    expect 3 "config.json: $2" into bad x
    err_has "$2"
}
config 's/"n_embd": 16/"n_embd": 32/' 'config.json says 67 x 32'
config 's/"n_layer": 2/"n_layer": 3/' "no tensor 'transformer.h.2.ln_1.weight'"
config 's/"n_layer": 2/"n_layer": 1/' "'transformer.h.1.attn.c_attn.bias' is not one of a model of model_type gpt2"
config 's/"n_layer": 2/"n_layer": 60000/' 'the files hold 28 tensors'
config 's/"n_head": 2/"n_head": 3/' 'not a multiple of num_attention_heads'
config 's/"n_head": 2/"n_head": -2/' "'n_head' is -2, out of range"
config 's/"model_type": "gpt2"/"model_type": "mamba"/' 'model_type is mamba'
# what other models have is named, with the key that says so
config 's/"model_type": "gpt2"/"model_type": "new", "num_local_experts": 8/' \
    'model_type is new, whose models have experts of another kind (num_local_experts)'
config 's/"model_type": "gpt2"/"model_type": "new", "num_experts": 8, "kv_lora_rank": 4/' \
    'model_type is new, whose models have latent attention of another kind (kv_lora_rank)'
config 's/"model_type": "gpt2"/"model_type": "phimoe"/' \
    'whose models have experts whose weights are shares of some scores (model_type)'
config 's/"model_type": "gpt2"/"model_type": "old", "state_size": 0/' \
    'model_type is old: only gpt2'
config 's/"model_type": "gpt2"/"model_type": "bitnet"/' \
    'whose models have weights of three values (model_type)'
config 's/"model_type": "gpt2"/"model_type": "gemma4_assistant"/' \
    'whose models have keys and values of another model (model_type)'
# the type counts before a key that its files have, too
config 's/"model_type": "gpt2"/"model_type": "doge", "num_experts": 8/' \
    'whose models have masks that are computed from values (model_type)'
config 's/gelu_new/mish/' 'activation_function is mish'
config 's/"n_layer": 2/"n_layer": 2, "logit_cap": 30/' "'logit_cap' is not known"
err_has 'remove the key when it changes nothing'
config 's/"n_layer": 2/"n_layer": 2, "quantization_config": {}/' \
    "'quantization_config': its weights are quantized"
config 's/_layer_idx": false/_layer_idx": true/' 'scale_attn_by_inverse_layer_idx is true'
config 's/"n_layer"/x/' 'not valid JSON'
# keys in an object, as MPT has those of attention
nested() { # object, error
    echo "{\"model_type\":\"mpt\",\"attn_config\":{$1}}" >bad/config.json
    expect 3 "config.json: $2" into bad x
    err_has "$2"
}
nested '"qk_ln":true' 'attn_config.qk_ln is true: only false is supported'
nested '"alibi":false' 'attn_config.alibi is false: only true is supported'
nested '"rope":true' "'attn_config.rope' is not known of model_type mpt"
nested '"clip_qkv":"x"' "'attn_config.clip_qkv' is not a number"
echo '{"model_type":"codegen","n_head":6,"n_embd":48,"rotary_dim":4}' \
    >bad/config.json
expect 3 'six heads are not four parts' into bad x
err_has '6 heads are not four equal parts, which models of model_type codegen'
mkdir pickled
cp "$hf/config.json" pickled
: >pickled/pytorch_model.bin
expect 3 'a pickle' into pickled x
err_has 'pytorch_model.bin: byte 0: 0 bytes: this is no file of torch.save()'
mkdir empty
expect 3 'an empty directory' into empty x
expect 4 'no directory' into nowhere x
check 'nothing was written' [ ! -e x/latest_checkpointed_iteration.txt ]

# ---- output ----
expect 7 'an iteration that exists' into a b
expect 0 'except with --force' into a b --force $tp 2 $pp 2
cp -r b other
mv other/iter_0000000 other/iter_0000024
echo 24 >other/latest_checkpointed_iteration.txt
expect 7 'beside the checkpoints of a run' into a other
err_has 'other: holds checkpoints already'
expect 0 'with --force' into a other --force
expect 7 'a directory that exists' into a g --to hf
expect 2 'onto itself' into a a --force
mkdir home
echo notes >home/notes.txt
expect 7 'in the place of other files' into a home --to hf --force
err_has "home holds 'notes.txt'"
check 'which stay' test -s home/notes.txt
expect 0 'a native checkpoint beside them' into a home
cp -r b native
expect 7 'Hugging Face files in the place of a run' into g native --to hf --force
err_has 'native holds a checkpoint of format native'
check 'which stays' test -f native/latest_checkpointed_iteration.txt
cp -r g files
for dir in files files/; do
    expect 7 'a native checkpoint among Hugging Face files' into b $dir --force
    err_has 'holds a checkpoint of format huggingface'
    err_has 'hint: name a new directory'
done
rm files/config.json
expect 7 'among weights without a configuration' into b files
err_has "files holds 'model.safetensors'"
check 'nothing is written' test ! -e files/latest_checkpointed_iteration.txt
expect 7 'into an iteration of a run' into a "$(echo native/iter_*)"
err_has 'is one checkpoint of a run'
ln -s "$(echo native/iter_*)" link
for dir in "$(echo native/iter_*)/sub" link/new/sub; do
    expect 2 "inside of its input: $dir" into native "$dir" $tp 2 $pp 1
    err_has "'$dir' lies in the input native/iter_"
    err_has 'hint: name a directory outside of it'
done
expect 2 'a file in an iteration of a run' into native link/model.gguf
expect 2 'a directory in one of Hugging Face' into g g/native --dry-run
check 'nothing is written' test ! -e g/native -a ! -e link/new
for dir in nope/../link/sub ./nope/new/../../link; do
    expect 2 "through a name that is not there: $dir" into native $dir --force
    err_has "'$dir' goes back with '..' from a directory that is not there"
done
check 'which is not made' test ! -e nope
expect 0 'a file beside those of Hugging Face' into g g/model.gguf
expect 0 'beside iterations' into native native/hf --to hf
rm -rf g/model.gguf native/hf
expect 2 'into a stream' into g - --to gguf
err_has "hint: name a file; './-' is one of that name"
expect 4 'from a stream' into - x
err_has 'which standard input is not: name a file or a directory'
expect 2 'more ids than rows, which no padding makes' into g x \
    --true-vocab-size 100
err_has 'rows, and no more ids than that'
expect 0 'parts' into g parts --to hf --max-shard-size 5KB
rm parts/model.safetensors.index.json
expect 3 'without their index' into parts x
err_has 'is one part of the model: the index, which names all parts, is missing'
rm parts/model-*
expect 3 'without any' into parts x
err_has 'the weights are missing beside config.json'
mkdir misnamed
cp parts/config.json misnamed
: >misnamed/model.fp16.safetensors
expect 3 'weights of another name' into misnamed x
err_has 'model.fp16.safetensors is there: if it holds the whole model'
expect 0 'parts again' into g parts2 --to hf --max-shard-size 5KB
# What wraps a model when it is saved puts its words into names. Headers end in
# spaces, of which as many go as words take.
wrap() { # what a name begins with, in a regular expression; what it becomes
    rm -rf wrapped
    cp -r parts2 wrapped
    for file in wrapped/model*; do
        FROM=$1 TO=$2 perl -0777 -pi -e '
            my $n = /^[{]/ ? 0 : unpack "Q<", $_;
            my $head = $n ? substr($_, 8, $n) : $_;
            $head =~ s/"(?=transformer)($ENV{FROM})/"$ENV{TO}/g;
            chop $head while $n && length $head > $n;
            $_ = $n ? substr($_, 0, 8) . $head . substr($_, 8 + $n) : $head' \
            "$file"
    done
}
while read -r words from to; do
    wrap "$from" "$to"
    check "names have the words of $words" sh -c \
        "cat wrapped/*.safetensors | grep -aq '\"$to'"
    expect 0 "weights of $words" gpt-reshape verify wrapped g
    out_has 'equal'
done <<'END'
DistributedDataParallel transformer module.transformer
torch.compile() transformer _orig_mod.transformer
both transformer module._orig_mod.transformer
FSDP transformer[.]h[.]1 transformer.h.1._fsdp_wrapped_module
checkpointing transformer[.]h[.]1 transformer.h.1._checkpoint_wrapped_module
END
wrap transformer other.transformer
expect 3 'words that no wrapper has' into wrapped x
err_has 'state_dict() of the model itself'
cp -r g adapted
: >adapted/adapter_config.json
expect 0 'an adapter beside its model' gpt-reshape inspect adapted
err_has 'adapted: adapter_config.json is there, an adapter of PEFT, which is not applied'
rm parts2/model-00002-*
expect 3 'a part is missing' into parts2 x
err_has 'hint: copy or download the whole directory again'
expect 2 'heads do not divide' into a x $tp 4
err_has 'num_attention_heads (2) does not divide'
expect 2 'layers do not divide' into a x $pp 4
err_has 'hint: choose a divisor with --target-pipeline-model-parallel-size, or'
err_has 'with --decoder-first-pipeline-num-layers or --decoder-last-'
into a wide2 $tp 2 -q
expect 2 'layers do not divide, though the input has ranks' into wide2 x $pp 3
err_has 'hint: choose a divisor with --target-pipeline-model-parallel-size, or'
expect 2 'heads do not divide, though stages do' into a x $tp 4 $pp 2
err_has 'hint: choose a divisor with --target-tensor-model-parallel-size; '
expect 2 'no input' gpt-reshape --save-path x
err_has '--load-path is needed'
expect 2 'no such command' gpt-reshape show a
err_has 'none of inspect, globals, plan, convert, verify, diff'
expect 2 'shards of a native checkpoint' into a x --max-shard-size 1MB
err_has '--max-shard-size has no effect on format native'
expect 2 'a layout for Hugging Face' into a x --to hf $tp 2
err_has 'has no effect on format hf'
expect 0 'the first line of the guide of accelerate' gpt-reshape \
    --convert_checkpoint_from_megatron_to_transformers --load_path a \
    --save_path guide1 --max_shard_size 200MB --tokenizer_name gpt2 \
    --print-checkpoint-structure
err_has '--tokenizer_name (a name of accelerate) has no effect here'
expect 0 'and the second' gpt-reshape --load_path guide1 --save_path guide2 \
    --target_tensor_model_parallel_size 2 \
    --target_pipeline_model_parallel_size 2 --target_data_parallel_size 2 \
    --target_params_dtype bf16 --make_vocab_size_divisible_by 128 \
    --use_distributed_optimizer --print-checkpoint-structure
expect 0 'equal after rounding is said so' into a x --target-params-dtype bf16 \
    --verify
err_has 'equals the input after rounding to bf16'
rm -rf x
if command -v flock >/dev/null; then
    into a locked 2>/dev/null
    : >locked/.lock
    : >hold
    flock locked/.lock sh -c 'echo held
        while [ -e hold ]; do sleep 0.05; done' >held &
    until_true 60 test -s held
    expect 7 'a run is saving there' into a locked --force
    err_has 'another run saves there'
    rm hold
    wait $!
fi
expect 2 'an ambiguous size' into a x --max-shard-size 5Gb
rm -rf x
mkdir ro
chmod 500 ro
if [ "$(id -u)" = 0 ]; then
    skip 'root may write anywhere'
else
    expect 4 'a directory that is not writable' into a ro/x
fi
chmod 700 ro

# ---- a full disk ----
if mkdir disk && mount -t tmpfs -o size=32k none disk 2>/dev/null; then
    expect 4 'a full disk' into a disk/x
    check 'leaves nothing' [ -z "$(ls -A disk)" ]
    expect 4 'for another format' into a disk/x/y --to megatron
    check 'leaves nothing, either' [ -z "$(ls -A disk)" ]
    umount disk
elif (ulimit -f 40; trap '' XFSZ; into a ul) 2>ul.err; then
    skip 'neither a small file system nor a file size limit'
else
    check 'a file size limit is an error of output' grep -q 'ul/' ul.err
    check 'leaves no checkpoint' [ ! -e ul/iter_0000000 ]
fi

# ---- every system call may fail ----
# Makes some calls of each kind fail, one in each run: the status is documented,
# there is a complete checkpoint or none, and no temporary file.
after_fault() { # kind error statuses
    total=$(sed -n "s/^faults:.* $1 \([0-9]*\).*/\1/p" count)
    [ "$total" -gt 0 ] || { echo "no call of $1"; return 1; }
    step=$((total / 8 + 1))
    n=1
    while [ $n -le "$total" ]; do
        rm -rf fault
        status=0
        GPT_FAULT=$1:$n:$2 "$faulty" --load-path b --save-path fault $tp 1 \
            $pp 2 --verify --threads 1 2>err || status=$?
        echo "$1 $n of $total: status $status" && cat err
        case " $3 " in *" $status "*) ;; *) return 1 ;; esac
        [ $status = 0 ] || grep -q ': error: ' err || return 1
        if [ -e fault/iter_0000000 ]; then
            gpt-reshape --load-path fault/iter_0000000 --save-path fault2 \
                --force 2>err || { cat err; return 1; }
        fi
        if find fault -name '*tmp*' 2>/dev/null | grep .; then return 1; fi
        n=$((n + step))
    done
}
faulty=$BUILD/faults/gpt-reshape
if [ -x "$faulty" ]; then
    GPT_FAULT=count "$faulty" --load-path b --save-path fault $tp 1 $pp 2 \
        --verify --threads 1 2>count
    check 'reads fail' after_fault read EIO '4'
    check 'the disk is full' after_fault write ENOSPC '4'
    check 'writes are interrupted' after_fault write EINTR '0'
    check 'syncing fails' after_fault fsync EIO '4'
    check 'publishing fails' after_fault rename EIO '4'
    # The loss of a progress line or of a message is no failure.
    check 'memory is out' after_fault alloc ENOMEM '0 1'
else
    skip 'gpt-reshape with faults is not built'
fi
# ---- beside the weights of Hugging Face ----
cp -r "$hf" beside
mkdir beside/additional_chat_templates
echo '{{ messages }}' | tee beside/chat_template.jinja \
    >beside/additional_chat_templates/tool_use.jinja
touch beside/optimizer.pt beside/scheduler.pt
expect 0 'more than a model' gpt-reshape convert beside beside2 --to hf
err_has 'left out: additional_chat_templates, optimizer.pt, scheduler.pt'
check 'its template goes along' cmp beside/chat_template.jinja \
    beside2/chat_template.jinja

# ---- pipes ----
# nobody has named them: they are not waited for
mkdir -p piped/iter_0000001 piped-hf piped-root
echo 1 >piped/latest_checkpointed_iteration.txt
mkfifo piped/iter_0000001/manifest.json piped-hf/config.json \
    piped-root/latest_checkpointed_iteration.txt
: >piped-hf/model.safetensors
for file in piped/iter_0000001/manifest.json piped-hf/config.json \
    piped-root/latest_checkpointed_iteration.txt; do
    expect 4 "$file" timeout 20 gpt-reshape inspect "${file%%/*}"
    err_has "'$file' is a pipe, not a regular file"
done
tap_done
