#!/bin/sh
# Runs as classic checkpoints of Megatron-LM: gated models with RMSNorm and the
# like, and optimizer state, written and read, plain and distributed. Losses and
# files of megatron-core itself are those of tests/golden/make_megatron_core.py.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/named_runs.sh"

golden=$top/tests/golden/megatron
tp=--target-tensor-model-parallel-size
pp=--target-pipeline-model-parallel-size
schedule=--use-checkpoint-opt_param-scheduler

# ---- megatron-core's own files ----
for name in core-gpt core-qwen core-groups core-gpt-dist \
    core-qwen-fully_reshardable core-qwen-dp_reshardable; do
    run=${name%-dist}
    run=${run%-fully_reshardable}
    losses=$golden/${run%-dp_reshardable}/losses.txt
    rm -rf native
    expect 0 "$name is read" into $golden/$name native $tp 1 --verify
    check 'with its optimizer' [ -f \
        native/iter_0000003/optimizer_exp_avg_sq_tp00_pp00.safetensors ]
    for from in "$golden/$name" native; do
        trains_on "$from" "$losses"
    done
done
rm -rf native
expect 2 'groups are not cut here' into $golden/core-groups native
err_has 'hint: 4 is that of the input: choose another with --target-tensor-'
# megatron-core gives each of four ranks half of a group
into $golden/core-groups native $tp 1 -q
for more in '' --use-distributed-optimizer; do
    rm -rf m b
    # shellcheck disable=SC2086 # a word or none
    expect 0 "parts of groups $more" into native m --to megatron $tp 4 $more \
        --saver-transformer-impl local --verify
    expect 0 'and back' into m b $tp 1
    check 'is the same' diff -r native b
done
rm -rf m b
expect 2 'older modules have whole groups' into native m --to megatron $tp 4 \
    --saver-transformer-impl legacy
err_has 'num_query_groups (2) does not divide by the tensor model parallel'
expect 2 'three ranks' into native m --to megatron $tp 3
rm -rf native
# The default of torch_dist has its state in buckets, without names.
rm -rf native other
expect 0 'buckets of torch_dist' into $golden/core-qwen-dp_reshardable native
into $golden/core-qwen-fully_reshardable other --verify -q
check 'are the same run as tensors with names' diff -r native other
cp -r $golden/core-qwen-dp_reshardable bad
sed -i 's/bucket_idx_4.exp_avg_sq/bucket_idx_9.exp_avg_sq/g' \
    bad/iter_0000003/.metadata
rm -rf other
expect 0 'buckets that do not fit' into bad other
err_has 'its optimizer state is left out: its buckets are not those'
rm -rf bad
expect 0 'inspect' gpt-reshape inspect $golden/core-gpt-dist
out_has 'core-gpt-dist: megatron'
out_has '__0_1.distcp'
cp -r $golden/core-gpt-dist bad
: >bad/iter_0000003/__0_1.distcp
expect 3 'a part that is gone' into bad x
err_has 'bytes are expected here, the file has 0'
rm bad/iter_0000003/__0_1.distcp
expect 3 'a file that is gone' into bad x
err_has '__0_1.distcp: missing, though .metadata names it'
rm -r bad native other
[ -x "$BUILD/gpt-train" ] || {
    skip 'no gpt-train'
    tap_done
    exit
}

# ---- there and back ----
train() { # name option...
    name=$1
    shift
    gpt-train --data-path x_text_document --vocab-size 67 --num-layers 4 \
        --hidden-size 16 --num-attention-heads 4 --seq-length 16 \
        --train-iters 6 --lr 1e-3 --split 100,0,0 --exit-interval 3 \
        --save "$name" "$@"
}
llama='--swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --num-query-groups 2
    --position-embedding-type rope'
expect 0 'a GPT' train gpt
# shellcheck disable=SC2086 # words
expect 0 'a Llama' train llama $llama --adam-beta2 0.95
expect 0 'a Qwen' train qwen --swiglu --normalization RMSNorm \
    --disable-bias-linear --add-qkv-bias --qk-layernorm --num-query-groups 2 \
    --position-embedding-type rope --bf16
expect 0 'squared ReLU, gated biases' train other --squared-relu \
    --apply-layernorm-1p --position-embedding-type rope --rotary-percent 0.5 \
    --untie-embeddings-and-output-weights
back() { # name option...: to Megatron-LM and back: the same bytes
    name=$1
    shift
    rm -rf m b
    expect 0 "$name to Megatron-LM: $*" into "$name" m --to megatron "$@" \
        --verify
    err_has 'resumes with its option no-load-rng'
    expect 0 'and back' into m b $tp 1 $pp 1
    check 'is the same' diff -r "$name/iter_0000003" b/iter_0000003
}
for name in gpt llama qwen other; do
    back $name
    back $name $tp 2 $pp 2 --saver-transformer-impl local \
        --use-distributed-optimizer
done
back llama $tp 2 --saver-transformer-impl legacy
back llama $pp 4 --use_distributed_optimizer
back gpt $pp 2 --use-distributed-optimizer
check 'a file a rank beside the weights' [ -f \
    m/iter_0000003/mp_rank_00_001/distrib_optim.pt ]
back qwen --target-params-dtype fp32
back gpt --target-params-dtype bf16
rm -rf w
expect 0 'weights alone are of the type that computes' into m w --to hf
check 'bf16' sh -c "gpt-reshape inspect w | grep -q 'wte.weight *BF16'"
expect 0 'a run equals its Megatron-LM form' gpt-reshape verify gpt m
out_has 'm equals gpt, bit for bit: '
check 'with its state' sh -c '! grep -q "only one of them" "$0"' \
    "$scratch/out"
expect 0 'as do weights alone' gpt-reshape verify m w
out_has 'only one of them has optimizer state'
rm -rf m b
into gpt m --to megatron --use-distributed-optimizer $tp 2 2>/dev/null
rm m/iter_0000003/mp_rank_01/distrib_optim.pt
expect 0 'state of one rank is gone' into m b
err_has 'left out: distrib_optim.pt is missing beside mp_rank_01/model_optim'
# one layout of Megatron-LM as another, without a native one between
into llama m1 --to megatron $tp 2 --use-distributed-optimizer -q
into m1 m2 --to megatron $tp 1 $pp 2 -q
into m2 m3 $tp 1 $pp 1 -q
check 'through layouts of Megatron-LM' diff -r llama/iter_0000003 \
    m3/iter_0000003
expect 0 'a run goes on' train llama-on $llama --adam-beta2 0.95 --load llama \
    --exit-interval 6
# shellcheck disable=SC2086
expect 0 'and from files of Megatron-LM' train m-on $llama --adam-beta2 0.95 \
    --load m1 --exit-interval 6
check 'to the same weights' cmp \
    llama-on/iter_0000006/model_tp00_pp00.safetensors \
    m-on/iter_0000006/model_tp00_pp00.safetensors

# ---- messages ----
err_of() { # status text command...
    want=$1 text=$2
    shift 2
    expect "$want" "$text" "$@"
    err_has "$text"
}
err_of 2 '--use-distributed-optimizer has no effect on format hf' \
    into llama x --to hf --use-distributed-optimizer
train alibi --position-embedding-type alibi >log 2>&1
err_of 3 'no argument says that position_embedding is "alibi"' \
    into alibi x --to megatron
train geglu --geglu >log 2>&1
err_of 3 'no argument says that' into geglu x --to megatron
check 'nothing was written' [ ! -e x ]
cp -r m1 bad
: >bad/iter_0000003/mp_rank_01/distrib_optim.pt
err_of 3 'mp_rank_01/distrib_optim.pt: byte 0: 0 bytes' into bad x
cp m1/iter_0000003/mp_rank_00/model_optim_rng.pt \
    bad/iter_0000003/mp_rank_01/distrib_optim.pt
err_of 0 'its optimizer state is left out' into bad x
rm -r bad x
cp -r m1 bad
rm bad/iter_0000003/mp_rank_01/distrib_optim.pt
err_of 0 'its optimizer state is left out' into bad x
rm -r bad x
into llama bad --to megatron $tp 2 -q
one=bad/iter_0000003/mp_rank_01/model_optim_rng.pt
# the first record of an archive is the pickle, whose checksum is in both lists
perl -MCompress::Zlib=crc32 -0777 -i -pe '
    my ($crc, $n) = /PK\x01\x02.{12}(.{4})(.{4})/s or die;
    my $at = 30 + unpack("v", substr($_, 26)) + unpack("v", substr($_, 28));
    s/(step[^K]{0,9}K)\x03/$1\x04/ or die;
    my $now = pack("V", crc32(substr($_, $at, unpack("V", $n))));
    s/\Q$crc\E/$now/g' $one
err_of 0 'left out: its parameters have different counts of steps' into bad x

# ---- PyTorch ----
if ! find_python 'torch'; then
    skip 'no python3 with torch (GPT_ORACLE_PYTHON)'
    tap_done
    exit
fi
cat >load.py <<'END'
import argparse, torch
torch.serialization.add_safe_globals([argparse.Namespace])
load = lambda p: torch.load(p, weights_only=True)
one = load("b/mp_rank_00/model_optim_rng.pt")
model, inner = one["model"], one["optimizer"]["optimizer"]
masters = one["optimizer"]["fp32_from_fp16_params"]
groups = inner["param_groups"]
decayed = [n for n in model if model[n].dim() > 1]
rest = [n for n in model if model[n].dim() == 1]
count = 0
for group, names, copies in zip(groups, (decayed, rest), masters):
    assert len(group["params"]) == len(names) == len(copies)
    assert group["step"] == 3 and group["betas"] == (0.9, 0.95)
    for i, n, copy in zip(group["params"], names, copies):
        assert i == count and copy.dtype is torch.float32
        assert torch.equal(copy.bfloat16(), model[n])
        assert inner["state"][i]["exp_avg"].shape == model[n].shape
        count += 1
gate, up = model["decoder.layers.0.mlp.linear_fc1.weight"].chunk(2)
assert not torch.equal(gate, up)
shards = load("d/mp_rank_00/distrib_optim.pt")
(types, buffers), = shards[0].items()
assert types == (torch.bfloat16, torch.float32)
assert shards["buckets_coalesced"] and len(buffers["param"]) == \
    buffers["numel_unpadded"]
at = 0
for group, names, copies in zip(groups, (decayed, rest), masters):
    model.update(zip(names, copies))
for n in reversed(list(model)):
    at = -(-at // 64) * 64
    assert torch.equal(buffers["param"][at:at + model[n].numel()],
                       model[n].flatten()), n
    at += model[n].numel()
assert at == buffers["numel_unpadded"]
END
rm -rf m1 m2 b d
into llama m1 --to megatron --target-params-dtype bf16 -q
into llama m2 --to megatron --target-params-dtype bf16 -q \
    --use-distributed-optimizer
mv m1/iter_0000003 b
mv m2/iter_0000003 d
check 'PyTorch finds what Megatron-LM looks for' "$python" load.py
# More ranks than groups, with the state where a distributed optimizer has it:
# from the last parameter to the first, each at a multiple of 64 elements.
cat >shard.py <<'END'
import sys, torch
for rank in range(4):
    folder = f"{sys.argv[1]}/iter_0000003/mp_rank_{rank:02d}"
    one = torch.load(folder + "/model_optim_rng.pt", weights_only=False)
    model = {n: t for n, t in one["model"].items() if torch.is_tensor(t)}
    adam = one["optimizer"]
    for group in adam["param_groups"]:
        del group["params"]
    numbers = {n: i for i, n in enumerate(
        sorted(model, key=lambda n: model[n].dim() == 1))}
    buffers = {key: [] for key in ("param", "exp_avg", "exp_avg_sq")}
    for n in reversed(list(model)):
        state = {"param": model[n], **adam["state"][numbers[n]]}
        for key, buffer in buffers.items():
            buffer += [0.0] * (-len(buffer) % 64)
            buffer += state[key].flatten().tolist()
    buffers = {key: torch.tensor(buffer) for key, buffer in buffers.items()}
    buffers["numel_unpadded"] = len(buffers["param"])
    one["optimizer"] = {"optimizer": {"param_groups": adam["param_groups"]}}
    torch.save(one, folder + "/model_optim_rng.pt")
    torch.save({"buckets_coalesced": True,
                0: {(torch.float32, torch.float32): buffers}},
               folder + "/distrib_optim.pt")
END
rm -rf b d
cp -r $golden/core-groups shards
check 'a distributed optimizer of more ranks than groups' "$python" shard.py \
    shards
expect 0 'is read' into shards b $tp 1
into $golden/core-groups d $tp 1 -q
check 'as any other' diff -r b d
tap_done
