#!/usr/bin/env python3
"""Files of torch.save() with what their tensors are, as safetensors.

Usage: make_torch.py [DIR [COUNT [SEED]]]   (needs torch, numpy, safetensors)

Without DIR it makes tests/golden/torch, tests/golden/hf_bin and
tests/fuzz/corpus/torch. With COUNT
it makes that many files at random: types, containers, protocols, views, shared
storages, nesting.
"""
import argparse
import collections
import json
import os
import pickle
import random
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16,
         torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
         torch.bool]


def tensors_of(value, path, out):
    """What the reader calls each tensor: its keys, joined by dots."""
    if isinstance(value, torch.Tensor):
        out[path] = value.detach().clone().contiguous()
        return
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    else:
        return
    for key, item in pairs:
        tensors_of(item, f"{path}.{key}" if path else str(key), out)


def write(path, value, **options):
    torch.save(value, path + ".pt", **options)
    found = {}
    tensors_of(value, "", found)
    save_file(found, path + ".safetensors")
    os.chmod(path + ".safetensors", 0o644)


def views(base):
    """Views of one storage, of every kind."""
    return {
        "whole": base, "turned": base.t(), "rows": base[1:3],
        "columns": base[:, 1:4], "steps": base[::2, ::3],
        "row": base[2], "column": base[:, 2], "element": base[1, 2],
        "repeated": base[:1].expand(3, base.shape[1]),
        "none": base[:0], "deep": base.reshape(2, -1, 1, 3).permute(3, 1, 0, 2),
        "flipped": base.t().reshape(3, -1),
    }


def golden(directory):
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    state = np.random.RandomState(1).get_state()
    value = collections.OrderedDict()
    value["views"] = views(torch.randn(4, 6))
    value["types"] = [torch.arange(3).to(t) for t in TYPES]
    value["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    value["scalar"] = torch.tensor(2.5, dtype=torch.float64)
    value["args"] = argparse.Namespace(
        num_layers=2, params_dtype=torch.bfloat16, norm=1e-5, name="caf\u00e9",
        sizes=[1, 2], none=None, yes=True, big=1 << 70, less=-5,
        more=1 << 40, where=torch.device("cpu"))
    value["rng"] = {"np": (state[0], state[1][:4], 3, 0, 0.0),
                    "python": random.getstate()[1][:8],
                    "torch": torch.arange(16, dtype=torch.uint8)}
    value["number"] = np.float64(2.25)
    value["counts"] = {0: {"step": 3}, (torch.float32, 1): "key"}
    os.makedirs(directory, exist_ok=True)
    write(directory + "/zip", value)
    write(directory + "/zip5", value, pickle_protocol=5)
    write(directory + "/legacy", value, _use_new_zipfile_serialization=False)


def at_random(directory, count, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    os.makedirs(directory, exist_ok=True)

    def tensor():
        dtype = rng.choice(TYPES)
        shape = [rng.randint(0, 5) for _ in range(rng.randint(0, 6))]
        t = torch.randint(-3, 100, shape).to(dtype)
        if t.is_floating_point() and rng.random() < .5:
            t = torch.randn(shape).to(dtype)
        if shape and rng.random() < .5:
            order = list(range(len(shape)))
            rng.shuffle(order)
            t = t.permute(order)
        if shape and rng.random() < .4:
            d = rng.randrange(len(shape))
            t = t.narrow(d, 0, t.shape[d] // 2) if rng.random() < .5 else \
                t[(slice(None),) * d + (slice(None, None, 2),)]
        if rng.random() < .2:
            t = t.unsqueeze(0).expand(rng.randint(1, 3), *t.shape)
        if t.dim() > 8:
            t = t.flatten()
        if rng.random() < .2 and t.is_floating_point():
            t = torch.nn.Parameter(t)
        return t

    def value(depth, pool):
        kind = rng.randrange(8)
        if depth > 3 or kind < 3:
            if pool and rng.random() < .4:
                t = rng.choice(pool)
                return t.reshape(-1) if rng.random() < .3 else t
            pool.append(tensor())
            return pool[-1]
        if kind == 3:
            return rng.choice([None, True, 1, -7, 2.5, "text", b"bytes",
                               1 << 80, np.float32(1.5), torch.float16,
                               torch.Size([1, 2]), {1, 2}])
        n = rng.randint(0, 5)
        if kind == 4:
            return [value(depth + 1, pool) for _ in range(n)]
        if kind == 5:
            return tuple(value(depth + 1, pool) for _ in range(n))
        pairs = {f"k{rng.randrange(1000)}": value(depth + 1, pool)
                 for _ in range(n)}
        if kind == 6:
            return argparse.Namespace(**pairs)
        return collections.OrderedDict(pairs) if rng.random() < .5 else pairs

    for i in range(count):
        options = {"pickle_protocol": rng.choice([2, 2, 3, 4, 5])}
        if rng.random() < .5:
            options["_use_new_zipfile_serialization"] = False
        write(f"{directory}/{i:04d}",
              {"first": value(0, []), "second": value(0, [])}, **options)


def hugging_face(directory):
    """tests/golden/hf as transformers before safetensors saved it: two shards,
    one of each container, the matrices of one stored the other way around."""
    weights = load_file(os.path.join(HERE, "hf", "model.safetensors"))
    names = sorted(weights)
    weights["lm_head.weight"] = weights["transformer.wte.weight"]
    index = {}
    os.makedirs(directory, exist_ok=True)
    for shard, part in enumerate((names[:14], names[14:] + ["lm_head.weight"])):
        file = f"pytorch_model-{shard + 1:05d}-of-00002.bin"
        state = collections.OrderedDict(
            (n, weights[n].t().contiguous().t() if shard and
             weights[n].dim() == 2 else weights[n]) for n in part)
        if shard == 0:  # as files of the first versions have it
            state["transformer.h.0.attn.bias"] = torch.ones(
                1, 1, 4, 4, dtype=torch.bool).tril()
        index.update((n, file) for n in state)
        torch.save(state, os.path.join(directory, file),
                   _use_new_zipfile_serialization=shard == 0)
    with open(directory + "/pytorch_model.bin.index.json", "w") as f:
        json.dump({"metadata": {"total_size": 31552}, "weight_map": index}, f,
                  indent=2, sort_keys=True)
        f.write("\n")
    with open(os.path.join(HERE, "hf", "config.json")) as f:
        text = f.read()
    with open(directory + "/config.json", "w") as f:
        f.write(text)


def corpus(directory):
    os.makedirs(directory, exist_ok=True)
    t = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    value = {"a": t, "b": t.t(), "args": argparse.Namespace(n=1),
             "p": torch.nn.Parameter(t[:1]), "l": [1, 2.5, None, "s"],
             "np": np.arange(3, dtype=np.int64)}
    torch.save(value, directory + "/zip")
    torch.save(value, directory + "/legacy",
               _use_new_zipfile_serialization=False)
    for protocol in range(2, 6):
        with open(f"{directory}/pickle{protocol}", "wb") as f:
            pickle.dump({"a": [1, -1, 1 << 40, 1 << 90, 2.5], "b": {1: (2,)},
                         "c": b"bytes", "d": {3}, "e": frozenset([4]),
                         "f": argparse.Namespace(x="y"), "g": bytearray(2)},
                        f, protocol)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        at_random(sys.argv[1], int(sys.argv[2]),
                  int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    elif len(sys.argv) > 1:
        golden(sys.argv[1])
    else:
        golden(os.path.join(HERE, "torch"))
        hugging_face(os.path.join(HERE, "hf_bin"))
        corpus(os.path.join(HERE, "..", "fuzz", "corpus", "torch"))
