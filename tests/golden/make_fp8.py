"""Writes fp8.txt: numbers of eight bits by PyTorch's float8_e4m3fn and
float8_e5m2, for test_fp8.c. Two lines a type: the value of each code from 0 to
127, and for each code of a finite number the first bfloat16, of its bits from 0
on, that becomes it. PyTorch does not saturate, so that numbers are clamped
before, as those who train with it do. Negative numbers are the same with the
sign's bit, and NaN stays NaN, or this program fails.

    python make_fp8.py >fp8.txt
"""
import torch

for name, dtype, largest in (("e4m3", torch.float8_e4m3fn, 0x7e),
                             ("e5m2", torch.float8_e5m2, 0x7b)):
    most = torch.finfo(dtype).max

    def codes(bits):
        x = bits.to(torch.int16).view(torch.bfloat16).float()
        return x.clamp(-most, most).to(dtype).view(torch.uint8).int()

    bits = torch.arange(0x10000, dtype=torch.int32)
    all_codes = codes(bits)
    positive = all_codes[:0x7f81]  # infinity is the last
    assert (positive[1:] >= positive[:-1]).all()
    assert (all_codes[0x8000:0xff81] == positive + 128).all()
    for nan in (all_codes[0x7f81:0x8000], all_codes[0xff81:]):
        assert nan.to(torch.uint8).view(dtype).float().isnan().all()
    assert int(positive[-1]) == largest
    values = torch.arange(128, dtype=torch.uint8).view(dtype).float()
    print(name + "_values", 128, *(float(v) for v in values))
    firsts = [int((positive == code).nonzero()[0]) for code in range(largest + 1)]
    print(name + "_first", largest + 1, *firsts)
