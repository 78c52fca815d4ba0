#!/usr/bin/env python3
"""The model of tests/golden/hf as classic Megatron-LM checkpoints.

Usage: make_megatron.py [DIR]   (needs torch, safetensors)

One directory a variant: checkpoint versions 0 to 3 with their orders of
queries, keys and values, names of several years, containers, tensor and
pipeline parallel ranks, interleaved and uneven stages. Without DIR it makes
tests/golden/megatron, a few of them, and tests/fuzz/corpus/megatron.
"""
import argparse
import enum
import os
import random
import sys

import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, CHANNELS, HEADS, VOCABULARY, POSITIONS = 2, 16, 2, 67, 16
D = CHANNELS // HEADS


class ModelType(enum.Enum):
    encoder_or_decoder = 1


ModelType.__module__ = "megatron.core.enums"

NAMES = {  # of each age: norms, matrices, where layers and ends are
    "core": dict(
        top="", layers="decoder.layers.", final="decoder.final_layernorm",
        words="embedding.word_embeddings.weight",
        positions="embedding.position_embeddings.weight",
        norm1="input_layernorm.{}", qkv="self_attention.linear_qkv.{}",
        proj="self_attention.linear_proj.{}", norm2="pre_mlp_layernorm.{}",
        fc1="mlp.linear_fc1.{}", fc2="mlp.linear_fc2.{}"),
    "legacy": dict(
        layers="language_model/encoder/layers.",
        final="language_model/encoder/final_layernorm",
        words="language_model/embedding/word_embeddings/weight",
        positions="language_model/embedding/position_embeddings/weight",
        norm1="input_layernorm.{}", qkv="self_attention.query_key_value.{}",
        proj="self_attention.dense.{}", norm2="post_attention_layernorm.{}",
        fc1="mlp.dense_h_to_4h.{}", fc2="mlp.dense_4h_to_h.{}"),
}
NAMES["te"] = dict(NAMES["core"],
                   norm1="self_attention.linear_qkv.layer_norm_{}",
                   norm2="mlp.linear_fc1.layer_norm_{}")
NAMES["legacy2019"] = dict(
    NAMES["legacy"], layers="language_model/transformer/layers.",
    final="language_model/transformer/final_layernorm",
    qkv="attention.query_key_value.{}", proj="attention.dense.{}")
NAMES["legacy2023"] = dict(
    NAMES["legacy"], norm1="input_norm.{}", norm2="post_attention_norm.{}",
    final="language_model/encoder/final_norm")


def qkv_rows(weight, bias, tp, rank, version):
    """From Conv1D columns Q | K | V to a rank's rows in a version's order."""
    out = []
    for t in (weight.t(), bias):
        rest = t.shape[1:]
        t = t.reshape(3, HEADS, D, *rest).chunk(tp, 1)[rank]
        if version == 0:
            order = (0, 1, 2)
        elif version == 1:
            order = (1, 2, 0)
        else:
            order = (1, 0, 2)
        t = t.permute(*order, *range(3, t.dim()))
        out.append(t.reshape(-1, *rest).contiguous())
    return out


def state_dict(hf, layers, tp, rank, version, names, first, last, rows):
    n = NAMES[names]
    get = lambda name: hf["transformer." + name]
    flat = {}
    words = get("wte.weight")
    words = torch.cat([words, words[-1:].expand(rows - len(words), -1)])
    if first:
        flat[n["words"]] = words.chunk(tp)[rank].clone()
        flat[n["positions"]] = get("wpe.weight")
    for local, layer in enumerate(layers):
        for kind in ("weight", "bias"):
            def put(key, value):
                flat[n["layers"] + f"{local}." + n[key].format(kind)] = value
            at = f"h.{layer}."
            put("norm1", get(at + "ln_1." + kind))
            q = qkv_rows(get(at + "attn.c_attn.weight"),
                         get(at + "attn.c_attn.bias"), tp, rank, version)
            put("qkv", q[kind == "bias"])
            put("norm2", get(at + "ln_2." + kind))
            if kind == "bias":
                put("proj", get(at + "attn.c_proj.bias"))
                put("fc1", get(at + "mlp.c_fc.bias").chunk(tp)[rank].clone())
                put("fc2", get(at + "mlp.c_proj.bias"))
            else:  # transposed views, as converters write them
                put("proj", get(at + "attn.c_proj.weight").t().chunk(tp, 1)[rank])
                put("fc1", get(at + "mlp.c_fc.weight").t().chunk(tp)[rank])
                put("fc2", get(at + "mlp.c_proj.weight").t().chunk(tp, 1)[rank])
        if names == "te":
            flat[n["layers"] + f"{local}.self_attention.linear_qkv._extra_state"
                 ] = torch.zeros(4, dtype=torch.uint8)
    if last:
        for kind in ("weight", "bias"):
            flat[n["final"] + "." + kind] = get("ln_f." + kind)
        if not first:
            flat["output_layer.weight" if names in ("core", "te") else
                 "word_embeddings_for_head/weight"] = words.chunk(tp)[rank].clone()
    tree = {}
    for path, value in flat.items():
        at, keys = tree, path.split("/")
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = value
    return tree


def write(directory, tp=1, pp=1, version=3, names="core", stages=None, chunks=1,
          arguments=True, release=False, wrap=False, **options):
    hf = load_file(os.path.join(HERE, "hf", "model.safetensors"))
    rows = -(-VOCABULARY // (8 * tp)) * 8 * tp
    iteration = 0 if release else 1234
    folder = "release" if release else f"iter_{iteration:07d}"
    os.makedirs(directory, exist_ok=True)
    with open(directory + "/latest_checkpointed_iteration.txt", "w") as f:
        f.write("release\n" if release else str(iteration))
    stages = stages or [list(range(p * LAYERS // pp, (p + 1) * LAYERS // pp))
                        for p in range(pp)]
    for p in range(pp):
        for r in range(tp):
            value = {"iteration": iteration}
            if version:
                value["checkpoint_version"] = float(version)
            if arguments:
                value["args"] = argparse.Namespace(
                    num_layers=LAYERS, hidden_size=CHANNELS,
                    num_attention_heads=HEADS, ffn_hidden_size=4 * CHANNELS,
                    kv_channels=D, max_position_embeddings=POSITIONS,
                    padded_vocab_size=rows, vocab_size=VOCABULARY,
                    make_vocab_size_divisible_by=8, layernorm_epsilon=1e-5,
                    tensor_model_parallel_size=tp, swiglu=False,
                    pipeline_model_parallel_size=pp, bias_gelu_fusion=True,
                    params_dtype=torch.float32, normalization="LayerNorm",
                    model_type=ModelType.encoder_or_decoder, num_experts=None,
                    consumed_train_samples=4936, consumed_valid_samples=64)
            rng = random.Random(1).getstate()
            value["rng_state"] = [{"random_rng_state": rng, "torch_rng_state":
                                   torch.arange(16, dtype=torch.uint8)}]
            for v in range(chunks):
                model = state_dict(
                    hf, stages[p] if chunks == 1 else [v * pp + p], tp, r,
                    version, names, p == 0 and v == 0,
                    p == pp - 1 and v == chunks - 1, rows)
                if wrap:
                    model = {"module": model}
                value["model" if chunks == 1 else f"model{v}"] = model
            rank = f"mp_rank_{r:02d}" + (f"_{p:03d}" if pp > 1 else "")
            path = f"{directory}/{folder}/{rank}"
            os.makedirs(path, exist_ok=True)
            torch.save(value, path + "/model_optim_rng.pt", **options)


def everything(directory):
    # the enum pickles by its module's name
    for version in range(4):
        for tp in (1, 2):
            for names in NAMES:
                write(f"{directory}/v{version}-tp{tp}-{names}", tp=tp,
                      version=version, names=names)
    old = dict(_use_new_zipfile_serialization=False)
    write(directory + "/old", version=0, names="legacy2019", **old)
    write(directory + "/pp2", pp=2)
    write(directory + "/tp2pp2", tp=2, pp=2, names="legacy")
    write(directory + "/tp2pp2-te", tp=2, pp=2, names="te")
    write(directory + "/interleaved", pp=1, chunks=2)
    write(directory + "/wrapped", wrap=True)
    write(directory + "/release", release=True, names="legacy", version=2)


def corpus(directory):
    """Tiny models, with the optimizer of mixed precision and without."""
    os.makedirs(directory, exist_ok=True)
    names = ["embedding.word_embeddings.weight",
             "embedding.position_embeddings.weight"]
    layer = "decoder.layers.0."
    shapes = {names[0]: (4, 4), names[1]: (2, 4)}
    for name, out, into in (("input_layernorm", 4, 0),
                            ("self_attention.linear_qkv", 12, 4),
                            ("self_attention.linear_proj", 4, 4),
                            ("pre_mlp_layernorm", 4, 0),
                            ("mlp.linear_fc1", 8, 4), ("mlp.linear_fc2", 4, 8)):
        shapes[layer + name + ".weight"] = (out, into) if into else (out,)
        shapes[layer + name + ".bias"] = (out,)
    shapes["decoder.final_layernorm.weight"] = (4,)
    shapes["decoder.final_layernorm.bias"] = (4,)
    store = torch.zeros(64)
    value = {"checkpoint_version": 1.0, "iteration": 1, "args":
             argparse.Namespace(num_attention_heads=2, vocab_size=3),
             "model": {n: store[:torch.Size(s).numel()].view(s)
                       for n, s in shapes.items()}}
    old = dict(_use_new_zipfile_serialization=False)
    torch.save(value, directory + "/weights", **old)
    groups = [[n for n, s in shapes.items() if len(s) == 2],
              [n for n, s in shapes.items() if len(s) == 1]]
    states, numbers, count = {}, [], 0
    for group in groups:
        numbers.append({"step": 1, "params": []})
        for n in group:
            states[count] = {"exp_avg": value["model"][n],
                             "exp_avg_sq": value["model"][n]}
            numbers[-1]["params"].append(count)
            count += 1
    value["checkpoint_version"] = 3.0
    value["optimizer"] = {
        "optimizer": {"state": states, "param_groups": numbers},
        "fp32_from_fp16_params": [[value["model"][n] for n in g]
                                  for g in groups]}
    value["opt_param_scheduler"] = {"max_lr": 0.1, "lr_decay_style": "cosine"}
    torch.save(value, directory + "/optimizer", **old)
    # the file of a rank and that of its distributed optimizer in one
    value["optimizer"] = {"optimizer": {"param_groups": [{"step": 1}]}}
    value["buckets_coalesced"] = True
    # gated, with norms of heads and without biases
    gated = {n: s for n, s in shapes.items() if not n.endswith(".bias")}
    gated[layer + "mlp.linear_fc2.weight"] = (4, 4)
    value["model"] = {n: store[:torch.Size(s).numel()].view(s)
                      for n, s in gated.items()}
    for norm in ("q_layernorm", "k_layernorm"):
        value["model"][f"{layer}self_attention.{norm}.weight"] = store[:2]
    at = 0
    for t in reversed(list(value["model"].values())):
        at = -(-at // 64) * 64 + t.numel()
    buffer = torch.zeros(at)
    value[0] = {(torch.bfloat16, torch.float32): {
        "param": buffer, "exp_avg": buffer, "exp_avg_sq": buffer,
        "numel_unpadded": at}}
    value["args"] = argparse.Namespace(
        num_attention_heads=2, vocab_size=3, swiglu=True, qk_layernorm=True,
        add_bias_linear=False, normalization="RMSNorm", overlap_grad_reduce=1,
        ddp_bucket_size=1 << 40)
    torch.save(value, directory + "/shards", **old)


if __name__ == "__main__":
    import types
    core = types.ModuleType("megatron.core.enums")
    core.ModelType = ModelType
    for name in ("megatron", "megatron.core"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["megatron.core.enums"] = core
    if len(sys.argv) > 1:
        everything(sys.argv[1])
    else:
        top = os.path.join(HERE, "megatron")
        write(top + "/release", version=0, names="legacy2019", release=True,
              _use_new_zipfile_serialization=False)
        write(top + "/tp2pp2", tp=2, pp=2, names="te")
        corpus(os.path.join(HERE, "..", "fuzz", "corpus", "megatron"))
