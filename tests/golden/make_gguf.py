#!/usr/bin/env python3
"""Makes tests/golden/gguf: a tiny model of Llama's architecture in the files
that gguf-py writes: packed.gguf (Q8_0) and plain.gguf, the numbers that gguf-py
unpacks from it, as F32. Their vocabulary is of bytes.

    tests/golden/make_gguf.py

Needs gguf and numpy.
"""
import os

import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf")
C, F, V = 32, 32, 259
KIND = gguf.GGMLQuantizationType.Q8_0
SHAPES = {
    "token_embd.weight": (V, C), "blk.0.attn_norm.weight": (C,),
    "blk.0.attn_q.weight": (C, C), "blk.0.attn_k.weight": (C // 2, C),
    "blk.0.attn_v.weight": (C // 2, C), "blk.0.attn_output.weight": (C, C),
    "blk.0.ffn_norm.weight": (C,), "blk.0.ffn_gate.weight": (F, C),
    "blk.0.ffn_up.weight": (F, C), "blk.0.ffn_down.weight": (C, F),
    "output_norm.weight": (C,),
}


def letters():
    """GPT-2's characters for the bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, n = {}, 0
    for b in range(256):
        names[b] = chr(b) if b in kept else chr(256 + n)
        n += b not in kept
    return [names[b] for b in [*kept, *(b for b in range(256)
                                        if b not in kept)]]


def write(name, tensors):
    w = gguf.GGUFWriter(os.path.join(OUT, name), "llama")
    w.add_context_length(64)
    w.add_embedding_length(C)
    w.add_block_count(1)
    w.add_feed_forward_length(F)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(letters() + ["th", "the", "<|endoftext|>"])
    w.add_token_types([1] * 258 + [3])
    w.add_token_merges(["t h", "th e"])
    w.add_eos_token_id(258)
    for key, (data, kind) in tensors.items():
        w.add_tensor(key, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    rng = np.random.default_rng(7)
    packed, plain = {}, {}
    for name, shape in SHAPES.items():
        x = rng.normal(0, 0.1, shape).astype(np.float32)
        packed[name] = plain[name] = (x, gguf.GGMLQuantizationType.F32)
        if len(shape) == 2:
            q = gguf.quants.quantize(x, KIND)
            packed[name] = (q, KIND)
            plain[name] = (gguf.quants.dequantize(q, KIND),
                           gguf.GGMLQuantizationType.F32)
    os.makedirs(OUT, exist_ok=True)
    write("packed.gguf", packed)
    write("plain.gguf", plain)


main()
