"""Quantized models are read as the floats that the libraries of their formats
compute: fp8 by transformers, bitsandbytes by bitsandbytes, which also write
them; compressed-tensors and AWQ by compressed-tensors; GPTQ of 3 bits as
AutoGPTQ packs it. Prints TAP. Usage: quantized_parity.py BUILD (from the
repository's root).
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

BUILD = os.path.abspath(sys.argv[1])
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
torch.manual_seed(5)
count = failed = 0


def ok(good, what, why=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}", flush=True)
    if not good:
        print("# " + str(why).replace("\n", "\n# "))


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def make(directory):
    """Widths that are no power of two, and rows longer than what is read at
    once."""
    config = LlamaConfig(hidden_size=384, intermediate_size=2304,
                         num_attention_heads=6, num_key_value_heads=2,
                         num_hidden_layers=2, vocab_size=64,
                         max_position_embeddings=64,
                         tie_word_embeddings=False)
    model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    return model


def read(directory, floats):
    """As gpt-reshape has it, in floats; also of two ranks."""
    two = floats + "-two"
    for load, save, more in (
            (directory, floats, ["--to", "hf"]),
            (directory, two, ["--target-tensor-model-parallel-size", "2"]),
            (two, two + "-hf", ["--to", "hf"])):
        r = subprocess.run([os.path.join(BUILD, "gpt-reshape"), "--load-path",
                            load, "--save-path", save, "--verify",
                            "--target-params-dtype", "fp32", *more],
                           capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(r.stderr)
    a = load_file(os.path.join(floats, "model.safetensors"))
    b = load_file(os.path.join(two + "-hf", "model.safetensors"))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    return a


def compare(what, directory, want):
    """want: names and floats of all matrices that were quantized."""
    try:
        got = read(directory, directory + "-floats")
    except (RuntimeError, AssertionError) as e:
        ok(False, what, e)
        return
    wrong = [k for k in want if not torch.equal(
        got[k].view(torch.int32), want[k].float().contiguous()
        .view(torch.int32))]
    ok(want and not wrong, what, wrong)


def save(directory, base, change, quantization):
    """A copy of the model whose matrices of layers are what change(weight)
    gives; returns the tensors."""
    tensors = load_file(os.path.join(base, "model.safetensors"))
    out = {}
    for key, x in tensors.items():
        if x.dim() == 2 and ".layers." in key:
            stem = key.removesuffix("weight")
            out |= {stem + k: v for k, v in change(x).items()}
        else:
            out[key] = x
    os.makedirs(directory)
    save_file(out, os.path.join(directory, "model.safetensors"),
              {"format": "pt"})
    with open(os.path.join(base, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = quantization
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f)
    return out


# ---- fp8 ----

def to_fp8(x):
    rows, columns = -(-x.shape[0] // 128), -(-x.shape[1] // 128)
    scale = torch.zeros(rows, columns)
    q = torch.zeros(x.shape, dtype=torch.float8_e4m3fn)
    for i in range(rows):
        for j in range(columns):
            part = x[i * 128:i * 128 + 128, j * 128:j * 128 + 128]
            scale[i, j] = part.abs().max() / 448
            q[i * 128:i * 128 + 128, j * 128:j * 128 + 128] = \
                (part / scale[i, j]).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale_inv": scale}


def fp8(base):
    save("fp8", base, to_fp8,
         {"quant_method": "fp8", "activation_scheme": "dynamic",
          "weight_block_size": [128, 128],
          "modules_to_not_convert": ["lm_head"]})
    config = transformers.FineGrainedFP8Config(
        dequantize=True, modules_to_not_convert=["lm_head"])
    model = AutoModelForCausalLM.from_pretrained(
        "fp8", dtype=torch.float32, quantization_config=config,
        device_map="cpu")
    want = {k: v for k, v in model.state_dict().items()
            if v.dim() == 2 and ".layers." in k}
    compare("fp8: the floats of transformers", "fp8", want)


# ---- GPTQ ----

def three_bits(x):
    """AutoGPTQ's packing of 32 rows of numbers into three of words: one of the
    numbers is in the first two words, another in the last two."""
    out = torch.zeros(len(x) // 32 * 3, x.shape[1], dtype=torch.int64)
    for base in range(0, len(x), 32):
        row, v = base // 32 * 3, x[base:base + 32].long()
        for j in range(10):
            out[row] |= v[j] << (3 * j)
        out[row] |= (v[10] & 3) << 30
        out[row + 1] |= v[10] >> 2
        for j in range(10):
            out[row + 1] |= v[11 + j] << (3 * j + 1)
        out[row + 1] |= (v[21] & 1) << 31
        out[row + 2] |= v[21] >> 1
        for j in range(10):
            out[row + 2] |= v[22 + j] << (3 * j + 2)
    return torch.where(out < 2 ** 31, out, out - 2 ** 32).to(torch.int32)


def to_gptq(w, order):
    """Random numbers of the matrix's shape, and the floats that they are."""
    out, inn = w.shape
    of = torch.arange(inn) // 64
    of = of[torch.randperm(inn)] if order else of
    v = torch.randint(0, 8, (inn, out))
    z = torch.randint(0, 8, (inn // 64, out))
    s = torch.rand(inn // 64, out).half()
    there = {"qweight": three_bits(v), "scales": s,
             "qzeros": three_bits(((z - 1) % 8).T).T.contiguous()}
    if order:
        there["g_idx"] = of.to(torch.int32)
    return there, ((v - z[of]).float() * s[of].float()).T.contiguous()


def gptq(base):
    """Of 3 bits, with groups in the order of inputs or in another."""
    names = [k for k, x in load_file(base + "/model.safetensors").items()
             if x.dim() == 2 and ".layers." in k]
    for order in (False, True):
        floats = []

        def change(w):
            there, want = to_gptq(w, order)
            floats.append(want)
            return there
        save(f"gptq{order}", base, change, {
            "quant_method": "gptq", "bits": 3, "group_size": 64,
            "desc_act": order, "sym": False})
        compare(f"gptq: 3 bits{', inputs in another order' * order}",
                f"gptq{order}", dict(zip(names, floats)))


# ---- bitsandbytes ----

def bitsandbytes(base):
    import bitsandbytes as bnb

    kinds = {
        "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        "nf4-nested": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                       "bnb_4bit_use_double_quant": True},
        "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
        "fp4-bf16": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
                     "bnb_4bit_quant_storage": "bfloat16"},
        "int8": {"load_in_8bit": True},
    }
    for name, settings in kinds.items():
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32, device_map="cpu",
            quantization_config=transformers.BitsAndBytesConfig(**settings))
        model.save_pretrained(name)
        want = {}
        for key, m in model.named_modules():
            if isinstance(m, bnb.nn.Linear4bit):
                want[key + ".weight"] = bnb.functional.dequantize_4bit(
                    m.weight.data, m.weight.quant_state)
            elif isinstance(m, bnb.nn.Linear8bitLt):
                want[key + ".weight"] = bnb.functional.int8_vectorwise_dequant(
                    m.weight.data, m.weight.SCB if m.weight.SCB is not None
                    else m.state.SCB)
        compare(f"bitsandbytes: {name}", name, want)


# ---- compressed-tensors ----

def ct_cases():
    w = {"num_bits": 8, "type": "float", "symmetric": True}
    i8 = {"num_bits": 8, "type": "int"}
    i4 = {"num_bits": 4, "type": "int"}
    return {
        "tensor": ("float-quantized", w | {"strategy": "tensor"}),
        "channel": ("float-quantized", w | {"strategy": "channel"}),
        "block": ("float-quantized", w | {"strategy": "block",
                                          "block_structure": [128, 128]}),
        "int8": ("int-quantized", i8 | {"strategy": "channel"}),
        "pack4": ("pack-quantized", i4 | {"strategy": "group",
                                          "group_size": 128}),
        "pack4-zeros": ("pack-quantized", i4 | {
            "strategy": "group", "group_size": 64, "symmetric": False}),
        "pack8": ("pack-quantized", i8 | {"strategy": "channel",
                                          "symmetric": False}),
    }


def scales_of(x, args):
    """Of what shares one; those that are stored are bfloat16."""
    rows, columns = {"tensor": x.shape, "channel": (1, x.shape[1]),
                     "group": (1, args.group_size),
                     "block": args.block_structure}[args.strategy]
    n, m = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    most = 448 if args.type == "float" else 2 ** (args.num_bits - 1) - 1
    scale = torch.stack([torch.stack([
        x[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns].abs().max()
        for j in range(m)]) for i in range(n)]) / most
    scale = scale.to(torch.bfloat16)
    return scale.reshape(1) if args.strategy == "tensor" else scale


def compressed(base):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import (QuantizationArgs,
                                                 QuantizationScheme)

    for name, (form, weights) in ct_cases().items():
        args = QuantizationArgs(**weights)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        method = BaseCompressor.get_value_from_registry(form)

        def change(x):
            state = {"weight": x.to(torch.bfloat16),
                     "weight_scale": scales_of(x, args)}
            if not args.symmetric:
                half = 2 ** (args.num_bits - 1)
                state["weight_zero_point"] = torch.randint(
                    -half, half, state["weight_scale"].shape,
                    dtype=torch.int8)
            return method.compress(state, scheme)

        out = save("ct-" + name, base, change, {
            "quant_method": "compressed-tensors", "format": form,
            "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"],
                                          "weights": weights}}})
        want = {}
        for key in [k for k in out if k.endswith("weight_scale")]:
            stem = key.removesuffix("weight_scale")
            part = {k.removeprefix(stem): v for k, v in out.items()
                    if k.startswith(stem)}
            # in floats: the library rounds to the type of the scales
            for k in part:
                if k == "weight_scale":
                    part[k] = part[k].float()
            want[stem + "weight"] = method.decompress(part, scheme)["weight"]
        compare(f"compressed-tensors: {name}", "ct-" + name, want)


def awq(base):
    from compressed_tensors.compressors.pack_quantized.helpers import \
        unpack_from_int32
    from compressed_tensors.entrypoints.convert.converters.autoawq import \
        AutoAWQConverter

    group = 64

    def words(*shape):
        return torch.randint(-2 ** 31, 2 ** 31, shape, dtype=torch.int64) \
            .to(torch.int32)

    def change(x):
        out, inn = x.shape
        return {"qweight": words(inn, out // 8),
                "qzeros": words(inn // group, out // 8),
                "scales": torch.randn(inn // group, out).half() / 64}

    tensors = save("awq", base, change, {
        "quant_method": "awq", "bits": 4, "group_size": group,
        "zero_point": True, "version": "gemm"})
    converter, want = AutoAWQConverter(group_size=group), {}
    for key in [k for k in tensors if k.endswith("qweight")]:
        stem = key.removesuffix("qweight")
        part = converter.process({k: v for k, v in tensors.items()
                                  if k.startswith(stem)})
        shape = [int(n) for n in part[stem + "weight_shape"]]
        scale = part[stem + "weight_scale"].float()
        v = unpack_from_int32(part[stem + "weight_packed"], 4,
                              torch.Size(shape)).float()
        z = unpack_from_int32(part[stem + "weight_zero_point"], 4,
                              torch.Size([shape[0], shape[1] // group]),
                              packed_dim=0).float()
        want[stem + "weight"] = (v - z.repeat_interleave(group, 1)) * \
            scale.repeat_interleave(group, 1)
    compare("awq: as compressed-tensors converts it", "awq", want)


def main():
    top = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make("base")
        for run, module in ((fp8, "accelerate"),
                            (gptq, "torch"),
                            (bitsandbytes, "bitsandbytes"),
                            (compressed, "compressed_tensors"),
                            (awq, "compressed_tensors")):
            if importlib.util.find_spec(module):
                run("base")
            else:
                skip(run.__name__, f"no {module}")
        os.chdir(top)
    print(f"1..{count}")
    return failed > 0


sys.exit(main())
