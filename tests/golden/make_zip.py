#!/usr/bin/env python3
"""Zip archives as inputs of tests/fuzz/zip.c, good ones and tricks.

Usage: make_zip.py   (the standard library alone)
"""
import io
import os
import struct
import warnings
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
corpus = os.path.join(HERE, "..", "fuzz", "corpus", "zip")
warnings.filterwarnings("ignore")  # of names that come twice


class Stream(io.BytesIO):
    """zipfile writes sizes after the data where it cannot go back."""

    def seekable(self):
        return False

    def tell(self):
        raise OSError


def pack(entries, stream=None, method=zipfile.ZIP_STORED, comment=b"",
         wide=False):
    out = stream or io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with z.open(info, "w", force_zip64=wide) as f:
                f.write(data)
        z.comment = comment
    return out.getvalue()


def with_end64(archive):
    """The same with the 64-bit end record, which torch always writes."""
    at = archive.rindex(b"PK\5\6")
    n, = struct.unpack_from("<H", archive, at + 10)
    size, offset = struct.unpack_from("<II", archive, at + 12)
    record = struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, n, n,
                         size, offset)
    locator = struct.pack("<IIQI", 0x07064b50, 0, at, 1)
    return archive[:at] + record + locator + archive[at:]


def overlapping(archive):
    """The second row of the list points at the first entry's header."""
    list_at, = struct.unpack_from("<I", archive, len(archive) - 6)
    second = archive.index(b"PK\1\2", list_at + 4)
    out = bytearray(archive)
    out[second + 42:second + 46] = b"\0\0\0\0"
    return bytes(out)


TWO = [("a/data.pkl", b"\x80\x02N."), ("a/data/0", bytes(range(64)))]
plain = pack(TWO)
archives = {
    "plain": plain,
    "end64": with_end64(plain),
    "wide": pack(TWO, wide=True),
    "streamed": pack(TWO, stream=Stream()),
    "comment": pack(TWO, comment=b"PK\5\6" + bytes(18)),
    "empty": pack([]),
    "deflated": pack(TWO, method=zipfile.ZIP_DEFLATED),
    "twice": pack(TWO + TWO[:1]),
    "outside": pack([("a/../../b", b"x")]),
    "overlap": overlapping(plain),
    "in_front": b"#!/bin/sh\n" + plain,
    "behind": plain + b"\0",
}
os.makedirs(corpus, exist_ok=True)
for name, archive in archives.items():
    with open(os.path.join(corpus, name), "wb") as f:
        f.write(archive)
