#!/usr/bin/env python3
"""Makes tests/golden/llmc: the model of tests/golden/hf as llm.c's
train_gpt2.py writes it (write_model): fp32.bin and bf16.bin; and a run of two
ranks, model_00000003.bin and state_00000003_0000[01].bin, laid out as
train_gpt2.cu has it (save_state and gpt2_update, ZeRO-1): the first moments and
the weights in fp32 are those of the model, the second moments are zero.

    tests/golden/make_llmc.py

Needs torch and safetensors.
"""
import os

import torch
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
L, H, C, T, V = 2, 2, 16, 16, 67
PADDED = (V + 127) // 128 * 128


def main():
    w = load_file(os.path.join(HERE, "hf", "model.safetensors"))
    w = {k.removeprefix("transformer."): v for k, v in w.items()}

    def layers(name, turn=False):
        for i in range(L):
            x = w[f"h.{i}.{name}"]
            yield x.t() if turn else x # a Conv1D is the transpose of a Linear

    parts = [torch.nn.functional.pad(w["wte.weight"], (0, 0, 0, PADDED - V)),
             w["wpe.weight"], *layers("ln_1.weight"), *layers("ln_1.bias"),
             *layers("attn.c_attn.weight", True), *layers("attn.c_attn.bias"),
             *layers("attn.c_proj.weight", True), *layers("attn.c_proj.bias"),
             *layers("ln_2.weight"), *layers("ln_2.bias"),
             *layers("mlp.c_fc.weight", True), *layers("mlp.c_fc.bias"),
             *layers("mlp.c_proj.weight", True), *layers("mlp.c_proj.bias"),
             w["ln_f.weight"], w["ln_f.bias"]]
    os.makedirs(os.path.join(HERE, "llmc"), exist_ok=True)
    for name, version, dtype in (("fp32", 3, torch.float32),
                                 ("bf16", 5, torch.bfloat16)):
        head = torch.zeros(256, dtype=torch.int32)
        head[:8] = torch.tensor([20240326, version, T, V, L, H, C, PADDED])
        with open(os.path.join(HERE, "llmc", name + ".bin"), "wb") as f:
            f.write(head.numpy().tobytes())
            for x in parts:
                x = x.to(dtype).contiguous().view(torch.uint8)
                f.write(x.numpy().tobytes())
        if dtype is torch.bfloat16:
            write_run(head, parts)


def write_run(head, parts):
    here = os.path.join(HERE, "llmc")
    with open(os.path.join(here, "bf16.bin"), "rb") as f:
        model = f.read()
    with open(os.path.join(here, "model_00000003.bin"), "wb") as f:
        f.write(model)
    for rank in range(2):
        mine = [x.contiguous().flatten().chunk(2)[rank] for x in parts]
        shard = torch.cat(mine).float()
        state = torch.zeros(256, dtype=torch.int32)
        state[:5] = torch.tensor([20240527, 1, 2, rank, 1])
        state[10] = 3
        with open(os.path.join(here, f"state_00000003_{rank:05d}.bin"),
                  "wb") as f:
            for x in (state, shard, torch.zeros_like(shard), shard):
                f.write(x.numpy().tobytes())


main()
