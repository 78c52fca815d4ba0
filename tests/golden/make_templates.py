#!/usr/bin/env python3
"""Makes tests/golden/families/templates.json: post-processors for qwen2.json,
single templates and sequences of them, with the ids that the library gives a
text. "ids" is null where the library fails or has the text not once.

    tests/golden/make_templates.py

Needs tokenizers.
"""
import itertools
import json
import os

from tokenizers import Tokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families")
TEXT = "x y"
IDS = {"h": [71], "e": [68], "lo": [75, 78]}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
         "use_regex": True}


def item(name):
    kind = "Sequence" if name in "AB" else "SpecialToken"
    return {kind: {"id": name, "type_id": 0}}


def template(single, pair="A B"):
    return {"type": "TemplateProcessing",
            "single": [item(n) for n in single.split()],
            "pair": [item(n) for n in pair.split()],
            "special_tokens": {
                n: {"id": n, "ids": ids, "tokens": ["?"] * len(ids)}
                for n, ids in IDS.items() if n in f"{single} {pair}".split()}}


def sequence(*parts):
    return {"type": "Sequence", "processors": list(parts)}


def ends(kind, **more):
    return {"type": kind, "sep": ["e", IDS["e"][0]], "cls": ["h", IDS["h"][0]],
            **more}


BERT = ends("BertProcessing")
ROBERTA = ends("RobertaProcessing", trim_offsets=True, add_prefix_space=False)
SINGLE = ["A", "h A", "A e", "h A e", "lo A", "h e A"]
PAIR = ["A B", "e A B", "A e B", "B A", "A B lo", "A", "B h"]


def main():
    first = [template(s) for s in SINGLE]
    second = [template("lo A", p) for p in PAIR]
    tried = first + [sequence(a, b) for a, b in
                     itertools.product(first, second)]
    tried += [sequence(), sequence(BYTES, first[1]),
              sequence(first[1], BYTES, second[2]),
              sequence(sequence(first[2]), second[3]),
              sequence(first[1], second[0], second[1]),
              sequence(first[0], first[0], first[3]),
              template("h"), template("A h A"), template("B"),
              template("zz A"), BERT, ROBERTA, sequence(BYTES, ROBERTA),
              sequence(first[0], BERT), sequence(ROBERTA, BERT)]
    with open(os.path.join(OUT, "qwen2.json"), encoding="utf-8") as f:
        whole = json.load(f)
    text = Tokenizer.from_str(json.dumps(whole)).encode(TEXT).ids
    cases = []
    for processor in tried:
        whole["post_processor"] = processor
        try:
            ids = Tokenizer.from_str(json.dumps(whole)).encode(TEXT).ids
        except BaseException:  # a panic of the library is none of Exception
            ids = None
        times = 0 if ids is None else sum(
            ids[i:i + len(text)] == text for i in range(len(ids)))
        cases.append({"ids": ids if times == 1 else None,
                      "post_processor": processor})
    with open(os.path.join(OUT, "templates.json"), "w",
              encoding="utf-8") as f:
        f.write('{"text":' + json.dumps(TEXT) + ',\n"cases":[\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
