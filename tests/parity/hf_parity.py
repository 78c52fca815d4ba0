"""A tiny GPT-2 that transformers made is converted, gives the same logits, is
trained further, is converted back, and loads in transformers with the same
logits. Every file of this project loads in the safetensors library. Shards are
those of huggingface_hub. Prints TAP. Usage: hf_parity.py BUILD (from the
repository's root).
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

BUILD = os.path.abspath(sys.argv[1])
transformers.logging.set_verbosity_error()
torch.manual_seed(3)
torch.set_num_threads(1)
count = failed = 0


def ok(good, what, why=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}", flush=True)
    if not good:
        print("# " + str(why).replace("\n", "\n# "))


def run(program, *args):
    p = subprocess.run([os.path.join(BUILD, program), *map(str, args)],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{program} {args}: {p.returncode}\n{p.stderr}")
    return p.stdout


def reshape(load, save, *args):
    run("gpt-reshape", "--load-path", load, "--save-path", save, "--verify",
        *args)


def state(directory):
    out = {}
    for f in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        out.update(load_file(f))
    return out


def same(a, b):
    if a.keys() != b.keys():
        return a.keys() ^ b.keys()
    return [k for k in a if a[k].dtype != b[k].dtype or
            a[k].shape != b[k].shape or not torch.equal(a[k], b[k])]


def logits_there(directory, tokens):
    m = GPT2LMHeadModel.from_pretrained(
        directory, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        return m(torch.tensor([tokens])).logits[0]


def logits_here(checkpoint, tokens):
    text = run("tests/parity/logits", checkpoint, *tokens)
    return torch.tensor([[float(x) for x in line.split()]
                         for line in text.splitlines()])


def make(directory, dtype=torch.float32, **config):
    c = GPT2Config(bos_token_id=0, eos_token_id=0, **config)
    m = GPT2LMHeadModel(c).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    m.to(dtype).save_pretrained(directory)
    return c


def close(a, b, what, limit=1e-4):
    err = float((a - b).abs().max())
    ok(a.shape == b.shape and err <= limit, f"{what} ({err:.1e})", a.shape)


def round_trip(work, name, **config):
    d = lambda x: os.path.join(work, f"{name}-{x}")
    c = make(d("hf"), **config)
    reshape(d("hf"), d("in"))
    reshape(d("hf"), d("in2"), "--target-tensor-model-parallel-size", 2,
            "--target-pipeline-model-parallel-size", 2)
    reshape(d("in"), d("out"), "--to", "hf")
    reshape(d("in2"), d("out2"), "--to", "hf")
    for out in "out", "out2":
        bad = same(state(d("hf")), state(d(out)))
        ok(not bad, f"{name}: {out}: tensors come back bit by bit", bad)
    tokens = [random.randrange(c.vocab_size) for _ in range(c.n_positions)]
    there = logits_there(d("hf"), tokens)
    close(logits_here(d("in2"), tokens), there, f"{name}: logits, converted")
    close(logits_there(d("out2"), tokens), there,
          f"{name}: logits, and back in transformers",
          1e-6 if "activation_function" in config else 0)  # other kernel


def shards(work, name, limit):
    """Against huggingface_hub's own split of the same tensors."""
    d = os.path.join(work, f"{name}-shards-{limit}")
    reshape(os.path.join(work, f"{name}-in"), d, "--to", "hf",
            "--max-shard-size", limit)
    m = GPT2LMHeadModel.from_pretrained(os.path.join(work, f"{name}-hf"))
    m = {k: v for k, v in m.state_dict().items() if k != "lm_head.weight"}
    want = split_torch_state_dict_into_shards(m, max_shard_size=limit)
    index = json.load(open(os.path.join(d, "model.safetensors.index.json")))
    ok(index["weight_map"] == want.tensor_to_filename and
       index["metadata"]["total_size"] == want.metadata["total_size"],
       f"{limit}: {len(want.filename_to_tensors)} shards as "
       "huggingface_hub makes them", index)
    bad = same(state(os.path.join(work, f"{name}-hf")), state(d))
    ok(not bad, f"{limit}: tensors equal", bad)
    GPT2LMHeadModel.from_pretrained(d)
    ok(True, f"{limit}: loads in transformers")


def old_files(work):
    """Without prefix, with attention buffers and a head, as on the hub."""
    d = os.path.join(work, "old")
    os.mkdir(d)
    src = os.path.join(work, "base-hf")
    tensors = {k.removeprefix("transformer."): v.clone()
               for k, v in state(src).items()}
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    for i in 0, 1:
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 4, 4,
                                                 dtype=torch.bool)
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        tensors[f"h.{i}.attn.causal_mask"] = torch.ones(1, 1, 4, 4)
    save_file(tensors, os.path.join(d, "model.safetensors"))
    config = json.load(open(os.path.join(src, "config.json")))
    json.dump(config, open(os.path.join(d, "config.json"), "w"))
    reshape(d, os.path.join(work, "old-in"))
    reshape(os.path.join(work, "old-in"), os.path.join(work, "old-out"),
            "--to", "hf")
    bad = same(state(src), state(os.path.join(work, "old-out")))
    ok(not bad, "old file: no prefix, buffers, a head", bad)


def dtypes(work):
    for name, t in ("fp16", torch.float16), ("bf16", torch.bfloat16):
        out = os.path.join(work, name)
        reshape(os.path.join(work, "base-in"), out, "--to", "hf",
                "--target-params-dtype", name)
        want = {k: v.to(t) for k, v in
                state(os.path.join(work, "base-hf")).items()}
        bad = same(want, state(out))
        ok(not bad, f"cast to {name} as torch does", bad)
        back = os.path.join(work, name + "-in")
        reshape(out, back)
        reshape(back, back + "-out", "--to", "hf")
        bad = same(want, state(back + "-out"))
        ok(not bad, f"{name} stays {name}", bad)


def trains_on(work, d):
    """Bytes as tokens: converts in, trains, converts out."""
    text = os.path.join(work, "text.jsonl")
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw"]
    with open(text, "w") as f:
        for _ in range(60):
            line = " ".join(random.choice(words) for _ in range(30))
            f.write(json.dumps({"text": line}) + "\n")
    run("gpt-preprocess", "--input", text, "--output-prefix",
        os.path.join(work, "text"), "--tokenizer-type", "ByteTokenizer",
        "--append-eod")
    c = make(d("hf"), vocab_size=257, n_positions=32, n_embd=32, n_layer=2,
             n_head=4)
    reshape(d("hf"), d("in"))
    run("gpt-train", "--load", d("in"), "--finetune", "--save", d("trained"),
        "--data-path", os.path.join(work, "text_text_document"),
        "--tokenizer-type", "ByteTokenizer", "--num-layers", c.n_layer,
        "--hidden-size", c.n_embd, "--num-attention-heads", c.n_head,
        "--seq-length", c.n_positions, "--max-position-embeddings",
        c.n_positions, "--micro-batch-size", 4, "--train-iters", 20, "--lr",
        "1e-2", "--eval-iters", 0, "--split", "100,0,0")
    reshape(d("trained"), d("trained22"),
            "--target-tensor-model-parallel-size", 2,
            "--target-pipeline-model-parallel-size", 2)
    reshape(d("trained22"), d("trained11"),
            "--target-tensor-model-parallel-size", 1,
            "--target-pipeline-model-parallel-size", 1)
    diff = subprocess.run(["diff", "-r", d("trained"), d("trained11")],
                          capture_output=True, text=True)
    differing = [x for x in diff.stdout.splitlines()
                 if "iter_" in x or x.startswith("Binary")]
    ok(not differing, "trained: 1x1 to 2x2 to 1x1, optimizer included, is "
       "byte-identical", diff.stdout)
    reshape(d("trained22"), d("out"), "--to", "hf")
    tokens = [random.randrange(257) for _ in range(32)]
    here = logits_here(d("trained"), tokens)
    close(logits_there(d("out"), tokens), here, "trained on, then out: logits")
    before = logits_there(d("hf"), tokens)
    ok(float((here - before).abs().max()) > 0.1, "the training did something")


def loads_everywhere(work):
    n = 0
    for f in glob.glob(os.path.join(work, "**", "*.safetensors"),
                       recursive=True):
        with safe_open(f, "pt") as st:
            for k in st.keys():
                st.get_tensor(k)
        n += 1
    ok(n > 20, f"the safetensors library loads all {n} files")


def main():
    random.seed(1)
    with tempfile.TemporaryDirectory() as work:
        round_trip(work, "base", vocab_size=131, n_positions=24, n_embd=32,
                   n_layer=2, n_head=4)
        round_trip(work, "wide", vocab_size=300, n_positions=16, n_embd=48,
                   n_layer=4, n_head=2, n_inner=80,
                   layer_norm_epsilon=1e-3)
        round_trip(work, "untied", vocab_size=64, n_positions=16, n_embd=16,
                   n_layer=2, n_head=2, tie_word_embeddings=False,
                   activation_function="gelu_pytorch_tanh")
        for limit in "5KB", "20KB", "17KB", "40KB":
            shards(work, "wide", limit)
        old_files(work)
        dtypes(work)
        trains_on(work, lambda x: os.path.join(work, f"train-{x}"))
        loads_everywhere(work)
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
