#!/usr/bin/env python3
"""Compares gpt-preprocess with tiktoken, Hugging Face tokenizers and
megatron-core: the ids of every document, and the bytes of .bin and .idx.

    tokenizer_parity.py --program build/gpt-preprocess --vocab DIR
        [--random N] [--megatron] [TEXT-FILE-OR-FOLDER...]

Text comes from .txt, .html, .htm and manual pages (.gz too), without repeated
lines. Random strings come from alphabets that are difficult for the pattern;
every code point also occurs once between letters, digits and signs.

Hugging Face's regex engine may have another Unicode version than 16.0. When a
text differs, the script tries all code points to find those with another class
there, and compares texts that contain one of these only with tiktoken.
"""
import argparse
import collections
import gzip
import html
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpt2_oracle  # noqa: E402

EOD = 50256


# ---- texts ----

def readable(path):
    name = path.removesuffix(".gz")
    if re.search(r"\.(txt|html?)$|/(README|changelog|copyright)[^/]*$|"
                 r"/man/.*\.\d[a-z]*$", name):
        return open if name == path else gzip.open
    return None


def files_under(paths):
    for path in paths:
        if not os.path.isdir(path):
            yield path, path
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                full = os.path.join(folder, name)
                if readable(full) and not os.path.islink(full):
                    yield path, full


def documents(paths, limit):
    """Texts of at most 100,000 characters, without lines that came before, and
    about `limit` bytes of each path."""
    seen, total = set(), collections.Counter()
    for root, path in files_under(paths):
        if total[root] > limit:
            continue
        with (readable(path) or open)(path, "rb") as f:
            text = f.read().decode("utf-8", "ignore")
        if path.endswith((".html", ".htm")):
            text = html.unescape(re.sub(r"<[^>]*>", "", text))
        text = text.encode("utf-8", "ignore").decode("utf-8")
        lines = []
        for line in text.split("\n"):
            if line and hash(line) in seen:
                continue
            seen.add(hash(line))
            lines.append(line)
        text = "\n".join(lines)
        for i in range(0, len(text), 100000):
            part = text[i:i + 100000]
            total[root] += len(part.encode())
            yield part
    for root, n in total.items():
        print(f"  {n / 1e6:.1f} MB from {root}")


def every_code_point():
    for cp in range(0x110000):
        if not 0xD800 <= cp < 0xE000:
            c = chr(cp)
            yield f"a{c}a 1{c}1 !{c}! {c}{c} \n{c}x"


POOLS = [
    "abcdefghijklmnopqrstuvwxyzABCDEF", "etaoinshrdlu ", " " * 6, " \t\n\r",
    "''''", "strevmlldSTREVMLLD", "0123456789", ".,;:!?()[]{}<>|/\\-_=+*&^%$#@",
    "\u00a0\u2003\u3000\u2028\u2029\u0085\u1680\u202f\u205f\u200a",
    "\u0301\u0308\u20dd\u0903\u0ac0\u200d\ufe0f",
    "\u0660\u0663\u09ea\u00b2\u2167",
    "\u2460\u3007\u0bf0", "\u4f60\u597d\u4e16\u754c\u3042\u30a2\ud55c\uad6d",
    "\u0416\u0436\u03b1\u05d0\u0627\u0e01\u0905\u1000\u01c5\u02b0\u00df\u0131",
    "\U0001f600\U0001f468\U0001f1e9\U00020000\U0001d7d8\U00010400",
    "\x00\x01\x1c\x1d\x1e\x1f\x7f\u200b\ufeff\u180e\ufffd\uffff",
]
WORDS = ["'s", "'re", "'ll", "'ve", "'t", " the", " and", "ing", "tion",
         "<|endoftext|>", "\r\n", "   ", "====", "----", "http://", "\\n"]


def random_strings(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        kind = rng.random()
        parts = []
        for _ in range(rng.randrange(1, 16)):
            r = rng.random()
            if kind < 0.15 or r < 0.05:
                cp = rng.randrange(0x110000)
                parts.append(chr(cp) if not 0xD800 <= cp < 0xE000 else " ")
            elif r < 0.2:
                parts.append(rng.choice(WORDS))
            elif kind < 0.5:
                parts.append(chr(rng.randrange(128)))
            else:
                parts.append(rng.choice(rng.choice(POOLS)))
        if rng.random() < 0.01:
            parts.append(rng.choice(parts) * rng.randrange(50, 400))
        yield "".join(parts)


# ---- ours ----

def read_set(prefix):
    """Documents' ids, without the end of document, out of .bin and .idx."""
    with open(prefix + ".idx", "rb") as f:
        raw = f.read()
    assert raw[:9] == b"MMIDIDX\0\0"
    n_seq, n_doc = np.frombuffer(raw, "<i8", 2, 18)
    lengths = np.frombuffer(raw, "<i4", n_seq, 34)
    docs = np.frombuffer(raw, "<i8", n_doc, 34 + 12 * n_seq)
    tokens = np.fromfile(prefix + ".bin", "<u2")
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[docs]
    for begin, end in zip(ends[:-1], ends[1:]):
        if begin == end:
            yield []
        else:
            assert tokens[end - 1] == EOD
            yield tokens[begin:end - 1].tolist()


def run_ours(args, texts, folder, name):
    source = os.path.join(folder, name + ".jsonl")
    with open(source, "w", encoding="utf-8") as f:
        for i, text in enumerate(texts):
            f.write(json.dumps({"text": text}, ensure_ascii=i % 2 == 0) + "\n")
    prefix = os.path.join(folder, name)
    start = time.time()
    subprocess.run(
        [args.program, "--input", source, "--output-prefix", prefix,
         "--vocab-file", os.path.join(args.vocab, "vocab.json"),
         "--merge-file", os.path.join(args.vocab, "merges.txt"),
         "--append-eod", "--quiet", "--force"], check=True)
    return prefix + "_text_document", time.time() - start


# ---- comparing ----

def compare(args, name, texts, tik, hf, folder):
    texts = list(texts)
    n_bytes = sum(len(t.encode()) for t in texts)
    prefix, ours_s = run_ours(args, texts, folder, name)
    ours = list(read_set(prefix))
    assert len(ours) == len(texts), (len(ours), len(texts))
    bad_tik = bad_hf = n_hf = n_tokens = tik_s = hf_s = 0
    for i in range(0, len(texts), 2000):
        part = texts[i:i + 2000]
        start = time.time()
        by_tik = [tik.encode_ordinary(t) for t in part]
        tik_s += time.time() - start
        start = time.time()
        by_hf = [e.ids for e in hf.encode_batch(part)]
        hf_s += time.time() - start
        for k, text in enumerate(part):
            mine = ours[i + k]
            n_tokens += len(mine)
            if mine != by_tik[k]:
                bad_tik += 1
                if bad_tik < 5:
                    print("  tiktoken differs:", ascii(text[:200]))
            n_hf += 1
            if mine != by_hf[k]:
                if args.other is None:
                    args.other = gpt2_oracle.other_classes(tik, hf)
                    print(f"  {len(args.other)} code points are classed in "
                          "another way by Hugging Face's engine")
                if not args.other.isdisjoint(map(ord, text)):
                    n_hf -= 1
                    continue
                bad_hf += 1
                if bad_hf < 5:
                    print("  Hugging Face differs:", ascii(text[:200]))
    print(f"{name}: {len(texts)} texts, {n_bytes / 1e6:.1f} MB, "
          f"{n_tokens} tokens; {bad_tik} differ from tiktoken, "
          f"{bad_hf} of {n_hf} from Hugging Face; "
          f"seconds: ours {ours_s:.1f}, tiktoken {tik_s:.1f}, HF {hf_s:.1f}",
          flush=True)
    return bad_tik + bad_hf


def compare_megatron(args, tik, folder):
    """Empty texts, lists of texts and plain ones, written by megatron-core's
    own builder."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    rng = random.Random(1)
    texts = []
    for text in random_strings(20000, 7):
        r = rng.random()
        texts.append("" if r < 0.05 else
                     [text, "", text[::-1]] if r < 0.15 else
                     [] if r < 0.17 else [""] if r < 0.19 else text)
    prefix, _ = run_ours(args, texts, folder, "megatron")
    want = os.path.join(folder, "want")
    builder = IndexedDatasetBuilder(want + ".bin", dtype=np.uint16)
    for text in texts:
        ids, lengths = [], []
        for sentence in [text] if isinstance(text, str) else text:
            part = tik.encode_ordinary(sentence)
            if part:
                ids += part
                lengths.append(len(part))
        if ids:
            ids.append(EOD)
            lengths[-1] += 1
        builder.add_document(np.array(ids, dtype=np.int64), lengths)
    builder.finalize(want + ".idx")
    bad = 0
    for ext in ".bin", ".idx":
        with open(prefix + ext, "rb") as a, open(want + ext, "rb") as b:
            mine, theirs = a.read(), b.read()
        bad += mine != theirs
        print(f"megatron{ext}: {len(theirs)} bytes, "
              f"{'equal' if mine == theirs else 'DIFFERENT'}", flush=True)
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--program", required=True)
    p.add_argument("--vocab", required=True)
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--seed", type=int, default=16)
    p.add_argument("--code-points", action="store_true")
    p.add_argument("--megatron", action="store_true")
    p.add_argument("--limit", type=float, default=1e9,
                   help="bytes of text from each path")
    p.add_argument("text", nargs="*")
    args = p.parse_args()
    tik = gpt2_oracle.by_tiktoken(args.vocab)
    hf = gpt2_oracle.by_hf(args.vocab)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        if args.megatron:
            bad += compare_megatron(args, tik, folder)
        args.other = None  # found out when a text differs
        if args.code_points:
            bad += compare(args, "code-points", every_code_point(), tik, hf,
                           folder)
        if args.random:
            bad += compare(args, "random",
                           random_strings(args.random, args.seed), tik, hf,
                           folder)
        if args.text:
            bad += compare(args, "text", documents(args.text, args.limit),
                           tik, hf, folder)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
