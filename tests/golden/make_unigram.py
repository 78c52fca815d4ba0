#!/usr/bin/env python3
"""Makes unigram-*.json of tests/golden/families, small tokenizer.json files
whose model is Unigram, and unigram.json there, texts with the ids and the texts
that Hugging Face tokenizers gives for them.

    tests/golden/make_unigram.py

Needs tokenizers 0.23.3, sentencepiece and protobuf. The steps are those of the
converters of transformers.
"""
import base64
import json
import os
import random
import struct
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors)

here = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(here, "families")
SPACE = "\u2581"
LETTER = 2.4  # minus the score of a letter
TEXTS = [
    "", " ", "hello world", "  Hello,   World!\n\n  done \n ", "12345 6.78 ab12",
    "caf\u00e9 cafe\u0301 Cafe\u0301\u0301 \u0130x", "x\u212b \ufb01 \uff21",
    "\ufb01rst \ufb01\u0301 \uff21\u0301", "\u4e2d\u6587\u3001\u30ab\u3099",
    "\U0001f600\U0001f680 \u200d", "\x01\x1f\x7fa\x01b", "\x01", "a\r\nb\rc",
    "the<mask> <s>the</s>  <unk> the", "<x>  a<x>b", SPACE + "a " + SPACE * 2,
    "``the'' 'end'", "-- (a)b_c!?", "\u037a\u03b1 1", "\u0e33\u0e40",
    "\u1100\u1161\u11a8 \uac01", "\u0915\u094d\u0937\u0301", "\xa9\u200d\xae",
    "\u0600a\u0301", "\u2000a\u2003b\u3000", "abababbabaabbbaabab",
    "aabbaabbabaaabbbabab", "bbbaaababbabaabbabaab", "abab", "zzz the zz",
]


def charsmap():
    """Of SentencePiece, for a few rules: the published ones have 180 kB."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t")
        with open(path, "w", encoding="utf-8") as f:
            f.write("hello world\nthe end\n")
        with open(path + ".tsv", "w", encoding="utf-8") as f:
            f.write("FF21\t41\nFB01\t66 69\n212B\tC5\n65 301\tE9\n1\t\n9\t20\n"
                    "A\t20\nD\t20\n37A\t20 3B9\nD A\t20\n30AB 3099\t30AC\n")
        sentencepiece.SentencePieceTrainer.train(
            input=path, model_prefix=path, vocab_size=20, minloglevel=2,
            hard_vocab_limit=False, normalization_rule_tsv=path + ".tsv")
        model = sentencepiece_model_pb2.ModelProto()
        with open(path + ".model", "rb") as f:
            model.ParseFromString(f.read())
    return model.normalizer_spec.precompiled_charsmap


def vocabulary(first, last):
    """Pieces of the texts, with scores of single precision as SentencePiece has
    them; those of the letters a and b are as good as each other, so that the
    last bit of a score decides."""
    r = random.Random(11)
    pieces = list(first)
    for text in TEXTS:
        for word in text.replace(" ", " " + SPACE).split(" "):
            for n in (1, 2, 3, 5):
                if word and not set(word) <= {*"ab", SPACE} \
                        and r.random() < 0.8:
                    at = r.randrange(len(word))
                    pieces.append(word[at:at + n])
    pieces += [SPACE, "h", "e", "l", "o", "t", "the", SPACE + "the", "\u00e9"]
    pieces += ["a", "b", "ab", "ba", "aa", "bb", "abab", "babb"] + list(last)
    pieces = list(dict.fromkeys(p for p in pieces if p not in ("<unk>",)))
    scores = []
    for p in pieces:
        score = -LETTER * len(p) if set(p) <= {"a", "b"} \
            else -12 * r.random()
        score = 0 if p == SPACE else score  # which no sum loses bits to
        scores.append(struct.unpack("f", struct.pack("f", score))[0])
    return [("<unk>", 0.0)] + list(zip(pieces, scores))


def best_path(vocab, text):
    """The search with scores as they are written, for main()'s assertion."""
    scores = dict(vocab)
    unknown = min(scores.values()) - 10
    best = [(0.0, 0)] + [None] * len(text)
    for at in range(len(text)):
        for end in range(at + 1, len(text) + 1):
            piece = text[at:end]
            score = scores.get(piece, unknown if end == at + 1 else None)
            if score is None:
                continue
            score += best[at][0]
            if best[end] is None or score > best[end][0]:
                best[end] = (score, at)
    pieces, end = [], len(text)
    while end:
        pieces.append(text[best[end][1]:end])
        end = best[end][1]
    return pieces[::-1]


def finish(name, t):
    t.add_special_tokens(["<s>", "</s>",
                          AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("<x>", rstrip=True, normalized=False),
                  AddedToken("Caf\u00e9", normalized=True),
                  AddedToken("12", single_word=True)])
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


def t5(rules):
    t = Tokenizer(models.Unigram(vocabulary(["</s>"], ["<mask>"]), 0))
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(rules),
        normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), SPACE)])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(
        single=["$A", "</s>"], special_tokens=[("</s>", 1)])
    return finish("unigram-t5.json", t)


def albert():
    t = Tokenizer(models.Unigram(vocabulary([], []), 0))
    t.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'),
        normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Nmt(),
        normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Punctuation("isolated"),
        pre_tokenizers.Metaspace(prepend_scheme="first")])
    t.decoder = decoders.Metaspace(prepend_scheme="never")
    return finish("unigram-albert.json", t)


def with_bytes(rules):
    names = ["<0x%02X>" % i for i in range(256)]
    t = Tokenizer(models.Unigram(vocabulary(names, []), 0, True))
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(rules), normalizers.NFKC(),
        normalizers.Replace(Regex(r"\A +| +\z"), ""),
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r"\A" + SPACE), SPACE * 2)])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split("the", "merged_with_next")])
    t.decoder = decoders.Sequence([
        decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    return finish("unigram-bytes.json", t)


def main():
    rules = charsmap()
    assert len(base64.b64encode(rules)) < 8192
    cases = t5(rules) + albert() + with_bytes(rules)
    # a reader of exact numbers would give other ids for some text
    t = Tokenizer.from_file(os.path.join(OUT, "unigram-t5.json"))
    model = json.loads(t.to_str())["model"]
    exact = vocabulary(["</s>"], ["<mask>"])
    assert [p for p, _ in exact] == [p for p, _ in model["vocab"]]
    differ = [s for s in TEXTS if set(s) <= {"a", "b"} and s and
              t.encode(s, add_special_tokens=False).tokens
              != best_path(exact, SPACE + s)]
    assert differ, "no text depends on how scores are read"
    with open(os.path.join(OUT, "unigram.json"), "w", encoding="utf-8") as f:
        f.write('{"texts":' + json.dumps(TEXTS) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    sys.exit(main())
