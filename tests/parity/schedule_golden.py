"""Writes tests/golden/schedule.txt: learning rates, weight decays and batch
sizes by the Python package megatron-core.

    python3 tests/parity/schedule_golden.py > tests/golden/schedule.txt
"""

import itertools

from megatron.core.num_microbatches_calculator import (
    RampupBatchsizeNumMicroBatchesCalculator)
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler


class Optimizer:
    def __init__(self):
        self.param_groups = [{}]


def samples_of(warmup, decay, wsd):
    marks = {0, 1, 2, 7, decay // 3, decay // 2}
    for mark in (warmup, decay, decay - wsd):
        marks |= {mark - 1, mark, mark + 1, mark + 10}
    return sorted(m for m in marks | {2 * decay} if m >= 0)


def schedule(style, max_lr, min_lr, init_lr, warmup, decay, wsd, wsd_style,
             start_wd, end_wd, wd_incr, wd_style):
    samples = samples_of(warmup, decay, wsd)
    rates, decays = [], []
    for n in samples:
        optimizer = Optimizer()
        OptimizerParamScheduler(
            optimizer, init_lr, max_lr, min_lr, warmup, decay, style,
            start_wd, end_wd, wd_incr, wd_style, wsd_decay_steps=wsd,
            lr_wsd_decay_style=wsd_style).step(n)
        rates.append(float(optimizer.param_groups[0]["lr"]))
        decays.append(float(optimizer.param_groups[0]["weight_decay"]))
    print("schedule", style, max_lr, min_lr, init_lr, warmup, decay, wsd,
          wsd_style, start_wd, end_wd, wd_incr, wd_style)
    print("samples", len(samples), *samples)
    print("lr", len(rates), *[v.hex() for v in rates])
    print("wd", len(decays), *[v.hex() for v in decays])


def rampup(start, increment, samples, full):
    calculator = RampupBatchsizeNumMicroBatchesCalculator(
        full, 1, 1, False, 1, start, increment, samples)
    steps = (full - start) // increment
    marks = {0, 1, samples - 1, samples, samples + 1, 2 * samples}
    for k in range(1, min(steps, 12) + 1):
        marks |= {samples * k // steps + d for d in (-1, 0, 1)}
    marks = sorted(m for m in marks if m >= 0)
    sizes = []
    for n in marks:
        calculator.update(n, False)
        sizes.append(calculator.get_current_global_batch_size())
    print("rampup", start, increment, samples, full)
    print("consumed", len(marks), *marks)
    print("batch", len(sizes), *sizes)


def main():
    print("# Made by tests/parity/schedule_golden.py from megatron-core.")
    constant = (0.01, 0.01, 1000, "constant")
    for style, warmup, init in itertools.product(
            ("constant", "linear", "cosine", "inverse-square-root"),
            (0, 100), (0.0, 1e-5)):
        schedule(style, 6e-4, 6e-5, init, warmup, 1000, 0, "linear",
                 *constant)
    for tail, warmup in itertools.product(
            ("linear", "cosine", "exponential", "minus_sqrt"), (0, 64)):
        schedule("WSD", 1e-3, 1e-5, 0.0, warmup, 6400, 1280, tail, *constant)
    for style in ("linear", "cosine"):
        schedule("linear", 1.5e-4, 0.0, 0.0, 3, 320000, 0, "linear", 0.03,
                 0.3, 320000, style)
        schedule("cosine", 1e-3, 1e-3, 0.0, 0, 7, 0, "linear", 0.0, 0.1, 3,
                 style)
    rampup(16, 8, 300000, 192)
    rampup(32, 32, 1000, 256)
    rampup(4, 4, 7, 16)
    rampup(2, 7, 1000, 23)


if __name__ == "__main__":
    main()
