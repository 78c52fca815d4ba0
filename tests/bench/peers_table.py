"""The rows of one table for all peers: each script adds its own to the file
GPT_PEERS_TABLE, in the form of RESULTS.md, and tests/bench/peers.sh prints the
file. Without the variable nothing is written."""
import os
import statistics


def add(subject, who, figures, unit, ratio=None):
    """A row: the median of the figures, the least and the most, and how many
    times as fast this project is in the same run."""
    path = os.environ.get("GPT_PEERS_TABLE")
    if not path:
        return
    middle = statistics.median(figures)
    spread = "" if len(figures) == 1 else \
        f" ({min(figures):.4g}-{max(figures):.4g})"
    faster = "" if ratio is None else f"{ratio:.2f}"
    with open(path, "a", encoding="utf-8") as out:
        out.write(f"| {subject} | {who} | {middle:.4g}{spread} {unit} | "
                  f"{faster} |\n")
