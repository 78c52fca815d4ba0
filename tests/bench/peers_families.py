#!/usr/bin/env python3
"""Times gpt-preprocess with the vocabularies of other families, beside the
libraries of these families: tiktoken, Hugging Face tokenizers (the same ranks,
converted by transformers), SentencePiece. All have the same documents, the same
core, and one run.

    peers_families.py --build build --files DIR [--cpu N] [--rounds N]
        [--limit BYTES] NAME=PATH[:PATH...] ...

DIR is that of tests/parity/families_parity.py; paths, rounds and figures are
those of peers_text.py. Slow peers get a part of the text.
"""
import argparse
import base64
import contextlib
import importlib
import io
import os
import statistics
import subprocess
import tempfile

import peers_text  # also finds the parity scripts

import families_parity

PART = 3e6  # bytes for Hugging Face and SentencePiece


def by_tiktoken(path, stem):
    tiktoken = importlib.import_module("tiktoken")
    with open(path, encoding="ascii") as f:
        ranks = {base64.b64decode(word): int(rank) for word, rank in
                 (line.split() for line in f if line.strip())}
    tok = tiktoken.Encoding(stem, pat_str=families_parity.RANKS[stem][1],
                            mergeable_ranks=ranks, special_tokens={})
    return lambda docs: tok.encode_ordinary_batch(docs, num_threads=1)


def by_hf_ranks(path, stem):
    convert = importlib.import_module("transformers.convert_slow_tokenizer")
    with contextlib.redirect_stderr(io.StringIO()):
        tok = convert.TikTokenConverter(
            path, pattern=families_parity.RANKS[stem][1]).converted()
    return tok.encode_batch


def by_hf(path, _stem):
    tok = importlib.import_module("tokenizers").Tokenizer.from_file(path)
    return tok.encode_batch


def by_sentencepiece(path, _stem):
    module = importlib.import_module("sentencepiece")
    tok = module.SentencePieceProcessor(model_file=path)
    return lambda docs: tok.encode(docs, num_threads=1)


# of a kind of file: Megatron's type, peers as (name, maker, slow)
KINDS = {
    ".tiktoken": ("TikTokenizer", [("tiktoken", by_tiktoken, False),
                                   ("Hugging Face", by_hf_ranks, True)]),
    ".json": ("HuggingFaceTokenizer", [("Hugging Face", by_hf, True)]),
    ".model": ("SentencePieceTokenizer", [("SentencePiece", by_sentencepiece,
                                           True)]),
}


def models(folder):
    for entry in sorted(os.listdir(folder)):
        stem, kind = os.path.splitext(entry)
        if kind in KINDS and (kind != ".tiktoken" or
                              stem in families_parity.RANKS):
            yield os.path.join(folder, entry), stem, kind


def options(path, stem, kind):
    found = ["--tokenizer-type", KINDS[kind][0], "--tokenizer-model", path]
    if kind == ".tiktoken":
        found += ["--tiktoken-pattern", families_parity.RANKS[stem][0],
                  "--tokenizer-special-tokens", "<|endoftext|>"]
    return found


def preprocess(args, texts, found):
    subprocess.run([os.path.join(args.build, "gpt-preprocess"), "--input",
                    texts.jsonl, "--output-prefix", texts.out, "--force",
                    "--quiet", "--workers", "1", *found], check=True)


def compare(args, subject, texts, path, stem, kind):
    runs = [("gpt-preprocess", texts.size,
             lambda: preprocess(args, texts, options(path, stem, kind)))]
    for name, maker, slow in KINDS[kind][1]:
        try:
            encode = maker(path, stem)
        except ImportError as absent:
            print(f"# absent: {absent.name}")
            continue
        docs = texts.part(PART) if slow else texts.docs
        runs.append((name, peers_text.size_of(docs),
                     lambda e=encode, d=docs: e(d)))
    rates = [[] for _ in runs]
    for _ in range(args.rounds):
        for found, (_, size, run) in zip(rates, runs):
            found.append(size / 1e6 / peers_text.seconds(run))
    base = statistics.median(rates[0])
    for found, (name, _, _) in zip(rates, runs):
        peers_text.row(subject, f"{stem}: {name}", found, base)


def heading(name, texts):
    clock = "processor time" if peers_text.CPU_TIME else "wall clock"
    print(f"\n{name}: {texts.size / 1e6:.1f} MB, {len(texts.docs)} documents; "
          f"MB/s of text, {clock}")
    print(f"{'':42}{'median':>9}  {'slowest':>8} {'fastest':>8}   ours/it")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--files", required=True)
    p.add_argument("--cpu", type=int, default=0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=20e6)
    p.add_argument("texts", nargs="+", metavar="NAME=PATH[:PATH...]")
    args = p.parse_args()
    # before anything starts threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {args.cpu})
    for text in args.texts:
        name, _, paths = text.partition("=")
        with tempfile.TemporaryDirectory(prefix="gpt-peers.") as folder:
            texts = peers_text.Texts(
                peers_text.documents(args, paths.split(":")), folder)
            heading(name, texts)
            for path, stem, kind in models(args.files):
                compare(args, name, texts, path, stem, kind)


if __name__ == "__main__":
    main()
