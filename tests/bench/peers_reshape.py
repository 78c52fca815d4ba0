#!/usr/bin/env python3
"""gpt-reshape beside PyTorch and safetensors, on the same files.

Usage: peers_reshape.py --build DIR [--layers N] [--dir DIR]

Makes a GPT-2 of Hugging Face with N layers of 124M's width in --dir (default:
/dev/shm), and turns it, in a process each, into Megatron-LM's files for two
tensor parallel ranks of two stages: gpt-reshape, and what a script with PyTorch
does (load, transpose, order the heads, cut, torch.save). Prints seconds and the
peak of memory; the weights of both are compared.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import peers_table

HEADS, H, T, V = 12, 768, 1024, 50257


def make(path, layers):
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    shapes = {"wte.weight": (V, H), "wpe.weight": (T, H),
              "ln_f.weight": (H,), "ln_f.bias": (H,)}
    for i in range(layers):
        for name, shape in {
                "ln_1.weight": (H,), "ln_1.bias": (H,), "ln_2.weight": (H,),
                "ln_2.bias": (H,), "attn.c_attn.weight": (H, 3 * H),
                "attn.c_attn.bias": (3 * H,), "attn.c_proj.weight": (H, H),
                "attn.c_proj.bias": (H,), "mlp.c_fc.weight": (H, 4 * H),
                "mlp.c_fc.bias": (4 * H,), "mlp.c_proj.weight": (4 * H, H),
                "mlp.c_proj.bias": (H,)}.items():
            shapes[f"h.{i}.{name}"] = shape
    os.makedirs(path)
    save_file({"transformer." + k: torch.randn(s) for k, s in shapes.items()},
              path + "/model.safetensors", metadata={"format": "pt"})
    with open(path + "/config.json", "w") as f:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
                   "vocab_size": V, "n_positions": T, "n_ctx": T, "n_embd": H,
                   "n_layer": layers, "n_head": HEADS,
                   "activation_function": "gelu_new", "bos_token_id": 50256,
                   "layer_norm_epsilon": 1e-5, "eos_token_id": 50256}, f)


def convert(source, target, layers, tp=2, pp=2):
    """What such scripts do, as directly as PyTorch has it."""
    import torch
    from safetensors.torch import load_file
    w = {k.removeprefix("transformer."): v
         for k, v in load_file(source + "/model.safetensors").items()}

    def heads(x):  # Q | K | V to head by head
        return x.reshape(3, HEADS, H // HEADS, -1).transpose(0, 1).reshape(
            3 * H, -1)

    rows = -(-V // (128 * tp)) * 128 * tp
    table = torch.cat([w["wte.weight"],
                       w["wte.weight"][-1:].expand(rows - V, -1)])
    for stage in range(pp):
        for rank in range(tp):
            def cut(x, dim=0):
                return x.chunk(tp, dim)[rank].clone()
            model = {}
            if stage == 0:
                model["embedding.word_embeddings.weight"] = cut(table)
                model["embedding.position_embeddings.weight"] = w["wpe.weight"]
            for n in range(layers // pp):
                i = stage * (layers // pp) + n
                a, b = f"h.{i}.", f"decoder.layers.{n}."
                qkv = b + "self_attention.linear_qkv."
                model[qkv + "weight"] = cut(heads(
                    w[a + "attn.c_attn.weight"].t()))
                model[qkv + "bias"] = cut(heads(
                    w[a + "attn.c_attn.bias"]).flatten())
                model[qkv + "layer_norm_weight"] = w[a + "ln_1.weight"]
                model[qkv + "layer_norm_bias"] = w[a + "ln_1.bias"]
                proj = b + "self_attention.linear_proj."
                model[proj + "weight"] = cut(
                    w[a + "attn.c_proj.weight"].t(), 1)
                model[proj + "bias"] = w[a + "attn.c_proj.bias"]
                fc1 = b + "mlp.linear_fc1."
                model[fc1 + "weight"] = cut(w[a + "mlp.c_fc.weight"].t())
                model[fc1 + "bias"] = cut(w[a + "mlp.c_fc.bias"])
                model[fc1 + "layer_norm_weight"] = w[a + "ln_2.weight"]
                model[fc1 + "layer_norm_bias"] = w[a + "ln_2.bias"]
                model[b + "mlp.linear_fc2.weight"] = cut(
                    w[a + "mlp.c_proj.weight"].t(), 1)
                model[b + "mlp.linear_fc2.bias"] = w[a + "mlp.c_proj.bias"]
            if stage == pp - 1:
                model["decoder.final_layernorm.weight"] = w["ln_f.weight"]
                model["decoder.final_layernorm.bias"] = w["ln_f.bias"]
                if pp > 1:
                    model["output_layer.weight"] = cut(table)
            folder = f"{target}/release/mp_rank_{rank:02d}_{stage:03d}"
            os.makedirs(folder)
            torch.save({"model": model, "checkpoint_version": 3.0},
                       folder + "/model_optim_rng.pt")


def timed(command):
    before = time.time()
    pid = os.spawnvp(os.P_NOWAIT, command[0], command)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{command[0]}: status {status}")
    return time.time() - before, usage.ru_maxrss / 1024


def compare(a, b):
    import torch
    torch.serialization.add_safe_globals([argparse.Namespace])
    for stage in range(2):
        for rank in range(2):
            name = (f"/release/mp_rank_{rank:02d}_{stage:03d}"
                    "/model_optim_rng.pt")
            x = torch.load(a + name, weights_only=True)["model"]
            y = torch.load(b + name, weights_only=True)["model"]
            if x.keys() != y.keys() or any(
                    not torch.equal(x[k], y[k]) for k in x):
                sys.exit(f"{name}: the two differ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--convert", nargs=2)
    args = parser.parse_args()
    if args.convert:
        return convert(*args.convert, args.layers)
    top = f"{args.dir}/gpt-peers.{os.getpid()}"
    try:
        os.makedirs(top)
        subprocess.run([sys.executable, "-c",
                        "import sys; sys.path.insert(0, sys.argv[1]); "
                        "import peers_reshape as p; "
                        "p.make(sys.argv[2], int(sys.argv[3]))",
                        os.path.dirname(os.path.abspath(__file__)),
                        top + "/hf", str(args.layers)], check=True)
        times = [], []
        for turn in range(3):
            for name in ("ours", "torch"):
                shutil.rmtree(f"{top}/{name}", ignore_errors=True)
            ours = timed([f"{args.build}/gpt-reshape", "convert", top + "/hf",
                          top + "/ours", "--to", "megatron", "-q",
                          "--target-tensor-model-parallel-size", "2",
                          "--target-pipeline-model-parallel-size", "2"])
            theirs = timed([sys.executable, os.path.abspath(__file__),
                            "--layers", str(args.layers), "--convert",
                            top + "/hf", top + "/torch"])
            print(f"{turn}: gpt-reshape {ours[0]:.2f} s {ours[1]:.0f} MiB, "
                  f"PyTorch {theirs[0]:.2f} s {theirs[1]:.0f} MiB, "
                  f"{theirs[0] / ours[0]:.1f} times", flush=True)
            times[0].append(ours[0])
            times[1].append(theirs[0])
        compare(top + "/ours", top + "/torch")
        print("the weights are equal")
        what = "GPT-2 124M to TP 2 PP 2, Megatron's format"
        peers_table.add(what, "gpt-reshape", times[0], "s")
        peers_table.add(what, "a script with PyTorch", times[1], "s",
                        statistics.median(times[1]) /
                        statistics.median(times[0]))
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
