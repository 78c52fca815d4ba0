"""Tiny random models of types that transformers has no class of: a class that
computes the same has its tensors here under the names, and in the order, of the
type's own files. The same logits and greedy text; back as the same tensors, also
from other layouts. Prints TAP. Usage: remote_parity.py BUILD [CASE...] (from the
repository's root).
"""
import json
import os
import random
import re
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

import hf_families_parity as hf
from hf_families_parity import (GROUPS, SMALL, VOCAB, close, greedy, known,
                                logits, model, numbers, ok, run, state)

SIZES = dict(GROUPS, hidden_size=48, rms_norm_eps=1e-6)
MOE = dict(num_experts_per_tok=2, moe_intermediate_size=24,
           num_hidden_layers=3)
LLAMA = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2,
         "rms_norm_eps": 1e-6, "vocab_size": VOCAB, "torch_dtype": "float32",
         "hidden_act": "silu", "initializer_range": 0.02, "use_cache": True,
         "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
PLAIN = dict(LLAMA, intermediate_size=52, num_key_value_heads=2,
             max_position_embeddings=160, rope_theta=1000.0,
             rope_scaling=None)


def renamed(tensors, rules):
    """The first rule that fits names a tensor; others stay."""
    out = {}
    for name, x in tensors.items():
        for pattern, to in rules:
            new, n = re.subn(pattern, to, name)
            if n:
                name = new
                break
        out[name] = x
    return out


def joined(tensors, parts, to):
    """Rows of several tensors one above the other, layer by layer."""
    out = dict(tensors)
    for name in tensors:
        if re.search(parts[0], name):
            key = re.sub(parts[0], "@", name)
            rest = [out.pop(key.replace("@", p.replace("\\", "")))
                    for p in parts]
            out[key.replace("@", to)] = torch.cat(rest)
    return out


def by_groups(tensors, to, groups=2, size=8):
    """Queries of a group, its key, its value."""
    out = dict(tensors)
    for name in tensors:
        if ".q_proj." in name:
            q, k, v = (out.pop(name.replace("q_proj", x + "_proj"))
                       for x in "qkv")
            rows = torch.cat([x.reshape(groups, -1, size, *x.shape[1:])
                              for x in (q, k, v)], 1)
            out[name.replace("self_attn.q_proj", to)] = rows.flatten(0, 2)
    return out


QKV = [r"q_proj", "k_proj", "v_proj"]


def internlm2(t):
    return renamed(by_groups(t, "attention.wqkv"), [
        (r"embed_tokens", "tok_embeddings"), (r"^lm_head", "output"),
        (r"self_attn\.o_proj", "attention.wo"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm")])


def chatglm(t):
    return renamed(joined(t, QKV, "query_key_value"), [
        (r"^model\.embed_tokens", "transformer.embedding.word_embeddings"),
        (r"^lm_head", "transformer.output_layer"),
        (r"^model\.norm", "transformer.encoder.final_layernorm"),
        (r"^model(.*)self_attn\.o_proj",
         r"transformer.encoder\1self_attention.dense"),
        (r"^model(.*)self_attn", r"transformer.encoder\1self_attention"),
        (r"^model(.*)gate_up_proj", r"transformer.encoder\1dense_h_to_4h"),
        (r"^model(.*)down_proj", r"transformer.encoder\1dense_4h_to_h"),
        (r"^model", "transformer.encoder")])


def qwen(t):
    return renamed(joined(t, QKV, "c_attn"), [
        (r"^model\.embed_tokens", "transformer.wte"),
        (r"^model\.norm", "transformer.ln_f"),
        (r"^model\.layers(.*)self_attn\.o_proj",
         r"transformer.h\1attn.c_proj"),
        (r"^model\.layers(.*)self_attn", r"transformer.h\1attn"),
        (r"^model\.layers(.*)up_proj", r"transformer.h\1w1"),
        (r"^model\.layers(.*)gate_proj", r"transformer.h\1w2"),
        (r"^model\.layers(.*)down_proj", r"transformer.h\1c_proj"),
        (r"^model\.layers(.*)input_layernorm", r"transformer.h\1ln_1"),
        (r"^model\.layers(.*)post_attention_layernorm",
         r"transformer.h\1ln_2")])


def deepseek(t):
    """Of Aria, whose experts are in tensors of all."""
    out = {}
    for name, x in renamed(t, [(r"mlp\.router", "mlp.gate")]).items():
        for i, one in enumerate(x if ".experts.fc" in name else ()):
            at = name.split("experts.")[0] + f"experts.{i}."
            if "fc1" in name:
                out[at + "gate_proj.weight"], out[at + "up_proj.weight"] = (
                    h.T.contiguous() for h in one.chunk(2, 1))
            else:
                out[at + "down_proj.weight"] = one.T.contiguous()
        if ".experts.fc" not in name:
            out[name] = x
    return out


def bailing(t):
    return renamed(joined(deepseek(t), QKV, "query_key_value"), [
        (r"embed_tokens", "word_embeddings"),
        (r"self_attn\.o_proj", "attention.dense"),
        (r"self_attn", "attention")])


def unit(t):
    return t


def scaled(**more):
    return dict(SIZES, rope_parameters=dict(
        rope_type="default", rope_theta=1000.0, **more))


EXPERTS = {**PLAIN, "n_routed_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 24, "norm_topk_prob": True}
ARIA = dict(scaled(), intermediate_size=24, moe_num_experts=4, moe_topk=2,
            moe_num_shared_experts=2)
GLM = dict(LLAMA, num_layers=2, ffn_hidden_size=52, kv_channels=8,
           layernorm_epsilon=1e-6, multi_query_attention=True,
           multi_query_group_num=2, padded_vocab_size=VOCAB, seq_length=160,
           add_qkv_bias=True, add_bias_linear=False, rmsnorm=True,
           original_rope=True, post_layer_norm=True, quantization_bit=0,
           apply_query_key_layer_scaling=True, bias_dropout_fusion=True,
           attention_softmax_in_fp32=True)
for key in ("num_hidden_layers", "rms_norm_eps", "vocab_size", "hidden_act"):
    GLM.pop(key)

# type: class that computes the same, its configuration, tensors, config.json
CASES = {
    "internlm2": ("Llama", scaled(), internlm2, dict(PLAIN, bias=False)),
    "internlm2-biases": ("Llama", dict(scaled(), attention_bias=True),
                         internlm2, PLAIN),
    "internlm2-dynamic": ("Llama", dict(SIZES, rope_parameters=dict(
        rope_type="dynamic", factor=2.0, rope_theta=1000.0)), internlm2,
        dict(PLAIN, bias=False,
             rope_scaling={"type": "dynamic", "factor": 2.0})),
    "chatglm": ("Glm", dict(SIZES, head_dim=8, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
        chatglm, GLM),
    "chatglm-long": ("Glm", dict(SIZES, head_dim=8, rope_parameters=dict(
        rope_type="default", rope_theta=500000.0,
        partial_rotary_factor=0.5)), chatglm, dict(GLM, rope_ratio=50)),
    "qwen": ("Qwen2", dict(SIZES, num_key_value_heads=6,
                           use_sliding_window=False), qwen, dict(
        LLAMA, intermediate_size=104, kv_channels=8, layer_norm_epsilon=1e-6,
        seq_length=160, max_position_embeddings=8192, no_bias=True,
        use_dynamic_ntk=True, use_logn_attn=True, bf16=True,
        scale_attn_weights=True, rotary_pct=1.0, rotary_emb_base=10000,
        use_flash_attn="auto", tokenizer_type="QWenTokenizer")),
    "minicpm": ("Granite", dict(
        scaled(), tie_word_embeddings=True, embedding_multiplier=12.0,
        residual_multiplier=1.4 / 2 ** 0.5, logits_scaling=48 / 16,
        attention_multiplier=8 ** -0.5), unit, dict(
            PLAIN, tie_word_embeddings=True, scale_emb=12, scale_depth=1.4,
            dim_model_base=16)),
    "deepseek": ("AriaText", ARIA, deepseek, dict(
        EXPERTS, n_shared_experts=2, moe_layer_freq=1, scoring_func="softmax",
        first_k_dense_replace=0)),
    "bailing_moe": ("AriaText", ARIA, bailing, dict(
        EXPERTS, num_experts=4, num_shared_experts=2, use_bias=False,
        norm_head=False, first_k_dense_replace=0)),
}
CASES["bailing_moe"][3].pop("n_routed_experts")
for key in ("hidden_act", "rms_norm_eps"):
    CASES["qwen"][3].pop(key)


def write(d, name, m, tensors, config):
    os.mkdir(d)
    there = tensors({k: v.contiguous() for k, v in
                     state(d + "-class").items()})
    save_file({k: v.contiguous() for k, v in there.items()},
              d + "/model.safetensors", metadata={"format": "pt"})
    kind = name.split("-")[0]
    with open(d + "/config.json", "w") as f:
        json.dump(dict(config, model_type=kind), f)
    return kind, there


def same(a, b, what):
    ok(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), what,
       a.keys() ^ b.keys())


def case(work, name, cls, changes, tensors, config):
    d = os.path.join(work, name)
    there = hf.make(d + "-class", cls, changes)
    m = model(there, d + "-class")
    kind, want = write(d, name, m, tensors, config)
    long = [random.randrange(VOCAB) for _ in range(150)]
    close(numbers(run("tests/parity/logits", d, *long)), logits(m, long),
          f"{name}: logits")
    text = run("gpt-generate", "--load", d, "--tokenizer-type",
               "NullTokenizer", "--vocab-size", VOCAB - 1, "--greedy",
               "--tokens", 100, "--ignore-eod", "--device", "cpu", "--prompt",
               " ".join(map(str, long[:7])))
    ok(text.split() == greedy(m, long[:7]).split(),
       f"{name}: the same greedy text", text)
    run("gpt-reshape", "--load-path", d, "--save-path", d + "-in", "--verify",
        "--target-tensor-model-parallel-size", 2)
    for source in d, d + "-in":
        out = source + "-out"
        run("gpt-reshape", "--load-path", source, "--save-path", out, "--to",
            "hf", "--verify")
        with open(out + "/config.json") as f:
            c = json.load(f)
        ok(c["model_type"] == kind, f"{name}: goes out as {kind}",
           c["model_type"])
        same(want, state(out), f"{name}: and as the same tensors")
        close(numbers(run("tests/parity/logits", out, *long)),
              logits(m, long), f"{name}: logits of what went out")


def main():
    random.seed(1)
    torch.manual_seed(3)
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        for name, (cls, changes, tensors, config) in CASES.items():
            if only and name not in only:
                continue
            if not known(cls):
                ok(True, f"{name} # SKIP this transformers has no {cls}")
                continue
            try:
                case(work, name, cls, changes, tensors, config)
            except Exception as e:  # a class that fails is a failed case
                ok(False, name, e)
    print(f"1..{hf.count}")
    return hf.failed != 0


if __name__ == "__main__":
    sys.exit(main())
