#!/usr/bin/env python3
"""gpt-generate beside llama.cpp and transformers, with the same weights.

Usage: peers_generate.py --build DIR --vocab DIR [--peers DIR] [--dir DIR]
           [--shape 124m|1b] [--form fp32|bf16|int8|int8-32] [--rounds N]
           [--only step|prompt|lines]

Models with random weights of GPT-2 124M's shape and of a Llama with 1.2 billion
parameters are made in --dir (default: a folder of this machine's temporary
ones, which is kept). One file a form goes to llama.cpp, by gpt-reshape: floats,
bf16, and Q8_0, which has a scale for 32 bytes and stands beside int8, with one
a row, and int8-32. transformers has no bytes for processors.

Each round asks every program in turn: tokens a second of one text, whose
prompt has 128 tokens; and of a prompt of 512 tokens. `lines` is of
gpt-generate alone: 32 JSONL prompts, as they come and one by one. Programs are
processes of their own, with two threads; their first pass, and what reads
weights, is not counted. The floor of steps is the bandwidth of memory over the
bytes that a step reads: weights, keys and values.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile


V, PROMPT, LONG = 50257, 128, 512
SHAPES = {
    "124m": dict(family="gpt2", layers=12, hidden=768, steps=64, longs=6),
    "1b": dict(family="llama", layers=22, hidden=2048, ffn=5632, heads=32,
               groups=4, steps=24, longs=2),
}
FORMS = {"fp32": 4, "bf16": 2, "int8": 1, "int8-32": 1 + 2 / 32}
PACKED = {"fp32": "fp32", "bf16": "bf16", "int8": "q8_0", "int8-32": "q8_0"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


# ---- models ----

def make_hf(path, shape, vocab):
    import torch
    import transformers
    torch.manual_seed(1)
    if shape["family"] == "gpt2":
        config = transformers.GPT2Config(
            n_layer=shape["layers"], n_embd=shape["hidden"], n_head=12)
    else:
        config = transformers.LlamaConfig(
            vocab_size=V, num_hidden_layers=shape["layers"],
            hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
            num_attention_heads=shape["heads"],
            num_key_value_heads=shape["groups"],
            max_position_embeddings=2048, bos_token_id=V - 1,
            eos_token_id=V - 1, tie_word_embeddings=False)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16)
    model.save_pretrained(path + ".new")
    for name in "vocab.json", "merges.txt":
        shutil.copy(os.path.join(vocab, name), path + ".new")
    os.rename(path + ".new", path)


def make(o, name):
    """The model as Hugging Face's, and as GGUF in each form."""
    base = os.path.join(o.dir, name)
    if not os.path.isdir(base):
        make_hf(base, SHAPES[name], o.vocab)
    for packed in {PACKED[f] for f in o.forms}:
        target = f"{base}.{packed}.gguf"
        if o.llama and not os.path.exists(target):
            run(f"{o.build}/gpt-reshape", base, target,
                "--target-params-dtype", packed, "-q")
    return base


def step_bytes(shape, form):
    """Of a step: matrices, and keys and values in the middle of the text."""
    c, n = shape["hidden"], shape["layers"]
    if shape["family"] == "gpt2":
        layer, keys = 12 * c * c, c
    else:
        keys = c // shape["heads"] * shape["groups"]
        layer = 2 * c * c + 2 * c * keys + 3 * c * shape["ffn"]
    middle = PROMPT + shape["steps"] / 2
    return (n * layer + V * c) * FORMS[form] + 8 * n * keys * middle


# ---- programs: each prints one number, tokens a second ----

def words(n, seed=1):
    """Ids of single letters with a blank: n words are n tokens."""
    return "".join(" " + "abcdefghijklm"[(seed * i + i // 7) % 13]
                   for i in range(n))


def ours(o, base, form, task):
    shape = SHAPES[os.path.basename(base)]
    steps = task in ("step", "lines", "one")
    lines = {"step": 1, "prompt": shape["longs"], "lines": 32, "one": 4}[task]
    length = LONG if task == "prompt" else PROMPT if task == "step" else 40
    tokens = shape["steps"] if task == "step" else 16 if steps else 1
    with tempfile.TemporaryDirectory() as at:
        with open(f"{at}/prompts", "w") as f:
            for i in range(lines):
                f.write(json.dumps({"prompt": words(length, i + 1)}) + "\n")
        run(f"{o.build}/gpt-generate", "--load", base, "--weights", form,
            "--jsonl", "--prompt-file", f"{at}/prompts", "--greedy",
            "--ignore-eod", "--tokens", str(tokens), "--threads", "2", "-q",
            "--batch-size", str(o.batch if task == "lines" else 1),
            "--stats-file", f"{at}/stats")
        with open(f"{at}/stats") as f:
            s = json.load(f)
    if task == "step":
        return s["step_tokens"] / s["step_seconds"]
    if task == "prompt":
        return s["prompt_tokens"] / s["prompt_seconds"]
    return lines * tokens / (s["step_seconds"] + s["prompt_seconds"])


LLAMA = """
import sys, time
sys.path.insert(0, sys.argv[1])
import llama_cpp
task, count = sys.argv[3], int(sys.argv[4])
m = llama_cpp.Llama(model_path=sys.argv[2], n_ctx=1024, n_batch=512,
                    n_ubatch=512, n_threads=2, n_threads_batch=2,
                    flash_attn=False, verbose=False)
ids = [64 + 7 * i % 999 for i in range(512)]
def prompt(n):
    m.reset()
    begun = time.perf_counter()
    m.eval(ids[:n])
    return time.perf_counter() - begun
prompt(64)
if task == "prompt":
    print(512 * count / sum(prompt(512) for i in range(count)))
else:
    prompt(128)
    begun = time.perf_counter()
    for i in range(count):
        m.eval([ids[i]])
    print(count / (time.perf_counter() - begun))
"""

TORCH = """
import sys, time, torch, transformers
task, count = sys.argv[3], int(sys.argv[4])
torch.set_num_threads(2)
m = transformers.AutoModelForCausalLM.from_pretrained(
    sys.argv[2], dtype=getattr(torch, sys.argv[1])).eval()
ids = torch.tensor([[64 + 7 * i % 999 for i in range(512)]])
@torch.inference_mode()
def prompt(n):
    begun = time.perf_counter()
    out = m(ids[:, :n], use_cache=True, logits_to_keep=1)
    return time.perf_counter() - begun, out.past_key_values
prompt(64)
with torch.inference_mode():
    if task == "prompt":
        print(512 * count / sum(prompt(512)[0] for i in range(count)))
    else:
        kept = prompt(128)[1]
        begun = time.perf_counter()
        for i in range(count):
            kept = m(ids[:, i:i + 1], past_key_values=kept, use_cache=True,
                     logits_to_keep=1).past_key_values
        print(count / (time.perf_counter() - begun))
"""


def script(text, *words_):
    return float(run(sys.executable, "-c", text, *words_).split()[-1])


def programs(o, base, form, task):
    shape = SHAPES[os.path.basename(base)]
    count = str(shape["steps" if task == "step" else "longs"])
    found = {"gpt-generate": lambda: ours(o, base, form, task)}
    if o.llama:
        found["llama.cpp"] = lambda: script(
            LLAMA, o.peers, f"{base}.{PACKED[form]}.gguf", task, count)
    if form in ("fp32", "bf16"):
        kind = "float32" if form == "fp32" else "bfloat16"
        found["transformers"] = lambda: script(TORCH, kind, base, task, count)
    return found


# ---- rows ----

def streaming(o):
    """Bytes a second that two threads read."""
    out = run(f"{o.build}/tests/bench/bench_decode", "streaming",
              env={**os.environ, "GOMP_SPINCOUNT": "1000"})
    return float(out.split("\t")[1]) * 1e9


def row(name, unit, ours_, floor, others):
    beside = "".join(f"\t{n} {x:.4g}, {ours_ / x:.2f} x"
                     for n, x in others.items())
    ratio = f"{floor:.4g}\t{ours_ / floor:.2f}" if floor else "-\t-"
    print(f"{name}\t{ours_:.4g}\t{unit}\t{ratio}{beside}", flush=True)


def compare(o, base, form, task):
    shape, name = SHAPES[os.path.basename(base)], os.path.basename(base)
    found, floors = programs(o, base, form, task), []
    figures = {n: [] for n in found}
    for _ in range(o.rounds):
        for n, measure in found.items():
            figures[n].append(measure())
        if task == "step":
            floors.append(streaming(o))
    median = {n: statistics.median(x) for n, x in figures.items()}
    mine = median.pop("gpt-generate")
    floor = max(floors) / step_bytes(shape, form) if floors else None
    what = "one text" if task == "step" else "prompt of 512"
    row(f"{name} {form}, {what}", "token/s", mine, floor, median)


def compare_lines(o, base, form):
    alone, together = [], []
    for _ in range(o.rounds):
        alone.append(ours(o, base, form, "one"))
        together.append(ours(o, base, form, "lines"))
    alone, together = map(statistics.median, (alone, together))
    row(f"{os.path.basename(base)} {form}, 32 lines, {o.batch} at once",
        "token/s", together, 10 * alone, {"one by one": alone})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", required=True)
    p.add_argument("--vocab", required=True)
    p.add_argument("--peers", default="")
    p.add_argument("--dir", default=os.path.join(tempfile.gettempdir(),
                                                 "gpt-peers-generate"))
    p.add_argument("--shape", choices=SHAPES)
    p.add_argument("--form", choices=FORMS)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--only", choices=["step", "prompt", "lines", "files"])
    o = p.parse_args()
    o.forms = [o.form] if o.form else list(FORMS)
    o.peers = os.path.abspath(o.peers)
    o.llama = os.path.isdir(os.path.join(o.peers, "llama_cpp"))
    os.makedirs(o.dir, exist_ok=True)
    if not o.llama:
        print("# SKIP llama.cpp: GPT_PEERS_INSTALL=1 builds it")
    print("name\tfigure\tunit\tfloor\tratio\tbeside")
    for name in [o.shape] if o.shape else SHAPES:
        base = make(o, name)
        for form in o.forms:
            for task in "step", "prompt":
                if o.only in (None, task):
                    compare(o, base, form, task)
            if o.only in (None, "lines"):
                compare_lines(o, base, form)


main()
