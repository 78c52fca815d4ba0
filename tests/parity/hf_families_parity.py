"""Tiny random models of Hugging Face's families, of odd sizes: the same logits,
in bf16 within its error, the same greedy text, on emulated CUDA too, where it is
built; ten AdamW steps to the same weights at TP 1, TP 2 with sequence
parallelism, PP 2 and on emulated CUDA, and back in transformers with the same
logits. Text parts of models that read pictures, too, have the same logits and
texts. Prints TAP. Usage: hf_families_parity.py BUILD [CASE...] (from the
repository's root).
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

BUILD = os.path.abspath(sys.argv[1])
DEVICES = ["cpu"] + ["cuda-emu"] * os.path.exists(
    os.path.join(BUILD, "libgpt-cuda-emu.so"))
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
count = failed = 0

SEQ, STEPS, VOCAB = 24, 10, 131
LR = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-4)
SMALL = dict(vocab_size=VOCAB, hidden_size=30, intermediate_size=52,
             num_hidden_layers=2, max_position_embeddings=160,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
GROUPS = dict(num_attention_heads=6, num_key_value_heads=2)
ROPE = "--position-embedding-type rope"
LLAMA = (f"{ROPE} --normalization RMSNorm --norm-epsilon 1e-6 --swiglu "
         "--disable-bias-linear --untie-embeddings-and-output-weights ")
GEMMA = (f"{ROPE} --normalization RMSNorm --norm-epsilon 1e-6 --geglu "
         "--disable-bias-linear --apply-layernorm-1p --scale-embedding ")
COHERE = (f"{ROPE} --rotary-interleaved --no-norm-bias --shared-norm --swiglu "
          "--disable-bias-linear")
NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
SIZES = ("--num-layers 2 --hidden-size 30 --ffn-hidden-size 52 "
         "--max-position-embeddings 160 ")
GQA = "--num-attention-heads 6 --num-query-groups 2 "


def scaled(**scaling):
    return dict(rope_parameters=dict(rope_theta=1000.0, **scaling))


SHORT, LONG = [1.0, 1.05, 1.3, 1.7, 2.1], [1.0, 1.5, 3.25, 7.0, 19.5]


def longrope(before, short, long, **more):
    return dict(original_max_position_embeddings=before, **scaled(
        rope_type="longrope", short_factor=short, long_factor=long, **more))


def words(factors):
    return ",".join(map(str, factors))


# name: class, its configuration, options of gpt-train
CASES = {
    "llama": ("Llama", dict(**GROUPS, head_dim=8),
              LLAMA + GQA + "--kv-channels 8"),
    "llama3": ("Llama", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="llama3", factor=4.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=40)),
               LLAMA + GQA + "--kv-channels 8 --rotary-base 1000 "
               "--rotary-scaling-type llama3 --rotary-scaling-factor 4 "
               "--rotary-original-positions 40"),
    "yarn": ("Llama", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=40,
        truncate=True)),
             LLAMA + GQA + "--kv-channels 8 --rotary-base 1000 "
             "--rotary-scaling-type yarn --rotary-scaling-factor 4 "
             "--rotary-original-positions 40"),
    "linear": ("Llama", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="linear", factor=3.0)),
               LLAMA + GQA + "--kv-channels 8 --rotary-base 1000 "
               "--rotary-scaling-type linear --rotary-scaling-factor 3"),
    "dynamic": ("Llama", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="dynamic", factor=3.0)),
                LLAMA + GQA + "--kv-channels 8 --rotary-base 1000 "
                "--rotary-scaling-type dynamic --rotary-scaling-factor 3 "
                "--rotary-original-positions 160"),
    "smollm2": ("Llama", dict(num_attention_heads=3, num_key_value_heads=1,
                              tie_word_embeddings=True, rms_norm_eps=1e-5),
                LLAMA.replace("--untie-embeddings-and-output-weights", "")
                .replace("1e-6", "1e-5") +
                "--num-attention-heads 3 --attention-head-type multiquery"),
    "mistral": ("Mistral", dict(**GROUPS, head_dim=4, sliding_window=None),
                LLAMA + GQA + "--kv-channels 4"),
    "qwen2": ("Qwen2", dict(num_attention_heads=3, num_key_value_heads=3,
                            use_sliding_window=False),
              LLAMA + "--num-attention-heads 3 --add-qkv-bias"),
    "qwen3": ("Qwen3", dict(**GROUPS, head_dim=10, tie_word_embeddings=True),
              LLAMA.replace("--untie-embeddings-and-output-weights", "") +
              GQA + "--kv-channels 10 --qk-layernorm"),
    "phi3": ("Phi3", dict(num_attention_heads=3, num_key_value_heads=1,
                          rms_norm_eps=1e-6, sliding_window=None,
                          original_max_position_embeddings=160),
             LLAMA + "--num-attention-heads 3 --num-query-groups 1"),
    # the greedy text crosses the positions of pretraining; training is short
    "phi3-longrope": ("Phi3", dict(num_attention_heads=3, num_key_value_heads=1,
                                   rms_norm_eps=1e-6, **longrope(40, SHORT,
                                                                 LONG)),
                      LLAMA + "--num-attention-heads 3 --num-query-groups 1 "
                      "--rotary-base 1000 --rotary-scaling-type longrope "
                      "--rotary-original-positions 40 "
                      f"--rotary-short-factors {words(SHORT)} "
                      f"--rotary-long-factors {words(LONG)}"),
    # all of it is long; a part of a head turns, as in Phi-4-mini
    "phi4-mini": ("Phi3", dict(**GROUPS, hidden_size=48, rms_norm_eps=1e-6,
                               tie_word_embeddings=True, **longrope(
                                   16, SHORT[:3], LONG[:3],
                                   attention_factor=1.2,
                                   partial_rotary_factor=0.75)),
                  LLAMA.replace("--untie-embeddings-and-output-weights", GQA) +
                  "--hidden-size 48 --rotary-percent 0.75 "
                  "--rotary-base 1000 --rotary-scaling-type longrope "
                  "--rotary-original-positions 16 "
                  "--rotary-attention-factor 1.2 "
                  f"--rotary-short-factors {words(SHORT[:3])} "
                  f"--rotary-long-factors {words(LONG[:3])}"),
    "neox": ("GPTNeoX", dict(num_attention_heads=3, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.4)),
             f"{ROPE} --rotary-percent 0.4 --num-attention-heads 3 "
             "--activation-function gelu_exact --parallel-residual "
             "--untie-embeddings-and-output-weights"),
    "neox-serial": ("GPTNeoX", dict(
        num_attention_heads=2, use_parallel_residual=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                             partial_rotary_factor=0.4)),
                    f"{ROPE} --rotary-percent 0.4 --num-attention-heads 2 "
                    "--activation-function gelu_exact "
                    "--untie-embeddings-and-output-weights"),
    "falcon": ("Falcon", dict(num_attention_heads=5, multi_query=True,
                              hidden_size=30, ffn_hidden_size=52),
               f"{ROPE} --num-attention-heads 5 --num-query-groups 1 "
               "--activation-function gelu_exact --disable-bias-linear "
               "--shared-norm"),
    "falcon-alibi": ("Falcon", dict(num_attention_heads=5, multi_query=False,
                                    bias=True, alibi=True, parallel_attn=False,
                                    hidden_size=30, ffn_hidden_size=52),
                     "--position-embedding-type alibi_bf16 "
                     "--num-attention-heads 5 "
                     "--activation-function gelu_exact"),
    "starcoder2": ("Starcoder2", dict(**{**GROUPS, "num_attention_heads": 6},
                                      hidden_size=36),
                   f"{ROPE} {GQA} --hidden-size 36"),
    "mistral-window": ("Mistral", dict(**GROUPS, head_dim=4,
                                       sliding_window=11),
                       LLAMA + GQA + "--kv-channels 4 --window-size 10,0"),
    "qwen2-window": ("Qwen2", dict(num_attention_heads=3,
                                   num_key_value_heads=3, num_hidden_layers=4,
                                   use_sliding_window=True, sliding_window=7,
                                   max_window_layers=1),
                     LLAMA + "--num-attention-heads 3 --add-qkv-bias "
                     "--num-layers 4 --window-size 6 --window-full-layers 1"),
    "phi3-window": ("Phi3", dict(num_attention_heads=3, num_key_value_heads=1,
                                 rms_norm_eps=1e-6, sliding_window=5,
                                 original_max_position_embeddings=160),
                    LLAMA + "--num-attention-heads 3 --num-query-groups 1 "
                    "--window-size 4"),
    "starcoder2-window": ("Starcoder2", dict(**GROUPS, hidden_size=36,
                                             sliding_window=9),
                          f"{ROPE} {GQA} --hidden-size 36 --window-size 8"),
    "gemma": ("Gemma", dict(**GROUPS, head_dim=8),
              GEMMA + GQA + "--kv-channels 8"),
    "gemma-first": ("Gemma", dict(num_attention_heads=3, head_dim=10,
                                  num_key_value_heads=3, hidden_act="gelu"),
                    GEMMA + "--num-attention-heads 3 --kv-channels 10"),
    "gemma2": ("Gemma2", dict(**GROUPS, head_dim=8, num_hidden_layers=4,
                              query_pre_attn_scalar=13, sliding_window=10,
                              attn_logit_softcapping=2.0,
                              final_logit_softcapping=3.0),
               GEMMA + GQA + "--kv-channels 8 --num-layers 4 --post-norm "
               "--window-size 9 --window-attn-skip-freq 2 "
               "--query-pre-attn-scalar 13 --attn-logit-softcapping 2 "
               "--final-logit-softcapping 3"),
    "gemma2-plain": ("Gemma2", dict(**GROUPS, head_dim=8, sliding_window=160,
                                    query_pre_attn_scalar=8,
                                    attn_logit_softcapping=None,
                                    final_logit_softcapping=None),
                     GEMMA + GQA + "--kv-channels 8 --post-norm"),
    "olmo2": ("Olmo2", dict(**GROUPS, hidden_size=48),
              LLAMA.replace("1e-6", "1e-5") + GQA + "--hidden-size 48 "
              "--no-pre-norm --qk-norm-whole"),
    "falcon-new": ("Falcon", dict(num_attention_heads=6, num_kv_heads=2,
                                  new_decoder_architecture=True,
                                  hidden_size=36, ffn_hidden_size=52),
                   f"{ROPE} {GQA} --hidden-size 36 --parallel-residual "
                   "--activation-function gelu_exact --disable-bias-linear"),
    "falcon-one-norm": ("Falcon", dict(num_attention_heads=6, num_kv_heads=2,
                                       new_decoder_architecture=True,
                                       num_ln_in_parallel_attn=1,
                                       hidden_size=36, ffn_hidden_size=52),
                        f"{ROPE} {GQA} --hidden-size 36 --shared-norm "
                        "--activation-function gelu_exact "
                        "--disable-bias-linear"),
    "falcon-heads": ("Falcon", dict(num_attention_heads=5, multi_query=False,
                                    bias=True, ffn_hidden_size=52),
                     f"{ROPE} --num-attention-heads 5 --shared-norm "
                     "--activation-function gelu_exact"),
    "bigcode": ("GPTBigCode", dict(num_attention_heads=3, n_inner=52,
                                   **NO_DROPOUT),
                "--num-attention-heads 3 --attention-head-type multiquery"),
    "bigcode-heads": ("GPTBigCode", dict(num_attention_heads=2, n_inner=52,
                                         multi_query=False, **NO_DROPOUT),
                      "--num-attention-heads 2"),
    "opt": ("OPT", dict(num_attention_heads=3, ffn_dim=52, dropout=0.0,
                        word_embed_proj_dim=30),
            "--num-attention-heads 3 --activation-function relu "
            "--position-offset 2"),
    "biogpt": ("BioGpt", dict(num_attention_heads=6, hidden_dropout_prob=0.0,
                              attention_probs_dropout_prob=0.0),
               "--num-attention-heads 6 --activation-function gelu_exact "
               "--position-offset 2 --scale-embedding"),
    "galactica": ("OPT", dict(num_attention_heads=2, ffn_dim=52, dropout=0.0,
                              word_embed_proj_dim=30, enable_bias=False,
                              activation_function="gelu"),
                  "--num-attention-heads 2 --activation-function gelu_exact "
                  "--position-offset 2 --disable-bias-linear"),
    "bloom": ("Bloom", dict(num_attention_heads=3, seq_length=160),
              "--num-attention-heads 3 --ffn-hidden-size 120 "
              "--position-embedding-type alibi --embedding-norm"),
    "gptj": ("GPTJ", dict(num_attention_heads=3, n_inner=52, rotary_dim=4,
                          **NO_DROPOUT),
             f"{ROPE} --rotary-percent 0.4 --rotary-interleaved "
             "--num-attention-heads 3 --shared-norm --no-attention-bias "
             "--output-bias --untie-embeddings-and-output-weights"),
    "gptj-tp": ("GPTJ", dict(num_attention_heads=2, n_inner=52, rotary_dim=6,
                             **NO_DROPOUT),
                f"{ROPE} --rotary-percent 0.4 --rotary-interleaved "
                "--num-attention-heads 2 --shared-norm --no-attention-bias "
                "--output-bias --untie-embeddings-and-output-weights"),
    "codegen": ("CodeGen", dict(num_attention_heads=8, hidden_size=64,
                                n_inner=52, rotary_dim=4, **NO_DROPOUT),
                f"{ROPE} --rotary-percent 0.5 --rotary-interleaved "
                "--num-attention-heads 8 --hidden-size 64 --shared-norm "
                "--no-attention-bias --output-bias "
                "--untie-embeddings-and-output-weights"),
    "phi": ("Phi", dict(**GROUPS, hidden_size=48, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
            f"{ROPE} {GQA} --hidden-size 48 --rotary-percent 0.5 "
            "--shared-norm --output-bias "
            "--untie-embeddings-and-output-weights"),
    "phi-norms": ("Phi", dict(num_attention_heads=3, num_key_value_heads=3,
                              qk_layernorm=True, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.4)),
                  f"{ROPE} --num-attention-heads 3 --rotary-percent 0.4 "
                  "--shared-norm --output-bias --qk-layernorm "
                  "--untie-embeddings-and-output-weights"),
    "stablelm": ("StableLm", dict(**GROUPS, hidden_size=48, use_qkv_bias=True),
                 f"{ROPE} {GQA} --hidden-size 48 --rotary-percent 0.25 "
                 "--swiglu --disable-bias-linear --add-qkv-bias "
                 "--untie-embeddings-and-output-weights"),
    "stablelm-parallel": ("StableLm", dict(**GROUPS, hidden_size=48,
                                           use_parallel_residual=True),
                          f"{ROPE} {GQA} --hidden-size 48 "
                          "--rotary-percent 0.25 --swiglu "
                          "--disable-bias-linear --shared-norm "
                          "--untie-embeddings-and-output-weights"),
    "cohere": ("Cohere", dict(**GROUPS, hidden_size=48, logit_scale=0.3),
               f"{COHERE} {GQA} --hidden-size 48 --rotary-base 500000 "
               "--logit-multiplier 0.3"),
    "stablelm-norms": ("StableLm", dict(**GROUPS, hidden_size=48,
                                        qk_layernorm=True),
                       f"{ROPE} {GQA} --hidden-size 48 --rotary-percent 0.25 "
                       "--swiglu --disable-bias-linear --qk-norm-each "
                       "--untie-embeddings-and-output-weights"),
    "cohere-norms": ("Cohere", dict(**GROUPS, hidden_size=48, logit_scale=0.3,
                                    use_qk_norm=True),
                     f"{COHERE} {GQA} --hidden-size 48 --rotary-base 500000 "
                     "--logit-multiplier 0.3 --qk-norm-each"),
    "cohere2": ("Cohere2", dict(**GROUPS, hidden_size=48, sliding_window=9,
                                num_hidden_layers=4, logit_scale=0.25,
                                sliding_window_pattern=3),
                f"{COHERE} {GQA} --hidden-size 48 --num-layers 4 "
                "--logit-multiplier 0.25 --window-size 8 --no-rope-freq 3 "
                "--window-attn-skip-freq 3"),
    "granite": ("Granite", dict(**GROUPS, head_dim=8, embedding_multiplier=3.0,
                                residual_multiplier=0.22, logits_scaling=5.0,
                                attention_multiplier=0.3),
                LLAMA + GQA + "--kv-channels 8 --embedding-multiplier 3 "
                "--residual-multiplier 0.22 --logit-multiplier 0.2 "
                "--query-pre-attn-scalar 11.11111111111111"),
    "smollm3": ("SmolLM3", dict(**GROUPS, hidden_size=48, num_hidden_layers=4,
                                no_rope_layer_interval=3),
                LLAMA.replace("--untie-embeddings-and-output-weights", "") +
                GQA + "--hidden-size 48 --num-layers 4 --no-rope-freq 3 "
                "--rotary-base 2000000"),
    "smollm3-list": ("SmolLM3", dict(**GROUPS, hidden_size=48,
                                     num_hidden_layers=4,
                                     no_rope_layers=[0, 1, 1, 0]),
                     LLAMA.replace("--untie-embeddings-and-output-weights",
                                   "") + GQA + "--hidden-size 48 --num-layers "
                     "4 --no-rope-freq [1]+[0]*2+[1] --rotary-base 2000000"),
    "ernie": ("Ernie4_5", dict(**GROUPS, head_dim=8),
              LLAMA.replace("1e-6", "1e-5").replace(
                  "--untie-embeddings-and-output-weights", "") + GQA +
              "--kv-channels 8 --rotary-base 500000 --rotary-interleaved"),
    "glm": ("Glm", dict(**GROUPS, head_dim=8, rms_norm_eps=1e-6),
            LLAMA + GQA + "--kv-channels 8 --rotary-percent 0.5 "
            "--rotary-interleaved --add-qkv-bias"),
    "glm4": ("Glm4", dict(**GROUPS, head_dim=8, rms_norm_eps=1e-6,
                          attention_bias=False),
             LLAMA + GQA + "--kv-channels 8 --rotary-percent 0.5 "
             "--rotary-interleaved --post-norm"),
    "nemotron": ("Nemotron", dict(**GROUPS, hidden_size=48),
                 f"{ROPE} {GQA} --hidden-size 48 --rotary-percent 0.5 "
                 "--apply-layernorm-1p --squared-relu --disable-bias-linear "
                 "--untie-embeddings-and-output-weights"),
    "arcee": ("Arcee", dict(**GROUPS, hidden_size=48),
              f"{ROPE} {GQA} --hidden-size 48 --normalization RMSNorm "
              "--squared-relu --disable-bias-linear "
              "--untie-embeddings-and-output-weights"),
    "seed": ("SeedOss", dict(**GROUPS, head_dim=8, attention_dropout=0.0,
                             residual_dropout=0.0),
             LLAMA + GQA + "--kv-channels 8 --add-qkv-bias"),
    "gemma3": ("Gemma3", dict(**GROUPS, hidden_size=48, head_dim=8,
                              num_hidden_layers=4, sliding_window=7,
                              query_pre_attn_scalar=13,
                              attn_logit_softcapping=0.5,  # not read
                              layer_types=["sliding_attention"] * 2 + [
                                  "full_attention", "sliding_attention"],
                              rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=3.0,
                            rope_theta=1000.0),
        sliding_attention=dict(rope_type="default", rope_theta=100.0))),
               GEMMA + GQA + "--hidden-size 48 --kv-channels 8 --num-layers 4 "
               "--post-norm --qk-layernorm --window-size 6 "
               "--window-attn-skip-freq 3 --query-pre-attn-scalar 13 "
               "--rotary-base 1000 --rotary-local-base 100 "
               "--rotary-scaling-type linear --rotary-scaling-factor 3"),
    "olmo3": ("Olmo3", dict(**GROUPS, hidden_size=48, num_hidden_layers=4,
                            sliding_window=9, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", factor=4.0, rope_theta=1000.0,
                            original_max_position_embeddings=40),
        sliding_attention=dict(rope_type="default", rope_theta=1000.0))),
              LLAMA.replace("1e-6", "1e-5") + GQA + "--hidden-size 48 "
              "--num-layers 4 --no-pre-norm --qk-norm-whole --window-size 8 "
              "--window-attn-skip-freq 4 --rotary-base 1000 "
              "--rotary-local-base 1000 --rotary-scaling-type yarn "
              "--rotary-scaling-factor 4 --rotary-original-positions 40"),
    "olmo3-list": ("Olmo3", dict(**GROUPS, hidden_size=48,
                                 num_hidden_layers=4, sliding_window=9,
                                 layer_types=["sliding_attention",
                                              "full_attention"] +
                                 ["sliding_attention"] * 2),
                   LLAMA.replace("1e-6", "1e-5") + GQA + "--hidden-size 48 "
                   "--num-layers 4 --no-pre-norm --qk-norm-whole "
                   "--window-size 8 --window-attn-skip-freq [1,0]+[1]*2 "
                   "--rotary-base 500000"),
    "exaone4": ("Exaone4", dict(**GROUPS, hidden_size=48, num_hidden_layers=4,
                                sliding_window=9),
                LLAMA.replace("1e-6", "1e-5") + GQA + "--hidden-size 48 "
                "--num-layers 4 --no-pre-norm --qk-layernorm --window-size 8 "
                "--window-attn-skip-freq 4 --no-rope-freq 4"),
    "exaone4-full": ("Exaone4", dict(**GROUPS, hidden_size=48,
                                     sliding_window=None,
                                     layer_types=["full_attention"] * 2),
                     LLAMA.replace("1e-6", "1e-5") + GQA + "--hidden-size 48 "
                     "--no-pre-norm --qk-layernorm"),
    "vaultgemma": ("VaultGemma", dict(**GROUPS, head_dim=8, hidden_size=48,
                                      num_hidden_layers=4, sliding_window=10,
                                      query_pre_attn_scalar=13,
                                      attn_logit_softcapping=2.0,
                                      final_logit_softcapping=3.0),
                   GEMMA + GQA + "--kv-channels 8 --num-layers 4 "
                   "--hidden-size 48 --window-size 9 "
                   "--window-attn-skip-freq 2 --query-pre-attn-scalar 13 "
                   "--attn-logit-softcapping 2 --final-logit-softcapping 3"),
    "hyperclovax": ("HyperCLOVAX", dict(**GROUPS, head_dim=8, hidden_size=48,
                                        embedding_multiplier=3.0,
                                        logits_scaling=0.2,
                                        attention_multiplier=0.25),
                    LLAMA + GQA + "--hidden-size 48 --kv-channels 8 "
                    "--post-norm --embedding-multiplier 3 "
                    "--logit-multiplier 0.2 --query-pre-attn-scalar 16"),
    "helium": ("Helium", dict(**GROUPS, head_dim=8, hidden_size=48),
               LLAMA.replace("1e-6", "1e-8") + GQA + "--hidden-size 48 "
               "--kv-channels 8 --rotary-interleaved --rotary-base 100000"),
    "internlm3": ("InternLM3", dict(**GROUPS, head_dim=10),
                  LLAMA.replace("1e-6", "1e-5") + GQA + "--kv-channels 10"),
    # within training, and within the text that is generated, queries grow
    "ministral3": ("Ministral3", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="yarn", factor=16.0, original_max_position_embeddings=10,
        beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.3, max_position_embeddings=160)),
                   LLAMA.replace("1e-6", "1e-5") + GQA + "--kv-channels 8 "
                   "--rotary-base 1000 --rotary-scaling-type yarn "
                   "--rotary-scaling-factor 16 --rotary-attention-factor 1 "
                   "--rotary-original-positions 10 --rotary-query-growth 0.3"),
    "hunyuan": ("HunYuanDenseV1", dict(**GROUPS, head_dim=8, **scaled(
        rope_type="dynamic", alpha=7.5, factor=1.0)),
                LLAMA.replace("1e-6", "1e-5") + GQA + "--kv-channels 8 "
                "--qk-norm-turned --rotary-base 1000 "
                "--rotary-scaling-type ntk_alpha --rotary-scaling-factor 7.5"),
    "granite4": ("GraniteMoeHybrid", dict(
        **GROUPS, hidden_size=48, shared_intermediate_size=52,
        num_local_experts=0, position_embedding_type="rope", mamba_n_heads=4,
        layer_types=["attention"] * 2, embedding_multiplier=3.0,
        logits_scaling=5.0, residual_multiplier=0.3,
        attention_multiplier=0.25),
                 LLAMA + GQA + "--hidden-size 48 --embedding-multiplier 3 "
                 "--residual-multiplier 0.3 --logit-multiplier 0.2 "
                 "--query-pre-attn-scalar 16"),
    # Llama 3's scaling by default
    "cwm": ("Cwm", dict(**GROUPS, head_dim=8, num_hidden_layers=4,
                        sliding_window=9, bos_token_id=0),
            LLAMA.replace("1e-6", "1e-5") + GQA + "--num-layers 4 "
            "--kv-channels 8 --window-size 8 "
            "--window-full-layers 1 --rotary-base 1000000 "
            "--rotary-scaling-type llama3 --rotary-scaling-factor 16"),
    "cwm-plain": ("Cwm", dict(**GROUPS, head_dim=8, num_hidden_layers=8,
                              sliding_window=9, bos_token_id=0,
                              **scaled(rope_type="default")),
                  LLAMA.replace("1e-6", "1e-5") + GQA + "--num-layers 8 "
                  "--kv-channels 8 --window-size 8 "
                  "--window-attn-skip-freq [0,1,1,1]*2 --rotary-base 1000"),
    "ministral": ("Ministral", dict(**GROUPS, hidden_size=48, head_dim=8,
                                    num_hidden_layers=4, sliding_window=9,
                                    layer_types=["sliding_attention",
                                                 "full_attention"] * 2),
                  LLAMA + GQA + "--hidden-size 48 --num-layers 4 "
                  "--window-size 8 --window-attn-skip-freq 2"),
    "iquest": ("IQuestCoder", dict(**GROUPS, head_dim=8),
               LLAMA.replace("1e-6", "1e-5") + GQA + "--kv-channels 8"),
    "exaone": ("Exaone", dict(**GROUPS, head_dim=8),
               LLAMA.replace("1e-6", "1e-5") + GQA + "--kv-channels 8 "
               "--rotary-base 500000"),
    "gpt_neo": ("GPTNeo", dict(num_heads=6, num_hidden_layers=4,
                               intermediate_size=52, window_size=9,
                               attention_types=[[["global", "local"], 2]],
                               resid_dropout=0.0, embed_dropout=0.0,
                               attention_dropout=0.0),
                "--num-attention-heads 6 --num-layers 4 --no-qkv-bias "
                "--query-pre-attn-scalar 1 --window-size 8 "
                "--window-attn-skip-freq [0,1]*2"),
    "gpt_neo-global": ("GPTNeo", dict(num_heads=3, num_layers=2, window_size=9,
                                      attention_types=[[["global"], 2]],
                                      hidden_size=30, resid_dropout=0.0,
                                      embed_dropout=0.0,
                                      attention_dropout=0.0),
                       "--num-attention-heads 3 --no-qkv-bias "
                       "--query-pre-attn-scalar 1"),
    "llama-biases": ("Llama", dict(**GROUPS, head_dim=8, attention_bias=True,
                                   mlp_bias=True),
                     LLAMA.replace("--disable-bias-linear", "") + GQA +
                     "--kv-channels 8"),
    "llama-attention-bias": ("Llama", dict(**GROUPS, head_dim=8,
                                           attention_bias=True),
                             LLAMA.replace("--disable-bias-linear", "") + GQA +
                             "--kv-channels 8 --no-mlp-bias"),
    "llama-mlp-bias": ("Llama", dict(**GROUPS, head_dim=8, mlp_bias=True),
                       LLAMA.replace("--disable-bias-linear", "") + GQA +
                       "--kv-channels 8 --no-attention-bias"),
    "olmo": ("Olmo", dict(**GROUPS, hidden_size=48),
             f"{ROPE} {GQA} --hidden-size 48 --swiglu --no-norm-weight "
             "--disable-bias-linear --untie-embeddings-and-output-weights"),
    "olmo-clip": ("Olmo", dict(**GROUPS, hidden_size=48, clip_qkv=0.5),
                  f"{ROPE} {GQA} --hidden-size 48 --swiglu --no-norm-weight "
                  "--disable-bias-linear --clip-qkv 0.5 "
                  "--untie-embeddings-and-output-weights"),
    "nanochat": ("NanoChat", dict(**GROUPS, hidden_size=48,
                                  final_logit_softcapping=1.5),
                 f"{ROPE} {GQA} --hidden-size 48 --normalization RMSNorm "
                 "--norm-epsilon 1e-6 --no-norm-weight --embedding-norm "
                 "--qk-norm-turned --squared-relu --disable-bias-linear "
                 "--final-logit-softcapping 1.5 "
                 "--untie-embeddings-and-output-weights"),
    "apertus": ("Apertus", dict(**GROUPS, hidden_size=48, dtype="float32"),
                f"{ROPE} {GQA} --hidden-size 48 --normalization RMSNorm "
                "--qk-layernorm --activation-function xielu "
                "--disable-bias-linear --untie-embeddings-and-output-weights "
                "--rotary-base 12000000 --rotary-scaling-type llama3"),
    "apertus1.5": ("Apertus1p5", dict(**GROUPS, hidden_size=48,
                                      dtype="float32"),
                   f"{ROPE} {GQA} --hidden-size 48 --normalization RMSNorm "
                   "--qk-layernorm --activation-function xielu "
                   "--disable-bias-linear "
                   "--untie-embeddings-and-output-weights "
                   "--rotary-base 12000000 --rotary-scaling-type llama3"),
    "mpt": ("Mpt", dict(n_heads=3, max_seq_len=160),
            "--num-attention-heads 3 --ffn-hidden-size 120 --no-norm-bias "
            "--position-embedding-type alibi --disable-bias-linear "
            "--activation-function gelu_exact"),
    "mpt-clip": ("Mpt", dict(n_heads=6, hidden_size=48, max_seq_len=160,
                             attn_config=dict(clip_qkv=0.2)),
                 "--num-attention-heads 6 --hidden-size 48 "
                 "--ffn-hidden-size 192 --no-norm-bias --clip-qkv 0.2 "
                 "--position-embedding-type alibi --disable-bias-linear "
                 "--activation-function gelu_exact"),
    "persimmon": ("Persimmon", dict(num_attention_heads=2, rope_parameters=dict(
        rope_type="default", rope_theta=25000.0, partial_rotary_factor=0.4)),
                  f"{ROPE} --num-attention-heads 2 --rotary-percent 0.4 "
                  "--rotary-base 25000 --squared-relu --qk-layernorm "
                  "--untie-embeddings-and-output-weights"),
    "jais2": ("Jais2", dict(**GROUPS, hidden_size=48),
              f"{ROPE} {GQA} --hidden-size 48 --squared-relu "
              "--untie-embeddings-and-output-weights"),
}


# A text part of a model that reads pictures or sound, too: the whole's class and
# settings, the part's class and settings, the type that goes out.
SEES = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1,
            num_attention_heads=2, image_size=28, patch_size=14)
CLIP = dict(model_type="clip_vision_model", **SEES)
SIGLIP = dict(model_type="siglip_vision_model", **SEES)
BLOCKS = dict(depth=1, hidden_size=16, out_hidden_size=48, num_heads=2,
              patch_size=14, intermediate_size=20, fullatt_block_indexes=[0])
THREE = dict(hidden_size=48, head_dim=8, rope_parameters=dict(
    rope_type="default", rope_theta=1000.0, mrope_section=[1, 1, 2]))
HEARS = dict(d_model=16, hidden_size=16, intermediate_size=64,
             encoder_ffn_dim=20, num_hidden_layers=1, encoder_layers=1,
             num_attention_heads=2, encoder_attention_heads=2, num_mel_bins=8,
             max_source_positions=20)
IMAGE = dict(image_token_index=VOCAB - 1)
TOKEN = dict(image_token_id=VOCAB - 1)
SIDES = dict(rope_type="default", rope_theta=1000.0, mrope_section=[1, 1, 2])
MOE = dict(hidden_size=48, num_experts_per_tok=2, moe_intermediate_size=24)
COMMAND = dict(hidden_size=48, num_hidden_layers=4, sliding_window=9,
               logit_scale=0.25)
PARTS = {
    f"{name}{', untied' * (not tied)}": (
        whole, dict(tie_word_embeddings=tied, **more), part,
        {**GROUPS, **changes}, goes_out)
    for tied in (True, False)
    for name, whole, more, part, changes, goes_out in (
        ("gemma3-pictures", "Gemma3", dict(
            mm_tokens_per_image=4, **IMAGE, vision_config=SIGLIP),
         "Gemma3TextConfig", dict(hidden_size=48, head_dim=8, sliding_window=7,
                                  num_hidden_layers=7), "gemma3_text"),
        ("mistral3-pictures", "Mistral3", dict(**IMAGE, vision_config=dict(
            model_type="pixtral", head_dim=8, **SEES)), "MistralConfig",
         dict(head_dim=8, sliding_window=9), "mistral"),
        ("mistral3-newer", "Mistral3", dict(**IMAGE, vision_config=dict(
            model_type="pixtral", head_dim=8, **SEES)), "Ministral3Config",
         dict(head_dim=8), "ministral3"),
        ("llava", "Llava", dict(**IMAGE, vision_config=CLIP), "LlamaConfig",
         dict(head_dim=8), "llama"),
        ("pixtral", "Llava", dict(**IMAGE, vision_config=dict(
            model_type="pixtral", head_dim=8, **SEES)), "MistralConfig",
         dict(head_dim=8, sliding_window=None), "mistral"),
        ("llava-next", "LlavaNext", dict(**IMAGE, vision_config=CLIP),
         "MistralConfig", dict(head_dim=8, sliding_window=9), "mistral"),
        ("llava-onevision", "LlavaOnevision", dict(
            **IMAGE, vision_config=SIGLIP), "Qwen2Config",
         dict(hidden_size=48, num_hidden_layers=4, use_sliding_window=True,
              sliding_window=7, max_window_layers=1), "qwen2"),
        ("vipllava", "VipLlava", dict(**IMAGE, vision_config=CLIP,
                                      vision_feature_layers=[-1]),
         "LlamaConfig", dict(head_dim=8), "llama"),
        ("internvl", "InternVL", dict(image_token_id=VOCAB - 1,
                                      vision_config=SEES), "Qwen2Config",
         dict(hidden_size=48), "qwen2"),
        ("got-ocr", "GotOcr2", dict(image_token_id=VOCAB - 1,
                                    vision_config=dict(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            image_size=32, patch_size=16, output_channels=16, mlp_dim=20,
            window_size=2, global_attn_indexes=[0])), "Qwen2Config",
         dict(hidden_size=48), "qwen2"),
        ("qwen2-vl", "Qwen2VL", dict(
            image_token_id=VOCAB - 1, vision_config=dict(
                depth=1, embed_dim=16, hidden_size=48, num_heads=2,
                patch_size=14)), "Qwen2VLTextConfig", THREE, "qwen2"),
        ("qwen2.5-vl", "Qwen2_5_VL", dict(
            image_token_id=VOCAB - 1, vision_config=BLOCKS),
         "Qwen2_5_VLTextConfig", THREE, "qwen2"),
        ("qwen3-vl", "Qwen3VL", dict(
            image_token_id=VOCAB - 1, vision_config=dict(
                **BLOCKS, deepstack_visual_indexes=[0],
                num_position_embeddings=16)),
         "Qwen3VLTextConfig", THREE, "qwen3"),
        ("aya", "AyaVision", dict(**IMAGE, vision_config=SIGLIP,
                                  alignment_intermediate_size=20),
         "Cohere2Config", COMMAND, "cohere2"),
        ("command-a", "Cohere2Vision", dict(
            **TOKEN, vision_config=SIGLIP, alignment_intermediate_size=20),
         "Cohere2Config", COMMAND, "cohere2"),
        ("llava-video", "LlavaNextVideo", dict(**IMAGE, vision_config=CLIP),
         "LlamaConfig", dict(head_dim=8), "llama"),
        ("video-llava", "VideoLlava", dict(**IMAGE, vision_config=CLIP),
         "LlamaConfig", dict(head_dim=8), "llama"),
        ("ovis2", "Ovis2", dict(
            **TOKEN, vision_config=SEES, vocab_size=VOCAB, hidden_size=48,
            visual_indicator_token_ids=list(range(VOCAB - 6, VOCAB - 1))),
         "Qwen2Config", dict(hidden_size=48), "qwen2"),
        ("lighton-ocr", "LightOnOcr", dict(**TOKEN, vision_config=dict(
            model_type="pixtral", head_dim=8, **SEES)), "Qwen3Config",
         dict(head_dim=8), "qwen3"),
        ("video-llama3", "VideoLlama3", dict(**TOKEN, vision_config=SEES),
         "Qwen2Config", dict(hidden_size=48), "qwen2"),
        ("hyperclovax-pictures", "HyperCLOVAXVisionV2", dict(
            **TOKEN, vision_config=dict(model_type="qwen2_5_vl_vision",
                                        **BLOCKS)),
         "HyperCLOVAXConfig", dict(hidden_size=48), "hyperclovax"),
        ("deepseek-vl", "DeepseekVL", dict(**TOKEN, vision_config=SIGLIP),
         "LlamaConfig", dict(hidden_size=48), "llama"),
        ("janus", "Janus", dict(
            **TOKEN, vision_config=dict(**SEES, projection_dim=48,
                                        num_image_tokens=4),
            vq_config=dict(embed_dim=8, num_embeddings=16, base_channels=32,
                           channel_multiplier=[1, 1], num_res_blocks=1,
                           image_token_embed_dim=48, projection_dim=48,
                           latent_channels=32)),
         "LlamaConfig", dict(hidden_size=48), "llama"),
        ("exaone4.5", "Exaone4_5_", dict(**TOKEN, vision_config=BLOCKS),
         "Exaone4Config", dict(hidden_size=48, num_hidden_layers=4,
                               sliding_window=9), "exaone4"),
        ("glm4v", "Glm4v", dict(**TOKEN, vision_config=dict(
            BLOCKS, image_size=28)), "Glm4vTextConfig", dict(
                hidden_size=48, rope_parameters=dict(
                    rope_type="default", rope_theta=1000.0,
                    mrope_section=[1, 1, 0], partial_rotary_factor=0.5)),
         "glm4"),
        ("idefics3", "Idefics3", dict(
            image_token_id=VOCAB - 1, vision_config=SEES), "LlamaConfig",
         dict(head_dim=8), "llama"),
        ("smolvlm", "SmolVLM", dict(
            image_token_id=VOCAB - 1, vision_config=SEES), "LlamaConfig",
         dict(head_dim=8), "llama"),
        ("voxtral", "Voxtral", dict(audio_config=HEARS), "LlamaConfig",
         dict(hidden_size=48), "llama"),
        ("qwen3-vl-moe", "Qwen3VLMoe", dict(
            **TOKEN, vision_config=dict(
                **BLOCKS, deepstack_visual_indexes=[0],
                num_position_embeddings=16)),
         "Qwen3VLMoeTextConfig", dict(MOE, head_dim=8, num_experts=4,
                                      rope_parameters=SIDES), "qwen3_moe"),
        ("glm4.6v", "Glm46V", dict(**TOKEN, vision_config=dict(
            BLOCKS, image_size=28)), "Glm4vTextConfig", dict(
                hidden_size=48, rope_parameters=dict(
                    SIDES, mrope_section=[1, 1, 0],
                    partial_rotary_factor=0.5)), "glm4"),
        ("glm4.5v", "Glm4vMoe", dict(**TOKEN, vision_config=dict(
            BLOCKS, image_size=28)), "Glm4vMoeTextConfig", dict(
                MOE, n_routed_experts=4, num_hidden_layers=3,
                rope_parameters=dict(SIDES, mrope_section=[1, 1, 0],
                                     partial_rotary_factor=0.5)), "glm4_moe"),
        ("glm-ocr", "GlmOcr", dict(**TOKEN, vision_config=dict(
            BLOCKS, image_size=28)), "GlmOcrTextConfig", dict(
                hidden_size=48, rope_parameters=SIDES), "glm4"),
        ("paddle-ocr", "PaddleOCRVL", dict(
            **TOKEN, vision_config=SEES), "PaddleOCRTextConfig",
         dict(hidden_size=48, head_dim=8, rope_parameters=SIDES), "llama"),
        ("mllama", "Mllama", dict(image_token_index=VOCAB, vision_config=dict(
            hidden_size=16, intermediate_size=20, num_hidden_layers=1,
            num_global_layers=1, attention_heads=2, image_size=28,
            patch_size=14, vision_output_dim=32,
            intermediate_layers_indices=[0], max_num_tiles=1,
            supported_aspect_ratios=[[1, 1]])), "MllamaTextConfig",
         dict(hidden_size=48, num_hidden_layers=5, bos_token_id=0,
              cross_attention_layers=[1, 3]), "llama"),
        ("idefics2", "Idefics2", dict(
            **TOKEN, vision_config=SEES, perceiver_config=dict(
                hidden_size=30, resampler_n_latents=2, resampler_depth=1,
                resampler_n_heads=2, resampler_head_dim=8,
                num_key_value_heads=1)), "MistralConfig",
         dict(head_dim=8, sliding_window=9), "mistral"),
        ("blip-2", "Blip2", dict(
            vision_config=SEES, num_query_tokens=2, qformer_config=dict(
                hidden_size=16, intermediate_size=20, num_hidden_layers=1,
                num_attention_heads=2, encoder_hidden_size=16)), "OPTConfig",
         dict(ffn_dim=52, word_embed_proj_dim=30, num_attention_heads=3,
              dropout=0.0), "opt"),
        ("instructblip", "InstructBlip", dict(
            vision_config=SEES, num_query_tokens=2, qformer_config=dict(
                hidden_size=16, intermediate_size=20, num_hidden_layers=1,
                num_attention_heads=2, encoder_hidden_size=16)), "LlamaConfig",
         dict(head_dim=8), "llama"),
        ("deepseek-vl-hybrid", "DeepseekVLHybrid", dict(
            **TOKEN, vision_config=SIGLIP, high_res_vision_config=dict(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                image_size=32, patch_size=16, output_channels=16, mlp_dim=20,
                window_size=2, global_attn_indexes=[0],
                model_type="sam_vision_model")),
         "LlamaConfig", dict(hidden_size=48), "llama"),
        ("perception-lm", "PerceptionLM", dict(**TOKEN, vision_config=dict(
            SIGLIP, model_args=dict(embed_dim=16))), "LlamaConfig", dict(hidden_size=48), "llama"),
        ("paligemma", "PaliGemma", dict(
            **IMAGE, projection_dim=48, vision_config=SIGLIP),
         "GemmaConfig", dict(hidden_size=48, head_dim=8), "gemma"),
        ("paligemma2", "PaliGemma", dict(
            **IMAGE, projection_dim=48, vision_config=SIGLIP),
         "Gemma2Config", dict(hidden_size=48, head_dim=8, sliding_window=7,
                              num_hidden_layers=4), "gemma2"),
        ("qwen2.5-omni", "Qwen2_5OmniThinker", dict(
            audio_config=HEARS, vision_config=dict(
                **BLOCKS, model_type="qwen2_5_omni_vision_encoder")),
         "Qwen2_5OmniTextConfig", dict(hidden_size=48, rope_parameters=SIDES),
         "qwen2"),
        ("qwen3-omni", "Qwen3OmniMoeThinker", dict(
            audio_config=dict(HEARS, output_dim=48, downsample_hidden_size=8),
            vision_config=dict(**BLOCKS, deepstack_visual_indexes=[0],
                               num_position_embeddings=16)),
         "Qwen3OmniMoeTextConfig", dict(MOE, num_experts=4,
                                        rope_parameters=SIDES), "qwen3_moe"),
        ("audio-flamingo", "AudioFlamingo3", dict(audio_config=HEARS),
         "Qwen2Config", dict(hidden_size=48), "qwen2"),
        ("glm-asr", "GlmAsr", dict(audio_config=HEARS), "LlamaConfig",
         dict(hidden_size=48), "llama"),
        ("granite-speech", "GraniteSpeech", dict(
            has_lora_adapter=False, encoder_config=dict(
                input_dim=8, hidden_dim=16, num_layers=1, num_heads=2,
                dim_head=8, output_dim=10, context_size=4),
            projector_config=dict(
                model_type="blip_2_qformer", hidden_size=16,
                intermediate_size=20, num_hidden_layers=1,
                num_attention_heads=2, encoder_hidden_size=16)),
         "GraniteConfig", dict(hidden_size=48, logits_scaling=5.0), "granite"),
        ("qwen2-audio", "Qwen2Audio", dict(audio_config=HEARS), "Qwen2Config",
         dict(hidden_size=48), "qwen2"))
}

# Switches of biases: class, its configuration, what is on in turn. A head is
# not of the width over their number.
BOTH = ["attention_bias", "mlp_bias"]
ALONE = [{"attention_bias": True}]
EACH = [dict(zip(BOTH, on)) for on in ((True, False), (False, True),
                                       (True, True))]
SWITCHES = {
    **{name: (dict(head_dim=8), EACH) for name in (
        "SmolLM3", "Exaone", "IQuestCoder", "Arcee", "Nemotron", "Granite",
        "HyperCLOVAX", "Helium")},
    **{name: (dict(head_dim=10), ALONE) for name in (
        "HunYuanDenseV1", "Cohere", "Cohere2", "Gemma", "Gemma2", "VaultGemma",
        "Gemma3", "Olmo", "Olmo2", "Olmo3", "Qwen3", "NanoChat")},
    "Apertus": (dict(dtype="float32", head_dim=10), ALONE),
    # classes that look for the size of a head, which their files do not have
    **{name: (dict(head_dim=10), [{}]) for name in (
        "Qwen2", "Phi3", "Starcoder2")},
    "Phi": (dict(head_dim=12), [{}]),
    "Jais2": ({}, EACH + [dict.fromkeys(BOTH, False)]),
    "SeedOss": (dict(head_dim=8), [
        dict(attention_bias=a, attention_out_bias=o, mlp_bias=m)
        for a in (True, False) for o in (True, False) for m in (True, False)]),
    "Ernie4_5": (dict(head_dim=8), [dict(use_bias=True)]),
    "InternLM3": (dict(head_dim=8), [dict(bias=True, qkv_bias=True)]),
    # ... and no layer with a window
    "Cwm": (dict(head_dim=8, bos_token_id=0), [
        dict(mlp_bias=True), dict(layer_types=["full_attention"] * 2)]),
    "Ministral": (dict(head_dim=8, sliding_window=9), [
        dict(layer_types=["full_attention"] * 2)]),
    "GPTNeoX": (dict(num_key_value_heads=None), [dict(attention_bias=False)]),
    "GraniteMoeHybrid": (dict(
        shared_intermediate_size=52, num_local_experts=0, mamba_n_heads=4,
        position_embedding_type="rope", layer_types=["attention"] * 2), ALONE),
}

# of the feed-forward, where it is not intermediate_size
NOT_SO_NAMED = {"ffn_hidden_size", "ffn_dim", "n_inner"}


def ok(good, what, why=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}", flush=True)
    if not good:
        print("# " + str(why).replace("\n", "\n# "))


def run(program, *args, stdin=None):
    p = subprocess.run([os.path.join(BUILD, program), *map(str, args)],
                       capture_output=True, text=True, input=stdin)
    if p.returncode:
        raise RuntimeError(f"{program} {args}: {p.returncode}\n{p.stderr}")
    return p.stdout


def state(directory):
    return load_file(os.path.join(directory, "model.safetensors"))


def known(name):
    return any(hasattr(transformers, name + x) for x in ("TextConfig",
                                                         "Config"))


def make(directory, name, changes):
    # a type without a class of its own is another type's
    cls = getattr(transformers, name + "ForCausalLM",
                  transformers.AutoModelForCausalLM)
    settings = {**SMALL, **changes}
    if not NOT_SO_NAMED.isdisjoint(settings) or name in ("Bloom", "Mpt"):
        del settings["intermediate_size"]
    if name == "Mpt": # which has names of its own
        del settings["max_position_embeddings"]
    config = (getattr(transformers, name + "TextConfig", None) or
              getattr(transformers, name + "Config"))(**settings)
    config._attn_implementation = "eager"
    m = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # biases and norms that are not 0 and 1
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.08)
    m.save_pretrained(directory)
    return cls


def model(cls, directory, dtype=torch.float32):
    """By the plainest code, but for Falcon's ALiBi, which that counts twice."""
    with open(directory + "/config.json") as f:
        how = "sdpa" if json.load(f).get("alibi") else "eager"
    return cls.from_pretrained(directory, dtype=dtype,
                               attn_implementation=how).eval()


def logits(m, tokens):
    with torch.no_grad():
        return m(torch.tensor([tokens])).logits[0]


def close(a, b, what, limit=1e-4):
    err = float((a - b).abs().max()) if a.shape == b.shape else a.shape
    ok(a.shape == b.shape and err <= limit, f"{what} ({err})")


def numbers(text):
    return torch.tensor([[float(x) for x in line.split()]
                         for line in text.splitlines()])


def narrow(name, cls, d, m, tokens):
    """bf16 here and there, both against float: no rounding is worse here than
    there, but for luck."""
    here = numbers(run("tests/parity/logits", "--bf16", d("in"), *tokens))
    there = logits(model(cls, d("hf"), torch.bfloat16), tokens).float()
    exact = logits(m, tokens)
    a, b = (float((x - exact).pow(2).mean().sqrt()) for x in (here, there))
    ok(a <= 1.25 * b, f"{name}: bf16 within its error ({a:.2g} from float, "
       f"transformers' {b:.2g})")


def greedy(m, prompt):
    """Without generate(): no special tokens, no limits but the number."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(100):
            ids.append(int(m(torch.tensor([ids])).logits[0, -1].argmax()))
    return " ".join(map(str, ids[len(prompt):]))


def scores(name, d, m, ids):
    """Texts with one context that end before the positions of pretraining and
    after them, as each is when all of it goes through the model at once."""
    lines, want = [], []
    for n, more in ((30, 60), (30, 5), (30, 5), (30, 11), (30, 12), (35, 70)):
        text = ids[:n + more]
        rows = logits(m, text[:-1]).log_softmax(-1)[n - 1:]
        want.append(rows.gather(1, torch.tensor(text[n:])[:, None]).sum())
        lines.append(json.dumps({
            "context": " ".join(map(str, text[:n])),
            "continuation": "".join(f" {i}" for i in text[n:])}) + "\n")
    out = run("gpt-generate", "--load", d("hf"), "--tokenizer-type",
              "NullTokenizer", "--vocab-size", VOCAB - 1, "--score", "--device",
              "cpu", stdin="".join(lines))
    got = [json.loads(line)["logprob"] for line in out.splitlines()]
    close(torch.tensor(got), torch.tensor(want), f"{name}: scores", 1e-3)


def train_there(m, tokens):
    """Ten steps on one sample, by torch.optim; matrices alone decay, and a norm
    of each head is none."""
    m.train()
    p = list(m.parameters())
    is_matrix = {x: x.dim() == 2 and "_norm." not in k
                 for k, x in m.named_parameters()}
    o = torch.optim.AdamW([
        dict(params=[x for x in p if is_matrix[x]], weight_decay=0.1),
        dict(params=[x for x in p if not is_matrix[x]], weight_decay=0.0)],
        **LR)
    x = torch.tensor([tokens])
    for _ in range(STEPS):
        out = m(x[:, :-1]).logits[0]
        loss = torch.nn.functional.cross_entropy(out, x[0, 1:])
        o.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p, 1.0)
        o.step()
    m.eval()
    return {k: v.detach() for k, v in m.state_dict().items()}


def data_set(work):
    """A text of period SEQ: all samples are the same."""
    period = [random.randrange(VOCAB - 1) for _ in range(SEQ)]
    text = os.path.join(work, "text.jsonl")
    with open(text, "w") as f:
        f.write(json.dumps({"text": " ".join(map(str, period * 64))}) + "\n")
    run("gpt-preprocess", "--input", text, "--output-prefix",
        os.path.join(work, "text"), "--tokenizer-type", "NullTokenizer",
        "--vocab-size", VOCAB - 1)
    return period + period[:1]


def trains(work, d, name, options, want, there, there0, tokens):
    layouts = {"": (1, []), ", PP 2": (2, [
        "--pipeline-model-parallel-size", 2])}
    if len(DEVICES) > 1:
        layouts[", emulated CUDA"] = (1, ["--device", DEVICES[1]])
    if "--num-attention-heads 6" in options or \
            "--num-attention-heads 8" in options or \
            "--num-attention-heads 2" in options:
        layouts[", TP 2 and SP"] = (2, ["--tensor-model-parallel-size", 2,
                                        "--sequence-parallel"])
    for layout, (ranks, more) in layouts.items():
        save, out = d("trained" + str(len(layout))), d("out" +
                                                       str(len(layout)))
        args = ["--load", d("hf"), "--finetune", "--save", save,
                "--data-path", os.path.join(work, "text_text_document"),
                "--tokenizer-type", "NullTokenizer", "--vocab-size",
                VOCAB - 1, *SIZES.split(), *options.split(), "--seq-length",
                SEQ, "--train-iters", STEPS, "--lr", LR["lr"], "--adam-eps",
                LR["eps"], "--adam-beta2", 0.95, "--weight-decay", 0.1,
                "--lr-decay-style", "constant", "--hidden-dropout", 0,
                "--attention-dropout", 0, "--eval-iters", 0, "--split",
                "100,0,0", *([] if "--device" in more else
                             ["--device", "cpu"]), *more]
        if ranks == 1:
            run("gpt-train", *args)
        else:
            run("gpt-launch", "--standalone", "--nproc-per-node", ranks,
                os.path.join(BUILD, "gpt-train"), *args)
        run("gpt-reshape", "--load-path", save, "--save-path", out, "--to",
            "hf", "--verify")
        end = model(there, out)
        got = end.state_dict()
        # another family, the same model
        if {k: v.shape for k, v in got.items()} != \
                {k: v.shape for k, v in want.items()}:
            there0.load_state_dict(want)
            close(logits(end, tokens), logits(there0, tokens),
                  f"{name}{layout}: ten steps to the same logits", 1e-3)
            continue
        worst = max(((float((got[k] - v).abs().max()) /
                      max(float(v.abs().max()), 0.1), k)
                     for k, v in want.items() if k in got), default=(9, ""))
        ok(len(got) == len(want) and worst[0] <= 1e-3,
           f"{name}{layout}: ten steps to the same weights ({worst})")


def case(work, name, cls, changes, options, tokens):
    d = lambda x: os.path.join(work, f"{name}-{x}")
    there = make(d("hf"), cls, changes)
    m = model(there, d("hf"))
    long = [random.randrange(VOCAB) for _ in range(150)]
    run("gpt-reshape", "--load-path", d("hf"), "--save-path", d("in"),
        "--verify")
    close(numbers(run("tests/parity/logits", d("in"), *long)), logits(m, long),
          f"{name}: logits")
    run("gpt-reshape", "--load-path", d("in"), "--save-path", d("back"),
        "--to", "hf", "--verify")
    kind = json.load(open(d("back") + "/config.json"))["model_type"]
    back = model(transformers.AutoModelForCausalLM, d("back"))
    narrow(name, there, d, m, long)
    close(logits(back, long), logits(m, long),
          f"{name}: back in transformers, as {kind}", 1e-6)
    run("gpt-reshape", "--load-path", d("hf"), "--save-path", d("same"),
        "--to", "hf", "--verify")
    a, b = state(d("hf")), state(d("same"))
    ok(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a),
       f"{name}: straight back, as its own family", a.keys() ^ b.keys())
    prompt = long[:7]
    want = greedy(m, prompt)
    for device in DEVICES:
        text = run("gpt-generate", "--load", d("hf"), "--tokenizer-type",
                   "NullTokenizer", "--vocab-size", VOCAB - 1, "--greedy",
                   "--tokens", 100, "--ignore-eod", "--prompt",
                   " ".join(map(str, prompt)), "--device", device)
        ok(text.split() == want.split(),
           f"{name}: the same greedy text on {device}", f"{text}\n{want}")
    if "longrope" in options:
        scores(name, d, m, long)
    want = train_there(m, tokens)
    trains(work, d, name, options, want, transformers.AutoModelForCausalLM, m,
           tokens)


def part_class(name):
    """Some are classes of the whole's module alone."""
    if hasattr(transformers, name):
        return getattr(transformers, name)
    whole = getattr(transformers, name.replace("TextConfig", "Config"), None)
    return getattr(sys.modules[whole.__module__], name) if whole else None


def part_case(work, name, cls, settings, part, changes, goes_out):
    """Logits of text alone; names of tensors as they are saved, and as they are
    in memory; the part goes out as a model of its own."""
    d = lambda x: os.path.join(work, f"{name}-{x}".replace(", ", "-"))
    config = getattr(transformers, cls + "Config")(
        text_config=part_class(part)(**{
            k: v for k, v in {**SMALL, **changes}.items()
            if "ffn_dim" not in changes or k not in (
                "intermediate_size", "num_key_value_heads")}),
        **settings)
    m = getattr(transformers, cls + "ForConditionalGeneration")(config)
    reader = (lambda m: m.language_model) if "Blip" in cls else lambda m: m
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.08)
    m.save_pretrained(d("hf"))
    m = model(type(m), d("hf"))
    for kind in "hf", "memory":
        if kind == "memory":
            os.mkdir(d(kind))
            # a few classes have no such switch
            tied = reader(m).lm_head.weight is m.get_input_embeddings().weight
            save_file({k: v for k, v in m.state_dict().items()
                       if not k.endswith("lm_head.weight") or not tied},
                      d(kind) + "/model.safetensors")
            shutil.copy(d("hf") + "/config.json", d(kind))
        long = [random.randrange(VOCAB - 1) for _ in range(150)]
        # classes of the whole leave out what Cohere's and Granite's parts have
        want = logits(reader(m), long) * getattr(
            config.text_config, "logit_scale", 1) / getattr(
                config.text_config, "logits_scaling", 1)
        close(numbers(run("tests/parity/logits", d(kind), *long)), want,
              f"{name}, names of {kind}: logits", 1e-5)
        run("gpt-reshape", "--load-path", d(kind), "--save-path",
            d("out-" + kind), "--to", "hf", "--verify")
        back = transformers.AutoModelForCausalLM.from_pretrained(
            d("out-" + kind), dtype=torch.float32,
            attn_implementation="eager").eval()
        ok(back.config.model_type == goes_out,
           f"{name}: goes out as {goes_out}", back.config.model_type)
        close(logits(back, long), want, f"{name}: back in transformers", 1e-5)
    text = run("gpt-generate", "--load", d("hf"), "--tokenizer-type",
               "NullTokenizer", "--vocab-size", VOCAB - 1, "--greedy",
               "--tokens", 100, "--ignore-eod", "--device", "cpu", "--prompt",
               " ".join(map(str, long[:7])))
    want = greedy(reader(m), long[:7])
    ok(text.split() == want.split(), f"{name}: the same greedy text",
       f"{text}\n{want}")


def switched(work, cls, changes, switches):
    """Logits here, and what comes back, with some biases."""
    d = lambda x: os.path.join(
        work, "-".join([cls, x, *(f"{k}{v}" for k, v in switches.items())]))
    what = f"{cls} with {switches}"
    there = make(d("hf"), cls, {**GROUPS, "hidden_size": 48, **changes,
                                **switches})
    m = model(there, d("hf"))
    long = [random.randrange(VOCAB) for _ in range(40)]
    close(numbers(run("tests/parity/logits", d("hf"), *long)), logits(m, long),
          f"{what}: logits", 1e-5)
    run("gpt-reshape", "--load-path", d("hf"), "--save-path", d("same"),
        "--to", "hf", "--verify")
    a, b = state(d("hf")), state(d("same"))
    back = model(there, d("same"))
    ok(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) and
       back.config.model_type == m.config.model_type, f"{what}: and back",
       a.keys() ^ b.keys())
    close(logits(back, long), logits(m, long), f"{what}: the same", 1e-6)


def main():
    random.seed(1)
    torch.manual_seed(3)
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        tokens = data_set(work)
        for name, (cls, changes, options) in CASES.items():
            if only and name not in only:
                continue
            if not known(cls):
                ok(True, f"{name} # SKIP this transformers has no {cls}")
                continue
            try:
                case(work, name, cls, changes, options, tokens)
            except Exception as e:  # a class that fails is a failed case
                ok(False, name, e)
        for name, (cls, settings, part, changes, goes_out) in PARTS.items():
            if only and name not in only:
                continue
            if not known(cls) or not part_class(part):
                ok(True, f"{name} # SKIP this transformers has no {part}")
                continue
            try:
                part_case(work, name, cls, settings, part, changes, goes_out)
            except Exception as e:
                ok(False, name, e)
        for cls, (changes, turns) in SWITCHES.items():
            if only and "switches" not in only:
                continue
            if not known(cls):
                ok(True, f"{cls} # SKIP this transformers has no {cls}")
                continue
            for switches in turns:
                try:
                    switched(work, cls, changes, switches)
                except Exception as e:
                    ok(False, f"{cls} with {switches}", e)
    print(f"1..{count}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
