#!/usr/bin/env python3
"""Times training steps of GPT-2 124M by gpt-train beside PyTorch, eager and
compiled, on the same cores.

    peers_train.py --build build --vocab DIR [--rounds N] [--steps N]
        [--cases FORM:BxT,...] [--only eager,compile]

A case is a form (fp32, bf16) and a shape: samples and tokens of a sample. A
step is forward, backward, the norm of the gradients, clipping and AdamW,
without dropout. Every round runs each program for some steps, one after
another; the first steps of a program, which fill caches and compile, do not
count. The figure is the median of all steps that count. bf16 is autocast in
PyTorch, whose weights stay float32, and --bf16 in gpt-train.

Each PyTorch variant is a process of its own that lives through all rounds and
sleeps while it is not its turn, as compiling takes longer than the steps.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import peers_table

LAYERS, HEADS, WIDTH, POSITIONS = 12, 12, 768, 1024
VOCABULARY = 50304  # GPT-2's, as Megatron-LM pads it
WARM = 2            # steps of a program that do not count


# ---- PyTorch, in a process of its own ----

def gpt2(torch):
    """GPT-2 with tied embeddings, as PyTorch's own layers make it."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention = nn.LayerNorm(WIDTH)
            self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
            self.joined = nn.Linear(WIDTH, WIDTH)
            self.before_mlp = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 4 * WIDTH)
            self.down = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            b, t, _ = x.shape
            heads = self.query_key_value(self.before_attention(x)).view(
                b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(
                *heads, is_causal=True)
            x = x + self.joined(seen.transpose(1, 2).reshape(b, t, WIDTH))
            wide = nn.functional.gelu(self.up(self.before_mlp(x)),
                                      approximate="tanh")
            return x + self.down(wide)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(POSITIONS, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            for w in (self.tokens.weight, self.positions.weight):
                nn.init.normal_(w, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = self.norm(x) @ self.tokens.weight.T
            return nn.functional.cross_entropy(
                logits.view(-1, VOCABULARY).float(), targets.view(-1))

    return Model()


def serve(form, b, t, compiled):
    """Answers each line of standard input, a number of steps, with their
    seconds."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = gpt2(torch)
    loss_of = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    ids = torch.randint(0, 50257, (b, t + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=form == "bf16"):
            loss = loss_of(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(WARM):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        print(json.dumps(times), flush=True)


class Peer:
    def __init__(self, form, b, t, kind):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", f"{form}:{b}x{t}:{kind}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.close()
            raise RuntimeError(f"PyTorch, {kind}, did not start")

    def steps(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- gpt-train ----

def make_data(args, folder):
    """A data set of random words, enough for a few steps of any shape."""
    source = os.path.join(folder, "text.jsonl")
    with open(source, "w", encoding="utf-8") as out:
        for i in range(4000):
            words = " ".join(str((i * 7919 + k * 104729) % 99991)
                             for k in range(60))
            out.write(json.dumps({"text": words}) + "\n")
    subprocess.run([os.path.join(args.build, "gpt-preprocess"), "--input",
                    source, "--output-prefix", os.path.join(folder, "data"),
                    *vocabulary(args), "--append-eod", "--quiet"], check=True)
    return os.path.join(folder, "data_text_document")


def vocabulary(args):
    return ["--vocab-file", os.path.join(args.vocab, "vocab.json"),
            "--merge-file", os.path.join(args.vocab, "merges.txt")]


def ours(args, data, form, b, t, n):
    metrics = data + ".jsonl"
    if os.path.exists(metrics):
        os.remove(metrics)
    subprocess.run(
        [os.path.join(args.build, "gpt-train"), "--config", "gpt2-124m",
         "--data-path", data, *vocabulary(args), "--seq-length", str(t),
         "--micro-batch-size", str(b), "--train-iters", str(WARM + n),
         "--log-interval", "1", "--metrics", metrics, "--eval-iters", "0",
         "--lr", "1e-4", "--hidden-dropout", "0", "--attention-dropout", "0",
         *(["--bf16"] if form == "bf16" else [])],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(metrics, encoding="utf-8") as lines:
        return [json.loads(line)["elapsed_ms"] / 1e3
                for line in lines][WARM:]


# ---- the comparison ----

def show(case, name, times, base=None):
    middle = statistics.median(times)
    ratio = middle / base if base else None
    print(f"{case:14}{name:24}{middle:8.3f} s  ({min(times):.3f}-"
          f"{max(times):.3f}){f'{ratio:8.2f}' if ratio else ''}", flush=True)
    peers_table.add(f"a step of GPT-2 124M, {case}", name, times, "s", ratio)
    return middle


def compare(args, data, form, b, t):
    case, peers = f"{form} {b} x {t}", {}
    for kind in args.only.split(","):
        try:
            peers[f"PyTorch {kind}"] = Peer(form, b, t, kind)
        except RuntimeError as absent:
            print(f"# absent: {absent}")
    times = {name: [] for name in peers}
    mine = []
    for _ in range(args.rounds):
        mine += ours(args, data, form, b, t, args.steps)
        for name, peer in peers.items():
            times[name] += peer.steps(args.steps)
    for peer in peers.values():
        peer.close()
    base = show(case, "gpt-train", mine)
    for name, seconds in times.items():
        show(case, name, seconds, base)


def shape(text):
    form, size = text.split(":")[:2]
    b, t = size.split("x")
    return form, int(b), int(t)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--vocab")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--cases",
                   default="fp32:4x64,bf16:4x64,fp32:4x512,bf16:4x512")
    p.add_argument("--only", default="eager,compile")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.serve:
        serve(*shape(args.serve), args.serve.endswith(":compile"))
        return
    import torch
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; "
          "seconds a step, median, least and most; it/ours")
    with tempfile.TemporaryDirectory(prefix="gpt-peers.") as folder:
        data = make_data(args, folder)
        for case in args.cases.split(","):
            compare(args, data, *shape(case))


if __name__ == "__main__":
    main()
