#!/usr/bin/env python3
"""Makes tests/golden/hf: a tiny GPT-2 saved by transformers, and its logits.

Usage: python3 tests/golden/make_hf.py      (needs torch and transformers)
"""
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 66, 0, 35, 8]

torch.manual_seed(20)
config = GPT2Config(vocab_size=67, n_positions=16, n_embd=16, n_layer=2,
                    n_head=2, bos_token_id=66, eos_token_id=66)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for p in model.parameters():  # biases and norms are not 0 and 1
        p.add_(torch.randn_like(p) * 0.1)
out = os.path.join(HERE, "hf")
model.save_pretrained(out)
os.chmod(os.path.join(out, "model.safetensors"), 0o644)
with torch.no_grad():
    logits = model.double()(torch.tensor([TOKENS])).logits[0]
with open(os.path.join(out, "logits.txt"), "w") as f:
    f.write(" ".join(map(str, TOKENS)) + "\n")
    for row in logits.tolist():
        f.write(" ".join("%.9g" % x for x in row) + "\n")
