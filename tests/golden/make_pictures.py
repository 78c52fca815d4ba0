#!/usr/bin/env python3
"""Makes tests/golden/pictures: a tiny random model of each type that reads
pictures, too, and text.txt, the greedy text that it gives after PROMPT, as ids.

    tests/golden/make_pictures.py

Needs torch, transformers and safetensors. Gemma 3 has an embedding that serves
as output layer, a config.json that leaves much out, as those of its hub, and
the names of tensors that transformers has in memory; Mistral 3 has an output
layer of its own, and the names that are saved.
"""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import save_file

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


def make(name, cls, config, as_saved, tidy):
    out = os.path.join(here, "pictures", name)
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(7)
    m = getattr(transformers, cls + "ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * (2 if p.dim() == 1 else 0.6))
    m.save_pretrained(out)
    if not as_saved:
        state = {k: v.contiguous() for k, v in m.state_dict().items()
                 if k != "lm_head.weight"}
        save_file(state, os.path.join(out, "model.safetensors"),
                  metadata={"format": "pt"})
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    os.remove(os.path.join(out, "generation_config.json"))
    path = os.path.join(out, "config.json")
    with open(path, encoding="utf-8") as f:
        c = json.load(f)
    tidy(c)
    c["vision_config"] = {k: c["vision_config"][k]
                          for k in ("model_type", "vision_use_head", *SEES)
                          if k in c["vision_config"]}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    m = type(m).from_pretrained(out, dtype=torch.float32).eval()
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


if __name__ == "__main__":
    main()
