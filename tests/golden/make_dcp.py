#!/usr/bin/env python3
"""A checkpoint of torch.distributed.checkpoint as an input of tests/fuzz/dcp.c.

Usage: make_dcp.py   (needs torch)
"""
import os
import struct
import tempfile

import torch
import torch.distributed.checkpoint as dcp

HERE = os.path.dirname(os.path.abspath(__file__))
corpus = os.path.join(HERE, "..", "fuzz", "corpus", "dcp")
os.makedirs(corpus, exist_ok=True)
with tempfile.TemporaryDirectory() as top:
    dcp.save({"w": torch.arange(12.).view(3, 4).t(), "n": 5,
              "b": torch.ones(2, dtype=torch.bfloat16)},
             checkpoint_id=top, no_dist=True)
    with open(top + "/.metadata", "rb") as f:
        metadata = f.read()
    with open(top + "/__0_0.distcp", "rb") as f:
        parts = f.read()
with open(corpus + "/three", "wb") as f:
    f.write(struct.pack("<I", len(metadata)) + metadata + parts)
