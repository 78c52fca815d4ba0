#!/usr/bin/env python3
"""Makes tests/golden/model/*.golden: losses, logits, gradients and ten AdamW
steps of tiny models in float64, for tests/unit/test_model.c.

Needs PyTorch; run as  python3 tests/golden/make_model.py  from the top of the
tree. A golden is one line of JSON (configuration and losses), then little-
endian arrays: input, target, position, doc_start (int32), mask (float32),
all (micro_batches, B, T); logits (micro_batches, B, T, padded V); the gradient
of every parameter in table order; every parameter after ten steps (float32).
Weights and tokens follow from value() and token(), so they are not stored.
"""
import json
import math
import os

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

BASE = dict(num_layers=2, hidden_size=8, num_attention_heads=2,
            num_query_groups=2, head_size=4, ffn_hidden_size=32,
            max_positions=16, vocab_size=21, padded_vocab_size=24,
            norm_epsilon=1e-5, init_std=0.02, hidden_dropout=0.0,
            attention_dropout=0.0, tied_embeddings=True,
            position_embedding="learned_absolute", rotary_base=10000.0,
            rotary_percent=1.0,
            batch=2, seq=8, micro_batches=1, masks=False)
CASES = {
    "plain": {},
    "one": dict(num_layers=1, hidden_size=4, num_attention_heads=1,
                num_query_groups=1, ffn_hidden_size=16, batch=1, seq=1,
                vocab_size=5, padded_vocab_size=5),
    "odd": dict(num_layers=3, hidden_size=15, num_attention_heads=3,
                num_query_groups=3, head_size=5, ffn_hidden_size=17, seq=11,
                batch=3, vocab_size=37, padded_vocab_size=48),
    "groups": dict(num_attention_heads=4, num_query_groups=2, head_size=3,
                   hidden_size=12, ffn_hidden_size=20, seq=7),
    "multiquery": dict(num_attention_heads=6, num_query_groups=1, head_size=2,
                       hidden_size=12, ffn_hidden_size=24, batch=1, seq=13),
    "wide_heads": dict(num_attention_heads=2, num_query_groups=1, head_size=7,
                       hidden_size=9, ffn_hidden_size=10, seq=5),
    "masks": dict(masks=True, seq=16, batch=3),
    "micro": dict(masks=True, seq=9, batch=2, micro_batches=3),
    "untied": dict(tied_embeddings=False),
    "long": dict(num_layers=1, hidden_size=4, num_attention_heads=1,
                 num_query_groups=1, ffn_hidden_size=8, seq=150, batch=1,
                 max_positions=150, vocab_size=7, padded_vocab_size=8),
    "rope": dict(position_embedding="rope", num_attention_heads=4,
                 num_query_groups=2, hidden_size=16, seq=16),
    "rope_part": dict(position_embedding="rope", rotary_base=100.0,
                      rotary_percent=0.5, masks=True, seq=14),
    "alibi": dict(position_embedding="alibi", num_attention_heads=3,
                  num_query_groups=3, hidden_size=12, masks=True, seq=13),
    "nowhere": dict(position_embedding="none"),
}
# eps is large because some gradients are zero but for rounding (a key's bias
# shifts all scores alike), and Adam would make steps of them.
STEPS = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-4, weight_decay=0.1,
             clip_grad=1.0, steps=10)


def mix(x):
    """32-bit integer hash (Wellons' lowbias32), vectorised."""
    x = np.asarray(x, dtype=np.uint64) & 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def value(param, n):
    """Elements 0..n of parameter number `param`, exact in float32."""
    u = mix(np.arange(n, dtype=np.uint64) + np.uint64(param * 1000003)) >> 16
    return (u.astype(np.float64) - 32768) / 65536


def token(i, vocab):
    return mix(i + 77777777) % vocab


def shapes(c):
    """Names and shapes in the order of the parameter table."""
    h = c["hidden_size"]
    heads, groups, d = (c["num_attention_heads"], c["num_query_groups"],
                        c["head_size"])
    f, v = c["ffn_hidden_size"], c["padded_vocab_size"]
    out = [("embedding.word_embeddings.weight", (v, h))]
    if c["position_embedding"] == "learned_absolute":
        out.append(("embedding.position_embeddings.weight",
                    (c["max_positions"], h)))
    for i in range(c["num_layers"]):
        out += [(f"decoder.layers.{i}.{name}", shape) for name, shape in [
            ("input_layernorm.weight", (h,)),
            ("input_layernorm.bias", (h,)),
            ("self_attention.linear_qkv.weight",
             ((heads + 2 * groups) * d, h)),
            ("self_attention.linear_qkv.bias", ((heads + 2 * groups) * d,)),
            ("self_attention.linear_proj.weight", (h, heads * d)),
            ("self_attention.linear_proj.bias", (h,)),
            ("pre_mlp_layernorm.weight", (h,)),
            ("pre_mlp_layernorm.bias", (h,)),
            ("mlp.linear_fc1.weight", (f, h)),
            ("mlp.linear_fc1.bias", (f,)),
            ("mlp.linear_fc2.weight", (h, f)),
            ("mlp.linear_fc2.bias", (h,))]]
    out += [("decoder.final_layernorm.weight", (h,)),
            ("decoder.final_layernorm.bias", (h,))]
    if not c["tied_embeddings"]:
        out.append(("output_layer.weight", (v, h)))
    return out


def weights(c):
    p = {}
    for k, (name, shape) in enumerate(shapes(c)):
        x = value(k, math.prod(shape)).reshape(shape)
        if name.endswith("layernorm.weight"):
            x = x + 1
        p[name] = torch.tensor(x, requires_grad=True)
    return p


def norm(x, p, name, c):
    return torch.nn.functional.layer_norm(
        x, (x.shape[-1],), p[name + ".weight"], p[name + ".bias"],
        c["norm_epsilon"])


def rope(x, c):
    """Turns halves of the first elements of (B, T, ..., D), by sequence."""
    n = int(c["head_size"] * c["rotary_percent"])
    rate = c["rotary_base"] ** (-torch.arange(0, n, 2) / n)
    angle = torch.arange(x.shape[1])[:, None] * rate
    angle = angle.view(1, x.shape[1], *[1] * (x.dim() - 3), n // 2)
    a, b, rest = x[..., :n // 2], x[..., n // 2:n], x[..., n:]
    return torch.cat([a * angle.cos() - b * angle.sin(),
                      b * angle.cos() + a * angle.sin(), rest], -1)


def alibi_slopes(heads):
    """Press et al. 2022: a geometric sequence from 2^(-8/n)."""
    def power_of_two(n):
        return [2.0 ** (-8 * (i + 1) / n) for i in range(n)]
    n = 2 ** int(math.log2(heads))
    return power_of_two(n) + power_of_two(2 * n)[::2][:heads - n]


def attention(x, p, name, c, doc_start):
    b, t, _ = x.shape
    g, d = c["num_query_groups"], c["head_size"]
    per = c["num_attention_heads"] // g
    qkv = x @ p[name + ".linear_qkv.weight"].T + p[name + ".linear_qkv.bias"]
    qkv = qkv.view(b, t, g, per + 2, d)
    q, k, v = qkv[..., :per, :], qkv[..., per, :], qkv[..., per + 1, :]
    if c["position_embedding"] == "rope":
        q, k = rope(q, c), rope(k, c)
    score = torch.einsum("btgpd,bsgd->bgpts", q, k) / math.sqrt(d)
    s = torch.arange(t)
    if c["position_embedding"] == "alibi":
        slopes = torch.tensor(alibi_slopes(g * per)).view(1, g, per, 1, 1)
        score = score - slopes * (s[:, None] - s[None, :])
    seen = (s[None, None, :] <= s[None, :, None]) & \
           (s[None, None, :] >= doc_start[:, :, None])
    score = score.masked_fill(~seen[:, None, None], -math.inf)
    out = torch.einsum("bgpts,bsgd->btgpd", score.softmax(-1), v)
    out = out.reshape(b, t, -1)
    return out @ p[name + ".linear_proj.weight"].T + \
        p[name + ".linear_proj.bias"]


def forward(p, c, tokens, position, doc_start):
    word = p["embedding.word_embeddings.weight"]
    x = word[tokens]
    if c["position_embedding"] == "learned_absolute":
        x = x + p["embedding.position_embeddings.weight"][position]
    for i in range(c["num_layers"]):
        name = f"decoder.layers.{i}"
        x = x + attention(norm(x, p, name + ".input_layernorm", c), p,
                          name + ".self_attention", c, doc_start)
        y = norm(x, p, name + ".pre_mlp_layernorm", c)
        y = torch.nn.functional.gelu(
            y @ p[name + ".mlp.linear_fc1.weight"].T +
            p[name + ".mlp.linear_fc1.bias"], approximate="tanh")
        x = x + y @ p[name + ".mlp.linear_fc2.weight"].T + \
            p[name + ".mlp.linear_fc2.bias"]
    x = norm(x, p, "decoder.final_layernorm", c)
    out = word if c["tied_embeddings"] else p["output_layer.weight"]
    return x @ out.T


def batch(c):
    """input, target, position, doc_start, mask, each (micro, B, T)."""
    m, b, t = c["micro_batches"], c["batch"], c["seq"]
    tokens = token(np.arange(m * b * (t + 1), dtype=np.uint64),
                   c["vocab_size"]).reshape(m, b, t + 1).astype(np.int32)
    position = np.tile(np.arange(t, dtype=np.int32), (m, b, 1))
    start = np.zeros((m, b, t), np.int32)
    mask = np.ones((m, b, t), np.float32)
    if c["masks"]:  # documents end at token 0: no loss there, all anew after
        for i in np.ndindex(m, b):
            begin = 0
            for j in range(t):
                start[i][j], position[i][j] = begin, j - begin
                if tokens[i][j] < 3:
                    mask[i][j] = 0
                    begin = j + 1
    return tokens[..., :-1].copy(), tokens[..., 1:].copy(), position, start, \
        mask


def loss_of(p, c, data, logits=None):
    total = 0
    for i in range(c["micro_batches"]):
        x, y, position, start = (torch.tensor(a[i].astype(np.int64))
                                 for a in data[:4])
        mask = torch.tensor(data[4][i].astype(np.float64))
        out = forward(p, c, x, position, start)
        if logits is not None:
            logits.append(out.detach().numpy())
        nll = torch.nn.functional.cross_entropy(
            out[..., :c["vocab_size"]].flatten(0, 1), y.flatten(),
            reduction="none")
        total = total + (nll * mask.flatten()).sum() / mask.sum()
    return total / c["micro_batches"]


def adamw(p, c, data):
    """Ten steps by the formulas, not by torch.optim; losses before each."""
    s, losses, norms = STEPS, [], []
    m = {k: torch.zeros_like(x) for k, x in p.items()}
    v = {k: torch.zeros_like(x) for k, x in p.items()}
    for t in range(1, s["steps"] + 1):
        for x in p.values():
            x.grad = None
        loss = loss_of(p, c, data)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            total = math.sqrt(sum((x.grad ** 2).sum().item()
                                  for x in p.values()))
            norms.append(total)
            scale = min(1.0, s["clip_grad"] / (total + 1e-6))
            for k, x in p.items():
                g = x.grad * scale
                m[k] = s["beta1"] * m[k] + (1 - s["beta1"]) * g
                v[k] = s["beta2"] * v[k] + (1 - s["beta2"]) * g * g
                mh = m[k] / (1 - s["beta1"] ** t)
                vh = v[k] / (1 - s["beta2"] ** t)
                decay = s["weight_decay"] if x.dim() == 2 else 0.0
                x -= s["lr"] * (mh / (vh.sqrt() + s["eps"]) + decay * x)
    return losses, norms


def make(name, changes, folder):
    c = {**BASE, **changes}
    data, logits, p = batch(c), [], weights(c)
    loss = loss_of(p, c, data, logits)
    loss.backward()
    grads = [p[k].grad.numpy() for k, _ in shapes(c)]
    after = weights(c)
    losses, norms = adamw(after, c, data)
    head = {**c, **STEPS, "loss": loss.item(), "losses": losses,
            "norms": norms}
    with open(os.path.join(folder, name + ".golden"), "wb") as f:
        f.write(json.dumps(head).encode() + b"\n")
        for a in data[:4]:
            f.write(a.astype("<i4").tobytes())
        f.write(data[4].astype("<f4").tobytes())
        f.write(np.stack(logits).astype("<f4").tobytes())
        for g in grads:
            f.write(g.astype("<f4").tobytes())
        for k, _ in shapes(c):
            f.write(after[k].detach().numpy().astype("<f4").tobytes())


if __name__ == "__main__":
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model")
    os.makedirs(here, exist_ok=True)
    for case, changes in CASES.items():
        make(case, changes, here)
