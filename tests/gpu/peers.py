"""Measures PyTorch with the shapes of `make bench-gpu`, in the same run.

    peers.py attention [B,T,H,D,P]...
        lines "NAME <tab> BACKEND <tab> TFLOP/s" of each backend of
        scaled_dot_product_attention, forward and backward; only operations of
        the causal half count, as in bench_attention.c
    peers.py train LAYERS WIDTH HEADS BATCH T STEPS
        a line "tokens/s <tab> spread <tab> first loss" of a GPT-2 with
        torch.compile, flash attention, bf16 autocast, clipping at 1 and fused
        AdamW, on random tokens in the memory of the GPU

Without a GPU it computes on the CPU, for rehearsals. A PyTorch without CUDA or
without a backend is reported on stderr.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
VOCABULARY = 50304
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def finish():
    if GPU:
        torch.cuda.synchronize()


def median(x):
    x = sorted(x)
    return (x[len(x) // 2] + x[(len(x) - 1) // 2]) / 2


def seconds(run, budget=0.3):
    """Median of groups of at least 20 ms, as bench_device.h takes it."""
    run()
    finish()
    begin = time.perf_counter()
    run()
    finish()
    group = int(0.02 / (time.perf_counter() - begin)) + 1
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < budget:
        t = time.perf_counter()
        for _ in range(group):
            run()
        finish()
        times.append((time.perf_counter() - t) / group)
    return median(times)


# ---- attention ----


def attention(b, t, h, d, p):
    """Yields (direction, backend, TFLOP/s)."""
    qkv = torch.randn(b, t, 3, h, d, device=DEVICE, dtype=torch.bfloat16)
    q, k, v = (x.transpose(1, 2).requires_grad_() for x in qkv.unbind(2))
    dout = torch.randn(b, t, h, d, device=DEVICE, dtype=torch.bfloat16)
    dout = dout.transpose(1, 2)
    flop = 2 * b * h * t * t * d

    def forward():
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)

    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                out = forward()
                with torch.no_grad():
                    yield "fwd", name, flop / seconds(forward) / 1e12
                back = lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
                yield "bwd", name, 2.5 * flop / seconds(back) / 1e12
        except RuntimeError as e:
            print(f"peers: {name}: {str(e).splitlines()[0]}", file=sys.stderr)


def run_attention(shapes):
    for text in shapes:
        b, t, h, d = (int(x) for x in text.split(",")[:4])
        p = float(text.split(",")[4])
        for way, backend, rate in attention(b, t, h, d, p):
            print(f"{way} B{b} T{t} H{h} D{d} p{p:g}\t{backend}\t{rate:.4g}", flush=True)


# ---- training ----


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, t):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(t, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def run_train(layers, width, heads, batch, t, steps):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(layers, width, heads, t).to(DEVICE)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    compiled = torch.compile(model)
    tokens = torch.randint(0, 50257, (8, 2, batch, t), device=DEVICE)
    times, first = [], None
    for i in range(5 + steps):
        begin = time.perf_counter()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = compiled(*tokens[i % 8])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        first = first or loss.item()
        finish()
        if i >= 5:  # compiled and warm
            times.append(time.perf_counter() - begin)
    middle = median(times)
    spread = (sum((x - middle) ** 2 for x in times) / len(times)) ** 0.5 / middle
    print(f"{batch * t / middle:.6g}\t{spread:.4g}\t{first:.4f}")


if __name__ == "__main__":
    if sys.argv[1] == "attention":
        run_attention(sys.argv[2:])
    else:
        run_train(*(int(x) for x in sys.argv[2:8]))
