"""Compares data sets, sample indices, blends and whole corpora with
Megatron-LM itself: IndexedDatasetBuilder, GPTDataset, BlendedDataset and
BlendedMegatronDatasetBuilder of the Python package megatron-core.

    python3 tests/parity/samples_parity.py build/tests/parity/samples_dump
    python3 tests/parity/samples_parity.py --golden > tests/golden/samples.txt

The first form prints TAP. The second writes the small cases that the unit tests
replay where there is no Python.
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
    from megatron.core.datasets import helpers
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder)
    from megatron.core.datasets.gpt_dataset import (
        GPTDataset, GPTDatasetConfig, _get_ltor_masks_and_position_ids)
    from megatron.core.datasets.indexed_dataset import (
        IndexedDataset, IndexedDatasetBuilder)
    from megatron.core.datasets.utils import (
        Split, get_blend_from_list, normalize)
except ImportError as error:
    print(f"1..0 # SKIP no megatron-core: {error}")
    sys.exit(0)

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


class Tokenizer:
    """What GPTDataset asks of one."""

    vocab_size = 1000
    eod = 999
    eos = 999
    unique_identifiers = {"class": "test"}
    special_tokens_dict = {}


def write_megatron(prefix, documents, dtype):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
    for sequences in documents:
        flat = [t for s in sequences for t in s]
        builder.add_document(torch.IntTensor(flat), [len(s) for s in sequences])
    builder.finalize(prefix + ".idx")


def config(seq_length, seed, **more):
    return GPTDatasetConfig(
        random_seed=seed, sequence_length=seq_length, tokenizer=Tokenizer(),
        reset_position_ids=False, reset_attention_mask=False,
        eod_mask_loss=False, create_attention_mask=False,
        path_to_cache=None, **more)


def reference_index(prefix, begin, end, seq_length, wanted, seed):
    dataset = GPTDataset(
        IndexedDataset(prefix), prefix,
        numpy.arange(begin, end, dtype=numpy.int32), wanted or None,
        Split.train, config(seq_length, seed, blend=([prefix], None),
                            split="1,0,0"))
    return {"document": dataset.document_index.tolist(),
            "visit": dataset.sample_index[:, 0].tolist(),
            "offset": dataset.sample_index[:, 1].tolist(),
            "shuffle": dataset.shuffle_index.tolist()}


def reference_blend(weights, size):
    sets = numpy.zeros(size, dtype=numpy.int16)
    samples = numpy.zeros(size, dtype=numpy.int64)
    helpers.build_blending_indices(sets, samples, weights, len(weights), size,
                                   False)
    return {"set": sets.tolist(), "sample": samples.tolist()}


def reference_corpus(seq_length, seed, sizes, **paths):
    """Tokens of every sample of every split."""
    built = BlendedMegatronDatasetBuilder(
        GPTDataset, sizes, lambda: True,
        config(seq_length, seed, **paths)).build()
    splits = []
    for dataset in built:
        rows = []
        for i in range(len(dataset) if dataset is not None else 0):
            item = dataset[i]
            rows.append(item["tokens"].tolist() + item["labels"].tolist()[-1:])
        splits.append(rows)
    return splits


def reference_masks(eod, loss, positions, attention, tokens):
    mask, weight, position = _get_ltor_masks_and_position_ids(
        torch.tensor(tokens[:-1]), eod, positions, attention, loss, True)
    visible = ~mask[0]
    # From t, all positions between the first visible one and t are visible.
    start = visible.int().argmax(dim=1)
    for t, first in enumerate(start.tolist()):
        assert visible[t].tolist() == [first <= k <= t
                                       for k in range(len(tokens) - 1)]
    return {"position": position.tolist(), "weight": weight.int().tolist(),
            "start": start.tolist()}


# ---- ours ----

def dump(program, *args, stdin=None):
    done = subprocess.run([program, *map(str, args)], input=stdin, text=True,
                          capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


def arrays(lines):
    return {line[0]: [int(v) for v in line[1:]] for line in lines}


def our_corpus(program, mode, *args):
    splits = []
    for line in dump(program, mode, *args):
        if line[0] == "split":
            splits.append([])
        else:
            splits[-1].append([int(v) for v in line[1:]])
    return splits


# ---- cases ----

def random_documents(rng, n, longest, empties=0.1, sentences=1):
    documents = []
    for _ in range(n):
        sequences = []
        for _ in range(rng.randint(1, sentences)):
            if rng.random() >= empties:
                length = rng.randint(1, longest)
                sequences.append([rng.randrange(999) for _ in range(length)])
        documents.append(sequences)
    return documents


def index_cases(rng):
    """(lengths, begin, end, seq_length, wanted, seed)"""
    golden = [5, 12, 3, 0, 9, 1, 20]
    yield golden, 0, 7, 8, 12, 1234
    yield golden, 0, 7, 8, 8, 1234
    yield golden, 0, 7, 8, 0, 1234
    yield golden, 1, 5, 8, 3, 42
    yield [9], 0, 1, 8, 1, 7
    yield [9], 0, 1, 8, 5, 7
    yield [1] * 40, 0, 40, 8, 20, 3
    for k in range(33):
        n = rng.choice([1, 3, 10, 100, 700])
        lengths = [0 if rng.random() < 0.1 else
                   rng.randint(1, rng.choice([3, 30, 300])) for _ in range(n)]
        begin = rng.randint(0, n // 3)
        end = rng.randint(n - n // 3, n)
        seq_length = rng.choice([2, 7, 16, 64])
        tokens = sum(lengths[begin:end])
        if tokens < seq_length + 1:
            continue
        epoch = (tokens - 1) // seq_length
        wanted = [0, 1, epoch, epoch + 1, 2 * epoch, 3 * epoch + epoch // 2,
                  5 * epoch + 4 * epoch // 5, 2 * epoch + 1][k % 8]
        seed = rng.choice([0, 1, 1234, 42, 2**32 - 1, rng.randrange(2**32)])
        yield lengths, begin, end, seq_length, wanted, seed


def blend_cases(rng):
    yield [0.5, 0.3, 0.2], 10
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 129, 150, 300]:
        for kind in range(2):
            weights = [rng.randint(1, 9) if kind else 10 ** rng.uniform(-4, 4)
                       for _ in range(n)]
            yield weights, rng.choice([1, 50, 999])


def lengths_to_documents(lengths, rng):
    return [[[rng.randrange(999) for _ in range(n)]] for n in lengths]


def write_golden():
    print("# Made by samples_parity.py --golden from megatron-core; see there.")
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as where:
        small = [c for c in index_cases(rng) if len(c[0]) <= 40]
        for k, (lengths, begin, end, seq_length, wanted, seed) in enumerate(
                small):
            prefix = os.path.join(where, f"golden{k}")
            write_megatron(prefix, lengths_to_documents(lengths, rng),
                           numpy.uint16)
            want = reference_index(prefix, begin, end, seq_length, wanted,
                                   seed)
            if len(want["document"]) > 150 or len(want["visit"]) > 150:
                continue
            print(f"index {begin} {end} {seq_length} {wanted} {seed}")
            for name, values in [("lengths", lengths), *want.items()]:
                print(name, len(values), *values)
    for weights, size in blend_cases(rng):
        if size > 50 or len(weights) > 150:
            continue
        once = normalize(weights)
        used = normalize(once)
        print(f"blend {size}")
        print("weights", len(weights), *[float(w).hex() for w in weights])
        print("once", len(weights), *[w.hex() for w in once])
        print("used", len(weights), *[w.hex() for w in used])
        for name, values in reference_blend(used, size).items():
            print(name, len(values), *values)


# ---- TAP ----

tests = failures = 0


def check(passed, what):
    global tests, failures
    tests += 1
    failures += not passed
    print(f"{'' if passed else 'not '}ok {tests} - {what}", flush=True)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def check_bytes(program, where, rng):
    for dtype, name in [(numpy.uint16, "U16"), (numpy.int32, "I32")]:
        for k in range(4):
            documents = random_documents(rng, [0, 1, 40, 300][k], 50,
                                         empties=0.3, sentences=1 + k)
            ours = os.path.join(where, f"ours{name}{k}")
            theirs = os.path.join(where, f"theirs{name}{k}")
            write_megatron(theirs, documents, dtype)
            lines = "".join(
                (" | ".join(" ".join(map(str, s)) for s in d) or "-") + "\n"
                for d in documents)
            dump(program, "write", ours, name, stdin=lines)
            same = all(read(ours + e) == read(theirs + e)
                       for e in (".bin", ".idx"))
            check(same, f".bin and .idx of {len(documents)} documents {name}")


def check_indices(program, where, rng):
    for k, case in enumerate(index_cases(rng)):
        lengths, *rest = case
        prefix = os.path.join(where, f"index{k}")
        write_megatron(prefix, lengths_to_documents(lengths, rng),
                       numpy.uint16)
        want = reference_index(prefix, *rest)
        got = arrays(dump(program, "index", prefix, *rest))
        begin, end, seq_length, wanted, seed = rest
        check(got == want, f"indices: {end - begin} sequences, length "
              f"{seq_length}, {wanted} wanted, seed {seed}")


def check_blends(program, rng):
    for weights, size in blend_cases(rng):
        used = normalize(normalize(weights))
        got = arrays(dump(program, "blend", size, *map(repr, used)))
        check(got == reference_blend(used, size),
              f"blend: {len(weights)} weights, {size} samples")


def check_masks(program, rng):
    for k in range(16):
        flags = [k & 1, k >> 1 & 1, k >> 2 & 1]
        rows = [[rng.choice([7, 1, 2, 3][k // 8:]) for _ in range(n)]
                for n in (2, 3, 33, 65)]
        got = [arrays(dump(program, "masks", 7, *flags, *r)) for r in rows]
        want = [reference_masks(7, *flags, r) for r in rows]
        check(got == want, "masks: end of document in loss, positions, "
              f"attention: {flags}")


def check_corpora(program, where, rng):
    prefixes = []
    for k in range(12):
        prefixes.append(os.path.join(where, f"set{k}"))
        write_megatron(prefixes[k], random_documents(rng, 60 + 20 * k, 40),
                       numpy.int32 if k % 2 else numpy.uint16)
    for k in range(12):
        n = k + 1
        seed = rng.randrange(10000)
        sizes = [rng.randint(1, 400), rng.randint(1, 40), rng.randint(1, 20)]
        split = ["900,60,40", "8,1,1", "0.7,0.2,0.1", "100,0,0"][k % 4]
        args = []
        for prefix in prefixes[:n]:
            args += [rng.choice(["1", "0.3", "2.5", "1e-1"]), prefix]
        want = reference_corpus(8, seed, sizes, split=split,
                                blend=get_blend_from_list(args))
        got = our_corpus(program, "corpus", 8, seed, *sizes, split, *args)
        check(got == want, f"corpus: {n} weighted sets, split {split}")
    for n in (1, 2, 3):
        args = prefixes[:n]
        want = reference_corpus(8, 1234, [20, 3, 2], split="8,1,1",
                                blend=get_blend_from_list(args))
        got = our_corpus(program, "corpus", 8, 1234, 20, 3, 2, "8,1,1", *args)
        check(got == want, f"corpus: {n} sets without weights")
    blends = [["1", prefixes[0], "3", prefixes[1]], prefixes[2:3],
              prefixes[3:5]]
    want = reference_corpus(
        16, 99, [150, 400, 9],
        blend_per_split=[get_blend_from_list(b) for b in blends])
    got = our_corpus(program, "splits", 16, 99, 150, 400, 9, *blends[0], "/",
                     *blends[1], "/", *blends[2])
    check(got == want, "corpus: data sets of its own for each split")


def main():
    if sys.argv[1:] == ["--golden"]:
        write_golden()
        return
    program = sys.argv[1]
    rng = random.Random(20)
    with tempfile.TemporaryDirectory() as where:
        check_bytes(program, where, rng)
        check_indices(program, where, rng)
        check_blends(program, rng)
        check_masks(program, rng)
        check_corpora(program, where, rng)
    print(f"1..{tests}")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
