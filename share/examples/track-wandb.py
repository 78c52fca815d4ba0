"""Gives the metrics of a run to Weights & Biases:

    gpt-train ... --log-metrics-command 'python3 track-wandb.py PROJECT NAME'
"""
import json
import sys

import wandb

run = wandb.init(project=sys.argv[1], name=sys.argv[2])
for line in sys.stdin:
    metrics = json.loads(line)
    run.log(metrics, step=metrics["iteration"])
run.finish()
