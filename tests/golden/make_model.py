#!/usr/bin/env python3
"""Makes tests/golden/model/*.golden: losses, logits, gradients and ten AdamW
steps of tiny models in float64, for tests/unit/test_model.c.

Needs PyTorch; run as  python3 tests/golden/make_model.py  from the top of the
tree. A golden is one line of JSON (configuration and losses), then little-
endian arrays: input, target, position, doc_start (int32), mask (float32),
all (micro_batches, B, T); logits (micro_batches, B, T, padded V); the gradient
of every parameter in table order; every parameter after ten steps (float32).
Weights and tokens follow from value() and token(), so they are not stored.
"""
import json
import math
import os
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)

BASE = dict(num_layers=2, hidden_size=8, num_attention_heads=2,
            num_query_groups=2, head_size=4, ffn_hidden_size=32,
            max_positions=16, vocab_size=21, padded_vocab_size=24,
            norm_epsilon=1e-5, init_std=0.02, hidden_dropout=0.0,
            attention_dropout=0.0, tied_embeddings=True,
            position_embedding="learned_absolute", rotary_base=10000.0,
            rotary_percent=1.0, rotary_interleaved=False,
            rotary_scaling="none", rotary_factor=0, rotary_low_factor=0,
            rotary_high_factor=0, rotary_fast=0, rotary_slow=0,
            rotary_attention=0, rotary_positions=0,
            normalization="LayerNorm", norm_plus_one=False, activation="gelu",
            gated=False, no_linear_bias=False, qkv_bias=False, qk_norm=False,
            parallel_blocks=False, shared_norm=False,
            batch=2, seq=8, micro_batches=1, masks=False)
# Absent in a golden where they are as here.
LATER = dict(qk_norm_whole=False, window_size=0, window_attn_skip_freq=0,
             window_full_layers=0, attn_logit_softcapping=0,
             final_logit_softcapping=0, query_pre_attn_scalar=0,
             scale_embedding=False, embedding_norm=False, post_norm=False,
             no_pre_norm=False, position_offset=0, no_norm_bias=False,
             no_attention_bias=False, output_bias=False, no_rope_freq=0,
             rotary_local_base=0, embedding_multiplier=0,
             residual_multiplier=0, logit_multiplier=0, rotary_query_growth=0,
             qk_norm_turned=False, no_qkv_bias=False, num_experts=0,
             moe_router_topk=0, moe_ffn_hidden_size=0, moe_layer_freq=0,
             moe_dense_layers=0, moe_shared_expert_intermediate_size=0,
             moe_shared_expert_gate=False,
             moe_router_score_function="softmax", moe_router_pre_softmax=False,
             moe_router_expert_bias=False, moe_router_topk_scaling_factor=0,
             moe_aux_loss_coeff=0, moe_z_loss_coeff=0,
             moe_router_num_groups=0, moe_router_group_topk=0, kv_lora_rank=0,
             q_lora_rank=0, qk_head_dim=0, qk_pos_emb_head_dim=0,
             v_head_dim=0, latent_norm_epsilon=0)
# Heads of another size than width / heads, an odd vocabulary and widths.
LLAMA = dict(position_embedding="rope", rotary_base=100.0,
             normalization="RMSNorm", norm_epsilon=1e-6, activation="silu",
             gated=True, no_linear_bias=True, tied_embeddings=False,
             hidden_size=10, num_attention_heads=6, num_query_groups=3,
             head_size=4, ffn_hidden_size=13, seq=9)
# A head's value is smaller than its key.
LATENT = {**LLAMA, "rotary_interleaved": True, "num_attention_heads": 4,
          "num_query_groups": 4, "head_size": 7, "kv_lora_rank": 6,
          "qk_head_dim": 3, "qk_pos_emb_head_dim": 4, "v_head_dim": 5,
          "latent_norm_epsilon": 1e-3}
CASES = {
    "plain": {},
    "one": dict(num_layers=1, hidden_size=4, num_attention_heads=1,
                num_query_groups=1, ffn_hidden_size=16, batch=1, seq=1,
                vocab_size=5, padded_vocab_size=5),
    "odd": dict(num_layers=3, hidden_size=15, num_attention_heads=3,
                num_query_groups=3, head_size=5, ffn_hidden_size=17, seq=11,
                batch=3, vocab_size=37, padded_vocab_size=48),
    "groups": dict(num_attention_heads=4, num_query_groups=2, head_size=3,
                   hidden_size=12, ffn_hidden_size=20, seq=7),
    "multiquery": dict(num_attention_heads=6, num_query_groups=1, head_size=2,
                       hidden_size=12, ffn_hidden_size=24, batch=1, seq=13),
    "wide_heads": dict(num_attention_heads=2, num_query_groups=1, head_size=7,
                       hidden_size=9, ffn_hidden_size=10, seq=5),
    "masks": dict(masks=True, seq=16, batch=3),
    "micro": dict(masks=True, seq=9, batch=2, micro_batches=3),
    "untied": dict(tied_embeddings=False),
    "long": dict(num_layers=1, hidden_size=4, num_attention_heads=1,
                 num_query_groups=1, ffn_hidden_size=8, seq=150, batch=1,
                 max_positions=150, vocab_size=7, padded_vocab_size=8),
    "rope": dict(position_embedding="rope", num_attention_heads=4,
                 num_query_groups=2, hidden_size=16, seq=16),
    "rope_part": dict(position_embedding="rope", rotary_base=100.0,
                      rotary_percent=0.5, masks=True, seq=14),
    "alibi": dict(position_embedding="alibi", num_attention_heads=3,
                  num_query_groups=3, hidden_size=12, masks=True, seq=13),
    "nowhere": dict(position_embedding="none"),
    "llama": dict(**LLAMA),
    "llama_biases": dict(**{**LLAMA, "no_linear_bias": False}, masks=True),
    "qwen2": dict(**LLAMA, qkv_bias=True, micro_batches=2),
    "qwen3": dict(**{**LLAMA, "tied_embeddings": True}, qk_norm=True),
    "llama3": dict(**LLAMA, rotary_scaling="llama3", rotary_factor=4,
                   rotary_low_factor=1, rotary_high_factor=3,
                   rotary_positions=12),
    "yarn": dict(**LLAMA, rotary_scaling="yarn", rotary_factor=4,
                 rotary_fast=2, rotary_slow=0.25, rotary_positions=8),
    "gpt_neo": dict(no_qkv_bias=True, query_pre_attn_scalar=1, window_size=3,
                    window_attn_skip_freq="[0,1]"),
    "hunyuan": dict(**LLAMA, qk_norm=True, qk_norm_turned=True,
                    rotary_scaling="ntk_alpha", rotary_factor=3.5),
    "ministral3": dict(**LLAMA, rotary_scaling="yarn", rotary_factor=4,
                       rotary_fast=2, rotary_slow=0.25, rotary_positions=3,
                       rotary_query_growth=0.5),
    "longrope": dict(**LLAMA, rotary_scaling="longrope", rotary_positions=8,
                     rotary_short_factors=[1, 1.5],
                     rotary_long_factors=[1.25, 7.5]),
    "linear": dict(**LLAMA, rotary_scaling="linear", rotary_factor=3,
                   rotary_interleaved=True),
    "dynamic": dict(**LLAMA, rotary_scaling="dynamic", rotary_factor=2,
                    rotary_positions=6),
    "neox": dict(position_embedding="rope", rotary_percent=0.5,
                 tied_embeddings=False, activation="gelu_exact",
                 parallel_blocks=True, masks=True),
    "falcon": dict(position_embedding="rope", num_query_groups=1,
                   activation="gelu_exact", no_linear_bias=True,
                   parallel_blocks=True, shared_norm=True),
    "gemma": dict(**{**LLAMA, "activation": "gelu"}, norm_plus_one=True),
    "squared": dict(activation="squared_relu", qk_norm=True,
                    position_embedding="rope",
                    norm_plus_one=True, no_linear_bias=True),
    "relu": dict(activation="relu"),
    "window": dict(position_embedding="rope", num_query_groups=1,
                   window_size=3, masks=True, seq=13),
    "window_long": dict(num_layers=3, hidden_size=6, num_attention_heads=2,
                        num_query_groups=1, head_size=3, ffn_hidden_size=8,
                        seq=150, batch=1, max_positions=150, vocab_size=7,
                        padded_vocab_size=8, window_size=60,
                        window_attn_skip_freq=3, window_full_layers=1),
    "gemma1": dict(**{**LLAMA, "activation": "gelu", "tied_embeddings": True},
                   norm_plus_one=True, scale_embedding=True),
    "gemma2": dict(**{**LLAMA, "activation": "gelu", "tied_embeddings": True,
                      "num_layers": 3},
                   norm_plus_one=True, scale_embedding=True, post_norm=True,
                   window_size=4, window_attn_skip_freq=2,
                   attn_logit_softcapping=1.5, final_logit_softcapping=2.5,
                   query_pre_attn_scalar=7),
    "cap_alibi": dict(position_embedding="alibi", num_attention_heads=3,
                      num_query_groups=3, hidden_size=12, masks=True, seq=13,
                      attn_logit_softcapping=0.7, post_norm=True,
                      scale_embedding=True),
    "olmo2": dict(**LLAMA, post_norm=True, no_pre_norm=True, qk_norm=True,
                  qk_norm_whole=True),
    "bloom": dict(position_embedding="alibi", num_attention_heads=3,
                  num_query_groups=3, hidden_size=12, embedding_norm=True,
                  seq=11),
    "opt": dict(position_offset=2, activation="relu", seq=11),
    "gptj": dict(position_embedding="rope", rotary_percent=0.5,
                 rotary_interleaved=True, tied_embeddings=False,
                 parallel_blocks=True, shared_norm=True,
                 no_attention_bias=True, output_bias=True, masks=True),
    "cohere": dict(**{**LLAMA, "normalization": "LayerNorm",
                      "tied_embeddings": True, "num_layers": 3},
                   no_norm_bias=True, rotary_interleaved=True,
                   parallel_blocks=True, shared_norm=True, window_size=4,
                   window_attn_skip_freq=2, no_rope_freq=2,
                   logit_multiplier=0.3),
    "granite": dict(**LLAMA, embedding_multiplier=3.5,
                    residual_multiplier=0.22, logit_multiplier=0.4,
                    query_pre_attn_scalar=9, micro_batches=2),
    "gemma3": dict(**{**LLAMA, "activation": "gelu", "tied_embeddings": True,
                      "num_layers": 4},
                   norm_plus_one=True, scale_embedding=True, post_norm=True,
                   qk_norm=True, window_size=4,
                   window_attn_skip_freq="[0,1,1,0]", rotary_local_base=10,
                   rotary_scaling="linear", rotary_factor=3),
    "mixtral": dict(**LLAMA, num_experts=5, moe_router_topk=2,
                    moe_ffn_hidden_size=13),
    "qwen2_moe": dict(**{**LLAMA, "num_layers": 3}, num_experts=6,
                      moe_router_topk=3, moe_ffn_hidden_size=7,
                      moe_layer_freq="[1,0,1]", moe_router_pre_softmax=True,
                      moe_shared_expert_intermediate_size=11,
                      moe_shared_expert_gate=True, moe_aux_loss_coeff=0.5,
                      moe_z_loss_coeff=0.1, micro_batches=2, masks=True),
    "glm4_moe": dict(**{**LLAMA, "num_layers": 3}, num_experts=7,
                     moe_router_topk=2, moe_ffn_hidden_size=9,
                     moe_dense_layers=1,
                     moe_router_score_function="sigmoid",
                     moe_router_expert_bias=True,
                     moe_router_topk_scaling_factor=2.5,
                     moe_shared_expert_intermediate_size=8,
                     moe_aux_loss_coeff=0.3),
    "experts_plain": dict(no_linear_bias=True, num_experts=3,
                          moe_router_topk=1, moe_ffn_hidden_size=32,
                          moe_router_pre_softmax=True),
    "latent": dict(**{**LATENT, "v_head_dim": 7}, micro_batches=2, masks=True),
    "deepseek_v2": dict(**{**LATENT, "num_layers": 3, "seq": 7}, num_experts=6,
                        moe_router_topk=2, moe_ffn_hidden_size=7,
                        moe_dense_layers=1, moe_router_pre_softmax=True,
                        moe_router_num_groups=3, moe_router_group_topk=2,
                        moe_router_topk_scaling_factor=3,
                        moe_shared_expert_intermediate_size=8),
    "deepseek_v3": dict(**LATENT, q_lora_rank=5, num_experts=8,
                        moe_router_topk=3, moe_ffn_hidden_size=9,
                        moe_router_score_function="sigmoid",
                        moe_router_expert_bias=True,
                        moe_router_num_groups=4, moe_router_group_topk=2,
                        moe_router_topk_scaling_factor=2.5,
                        moe_shared_expert_intermediate_size=9,
                        rotary_scaling="yarn", rotary_factor=4, rotary_fast=2,
                        rotary_slow=0.25, rotary_positions=8,
                        rotary_attention=1, query_pre_attn_scalar=4),
}
# eps is large because some gradients are zero but for rounding (a key's bias
# shifts all scores alike), and Adam would make steps of them.
STEPS = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-4, weight_decay=0.1,
             clip_grad=1.0, steps=10)


def mix(x):
    """32-bit integer hash (Wellons' lowbias32), vectorised."""
    x = np.asarray(x, dtype=np.uint64) & 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x7FEB352D) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def value(param, n):
    """Elements 0..n of parameter number `param`, exact in float32."""
    u = mix(np.arange(n, dtype=np.uint64) + np.uint64(param * 1000003)) >> 16
    return (u.astype(np.float64) - 32768) / 65536


def token(i, vocab):
    return mix(i + 77777777) % vocab


def shapes(c):
    """Names and shapes in the order of the parameter table."""
    h = c["hidden_size"]
    heads, groups, d = (c["num_attention_heads"], c["num_query_groups"],
                        c["head_size"])
    f, v = c["ffn_hidden_size"], c["padded_vocab_size"]
    norm_bias = c["normalization"] == "LayerNorm" and not c["no_norm_bias"]
    own = not c["no_linear_bias"] and not c["no_attention_bias"]
    bias, gate, qk = not c["no_linear_bias"], c["gated"], c["qk_norm"]
    pre, post, whole = not c["no_pre_norm"], c["post_norm"], c["qk_norm_whole"]
    two = pre and not c["shared_norm"]
    q, kv, value = c["q_lora_rank"], c["kv_lora_rank"], c["v_head_dim"]
    experts, g, s = (c["num_experts"], c["moe_ffn_hidden_size"],
                     c["moe_shared_expert_intermediate_size"])
    out = [("embedding.word_embeddings.weight", (v, h))]
    if c["position_embedding"] == "learned_absolute":
        out.append(("embedding.position_embeddings.weight",
                    (c["max_positions"] + c["position_offset"], h)))
    if c["embedding_norm"]:
        out.append(("embedding.layernorm.weight", (h,)))
        out += [("embedding.layernorm.bias", (h,))] * norm_bias
    for i in range(c["num_layers"]):
        sparse = has_experts(c, i)
        dense = not sparse
        out += [(f"decoder.layers.{i}.{name}", shape)
                for name, shape, there in [
            ("input_layernorm.weight", (h,), pre),
            ("input_layernorm.bias", (h,), pre and norm_bias),
            ("self_attention.linear_qkv.weight",
             ((heads + 2 * groups) * d, h), not kv),
            ("self_attention.linear_qkv.bias", ((heads + 2 * groups) * d,),
             (own and not c["no_qkv_bias"] or c["qkv_bias"]) and not kv),
            ("self_attention.q_layernorm.weight",
             (heads * d if whole else d,), qk),
            ("self_attention.q_layernorm.bias", (d,), qk and norm_bias),
            ("self_attention.k_layernorm.weight",
             (groups * d if whole else d,), qk),
            ("self_attention.k_layernorm.bias", (d,), qk and norm_bias),
            ("self_attention.linear_q_down_proj.weight", (q, h), q > 0),
            ("self_attention.q_layernorm.weight", (q,), q > 0),
            ("self_attention.linear_q_up_proj.weight", (heads * d, q), q > 0),
            ("self_attention.linear_q_proj.weight", (heads * d, h),
             kv > 0 and q == 0),
            ("self_attention.linear_kv_down_proj.weight", (kv, h), kv > 0),
            ("self_attention.linear_k_pos_emb_proj.weight",
             (c["qk_pos_emb_head_dim"], h), kv > 0),
            ("self_attention.kv_layernorm.weight", (kv,), kv > 0),
            ("self_attention.linear_kv_up_proj.weight",
             (heads * (c["qk_head_dim"] + value), kv), kv > 0),
            ("self_attention.linear_proj.weight",
             (h, heads * (value if kv else d)), True),
            ("self_attention.linear_proj.bias", (h,), own),
            ("post_self_attn_layernorm.weight", (h,), post),
            ("post_self_attn_layernorm.bias", (h,), post and norm_bias),
            ("pre_mlp_layernorm.weight", (h,), two),
            ("pre_mlp_layernorm.bias", (h,), two and norm_bias),
            ("mlp.linear_gate.weight", (f, h), dense and gate),
            ("mlp.linear_fc1.weight", (f, h), dense),
            ("mlp.linear_gate.bias", (f,), dense and gate and bias),
            ("mlp.linear_fc1.bias", (f,), dense and bias),
            ("mlp.linear_fc2.weight", (h, f), dense),
            ("mlp.linear_fc2.bias", (h,), dense and bias),
            ("mlp.router.weight", (experts, h), sparse),
            ("mlp.router.expert_bias", (experts,),
             sparse and c["moe_router_expert_bias"]),
            ("mlp.experts.linear_fc1.weight",
             (experts * g * (1 + gate), h), sparse),
            ("mlp.experts.linear_fc2.weight", (experts * h, g), sparse),
            ("mlp.shared_experts.gate_weight", (1, h),
             sparse and c["moe_shared_expert_gate"]),
            ("mlp.shared_experts.linear_gate.weight", (s, h),
             sparse and s > 0 and gate),
            ("mlp.shared_experts.linear_fc1.weight", (s, h),
             sparse and s > 0),
            ("mlp.shared_experts.linear_fc2.weight", (h, s),
             sparse and s > 0),
            ("post_mlp_layernorm.weight", (h,), post),
            ("post_mlp_layernorm.bias", (h,), post and norm_bias)] if there]
    out.append(("decoder.final_layernorm.weight", (h,)))
    if norm_bias:
        out.append(("decoder.final_layernorm.bias", (h,)))
    if not c["tied_embeddings"]:
        out.append(("output_layer.weight", (v, h)))
    if c["output_bias"]:
        out.append(("output_layer.bias", (v,)))
    return out


def weights(c):
    p = {}
    for k, (name, shape) in enumerate(shapes(c)):
        x = value(k, math.prod(shape)).reshape(shape)
        if name.endswith("layernorm.weight") and not c["norm_plus_one"]:
            x = x + 1
        p[name] = torch.tensor(x, requires_grad=True)
    return p


def norm(x, p, name, c):
    w = p[name + ".weight"] + c["norm_plus_one"]
    if c["normalization"] == "RMSNorm":
        square = (x * x).mean(-1, keepdim=True)
        return x * torch.rsqrt(square + c["norm_epsilon"]) * w
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w,
                                          p.get(name + ".bias"),
                                          c["norm_epsilon"])


def linear(x, p, name):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def is_one(freq, layer, odd):
    """An entry of a list of layers, or of one where every freq-th is odd."""
    if isinstance(freq, str):
        return json.loads(freq)[layer] == 1
    return bool(freq and (layer + 1) % freq == 0) == odd


def has_experts(c, layer):
    return bool(c["num_experts"] and layer >= c["moe_dense_layers"] and
                (c["moe_layer_freq"] == 0 or
                 is_one(c["moe_layer_freq"], layer, True)))


def slides(c, layer):
    return c["window_size"] and layer >= c["window_full_layers"] and is_one(
        c["window_attn_skip_freq"], layer, False)


def rates(c, n, local, length):
    """Angles a position, and the size of sines and cosines."""
    base, kind, factor = (c["rotary_base"], c["rotary_scaling"],
                          c["rotary_factor"])
    if local:
        base, kind = c["rotary_local_base"], "none"
    before = c["rotary_positions"]
    if kind == "dynamic":
        base *= (factor * c["max_positions"] / before - (factor - 1)) ** (
            n / (n - 2))
    if kind == "ntk_alpha":
        base *= factor ** (n / (n - 2))
    rate = base ** (-torch.arange(0, n, 2) / n)
    if kind == "linear":
        rate = rate / factor
    if kind == "llama3":
        low, high = c["rotary_low_factor"], c["rotary_high_factor"]
        length = 2 * math.pi / rate
        smooth = (before / length - low) / (high - low)
        mid = (1 - smooth) * rate / factor + smooth * rate
        rate = torch.where(length > before / low, rate / factor,
                           torch.where(length < before / high, rate, mid))
    if kind == "yarn":
        def pair(turns):
            return n * math.log(before / (turns * 2 * math.pi)) / (
                2 * math.log(base))
        low = max(math.floor(pair(c["rotary_fast"])), 0)
        high = min(math.ceil(pair(c["rotary_slow"])), n - 1)
        high = high + 0.001 if low == high else high
        ramp = ((torch.arange(n // 2) - low) / (high - low)).clamp(0, 1)
        rate = rate / factor * ramp + rate * (1 - ramp)
        return rate, c["rotary_attention"] or 0.1 * math.log(factor) + 1
    if kind == "longrope":
        which = "long" if length > before else "short"
        factor = factor or c["max_positions"] / before
        return (rate / torch.tensor(c[f"rotary_{which}_factors"]),
                math.sqrt(1 + math.log(factor) / math.log(before)))
    return rate, 1


def rope(x, c, layer):
    """Turns halves of the first elements of (B, T, ..., D), by sequence."""
    n = c["qk_pos_emb_head_dim"] or int(c["head_size"] * c["rotary_percent"])
    rate, size = rates(c, n, c["rotary_local_base"] and slides(c, layer),
                       x.shape[1])
    angle = torch.arange(x.shape[1])[:, None] * rate
    angle = angle.view(1, x.shape[1], *[1] * (x.dim() - 3), n // 2)
    cos, sin, rest = angle.cos() * size, angle.sin() * size, x[..., n:]
    if c["rotary_interleaved"]:
        a, b = x[..., 0:n:2], x[..., 1:n:2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([turned.flatten(-2), rest], -1)
    a, b = x[..., :n // 2], x[..., n // 2:n]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def alibi_slopes(heads):
    """Press et al. 2022: a geometric sequence from 2^(-8/n)."""
    def power_of_two(n):
        return [2.0 ** (-8 * (i + 1) / n) for i in range(n)]
    n = 2 ** int(math.log2(heads))
    return power_of_two(n) + power_of_two(2 * n)[::2][:heads - n]


def latent(x, p, name, c):
    """Queries, keys and values; what turns comes first."""
    b, t, _ = x.shape
    heads, nope = c["num_attention_heads"], c["qk_head_dim"]
    norms = {**c, "norm_epsilon": c["latent_norm_epsilon"] or
             c["norm_epsilon"]}
    if c["q_lora_rank"]:
        row = norm(linear(x, p, name + ".linear_q_down_proj"), p,
                   name + ".q_layernorm", norms)
        q = linear(row, p, name + ".linear_q_up_proj")
    else:
        q = linear(x, p, name + ".linear_q_proj")
    q = q.view(b, t, heads, 1, -1)
    row = norm(linear(x, p, name + ".linear_kv_down_proj"), p,
               name + ".kv_layernorm", norms)
    kv = linear(row, p, name + ".linear_kv_up_proj").view(b, t, heads, -1)
    turned = linear(x, p, name + ".linear_k_pos_emb_proj")
    k = torch.cat([turned[:, :, None].expand(-1, -1, heads, -1),
                   kv[..., :nope]], -1)
    return (torch.cat([q[..., nope:], q[..., :nope]], -1), k, kv[..., nope:])


def attention(x, p, name, c, doc_start, layer):
    b, t, _ = x.shape
    g, d = c["num_query_groups"], c["head_size"]
    per = c["num_attention_heads"] // g
    if c["kv_lora_rank"]:
        q, k, v = latent(x, p, name, c)
    else:
        qkv = linear(x, p, name + ".linear_qkv")
        qkv = qkv.view(b, t, g, per + 2, d)
        q, k, v = qkv[..., :per, :], qkv[..., per, :], qkv[..., per + 1, :]
    if c["qk_norm_whole"]:
        q = norm(q.flatten(2), p, name + ".q_layernorm", c).view(q.shape)
        k = norm(k.flatten(2), p, name + ".k_layernorm", c).view(k.shape)
    elif c["qk_norm"] and not c["qk_norm_turned"]:
        q = norm(q, p, name + ".q_layernorm", c)
        k = norm(k, p, name + ".k_layernorm", c)
    if c["position_embedding"] == "rope" and not is_one(c["no_rope_freq"],
                                                        layer, True):
        q, k = rope(q, c, layer), rope(k, c, layer)
        if c["rotary_query_growth"]:
            far = torch.arange(q.shape[1]) // c["rotary_positions"]
            q = q * (1 + c["rotary_query_growth"] * torch.log(1 + far)).view(
                1, -1, 1, 1, 1)
    if c["qk_norm_turned"]:
        q = norm(q, p, name + ".q_layernorm", c)
        k = norm(k, p, name + ".k_layernorm", c)
    score = torch.einsum("btgpd,bsgd->bgpts", q, k) / math.sqrt(
        c["query_pre_attn_scalar"] or d)
    if c["attn_logit_softcapping"]:
        cap = c["attn_logit_softcapping"]
        score = cap * torch.tanh(score / cap)
    s = torch.arange(t)
    if c["position_embedding"] == "alibi":
        slopes = torch.tensor(alibi_slopes(g * per)).view(1, g, per, 1, 1)
        score = score - slopes * (s[:, None] - s[None, :])
    seen = (s[None, None, :] <= s[None, :, None]) & \
           (s[None, None, :] >= doc_start[:, :, None])
    if slides(c, layer):
        seen &= s[None, None, :] >= s[None, :, None] - c["window_size"]
    score = score.masked_fill(~seen[:, None, None], -math.inf)
    out = torch.einsum("bgpts,bsgd->btgpd", score.softmax(-1), v)
    out = out.reshape(b, t, -1)
    return linear(out, p, name + ".linear_proj")


def activation(x, c):
    f = torch.nn.functional
    return {"gelu": lambda: f.gelu(x, approximate="tanh"),
            "gelu_exact": lambda: f.gelu(x), "silu": lambda: f.silu(x),
            "relu": lambda: f.relu(x),
            "squared_relu": lambda: f.relu(x) ** 2}[c["activation"]]()


def feed_forward(y, p, name, c):
    up = linear(y, p, name + ".linear_fc1")
    if c["gated"]:
        up = activation(linear(y, p, name + ".linear_gate"), c) * up
    else:
        up = activation(up, c)
    return linear(up, p, name + ".linear_fc2")


def experts(y, p, name, c, losses):
    """Every expert of every token; those that were not chosen weigh 0."""
    n, top = c["num_experts"], c["moe_router_topk"]
    x = y.flatten(0, 1)
    logits = x @ p[name + ".router.weight"].T
    soft = c["moe_router_score_function"] == "softmax"
    score = logits.softmax(-1) if soft else logits.sigmoid()
    by = score + p.get(name + ".router.expert_bias", torch.zeros(n)).detach()
    if c["moe_router_num_groups"]:
        groups = by.view(len(x), c["moe_router_num_groups"], -1)
        best = groups.topk(1 if soft else 2).values.sum(-1)
        taken = best.topk(c["moe_router_group_topk"]).indices
        shut = torch.ones_like(best).scatter(1, taken, 0).bool()
        by = groups.masked_fill(shut[..., None], -math.inf).flatten(1)
    chosen = torch.zeros_like(score).scatter(1, by.topk(top).indices, 1)
    weight = score * chosen
    if not c["moe_router_pre_softmax"]:
        weight = weight / weight.sum(-1, keepdim=True)
    weight = weight * (c["moe_router_topk_scaling_factor"] or 1)
    first = p[name + ".experts.linear_fc1.weight"].view(n, -1, x.shape[-1])
    second = p[name + ".experts.linear_fc2.weight"].view(n, x.shape[-1], -1)
    inner = torch.einsum("th,efh->tef", x, first)
    if c["gated"]:
        gate, up = inner.chunk(2, -1)
        inner = activation(gate, c) * up
    else:
        inner = activation(inner, c)
    out = torch.einsum("tef,ehf,te->th", inner, second, weight)
    if c["moe_shared_expert_intermediate_size"]:
        shared = feed_forward(x, p, name + ".shared_experts", c)
        if c["moe_shared_expert_gate"]:
            shared = shared * torch.sigmoid(
                x @ p[name + ".shared_experts.gate_weight"].T)
        out = out + shared
    tokens = x.shape[0]
    share = (score / score.sum(-1, keepdim=True)).sum(0)
    losses.append(c["moe_aux_loss_coeff"] * n / top / tokens ** 2 *
                  (share * chosen.sum(0)).sum() +
                  c["moe_z_loss_coeff"] *
                  (logits.logsumexp(-1) ** 2).mean())
    return out.view(y.shape)


def forward(p, c, tokens, position, doc_start, losses):
    word = p["embedding.word_embeddings.weight"]
    x = word[tokens]
    if c["scale_embedding"]:
        x = x * math.sqrt(c["hidden_size"])
    x = x * (c["embedding_multiplier"] or 1)
    if c["position_embedding"] == "learned_absolute":
        x = x + p["embedding.position_embeddings.weight"][
            position + c["position_offset"]]
    if c["embedding_norm"]:
        x = norm(x, p, "embedding.layernorm", c)
    for i in range(c["num_layers"]):
        name = f"decoder.layers.{i}"
        pre = not c["no_pre_norm"]
        first = norm(x, p, name + ".input_layernorm", c) if pre else x
        attended = attention(first, p, name + ".self_attention", c, doc_start,
                             i)
        if c["post_norm"]:
            attended = norm(attended, p, name + ".post_self_attn_layernorm", c)
        attended = attended * (c["residual_multiplier"] or 1)
        stream = x if c["parallel_blocks"] else x + attended
        second = first if c["shared_norm"] else stream if not pre else \
            norm(stream, p, name + ".pre_mlp_layernorm", c)
        if has_experts(c, i):
            forwarded = experts(second, p, name + ".mlp", c, losses)
        else:
            forwarded = feed_forward(second, p, name + ".mlp", c)
        if c["post_norm"]:
            forwarded = norm(forwarded, p, name + ".post_mlp_layernorm", c)
        x = x + attended + forwarded * (c["residual_multiplier"] or 1)
    x = norm(x, p, "decoder.final_layernorm", c)
    out = word if c["tied_embeddings"] else p["output_layer.weight"]
    logits = x @ out.T * (c["logit_multiplier"] or 1)
    logits = logits + p.get("output_layer.bias", 0)
    cap = c["final_logit_softcapping"]
    return cap * torch.tanh(logits / cap) if cap else logits


def batch(c):
    """input, target, position, doc_start, mask, each (micro, B, T)."""
    m, b, t = c["micro_batches"], c["batch"], c["seq"]
    tokens = token(np.arange(m * b * (t + 1), dtype=np.uint64),
                   c["vocab_size"]).reshape(m, b, t + 1).astype(np.int32)
    position = np.tile(np.arange(t, dtype=np.int32), (m, b, 1))
    start = np.zeros((m, b, t), np.int32)
    mask = np.ones((m, b, t), np.float32)
    if c["masks"]:  # documents end at token 0: no loss there, all anew after
        for i in np.ndindex(m, b):
            begin = 0
            for j in range(t):
                start[i][j], position[i][j] = begin, j - begin
                if tokens[i][j] < 3:
                    mask[i][j] = 0
                    begin = j + 1
    return tokens[..., :-1].copy(), tokens[..., 1:].copy(), position, start, \
        mask


def loss_of(p, c, data, logits=None):
    """That of tokens, and the one whose gradient is taken."""
    total = routers = 0
    for i in range(c["micro_batches"]):
        x, y, position, start = (torch.tensor(a[i].astype(np.int64))
                                 for a in data[:4])
        mask = torch.tensor(data[4][i].astype(np.float64))
        losses = []
        out = forward(p, c, x, position, start, losses)
        if logits is not None:
            logits.append(out.detach().numpy())
        nll = torch.nn.functional.cross_entropy(
            out[..., :c["vocab_size"]].flatten(0, 1), y.flatten(),
            reduction="none")
        total = total + (nll * mask.flatten()).sum() / mask.sum()
        routers = routers + sum(losses)
    return total / c["micro_batches"], (total + routers) / c["micro_batches"]


def gradient(x):
    """Of a parameter; zero where nothing depends on it."""
    return torch.zeros_like(x) if x.grad is None else x.grad


def adamw(p, c, data):
    """Ten steps by the formulas, not by torch.optim; losses before each."""
    s, losses, norms = STEPS, [], []
    m = {k: torch.zeros_like(x) for k, x in p.items()}
    v = {k: torch.zeros_like(x) for k, x in p.items()}
    for t in range(1, s["steps"] + 1):
        for x in p.values():
            x.grad = None
        loss, whole = loss_of(p, c, data)
        whole.backward()
        losses.append(loss.item())
        with torch.no_grad():
            total = math.sqrt(sum((gradient(x) ** 2).sum().item()
                                  for x in p.values()))
            norms.append(total)
            scale = min(1.0, s["clip_grad"] / (total + 1e-6))
            for k, x in p.items():
                g = gradient(x) * scale
                m[k] = s["beta1"] * m[k] + (1 - s["beta1"]) * g
                v[k] = s["beta2"] * v[k] + (1 - s["beta2"]) * g * g
                mh = m[k] / (1 - s["beta1"] ** t)
                vh = v[k] / (1 - s["beta2"] ** t)
                decay = s["weight_decay"] if x.dim() == 2 else 0.0
                x -= s["lr"] * (mh / (vh.sqrt() + s["eps"]) + decay * x)
    return losses, norms


def make(name, changes, folder):
    c = {**LATER, **BASE, **changes}
    data, logits, p = batch(c), [], weights(c)
    loss, whole = loss_of(p, c, data, logits)
    whole.backward()
    grads = [gradient(p[k]).numpy() for k, _ in shapes(c)]
    after = weights(c)
    losses, norms = adamw(after, c, data)
    head = {**BASE, **changes, **STEPS, "loss": loss.item(), "losses": losses,
            "norms": norms}
    with open(os.path.join(folder, name + ".golden"), "wb") as f:
        f.write(json.dumps(head).encode() + b"\n")
        for a in data[:4]:
            f.write(a.astype("<i4").tobytes())
        f.write(data[4].astype("<f4").tobytes())
        f.write(np.stack(logits).astype("<f4").tobytes())
        for g in grads:
            f.write(g.astype("<f4").tobytes())
        for k, _ in shapes(c):
            f.write(after[k].detach().numpy().astype("<f4").tobytes())


# Makes all goldens, or those that are named.
if __name__ == "__main__":
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model")
    os.makedirs(here, exist_ok=True)
    for case in sys.argv[1:] or CASES:
        make(case, CASES[case], here)
