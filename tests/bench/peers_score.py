#!/usr/bin/env python3
"""Times gpt-generate --score beside transformers, and compares what both say.

    peers_score.py --build build --vocab DIR --models DIR [--pairs N]
        [--rounds N]

Pairs of a context of 8 to 64 words and a continuation of 1 to 16, or, of every
second, the most probable tokens, with the random weights in floats that
peers_generate.py makes for GPT-2 124M's shape. Each round asks every program in
turn; speeds are tokens of contexts and continuations a second. Of this program
the time of one short pair is taken off, which reads the weights; transformers
has read them, and has made one batch.

"whole" computes logits of all positions, as the language model evaluation
harness does, "rows" those of continuations alone: both with pairs sorted by
length, eight at a time.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

import peers_table
from peers_generate import SHAPES, make_weights

AT_ONCE = 8


def score(args, base, lines):
    """Seconds, and what is said of each line."""
    text = "".join(json.dumps(x) + "\n" for x in lines)
    begun = time.perf_counter()
    done = subprocess.run(
        [f"{args.build}/gpt-generate", "--load", base, "--score", "-q"],
        input=text, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    return seconds, [json.loads(line) for line in done.stdout.split("\n")[:-1]]


class Peer:
    def __init__(self, base):
        import torch
        import transformers
        self.torch = torch
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.set_grad_enabled(False)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32).eval()

    def likely(self, text, most):
        """The most probable continuation, as far as the tokenizer makes the
        same tokens of its text."""
        ids = self.tokenizer(text).input_ids
        more = ""
        for _ in range(most):
            ids.append(int(self.model(self.torch.tensor([ids]),
                                      logits_to_keep=1).logits[0, -1].argmax()))
            longer = more + self.tokenizer.decode(ids[-1:])
            if self.tokenizer(text + longer).input_ids != ids:
                break
            more = longer
        return more

    def pairs(self, n):
        """Lines of n pairs, and ids of each with its context's number."""
        random.seed(n)
        lines, made = [], []
        for i in range(n):
            def some(least, most):
                return " ".join(random.choice(WORDS) for _ in range(
                    random.randint(least, most)))
            context = some(8, 64)
            more = self.likely(context, 2) if i % 2 else ""
            more = more or " " + some(1, 16)
            lines.append({"context": context, "continuation": more})
            made.append((self.tokenizer(context + more).input_ids,
                         len(self.tokenizer(context).input_ids)))
        return lines, made

    def batch(self, some, whole):
        torch = self.torch
        longest = max(len(ids) for ids, _ in some) - 1
        padded = torch.zeros(len(some), longest, dtype=torch.long)
        for row, (ids, _) in enumerate(some):
            padded[row, :len(ids) - 1] = torch.tensor(ids[:-1])
        # what is padded comes after all that counts: no mask is needed
        hidden = self.model(padded).logits if whole else \
            self.model.transformer(padded).last_hidden_state
        for row, (ids, context) in enumerate(some):
            logits = hidden[row, context - 1:len(ids) - 1]
            if not whole:
                logits = self.model.lm_head(logits)
            rows = logits.log_softmax(-1)
            want = torch.tensor(ids[context:])
            yield (rows[range(len(want)), want].sum().item(),
                   bool((rows.argmax(-1) == want).all()))

    def score(self, pairs, whole):
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]))
        said = [None] * len(pairs)
        begun = time.perf_counter()
        for at in range(0, len(order), AT_ONCE):
            some = order[at:at + AT_ONCE]
            for i, one in zip(some, self.batch([pairs[i] for i in some],
                                               whole)):
                said[i] = one
        return time.perf_counter() - begun, said


WORDS = ("the of and to in a is that for it as was with be by on not he his "
         "but at are this have from or had an which you one we all her she "
         "there would their will when who him been has more if no out").split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    base = os.path.join(args.models, "124m")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if not os.path.isdir(base):
        make_weights(base, SHAPES["124m"], args.vocab)
    peer = Peer(base)
    lines, pairs = peer.pairs(args.pairs)
    tokens = sum(len(ids) for ids, _ in pairs)
    list(peer.batch(pairs[:AT_ONCE], True))
    speeds = {"gpt-generate": [], "whole": [], "rows": []}
    said = {}
    for _ in range(args.rounds):
        little = score(args, base, lines[:1])[0]
        seconds, said["gpt-generate"] = score(args, base, lines)
        speeds["gpt-generate"].append(tokens / (seconds - little))
        for name in "whole", "rows":
            seconds, said[name] = peer.score(pairs, name == "whole")
            speeds[name].append(tokens / seconds)
    mine = statistics.median(speeds["gpt-generate"])
    for name, figures in speeds.items():
        middle = statistics.median(figures)
        who = name if name == "gpt-generate" else f"transformers, {name}"
        print(f"{who:24}{middle:8.4g} tokens/s  ({min(figures):.4g}-"
              f"{max(figures):.4g}){mine / middle:8.2f}")
        peers_table.add(f"scores of {args.pairs} pairs", who, figures,
                        "tokens/s", mine / middle)
    worst = max(abs(a["logprob"] - b[0]) / max(1, abs(b[0])) for a, b in zip(
        said["gpt-generate"], said["rows"]))
    other = sum(a["greedy"] != b[1] for a, b in zip(said["gpt-generate"],
                                                    said["rows"]))
    greedy = sum(b[1] for b in said["rows"])
    print(f"{tokens} tokens, log-probabilities differ by {worst:.1e} at most, "
          f"{other} of {args.pairs} flags ({greedy} are greedy)")
    sys.exit(worst > 1e-4 or other > 0)


if __name__ == "__main__":
    main()
