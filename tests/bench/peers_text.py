#!/usr/bin/env python3
"""Times gpt-preprocess beside tiktoken, Hugging Face tokenizers, gigatoken and
the pattern of Megatron's preprocess_data.py, with the same documents, on the
same core, in one run.

    peers_text.py --build build --vocab DIR [--cpu N] [--rounds N]
        [--limit BYTES] [--long BYTES] [--keep DIR] [--only SECTION,...]
        NAME=PATH[:PATH...] ...

A path is a file or a folder, as for tests/parity/tokenizer_parity.py; repeated
lines are removed. Every round times each program once; the figure is the
median, followed by the slowest and the fastest. Peers without a cache get a
part of the text, whose size is printed. "cold": caches start empty; "warm": the
same text again.

The sections are a table for each NAME, and of the first text: xz (beside
`xz -dc`), two-cores (two workers beside one), memory, one-letter. xz and
two-cores use --long bytes, so that the time to start is small: the text, and
then as often as needed its lines again, each cut at a space in its middle, with
other ends for the beginnings. No line occurs twice; new words are rarer than in
natural text. --keep DIR keeps these files and uses them again.

With GPT_BENCH_CPU set, the figures are processor time, not elapsed time.
"""
import argparse
import contextlib
import functools
import glob
import importlib
import io
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import peers_table

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "parity"))
DOCUMENT = 4000  # characters
PART = {"tiktoken": 16e6, "HF": 3e6}  # bytes for those without a cache
CPU_TIME = "GPT_BENCH_CPU" in os.environ


# ---- clocks ----

def used():
    """Seconds of this process and of the children that have ended."""
    own, others = (resource.getrusage(w) for w in
                   (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def seconds(run):
    clock = used if CPU_TIME else time.perf_counter
    tidy()
    begin = clock()
    run()
    return clock() - begin


# ---- those that are timed: functions from texts to a list of (name, run) ----

def write_lines(path, docs):
    with open(path, "w", encoding="utf-8") as f:
        for d in docs:
            f.write(json.dumps({"text": d}, ensure_ascii=False) + "\n")


def halves(line):
    space = line.find(" ", len(line) // 2)
    return (line, "") if space < 0 else (line[:space], line[space:])


def lengthened(docs, limit):
    """The documents, and more made of their lines until there are `limit`
    bytes."""
    done, dice = 0, random.Random(1)
    lines = [halves(line) for d in docs for line in d.split("\n")]
    ends = [end for _, end in lines]
    while docs:
        for d in docs:
            done += len(d.encode())
            yield d
            if done >= limit:
                return
        dice.shuffle(ends)
        text = "\n".join(begin + end for (begin, _), end in zip(lines, ends))
        docs = [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


class Texts:
    def __init__(self, docs, folder):
        self.docs = docs
        self.size = sum(len(d.encode()) for d in docs)
        self.jsonl = os.path.join(folder, "corpus.jsonl")
        self.plain = os.path.join(folder, "corpus.txt")
        self.out = os.path.join(folder, "out")
        write_lines(self.jsonl, docs)
        with open(self.plain, "w", encoding="utf-8") as f:
            f.writelines(docs)

    def part(self, limit):
        """Documents from all over the text, about `limit` bytes."""
        step = max(1, int(self.size / limit))
        return self.docs[::step]


def documents(args, paths):
    parity = importlib.import_module("tokenizer_parity")
    with contextlib.redirect_stdout(io.StringIO()):  # what each file holds
        return [text[i:i + DOCUMENT]
                for text in parity.documents(paths, args.limit)
                for i in range(0, len(text), DOCUMENT)]


def size_of(docs):
    return sum(len(d.encode()) for d in docs)


def command(args, source, out, workers):
    return [os.path.join(args.build, "gpt-preprocess"), "--input", source,
            "--output-prefix", out, "--vocab-file", args.vocab + "/vocab.json",
            "--merge-file", args.vocab + "/merges.txt", "--append-eod",
            "--force", "--quiet", "--workers", str(workers)]


numbers = itertools.count()
written = []


def tidy():
    """Takes the last rounds' files away, which is not the next one's work."""
    while written:
        for path in glob.glob(glob.escape(written.pop()) + "_text_*"):
            os.remove(path)


def preprocess(args, source, out, workers):
    """To a new name: see tidy()."""
    written.append(f"{out}-{next(numbers)}")
    subprocess.run(command(args, source, written[-1], workers), check=True)


def ours(args, texts):
    yield ("gpt-preprocess, JSON lines to .bin/.idx", texts.size,
           lambda: preprocess(args, texts.jsonl, texts.out, 1))


def by_gigatoken(args, texts):
    giga = importlib.import_module("gigatoken")
    gpt2_oracle = importlib.import_module("gpt2_oracle")
    model = texts.out + "-tokenizer.json"
    gpt2_oracle.by_hf(args.vocab).save(model)
    separator = b"<|endoftext|>"
    data = separator.join(d.encode() for d in texts.docs)
    fresh = [giga.Tokenizer(model) for _ in range(2 * args.rounds)]
    used_up = []

    def cold():
        used_up.append(fresh.pop())
        warm()

    def warm():
        used_up[-1].encode_batch(giga.BytesSource(data, separator),
                                 parallel=False)

    def jsonl():
        fresh.pop().encode_files(giga.JsonlFileSource([texts.jsonl]),
                                 parallel=False)

    yield "gigatoken, in memory, cold", texts.size, cold
    yield "gigatoken, in memory, warm", texts.size, warm
    yield "gigatoken, JSON lines to memory, cold", texts.size, jsonl


def by_tiktoken(args, texts):
    tok = importlib.import_module("gpt2_oracle").by_tiktoken(args.vocab)
    docs = texts.part(PART["tiktoken"])
    yield ("tiktoken, batch", size_of(docs),
           lambda: tok.encode_ordinary_batch(docs, num_threads=1))


def by_hf(args, texts):
    tok = importlib.import_module("gpt2_oracle").by_hf(args.vocab)
    docs = texts.part(PART["HF"])
    yield "Hugging Face, batch", size_of(docs), lambda: tok.encode_batch(docs)
    yield ("Hugging Face, one by one", size_of(docs),
           lambda: [tok.encode(d) for d in docs])


class Worker:
    """What a process of preprocess_data.py does with a line."""

    def __init__(self, vocab):
        self.vocab = vocab

    def start(self):
        Worker.tok = importlib.import_module("gpt2_oracle").by_hf(self.vocab)

    def encode(self, line):
        return Worker.tok.encode(json.loads(line)["text"]).ids, len(line)


def by_pool(args, texts):
    numpy = importlib.import_module("numpy")
    lines = [json.dumps({"text": d}) for d in texts.part(PART["HF"])]
    worker = Worker(args.vocab)

    def run():
        with multiprocessing.Pool(1, initializer=worker.start) as pool, \
                open(texts.out + ".pool", "wb") as out:
            for ids, _ in pool.imap(worker.encode, lines, 32):
                out.write(numpy.array(ids, numpy.uint16).tobytes())
            pool.close()
            pool.join()

    yield ("preprocess_data.py's pattern, 1 worker",
           size_of(texts.part(PART["HF"])), run)


# the modules that each needs
PEERS = [(("gigatoken", "tokenizers"), by_gigatoken),
         (("tiktoken",), by_tiktoken),
         (("tokenizers",), by_hf), (("tokenizers",), by_pool)]


def absent(modules):
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            yield module


# ---- tables ----

def row(subject, name, rates, base):
    middle = statistics.median(rates)
    note = f"{base / middle:8.2f}" if base else ""
    peers_table.add(subject, name, rates, "MB/s",
                    base / middle if base else None)
    print(f"{name:42}{middle:9.1f}  {min(rates):8.1f} {max(rates):8.1f}{note}",
          flush=True)
    return middle


def in_memory(args, texts):
    """The two rows of bench_text for the encoder alone."""
    env = dict(os.environ, GPT_BENCH_TEXT=texts.plain, OMP_NUM_THREADS="1",
               GPT2_VOCAB_DIR=args.vocab)
    out = subprocess.run([os.path.join(args.build, "tests/bench/bench_text")],
                         env=env, check=True, capture_output=True, text=True)
    for line in out.stdout.splitlines():
        cells = [c.strip() for c in line.split("\t")]
        if cells[0].startswith("encoder"):
            yield "gpt-preprocess's " + cells[0], float(cells[1])


def compare(args, name, texts):
    print(f"\n{name}: {texts.size / 1e6:.1f} MB, {len(texts.docs)} documents; "
          f"MB/s of text, {'processor time' if CPU_TIME else 'wall clock'}")
    print(f"{'':42}{'median':>9}  {'slowest':>8} {'fastest':>8}   ours/it")
    runs = list(ours(args, texts))
    for modules, peer in PEERS:
        missing = list(absent(modules))
        if missing:
            print(f"# absent: {', '.join(missing)}, for {peer.__name__}")
            continue
        runs += peer(args, texts)
    rates = {title: [] for title, _, _ in runs}
    for _ in range(args.rounds):
        for title, size, run in runs:
            rates[title].append(size / 1e6 / seconds(run))
    base = 0
    for title, _, _ in runs:
        middle = row(name, title, rates[title], base)
        base = base or middle
    for title, rate in in_memory(args, texts):
        row(name, title, [rate], 0)
    print(f"# parts: tiktoken {size_of(texts.part(PART['tiktoken'])) / 1e6:.1f}"
          f" MB, Hugging Face {size_of(texts.part(PART['HF'])) / 1e6:.1f} MB")


# ---- gpt-preprocess alone: long text, memory, one letter ----

def wall(run):
    tidy()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def alternate(rounds, *runs):
    """Seconds by the clock of each, timed in turns."""
    times = [[] for _ in runs]
    for _ in range(rounds):
        for t, run in zip(times, runs):
            t.append(wall(run))
    return times


def show(title, times):
    print(f"  {title:44}{statistics.median(times):8.3f} s  "
          f"({min(times):.3f}-{max(times):.3f})", flush=True)


def ratio(title, over, under):
    """The median of the rounds' own, and the least and the most."""
    each = [a / b for a, b in zip(over, under)]
    print(f"  {title:44}{statistics.median(each):8.3f}    "
          f"({min(each):.3f}-{max(each):.3f})", flush=True)


class Long:
    """The long text as JSON lines, and compressed: in one block, and in
    several, which threads can share."""

    def __init__(self, args, docs, folder):
        folder = args.keep or folder
        self.jsonl = os.path.join(folder, "long.jsonl")
        self.one = self.jsonl + ".one.xz"
        self.many = self.jsonl + ".many.xz"
        self.out = os.path.join(folder, "long-out")
        if not os.path.exists(self.jsonl):
            write_lines(self.jsonl, lengthened(docs(), args.long))
        print(f"\nlong text: {os.path.getsize(self.jsonl) / 1e6:.1f} MB of "
              f"JSON lines; seconds by the clock, {args.rounds} rounds")

    def compress(self):
        self.make(self.one, "-T1")
        self.make(self.many, "-T2", "--block-size=16MiB")
        print(f"  {os.path.getsize(self.one) / 1e6:.1f} MB of .xz")

    def make(self, path, *options):
        if not os.path.exists(path):
            with open(path + ".part", "wb") as out:
                subprocess.run(["xz", "-2", "-c", *options, self.jsonl],
                               check=True, stdout=out)
            os.rename(path + ".part", path)


def compressed(args, text, both):
    if not shutil.which("xz"):
        print("# absent: xz")
        return
    text.compress()
    for name, path, n in (("one block", text.one, 1),
                          ("several blocks", text.many, 2)):
        if len(both) < n:
            print("# absent: a second core")
            continue
        times = alternate(
            args.rounds,
            lambda: subprocess.run(["xz", "-dc", f"-T{n}", path], check=True,
                                   stdout=subprocess.DEVNULL),
            lambda: preprocess(args, path, text.out, n),
            lambda: preprocess(args, text.jsonl, text.out, n))
        show(f"xz -dc -T{n} >/dev/null, {name}", times[0])
        show(f"gpt-preprocess --workers {n}, from it", times[1])
        show(f"gpt-preprocess --workers {n}, from JSON lines", times[2])
        ratio("from .xz, of xz -dc", times[1], times[0])


def cores(args, text, both):
    def one():
        os.sched_setaffinity(0, {args.cpu})
        preprocess(args, text.jsonl, text.out, 1)
        os.sched_setaffinity(0, both)

    if len(both) < 2:
        print("# absent: a second core")
        return
    alone, two = alternate(
        args.rounds, one, lambda: preprocess(args, text.jsonl, text.out, 2))
    show("one worker, all on one core", alone)
    show(f"two workers on {len(both)} cores", two)
    ratio("faster with two", alone, two)


def peak(args, source, out, n):
    """Mebibytes. GNU time, because a child of this process would begin with
    the peak of this one."""
    got = subprocess.run(["/usr/bin/time", "-f", "%M",
                          *command(args, source, out, n)], check=True,
                         stderr=subprocess.PIPE, text=True)
    return int(got.stderr.split()[-1]) // 1024


def memory(args, texts):
    if not os.path.exists("/usr/bin/time"):
        print("# absent: GNU time, for peak memory")
        return
    twice = texts.jsonl + ".twice"
    with open(twice, "wb") as out:
        for _ in range(2):
            with open(texts.jsonl, "rb") as f:
                out.write(f.read())
    for n in (1, 2):
        print(f"peak memory with {n} of them: "
              f"{peak(args, texts.jsonl, texts.out, n)} MiB, of twice the "
              f"text {peak(args, twice, texts.out, n)} MiB")


def one_letter(args, texts):
    path = texts.jsonl + ".a"
    for exponent in (7, 8):
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps({"text": "a" * 10 ** exponent}) + "\n")
        t = seconds(lambda: preprocess(args, path, texts.out, 1))
        print(f'"a" * 10^{exponent} in one document: {t:.3f} s')


LONG = {"xz": compressed, "two-cores": cores}
SHORT = {"memory": memory, "one-letter": one_letter}


def by_itself(args, wanted, docs, folder):
    both = os.sched_getaffinity(0)
    if wanted(*LONG):
        text = Long(args, docs, folder)
        for section in filter(wanted, LONG):
            LONG[section](args, text, both)
    if wanted(*SHORT):
        texts = Texts(docs(), folder)
        for section in filter(wanted, SHORT):
            SHORT[section](args, texts)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--vocab", required=True)
    p.add_argument("--cpu", type=int, default=0)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=200e6)
    p.add_argument("--long", type=float, default=320e6)
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--only", metavar="SECTION,...")
    p.add_argument("texts", nargs="+", metavar="NAME=PATH[:PATH...]")
    args = p.parse_args()
    # before anything starts threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    both = os.sched_getaffinity(0)
    only = args.only.split(",") if args.only else None

    def wanted(*sections):
        return only is None or any(s in only for s in sections)

    for i, text in enumerate(args.texts):
        name, _, paths = text.partition("=")
        if not wanted(name, *(() if i else (*LONG, *SHORT))):
            continue
        with tempfile.TemporaryDirectory(prefix="gpt-peers.") as folder:
            docs = functools.lru_cache(
                functools.partial(documents, args, paths.split(":")))
            if wanted(name):
                os.sched_setaffinity(0, {args.cpu})
                compare(args, name, Texts(docs(), folder))
                os.sched_setaffinity(0, both)
            if i == 0:
                by_itself(args, wanted, docs, folder)


if __name__ == "__main__":
    main()
