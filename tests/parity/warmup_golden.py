"""Writes tests/golden/warmup.txt: learning rates of DeepSpeed's WarmupLR and
WarmupDecayLR, step by step, by its own deepspeed/runtime/lr_schedules.py.

    python3 tests/parity/warmup_golden.py PATH/lr_schedules.py \
        > tests/golden/warmup.txt

Needs PyTorch, and of DeepSpeed that one file.
"""

import importlib.util
import itertools
import logging
import sys
import types

import torch

logging.disable(logging.CRITICAL)
utils = types.ModuleType("deepspeed.utils")
utils.logger = logging.getLogger("deepspeed")
sys.modules["deepspeed"] = types.ModuleType("deepspeed")
sys.modules["deepspeed.utils"] = utils
spec = importlib.util.spec_from_file_location("schedules", sys.argv[1])
schedules = importlib.util.module_from_spec(spec)
spec.loader.exec_module(schedules)

print("# Made by tests/parity/warmup_golden.py from DeepSpeed.")
for name, warmup, kind, low in itertools.product(
        ("WarmupLR", "WarmupDecayLR"), (1, 10, 25), ("log", "linear"),
        (0.0, 1e-5)):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    more = {"total_num_steps": 40} if name == "WarmupDecayLR" else {}
    scheduler = getattr(schedules, name)(
        optimizer, warmup_min_lr=low, warmup_max_lr=6e-4,
        warmup_num_steps=warmup, warmup_type=kind, **more)
    rates = []
    for _ in range(45):
        # the rate that optimizer.step() uses, before scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    print("warmup", name, warmup, kind, low)
    print("lr", len(rates), *[float(v).hex() for v in rates])
