#!/usr/bin/env python3
"""A native checkpoint of gpt-train as one of Megatron-LM, optimizer included.

Usage: make_megatron_run.py ITERATION DIR [TP]   (needs torch, safetensors)

ITERATION is an iter_* directory of one rank. Weights become bf16 with fp32
copies; the optimizer is that of mixed precision, with PyTorch's numbering:
first the matrices, then biases and norms, each in the order of the model. The
numbers are made from that rule alone, independently of the reader.
"""
import argparse
import json
import os
import sys

import torch
from safetensors.torch import load_file

source, out = sys.argv[1:3]
tp = int(sys.argv[3]) if len(sys.argv) > 3 else 1
with open(source + "/manifest.json") as f:
    manifest = json.load(f)
config, state = manifest["config"], manifest["state"]
tensors = {}
for name in manifest["files"]:
    if name.endswith(".safetensors"):
        tensors.update(load_file(f"{source}/{name}"))

IN_LAYER = [  # in the order of megatron-core's modules
    "input_layernorm", "self_attention.linear_proj",
    "self_attention.linear_qkv", "pre_mlp_layernorm", "mlp.linear_fc1",
    "mlp.linear_fc2"]
names = ["embedding.word_embeddings.weight",
         "embedding.position_embeddings.weight"]
for layer in range(config["num_layers"]):
    for module in IN_LAYER:
        names += [f"decoder.layers.{layer}.{module}.{kind}"
                  for kind in ("weight", "bias")]
names += ["decoder.final_layernorm.weight", "decoder.final_layernorm.bias"]


def part(tensor, name, rank):
    if tp == 1:
        return tensor
    if "linear_qkv" in name or "linear_fc1" in name or "word_emb" in name:
        return tensor.chunk(tp)[rank].clone()
    if name.endswith("weight") and ("linear_proj" in name or
                                    "linear_fc2" in name):
        return tensor.chunk(tp, 1)[rank].clone()
    return tensor


iteration = state["iteration"]
schedule = state["schedule"]
os.makedirs(out, exist_ok=True)
with open(out + "/latest_checkpointed_iteration.txt", "w") as f:
    f.write(str(iteration))
for rank in range(tp):
    model = {n: part(tensors[n], n, rank).bfloat16() for n in names}
    groups = [[n for n in names if tensors[n].dim() > 1],
              [n for n in names if tensors[n].dim() == 1]]
    adam, number = {}, 0
    param_groups = []
    for group in groups:
        param_groups.append({"lr": 0.1, "step": state["optimizer_step"],
                             "params": []})
        for n in group:
            adam[number] = {
                "exp_avg": part(tensors["optimizer.exp_avg." + n], n, rank),
                "exp_avg_sq": part(tensors["optimizer.exp_avg_sq." + n], n,
                                   rank)}
            param_groups[-1]["params"].append(number)
            number += 1
    value = {
        "args": argparse.Namespace(
            num_layers=config["num_layers"], hidden_size=config["hidden_size"],
            num_attention_heads=config["num_attention_heads"],
            vocab_size=config["vocab_size"], seed=state["seed"],
            hidden_dropout=config["hidden_dropout"],
            attention_dropout=config["attention_dropout"],
            tensor_model_parallel_size=tp, pipeline_model_parallel_size=1,
            consumed_train_samples=state["consumed_train_samples"],
            consumed_valid_samples=state["consumed_valid_samples"]),
        "checkpoint_version": 3.0, "iteration": iteration, "model": model,
        "optimizer": {
            "optimizer": {"state": adam, "param_groups": param_groups},
            "fp32_from_fp16_params": [[part(tensors[n], n, rank) for n in group]
                                      for group in groups]},
        "opt_param_scheduler": {
            "max_lr": schedule["max_lr"], "min_lr": schedule["min_lr"],
            "lr_warmup_steps": schedule["warmup_samples"],
            "lr_decay_steps": schedule["decay_samples"],
            "lr_decay_style": schedule["lr_decay_style"],
            "num_steps": state["scheduled_train_samples"],
            "start_wd": schedule["start_wd"], "end_wd": schedule["end_wd"],
            "wd_incr_style": schedule["weight_decay_incr_style"],
            "wd_incr_steps": schedule["wd_incr_samples"]}}
    path = f"{out}/iter_{iteration:07d}/mp_rank_{rank:02d}"
    os.makedirs(path, exist_ok=True)
    torch.save(value, path + "/model_optim_rng.pt")
