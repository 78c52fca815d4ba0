#!/usr/bin/env python3
"""Makes tests/golden/families: a small file of each kind of tokenizer, and
cases.json, texts with the ids that the library of that kind gives them.

    tests/golden/make_families.py

Needs tokenizers, tiktoken, sentencepiece and numpy. In cases.json "special" is
the value of --special for the case. SentencePiece does not find special tokens
in a text by itself, so its cases are plain.
"""
import base64
import json
import os
import sys
import tempfile

import sentencepiece
import tiktoken
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "parity"))
import families_parity as parity  # noqa: E402

OUT = os.path.join(here, "families")
TEXTS = [
    "", " ", "hello world", "Hello,  World!\n\n  done \n ", "it's WE'LL I\u017f",
    "12345 6.78 \u0663\u0664\u0665\u0666", "caf\u00e9 cafe\u0301 \u1100\u1161\u11a8",
    "\u4e2d\u6587\u3001\u30ab\u30fc\u30fb abc", "HTTPServer/1.1\r\n\r\n// x\n",
    "<|endoftext|> a<|im_start|>  b </s>", "the other the_ the", "a 123\t12",
    "\u4e2d  \u4e2d x\u212b \ufb01 \uff21", "\U0001f600\U0001f680 \u200d",
    "    if x:\n        return x", "<mark>the\u2581end", "\x01\x1f\x7f", "\u2028a",
]
SAMPLE = [t for t in TEXTS if t.strip()] * 3 + [
    "the quick brown fox jumps over the lazy dog and the other fox",
    "def f(x):\n    return x + 1\n", "we're here, they'll be there, it's 2024",
    "hello hello world world", "\u4e2d\u6587 \u4e2d\u6587 \u65e5\u672c\u8a9e"] * 2


def save_json(name, value):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def hf(name, steps, normalizer=None, template=None, ignore_merges=False):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = (steps[0] if len(steps) == 1
                       else pre_tokenizers.Sequence(steps))
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(SAMPLE, trainers.BpeTrainer(
        vocab_size=300, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|endoftext|>", AddedToken(
        "<|im_start|>", rstrip=True, special=True, normalized=False)])
    t.add_tokens([AddedToken("e\u0301", normalized=True),
                  AddedToken("the", single_word=True),
                  AddedToken("12", lstrip=True),
                  AddedToken("\u4e2d", rstrip=True, normalized=False)])
    if template:
        t.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[
                ("<|endoftext|>", t.token_to_id("<|endoftext|>"))])
    whole = json.loads(t.to_str())
    whole["model"]["ignore_merges"] = ignore_merges
    save_json(name, whole)
    t = Tokenizer.from_str(json.dumps(whole))
    cases = []
    for special in "plain", "parse":
        t.encode_special_tokens = special == "plain"
        cases.append({"type": "HuggingFaceTokenizer", "file": name,
                      "special": special,
                      "ids": [t.encode(s).ids for s in TEXTS]})
    return cases


def chars(kind):
    name = f"chars-{kind}.json"
    t = parity.make_chars(kind, SAMPLE, vocab_size=90, alphabet=50)
    save_json(name, json.loads(t.to_str()))
    cases = []
    for special in "plain", "parse":
        t.encode_special_tokens = special == "plain"
        ids = [t.encode(s).ids for s in TEXTS]
        cases.append({"type": "HuggingFaceTokenizer", "file": name,
                      "special": special, "ids": ids,
                      "decoded": [t.decode(i, skip_special_tokens=False)
                                  for i in ids]})
    return cases


def ranks(name):
    words = [bytes([b]) for b in range(256)] + [
        w.encode() for w in ("th", "the", " the", "he", "llo", "hello", "in",
                             "12", "123", "\u4e2d", "  ", "ld", "wor", "world",
                             " world", "or", "wo")]
    with open(os.path.join(OUT, name), "w", encoding="ascii") as f:
        for i, w in enumerate(words):
            f.write(f"{base64.b64encode(w).decode()} {i}\n")
    special = {"<|endoftext|>": len(words), "<|im_start|>": len(words) + 5}
    cases = []
    for pattern, regex in ("cl100k", parity.CL100K), ("o200k", parity.O200K):
        t = tiktoken.Encoding(name, pat_str=regex, special_tokens=special,
                              mergeable_ranks={w: i for i, w in
                                               enumerate(words)})
        for how in "plain", "parse":
            cases.append({
                "type": "TikTokenizer", "file": name, "special": how,
                "pattern": pattern,
                "tokens": ["<|endoftext|>",
                           f"<|im_start|>={len(words) + 5}"],
                "ids": [t.encode(s, disallowed_special=(), allowed_special=(
                    set() if how == "plain" else "all")) for s in TEXTS]})
    return cases


def sp(name, **options):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "sample")
        rules = os.path.join(folder, "rules.tsv")
        with open(source, "w", encoding="utf-8") as f:
            f.write("\n".join(s.replace("\n", " ") for s in SAMPLE))
        with open(rules, "w", encoding="utf-8") as f:
            f.write("FF21\t41\nFB01\t66 69\n212B\tC5\n65 301\tE9\n1\t\n9\t20\n"
                    "A\t20\n")
        if options.get("normalization_rule_name") != "identity":
            options["normalization_rule_tsv"] = rules
        sentencepiece.SentencePieceTrainer.train(
            input=source, model_prefix=os.path.join(folder, "m"),
            hard_vocab_limit=False, minloglevel=2, character_coverage=0.98,
            **options)
        with open(os.path.join(folder, "m.model"), "rb") as f:
            model = f.read()
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(model)
    t = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [{"type": "SentencePieceTokenizer", "file": name,
             "special": "plain", "ids": t.encode(TEXTS),
             "decoded": [t.decode(ids) for ids in t.encode(TEXTS)]}]


def main():
    os.makedirs(OUT, exist_ok=True)
    cases = (
        hf("llama3.json", [parity.split(parity.LLAMA3), parity.LAST],
           template="<|endoftext|> $A", ignore_merges=True)
        + hf("qwen2.json", [parity.split(parity.QWEN2), parity.LAST],
             normalizer=normalizers.NFC())
        + hf("starcoder.json", parity.TRAINED["starcoder"])
        + hf("deepseek3.json", parity.TRAINED["deepseek3"])
        + hf("space.json", parity.TRAINED["gpt2-space"])
        + sum(map(chars, parity.CHARS), [])
        + ranks("small.tiktoken")
        + sp("unigram.model", model_type="unigram", vocab_size=120,
             user_defined_symbols=["<mark>"])
        + sp("bpe.model", model_type="bpe", vocab_size=400, byte_fallback=True,
             normalization_rule_name="identity", split_digits=True,
             remove_extra_whitespaces=False,
             allow_whitespace_only_pieces=True)
        + sp("words.model", model_type="bpe", vocab_size=140,
             user_defined_symbols=["ing", "<mark>"]))
    with open(os.path.join(OUT, "cases.json"), "w", encoding="utf-8") as f:
        f.write('{"texts":' + json.dumps(TEXTS) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
