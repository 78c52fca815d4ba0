#!/usr/bin/env python3
"""Compares gpt-preprocess's reader of JSON lines with Python's json module,
which Megatron's preprocessing uses: both must accept a line with random damage,
with the same text, or both must refuse it.

    json_parity.py PROGRAM [NUMBER-OF-LINES]

The script skips lines in which the programs differ on purpose: those with a
carriage return, which ends a line for Python. Half surrogate pairs are U+FFFD
here.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile

LINES = [
    '{"text":"abc","x":[1,2.5e3,{"y":null}],"z":true}',
    '{"id":-0.0,"text":["a","b\\n\\u00e9",""]}',
    '{ "text" : "\\ud83d\\ude00 q\\"\\\\" , "a":NaN }',
    '{"a":{"text":"no","b":[[],{}]},"text":"yes \u00e9"}',
    '{"text":"x","text":"y","n":[-1,0.5,1E5,Infinity]}',
]
BITS = ['"', "\\", "{", "}", "[", "]", ",", ":", "0", "1", "-", ".", "e", "E",
        "+", "null", "true", "NaN", "Infinity", " ", "\t", "\\u", "d83d",
        "text", '"text":', "\u00e9", "\x00", "\x01", "\x7f", "\\n", "\\x",
        '"a":1,']


def damaged(rng):
    line = rng.choice(LINES)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(line) + 1)
        cut = rng.choice([0, 0, 1, 1, 2, 5])
        bit = rng.choice(BITS) if rng.random() < 0.7 else ""
        line = line[:at] + bit + line[at + cut:]
    line = line.encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(line) + 1)
        line = line[:at] + bytes([rng.choice(b"\xff\xc3\xe4\x80\xed")]) \
            + line[at:]
    return line


def by_python(line):
    """The text as bytes, None for a line to be refused."""
    try:
        text = json.loads(line.decode() + "\n")["text"]
    except (ValueError, KeyError, TypeError):
        return None
    parts = text if isinstance(text, list) else [text]
    if not all(isinstance(part, str) for part in parts):
        return None
    return re.sub("[\ud800-\udfff]", "\ufffd", "".join(parts)).encode()


def by_program(program, line, folder):
    source = os.path.join(folder, "line.jsonl")
    prefix = os.path.join(folder, "out")
    with open(source, "wb") as f:
        f.write(line + b"\n")
    r = subprocess.run(
        [program, "--input", source, "--output-prefix", prefix, "--force",
         "--tokenizer-type", "ByteTokenizer", "--workers", "1", "--quiet"],
        capture_output=True, check=False)
    if r.returncode:
        return None if r.returncode == 3 else r.stderr
    with open(prefix + "_text_document.bin", "rb") as f:
        return f.read()[::2]


def main():
    program = sys.argv[1]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(5)
    taken = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(n):
            line = damaged(rng)
            want, got = by_python(line), by_program(program, line, folder)
            taken += want is not None
            if got != want:
                bad += 1
                print(f"# {line}: Python {want}, here {got}")
    print("1..1")
    print(f"{'not ' if bad else ''}ok 1 - {n} lines, {taken} good ones, "
          "as Python's json takes them")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
