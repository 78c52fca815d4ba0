#!/usr/bin/env python3
"""Writes common/text/unicode_table.c: the classes of Unicode 16.0 characters.

Needs the PyPI package unicodedata2 16.0.0, which is the Unicode Character
Database 16.0 behind the interface of Python's own unicodedata. Run it only to
change the Unicode version; the table is committed.

    python3 share/build/unicode.py > common/text/unicode_table.c

The table has two stages: a byte for each block of 128 code points says which
group of 128 half-byte classes describes it. Beyond the last block that holds
anything all code points are of class 0.
"""
import unicodedata2 as ucd

from unicode_arrays import BLOCK, array, groups_of

VERSION = "16.0.0"
# In the order of enum gpt_unicode_class.
CLASSES = ["OTHER", "M", "P", "S", "N", "SPACE", "LO", "LL", "LU", "LT"]


def is_space(cp):
    """White_Space of PropList.txt, out of the fields that the package has:
    category Zs or a bidirectional separator, without U+001C..U+001F."""
    c = chr(cp)
    separator = ucd.bidirectional(c) in ("WS", "B", "S")
    return (ucd.category(c) == "Zs" or separator) and not 0x1C <= cp <= 0x1F


def class_of(cp):
    if is_space(cp):
        return CLASSES.index("SPACE")
    category = ucd.category(chr(cp))
    if category in ("Lu", "Ll", "Lt"):
        return CLASSES.index(category.upper())
    if category in ("Lm", "Lo"):
        return CLASSES.index("LO")
    return CLASSES.index(category[0]) if category[0] in "MPSN" else 0


def main():
    assert ucd.unidata_version == VERSION, ucd.unidata_version
    table = [class_of(cp) for cp in range(0x110000)]
    letters = sum(c >= CLASSES.index("LO") for c in table)
    numbers = table.count(CLASSES.index("N"))
    spaces = table.count(CLASSES.index("SPACE"))
    assert (letters, numbers, spaces) == (141028, 1911, 25)

    groups, index = groups_of(table)
    # What follows the last block is private use and unassigned, of class 0.
    while not any(groups[index[-1]]):
        index.pop()
    words = [sum(c << 4 * i for i, c in enumerate(g[j:j + 16]))
             for g in groups for j in range(0, BLOCK, 16)]

    print(f"""\
/* Classes of Unicode {VERSION} characters. Made by share/build/unicode.py from
 * the Unicode Character Database; do not edit. Read unicode.h instead.
 * Letters {letters}, numbers {numbers}, white space {spaces}.
 *
 * Copyright (c) 1991-2024 Unicode, Inc.; data used under the Unicode License
 * v3, https://www.unicode.org/license.txt */
#include "text/unicode.h"

const uint32_t gpt_unicode_limit = 0x{len(index) * BLOCK:x};""")
    array(f"const uint8_t gpt_unicode_index[{len(index)}]",
          [str(i) for i in index], 15)
    array(f"const uint64_t gpt_unicode_class16[{len(words)}]",
          ["0x%016x" % w for w in words], 3)


if __name__ == "__main__":
    main()
