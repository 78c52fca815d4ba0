"""Writes sampling.txt: which tokens a rule of choice keeps, by transformers'
logits processors ("hf"), and by Megatron's rule written down slowly below
("megatron"). test_sample.c reads it.

    python make_sampling.py >sampling.txt
"""
import sys

import torch
from transformers.generation import logits_process as lp

torch.manual_seed(1)
# torch.sort() orders equal values as it likes, unless it is told not to.
unstable_sort = torch.sort
torch.sort = lambda x, **how: unstable_sort(x, stable=True, **how)
MARGIN = 1e-4  # sums of probabilities this near to p are left to exact cases


def warp_hf(scores, temperature, k, p, min_p):
    ids = torch.zeros(1, 1, dtype=torch.long)
    if temperature != 1:
        scores = lp.TemperatureLogitsWarper(temperature)(ids, scores)
    if k:
        scores = lp.TopKLogitsWarper(k)(ids, scores)
    if 0 < p < 1:
        scores = lp.TopPLogitsWarper(p)(ids, scores)
    if min_p:
        scores = lp.MinPLogitsWarper(min_p)(ids, scores)
    return scores


def warp_megatron(scores, temperature, k, p, min_p):
    """One after the other, though Megatron takes k or p alone; k = 1 is the
    first of the largest. min_p is not Megatron's."""
    scores = scores.clone() / temperature
    if k == 1:
        best = int(scores.argmax())
        keep = torch.full_like(scores, -float("inf"))
        keep[0, best] = scores[0, best]
        return keep
    if k:
        kth = sorted(scores[0].tolist(), reverse=True)[min(k, scores.shape[1]) - 1]
        scores[scores < kth] = -float("inf")
    if 0 < p < 1:
        order = sorted(range(scores.shape[1]),
                       key=lambda i: (-scores[0, i].item(), i))
        probs = scores[0].double().softmax(0)
        before = 0.0
        for i in order:
            if before > p:
                scores[0, i] = -float("inf")
            before += probs[i].item()
    if min_p:
        probs = scores[0].softmax(0)
        scores[0, probs < min_p * probs.max()] = -float("inf")
    return scores


def near_boundary(scores, temperature, k, p):
    if not 0 < p < 1:
        return False
    scores = warp_hf(scores, temperature, k, 0, 0)
    sums = scores[0].double().softmax(0).sort(descending=True)[0].cumsum(0)
    return bool(((sums - p).abs() < MARGIN).any())


def line(name, values):
    print(name, len(values), *(f"{v:.9g}" for v in values))


def write(semantics, scores, prompt, text, rule, exact):
    temperature, k, p, min_p, repetition, presence, frequency = rule
    adjusted = scores.clone()
    if repetition != 1 and prompt + text:
        seen = torch.tensor([prompt + text])
        adjusted = lp.RepetitionPenaltyLogitsProcessor(repetition)(seen, adjusted)
    for i in set(text):  # as OpenAI's documentation of its API writes it
        adjusted[0, i] -= presence + frequency * text.count(i)
    if not exact and near_boundary(adjusted, temperature, k, p):
        return 0
    warp = {"hf": warp_hf, "megatron": warp_megatron}[semantics]
    kept = warp(adjusted, temperature, k, p, min_p)
    probs = kept[0].softmax(0)
    ids = (kept[0] > -float("inf")).nonzero()[:, 0].tolist()
    if probs[ids].min() < 1e-3:  # more than the test's draws can find
        return 0
    line("rule", [semantics == "hf", *rule])
    line("logits", scores[0].tolist())
    line("prompt", prompt)
    line("text", text)
    line("adjusted", adjusted[0].tolist())
    line("kept", ids)
    return 1


def main():
    off = (1, 0, 0)
    flat = torch.zeros(1, 4)
    two = torch.tensor([[1.0, 0, 1, 0, 1, 1]])
    for semantics in ("megatron", "hf"):
        n = 0
        for p in (0.25, 0.5, 0.75):  # sums of equal powers of two are exact
            n += write(semantics, flat, [], [], (1, 0, p, 0, *off), True)
        for k in (1, 2, 3, 4, 5, 6, 7):
            n += write(semantics, two, [], [], (1, k, 0, 0, *off), True)
            n += write(semantics, two, [], [], (1, k, 0.5, 0, *off), k != 3)
        n += write(semantics, flat, [], [], (0.5, 2, 0.5, 0, *off), True)
        n += write(semantics, two, [], [], (1, 0, 0, 1, *off), True)
        while n < 120:
            v = int(torch.randint(2, 24, ()))
            scores = (torch.randn(1, v) * 8).round() / 4
            ids = [torch.randint(0, v, (int(torch.randint(0, 5, ())),)).tolist()
                   for _ in range(2)]
            pick = lambda *of: of[int(torch.randint(0, len(of), ()))]
            rule = (pick(0.5, 1.0, 1.0, 2.0), pick(0, 0, 1, 2, 3, 5, 40),
                    pick(0, 0, 0.1, 0.3, 0.6, 0.9, 0.99, 1),
                    pick(0, 0, 0.05, 0.3), pick(1, 1, 1.3, 0.7),
                    pick(0, 0, 0.4, -0.25), pick(0, 0, 0.3))
            n += write(semantics, scores, *ids, rule, False)
    print("end 0")


if __name__ == "__main__":
    sys.exit(main())
