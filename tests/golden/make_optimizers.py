#!/usr/bin/env python3
"""Makes tests/golden/optimizers.golden for tests/unit/test_optimizers.c: the
parameters of a small model after five updates by each optimizer, in float64.

Needs PyTorch; run as  python3 tests/golden/make_optimizers.py  from the top of
the tree. Adam and gradient descent are those of torch.optim. Muon is written
out here, as torch.optim.Muon computes in bfloat16; its iteration is over whole
matrices, as of one rank. The file is the name of a case on a line, then the
parameters in table order, little-endian float32, case by case. Parameters at
first and gradients follow from value() of make_model.py.
"""
import os

import numpy as np
import torch

from make_model import shapes, value

torch.set_default_dtype(torch.float64)

MODEL = dict(num_layers=1, hidden_size=12, num_attention_heads=4,
             num_query_groups=2, head_size=3, ffn_hidden_size=20,
             max_positions=8, vocab_size=10, padded_vocab_size=10,
             normalization="LayerNorm", no_linear_bias=False, gated=True,
             qk_norm=False, qkv_bias=False, shared_norm=False,
             tied_embeddings=True, position_embedding="learned_absolute")
LR, DECAY, CLIP, STEPS, BETAS, EPS = 0.02, 0.1, 1.0, 5, (0.9, 0.95), 1e-4
SETS = {
    "simple": [(3.4445, -4.7750, 2.0315)],
    "quintic": [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377),
                (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
                (2.8366, -3.0525, 1.2012)],
    "polar_express": [
        (8.237312490495555, -23.157747414558198, 16.680568411445915),
        (4.082441999064835, -2.893047735332586, 0.5252849256975648),
        (3.9263479922546582, -2.8547468034765298, 0.5318022422894988)],
}


def orthogonal(x, coefficients, steps):
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    x = x / max(x.norm().item(), 1e-7)
    for i in range(steps):
        a, b, c = SETS[coefficients][i % len(SETS[coefficients])]
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if turned else x


def scale(mode, out, columns):
    return {"spectral": max(out, columns) ** 0.5,
            "unit_rms_norm": (out / columns) ** 0.5,
            "shape_scaling": max(1, out / columns) ** 0.5}[mode]


class Muon(torch.optim.Optimizer):
    """Megatron-LM's rule: momentum by lerp, queries, keys and values apart."""

    def __init__(self, named, lr, momentum, nesterov, split_qkv, mode,
                 coefficients, steps, extra, coupled):
        self.o = locals()
        super().__init__([p for _, p in named], {})
        self.names = {p: n for n, p in named}

    def parts(self, name, x):
        if "linear_qkv" not in name or not self.o["split_qkv"]:
            return [torch.arange(x.shape[0])]
        d, groups = MODEL["head_size"], MODEL["num_query_groups"]
        unit = x.shape[0] // groups
        rows = torch.arange(x.shape[0]).reshape(groups, unit)
        return [rows[:, :unit - 2 * d].flatten(),
                rows[:, unit - 2 * d:unit - d].flatten(),
                rows[:, unit - d:].flatten()]

    @torch.no_grad()
    def step(self):
        o = self.o
        for p in self.param_groups[0]["params"]:
            g, mu = p.grad, o["momentum"]
            if o["coupled"]:
                g = g + DECAY * p
            else:
                p.mul_(1 - o["lr"] * DECAY)
            m = self.state[p].setdefault("m", torch.zeros_like(p))
            m.lerp_(g, 1 - mu)
            u = g.lerp(m, mu) if o["nesterov"] else m
            for rows in self.parts(self.names[p], p):
                x = orthogonal(u[rows], o["coefficients"], o["steps"])
                p[rows] -= o["lr"] * o["extra"] * x * scale(
                    o["mode"], x.shape[0], x.shape[1])


def adam(kind, named):
    return kind([dict(params=[p for _, p in named if p.dim() == 2],
                      weight_decay=DECAY),
                 dict(params=[p for _, p in named if p.dim() == 1],
                      weight_decay=0)], lr=LR, betas=BETAS, eps=EPS)


def sgd(named, momentum):
    return torch.optim.SGD(
        [dict(params=[p for _, p in named if p.dim() == 2],
              weight_decay=DECAY),
         dict(params=[p for _, p in named if p.dim() == 1], weight_decay=0)],
        lr=LR, momentum=momentum)


def muon(named, coupled=False, **changes):
    o = {**dict(lr=LR, momentum=0.9, nesterov=False, split_qkv=True,
                mode="spectral", coefficients="quintic", steps=5, extra=1),
         **changes}
    matrices = [(n, p) for n, p in named
                if p.dim() == 2 and n.startswith("decoder.layers")]
    rest = [(n, p) for n, p in named if not (
        p.dim() == 2 and n.startswith("decoder.layers"))]
    return [Muon(matrices, coupled=coupled, **o),
            adam(torch.optim.Adam if coupled else torch.optim.AdamW, rest)]


TRIALS = {
    "adamw": lambda p: [adam(torch.optim.AdamW, p)],
    "adam": lambda p: [adam(torch.optim.Adam, p)],
    "sgd": lambda p: [sgd(p, 0.9)],
    "descent": lambda p: [sgd(p, 0.0)],
    "muon": lambda p: muon(p),
    "muon nesterov": lambda p: muon(p, nesterov=True, momentum=0.95,
                                    mode="shape_scaling", split_qkv=False,
                                    coefficients="simple"),
    "muon coupled": lambda p: muon(p, coupled=True, nesterov=True,
                                   mode="unit_rms_norm", extra=0.2,
                                   coefficients="polar_express", steps=3),
}


def run(make):
    named = [(n, torch.tensor(value(i, int(np.prod(s))).reshape(s),
                              requires_grad=True))
             for i, (n, s) in enumerate(shapes(MODEL))]
    optimizers = make(named)
    for t in range(STEPS):
        for i, (_, p) in enumerate(named):
            p.grad = torch.tensor(value(100 + 50 * t + i, p.numel())
                                  .reshape(p.shape))
        torch.nn.utils.clip_grad_norm_([p for _, p in named], CLIP)
        for o in optimizers:
            o.step()
    return [p.detach().numpy() for _, p in named]


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "optimizers.golden"), "wb") as f:
        for name, make in TRIALS.items():
            f.write(name.encode() + b"\n")
            for x in run(make):
                f.write(x.astype("<f4").tobytes())
