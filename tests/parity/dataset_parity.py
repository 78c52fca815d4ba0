"""Compares the output of gpt-dataset with that of Megatron-LM for the same
sets: merging with IndexedDatasetBuilder.add_index, slices and repaired sets
read by IndexedDataset, and the caches that GPTDataset writes.

    python3 tests/parity/dataset_parity.py build/gpt-dataset

Prints TAP.
"""

import logging
import os
import random
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder)
    from megatron.core.datasets.gpt_dataset import (
        GPTDataset, GPTDatasetConfig)
    from megatron.core.datasets.indexed_dataset import (
        IndexedDataset, IndexedDatasetBuilder)
except ImportError as error:
    print(f"1..0 # SKIP no megatron-core: {error}")
    sys.exit(0)

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
program = os.path.abspath(sys.argv[1])
count = failed = 0


def ok(good, what):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {what}")


def run(*words):
    return subprocess.run([program, *words, "--quiet"], capture_output=True,
                          text=True, check=False)


def write(prefix, documents, dtype):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
    for sequences in documents:
        flat = [t for s in sequences for t in s]
        builder.add_document(torch.IntTensor(flat), [len(s) for s in sequences])
    builder.finalize(prefix + ".idx")


def merge(prefix, parts, dtype):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
    for part in parts:
        builder.add_index(part)
    builder.finalize(prefix + ".idx")


def random_documents(rng):
    return [[[rng.randrange(1000) for _ in range(rng.choice([0, 1, 7, 300]))]
             for _ in range(rng.choice([0, 1, 1, 1, 4]))]
            for _ in range(rng.choice([0, 1, 5, 60]))]


def same(a, b):
    return all(open(a + s, "rb").read() == open(b + s, "rb").read()
               for s in (".bin", ".idx"))


def read(prefix):
    data = IndexedDataset(prefix)
    ends = data.document_indices
    return [[data[i].tolist() for i in range(ends[d], ends[d + 1])]
            for d in range(len(ends) - 1)]


rng = random.Random(11)
for case in range(6):
    dtype = [numpy.uint16, numpy.int32][case % 2]
    documents = [random_documents(rng) for _ in range(rng.choice([1, 2, 5]))]
    documents[-1] += [[[1, 2, 3]], [], [[4], [5, 6]]]
    parts = []
    for i, some in enumerate(documents):
        parts.append(f"part{case}_{i}")
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for part, some in zip(parts, documents):
            write(part, some, dtype)
        merge("megatron", parts, dtype)
        got = run("merge", *parts, "--output-prefix", "ours")
        ok(got.returncode == 0 and same("ours", "megatron"),
           f"case {case}: merge of {len(parts)} sets is Megatron's")
        flat = [d for some in documents for d in some]
        a = rng.randrange(len(flat) - 2)
        b = rng.randrange(a + 2, len(flat) + 1)
        got = run("slice", "megatron", "--documents", f"{a}:{b}",
                  "--output-prefix", "slice")
        write("want", flat[a:b], dtype)
        ok(got.returncode == 0 and same("slice", "want"),
           f"case {case}: documents {a}:{b} as if Megatron had written them")
        # Pointers as a sum in 32 bits would leave them.
        image = bytearray(open("megatron.idx", "rb").read())
        sequences = int.from_bytes(image[18:26], "little")
        at = 34 + 4 * sequences
        for i in range(sequences):
            image[at + 8 * i + 4:at + 8 * i + 8] = b"\xff" * 4
        open("megatron.idx", "wb").write(image)
        found = run("verify", "megatron", "--json")
        got = run("repair", "megatron", "--output-prefix", "repaired")
        ok(found.returncode == 3 and
           f'"pointer-32-bit":{sequences}}}' in found.stdout and
           got.returncode == 0 and read("repaired") == flat,
           f"case {case}: Megatron reads what was repaired")
        os.chdir("/")


class Tokenizer:
    """What GPTDataset asks of one; its identity has all that JSON has."""

    vocab_size = 1000
    eod = 999
    eos = 999
    special_tokens_dict = {}

    def __init__(self, extra):
        self.unique_identifiers = {
            "class": "test.Tokenizer", "tokenizer_path": ["a b/v.json", "m"],
            "legacy": "False", **extra}


def caches(directory):
    return {n: open(os.path.join(directory, n), "rb").read()
            for n in os.listdir(directory)}


extras = [{}, {"u": "\u00e9 \U0001f600 \"\\\n\t\x01\x7f", "none": None,
               "list": [], "dict": {}, "nested": {"a": [1, 2.5, True, False]},
               "small": 1e-07, "large": 123456789012}]
splits = ["900,60,40", "100,0,0", "1,1,1", "0.7,0.2,0.1", "0,9,1", "90/5/5"]
for case, split in enumerate(splits):
    sizes = [[700, 20, 5], [3, 3, 3], [None, None, None]][case % 3]
    length, seed = rng.choice([7, 64, 100]), rng.randrange(10000)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        write("d", [[[rng.randrange(1000) for _ in range(rng.choice([1, 300]))]]
                    for _ in range(400)], numpy.int32)
        BlendedMegatronDatasetBuilder(
            GPTDataset, sizes, lambda: True,
            GPTDatasetConfig(
                random_seed=seed, sequence_length=length, split=split,
                blend=(["d"], None), tokenizer=Tokenizer(extras[case % 2]),
                path_to_cache="theirs", reset_position_ids=False,
                reset_attention_mask=False, eod_mask_loss=False)).build()
        theirs = caches("theirs")
        like = next(n for n in theirs if n.endswith("description.txt"))
        got = run("index", "d", "--tokenizer-like", os.path.join("theirs", like),
                  "--num-samples", *(str(n or 0) for n in sizes),
                  "--seq-length", str(length), "--seed", str(seed),
                  "--split", split, "--data-cache-path", "ours")
        ours = caches("ours") if got.returncode == 0 else {}
        ok(ours == theirs,
           f"split {split}, {sizes} samples: {len(theirs)} files are Megatron's")
        if ours != theirs:
            print(f"# {got.stderr.strip()}")
            for n in sorted(set(ours) ^ set(theirs)):
                if n.endswith("description.txt"):
                    print(f"# {n}: {ours.get(n) or theirs.get(n)}")
        os.chdir("/")
print(f"1..{count}")
sys.exit(failed > 0)
