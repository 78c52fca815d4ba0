"""Checkpoints of Trainer and of accelerate. An optimizer counts parameters: for
each class of hf_families_parity.py, first moments that are the weights show
whether each number was taken for the right tensor, in all ways in which programs
divide parameters into groups. Runs of ten steps go on for ten more in Trainer,
or in PyTorch, and here from the checkpoint, in another layout too: with the same
batches they have the same losses. Prints TAP. Usage: trainer_parity.py BUILD
(from the repository's root).
"""
import json
import os
import random
import sys
import tempfile

import accelerate
import torch
import transformers
from safetensors.torch import load_file
from transformers import Trainer, TrainingArguments

import experts_parity
import hf_families_parity as families
from hf_families_parity import ok, run

VOCAB, SEQ, BATCH, BEFORE, STEPS, SEED = families.VOCAB, 16, 4, 10, 20, 77
LR, DECAY, WARMUP = 3e-3, 0.1, 3


# ---- which number is which tensor ----

def old_rule(name, p):
    return "bias" not in name and "norm" not in name and "ln_" not in name


DIVISIONS = {  # the first group of two
    "one group": None,
    "Trainer's": "Trainer",
    "an older Trainer's": old_rule,
    "Trainer's of 4.52": lambda n, p: not any(
        word in n for word in ("bias", "layernorm", "rmsnorm")),
    "all but biases": lambda n, p: "bias" not in n,
    "examples'": lambda n, p: not ("bias" in n or "layer_norm.weight" in n),
    "matrices": lambda n, p: p.dim() > 1,
    "vectors first": lambda n, p: p.dim() < 2,
}


def optimizer_of(m, division, where):
    if division == "Trainer":
        return Trainer(m, arguments(where)).create_optimizer()
    if division is None:
        return torch.optim.AdamW(m.parameters())
    named = list(m.named_parameters())
    return torch.optim.AdamW(
        [{"params": [p for n, p in named if division(n, p) == first]}
         for first in (True, False)], lr=LR)


def native(where, kind):
    held = load_file(f"{where}/iter_0000003/{kind}_tp00_pp00.safetensors")
    return {k.removeprefix(kind.replace("_", ".", 1) + "."): v
            for k, v in held.items()}


def numbered(work, name, cls, changes):
    d = os.path.join(work, name)
    m = families.model(families.make(d, cls, changes), d)
    with torch.no_grad():  # of which no two are equal, in files too
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.01)
    m.save_pretrained(d)
    for said, division in DIVISIONS.items():
        o = optimizer_of(m, division, work)
        for group in o.param_groups:
            for p in group["params"]:
                o.state[p] = {"step": torch.tensor(3.0),
                              "exp_avg": p.detach().clone(),
                              "exp_avg_sq": p.detach() ** 2}
        torch.save(o.state_dict(), d + "/optimizer.pt")
        out = os.path.join(work, "out")
        run("gpt-reshape", "--load-path", d, "--save-path", out, "-f", "-q",
            "--make-vocab-size-divisible-by", VOCAB)
        weights, first, second = (native(out, x) for x in (
            "model", "optimizer_exp_avg", "optimizer_exp_avg_sq"))
        bad = [k for k, w in weights.items()
               if "expert_bias" not in k and  # no parameter of the class
               not (torch.equal(w, first[k]) and
                    torch.equal(w ** 2, second[k]))]
        ok(len(first) == len(weights) and not bad,
           f"{name}: {said}, {len(weights)} parameters", bad)


# ---- runs that go on ----

def dump(*args, stdin=None):
    return run("tests/parity/samples_dump", *args, stdin=stdin)


def write_set(path):
    dump("write", path, "int32", stdin="".join(
        " ".join(str(random.randrange(VOCAB - 1))
                 for _ in range(random.randrange(1, 60))) + "\n"
        for _ in range(60)))


def rows(path):
    """The samples that gpt-train reads, with the token that follows."""
    lines = dump("corpus", SEQ, SEED, BATCH * STEPS, 0, 0, "100,0,0", path)
    return [torch.tensor([int(x) for x in line.split()[1:]])
            for line in lines.splitlines() if not line.startswith("split")][
                :BATCH * STEPS]


def arguments(where, **more):
    return TrainingArguments(
        where, max_steps=STEPS, save_steps=BEFORE, report_to=[], use_cpu=True,
        per_device_train_batch_size=BATCH, learning_rate=LR, adam_beta2=0.95,
        weight_decay=DECAY, warmup_steps=WARMUP, lr_scheduler_type="linear",
        disable_tqdm=True, logging_steps=1000, **more)


class InOrder(Trainer):
    """Keeps its losses, and reads its data from first to last."""

    def __init__(self, *args, **more):
        self.losses = []
        super().__init__(*args, **more)

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, *args, **more):
        loss = super().compute_loss(model, inputs, *args, **more)
        self.losses.append(loss.item())
        return loss


def by_trainer(m, data, where):
    """The first token is no label: Trainer counts it for some classes."""
    none = torch.tensor([-100])
    t = InOrder(m, arguments(where), train_dataset=[
        {"input_ids": r, "labels": torch.cat([none, r[1:]])} for r in data])
    t.remove_callback(transformers.PrinterCallback)  # stdout is TAP's
    t.train()
    return t.losses, f"{where}/checkpoint-{BEFORE}"


def by_accelerate(m, data, where):
    """An optimizer of one group, and no decay."""
    a = accelerate.Accelerator(cpu=True)
    m, o = a.prepare(m, torch.optim.AdamW(m.parameters(), lr=LR,
                                          betas=(0.9, 0.95), weight_decay=0))
    losses = []
    for step in range(STEPS):
        for group in o.param_groups:
            group["lr"] = rate(step)
        ids = torch.stack(data[step * BATCH:][:BATCH])
        loss = m(input_ids=ids, labels=ids).loss
        a.backward(loss)
        a.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        o.zero_grad()
        losses.append(loss.item())
        if step + 1 == BEFORE:
            a.save_state(where)
            a.unwrap_model(m).config.save_pretrained(where)
    return losses, where


def rate(step):
    return LR * (step / WARMUP if step < WARMUP else
                 (STEPS - step) / (STEPS - WARMUP))


LAYOUTS = [(1, []), (2, ["--tensor-model-parallel-size", 2]),
           (2, ["--pipeline-model-parallel-size", 2]),
           (2, ["--use-distributed-optimizer"])]
RUNS = {  # a case of hf_families_parity.py, of experts_parity.py, or gpt2
    "gpt2": by_trainer, "qwen2": by_trainer, "qwen3": by_trainer,
    "neox-serial": by_trainer, "opt": by_trainer, "phi3": by_trainer,
    "gemma2": by_trainer, "bloom": by_accelerate, "llama": by_accelerate,
    "mixtral": by_trainer, "deepseek_v3": by_trainer,
    "deepseek_v2-lite": by_accelerate, "qwen3_moe-whole": by_trainer,
}
GPT2 = ("GPT2", dict(num_attention_heads=2, n_inner=52, **families.NO_DROPOUT))
FOUR = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32)


def goes_on(work, name, by, path, layout):
    cls, changes = {**families.CASES, **experts_parity.CASES}.get(
        name, GPT2)[:2]
    if "num_key_value_heads" in changes and "kv_lora_rank" not in changes:
        changes = {**changes, **FOUR}
    d = os.path.join(work, name)
    m = families.model(families.make(d + "/model", cls, changes), d + "/model")
    want, checkpoint = by(m.train(), rows(path), d + "/run")
    n, where = layout
    program = ["gpt-train"] if n == 1 else [
        "gpt-launch", "--standalone", "--nproc-per-node", n,
        os.path.join(families.BUILD, "gpt-train")]
    run(*program, "--load", checkpoint, "--save", d + "/on",
        "--use-checkpoint-args", "--override-opt_param-scheduler",
          "--data-path", path, "--split", "100,0,0", "--seed", SEED,
          "--seq-length", SEQ, "--micro-batch-size", BATCH // 2,
          "--global-batch-size", BATCH, "--train-iters", STEPS, "--lr", LR,
          "--lr-decay-style", "linear", "--lr-warmup-iters", WARMUP,
          "--weight-decay", DECAY if by is by_trainer else 0,
          "--adam-beta2", 0.95, "--tokenizer-type", "NullTokenizer",
          "--vocab-size", VOCAB - 1, "--eval-iters", 0, "--log-interval", 1,
          "--hidden-dropout", 0, "--attention-dropout", 0, "--threads", 1,
          "--make-vocab-size-divisible-by", 1,
          # transformers leaves biases of routers as they are
          "--moe-router-bias-update-rate", 0, *where)
    with open(d + "/on/metrics.jsonl", encoding="utf-8") as f:
        lines = [x for x in map(json.loads, f) if "lm_loss" in x]
    got = [x["lm_loss"] for x in lines]
    off = max(abs(a - b) for a, b in zip(got, want[BEFORE:]))
    ok(len(got) == STEPS - BEFORE and off < 2e-5,
       f"{name} of {by.__name__[3:]} goes on with {n} ranks ({off:.1e})",
       f"{got}\n{want}")
    ok(all(abs(x["learning_rate"] - rate(BEFORE + 1 + i)) < 1e-8
           for i, x in enumerate(lines)), f"{name}: rates", lines)


def main():
    random.seed(5)
    torch.manual_seed(5)
    transformers.utils.logging.disable_progress_bar()
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        write_set(work + "/set")
        for i, (name, by) in enumerate(RUNS.items()):
            if only and name not in only:
                continue
            try:
                goes_on(work, name, by, work + "/set",
                        LAYOUTS[i % len(LAYOUTS)])
            except Exception as e:  # a program that fails is a failed case
                ok(False, name, e)
        for name, case in {"gpt2-numbers": GPT2, **families.CASES,
                           **experts_parity.CASES}.items():
            if (only and name not in only) or not families.known(case[0]):
                continue
            if name.startswith("ernie4_5_moe"):
                continue  # counts the bias of routers, which gets no gradient
            try:
                numbered(work, name, *case[:2])
            except Exception as e:
                ok(False, name, e)
    print(f"1..{families.count}")
    return families.failed != 0


if __name__ == "__main__":
    sys.exit(main())
