#!/usr/bin/env python3
"""Checkpoints as Trainer of transformers and accelerate save them.

Usage: make_trainer.py [DIR]   (needs torch, transformers, accelerate)

trainer/checkpoint-3   of Trainer: optimizer.pt, two groups
experts/checkpoint-3   the same of a model with experts and latent attention
accelerate/            of save_state(): optimizer.bin, a tied model
numbers/               one group, whose first moments are the weights, so that
                       one that is taken for another is found out; a stream of
                       pickles, which has no checksums
numbers/names/         the same state of an optimizer that was given names, and
                       gathered/, of one whose keys are names, as FSDP has it,
                       with the weights as accelerate then has them
falcon/                the same of a Falcon whose blocks follow each other, with
                       parameters in the order of today's class, and before/, in
                       that of transformers before 4.41

All runs train for three steps, save, and train for twenty more; losses.txt has
the losses of all.
"""
import os
import shutil
import sys
import tempfile

import accelerate
import torch
from transformers import (FalconConfig, FalconForCausalLM, Trainer,
                          TrainingArguments)

import named_runs
from named_runs import AFTER, BEFORE, TEXT

VOCAB = 61
KEPT = ("config.json", "model.safetensors", "optimizer.pt", "scheduler.pt",
        "trainer_state.json")


class Losses(Trainer):
    def compute_loss(self, model, inputs, *args, **more):
        loss = super().compute_loss(model, inputs, *args, **more)
        self.seen.append(loss.item())
        return loss


def trainer(directory, model):
    ids = list(TEXT + TEXT[:1])
    # Trainer counts labels: the first one is none
    rows = [{"input_ids": ids, "labels": [-100] + ids[1:]}] * 64
    with tempfile.TemporaryDirectory() as work:
        t = Losses(model, TrainingArguments(
            work, max_steps=BEFORE + AFTER, save_steps=BEFORE, use_cpu=True,
            per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
            weight_decay=0.01, lr_scheduler_type="constant",
            disable_tqdm=True, logging_steps=1000), train_dataset=rows)
        t.seen = []
        t.train()
        os.makedirs(f"{directory}/checkpoint-3")
        for name in KEPT:
            shutil.copy(f"{work}/checkpoint-3/{name}",
                        f"{directory}/checkpoint-3")
    named_runs.write_losses(directory, t.seen)


def by_accelerate(directory):
    config, model = named_runs.build("gpt2", VOCAB, 1, 20)
    a = accelerate.Accelerator(cpu=True)
    model, optimizer = a.prepare(model, named_runs.adam(model))
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            a.save_state(directory)
        loss = named_runs.loss_of(model)
        a.backward(loss)
        a.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    config.save_pretrained(directory)
    os.remove(directory + "/random_states_0.pkl")  # it is large
    named_runs.write_losses(directory, losses)


def weights_as_moments(parameters, path):
    parameters = list(parameters)
    optimizer = torch.optim.AdamW(parameters)
    for p in parameters:
        optimizer.state[p] = {"step": torch.tensor(3.0),
                              "exp_avg": p.detach().clone(),
                              "exp_avg_sq": p.detach() ** 2}
    torch.save(optimizer.state_dict(), path,
               _use_new_zipfile_serialization=False)
    return optimizer


def numbers(directory):
    model = named_runs.build("llama", VOCAB, 1, 20, tie_word_embeddings=False,
                             attention_bias=True)[1]
    model.save_pretrained(directory)
    os.remove(directory + "/generation_config.json")
    names(directory, model, weights_as_moments(
        model.parameters(), directory + "/optimizer.pt"))


def falcon(directory):
    torch.manual_seed(7)
    model = FalconForCausalLM(FalconConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2,
        num_attention_heads=2, alibi=True, new_decoder_architecture=False,
        parallel_attn=False, multi_query=False, bias=True,
        max_position_embeddings=16, bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(directory)
    os.remove(directory + "/generation_config.json")
    weights_as_moments(model.parameters(), directory + "/optimizer.pt")
    first = {n: p for n, p in model.named_parameters()
             if ".input_layernorm." in n}
    order = []
    for n, p in model.named_parameters():
        if ".post_attention_layernorm.weight" in n:
            other = n.replace("post_attention", "input")
            order += [first[other], first[other.replace("weight", "bias")]]
        if n not in first:
            order.append(p)
    os.makedirs(directory + "/before")
    weights_as_moments(order, directory + "/before/optimizer.pt")


def names(directory, model, optimizer):
    """Numbers that follow no order of the model."""
    named = [("module." + n, p) for n, p in model.named_parameters()][::-1]
    other = torch.optim.AdamW(named)
    other.state.update(optimizer.state)
    held = other.state_dict()
    for d in ("names", "gathered"):
        os.makedirs(f"{directory}/{d}")
    torch.save(held, directory + "/names/optimizer.pt")
    state = {named[k][0]: v for k, v in held["state"].items()}
    group = {"params": list(state), "lr": 1e-3, "betas": (0.9, 0.999),
             "eps": 1e-8, "weight_decay": 0.01}
    torch.save({"state": state, "param_groups": [group]},
               directory + "/gathered/optimizer.bin")
    torch.save(model.state_dict(),
               directory + "/gathered/pytorch_model_fsdp.bin")


if __name__ == "__main__":
    torch.set_num_threads(1)
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "trainer")
    trainer(top + "/trainer", named_runs.build(
        "llama", VOCAB, 1, 20, tie_word_embeddings=False,
        attention_bias=True)[1])
    trainer(top + "/experts", named_runs.build("deepseek", VOCAB, 2, 20)[1])
    by_accelerate(top + "/accelerate")
    numbers(top + "/numbers")
    falcon(top + "/falcon")
