#!/usr/bin/env python3
"""Makes wordpiece*.json and wordlevel.json of tests/golden/families, small
tokenizer.json files of these models, and words.json there, texts with the ids
and the texts that Hugging Face tokenizers gives for them.

    tests/golden/make_words.py

Needs tokenizers 0.23.3.
"""
import json
import os
import sys

from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
TEXTS = [
    "", " ", "Hello, world!", "  hello\tWORLD\r\nlow ", "it's  don't we've . x",
    "ing hello", "##ing ing", "\u4e2d\u6587 x\u4e2d", "x\U0002b820y",
    "x\U0002b920y", "caf\u00e9 Cafe\u0301 \u0130x", "a\u0001b\ufffdc\u00adc",
    "a\u0085b\u200bb\u2028c\ue000", "\u1734a\u1886", "a_b-c", "\u00bfque?",
    "a+b=c", "abcabcabcabc", "low lowing lowinglow", "zzz qqq", "[CLS]a [SEP]",
    "[MASK] a[MASK]", "the  the", "breathe the", "\u0660\u0967 12", "12 a12b 1",
    "do not a do not", "' a ' b",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["hello", "world", "Hello", "low", "it", "s", "don", "t", "we", "ve",
         "cafe", "caf\u00e9", "ing", "a", "b", "c", "x", "i", "abc", "1", "12",
         "q", "que", "the", ".", ",", "!", "?", "'", "#", "+", "=", "-", "_",
         "\u00bf", "\u4e2d", "\u6587", "\u1734", "do", "not", "n't", "\u0660",
         "a_b"]
PARTS = ["##", "##ing", "##low", "##abc", "##a", "##b", "##c", "##2", "##x",
         "##1", "##e", "##y", "##_", "##\u4e2d"]


def finish(name, t, cleanup=None):
    if cleanup is not None:
        t.decoder = decoders.WordPiece(cleanup=cleanup)
    special = [w for w in SPECIAL if w != "[MASK]"]
    t.add_special_tokens(special + [AddedToken("[MASK]", lstrip=True,
                                               special=True)])
    t.add_tokens([AddedToken("the", single_word=True),
                  AddedToken("do not", normalized=False)])
    text = t.to_str()
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        f.write(text + "\n")
    t = Tokenizer.from_str(text)
    cases = []
    for special in "plain", "parse":
        t.encode_special_tokens = special == "plain"
        ids = [e.ids for e in t.encode_batch(TEXTS)]
        cases.append({
            "type": "HuggingFaceTokenizer", "file": name, "special": special,
            "ids": ids,
            "decoded": [t.decode(i, skip_special_tokens=False) for i in ids]})
    return cases


def numbered(words):
    return {w: i for i, w in enumerate(words)}


def bert():
    t = Tokenizer(models.WordPiece(numbered(SPECIAL + WORDS + PARTS),
                                   unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return finish("wordpiece.json", t, True)


def cased():
    """Another prefix, and words of at most nine characters."""
    parts = [p.replace("##", "@") for p in PARTS]
    t = Tokenizer(models.WordPiece(numbered(SPECIAL + WORDS + parts),
                                   unk_token="[UNK]",
                                   continuing_subword_prefix="@",
                                   max_input_chars_per_word=9))
    t.normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True,
        lowercase=False)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)])
    return finish("wordpiece-cased.json", t, False)


def word_level():
    """Without a decoder, where tokens have spaces between them."""
    t = Tokenizer(models.WordLevel(numbered(SPECIAL + WORDS), "[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=False)
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return finish("wordlevel.json", t)


def main():
    cases = bert() + cased() + word_level()
    with open(os.path.join(OUT, "words.json"), "w", encoding="utf-8") as f:
        f.write('{"texts":' + json.dumps(TEXTS) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    sys.exit(main())
