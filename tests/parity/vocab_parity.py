#!/usr/bin/env python3
"""Compares gpt-vocab with Hugging Face's BpeTrainer: the merges must be equal,
and both must be able to load the vocabulary.

usage: vocab_parity.py [BUILD [FILE...]]

Needs the package `tokenizers`; prints TAP, all skipped without it. FILEs are
texts in UTF-8; by default the English chapters of Debian's debian-reference
and a generated text of unusual characters.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from tokenizers.implementations import ByteLevelBPETokenizer
except ImportError:
    print("1..0 # SKIP the Python package tokenizers is not installed")
    sys.exit(0)

SPECIAL = "<|endoftext|>"
build = sys.argv[1] if len(sys.argv) > 1 else "build"
program = os.path.join(build, "gpt-vocab")
n_tests = n_failed = 0


def ok(passed, what):
    global n_tests, n_failed
    n_tests += 1
    n_failed += not passed
    print(f"{'ok' if passed else 'not ok'} {n_tests} - {what}", flush=True)


def awkward_text(seed):
    """Runs of one letter, white space of all kinds, several scripts."""
    rng = random.Random(seed)
    letters = "aaaaabbé中文ß١٢ \u00a0\u3000\n\n\t '\"\\<|>1234'll's\u0301😀"
    return "".join(rng.choice(letters) * rng.choice((1, 1, 1, 2, 3, 9))
                   for _ in range(20000))


def theirs(documents, size, min_frequency):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_frequency, show_progress=False,
        special_tokens=[SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    merges = json.loads(t.to_str())["model"]["merges"]
    return [m if isinstance(m, str) else " ".join(m) for m in merges]


def ours(prefix, inputs, size, min_frequency, *options):
    subprocess.run([program, "--quiet", "--force", "--input", *inputs,
                    "--output-prefix", prefix, "--vocab-size", str(size),
                    "--min-frequency", str(min_frequency), *options],
                   check=True, stderr=subprocess.DEVNULL)
    with open(prefix + "-merges.txt", encoding="utf-8", newline="\n") as f:
        lines = f.read().split("\n")
    assert lines[0] == "#version: 0.2" and lines[-1] == ""
    return lines[1:-1]


def check_vocabulary(prefix, merges, text, what):
    with open(prefix + "-vocab.json", encoding="utf-8") as f:
        vocab = json.load(f)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    want = alphabet + ["".join(m.split(" ")) for m in merges] + [SPECIAL]
    ok(vocab == {t: i for i, t in enumerate(want)},
       f"{what}: ids are bytes, merges, {SPECIAL}")
    t = ByteLevelBPETokenizer(prefix + "-vocab.json", prefix + "-merges.txt")
    t.add_special_tokens([SPECIAL])
    e = t.encode(text)
    ok(t.decode(e.ids) == text and t.token_to_id(SPECIAL) == len(want) - 1,
       f"{what}: loads there and encodes {len(text)} characters")


def compare(name, path, scratch):
    with open(path, encoding="utf-8", newline="\n") as f:
        text = f.read()
    lines = text.split("\n")
    jsonl = os.path.join(scratch, "lines.jsonl")
    with open(jsonl, "w", encoding="utf-8") as f:
        for i, line in enumerate(lines):
            f.write(json.dumps({"id": i, "text": line},
                               ensure_ascii=i % 2 == 0) + "\n")
    prefix = os.path.join(scratch, "v")
    for size, least in ((257, 2), (300, 2), (2000, 1), (5000, 2), (50257, 2),
                        (5000, 10)):
        what = f"{name}, {size} tokens, seen {least} times"
        merges = theirs([text], size, least)
        got = ours(prefix, [path], size, least, "--input-format", "text")
        ok(got == merges, f"{what}: {len(merges)} merges equal")
        check_vocabulary(prefix, merges, text[:20000], what)
    merges = theirs(lines, 3000, 2)
    for threads in ("1", "3"):
        got = ours(prefix, [jsonl], 3000, 2, "--threads", threads)
        ok(got == merges, f"{name} as JSON lines, {threads} threads: equal")


with tempfile.TemporaryDirectory() as scratch:
    paths = sys.argv[2:]
    if not paths:
        whole = os.path.join(scratch, "awkward.txt")
        with open(whole, "w", encoding="utf-8", newline="\n") as f:
            f.write(awkward_text(1))
        paths = [whole]
        chapters = sorted(glob.glob("/usr/share/debian-reference/*.en.html"))
        if chapters:
            whole = os.path.join(scratch, "debian-reference.html")
            with open(whole, "wb") as f:
                for chapter in chapters:
                    with open(chapter, "rb") as g:
                        f.write(g.read())
            paths.append(whole)
    for path in paths:
        compare(os.path.basename(path), path, scratch)
print(f"1..{n_tests}")
sys.exit(n_failed > 0)
