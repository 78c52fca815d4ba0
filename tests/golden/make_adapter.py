#!/usr/bin/env python3
"""Makes tests/golden/adapter: an adapter of peft for tests/golden/hf, and in
merged/ what merge_and_unload() makes of both. Its numbers are eighths, so that
sums are exact in any order, and the merged weights the same bytes everywhere.

Usage: python3 tests/golden/make_adapter.py      (needs torch and peft)
"""
import os
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = os.path.join(HERE, "hf")
OUT = os.path.join(HERE, "adapter")

torch.manual_seed(21)
config = LoraConfig(
    task_type="CAUSAL_LM", r=2, lora_alpha=6, bias="all",
    target_modules=["c_attn", "c_fc", "mlp.c_proj", "wpe"],
    rank_pattern={r"h\.[01]\.mlp\.c_fc": 4}, alpha_pattern={"mlp.c_proj": 4},
    modules_to_save=["ln_f"])
model = get_peft_model(GPT2LMHeadModel.from_pretrained(BASE), config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.requires_grad:
            p.copy_(torch.round(torch.randn_like(p) * 2) / 8)
shutil.rmtree(OUT, ignore_errors=True)
model.peft_config["default"].base_model_name_or_path = "tests/golden/hf"
model.save_pretrained(OUT, save_embedding_layers=False)
os.remove(os.path.join(OUT, "README.md"))
merged = PeftModel.from_pretrained(GPT2LMHeadModel.from_pretrained(BASE), OUT)
merged.merge_and_unload().save_pretrained(os.path.join(OUT, "merged"))
for name in ("adapter_model.safetensors", "merged/model.safetensors"):
    os.chmod(os.path.join(OUT, name), 0o644)
os.remove(os.path.join(OUT, "merged", "generation_config.json"))
