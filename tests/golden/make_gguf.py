#!/usr/bin/env python3
"""Makes tests/golden/gguf: a tiny model of Llama's architecture in the files
that gguf-py writes: packed.gguf (Q8_0) and plain.gguf, the numbers that gguf-py
unpacks from it, as F32. Their vocabulary is of bytes. few.gguf is another one,
without a vocabulary, whose matrices have a type of few bits each; few.sha256 is
the digest of the numbers that gguf-py unpacks, as F32, in the order of the
file. together.gguf and apart.gguf are one model of phi2's architecture, as its
older and its newer files have queries, keys and values; window.gguf and
layers.gguf say which layers have a window, as llama.cpp's converter says it of
Phi-3 and of OLMo 3.

    tests/golden/make_gguf.py

Needs gguf and numpy.
"""
import hashlib
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


def begin(name, width):
    w = gguf.GGUFWriter(os.path.join(OUT, name), "llama")
    w.add_context_length(64)
    w.add_embedding_length(width)
    w.add_block_count(1)
    w.add_feed_forward_length(F)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    return w


def end(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(name, tensors):
    w = begin(name, C)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(letters() + ["th", "the", "<|endoftext|>"])
    w.add_token_types([1] * 258 + [3])
    w.add_token_merges(["t h", "th e"])
    w.add_eos_token_id(258)
    for key, (data, kind) in tensors.items():
        w.add_tensor(key, data, raw_dtype=kind)
    end(w)


# name: shape, type, and where a block's bytes have halves
FEW = {
    "token_embd.weight": ((8, 256), "IQ4_XS", (0,)),
    "blk.0.attn_norm.weight": ((256,), "F32", ()),
    "blk.0.attn_q.weight": ((16, 256), "Q2_K", (80, 82)),
    "blk.0.attn_k.weight": ((8, 256), "Q3_K", (108,)),
    "blk.0.attn_v.weight": ((8, 256), "TQ2_0", (64,)),
    "blk.0.attn_output.weight": ((256, 16), "F16", ()),
    "blk.0.ffn_norm.weight": ((256,), "F32", ()),
    "blk.0.ffn_gate.weight": ((F, 256), "TQ1_0", (52,)),
    "blk.0.ffn_up.weight": ((F, 256), "MXFP4", ()),
    "blk.0.ffn_down.weight": ((256, F), "IQ4_NL", (0,)),
    "output_norm.weight": ((256,), "F32", ()),
}


def write_few(rng):
    w = begin("few.gguf", 256)
    w.add_key_length(4)
    w.add_value_length(4)
    w.add_rope_dimension_count(4)
    w.add_vocab_size(8)
    digest = hashlib.sha256()
    for key, (shape, name, halves) in FEW.items():
        kind = gguf.GGMLQuantizationType[name]
        if name[0] == "F":
            data = rng.normal(0, 0.1, shape).astype("f" + str(int(name[1:]) // 8))
            digest.update(data.astype(np.float32).tobytes())
            w.add_tensor(key, data)
            continue
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (shape[0], shape[1] // elements, size),
                            dtype=np.uint8)
        for at in halves:
            scale = rng.normal(0, 0.01, (*data.shape[:2], 1))
            data[..., at:at + 2] = scale.astype(np.float16).view(np.uint8)
        if name == "MXFP4":
            data[..., 0] = rng.integers(115, 125, data.shape[:2])
        data = data.reshape(shape[0], -1)
        digest.update(gguf.quants.dequantize(data, kind).tobytes())
        w.add_tensor(key, data, raw_dtype=kind)
    end(w)
    with open(os.path.join(OUT, "few.sha256"), "w") as f:
        f.write(digest.hexdigest() + "\n")


def plain_file(name, arch, keys, shapes, seed=3):
    """The numbers of a tensor depend on its name alone."""
    w = gguf.GGUFWriter(os.path.join(OUT, name), arch)
    w.add_context_length(64)
    w.add_embedding_length(8)
    w.add_feed_forward_length(16)
    w.add_head_count(2)
    w.add_head_count_kv(2)
    keys(w)
    for key, shape in shapes.items():
        parts = [key.replace("qkv", p) for p in "qkv"] if "qkv" in key else [
            key]
        rows = shape[0] // len(parts)
        w.add_tensor(key, np.concatenate([
            np.random.default_rng([seed, *p.encode()]).normal(
                0, 0.1, (rows, *shape[1:])).astype(np.float32)
            for p in parts]))
    end(w)


def write_apart():
    def keys(w):
        w.add_block_count(1)
        w.add_layer_norm_eps(1e-5)
        w.add_rope_dimension_count(2)

    shapes = {"token_embd.weight": (8, 8)}
    for norm in "blk.0.attn_norm", "output_norm":
        shapes.update({norm + ".weight": (8,), norm + ".bias": (8,)})
    for name, rows, columns in (("blk.0.attn_output", 8, 8), ("output", 8, 8),
                                ("blk.0.ffn_up", 16, 8),
                                ("blk.0.ffn_down", 8, 16)):
        shapes.update({name + ".weight": (rows, columns),
                       name + ".bias": (rows,)})
    for name, parts, rows in ("together", ("qkv",), 24), ("apart", "qkv", 8):
        held = dict(shapes)
        for part in parts:
            held.update({f"blk.0.attn_{part}.weight": (rows, 8),
                         f"blk.0.attn_{part}.bias": (rows,)})
        plain_file(name + ".gguf", "phi2", keys, held)


def write_windows():
    def phi3(w):
        w.add_block_count(1)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_dimension_count(4)
        w.add_sliding_window(5)

    def olmo2(w):
        w.add_block_count(3)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(1000.0)
        w.add_sliding_window(5)
        w.add_array("olmo2.attention.sliding_window_pattern",
                    [True, False, True])
        w.add_float32("olmo2.rope.freq_base_swa", 100.0)

    shapes = {"token_embd.weight": (8, 8), "output_norm.weight": (8,),
              "output.weight": (8, 8)}
    plain_file("window.gguf", "phi3", phi3, {
        **shapes, "blk.0.attn_norm.weight": (8,), "blk.0.ffn_norm.weight": (8,),
        "blk.0.attn_qkv.weight": (24, 8), "blk.0.attn_output.weight": (8, 8),
        "blk.0.ffn_up.weight": (32, 8), "blk.0.ffn_down.weight": (8, 16)})
    for i in range(3):
        shapes.update({f"blk.{i}.{name}.weight": shape for name, shape in (
            ("attn_q", (8, 8)), ("attn_k", (8, 8)), ("attn_v", (8, 8)),
            ("attn_output", (8, 8)), ("attn_q_norm", (8,)),
            ("attn_k_norm", (8,)), ("post_attention_norm", (8,)),
            ("post_ffw_norm", (8,)), ("ffn_gate", (16, 8)),
            ("ffn_up", (16, 8)), ("ffn_down", (8, 16)))})
    plain_file("layers.gguf", "olmo2", olmo2, shapes)


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
    write_few(rng)
    write_apart()
    write_windows()


main()
