"""Random trainings against PyTorch. transformers makes the model, which is
trained here in double precision; rows, blends, masks, learning rates, weight
decay and ramp-up are those of the Python package megatron-core. gpt-train
trains the same in a random layout and, in half of the cases, resumes in
another one. Compared are batches, rates, losses, gradient norms and the weights
at the end, by how far they went. A case depends on its number alone. Prints
TAP. Usage: trainings_parity.py BUILD [CASES [FIRST]] (from the root).
"""
import copy
import json
import os
import random
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F
import transformers
from megatron.core import num_microbatches_calculator
from megatron.core.datasets.blended_megatron_dataset_builder import (
    BlendedMegatronDatasetBuilder)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from megatron.core.datasets.utils import get_blend_from_list
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

import hf_families_parity as families
from hf_families_parity import ok, run
from roads_parity import FAMILIES, Sizes, parts, ranks, stages

NO_MASKS = ("Bloom", "Falcon")  # their forward makes its own
BY_LAYER = ("Gemma2", "Exaone4", "Qwen2", "Qwen3")  # a mask for each kind
DROPOUT = ("attention_dropout", "hidden_dropout", "embd_pdrop", "attn_pdrop",
           "resid_pdrop", "embedding_dropout", "residual_dropout",
           "resid_dropout")


class Tokenizer:
    """What GPTDataset asks of one."""
    unique_identifiers, special_tokens_dict, pad = {"class": "test"}, {}, -1

    def __init__(self, eod):
        self.eod = self.eos = eod
        self.vocab_size = eod + 1


# ---- what is drawn ----

class Case:
    """Settings: fields are what the reference needs, words are options."""

    def __init__(self, r, family, vocab, where):
        self.family, self.seed = family, r.randrange(1, 5000)
        self.micro, self.dp = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2])
        self.unit = self.micro * self.dp
        self.batch = self.unit * r.choice([1, 2, 3, 4])
        self.seq, steps = r.choice([8, 13, 16, 21, 32]), r.randrange(4, 10)
        self.in_samples = r.random() < 0.5
        self.words = ["--seq-length", self.seq, "--seed", self.seed,
                      "--micro-batch-size", self.micro]
        self.length = self.batch * steps
        if self.in_samples:
            self.length += r.randrange(self.batch)
        self.draw_batches(r, steps)
        self.draw_data(r, vocab, where)
        self.draw_rates(r, steps)
        self.draw_optimizer(r)
        self.smoothing = self.flag(r, "--label-smoothing", 0.1)
        self.z = self.flag(r, "--z-loss", 1e-3)
        self.per_token = self.flag(r, "--calculate-per-token-loss")

    def flag(self, r, name, value=None, likely=0.3):
        """Off, or on with a value."""
        if r.random() >= likely:
            return 0
        self.words += [name] if value is None else [name, value]
        return 1 if value is None else value

    def draw_batches(self, r, steps):
        self.rampup = self.steps = None
        kind = r.choice(["plain", "rampup", "steps"])
        if self.in_samples and kind == "rampup" and self.batch > self.unit:
            start = self.batch - self.unit
            self.rampup = [start, self.unit, r.randrange(2, 4 * self.batch)]
            self.words += ["--rampup-batch-size", *self.rampup]
        if self.in_samples and kind == "steps":
            at = [0] + sorted(r.sample(range(1, self.length), 2))
            self.steps = [(a, self.unit * r.choice([1, 2, 3])) for a in at]
            self.words += ["--step-batch-size-schedule", " ".join(
                f"{a * self.seq}:{b}" for a, b in self.steps)]
        else:
            self.words += ["--global-batch-size", self.batch]
        self.words += (["--train-samples", self.length] if self.in_samples
                       else ["--train-iters", steps])
        self.sizes, done = [], 0
        while done + self.size_at(done) <= self.length:
            self.sizes.append(self.size_at(done))
            done += self.sizes[-1]

    def size_at(self, done):
        if self.steps:
            return [b for a, b in self.steps if a <= done][-1]
        if not self.rampup:
            return self.batch
        kind = num_microbatches_calculator
        made = kind.RampupBatchsizeNumMicroBatchesCalculator(
            self.batch, self.micro, self.dp, False, 0, *self.rampup)
        made.update(done, True, False)
        return made.current_global_batch_size

    def draw_data(self, r, vocab, where):
        sets = []
        for i in range(r.choice([1, 2, 3])):
            sets.append(os.path.join(where, f"set{i}"))
            write_set(r, sets[-1], vocab, self.length * self.seq // 10)
        self.paths = sets if len(sets) == 1 else [
            w for s in sets for w in (str(r.choice([0.3, 1, 7, 33.3])), s)]
        self.split = r.choice(["100,0,0", "7,2,1", "969,30,1", "0.61,0.39,0"])
        self.eod_mask = self.flag(r, "--eod-mask-loss")
        self.reset_positions = self.family in (
            "GPT2", "GPTBigCode") and self.flag(r, "--reset-position-ids")
        self.reset_mask = self.family not in NO_MASKS and self.flag(
            r, "--reset-attention-mask")
        self.words += ["--split", self.split, "--data-path", *self.paths]

    def draw_rates(self, r, steps):
        unit, total, name = ((1, self.length, "samples") if self.in_samples
                             else (self.batch, steps, "iters"))
        style = r.choice(["constant", "linear", "cosine",
                          "inverse-square-root", "WSD"])
        decay, warm = total, 0
        lr = r.choice([0.01, 0.003])
        self.words += ["--lr", lr, "--lr-decay-style", style]
        low = 0.0 if style == "constant" else self.flag(
            r, "--min-lr", lr / 10)
        if r.random() < 0.5:
            decay = r.randrange(max(2, total // 2), 2 * total)
            self.words += [f"--lr-decay-{name}", decay]
        if r.random() < 0.5:
            warm = 0.37 * decay
            self.words += ["--lr-warmup-fraction", 0.37]
        scheduled = dict(
            init_lr=0.0, max_lr=lr, min_lr=low, lr_warmup_steps=warm * unit,
            lr_decay_steps=decay * unit, lr_decay_style=style,
            wd_incr_steps=total * unit)
        if style == "WSD":
            shape = r.choice(["exponential", "linear", "cosine", "minus_sqrt"])
            last = r.randrange(1, max(2, decay - int(warm)))
            self.words += ["--lr-wsd-decay-style", shape,
                           f"--lr-wsd-decay-{name}", last]
            scheduled.update(lr_wsd_decay_style=shape,
                             wsd_decay_steps=last * unit)
        grow = r.choice(["constant", "linear", "cosine"])
        self.words += ["--weight-decay-incr-style", grow]
        first, end = (0.1, 0.1) if grow == "constant" else (0.05, 0.5)
        self.words += (["--weight-decay", first] if grow == "constant" else
                       ["--start-weight-decay", first, "--end-weight-decay",
                        end])
        scheduled.update(start_wd=first, end_wd=end, wd_incr_style=grow)
        self.scheduled = scheduled

    def draw_optimizer(self, r):
        self.clip = r.choice([0.0, 0.3, 1.0])
        self.words += ["--clip-grad", self.clip]
        if r.random() < 0.3:
            momentum = r.choice([0.0, 0.5, 0.9])
            self.words += ["--optimizer", "sgd", "--sgd-momentum", momentum]
            self.optimizer = lambda groups: torch.optim.SGD(
                groups, lr=1, momentum=momentum)
            return
        b1, b2, eps = r.choice([0.8, 0.9]), r.choice([0.95, 0.999]), 1e-4
        self.words += ["--adam-beta1", b1, "--adam-beta2", b2, "--adam-eps",
                       eps]
        kind = torch.optim.Adam if self.flag(
            r, "--no-decoupled-weight-decay") else torch.optim.AdamW
        self.optimizer = lambda groups: kind(groups, lr=1, betas=(b1, b2),
                                             eps=eps)

    def layout(self, r, s, tensor, dp):
        t = r.choice([n for n in tensor if n <= 3])
        p, words = stages(r, s.layers, "train")
        uneven = "--num-virtual-stages-per-pipeline-rank" in words and any(
            b // (self.micro * dp) % p for b in self.sizes)
        if t * p * dp > 6 or uneven:
            p, words = 1, []
        words = ["--tensor-model-parallel-size", t, *words]
        if t > 1 and self.seq % t == 0 and r.random() < 0.5:
            words.append("--sequence-parallel")
        if dp > 1:
            words += ["--data-parallel-sharding-strategy",
                      r.choice(["no_shard", "optim", "optim_grads"])]
        if r.random() < 0.4:
            words += ["--recompute-granularity", r.choice(
                ["selective", "full"])]
        return t * p * dp, words


def write_set(r, prefix, vocab, documents):
    made = IndexedDatasetBuilder(prefix + ".bin", dtype=r.choice(
        [numpy.uint16, numpy.int32]))
    longest = r.choice([5, 30, 90])
    for _ in range(r.randrange(30, 31 + documents)):
        text = [r.randrange(vocab - 1) for _ in range(r.randrange(longest))]
        made.add_document(torch.IntTensor(text + [vocab - 1]),
                          [len(text) + 1])
    made.finalize(prefix + ".idx")


def make_model(r, family, s, where):
    config = getattr(transformers, family + "Config")(
        **{"max_position_embeddings": 160, **FAMILIES[family](r, s)},
        vocab_size=s.vocab, bos_token_id=0, eos_token_id=s.vocab - 1,
        pad_token_id=None)
    config._attn_implementation = "eager"
    for name in DROPOUT:
        if hasattr(config, name):
            setattr(config, name, 0.0)
    m = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.08)
    m.save_pretrained(where)
    return m.double().eval()


# ---- the training here ----

class Config(GPTDatasetConfig):
    def __post_init__(self):
        super().__post_init__()
        # no others: one that holds no token is filled without end
        self.split_matrix = [self.split_matrix[0], None, None]


def samples(c, vocab):
    return BlendedMegatronDatasetBuilder(
        GPTDataset, [c.length, 1, 1], lambda: True,
        Config(random_seed=c.seed, sequence_length=c.seq, split=c.split,
               tokenizer=Tokenizer(vocab - 1), path_to_cache=None,
               blend=get_blend_from_list(c.paths),
               reset_position_ids=bool(c.reset_positions),
               reset_attention_mask=bool(c.reset_mask),
               eod_mask_loss=bool(c.eod_mask),
               create_attention_mask=True)).build()[0]


def visible(m, c, hidden):
    """Additive masks [B, 1, T, T] as the model takes them."""
    full = torch.zeros(hidden.shape, dtype=torch.double).masked_fill(
        hidden, -1e30)
    window = getattr(m.config, "sliding_window", None)
    if not window or getattr(m.config, "use_sliding_window", True) is False:
        return full
    i = torch.arange(hidden.shape[-1])
    near = full.masked_fill(i[:, None] - i[None] >= window, -1e30)
    if c.family in BY_LAYER and getattr(m.config, "layer_types", None):
        return {"full_attention": full, "sliding_attention": near}
    return near


def losses(m, c, rows):
    """The summed loss of a microbatch, and the tokens that count."""
    b = {k: torch.stack([row[k] for row in rows]) for k in rows[0]
         if torch.is_tensor(rows[0][k])}
    more = {}
    if c.family not in NO_MASKS:
        more["attention_mask"] = visible(m, c, b["attention_mask"])
    if c.family != "Bloom":
        more["position_ids"] = b["position_ids"]
    logits = m(input_ids=b["tokens"].long(), use_cache=False,
               **more).logits.flatten(0, 1)
    loss = F.cross_entropy(logits, b["labels"].long().flatten(),
                           reduction="none", label_smoothing=c.smoothing)
    loss = loss + c.z * torch.logsumexp(logits, -1) ** 2
    mask = b["loss_mask"].double().flatten()
    return (loss * mask).sum(), float(mask.sum())


def step(m, c, rows):
    """Gradients of a batch; its loss, and their norm before the limit."""
    parameters = list(m.parameters())
    for p in parameters:
        p.grad = torch.zeros_like(p)
    every = sum(float(row["loss_mask"].sum()) for row in rows)
    total = 0.0
    for i in range(0, len(rows), c.micro):
        loss, n = losses(m, c, rows[i:i + c.micro])
        total += float(loss)
        (loss / every if c.per_token else
         loss / max(n, 1) * c.micro / len(rows)).backward()
    norm = sum(float((p.grad ** 2).sum()) for p in parameters) ** 0.5
    limit = c.clip / (norm + 1e-6)
    if 0 < limit < 1:
        for p in parameters:
            p.grad *= limit
    return total / every, norm


def train(m, c, data):
    """Rates, losses and norms of all steps."""
    kinds = {True: [], False: []}
    for name, p in m.named_parameters():
        # Cohere's norms of heads are one tensor
        kinds[p.dim() > 1 and "norm" not in name].append(p)
    optimizer = c.optimizer([
        {"params": kinds[d], "wd_mult": float(d), "lr_mult": 1.0}
        for d in (True, False) if kinds[d]])
    schedule = OptimizerParamScheduler(
        optimizer, use_checkpoint_opt_param_scheduler=False,
        override_opt_param_scheduler=True, **c.scheduled)
    seen, done = [], 0
    for size in c.sizes:
        loss, norm = step(m, c, [data[done + i] for i in range(size)])
        optimizer.step()
        done += size
        schedule.step(increment=size)
        seen.append((optimizer.param_groups[0]["lr"], loss, norm))
    return seen


# ---- gpt-train, and the comparison ----

def train_there(r, c, s, tensor, d, vocab):
    stop = r.randrange(1, len(c.sizes)) if len(c.sizes) > 2 else 0
    words = ["--tokenizer-type", "NullTokenizer", "--vocab-size", vocab - 1,
             "--hidden-dropout", 0, "--attention-dropout", 0, "--eval-iters",
             0, "--log-interval", 1, "--threads", 1, "--save", d("run"),
             "--make-vocab-size-divisible-by", r.choice([1, 7, 128]),
             "--use-checkpoint-args", *c.words]
    n, where = c.layout(r, s, tensor, c.dp)
    said = where
    first = ["--exit-interval", stop] if stop and r.random() < 0.5 else []
    ranks(n, "gpt-train", *words, *where, *first, "--load", d("hf"),
          "--finetune")
    if first:
        dp = r.choice([k for k in (1, 2) if all(
            b % (k * c.micro) == 0 for b in c.sizes)])
        n, where = c.layout(r, s, tensor, dp)
        said = said + [f"until {stop}, then"] + where
        ranks(n, "gpt-train", *words, *where, "--load", d("run"))
    run("gpt-reshape", "--load-path", d("run"), "--save-path", d("end"),
        "--to", "hf", "-q")
    with open(d("run") + "/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [x for x in lines if "lm_loss" in x], " ".join(map(str, said))


def farthest(m, before, directory):
    """The largest error of a tensor, as a part of the way that it went. Biases
    of keys have none: attention does not depend on them, and what Adam makes of
    a gradient that is rounding alone is rounding."""
    got = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32).double().state_dict()
    worst = (0.0, "")
    for name, want in m.named_parameters():
        if name in got and not name.endswith("k_proj.bias"):
            want = want.detach()
            way = float((want - before[name]).norm())
            off = float((got[name] - want).norm())
            worst = max(worst, (off / (way + 1e-5 * float(want.norm()) +
                                       1e-6), name))
    return worst


def case(number, top):
    r = random.Random(number)
    torch.manual_seed(number)
    family = list(FAMILIES)[number % len(FAMILIES)]
    s = Sizes(r)
    s.vocab = r.randrange(40, 200)
    d = lambda x: os.path.join(top, x)
    m = make_model(r, family, s, d("hf"))
    c = Case(r, family, s.vocab, top)
    before = copy.deepcopy(m.state_dict())
    lines, layout = train_there(r, c, s, parts(s, m.config.to_dict()), d,
                                s.vocab)
    name = f"{number} {family}"
    print(f"# {name}: {' '.join(map(str, c.words))}; {layout}", flush=True)
    ok([x["global_batch_size"] for x in lines] == c.sizes,
       f"{name}: {len(c.sizes)} batches", f"{lines}\n{c.sizes}")
    want = train(m, c, samples(c, s.vocab))
    for i, (key, limit) in enumerate((("learning_rate", 1e-5),
                                      ("lm_loss", 1e-4),
                                      ("grad_norm", 2e-3))):
        got = [x[key] for x in lines]
        off = max(abs(a - b[i]) / (abs(b[i]) + 1e-12)
                  for a, b in zip(got, want))
        ok(off < limit, f"{name}: {key} ({off:.1e})",
           f"{got}\n{[b[i] for b in want]}")
    off, where = farthest(m, before, d("end"))
    ok(off < 2e-2, f"{name}: weights ({off:.1e} of their way)", where)


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    for number in range(first, first + n):
        with tempfile.TemporaryDirectory() as top:
            try:
                case(number, top)
            except Exception as e:  # a program that fails is a failed case
                ok(False, f"{number}", repr(e))
    print(f"1..{families.count}")
    return families.failed != 0


if __name__ == "__main__":
    sys.exit(main())
