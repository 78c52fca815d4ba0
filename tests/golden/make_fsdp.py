#!/usr/bin/env python3
"""Runs of PyTorch's FSDP with transformers' models, as their programs save them
with torch.distributed.checkpoint.

Usage: make_fsdp.py [DIR]   (needs torch, transformers, safetensors)

titan/step-3     as torchtitan: keys app.model and app.optim; three ranks
accelerate/      as accelerate and Trainer: checkpoint-3/pytorch_model_fsdp_0 and
                 optimizer_0; two ranks, a tied model, compiled
titan_names/     the run of titan/step-3 under the names of torchtitan, by one
                 process
plain/           weights of bf16 alone, by one process without a group
eight_bits/      one of fp8

Ranks train on a CPU for three steps, save, and train for twenty more;
losses.txt has the losses of all, weights/ what the model was when it was saved.
"""
import os
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import named_runs
from named_runs import AFTER, BEFORE

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 61
RANKS = {"titan": 3, "accelerate": 2}


def build(name):
    if name == "accelerate":
        return named_runs.build("gpt2", VOCAB, 1, 20)
    return named_runs.build("llama", VOCAB, 1, 20, tie_word_embeddings=False)


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).contiguous()


def save(rank, name, directory, config, model, weights, state):
    from safetensors.torch import save_file
    if name == "titan":
        dcp.save({"app": {"model": weights, "optim": state},
                  "lr_scheduler": {"last_epoch": 3, "base_lrs": [1e-2]},
                  "train_state": {"step": torch.tensor(3)}},
                 checkpoint_id=directory + "/step-3")
    else:
        top = directory + "/checkpoint-3"
        dcp.save({"model": {"_orig_mod." + k: v for k, v in weights.items()}},
                 checkpoint_id=top + "/pytorch_model_fsdp_0")
        dcp.save({"optimizer": state}, checkpoint_id=top + "/optimizer_0")
    held = {k: whole(v) for k, v in weights.items()}
    if rank == 0:
        os.makedirs(directory + "/weights")
        if name == "accelerate":
            del held["lm_head.weight"]
        save_file(held, directory + "/weights/model.safetensors")
        config.save_pretrained(directory)
        config.save_pretrained(directory + "/weights")


def run(rank, name, directory, port):
    warnings.filterwarnings("ignore")
    named_runs.set_ranks(port)
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo", rank=rank,
                                         world_size=RANKS[name])
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS[name],))
    config, model = build(name)
    fully_shard(model, mesh=mesh)
    optimizer = named_runs.adam(model)
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            weights, state = get_state_dict(model, optimizer)
            save(rank, name, directory, config, model, weights, state)
        loss = named_runs.loss_of(model)
        loss.backward()
        # of the whole, as gpt-train clips
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if rank == 0:
        named_runs.write_losses(directory, losses)
    torch.distributed.destroy_process_group()


def turned(t, heads):
    """Rows of queries or keys as Meta's code has them: those that turn together
    are neighbours."""
    return t.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def titan_names(run, directory):
    """Of a run that is on disk, moments as weights."""
    import shutil
    names = {"embed_tokens": "tok_embeddings", "input_layernorm":
             "attention_norm", "self_attn.q_proj": "attention.wq",
             "self_attn.k_proj": "attention.wk", "self_attn.v_proj":
             "attention.wv", "self_attn.o_proj": "attention.wo",
             "post_attention_layernorm": "ffn_norm", "mlp.gate_proj":
             "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "lm_head": "output"}
    from torch.distributed.checkpoint import FileSystemReader
    found = FileSystemReader(run + "/step-3").read_metadata()
    held = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in
            found.state_dict_metadata.items() if hasattr(v, "size")}
    dcp.load(held, checkpoint_id=run + "/step-3", no_dist=True)
    out = {}
    for k, v in held.items():
        if k.startswith("app.") and "param_groups" not in k:
            to = k.removeprefix("app.").removeprefix("model.").removeprefix(
                "optim.").replace("model.", "")
            for a, b in names.items():
                to = to.replace(a, b)
            heads = {"wq": 4, "wk": 2}.get(to.split(".weight")[0][-2:])
            out[to] = turned(v, heads).contiguous() if v.dim() > 1 and heads \
                else v
    out["freqs_cis"] = torch.polar(torch.ones(4, 2), torch.ones(4, 2))
    dcp.save(out, checkpoint_id=directory + "/step-3", no_dist=True)
    shutil.copy(run + "/config.json", directory)


def plain(directory):
    from safetensors.torch import save_file
    config, model = build("plain")
    weights = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    dcp.save({**weights, "train_state": torch.ones(3, dtype=torch.uint8)},
             checkpoint_id=directory, no_dist=True)
    config.save_pretrained(directory)
    os.makedirs(directory + "/weights")
    config.save_pretrained(directory + "/weights")
    save_file(weights, directory + "/weights/model.safetensors")


def eight_bits(directory):
    config, model = build("plain")
    words = model.model.embed_tokens.weight.detach()
    dcp.save({"model.embed_tokens.weight": words.to(torch.float8_e4m3fn)},
             checkpoint_id=directory, no_dist=True)
    config.save_pretrained(directory)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "fsdp")
    for i, name in enumerate(RANKS):
        torch.multiprocessing.spawn(run, nprocs=RANKS[name], args=(
            name, f"{top}/{name}", 29700 + i))
    titan_names(top + "/titan", top + "/titan_names")
    plain(top + "/plain")
    eight_bits(top + "/eight_bits")
