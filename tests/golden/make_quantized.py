#!/usr/bin/env python3
"""Makes tests/golden/quantized: a tiny model of Llama's architecture in a
directory a method of quantization, as Hugging Face's files have it, and
floats.txt: a line a directory with the bytes of its floats and their SHA-256,
as little-endian F32 in the order of the tensors' names. adapter is one of PEFT
for any of them whose inner layer is 40 wide.

    tests/golden/make_quantized.py

Needs numpy. Numbers are random; what they stand for is computed here, element
by element, from the formats' definitions, and independently of how they are
packed.
"""
import hashlib
import json
import os
import struct

import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized")
C, V, KV = 32, 16, 16
ORDER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
         "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
rng = np.random.default_rng(11)


def bf16(x):
    """Bits of floats that a bfloat16 holds."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def cut(x, kind):
    """Floats that the type holds."""
    x = np.asarray(x, np.float32)
    if kind == "F16":
        return x.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        return (x.view(np.uint32) & 0xffff0000).view(np.float32)
    return x


def stored(x, kind):
    return {"F16": lambda: x.astype(np.float16), "BF16": lambda: bf16(x),
            "F32": lambda: x}[kind](), kind


def random_scales(shape, kind):
    """Of both signs, and one of them zero."""
    s = cut(rng.normal(0, 0.02, shape), kind)
    if s.size > 3:
        s.flat[1] = 0
    return s


def words(v, bits, axis):
    """Numbers of few bits in words of 32, the first in the lowest bits, along
    an axis."""
    per = 32 // bits
    v = np.moveaxis(np.asarray(v, np.uint32), axis, -1)
    n = -(-v.shape[-1] // per)
    w = np.zeros((*v.shape[:-1], n), np.uint32)
    for i in range(v.shape[-1]):
        w[..., i // per] |= v[..., i] << np.uint32(bits * (i % per))
    return np.ascontiguousarray(np.moveaxis(w, -1, axis)).view(np.int32), "I32"


# ---- methods: (out, in) -> floats, tensors beside "a." ----

def e4m3(code):
    if code & 127 == 127:
        return float("nan")
    e, m = code >> 3 & 15, code & 7
    x = (8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9
    return -x if code & 128 else x


E4M3 = np.array([e4m3(i) for i in range(256)], np.float32)


def by_blocks(values, scales, rows, columns):
    w = np.zeros(values.shape, np.float32)
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            w[i, j] = values[i, j] * scales[i // rows, j // columns]
    return w


def codes(out, inn):
    c = rng.integers(0, 256, (out, inn), dtype=np.uint8)
    c[c & 127 == 127] = 0x80  # no NaN, but zeros of both signs
    return c


def fp8(block, name, kind, shape=None):
    def make(out, inn):
        c = codes(out, inn)
        b = (block[0] or out, block[1] or inn)
        s = random_scales((-(-out // b[0]), -(-inn // b[1])), kind)
        t = {"weight": (c, "F8_E4M3"),
             name: stored(s.reshape(shape(s)) if shape else s, kind)}
        return by_blocks(E4M3[c], s, *b), t
    return make


def static(make):
    """With scales of activations, which change no weight."""
    def more(out, inn):
        w, t = make(out, inn)
        t["input_scale"] = stored(np.float32([0.5]), "F32")
        return w, t
    return more


def ct_int(out, inn):
    v = rng.integers(-128, 128, (out, inn)).astype(np.int8)
    z = rng.integers(-128, 128, (out, 1)).astype(np.int8)
    s = random_scales((out, 1), "BF16")
    w = (v.astype(np.float32) - z.astype(np.float32)) * s
    return w, {"weight": (v, "I8"), "weight_scale": stored(s, "BF16"),
               "weight_zero_point": (z, "I8")}


def ct_pack(bits, group, zeros):
    def make(out, inn):
        half = 1 << bits - 1
        v = rng.integers(0, 2 * half, (out, inn))
        g = group or inn
        s = random_scales((out, -(-inn // g)), "BF16")
        z = rng.integers(0, 2 * half, s.shape) if zeros else \
            np.full(s.shape, half)
        w = np.zeros((out, inn), np.float32)
        for i in range(out):
            for j in range(inn):
                w[i, j] = np.float32(v[i, j] - z[i, j // g]) * s[i, j // g]
        t = {"weight_packed": words(v, bits, 1),
             "weight_shape": (np.array([out, inn], np.int64), "I64"),
             "weight_scale": stored(s, "BF16")}
        if zeros:
            t["weight_zero_point"] = words(z, bits, 0)
        return w, t
    return make


def gptq(bits, group, index, first):
    """first: zero points are stored less 1, within their bits."""
    def make(out, inn):
        g = group or inn
        n = -(-inn // g)
        v = rng.integers(0, 1 << bits, (inn, out))
        z = rng.integers(0, 1 << bits, (n, out))
        s = random_scales((n, out), "F16")
        of = rng.permutation(np.arange(inn) // g) if index else \
            np.arange(inn) // g
        w = np.zeros((out, inn), np.float32)
        for i in range(inn):
            for o in range(out):
                w[o, i] = np.float32(v[i, o] - z[of[i], o]) * s[of[i], o]
        t = {"qweight": words(v, bits, 0), "scales": stored(s, "F16"),
             "qzeros": words((z - first) % (1 << bits), bits, 1)}
        if index:
            t["g_idx"] = (of.astype(np.int32), "I32")
        return w, t
    return make


def awq(out, inn):
    group = 8
    v = rng.integers(0, 16, (inn, out))
    z = rng.integers(0, 16, (inn // group, out))
    s = random_scales((inn // group, out), "F16")
    w = np.zeros((out, inn), np.float32)
    for i in range(inn):
        for o in range(out):
            w[o, i] = np.float32(v[i, o] - z[i // group, o]) * s[i // group, o]

    def pack(x):
        # nibble i of a word is of this one of its eight columns
        mixed = x.reshape(len(x), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return words(mixed.reshape(x.shape), 4, 1)
    return w, {"qweight": pack(v), "qzeros": pack(z),
               "scales": stored(s, "F16")}


def bnb4(kind, nested):
    code = np.sort(rng.uniform(-1, 1, 16)).astype(np.float32)
    inner = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)

    def make(out, inn):
        n = out * inn
        v = rng.integers(0, 16, n)
        blocks = -(-n // 64)
        state = {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16",
                 "shape": [out, inn]}
        t = {"weight": ((v[::2] << 4 | v[1::2]).astype(np.uint8)[:, None],
                        "U8"),
             "weight.quant_map": stored(code, "F32")}
        if nested:
            q = rng.integers(0, 256, blocks).astype(np.uint8)
            top = rng.uniform(0.01, 0.1, -(-blocks // 5)).astype(np.float32)
            mean = np.float32(0.0625)
            s = np.array([inner[q[i]] * top[i // 5] + mean
                          for i in range(blocks)], np.float32)
            state |= {"nested_blocksize": 5, "nested_dtype": "float32",
                      "nested_offset": float(mean)}
            t["weight.absmax"] = (q, "U8")
            t["weight.nested_absmax"] = stored(top, "F32")
            t["weight.nested_quant_map"] = stored(inner, "F32")
        else:
            s = random_scales(blocks, "F32")
            t["weight.absmax"] = stored(s, "F32")
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        t["weight.quant_state.bitsandbytes__" + kind] = (text, "U8")
        w = np.array([code[v[i]] * s[i // 64] for i in range(n)], np.float32)
        return w.reshape(out, inn), t
    return make


def bnb8(out, inn):
    v = rng.integers(-128, 128, (out, inn)).astype(np.int8)
    s = random_scales(out, "F32")
    w = v.astype(np.float32) * s[:, None] * np.float32(7.874015718698502e-3)
    return w, {"weight": (v, "I8"), "SCB": stored(s, "F32"),
               "weight_format": (np.array(0, np.uint8), "U8")}


def ct(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form,
            "quantization_status": "compressed", "ignore": ["lm_head"],
            "kv_cache_scheme": None, "config_groups": {"group_0": {
                "targets": ["Linear"], "output_activations": None,
                "weights": weights | {"dynamic": False}}}}


# name: quantization_config, method, width of the inner layer
MODELS = {
    "fp8": ({"quant_method": "fp8", "activation_scheme": "dynamic",
             "fmt": "e4m3", "weight_block_size": [16, 16],
             "modules_to_not_convert": ["lm_head"]},
            fp8((16, 16), "weight_scale_inv", "F32"), 40),
    "fp8_static": ({"quant_method": "fp8", "activation_scheme": "static"},
                   static(fp8((0, 0), "weight_scale", "F32",
                              lambda s: ())), 40),
    "ct_channel": (ct("float-quantized", num_bits=8, type="float",
                      strategy="channel", symmetric=True),
                   fp8((1, 0), "weight_scale", "BF16"), 40),
    "ct_tensor": (ct("float-quantized", num_bits=8, type="float",
                     strategy="tensor", symmetric=True),
                  static(fp8((0, 0), "weight_scale", "BF16",
                             lambda s: (1,))), 40),
    "ct_block": (ct("float-quantized", num_bits=8, type="float",
                    strategy="block", block_structure=[24, 16],
                    symmetric=True),
                 fp8((24, 16), "weight_scale", "BF16"), 40),
    "ct_int": (ct("int-quantized", num_bits=8, type="int", strategy="channel",
                  symmetric=False), ct_int, 40),
    "ct_pack4": (ct("pack-quantized", num_bits=4, type="int",
                    strategy="group", group_size=8, symmetric=True),
                 ct_pack(4, 8, False), 40),
    "ct_pack4_zeros": (ct("pack-quantized", num_bits=4, type="int",
                          strategy="channel", symmetric=False),
                       ct_pack(4, 0, True), 36),
    "ct_pack8": (ct("pack-quantized", num_bits=8, type="int",
                    strategy="group", group_size=16, symmetric=False),
                 ct_pack(8, 16, True), 48),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 8,
              "desc_act": True, "sym": False, "damp_percent": 0.1},
             gptq(4, 8, True, 1), 40),
    "gptq_v2": ({"quant_method": "gptq", "bits": 8, "group_size": -1,
                 "desc_act": False, "sym": True,
                 "checkpoint_format": "gptq_v2"}, gptq(8, 0, False, 0), 40),
    "gptq2": ({"quant_method": "gptq", "bits": 2, "group_size": 16,
               "checkpoint_format": "gptq"}, gptq(2, 16, True, 1), 48),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 8,
             "zero_point": True, "version": "gemm",
             "modules_to_not_convert": None}, awq, 40),
    "bnb_nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True,
                 "bnb_4bit_quant_type": "nf4",
                 "bnb_4bit_use_double_quant": True}, bnb4("nf4", True), 40),
    "bnb_fp4": ({"_load_in_4bit": True, "load_in_4bit": True,
                 "bnb_4bit_quant_type": "fp4"}, bnb4("fp4", False), 40),
    "bnb_int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True,
                  "load_in_4bit": False}, bnb8, 40),
}


def shapes(inner):
    return dict(zip(ORDER, [(C, C), (KV, C), (KV, C), (C, C), (inner, C),
                            (inner, C), (C, inner)]))


def write(path, tensors):
    header, data, at = {}, b"", 0
    for name, (x, kind) in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": kind, "shape": list(np.shape(x)),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def config(inner, quantization):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": C, "intermediate_size": inner,
            "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "max_position_embeddings": 64,
            "vocab_size": V, "tie_word_embeddings": True, "torch_dtype": "float16",
            "bos_token_id": 1, "eos_token_id": 2,
            "quantization_config": quantization}


def write_adapter():
    """Of PEFT, for any of these models."""
    tensors = {}
    for part, shape in shapes(40).items():
        if part in ("self_attn.q_proj", "mlp.gate_proj"):
            base = f"base_model.model.model.layers.0.{part}."
            for side, size in (("A", (2, shape[1])), ("B", (shape[0], 2))):
                tensors[f"{base}lora_{side}.weight"] = stored(
                    np.float32(rng.integers(-8, 9, size) / 8), "F32")
    path = os.path.join(OUT, "adapter")
    os.makedirs(path, exist_ok=True)
    write(os.path.join(path, "adapter_model.safetensors"), tensors)
    with open(os.path.join(path, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2,
                   "lora_alpha": 4, "target_modules": ["q_proj", "gate_proj"]},
                  f, indent=1)
        f.write("\n")


def main():
    lines = []
    for name, (quantization, method, inner) in MODELS.items():
        floats, tensors = {}, {}

        def plain(key, shape):
            x = cut(rng.normal(0, 0.1, shape), "F16")
            tensors[key] = stored(x, "F16")
            floats[key] = x
        plain("model.embed_tokens.weight", (V, C))
        for part, shape in shapes(inner).items():
            base = f"model.layers.0.{part}."
            x, beside = method(*shape)
            floats[base + "weight"] = x
            tensors |= {base + k: v for k, v in beside.items()}
        plain("model.layers.0.input_layernorm.weight", C)
        plain("model.layers.0.post_attention_layernorm.weight", C)
        plain("model.norm.weight", C)
        os.makedirs(os.path.join(OUT, name), exist_ok=True)
        write(os.path.join(OUT, name, "model.safetensors"), tensors)
        with open(os.path.join(OUT, name, "config.json"), "w") as f:
            json.dump(config(inner, quantization), f, indent=1)
            f.write("\n")
        data = b"".join(np.asarray(x, "<f4").tobytes()
                        for _, x in sorted(floats.items()))
        lines.append(f"{name} {len(data)} {hashlib.sha256(data).hexdigest()}\n")
    with open(os.path.join(OUT, "floats.txt"), "w") as f:
        f.writelines(lines)
    write_adapter()


main()
