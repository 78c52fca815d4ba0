"""Gives the metrics of a run to MLflow:

    gpt-train ... --log-metrics-command 'python3 track-mlflow.py EXPERIMENT'
"""
import json
import sys

import mlflow

mlflow.set_experiment(sys.argv[1])
with mlflow.start_run():
    for line in sys.stdin:
        metrics = json.loads(line)
        numbers = {k: v for k, v in metrics.items() if v is not None}
        mlflow.log_metrics(numbers, step=metrics["iteration"])
