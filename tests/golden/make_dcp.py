#!/usr/bin/env python3
"""Checkpoints of torch.distributed.checkpoint as inputs of tests/fuzz/dcp.c.

Usage: make_dcp.py   (needs torch)
"""
import os
import struct
import tempfile

import torch
import torch.distributed.checkpoint as dcp

HERE = os.path.dirname(os.path.abspath(__file__))
corpus = os.path.join(HERE, "..", "fuzz", "corpus", "dcp")
os.makedirs(corpus, exist_ok=True)


def write(name, state):
    with tempfile.TemporaryDirectory() as top:
        dcp.save(state, checkpoint_id=top, no_dist=True)
        with open(top + "/.metadata", "rb") as f:
            metadata = f.read()
        with open(top + "/__0_0.distcp", "rb") as f:
            parts = f.read()
    with open(corpus + "/" + name, "wb") as f:
        f.write(struct.pack("<I", len(metadata)) + metadata + parts)


if __name__ == "__main__":
    write("three", {"w": torch.arange(12.).view(3, 4).t(), "n": 5,
                    "b": torch.ones(2, dtype=torch.bfloat16)})
    # the model of the target's config.json, and its optimizer
    sizes = {"model.embed_tokens.weight": (3, 2), "model.norm.weight": (2,)}
    layer = {"input_layernorm": (2,), "post_attention_layernorm": (2,)}
    layer.update({f"self_attn.{x}_proj": (2, 2) for x in "qkvo"})
    layer.update({f"mlp.{x}_proj": (2, 2) for x in ("gate", "up", "down")})
    sizes.update({f"model.layers.0.{n}.weight": s for n, s in layer.items()})
    weights = {n: torch.ones(s) for n, s in sizes.items()}
    adam = {n: {"exp_avg": t, "exp_avg_sq": t, "step": torch.tensor(3.)}
            for n, t in weights.items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    write("model", {"app": {"model": weights, "optim": {"state": adam}},
                    "epoch": 1})
