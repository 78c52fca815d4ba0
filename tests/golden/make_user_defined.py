#!/usr/bin/env python3
"""Makes tests/golden/families/user_defined*.model and user_defined.json: small
unigram models with user-defined pieces that overlap each other and normal ones,
and the ids that sentencepiece gives long documents.

    tests/golden/make_user_defined.py

Needs sentencepiece 0.2.1 or later: earlier versions scored these pieces in
another way. A document is made of fragments by a generator of numbers that the
test has as well, so that the file holds the digest of its ids and not the ids:
the SHA-256 of each id in decimal with a line end.
"""
import hashlib
import io
import json
import os
import random

import sentencepiece

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
FRAGMENTS = [
    "a", "b", "c", "ab", "bc", "abc", "cab", "abca", "the", "he", "her",
    "there", " ", " ", " ", "  ", "x", "xx", "xxx", "xxxxxxxx", "\u4e2d",
    "\u4e2d\u6587", "\u4e2d\u6587\u4e2d", "\u00e9", "<m>", "<", "m>", "1", "\t",
    "\U0001f600", "hers", "aabbcc", "q", "abababab",
]
MODELS = [
    {"user_defined_symbols": ["ab", "abc", "bc", "cab", "bca"],
     "vocab_size": 70},
    {"user_defined_symbols": ["the", "he", "her", "hers", "<m>", "m>", "x",
                              "xx", "xxx"],
     "vocab_size": 80, "byte_fallback": False},
    {"user_defined_symbols": ["\u4e2d", "\u4e2d\u6587", "\u6587\u4e2d",
                              "abab", "bab", " t", "a b"],
     "vocab_size": 340, "byte_fallback": True,
     "remove_extra_whitespaces": False},
]
LENGTHS = [1, 3, 10, 40, 200, 1000, 20000]
SEEDS = 12


def numbers(seed):
    """The generator, of C's standard: 15 bits of each state."""
    state = seed
    while True:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        yield state >> 16


def document(seed, length):
    source = numbers(seed)
    return "".join(FRAGMENTS[next(source) % len(FRAGMENTS)]
                   for _ in range(length))


def train(name, options):
    rng = random.Random(7)
    lines = ["".join(rng.choice(FRAGMENTS) for _ in range(12))
             for _ in range(400)]
    model = io.BytesIO()  # a file's name would be part of the model
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model,
        model_type="unigram", hard_vocab_limit=False, minloglevel=2,
        normalization_rule_name="identity", num_threads=1, **options)
    model = model.getvalue()
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(model)
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def case(processor, name, seed, length):
    ids = processor.encode(document(seed, length))
    text = "".join(f"{i}\n" for i in ids)
    return {"file": name, "seed": seed, "length": length, "tokens": len(ids),
            "sha256": hashlib.sha256(text.encode()).hexdigest()}


def main():
    cases = []
    for number, options in enumerate(MODELS):
        name = f"user_defined{number + 1}.model"
        processor = train(name, options)
        for length in LENGTHS:
            seeds = SEEDS if length < 20000 else 2
            cases += [case(processor, name, seed, length)
                      for seed in range(1, seeds + 1)]
    with open(os.path.join(OUT, "user_defined.json"), "w",
              encoding="utf-8") as f:
        f.write('{"fragments":' + json.dumps(FRAGMENTS) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
