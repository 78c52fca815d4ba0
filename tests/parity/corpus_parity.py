"""Compares gpt-preprocess with megatron-core's IndexedDatasetBuilder and
tiktoken, byte for byte: plain and compressed input, any number of workers, and
shards."""
import argparse
import bz2
import filecmp
import glob
import gzip
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

from gpt2_oracle import by_tiktoken

# What a machine has: language -> patterns of files. Catalogues of messages are
# there in most languages.
SOURCES = {
    **{lang: [f"/usr/share/debian-reference/*.{lang}.html",
              f"/usr/share/man/{lang.split('-')[0]}*/*/*.gz",
              f"/usr/share/locale*/{lang.split('-')[0]}*/LC_MESSAGES/*.mo"]
       for lang in ("de", "es", "fr", "it", "ja", "pt", "zh-cn", "ru", "pl",
                    "ko", "ar", "hi", "tr", "uk", "vi", "el", "he", "th")},
    "en": ["/usr/share/debian-reference/*.en.html", "/usr/share/doc/*/*.gz",
           "/usr/share/doc/*/*.txt", "/usr/share/doc/*/*.html",
           "/usr/share/man/man*/*.gz", "/usr/share/info/*.gz"],
    "c": ["/usr/include/**/*.h", "/usr/include/c++/**/*"],
    "python": ["/usr/lib/python3*/**/*.py"],
    "perl": ["/usr/share/perl*/**/*.p[lm]"],
}
PIECE = 50000  # characters of a document at most


def read_text(path):
    """The text of a file, unpacked; None for what is no text."""
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(
        os.path.splitext(path)[1], open)
    try:
        with opener(path, "rb") as f:
            data = f.read()
        if path.endswith(".mo"):
            return "\n".join(messages(data))
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, IndexError, ValueError):
        return None


def messages(data):
    """The translations in a catalogue of gettext."""
    if data[:4] != b"\xde\x12\x04\x95":
        return
    number = int.from_bytes(data[8:12], "little")
    table = int.from_bytes(data[16:20], "little")
    for i in range(number):
        at = table + 8 * i
        length = int.from_bytes(data[at:at + 4], "little")
        start = int.from_bytes(data[at + 4:at + 8], "little")
        yield data[start:start + length].decode("utf-8").replace("\0", "\n")


def documents(patterns):
    for pattern in patterns:
        for path in sorted(glob.glob(pattern, recursive=True)):
            if not os.path.isfile(path):
                continue
            text = read_text(path)
            for at in range(0, len(text or ""), PIECE):
                yield text[at:at + PIECE]


def write_corpus(folder, megabytes):
    """One file a language, an even share of the bytes for each as far as there
    is text; a few documents are lists, or empty. Returns their bytes."""
    rest, left, sizes = megabytes * 1000000, len(SOURCES), {}
    chance = random.Random(1)
    for lang in sorted(SOURCES, key=lambda l: (l in ("en", "c"), l)):
        share, size = rest // left, 0
        path = os.path.join(folder, lang + ".jsonl")
        with open(path, "w", encoding="utf-8", newline="\n") as f:
            for text in documents(SOURCES[lang]):
                if size >= share:
                    break
                draw = chance.random()
                value = ("" if draw < 0.01 else
                         text.split("\n\n") if draw < 0.03 else text)
                line = json.dumps({"lang": lang, "text": value},
                                  ensure_ascii=draw > 0.8)
                f.write(line + "\n")
                size += len(line.encode()) + 1
        if size == 0:
            os.remove(path)
        sizes[lang] = size
        rest, left = rest - size, left - 1
    return sizes


def build_reference(folder, prefix, tok):
    """As Megatron-LM's preprocess_data.py with --append-eod."""
    import numpy
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    for path in sorted(glob.glob(folder + "/*.jsonl")):
        with open(path, encoding="utf-8") as f:
            while lines := list(itertools.islice(f, 2000)):
                add_documents(builder, lines, tok, torch)
    builder.finalize(prefix + ".idx")


def add_documents(builder, lines, tok, torch):
    values = [json.loads(line)["text"] for line in lines]
    values = [v if isinstance(v, list) else [v] for v in values]
    ids = iter(tok.encode_ordinary_batch([s for v in values for s in v],
                                         num_threads=2))
    for value in values:
        sentences = [s for s in (next(ids) for _ in value) if s]
        lengths = [len(s) for s in sentences]
        flat = [i for s in sentences for i in s]
        if flat:
            flat.append(tok.eot_token)
            lengths[-1] += 1
        builder.add_document(torch.IntTensor(flat), lengths)


class Checker:
    def __init__(self, build, vocab, folder):
        self.build, self.folder = build, folder
        self.options = ["--vocab-file", vocab + "/vocab.json", "--merge-file",
                        vocab + "/merges.txt", "--append-eod", "--quiet"]
        self.number = self.failed = 0

    def run(self, program, *args):
        subprocess.run([os.path.join(self.build, program), *args], check=True,
                       cwd=self.folder)

    def preprocess(self, prefix, *inputs_and_options):
        self.run("gpt-preprocess", "--output-prefix", prefix, *self.options,
                 "--input", *inputs_and_options)

    def compare(self, name, prefix):
        same = all(filecmp.cmp(f"{self.folder}/reference{ext}",
                               f"{self.folder}/{prefix}{ext}", shallow=False)
                   for ext in (".bin", ".idx"))
        self.number += 1
        self.failed += not same
        print("ok" if same else "not ok", self.number, "-", name, flush=True)
        for path in glob.glob(f"{self.folder}/{prefix}*"):
            os.remove(path)


def pack(folder, packed, program, suffix):
    os.makedirs(packed, exist_ok=True)
    for path in sorted(glob.glob(folder + "/*.jsonl")):
        target = os.path.join(packed, os.path.basename(path) + suffix)
        with open(target, "wb") as f:
            subprocess.run([*program, "-c", path], stdout=f, check=True)


def check_all(check):
    for workers in (1, 2, 7):
        prefix = f"w{workers}"
        check.preprocess(prefix, "corpus", "--workers", str(workers))
        check.compare(f"{workers} workers", prefix + "_text_document")
    for program, suffix in ((["gzip", "-1"], ".gz"), (["xz", "-0"], ".xz"),
                            (["zstd", "-q", "-1"], ".zst")):
        if not shutil.which(program[0]):
            continue
        packed = os.path.join(check.folder, "packed")
        pack(os.path.join(check.folder, "corpus"), packed, program, suffix)
        check.preprocess("p", packed)
        check.compare("from " + suffix, "p_text_document")
        shutil.rmtree(packed)
    for shards in (2, 13):
        for i in range(shards):
            check.preprocess("s", "corpus", "--shard", f"{i + 1}/{shards}")
        check.run("gpt-dataset", "merge", "--quiet", "--output-prefix", "m",
                  *sorted(os.path.basename(p)[:-4] for p in
                          glob.glob(check.folder + "/s-*_text_document.idx")))
        check.compare(f"{shards} shards, merged", "m")
        for path in glob.glob(check.folder + "/s-*"):
            os.remove(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--megabytes", type=int, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpt-corpus.") as folder:
        os.mkdir(folder + "/corpus")
        sizes = write_corpus(folder + "/corpus", args.megabytes)
        have = {lang: n for lang, n in sizes.items() if n}
        print("#", round(sum(have.values()) / 1e6, 1), "MB in", len(have),
              "languages:", ", ".join(f"{k} {v / 1e6:.1f}"
                                      for k, v in have.items()), flush=True)
        build_reference(folder + "/corpus", folder + "/reference",
                        by_tiktoken(args.vocab))
        check = Checker(os.path.abspath(args.build),
                        os.path.abspath(args.vocab), folder)
        check_all(check)
    print(f"1..{check.number}")
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
