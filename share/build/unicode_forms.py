#!/usr/bin/env python3
"""Writes common/text/unicode_forms_table.c: what normalizers of a
tokenizer.json do beside form C: compatibility mappings, marks, punctuation,
control characters, lower case, and the classes of characters that make
graphemes.

Each is of the version that Hugging Face tokenizers (0.23.3) has of it. Mappings
and marks are those of Unicode 9.0: characters keep their mappings for ever, so
that a later database without the characters that came after 9.0 has them, and
Perl knows the age of characters. Categories do not stay; CHANGED has those that
were others. Lower case is asked of the library. Graphemes are of 17.0.

Needs perl, and the PyPI packages unicodedata2 17.0.1, regex 2026.5.9 and
tokenizers 0.23.3.

    python3 share/build/unicode_forms.py > common/text/unicode_forms_table.c
"""
import sys

import regex
import tokenizers
import unicodedata2 as ucd
from tokenizers import normalizers

from unicode_arrays import (ALL, BLOCK, HANGUL, array, groups_of, present_in,
                            ranges_of)

# 9.0 had U+111C9 as punctuation, and these two signs as marks.
CHANGED = {0x111C9: False, 0x1CF2: True, 0x1CF3: True}
# Punctuation is that of 8.0, where U+166D was some, too, and of ASCII all that
# is neither a letter, a digit, a space nor a control character.
PUNCTUATION = {0x111C9, 0x166D} | {ord(c) for c in "$+<=>^`|~"}
# What BertNormalizer drops is of 8.0, too: of marks those without width, of
# which these were others then, and of other characters the CONTROL ones.
FLAT = {0x111C9: False, 0x1885: False, 0x1886: False, 0xA9BD: False,
        0x1734: True, 0x1171E: True}
CONTROL = {"Cc", "Cf", "Co"}
# In the order of enum gpt_grapheme_class; later rows take from earlier ones.
CLASSES = [
    ("OTHER", None), ("CONTROL", r"\p{GCB=Control}"), ("CR", r"\r"),
    ("LF", r"\n"), ("EXTEND", r"\p{GCB=Extend}"),
    ("JOINED", r"[\p{GCB=Extend}&&\p{InCB=Extend}]"),
    ("LINKER", r"\p{InCB=Linker}"), ("ZWJ", r"\p{GCB=ZWJ}"),
    ("SPACING", r"\p{GCB=SpacingMark}"), ("PREPEND", r"\p{GCB=Prepend}"),
    ("REGIONAL", r"\p{GCB=Regional_Indicator}"), ("L", r"\p{GCB=L}"),
    ("V", r"\p{GCB=V}"), ("T", r"\p{GCB=T}"), ("LV", r"\p{GCB=LV}"),
    ("LVT", r"\p{GCB=LVT}"), ("CONSONANT", r"\p{InCB=Consonant}"),
    ("PICTURE", r"\p{ExtPict}"),
]


def lower_ranges():
    """first, last, step, what is added: letters in a row, or every second."""
    lower = normalizers.Lowercase()
    rows = []
    for cp in ALL:
        small = lower.normalize_str(chr(cp)) if cp else "\0"
        if small == chr(cp):
            continue
        if len(small) > 1:
            assert cp == 0x130  # "i" and a dot above, written in the code
            continue
        by = ord(small) - cp
        last = rows[-1] if rows else None
        if last and last[3] == by and cp - last[1] in (1, 2) and (
                last[0] == last[1] or cp - last[1] == last[2]):
            last[2] = cp - last[1]
            last[1] = cp
        else:
            rows.append([cp, cp, 1, by])
    return rows


def grapheme_table():
    table = [0] * 0x110000
    for number, (_, expression) in enumerate(CLASSES):
        if not expression:
            continue
        for cp in ALL:
            if regex.match(expression, chr(cp), regex.V1):
                table[cp] = number
    return groups_of(table)


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    assert ucd.unidata_version.startswith("17."), ucd.unidata_version
    known = present_in("9.0")
    parts, mappings = [], []
    for cp in known:
        full = ucd.normalize("NFKD", chr(cp))
        if cp in HANGUL or full == ucd.normalize("NFD", chr(cp)):
            continue
        mappings.append((cp, len(parts), len(full)))
        parts += [ord(c) for c in full]
    marks = ranges_of([cp for cp in known if CHANGED.get(
        cp, ucd.category(chr(cp))[0] == "M")])
    signs = ranges_of([cp for cp in present_in("8.0") if cp in PUNCTUATION
                       or ucd.category(chr(cp))[0] == "P"])
    flat = ranges_of([cp for cp in present_in("8.0")
                      if FLAT.get(cp, ucd.category(chr(cp)) == "Mn")])
    control = ranges_of([cp for cp in present_in("8.0")
                         if ucd.category(chr(cp)) in CONTROL])
    lower = lower_ranges()
    groups, index = grapheme_table()
    print(f"""\
/* Compatibility mappings and marks of Unicode 9.0, punctuation, flat marks and
 * control characters of 8.0, lower case and graphemes of 17.0. Made by
 * share/build/unicode_forms.py from the Unicode Character Database; do not edit.
 * Read unicode_forms.h instead.
 *
 * Copyright (c) 1991-2025 Unicode, Inc.; data used under the Unicode License
 * v3, https://www.unicode.org/license.txt */
#include "text/unicode_forms.h"

const size_t gpt_compat_n_mappings = {len(mappings)};
const size_t gpt_unicode_n_marks = {len(marks)};
const size_t gpt_unicode_n_signs = {len(signs)};
const size_t gpt_unicode_n_flat = {len(flat)};
const size_t gpt_unicode_n_control = {len(control)};
const size_t gpt_unicode_n_lower = {len(lower)};""")
    array(f"const struct gpt_nfc_mapping gpt_compat_mappings[{len(mappings)}]",
          ["{0x%05x, %d, %d}" % m for m in mappings], 3)
    array(f"const uint32_t gpt_compat_letters[{len(parts)}]",
          ["0x%05x" % p for p in parts], 8)
    array(f"const uint32_t gpt_unicode_marks[{len(marks)}][2]",
          ["{0x%05x, 0x%05x}" % tuple(r) for r in marks], 3)
    array(f"const uint32_t gpt_unicode_signs[{len(signs)}][2]",
          ["{0x%05x, 0x%05x}" % tuple(r) for r in signs], 3)
    array(f"const uint32_t gpt_unicode_flat[{len(flat)}][2]",
          ["{0x%05x, 0x%05x}" % tuple(r) for r in flat], 3)
    array(f"const uint32_t gpt_unicode_control[{len(control)}][2]",
          ["{0x%05x, 0x%05x}" % tuple(r) for r in control], 3)
    array(f"const struct gpt_lower_range gpt_unicode_lower[{len(lower)}]",
          ["{0x%05x, 0x%05x, %d, %d}" % tuple(r) for r in lower], 2)
    array(f"const uint8_t gpt_grapheme_index[{len(index)}]",
          [str(i) for i in index], 18)
    array(f"const uint8_t gpt_grapheme_classes[{len(groups) * BLOCK}]",
          [str(k) for g in groups for k in g], 24)


if __name__ == "__main__":
    sys.exit(main())
