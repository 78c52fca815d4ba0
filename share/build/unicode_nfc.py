#!/usr/bin/env python3
"""Writes common/text/unicode_nfc_table.c: normalization form C of Unicode 9.0,
and the numbers of Unicode 16.0 that are no word characters.

Form C is that of the library whose files ask for it: Hugging Face tokenizers
(0.23.3) normalizes by Unicode 9.0. Characters keep their normalization for
ever, so that the tables of 9.0 are those of a later version without the
characters that came after 9.0. Perl knows the age of characters.

Needs perl, and the PyPI package unicodedata2 16.0.0, as unicode.py does.

    python3 share/build/unicode_nfc.py > common/text/unicode_nfc_table.c
"""
import sys

import unicodedata2 as ucd

from unicode_arrays import (ALL, BLOCK, HANGUL, array, groups_of, present_in,
                            ranges_of)

VERSION = "16.0.0"
NFC_VERSION = "9.0"


def decomposition(cp):
    """The canonical mapping of one step, without compatibility ones."""
    text = ucd.decomposition(chr(cp))
    if not text or text.startswith("<"):
        return []
    return [int(word, 16) for word in text.split()]


def main():
    assert ucd.unidata_version == VERSION, ucd.unidata_version
    known = present_in(NFC_VERSION)
    full = {}
    pairs = []
    for cp in known:
        step = decomposition(cp)
        if not step or cp in HANGUL:
            continue
        full[cp] = [ord(c) for c in ucd.normalize("NFD", chr(cp))]
        if len(step) == 2 and ucd.normalize("NFC", chr(cp)) == chr(cp):
            pairs.append((step[0], step[1], cp))
    pairs.sort()

    # Quick check: "no" changes by itself, "maybe" may join what is before it.
    joins = {b for _, b, _ in pairs} | set(range(0x1161, 0x1176)) \
        | set(range(0x11A8, 0x11C3))

    def state(cp):
        stays = ucd.normalize("NFC", chr(cp)) == chr(cp)
        return ucd.combining(chr(cp)), 0 if stays and cp not in joins else 1

    states = {cp: state(cp) for cp in known}
    kinds = sorted(set(states.values()))
    assert kinds[0] == (0, 0) and len(kinds) < 256
    table = [kinds.index(states.get(cp, (0, 0))) for cp in range(0x110000)]
    groups, index = groups_of(table)
    while not any(groups[index[-1]]):
        index.pop()

    parts = []
    mappings = []
    for cp, letters in sorted(full.items()):
        mappings.append((cp, len(parts), len(letters)))
        parts += letters

    # \w of regular expressions has all letters, marks and letter-like numbers,
    # decimal digits and connectors: of the class N all but category No.
    no = [cp for cp in ALL if ucd.category(chr(cp)) == "No"]
    ranges = ranges_of(no)

    print(f"""\
/* Normalization form C of Unicode {NFC_VERSION}, and numbers of {VERSION}. Made by
 * share/build/unicode_nfc.py from the Unicode Character Database; do not edit.
 * Read unicode_nfc.h instead.
 *
 * Copyright (c) 1991-2024 Unicode, Inc.; data used under the Unicode License
 * v3, https://www.unicode.org/license.txt */
#include "text/unicode_nfc.h"

const uint32_t gpt_nfc_limit = 0x{len(index) * BLOCK:x};
const size_t gpt_nfc_n_mappings = {len(mappings)};
const size_t gpt_nfc_n_pairs = {len(pairs)};
const size_t gpt_unicode_n_no = {len(ranges)};""")
    array(f"const uint8_t gpt_nfc_index[{len(index)}]", [str(i) for i in index],
          18)
    array(f"const uint8_t gpt_nfc_kind[{len(groups) * BLOCK}]",
          [str(k) for g in groups for k in g], 18)
    array(f"const struct gpt_nfc_kind_info gpt_nfc_kinds[{len(kinds)}]",
          ["{%d, %d}" % k for k in kinds], 7)
    array(f"const struct gpt_nfc_mapping gpt_nfc_mappings[{len(mappings)}]",
          ["{0x%05x, %d, %d}" % m for m in mappings], 3)
    array(f"const uint32_t gpt_nfc_letters[{len(parts)}]",
          ["0x%05x" % p for p in parts], 8)
    array(f"const struct gpt_nfc_pair gpt_nfc_pairs[{len(pairs)}]",
          ["{0x%05x, 0x%05x, 0x%05x}" % p for p in pairs], 2)
    array(f"const uint32_t gpt_unicode_no[{len(ranges)}][2]",
          ["{0x%05x, 0x%05x}" % tuple(r) for r in ranges], 3)


if __name__ == "__main__":
    sys.exit(main())
