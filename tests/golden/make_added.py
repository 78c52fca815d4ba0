#!/usr/bin/env python3
"""Makes tests/golden/families/added.json: tokens that are added to qwen2.json,
drawn at random, many of them white space with flags, with the ids that the
library gives a text. Where one token takes the white space of another that
takes what is before it, the library fails; such cases are left out.

    tests/golden/make_added.py

Needs tokenizers.
"""
import json
import os
import random

from tokenizers import Tokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
CONTENTS = [" ", "  ", "\n", "\n\n", "\t", "\u3000", "a", " b", "b ", "<", "|"]
FLAGS = ["single_word", "lstrip", "rstrip", "normalized"]
LETTERS = "   \n\n\t\u3000ab<|"


def main():
    draw = random.Random(3)
    with open(os.path.join(OUT, "qwen2.json"), encoding="utf-8") as f:
        whole = json.load(f)
    before, cases = whole["added_tokens"], []
    while len(cases) < 60:
        contents = [c for c in draw.sample(CONTENTS, 3)
                    if c not in whole["model"]["vocab"]]
        added = [{"id": 305 + i, "content": content, "special": False,
                  **{flag: draw.random() < 0.5 for flag in FLAGS}}
                 for i, content in enumerate(contents)]
        text = "".join(draw.choices(LETTERS, k=24))
        whole["added_tokens"] = before + added
        if not added:
            continue
        try:
            ids = Tokenizer.from_str(json.dumps(whole)).encode(text).ids
        except BaseException:  # a panic of Rust is no Exception
            continue
        cases.append({"added": added, "text": text, "ids": ids})
    with open(os.path.join(OUT, "added.json"), "w", encoding="utf-8") as f:
        f.write('{"cases":[\n' + ",\n".join(
            json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
