#!/usr/bin/env python3
"""Times gpt-generate beside llama.cpp and transformers, with the same weights
on the same cores.

    peers_generate.py --build build --vocab DIR --models DIR
        [--shape 124m,1b] [--form FORM,...]
        [--task step,prompt,lines] [--rounds N] [--only NAME,...]

Models with random weights, of GPT-2 124M's shape and of a Llama with 1.2
billion parameters, are made in --models once. llama.cpp has them as GGUF from
gpt-reshape: floats, bf16, and Q8_0, which has a scale for 32 bytes and stands
beside int8-32, and beside int8, which has one for a row. transformers has no
bytes for processors.

Forms are those of --weights, and the same with --round-inputs, which have
-rounded behind their names: those are of the precision of the other programs,
which round the inputs of products with bf16 and with bytes to that form.

Each round asks every program in turn. step: tokens a second of one text behind
128 tokens, whose floor is the bandwidth of memory, measured in the same round,
over the bytes of weights, keys and values that a step reads. prompt: tokens a
second of prompts of 512. lines: of gpt-generate alone, 32 lines as they come
and four of them one by one; ten times the latter is the floor. Reading weights
does not count, nor does the first pass of the other two programs.
"""
import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import peers_table

VOCABULARY, PROMPT, LONG = 50257, 128, 512
SHAPES = {
    "124m": {"family": "gpt2", "layers": 12, "hidden": 768, "heads": 12,
             "groups": 12, "steps": 64, "longs": 6},
    "1b": {"family": "llama", "layers": 22, "hidden": 2048, "ffn": 5632,
           "heads": 32, "groups": 4, "steps": 24, "longs": 2},
}
# Bytes of a weight, and what llama.cpp has in its place.
FORMS = {"fp32": (4, "fp32"), "bf16": (2, "bf16"), "int8": (1, "q8_0"),
         "int8-32": (1 + 2 / 32, "q8_0")}
ROUNDED = "-rounded"
FORMS.update({form + ROUNDED: FORMS[form] for form in list(FORMS)[1:]})
TORCH_TYPES = {"fp32": "float32", "bf16": "bfloat16",
               "bf16" + ROUNDED: "bfloat16"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True,
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


# ---- models ----

def make_weights(path, shape, vocab):
    import torch
    import transformers
    torch.manual_seed(1)
    if shape["family"] == "gpt2":
        config = transformers.GPT2Config(
            n_layer=shape["layers"], n_embd=shape["hidden"],
            n_head=shape["heads"])
    else:
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY, num_hidden_layers=shape["layers"],
            hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
            num_attention_heads=shape["heads"],
            num_key_value_heads=shape["groups"],
            max_position_embeddings=2048, bos_token_id=VOCABULARY - 1,
            eos_token_id=VOCABULARY - 1, tie_word_embeddings=False)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16)
    shutil.rmtree(path + ".new", ignore_errors=True)
    model.save_pretrained(path + ".new")
    for name in "vocab.json", "merges.txt":
        shutil.copy(os.path.join(vocab, name), path + ".new")
    os.rename(path + ".new", path)


def make_model(args, name):
    """The directory of Hugging Face's files, beside which GGUF files are."""
    base = os.path.join(args.models, name)
    if not os.path.isdir(base):
        make_weights(base, SHAPES[name], args.vocab)
    for form in args.form.split(","):
        target = gguf_of(base, form)
        if has_llama() and not os.path.exists(target):
            run(f"{args.build}/gpt-reshape", "--load-path", base,
                "--save-path", target, "--target-params-dtype",
                FORMS[form][1], "-q")
    return base


def gguf_of(base, form):
    return f"{base}.{FORMS[form][1]}.gguf"


def step_bytes(shape, form):
    """Of matrices, and of keys and values in the middle of the text."""
    c, n = shape["hidden"], shape["layers"]
    keys = c // shape["heads"] * shape["groups"]
    mlp = 3 * c * shape["ffn"] if "ffn" in shape else 8 * c * c
    layer = 2 * c * c + 2 * c * keys + mlp
    middle = PROMPT + shape["steps"] / 2
    return (n * layer + VOCABULARY * c) * FORMS[form][0] + \
        8 * n * keys * middle


# ---- programs: each gives tokens a second ----

def words(n, seed):
    """Letters with a blank, each of which is a token."""
    return "".join(" " + "abcdefghijklm"[(seed * i + i // 7) % 13]
                   for i in range(n))


def ours(args, base, form, task):
    shape = SHAPES[os.path.basename(base)]
    lines, length, tokens = {
        "step": (1, PROMPT, shape["steps"]),
        "prompt": (shape["longs"], LONG, 1),
        "lines": (32, 40, 16),
        "one by one": (4, 40, 16)}[task]
    with tempfile.TemporaryDirectory(prefix="gpt-peers.") as folder:
        prompts, stats = f"{folder}/prompts", f"{folder}/stats"
        with open(prompts, "w", encoding="utf-8") as out:
            for i in range(lines):
                out.write(json.dumps({"prompt": words(length, i + 1)}) + "\n")
        rounds = ["--round-inputs"] if form.endswith(ROUNDED) else []
        run(f"{args.build}/gpt-generate", "--load", base, "--weights",
            form.removesuffix(ROUNDED), *rounds, "--jsonl", "--prompt-file",
            prompts, "--greedy", "--ignore-eod", "--tokens", str(tokens), "-q",
            "--stats-file", stats,
            "--batch-size", "32" if task == "lines" else "1")
        with open(stats, encoding="utf-8") as file:
            s = json.load(file)
    if task == "step":
        return s["step_tokens"] / s["step_seconds"]
    if task == "prompt":
        return s["prompt_tokens"] / s["prompt_seconds"]
    return lines * tokens / (s["step_seconds"] + s["prompt_seconds"])


# Weights in buffers of their own kind are those that AMX multiplies.
LLAMA = """
import os, sys, time, llama_cpp
path, task, count, own = *sys.argv[1:3], int(sys.argv[3]), sys.argv[4]
params_of = llama_cpp.llama_cpp.llama_model_default_params
def params():
    p = params_of()
    p.use_extra_bufts = own == "own"
    return p
llama_cpp.llama_cpp.llama_model_default_params = params
threads = len(os.sched_getaffinity(0))
m = llama_cpp.Llama(model_path=path, n_ctx=1024, n_batch=512, n_ubatch=512,
                    n_threads=threads, n_threads_batch=threads, verbose=False)
ids = [64 + 7 * i % 999 for i in range(512)]
def prompt(n):
    m.reset()
    m.eval(ids[:n])
def step():
    m.eval(ids[:1])
"""
TORCH = """
import os, sys, time, torch, transformers
path, task, count, kind = *sys.argv[1:3], int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(len(os.sched_getaffinity(0)))
torch.set_grad_enabled(False)
m = transformers.AutoModelForCausalLM.from_pretrained(
    path, dtype=getattr(torch, kind)).eval()
ids = torch.tensor([[64 + 7 * i % 999 for i in range(512)]])
kept = None
def prompt(n):
    global kept
    kept = m(ids[:, :n], use_cache=True, logits_to_keep=1).past_key_values
def step():
    global kept
    kept = m(ids[:, :1], past_key_values=kept, use_cache=True,
             logits_to_keep=1).past_key_values
"""
TIME = """
prompt(64)
if task == "step":
    prompt(128)
    step()
begun = time.perf_counter()
for i in range(count):
    step() if task == "step" else prompt(512)
each = 1 if task == "step" else 512
print(each * count / (time.perf_counter() - begun))
"""


def measure(text, *arguments):
    return float(run(sys.executable, "-c", text + TIME, *arguments).split()[-1])


def llama_buffers(base, form):
    """llama-cpp-python 0.3.36 crashes within its AMX products of Q8_0, built by
    GCC 12: it is measured without them then."""
    probe = subprocess.run(
        [sys.executable, "-c", LLAMA + "prompt(64)", gguf_of(base, form),
         "step", "1", "own"], capture_output=True, check=False)
    if probe.returncode >= 0:
        return "own"
    print("# llama.cpp crashes with its AMX products, and does without them")
    return "plain"


def has_llama():
    return importlib.util.find_spec("llama_cpp") is not None


def programs(args, base, form, task):
    shape = SHAPES[os.path.basename(base)]
    count = str(shape["steps" if task == "step" else "longs"])
    found = {"gpt-generate": lambda: ours(args, base, form, task)}
    if has_llama():
        buffers = llama_buffers(base, form)
        found["llama.cpp"] = lambda: measure(LLAMA, gguf_of(base, form), task,
                                             count, buffers)
    if form in TORCH_TYPES:
        found["transformers"] = lambda: measure(TORCH, base, task, count,
                                                TORCH_TYPES[form])
    return {name: call for name, call in found.items()
            if not args.only or name in args.only.split(",")}


# ---- the comparison ----

def streaming(args):
    """Bytes a second that all threads read."""
    out = run(f"{args.build}/tests/bench/bench_decode", "streaming",
              env={**os.environ, "GOMP_SPINCOUNT": "1000"})
    return float(out.strip().split("\n")[-1].split("\t")[1]) * 1e9


def show(what, name, figures, base=None):
    middle = statistics.median(figures)
    ratio = base / middle if base else None
    print(f"{what:40}{name:20}{middle:10.4g} tokens/s  ({min(figures):.4g}-"
          f"{max(figures):.4g}){f'{ratio:8.2f}' if ratio else ''}",
          flush=True)
    peers_table.add(what, name, figures, "tokens/s", ratio)


def compare(args, base, form, task):
    name = os.path.basename(base)
    found = programs(args, base, form, task)
    figures, floors = {program: [] for program in found}, []
    for _ in range(args.rounds):
        for program, call in found.items():
            figures[program].append(call())
        if task == "step":
            floors.append(streaming(args) / step_bytes(SHAPES[name], form))
    what = f"{name} {form}, " + \
        ("one text" if task == "step" else f"a prompt of {LONG}")
    mine = statistics.median(figures.get("gpt-generate", [0]))
    for program, speeds in figures.items():
        show(what, program, speeds,
             mine if program != "gpt-generate" else None)
    if floors:
        show(what, "streaming of memory", floors, mine)


def compare_lines(args, base, form):
    what = f"{os.path.basename(base)} {form}, 32 lines"
    alone, together = [], []
    for _ in range(args.rounds):
        alone.append(ours(args, base, form, "one by one"))
        together.append(ours(args, base, form, "lines"))
    show(what, "gpt-generate", together)
    show(what, "the same one by one", alone, statistics.median(together))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--vocab", required=True)
    p.add_argument("--models", required=True)
    p.add_argument("--shape", default=",".join(SHAPES))
    p.add_argument("--form", default=",".join(FORMS))
    p.add_argument("--task", default="step,prompt,lines")
    p.add_argument("--only", help="programs, such as gpt-generate,llama.cpp")
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    os.makedirs(args.models, exist_ok=True)
    if not has_llama():
        print("# absent: llama.cpp (GPT_PEERS_INSTALL=1 builds it)")
    print("tokens a second, median, least and most; ours/it")
    for name in args.shape.split(","):
        base = make_model(args, name)
        for form in args.form.split(","):
            for task in args.task.split(","):
                if task == "lines":
                    compare_lines(args, base, form)
                else:
                    compare(args, base, form, task)


if __name__ == "__main__":
    main()
