#!/usr/bin/env python3
"""Makes tests/golden/pth: checkpoints as nanoGPT's train.py, Meta's code of
Llama and LitGPT save them, of small models that are computed here with PyTorch
from their definitions, LitGPT's with that package, and what these models write
and expect.

    make_pth.py tests/golden/pth

nanogpt, nanogpt_plain: ckpt.pt of a model with biases and of one without, after
two steps of AdamW whose first moments were replaced by the weights, so that a
reader that takes those of another parameter is found out. llama, llama_parts,
llama_copies: the same model in one file, in the files of two ranks, and in those
of four, of which two each have a copy of a head of keys and values. The second of
each are not zip archives, which have checksums. litgpt, litgpt_old: a run, and weights in the
order of versions before 0.5.4; litgpt_experts: a run with experts. Each directory has
expected.txt: a line of ids that follow 1 2 3 by the largest logit, and the log
probability of 7 8 9 after 4 5 6."""
import json
import math
import os
import sys
from pathlib import Path

import torch
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import save_config
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(n))
        self.bias = nn.Parameter(0.1 * torch.randn(n)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


def modules(**parts):
    return nn.ModuleDict(parts)


class Gpt(nn.Module):
    """Parts in the order and with the names of nanoGPT's."""

    def __init__(self, n_layer, n_head, n_embd, block_size, bias, vocab_size,
                 dropout):
        super().__init__()
        self.heads = n_head

        def linear(a, b):
            return nn.Linear(a, b, bias=bias)

        def block():
            return modules(
                ln_1=Norm(n_embd, bias),
                attn=modules(c_attn=linear(n_embd, 3 * n_embd),
                             c_proj=linear(n_embd, n_embd)),
                ln_2=Norm(n_embd, bias),
                mlp=modules(c_fc=linear(n_embd, 4 * n_embd),
                            c_proj=linear(4 * n_embd, n_embd)))
        self.transformer = modules(
            wte=nn.Embedding(vocab_size, n_embd),
            wpe=nn.Embedding(block_size, n_embd),
            h=nn.ModuleList([block() for _ in range(n_layer)]),
            ln_f=Norm(n_embd, bias))
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for b in t["h"]:
            q, k, v = b["attn"]["c_attn"](b["ln_1"](x)).chunk(3, dim=-1)
            q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                       for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + b["attn"]["c_proj"](y.transpose(1, 2).flatten(2))
            x = x + b["mlp"]["c_proj"](F.gelu(b["mlp"]["c_fc"](b["ln_2"](x))))
        return self.lm_head(t["ln_f"](x))


def llama(w, p, ids):
    """Logits of a state dict; p: params.json."""
    size = p["dim"] // p["n_heads"]
    rates = p["rope_theta"] ** (-torch.arange(0, size, 2) / size)
    turn = torch.polar(torch.ones(ids.shape[1], size // 2),
                       torch.outer(torch.arange(ids.shape[1]), rates).float())

    def norm(x, name):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + p["norm_eps"])
        return x * w[name + ".weight"]

    def heads(x, n, turns):
        x = x.unflatten(-1, (n, size)).transpose(1, 2)
        if not turns:
            return x
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turn).flatten(3)
    x = w["tok_embeddings.weight"][ids]
    for i in range(p["n_layers"]):
        def m(name, y, i=i):
            return y @ w[f"layers.{i}.{name}.weight"].T
        y = norm(x, f"layers.{i}.attention_norm")
        q = heads(m("attention.wq", y), p["n_heads"], True)
        k = heads(m("attention.wk", y), p["n_kv_heads"], True)
        v = heads(m("attention.wv", y), p["n_kv_heads"], False)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=True)
        x = x + m("attention.wo", y.transpose(1, 2).flatten(2))
        y = norm(x, f"layers.{i}.ffn_norm")
        x = x + m("feed_forward.w2", F.silu(m("feed_forward.w1", y)) *
                  m("feed_forward.w3", y))
    return norm(x, "norm") @ w["output.weight"].T


def expected(folder, logits):
    ids = [1, 2, 3]
    with torch.no_grad():
        for _ in range(8):
            ids.append(logits(torch.tensor([ids]))[0, -1].argmax().item())
        rows = F.log_softmax(logits(torch.tensor([[4, 5, 6, 7, 8, 9]]))[0], -1)
    score = sum(rows[i, t].item()
                for i, t in zip((2, 3, 4), (7, 8, 9)))
    with open(os.path.join(folder, "expected.txt"), "w",
              encoding="utf-8") as f:
        print(*ids[3:], file=f)
        print(f"{score:.6f}", file=f)


def nanogpt(folder, bias):
    args = dict(n_layer=2, n_head=2, n_embd=12, block_size=24, bias=bias,
                vocab_size=61, dropout=0.0)
    model = Gpt(**args)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.4)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95))
    ids = torch.arange(20).reshape(2, 10)
    for _ in range(2):
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    for p in params:
        optimizer.state[p]["exp_avg"] = p.detach().clone()
    os.makedirs(folder, exist_ok=True)
    torch.save({"model": model.state_dict(),
                "optimizer": optimizer.state_dict(), "model_args": args,
                "iter_num": 2, "best_val_loss": torch.tensor(3.5),
                "config": {"batch_size": 2, "dtype": "float32"}},
               os.path.join(folder, "ckpt.pt"),
               _use_new_zipfile_serialization=bias)
    expected(folder, model)


def meta(folder, parts):
    torch.manual_seed(4)
    p = dict(dim=16, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=61,
             multiple_of=8, norm_eps=1e-5, rope_theta=500000.0)
    inner = 48  # of 2 / 3 of 4 dim, a multiple of 8
    w = {"tok_embeddings.weight": torch.randn(61, 16),
         "norm.weight": 1 + 0.1 * torch.randn(16),
         "output.weight": 0.5 * torch.randn(61, 16),
         "rope.freqs": 500000.0 ** (-torch.arange(0, 4, 2) / 4)}
    for i in range(2):
        for name, a, b in (("attention.wq", 16, 16), ("attention.wk", 8, 16),
                           ("attention.wv", 8, 16), ("attention.wo", 16, 16),
                           ("feed_forward.w1", inner, 16),
                           ("feed_forward.w3", inner, 16),
                           ("feed_forward.w2", 16, inner)):
            w[f"layers.{i}.{name}.weight"] = torch.randn(a, b) / math.sqrt(b)
        for name in ("attention_norm", "ffn_norm"):
            w[f"layers.{i}.{name}.weight"] = 1 + 0.1 * torch.randn(16)
    os.makedirs(folder, exist_ok=True)
    columns = ("wo.weight", "w2.weight", "tok_embeddings.weight")
    uneven = {"output.weight": {2: [31, 30], 4: [16, 15, 15, 15]}}  # 61 rows
    for k in range(parts):
        def part(name, t, k=k):
            if t.dim() == 1 or parts == 1:
                return t.clone()
            dim = 1 if name.endswith(columns) else 0
            if name.endswith(("wk.weight", "wv.weight")) and parts > 2:
                return t.split(4)[k * 2 // parts].clone()  # of a head each
            sizes = uneven.get(name, {}).get(parts, t.shape[dim] // parts)
            return t.split(sizes, dim)[k].clone()
        torch.save({n: part(n, t) for n, t in w.items()},
                   os.path.join(folder, f"consolidated.{k:02d}.pth"),
                   _use_new_zipfile_serialization=parts == 1)
    with open(os.path.join(folder, "params.json"), "w",
              encoding="utf-8") as f:
        f.write(json.dumps(p) + "\n")
    expected(folder, lambda ids: llama(w, p, ids))


def by_group(t, c):
    """Rows of queries, keys and values as LitGPT had them until 0.5.4: those of
    a group together."""
    groups, d = c.n_query_groups, c.head_size
    q, k, v = t.split([c.n_head * d, groups * d, groups * d])
    return torch.cat([x.unflatten(0, (groups, -1)) for x in (q, k, v)],
                     dim=1).flatten(0, 1).contiguous()


def litgpt(folder, old, **experts):
    torch.manual_seed(6)
    c = Config(name="tiny", hf_config={"org": "none", "name": "tiny"},
               block_size=32, n_layer=2, n_embd=16, vocab_size=61,
               padded_vocab_size=61, n_head=4, n_query_groups=2, head_size=6,
               rotary_percentage=1.0, intermediate_size=40,
               norm_class_name="LayerNorm" if old else "RMSNorm",
               mlp_class_name="GptNeoxMLP" if old else "LLaMAMoE" if experts
               else "LLaMAMLP", **experts,
               parallel_residual=old, bias=old, rope_adjustments=None if old
               else {"factor": 4.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_seq_len": 16})
    model = GPT(c)
    params = list(model.parameters())
    for p in params:
        nn.init.normal_(p, 1 if p.dim() < 2 else 0, 0.3)
    optimizer = torch.optim.AdamW(params, lr=1e-3)
    ids = torch.arange(20).reshape(2, 10)
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    for p in params:
        optimizer.state[p]["exp_avg"] = p.detach().clone()
    os.makedirs(folder, exist_ok=True)
    save_config(c, Path(folder))
    weights = model.state_dict()
    if old:
        weights = {n.replace("attn.qkv", "attn.attn"):
                   by_group(t, c) if "attn.qkv" in n else t
                   for n, t in weights.items()}
    torch.save(weights if old else
               {"model": weights, "optimizer": optimizer.state_dict(),
                "iter_num": 2, "step_count": 1, "hparams": {"a": 1},
                "train_dataloader": {"place": 3}},
               os.path.join(folder, "lit_model.pth"))
    expected(folder, model)


def main():
    out = sys.argv[1]
    torch.manual_seed(3)
    nanogpt(os.path.join(out, "nanogpt"), True)
    nanogpt(os.path.join(out, "nanogpt_plain"), False)
    meta(os.path.join(out, "llama"), 1)
    meta(os.path.join(out, "llama_parts"), 2)
    meta(os.path.join(out, "llama_copies"), 4)
    litgpt(os.path.join(out, "litgpt"), False)
    litgpt(os.path.join(out, "litgpt_old"), True)
    litgpt(os.path.join(out, "litgpt_experts"), False, n_expert=4,
           n_expert_per_token=2, moe_intermediate_size=6, n_shared_expert=2,
           first_k_dense_replace=1)


if __name__ == "__main__":
    main()
