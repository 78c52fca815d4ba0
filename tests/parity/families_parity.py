#!/usr/bin/env python3
"""Compares every family of tokenizers with the library that its files come
from: Hugging Face tokenizers, tiktoken, SentencePiece. The ids of each text
must be equal, with --special plain and parse, and gpt-dataset must give the
text again.

    families_parity.py --programs build [--files DIR] [--count N] [TEXT...]

DIR may hold published files: *.tiktoken (cl100k, o200k, p50k, llama3, llama4,
qwen), *.json and *.model. The script also trains small ones, so that it covers
every pattern, normalization and flag. Each gets N random strings from alphabets
that are difficult for patterns; TEXT files are cut into documents.
"""
import argparse
import base64
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import sentencepiece
import tiktoken
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
HEAD = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
TAIL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (CONTRACTION + "|" + PREFIX + r"\p{L}+|\p{N}{1,3}|" + SYMBOLS
          + r"[\r\n]*|" + SPACES)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (CONTRACTION + "|" + PREFIX + r"[\p{L}\p{M}]+|\p{N}|"
          r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)
O200K = (PREFIX + HEAD + "*" + TAIL + "+" + CONTRACTION + "?|" + PREFIX + HEAD
         + "+" + TAIL + "*" + CONTRACTION + r"?|\p{N}{1,3}|" + SYMBOLS
         + r"[\r\n/]*|" + SPACES)
TEKKEN = O200K.replace(CONTRACTION + "?", "").replace("{1,3}", "")
V1 = (r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
      r"\s+(?!\S)|\s+")
GPT2 = (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|"
        r"\s+(?!\S)|\s")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
          r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r'[!"#$%&' + r"'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            + SPACES]
# name of a .tiktoken: our pattern, tiktoken's
RANKS = {"cl100k": ("cl100k", CL100K), "o200k": ("o200k", O200K),
         "p50k": ("gpt2", GPT2), "llama3": ("llama3", LLAMA3),
         "llama4": ("o200k", O200K), "qwen": ("qwen2", QWEN2)}

HARD = list(" \n\r\t'aAbSsTtRreEVvlLmMdD019/.-+$_(<|>\u00e9\u0301\u0308\u01c5"
            "\u02b0\u4e2d\u6587\u30ab\u30fc\u30fb\u3001\u3002\u0663\u00b2"
            "\u2167\u00a0\u3000\u2028\u200b\u200d\u017f\u2019\u201c\U0001f600"
            "\u03a9\u03c0\x01\x1f\u0378\u00aa\u00df\u0e01\u0e31\u2581\ufb01"
            "\uff21\u212b")
WORDS = [" the", "ing", " don't", "<|endoftext|>", "<|im_start|>", "</s>", "  ",
         " 1234567", "\ud55c\uad6d\uc5b4", " \u043f\u0440\u0438\u0432\u0435\u0442",
         "\u65e5\u672c\u8a9e\u306e", "\r\n", "\n\n", "def f(x):\n    return x",
         "\u4e2d\u56fd", "\u0645\u0631\u062d\u0628\u0627",
         " \u0928\u092e\u0938\u094d\u0924\u0947", "e\u0301", "\u1100\u1161",
         "  \n  ", "aaaaaaaaaaaaaaaa", "HTTPServer", "we'LL", "<s>", "<unk>",
         "<0x0A>", "\u2581he", " the x", "e the"]


def hard_strings(n, seed):
    draw = random.Random(seed)

    def part():
        x = draw.random()
        return (draw.choice(HARD) if x < .5 else draw.choice(HARD[:12])
                if x < .8 else draw.choice(WORDS))
    return ["".join(part() for _ in range(draw.randint(1, 24)))
            for _ in range(n)]


class Programs:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder

    def run(self, name, *args):
        done = subprocess.run([os.path.join(self.build, name), *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.decode()}")
        return done.stdout

    def encode(self, texts, options, special):
        source = os.path.join(self.folder, "texts.jsonl")
        prefix = os.path.join(self.folder, "out")
        with open(source, "w", encoding="utf-8") as f:
            for text in texts:
                f.write(json.dumps({"text": text}) + "\n")
        self.run("gpt-preprocess", "--input", source, "--output-prefix",
                 prefix, "--force", "--no-resume", "--dtype", "int32",
                 "--workers", "2", "--quiet", "--special", special, *options)
        prefix += "_text_document"
        with open(prefix + ".idx", "rb") as f:
            index = f.read()
        n_sequences, n_documents = np.frombuffer(index, "<i8", 2, 18)
        lengths = np.frombuffer(index, "<i4", n_sequences, 34)
        documents = np.frombuffer(index, "<i8", n_documents,
                                  34 + 12 * n_sequences)
        ids = np.fromfile(prefix + ".bin", "<i4")
        ends = np.concatenate([[0], np.cumsum(lengths)])[documents]
        return [ids[a:b].tolist() for a, b in zip(ends, ends[1:])]

    def decode(self, options):
        """What the last texts become again."""
        out = self.run("gpt-dataset", "cat", "--jsonl",
                       os.path.join(self.folder, "out_text_document"),
                       *options)
        return [json.loads(line)["text"] for line in out.splitlines()]


def compare(name, texts, got, want):
    bad = [i for i in range(len(texts)) if got[i] != want[i]]
    print(f"{name}: {len(texts)} texts, {len(bad)} differ")
    for i in bad[:3]:
        print("   ", ascii(texts[i])[:300], "\n      ours", got[i][:60],
              "\n      want", want[i][:60])
    return not bad


def both(programs, name, options, texts, encode, decode):
    good = True
    for special in "plain", "parse":
        want = encode(texts, special == "plain")
        got = programs.encode(texts, options, special)
        good &= compare(f"{name} {special}", texts, got, want)
        if special == "plain" and decode:
            flat = [o for o in options if o != NO_TEMPLATE]
            good &= compare(f"{name} decoded", texts, programs.decode(flat),
                            [decode(ids) for ids in want])
    return good


# ---- Hugging Face ----

NO_TEMPLATE = "--tokenizer-hf-no-include-special-tokens"


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


LAST = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
FULL = pre_tokenizers.ByteLevel(add_prefix_space=False)
TRAINED = {
    "gpt2": [FULL],
    "gpt2-space": [pre_tokenizers.ByteLevel(add_prefix_space=True)],
    "llama3": [split(LLAMA3), LAST],
    "cl100k": [split(CL100K), LAST],
    "qwen2": [split(QWEN2), LAST],
    "qwen3.5": [split(QWEN35), LAST],
    "o200k": [split(O200K), LAST],
    "tekken": [split(TEKKEN), LAST],
    "starcoder": [pre_tokenizers.Digits(individual_digits=True), FULL],
    "deepseek3": [split(r) for r in DEEPSEEK] + [LAST],
}


def train_hf(name, steps, sample, path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = (steps[0] if len(steps) == 1
                       else pre_tokenizers.Sequence(steps))
    t.decoder = decoders.ByteLevel()
    if name.startswith("qwen"):
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=1200, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|endoftext|>", AddedToken(
        "<|im_start|>", rstrip=True, special=True, normalized=False)])
    t.add_tokens([AddedToken("e\u0301", normalized=True),
                  AddedToken("the", single_word=True),
                  AddedToken(" 123", lstrip=True),
                  AddedToken("\u4e2d", rstrip=True, normalized=False)])
    if name == "llama3":
        eod = t.token_to_id("<|endoftext|>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single="<|endoftext|> $A",
                special_tokens=[("<|endoftext|>", eod)])])
    t.save(path)
    if name == "llama3":
        with open(path, encoding="utf-8") as f:
            whole = json.load(f)
        whole["model"]["ignore_merges"] = True
        with open(path, "w", encoding="utf-8") as f:
            json.dump(whole, f)


def check_hf(programs, name, path, texts):
    t = Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()

    def encode(strings, plain):
        t.encode_special_tokens = plain
        return [e.ids for e in t.encode_batch(strings)]
    return both(programs, "hf " + name,
                ["--tokenizer-type", "HuggingFaceTokenizer",
                 "--tokenizer-model", path], texts, encode, None)


# ---- Hugging Face, vocabularies of characters ----

MARK = "\u2581"
UNDERLINED = normalizers.Replace(" ", MARK)
CHARS = {  # normalizer, pre-tokenizer, whether decoding drops a space
    "prepend": (normalizers.Sequence([normalizers.Prepend(MARK), UNDERLINED]),
                None, True),
    "replace": (UNDERLINED, pre_tokenizers.Split(" ", "merged_with_previous"),
                False),
    "first": (None, pre_tokenizers.Metaspace(MARK, "first", False), True),
    "always": (None, pre_tokenizers.Metaspace(MARK, "always", False), True),
    "never": (None, pre_tokenizers.Metaspace(MARK, "never", False), False),
}


def make_chars(name, sample, vocab_size=1000, alphabet=120):
    """A tokenizer like Llama 2's: <unk>, <s>, </s>, the bytes, then the merges
    of a vocabulary that lacks some characters of the sample."""
    t = Tokenizer(models.BPE())
    t.normalizer = UNDERLINED
    t.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "never", True)
    # no merge may make the text of a byte or of a special token
    sample = [s.replace("<", " ") for s in sample]
    counts = collections.Counter("".join(sample))
    known = set(sorted(counts, key=lambda c: (-counts[c], c))[:alphabet])
    sample = ["".join(c for c in s if c in known) for s in sample]
    t.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False))
    trained = json.loads(t.to_str())["model"]
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words += sorted(trained["vocab"], key=trained["vocab"].get)
    merges = [tuple(m) for m in trained["merges"]]
    for n in range(1, 4):  # runs of spaces, as code has them
        words.append(MARK * 2 ** n)
        merges.append((MARK * 2 ** (n - 1),) * 2)
    t = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, merges,
                             unk_token="<unk>", fuse_unk=True,
                             byte_fallback=True))
    normalizer, pre_tokenizer, strip = CHARS[name]
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(),
         decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if strip else []))
    t.add_special_tokens(["<unk>", "<s>", "</s>", AddedToken(
        "<|im_start|>", rstrip=True, special=True, normalized=False)])
    t.add_tokens([AddedToken("\n\n", normalized=False),
                  AddedToken("12", lstrip=True, normalized=False),
                  AddedToken("\u4e2d", rstrip=True, normalized=False),
                  AddedToken(MARK + "he", normalized=False),
                  AddedToken("e the", single_word=True, normalized=True),
                  AddedToken("e x", normalized=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def check_chars(programs, name, path, texts):
    t = Tokenizer.from_file(path)

    def encode(strings, plain):
        t.encode_special_tokens = plain
        return [e.ids[1:] for e in t.encode_batch(strings)]
    options = ["--tokenizer-type", "HuggingFaceTokenizer",
               "--tokenizer-model", path]
    return both(programs, "chars " + name, options + [NO_TEMPLATE], texts,
                encode, lambda ids: t.decode(ids, skip_special_tokens=False))


# ---- unigram ----

def steps(cls, *parts):
    return cls.Sequence(list(parts))


RUNS = normalizers.Replace(Regex(" {2,}"), " ")
META = pre_tokenizers.Metaspace
# normalizer, given the rules of a model; pre-tokenizer; decoder
UNIGRAM = {
    "t5": lambda rules: (
        steps(normalizers, normalizers.Precompiled(rules),
              normalizers.Strip(left=False, right=True),
              normalizers.Replace(Regex(" {2,}"), MARK)),
        META(), decoders.Metaspace()),
    "pegasus": lambda rules: (
        normalizers.Precompiled(rules),
        steps(pre_tokenizers, pre_tokenizers.WhitespaceSplit(),
              META(prepend_scheme="first")),
        decoders.Metaspace(prepend_scheme="never")),
    "albert": lambda rules: (
        steps(normalizers, normalizers.Replace("``", '"'), normalizers.NFKD(),
              normalizers.StripAccents(), normalizers.Lowercase(),
              normalizers.Precompiled(rules), RUNS),
        steps(pre_tokenizers, pre_tokenizers.Punctuation(),
              META(prepend_scheme="first")), decoders.Metaspace()),
    "bytes": lambda rules: (
        steps(normalizers, normalizers.Nmt(), normalizers.NFKC(),
              normalizers.Replace(Regex(r"\A +| +\z"), ""), RUNS,
              normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)),
        steps(pre_tokenizers, pre_tokenizers.Digits(True),
              pre_tokenizers.Split(Regex(r"\n+"), "merged_with_previous")),
        steps(decoders, decoders.Replace(MARK, " "), decoders.ByteFallback(),
              decoders.Fuse(), decoders.Strip(" ", 1, 0))),
    # what transformers 5 makes of a model with pieces of a user
    "listed": lambda rules: (
        steps(normalizers, normalizers.Precompiled(rules),
              normalizers.Replace(Regex(r"\A +| +\z"), ""), RUNS,
              normalizers.Replace(" ", MARK),
              normalizers.Replace(Regex(r"\A" + MARK), MARK * 2)),
        steps(pre_tokenizers, META(split=False), pre_tokenizers.Split(
            Regex(r"<\|endoftext\|>|HTTP|12|he|\+|\n|1"), "isolated")),
        steps(decoders, decoders.Replace(MARK, " "), decoders.Fuse(),
              decoders.Strip(" ", 1, 0))),
}


def make_unigram(name, sample, folder):
    """A model of SentencePiece, as transformers converts it."""
    kind = "unigram-bytes" if name == "bytes" else "unigram"
    path = os.path.join(folder, kind + ".model")
    train_sp(kind, sample, path)
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as f:
        model.ParseFromString(f.read())
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], 0,
                                 name == "bytes"))
    t.normalizer, t.pre_tokenizer, t.decoder = UNIGRAM[name](
        model.normalizer_spec.precompiled_charsmap)
    t.add_special_tokens(["<unk>", "<s>", "</s>", AddedToken(
        "<|im_start|>", rstrip=True, special=True, normalized=False)])
    t.add_tokens([AddedToken("\n\n", normalized=False),
                  AddedToken("12", lstrip=True, normalized=True),
                  AddedToken("The", single_word=True, normalized=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    return t


# ---- WordPiece and WordLevel ----

BERT = normalizers.BertNormalizer
CLEANED = decoders.WordPiece(cleanup=True)
WORD_MODELS = {  # model, normalizer, pre-tokenizer, decoder
    "wordpiece": (models.WordPiece, BERT(),
                  pre_tokenizers.BertPreTokenizer(), CLEANED),
    "wordpiece-cased": (models.WordPiece, BERT(lowercase=False),
                        pre_tokenizers.Whitespace(),
                        decoders.WordPiece(cleanup=False)),
    "wordpiece-steps": (models.WordPiece, steps(
        normalizers, normalizers.NFC(), BERT(False, False, True, False)),
        steps(pre_tokenizers, META(), pre_tokenizers.Whitespace(),
              pre_tokenizers.Digits(True)), CLEANED),
    "wordlevel": (models.WordLevel, BERT(strip_accents=False),
                  pre_tokenizers.Whitespace(), None),
}


def make_words(name, sample):
    model, normalizer, pre_tokenizer, decoder = WORD_MODELS[name]
    t = Tokenizer(model(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizer, pre_tokenizer
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    train = (trainers.WordPieceTrainer if model is models.WordPiece
             else trainers.WordLevelTrainer)
    t.train_from_iterator(sample, train(
        vocab_size=800, special_tokens=special, show_progress=False))
    if decoder:
        t.decoder = decoder
    t.add_tokens([AddedToken("\n\n", normalized=False),
                  AddedToken("12", lstrip=True, normalized=True),
                  AddedToken("The", single_word=True, normalized=True)])
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return t


# ---- tiktoken ----

def check_ranks(programs, name, path, texts):
    ours, regex = RANKS[name]
    with open(path, encoding="ascii") as f:
        ranks = {base64.b64decode(word): int(rank) for word, rank in
                 (line.split() for line in f if line.strip())}
    special = {"<|endoftext|>": max(ranks.values()) + 1,
               "<|im_start|>": max(ranks.values()) + 2}
    t = tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ranks,
                          special_tokens=special)

    def encode(strings, plain):
        return [t.encode(s, disallowed_special=(),
                         allowed_special=set() if plain else "all")
                for s in strings]
    return both(programs, "tiktoken " + name,
                ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", path,
                 "--tiktoken-pattern", ours, "--tokenizer-special-tokens",
                 *special], texts, encode, t.decode)


def check_megatron(programs, folder, texts):
    """Megatron's JSON: the ranks of single bytes and some pairs."""
    draw = random.Random(7)
    words = {bytes([b]) for b in range(256)}
    ranks = [bytes([b]) for b in range(256)]
    while len(ranks) < 900:
        word = draw.choice(ranks[-400:]) + draw.choice(ranks)
        if word not in words and len(word) < 9:
            words.add(word)
            ranks.append(word)
    path = os.path.join(folder, "ranks.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump([{"rank": i, "token_str": "", "token_bytes":
                    base64.b64encode(w).decode()} for i, w in enumerate(ranks)],
                  f)
    names = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
    names += [f"<SPECIAL_{i}>" for i in range(7, 20)]
    good = True
    for pattern, regex in ("v1", V1), ("v2", TEKKEN):
        t = tiktoken.Encoding(
            "megatron", pat_str=regex,
            mergeable_ranks={w: i + 20 for i, w in enumerate(ranks[:800])},
            special_tokens={w: i for i, w in enumerate(names)})

        def encode(strings, plain):
            return [t.encode(s, disallowed_special=(),
                             allowed_special=set() if plain else "all")
                    for s in strings]
        good &= both(programs, "megatron " + pattern,
                     ["--tokenizer-type", "TikTokenizer", "--tokenizer-model",
                      path, "--tiktoken-pattern", pattern, "--vocab-size",
                      "820", "--tiktoken-num-special-tokens", "20"],
                     texts, encode, t.decode)
    return good


# ---- SentencePiece ----

SP_TRAINED = {
    "unigram": dict(model_type="unigram"),
    "unigram-bytes": dict(model_type="unigram", byte_fallback=True,
                          user_defined_symbols=["<mark>", "\u4e2d\u6587"]),
    "bpe-nfkc": dict(model_type="bpe", user_defined_symbols=["ing", "  ", " the"]),
    "bpe-llama": dict(model_type="bpe", byte_fallback=True, split_digits=True,
                      normalization_rule_name="identity",
                      remove_extra_whitespaces=False,
                      allow_whitespace_only_pieces=True),
    "bpe-no-prefix": dict(model_type="bpe", add_dummy_prefix=False,
                          split_by_whitespace=False),
}


def train_sp(name, sample, path):
    lines = os.path.join(os.path.dirname(path), "sample.txt")
    with open(lines, "w", encoding="utf-8") as f:
        f.write("\n".join(s.replace("\n", " ").replace("\0", "")
                          for s in sample))
    sentencepiece.SentencePieceTrainer.train(
        input=lines, model_prefix=path[:-len(".model")], vocab_size=1000,
        character_coverage=0.98, minloglevel=2, hard_vocab_limit=False,
        **SP_TRAINED[name])


def check_sp(programs, name, path, texts):
    t = sentencepiece.SentencePieceProcessor(model_file=path)
    options = ["--tokenizer-type", "SentencePieceTokenizer",
               "--tokenizer-model", path]
    want = t.encode(texts)
    good = compare(f"sp {name}", texts, programs.encode(texts, options,
                                                        "plain"), want)
    got = programs.decode(options)
    return good & compare(f"sp {name} decoded", texts, got,
                          [t.decode(ids) for ids in want])


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--programs", required=True)
    parse.add_argument("--files")
    parse.add_argument("--count", type=int, default=1000)
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--only", default="")
    parse.add_argument("texts", nargs="*")
    a = parse.parse_args()
    print(f"tokenizers {tokenizers.__version__}, tiktoken "
          f"{tiktoken.__version__}, sentencepiece {sentencepiece.__version__}")
    texts = hard_strings(a.count, a.seed)
    sample = hard_strings(3000, 99)
    for path in a.texts:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        texts += [text[i:i + 20000] for i in range(0, len(text), 20000)]
        sample += text[:200000].splitlines()
    sample = [s[:2000] for s in sample if s.strip()]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(a.programs, folder)
        jobs = []
        for name in TRAINED:
            path = os.path.join(folder, f"hf-{name}.json")
            jobs.append((f"hf {name}", lambda n=name, p=path: (
                train_hf(n, TRAINED[n], sample, p),
                check_hf(programs, n, p, texts))[1]))
        for name in CHARS:
            path = os.path.join(folder, f"chars-{name}.json")
            jobs.append((f"chars {name}", lambda n=name, p=path: (
                make_chars(n, sample).save(p),
                check_chars(programs, n, p, texts))[1]))
        for name in UNIGRAM:
            path = os.path.join(folder, f"unigram-{name}.json")
            jobs.append((f"unigram {name}", lambda n=name, p=path: (
                make_unigram(n, sample, folder).save(p),
                check_chars(programs, n, p, texts))[1]))
        for name in WORD_MODELS:
            path = os.path.join(folder, f"{name}.json")
            jobs.append((name, lambda n=name, p=path: (
                make_words(n, sample).save(p),
                check_chars(programs, n, p, texts))[1]))
        jobs.append(("megatron",
                     lambda: check_megatron(programs, folder, texts)))
        for name in SP_TRAINED:
            path = os.path.join(folder, f"{name}.model")
            jobs.append((f"sp {name}", lambda n=name, p=path: (
                train_sp(n, sample, p), check_sp(programs, n, p, texts))[1]))
        for entry in sorted(os.listdir(a.files)) if a.files else []:
            path = os.path.join(a.files, entry)
            stem, kind = os.path.splitext(entry)
            check = {".json": check_hf, ".model": check_sp,
                     ".tiktoken": check_ranks}.get(kind)
            if check and (kind != ".tiktoken" or stem in RANKS):
                jobs.append((f"{kind[1:]} {stem}", lambda c=check, s=stem,
                             p=path: c(programs, s, p, texts)))
        for name, job in jobs:
            if a.only in name:
                good &= job()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
