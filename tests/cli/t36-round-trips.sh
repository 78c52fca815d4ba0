#!/bin/sh
# Round trips end in the bytes that they began with: models of each class of
# layouts that formats have, with their optimizer, through ranks, stages that are
# uneven and virtual, Megatron's format in both ways of keeping an optimizer, and
# Hugging Face's; in fp32, bf16 and fp16.
. "$(dirname "$0")/../lib/tap.sh"
[ -x "$BUILD/gpt-train" ] || {
    skip 'no gpt-train'
    tap_done
    exit
}
tp=--target-tensor-model-parallel-size
pp=--target-pipeline-model-parallel-size
first=--decoder-first-pipeline-num-layers
last=--decoder-last-pipeline-num-layers
virtual=--num-virtual-stages-per-pipeline-rank
echo '1234567890,.-+/(' | awk '{ for (i = 0; i < 20; i++) t = t $0
    print "{\"text\": \"" t "\"}" }' >x.jsonl
gpt-preprocess --input x.jsonl --output-prefix x -q \
    --tokenizer-type ByteTokenizer

rope='--position-embedding-type rope'
plain="$rope --normalization RMSNorm --disable-bias-linear
    --num-query-groups 4"
gated="$plain --swiglu"
own='--untie-embeddings-and-output-weights'
options_of() { # model: options, and the formats that hold it
    formats=hf
    wide=2 wider=4 # tensor parallel sizes
    case $1 in
    gpt2) options='' formats='hf megatron' ;;
    llama) options="$gated $own" formats='hf megatron' ;;
    qwen2) options="$gated --add-qkv-bias" formats='hf megatron' ;;
    qwen3) options="$gated --qk-layernorm --kv-channels 6"
        formats='hf megatron' ;;
    gpt_neox) options="$rope --rotary-percent 0.5 --parallel-residual $own
        --activation-function gelu_exact" ;;
    falcon) options="$rope --parallel-residual --shared-norm
        --num-query-groups 1 --disable-bias-linear
        --activation-function gelu_exact" wide=1 wider=1 ;;
    falcon_rw) options='--position-embedding-type alibi_bf16
        --activation-function gelu_exact' ;;
    gemma) options="$plain --apply-layernorm-1p --geglu --scale-embedding" ;;
    gemma2) options="$plain --apply-layernorm-1p --geglu --post-norm
        --scale-embedding --window-size 3,0 --window-attn-skip-freq 2
        --query-pre-attn-scalar 6 --attn-logit-softcapping 2
        --final-logit-softcapping 3" ;;
    olmo2) options="$gated $own --no-pre-norm --qk-norm-whole" ;;
    bloom) options='--position-embedding-type alibi --embedding-norm' ;;
    opt) options='--position-offset 2 --activation-function relu' ;;
    esac
}
train() { # directory option...
    dir=$1
    shift
    gpt-train --data-path x_text_document --vocab-size 67 --num-layers 8 \
        --hidden-size 16 --num-attention-heads 4 --seq-length 16 \
        --train-iters 2 --lr 1e-3 --split 100,0,0 --save "$dir" \
        --make-vocab-size-divisible-by 32 "$@"
}
# Each leg is named and done from the one before; the last one goes home.
leg() { # from to option...
    from=$1 to=$2
    shift 2
    rm -rf "$to"
    gpt-reshape --load-path "$from" --save-path "$to" -q "$@" || {
        echo "$from to $to: $*"
        return 1
    }
}
home() { # from: equals `want`, from the manifest to the last byte
    leg "$1" back $tp 1 $pp 1 && diff -r want/iter_* back/iter_*
}
through_ranks() { # directory
    leg "$1" a $tp $wide $pp 2 && leg a b $tp $wider $pp 1 &&
        leg b a $tp 1 $pp 4 $first 1 $last 3 &&
        leg a b $tp $wide $pp 2 $virtual 2 &&
        leg b a $tp 1 $pp 4 $virtual 2 && leg a b $tp $wider $pp 2 $first 5 &&
        home b
}
through_megatron() { # directory: two layouts, stages of each kind
    leg "$1" m --to megatron && home m &&
        leg "$1" m --to megatron $tp 2 $pp 4 $virtual 2 &&
        [ -f m/iter_0000002/mp_rank_01_003/model_optim_rng.pt ] && home m &&
        leg m n --to megatron $tp 1 $pp 4 $first 1 $last 3 \
            --saver-transformer-impl legacy && home n &&
        leg "$1" m $tp 2 $pp 2 $virtual 2 --use-distributed-optimizer &&
        [ -f m/iter_0000002/mp_rank_01_001/distrib_optim.pt ] && home m
}
# Weights alone, of no iteration. The type is that of the files.
through_hf() { # directory type
    leg "$1" h --to hf --target-params-dtype "$2" && leg h w $tp 1 &&
        leg w h --to hf && leg h a $tp $wide $pp 2 && leg a b $tp $wider $pp 1 &&
        leg b h2 --to hf && cmp h/model.safetensors h2/model.safetensors &&
        leg h2 b $tp 1 $pp 1 && diff -r w b && {
        case " $formats " in
        *' megatron '*)
            leg w m --to megatron $tp 2 $pp 2 && leg m b $tp 1 $pp 1 &&
                cmp w/iter_0000000/model_tp00_pp00.safetensors \
                    b/iter_0000000/model_tp00_pp00.safetensors
            ;;
        esac
    }
}
# Files of two types, a tensor each: what holds tensors of both types loses no
# bit of either.
file_of() { # tensor
    sed -n "s/.*\"$1\":[^\"]*\"\(.*\)\".*/\1/p" mix/*.index.json
}
through_types() { # directory, tensor of fp32 among those of bf16
    leg "$1" wide --to hf --max-shard-size 1 &&
        leg "$1" mix --to hf --max-shard-size 1 --target-params-dtype bf16 &&
        f=$(file_of "$2") && cp wide/"$f" mix/"$f" &&
        for format in native megatron gguf llmc; do
            rm -rf mixed
            leg mix mixed --to $format --verify || [ $format = llmc ] || return
            [ ! -e mixed ] || leg mixed h --to hf --max-shard-size 1 || return
            cmp wide/"$f" h/"$f" || return
        done
}
for model in gpt2 llama qwen2 qwen3 gpt_neox falcon falcon_rw gemma gemma2 \
    olmo2 bloom opt; do
    options_of $model
    precision= # of the run: its checkpoint holds fp32
    [ $model = llama ] && precision=--bf16
    rm -rf run want
    # shellcheck disable=SC2086 # options are words
    expect 0 "$model trains" train run $options $precision
    leg run want $tp 1 $pp 1
    check "$model: through ranks and stages" through_ranks run
    if [ $model = gpt2 ]; then
        expect 0 'what weights alone lack' gpt-reshape convert run lacks --to hf
        err_has 'left out, as format hf holds weights alone: optimizer state,'
        err_has 'schedule of the learning rate, iteration 2, '
        cp -r run less
        rm less/iter_*/optimizer_exp_avg_sq_*
        expect 3 'state that is not all there' gpt-reshape convert less x
        err_has '--to hf converts these alone'
        rm -rf altered
        cp -r run altered
        printf XYZ | dd of="$(echo altered/iter_*/model_tp00_pp00*)" bs=1 \
            seek=20000 conv=notrunc 2>dd.err
        expect 3 'an altered weight' gpt-reshape convert altered x
        err_has 'model_tp00_pp00.safetensors: altered'
        check 'is no matter of state' sh -c '! grep -q "these alone" "$0"' \
            "$scratch/err"
        expect 0 'its weights alone' gpt-reshape convert less bare --to hf
        check 'are the same' cmp bare/model.safetensors lacks/model.safetensors
    fi
    for type in fp32 bf16 fp16; do
        check "$model: through Hugging Face in $type" through_hf run $type
    done
    case $model in
    gpt2)
        check 'gpt2: norms of another type' through_types run \
            transformer.h.3.ln_1.bias
        ;;
    llama)
        check 'llama: keys of another type' through_types run \
            model.layers.3.self_attn.k_proj.weight
        check 'llama: a gate of another type' through_types run \
            model.layers.3.mlp.up_proj.weight
        ;;
    esac
    case " $formats " in
    *' megatron '*)
        check "$model: through Megatron-LM" through_megatron run
        ;;
    esac
done
# The bias of an output layer has a number for each token: three tables a kind.
rm -rf run
# shellcheck disable=SC2086 # options are words
expect 0 'an output layer with a bias trains' train run $rope $own --output-bias
check 'through another height of the vocabulary' leg run a \
    --make-vocab-size-divisible-by 7 --verify
check 'and back' leg a b --make-vocab-size-divisible-by 32 --verify
check 'is the same run' gpt-reshape verify run b
tap_done
