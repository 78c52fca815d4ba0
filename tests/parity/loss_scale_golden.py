"""Writes tests/golden/loss_scale.txt: loss scales after each of many steps by
the Python package megatron-core.

    python3 tests/parity/loss_scale_golden.py > tests/golden/loss_scale.txt
"""

import random

import torch

tensor = torch.tensor  # the scaler asks for a GPU that it does not need
torch.tensor = lambda data, **k: tensor(data, dtype=k.get("dtype"))

from megatron.core.optimizer.grad_scaler import DynamicGradScaler  # noqa: E402

random.seed(1)
for initial, minimum, window, hysteresis, share in [
        (2.0**32, 1, 1000, 2, 0.02), (2.0**32, 1, 1000, 2, 1),
        (65536, 1, 4, 2, 0.1), (65536, 1, 4, 1, 0.3), (16, 2, 3, 5, 0.3),
        (1000, 3, 1, 2, 0.5), (1, 1, 2, 1, 0.7)]:
    scaler = DynamicGradScaler(initial, minimum, 2.0, 0.5, window, hysteresis)
    bad, scales = [], []
    for step in range(300):
        bad.append(int(random.random() < share))
        scaler.update(bool(bad[-1]))
        scales.append(float(scaler.scale[0]))
    print("scaler", initial, minimum, window, hysteresis)
    print("bad", len(bad), *bad)
    print("scale", len(scales), *[s.hex() for s in scales])
