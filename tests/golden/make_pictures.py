#!/usr/bin/env python3
"""Makes tests/golden/pictures: a tiny random model of each type that reads
pictures, too, and text.txt, the greedy text that it gives after PROMPT, as ids.

    tests/golden/make_pictures.py

Needs torch, transformers and safetensors. Gemma 3 has an embedding that serves
as output layer, a config.json that leaves much out, as those of its hub, and
the names of tensors that transformers has in memory; Mistral 3 has an output
layer of its own, and the names that are saved. Qwen 3 VL's experts are
transposed in files; Llama 3.2 has layers that attend to pictures; the part of
Qwen 2.5 Omni that hears and sees is a part itself.
"""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

here = os.path.dirname(os.path.abspath(__file__))
PROMPT, TOKENS = [5, 17, 2, 40, 9], 24
SMALL = dict(vocab_size=61, hidden_size=12, intermediate_size=20,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=4, max_position_embeddings=64, bos_token_id=None,
             eos_token_id=None, pad_token_id=None)
SEES = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, image_size=8, patch_size=4)


def texts(m):
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(TOKENS):
            ids.append(int(m(torch.tensor([ids])).logits[0, -1].argmax()))
    return " ".join(map(str, ids[len(PROMPT):])) + "\n"


def whole(out, config, kind, prefix):
    """The part as one of a whole, with a tensor of the rest."""
    path = os.path.join(out, "model.safetensors")
    state = {prefix + k: v for k, v in load_file(path).items()}
    state["talker.model.norm.weight"] = torch.zeros(4)
    save_file(state, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": kind, "talker_config": {},
                   "enable_audio_output": True,
                   prefix.strip(".") + "_config": config}, f, indent=1)
        f.write("\n")


def make(name, cls, config, as_saved, tidy, wrap=None):
    out = os.path.join(here, "pictures", name)
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(7)
    m = getattr(transformers, cls + "ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * (2 if p.dim() == 1 else 0.6))
    m.save_pretrained(out)
    if not as_saved:
        tied = m.lm_head.weight is m.get_input_embeddings().weight
        state = {k: v.contiguous() for k, v in m.state_dict().items()
                 if k != "lm_head.weight" or not tied}
        save_file(state, os.path.join(out, "model.safetensors"),
                  metadata={"format": "pt"})
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    os.remove(os.path.join(out, "generation_config.json"))
    path = os.path.join(out, "config.json")
    with open(path, encoding="utf-8") as f:
        c = json.load(f)
    kept = dict(c)
    tidy(c)
    for key in ("vision_config", "audio_config"):  # no program here reads it
        if key in c:
            c[key] = {k: c[key][k] for k in (
                "model_type", "vision_use_head", *SEES) if k in c[key]}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    m = type(m).from_pretrained(out, config=type(config)(**kept),
                                dtype=torch.float32).eval()
    if wrap:
        whole(out, c, *wrap)
    with open(os.path.join(out, "text.txt"), "w", encoding="ascii") as f:
        f.write(texts(m))


def gemma3(c):
    """What is left out is the default of the class."""
    for key in ("layer_types", "rms_norm_eps", "query_pre_attn_scalar",
                "rope_parameters", "hidden_activation", "model_type",
                "tie_word_embeddings", "_sliding_window_pattern",
                "attention_bias", "attention_dropout", "use_cache"):
        c["text_config"].pop(key, None)
    del c["tie_word_embeddings"]


def main():
    make("gemma3", "Gemma3", transformers.Gemma3Config(
        text_config=dict(**SMALL, sliding_window=7), mm_tokens_per_image=4,
        vision_config=dict(**SEES, model_type="siglip_vision_model",
                           vision_use_head=False),
        image_token_index=60), False, gemma3)
    make("mistral3", "Mistral3", transformers.Mistral3Config(
        text_config=transformers.Ministral3Config(**SMALL),
        vision_config=transformers.PixtralVisionConfig(**SEES, head_dim=4),
        image_token_index=60, tie_word_embeddings=False), True, lambda c: None)
    three = dict(rope_type="default", rope_theta=1000.0, mrope_section=[1, 1, 0])
    blocks = dict(depth=1, hidden_size=8, out_hidden_size=12, num_heads=2,
                  patch_size=4, intermediate_size=8)
    make("qwen3_vl_moe", "Qwen3VLMoe", transformers.Qwen3VLMoeConfig(
        text_config=dict(**SMALL, rope_parameters=three, num_experts=4,
                         num_experts_per_tok=2, moe_intermediate_size=16),
        vision_config=dict(**blocks, deepstack_visual_indexes=[0],
                           num_position_embeddings=4),
        image_token_id=60, tie_word_embeddings=False), True, lambda c: None)
    sizes = {**SMALL, "hidden_size": 16, "bos_token_id": 0,
             "num_hidden_layers": 4}
    del sizes["head_dim"]
    make("mllama", "Mllama", transformers.MllamaConfig(
        text_config=dict(**sizes, cross_attention_layers=[1]),
        vision_config=dict(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_global_layers=1, attention_heads=2, image_size=8, patch_size=4,
            vision_output_dim=16, intermediate_layers_indices=[0],
            max_num_tiles=1, supported_aspect_ratios=[[1, 1]]),
        image_token_index=61, tie_word_embeddings=False), True, lambda c: None)
    sizes = {**SMALL, "hidden_size": 16}
    make("qwen2_5_omni", "Qwen2_5OmniThinker",
         transformers.Qwen2_5OmniThinkerConfig(
             text_config=dict(**sizes, rope_parameters=three),
             vision_config=dict(blocks, out_hidden_size=16,
                                fullatt_block_indexes=[0]),
             audio_config=dict(d_model=8, encoder_layers=1, num_mel_bins=4,
                               encoder_attention_heads=2, encoder_ffn_dim=8,
                               max_source_positions=8, output_dim=16),
             tie_word_embeddings=False), False, lambda c: None,
         ("qwen2_5_omni", "thinker."))


if __name__ == "__main__":
    main()
