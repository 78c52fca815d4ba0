"""GPT-2's tokenizer in tiktoken and in Hugging Face tokenizers. Both need only
a vocab.json and a merges.txt, and no network. Each library is imported where it
is used, so that one may be missing."""
import importlib
import json
import os

PATTERN = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
           r"|\s+(?!\S)|\s+")


def letters():
    """Byte -> the character that stands for it in a vocabulary."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in table:
            table[b] = chr(0x100 + len(table) - len(kept))
    return table


def by_tiktoken(folder):
    """Ranks are ids here: every merge's result has a higher id than those of
    the merges before it."""
    tiktoken = importlib.import_module("tiktoken")
    byte_of = {c: b for b, c in letters().items()}
    with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as f:
        vocab = json.load(f)
    special = {"<|endoftext|>": vocab.pop("<|endoftext|>")}
    ranks = {bytes(byte_of[c] for c in t): i for t, i in vocab.items()}
    return tiktoken.Encoding("gpt2-from-files", pat_str=PATTERN,
                             mergeable_ranks=ranks, special_tokens=special)


def by_hf(folder):
    tokenizers = importlib.import_module("tokenizers")
    model = tokenizers.models.BPE.from_file(
        os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"))
    tok = tokenizers.Tokenizer(model)
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False)
    return tok


def other_classes(tik, hf):
    """Code points that the two engines do not class alike: each is tried after
    a letter, a digit, a sign and a newline, by the tokens that come out."""
    def probes(cp):
        c = chr(cp)
        return f"a{c}a1{c}1!{c}!\n{c}x"

    points = [cp for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]
    other = set()
    for i in range(0, len(points), 20000):
        part = points[i:i + 20000]
        texts = [probes(cp) for cp in part]
        for cp, text, e in zip(part, texts, hf.encode_batch(texts)):
            if tik.encode_ordinary(text) != e.ids:
                other.add(cp)
    return other
