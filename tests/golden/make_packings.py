#!/usr/bin/env python3
"""Makes tests/golden/packings.txt: random blocks of every packing of GGUF files
that is read, and the CRC-32 of the floats that gguf-py makes of them, for
test_packing.c. A line is a type, its block in hexadecimal digits, and the sum of
its floats, little-endian, in which every NaN is 0x7fc00000. The scales of the
blocks of a type are, one after the other: numbers of both signs, zeros,
infinities, NaN, and whatever the random bytes are.

    tests/golden/make_packings.py

Needs gguf and numpy.
"""
import os
import zlib

import gguf
import numpy as np

# where the bytes of a block have halves
SCALES = {"q8_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,),
          "q5_1": (0, 2), "q4_K": (0, 2), "q5_K": (0, 2), "q6_K": (208,),
          "q2_K": (80, 82), "q3_K": (108,), "iq4_nl": (0,), "iq4_xs": (0,),
          "tq1_0": (52,), "tq2_0": (64,), "mxfp4": (), "iq1_s": (0,),
          "iq1_m": (), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,),
          "iq3_xxs": (0,), "iq3_s": (0,)}
HALVES = (0.75, -0.0123, 0.0, -0.0, np.inf, -np.inf, np.nan)
EXPONENTS = (0, 1, 2, 127, 128, 254, 255)


def spread_half(block, half):
    """The half of iq1_m is the high nibbles of four words, the lowest first."""
    bits = int(half.view(np.uint16))
    for k in range(4):
        at = 49 + 2 * k
        block[at] = block[at] & 15 | (bits >> 4 * k & 15) << 4


def blocks(name, size, rng):
    for i in range(len(HALVES) + 3):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for at in SCALES[name] if i < len(HALVES) else ():
            # the second half of a block is another number
            half = np.float16(HALVES[i] if at == SCALES[name][0]
                              else HALVES[(i + 1) % len(HALVES)])
            block[at:at + 2] = np.array([half]).view(np.uint8)
        if name == "mxfp4":
            block[0] = (EXPONENTS[i] if i < len(EXPONENTS) else block[0])
        if name == "iq1_m" and i < len(HALVES):
            spread_half(block, np.float16(HALVES[i]))
        yield block


def main():
    rng = np.random.default_rng(3)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "packings.txt"), "w") as f:
        for name in SCALES:
            kind = gguf.GGMLQuantizationType[name.upper()]
            for block in blocks(name, gguf.GGML_QUANT_SIZES[kind][1], rng):
                with np.errstate(all="ignore"):
                    x = gguf.quants.dequantize(block[None], kind)[0]
                bits = x.astype("<f4").view("<u4").copy()
                bits[np.isnan(x)] = 0x7fc00000
                f.write(f"{name} {block.tobytes().hex()} "
                        f"{zlib.crc32(bits.tobytes()):08x}\n")


main()
