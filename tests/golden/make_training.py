#!/usr/bin/env python3
"""Makes tests/golden/training/: a small corpus, and losses and gradient norms
of trainings on it by PyTorch in float64, for tests/cli/t29-losses.sh.

    make && PATH=$PWD/build:$PATH python3 tests/golden/make_training.py

Needs PyTorch and transformers. gpt-train makes the initial weights, which are a
function of the seed, and gpt-reshape the Llama model of transformers that is
trained here: rows, masks, weights of losses, their means, clipping and AdamW
are written out as the scripts do that people use.
"""
import json
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

torch.set_default_dtype(torch.float64)

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training")
WORDS = 260
EOS, BOS, PAD = 256, 257, 258
LENGTH, MICRO, BATCH, STEPS = 16, 2, 4, 4
LR, DECAY, BETAS, EPS, CLIP = 0.01, 0.1, (0.9, 0.95), 1e-4, 1.0
MODEL = ("--num-layers 4 --hidden-size 16 --num-attention-heads 4 "
         "--num-query-groups 2 --ffn-hidden-size 24 --seq-length 16 "
         "--position-embedding-type rope --normalization RMSNorm --swiglu "
         "--disable-bias-linear --untie-embeddings-and-output-weights "
         "--hidden-dropout 0 --attention-dropout 0 --init-method-std 0.2 "
         f"--vocab-size {WORDS} --make-vocab-size-divisible-by 1 "
         "--tokenizer-type ByteTokenizer --micro-batch-size 2 "
         "--global-batch-size 4 --train-iters 4 --lr 0.01 --lr-decay-style "
         "constant --weight-decay 0.1 --adam-beta2 0.95 --adam-eps 1e-4 "
         "--split 1,0,0 --eval-iters 0 --log-interval 1 --threads 1 -q")
ROWS = (f"--document-samples --no-shuffle --bos-token-id {BOS} "
        f"--eos-token-id {EOS} --pad-token-id {PAD}")
KEYS = {ord("a"): 0.25, ord("e"): 0.25}


def texts():
    """Documents of 1 to 29 bytes: some are clipped, most are padded."""
    words = "a tree bears red leaves and sees the sea".split()
    return [" ".join(words[(7 * i + j * j) % len(words)]
                     for j in range(1 + i * 5 % 7))[:1 + i * 11 % 29]
            for i in range(20)]


def row(text):
    tokens = [BOS] + list(text.encode()) + [EOS]
    tokens += [PAD] * (LENGTH + 1 - len(tokens))
    return tokens[:LENGTH + 1]


# Of a microbatch: what each token's loss counts, and the losses.
def mean(nll, lse, x, y):
    mask = (y != PAD).double()
    return mask / mask.sum(), nll


def key_tokens(nll, lse, x, y):
    mask = (y != PAD).double()
    count = torch.stack([(x == k).double() * a for k, a in KEYS.items()])
    each = 1.0 + count.sum((0, 2))
    return mask / mask.sum(1, keepdim=True) * each[:, None] / len(x), nll


def regularised(nll, lse, x, y):
    return mean(nll, lse, x, y)[0], nll + 1e-3 * lse ** 2


def focal(nll, lse, x, y):
    return mean(nll, lse, x, y)[0], (1 - torch.exp(-nll)) ** 2 * nll


def half_of_first(nll, lse, x, y):
    """The first eight tokens of a row count half."""
    mask = (y != PAD).double()
    mask[:, :8] *= 0.5
    return mask / mask.sum(), nll


# name, options, objective, mean over all tokens, smoothing, weights of its own:
# then the objective is what is reported, else the mean loss of all tokens
CASES = [
    ("padded", ROWS, mean, False, 0.0, False),
    ("per token", ROWS + " --calculate-per-token-loss", mean, True, 0.0,
     False),
    ("key tokens", ROWS + " --token-loss-weights keys.txt", key_tokens, False,
     0.0, True),
    ("regularised", ROWS + " --label-smoothing 0.1 --z-loss 1e-3",
     regularised, False, 0.1, False),
    ("focal", ROWS + " --loss-plugin ./focal.so --loss-plugin-args 2", focal,
     False, 0.0, False),
    ("half", ROWS + " --loss-plugin ./half.so", half_of_first, False, 0.0,
     True),
]


def initial(folder):
    """The model before its first step: a rate of 0 changes nothing."""
    sh = lambda c: subprocess.run(c, shell=True, check=True, cwd=folder)
    sh(f"cp {HERE}/corpus.jsonl . && gpt-preprocess --input corpus.jsonl "
       "--output-prefix data --tokenizer-type ByteTokenizer -q")
    sh(f"gpt-train {MODEL} {ROWS} --data-path data_text_document --lr 0 "
       "--train-iters 1 --save first")
    sh("gpt-reshape --load-path first --save-path hf --to hf -q")
    return os.path.join(folder, "hf")


def train(model, objective, per_token, smoothing, own_weights):
    rows = [row(t) for t in texts()]
    decay = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decay, weight_decay=DECAY),
         dict(params=rest, weight_decay=0)], lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        batch = torch.tensor([rows[(step * BATCH + i) % len(rows)]
                              for i in range(BATCH)])
        parts = [batch] if per_token else batch.split(MICRO)
        optimizer.zero_grad()
        total, reported, tokens = 0, 0, 0
        for part in parts:
            x, y = part[:, :-1], part[:, 1:]
            logits = model(input_ids=x).logits[..., :WORDS]
            nll = F.cross_entropy(logits.flatten(0, 1), y.flatten(),
                                  reduction="none",
                                  label_smoothing=smoothing).view(y.shape)
            lse = torch.logsumexp(logits, -1)
            weights, values = objective(nll, lse, x, y)
            total = total + (weights * values).sum() / len(parts)
            reported += values[y != PAD].sum().item()
            tokens += (y != PAD).sum().item()
        total.backward()
        losses.append(total.item() if own_weights else reported / tokens)
        norms.append(torch.nn.utils.clip_grad_norm_(
            model.parameters(), CLIP).item())
        optimizer.step()
    return losses, norms


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "corpus.jsonl"), "w") as f:
        for t in texts():
            f.write(json.dumps({"text": t}) + "\n")
    with open(os.path.join(HERE, "keys.txt"), "w") as f:
        f.write("# token, what it adds to the weight of its sample\n")
        for k, a in KEYS.items():
            f.write(f"{k} {a}\n")
    with open(os.path.join(HERE, "model.options"), "w") as f:
        f.write(MODEL + "\n")
    with tempfile.TemporaryDirectory() as folder, \
            open(os.path.join(HERE, "losses.txt"), "w") as f:
        hf = initial(folder)
        f.write("# Made by tests/golden/make_training.py: a case, its options, "
                "then loss and norm a step.\n")
        for name, options, *how in CASES:
            model = LlamaForCausalLM.from_pretrained(
                hf, dtype=torch.float64, attn_implementation="eager")
            losses, norms = train(model, *how)
            f.write(f"case {name}\noptions {options}\n")
            for a, b in zip(losses, norms):
                f.write(f"step {a:.12g} {b:.12g}\n")
