#!/usr/bin/env python3
"""Makes tests/golden/remote: a tiny random model of each type that transformers
has no class of, and of two whose files have another order than its classes, and
text.txt, the greedy text that a class of transformers which computes the same
gives after PROMPT, as ids.

    tests/golden/make_remote.py

Needs torch, transformers and safetensors; tests/parity/remote_parity.py says
which class, and what names tensors have.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
sys.argv = [sys.argv[0], "build"]
sys.path.insert(0, os.path.join(here, "..", "parity"))
import hf_families_parity as hf  # noqa: E402
import remote_parity as remote  # noqa: E402

PROMPT, TOKENS = [5, 17, 2, 40, 9], 24
WORDS = 61
NAMES = ("internlm2", "chatglm", "qwen", "minicpm", "deepseek", "bailing_moe")
SMALL = {"hidden_size": 24, "vocab_size": WORDS}


def shrunk(x):
    """Widths of half the size, and fewer words."""
    sizes = {48: 24, 8: 4, 52: 20, 104: 40, remote.VOCAB: WORDS, 24: 8}
    return {k: shrunk(v) if isinstance(v, dict) else
            sizes.get(v, v) if isinstance(v, int) and k not in (
                "num_hidden_layers", "eos_token_id") else v
            for k, v in x.items()}


def texts(m):
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(TOKENS):
            ids.append(int(m(torch.tensor([ids])).logits[0, -1].argmax()))
    return " ".join(map(str, ids[len(PROMPT):])) + "\n"


def make(work, name, cls, changes, tensors, config):
    out = os.path.join(here, "remote", name)
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(7)
    d = os.path.join(work, name)
    there = hf.make(d, cls, shrunk({**hf.SMALL, **changes}))
    m = hf.model(there, d)
    os.makedirs(out)
    state = tensors({k: v.contiguous() for k, v in hf.state(d).items()})
    save_file({k: v.contiguous() for k, v in state.items()},
              out + "/model.safetensors", metadata={"format": "pt"})
    os.chmod(out + "/model.safetensors", 0o644)
    if config:
        config = dict(shrunk(config), model_type=name)
    else:
        with open(d + "/config.json", encoding="utf-8") as f:
            config = json.load(f)
    with open(out + "/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    with open(out + "/text.txt", "w", encoding="ascii") as f:
        f.write(texts(m))


def main():
    remote.by_groups.__defaults__ = (2, 4)
    heads = dict(hf.GROUPS, hidden_size=48, head_dim=8)
    with tempfile.TemporaryDirectory() as work:
        for name in NAMES:
            make(work, name, *remote.CASES[name])
        make(work, "aria_text", "AriaText", remote.ARIA, remote.unit, None)
        make(work, "sarvam_moe", "SarvamMoE", dict(
            heads, n_routed_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=24), remote.unit, None)


if __name__ == "__main__":
    main()
