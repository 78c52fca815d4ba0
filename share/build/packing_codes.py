#!/usr/bin/env python3
"""Writes common/checkpoint/packing_codes_table.c: the tables by which GGUF
files name eight or four elements by a number.

They are facts of the formats of ggml (github.com/ggml-org/ggml, MIT), where
searches over the weights of models chose them: no rule gives them. The PyPI
package gguf (0.19.0), gguf/quants.py, has them in the form that is written.

    python3 share/build/packing_codes.py > common/checkpoint/packing_codes_table.c
"""
from gguf import quants

TYPES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")
WIDTH = 9


def main():
    print("""\
/* Tables of packed elements that are named by codes: two bits an element of
 * eight, or four bits an element of four, the first one lowest. Made by
 * share/build/packing_codes.py; do not edit. Read packing_codes.c instead.
 *
 * Data of ggml, Copyright (c) 2023 Georgi Gerganov, MIT license,
 * https://github.com/ggml-org/ggml/blob/master/LICENSE */
#include "checkpoint/packing_internal.h\"""")
    for name in TYPES:
        kind = getattr(quants, name)
        data = bytes.fromhex(kind.grid_hex.decode())
        rows = [f"0x{int.from_bytes(data[i:i + 2], 'little'):04x}"
                for i in range(0, len(data), 2)]
        assert len(rows) == kind.grid_shape[0]
        print(f"\nconst uint16_t gpt_{name.lower()}_codes[{len(rows)}] = {{")
        for i in range(0, len(rows), WIDTH):
            print("    " + ", ".join(rows[i:i + WIDTH]) + ",")
        print("};")


main()
