#!/usr/bin/env python3
"""Makes tests/golden/gpt2: a small vocabulary, and texts with their ids in it
and in GPT-2's own vocabulary, by tiktoken and Hugging Face tokenizers, which
must agree.

    tests/golden/make_gpt2_ids.py DIR-OF-GPT2-VOCABULARY TEXT-FILE

Needs tiktoken, tokenizers, regex. A line of small.ids and real.ids has a text
in hexadecimal and its ids. The same pattern cuts texts that are not UTF-8,
where each invalid byte is a character without a class; tiktoken merges the
pieces.
"""
import json
import os
import random
import sys

import regex
import tokenizers

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "parity"))
import gpt2_oracle  # noqa: E402

OUT = os.path.join(here, "gpt2")

FIXED = """hello world|Hello, World!|  two  spaces  |tab\t\ttab|\n\n\n|a\n\nb
 leading|trailing |'s 't 're 've 'm 'll 'd|it's we're I've I'm he'll she'd
IT'S WE'RE|''s|'S|' s|don''t|x'sx|12345 67890|3.14159|1a2b3c|\u0663\u0664\u0665
caf\u00e9 na\u00efve|e\u0301 combining|\u4f60\u597d\uff0c\u4e16\u754c
\u3053\u3093\u306b\u3061\u306f|\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440
\uc548\ub155\ud558\uc138\uc694|\u0645\u0631\u062d\u0628\u0627|\u0928\u092e\u0938\u094d\u0924\u0947
\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467|\u00a0nbsp\u00a0|\u2003em\u2003 x
\u3000\u3000x|\u0085|\u2028\u2029|\x1c\x1d|\u180e\u200b\ufeff|a\x00b\x00|<|endoftext|>
\u00bd \u00b2 \u2167 \u2460|\u01c5 \u02b0|\U00010400|\U0001d7d8|\U000e0100|\U0010ffff
if (x[0] == 'a') { return "b\\n"; }|https://example.org/?q=1&r=%20|\r\n\r\n x"""


def fixed_texts():
    for line in FIXED.split("\n"):
        yield from line.split("|")
    yield FIXED
    yield "a" * 200
    yield "ab" * 150 + " " + "=" * 300
    yield " " * 70 + "x" + " " * 5
    yield "\n" * 90 + "\t"


def random_texts(rng, n):
    pools = ["abcdeABC", "etaoin shrdlu ", " \t\n\r", "'", "strevmlld", "0123",
             "\u00e9\u0301\u0663\u4e00\u3042\u0416\u05d0\u00a0\u2003",
             ".,!?-_()", "\U0001f600\U00020000\u200d\ufe0f"]
    for _ in range(n):
        yield "".join(rng.choice(rng.choice(pools))
                      for _ in range(rng.randrange(1, 24)))


def random_bytes(rng, n):
    """Mostly not UTF-8: characters cut, bytes out of place."""
    for _ in range(n):
        s = bytearray()
        for _ in range(rng.randrange(1, 8)):
            s += rng.choice([b"a", b" ", b"'s", b"1", b"\n", b"\xff", b"\xc0",
                             b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80",
                             "\u4e00".encode(), "\u00e9".encode()[:1],
                             "\u4e00".encode()[:2],
                             "\U0001f600".encode()[:3],
                             bytes([rng.randrange(256)])])
        yield bytes(s)


def ids_of(data, tik, hf):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        ids = []
        for piece in regex.findall(gpt2_oracle.PATTERN, text):
            raw = piece.encode("utf-8", "surrogateescape")
            ids += tik._encode_single_piece(raw)
        return ids
    ids = tik.encode_ordinary(text)
    assert ids == hf.encode(text).ids, text
    return ids


def make(name, folder, texts):
    tik, hf = gpt2_oracle.by_tiktoken(folder), gpt2_oracle.by_hf(folder)
    with open(os.path.join(OUT, name), "w") as f:
        for data in texts:
            ids = " ".join(map(str, ids_of(data, tik, hf)))
            f.write(f"{data.hex() or '-'} {ids}\n".replace(" \n", "\n"))


def train_small(text_file):
    tok = tokenizers.Tokenizer(tokenizers.models.BPE())
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    with open(text_file, encoding="utf-8") as f:
        tok.train_from_iterator([f.read(200000), FIXED * 3], trainer)
    tok.model.save(OUT)
    path = os.path.join(OUT, "vocab.json")
    with open(path, encoding="utf-8") as f:
        vocab = json.load(f)
    vocab["<|endoftext|>"] = len(vocab)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(vocab, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    gpt2, text_file = sys.argv[1:]
    os.makedirs(OUT, exist_ok=True)
    rng = random.Random(16)
    texts = [t.encode() for t in fixed_texts()]
    texts += [t.encode() for t in random_texts(rng, 500)]
    texts += list(random_bytes(rng, 300))
    train_small(text_file)
    make("small.ids", OUT, texts)
    make("real.ids", gpt2, texts)


if __name__ == "__main__":
    main()
