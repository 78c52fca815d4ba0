"""Writes tests/golden/parallel.txt: groups, layers of pipeline stages, and the
order of pipeline schedules by the Python package megatron-core.

    python3 tests/parity/parallel_golden.py > tests/golden/parallel.txt
"""

from types import SimpleNamespace

from megatron.core.parallel_state import (RankGenerator,
                                          default_embedding_ranks)
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer.transformer_block import (
    get_num_layers_to_build)
from megatron.core.transformer.transformer_layer import (
    get_transformer_layer_offset)

SIZES = [(1, 1, 1), (1, 1, 5), (8, 1, 1), (1, 6, 1), (2, 2, 2), (2, 4, 1),
         (4, 2, 1), (3, 2, 2), (2, 3, 4), (1, 4, 2), (4, 1, 4), (2, 8, 2),
         (5, 3, 2)]

LAYERS = [  # layers, stages, chunks, first, last
    (24, 1, 1, 0, 0), (24, 4, 1, 0, 0), (24, 4, 2, 0, 0), (16, 4, 2, 0, 0),
    (96, 8, 4, 0, 0), (36, 2, 3, 0, 0), (10, 2, 1, 4, 0), (10, 2, 1, 4, 6),
    (22, 4, 1, 4, 0), (22, 4, 1, 0, 4), (20, 4, 1, 3, 5), (20, 4, 2, 2, 6),
    (28, 4, 2, 4, 0), (30, 5, 3, 3, 9)]

SCHEDULES = [  # stages, chunks, microbatches
    (1, 1, 3), (2, 1, 1), (2, 1, 8), (4, 1, 2), (4, 1, 8), (8, 1, 12),
    (2, 2, 4), (2, 3, 6), (4, 2, 4), (4, 2, 8), (4, 4, 8), (3, 2, 9)]


def groups(tp, pp, dp):
    generator = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=1,
                              order="tp-cp-ep-dp-pp")
    kinds = {"tp": "tp", "dp": "dp", "pp": "pp"}
    print("sizes", tp, pp, dp)
    for name, token in kinds.items():
        for ranks in generator.get_ranks(token):
            print(name, len(ranks), *ranks)
    for ranks in generator.get_ranks("pp"):
        ranks = default_embedding_ranks(ranks)
        print("embedding", len(ranks), *ranks)


def layers(num_layers, stages, chunks, first, last):
    config = SimpleNamespace(
        num_layers=num_layers, pipeline_model_parallel_size=stages,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        num_layers_in_first_pipeline_stage=first or None,
        num_layers_in_last_pipeline_stage=last or None,
        account_for_embedding_in_pipeline_split=False,
        account_for_loss_in_pipeline_split=False,
        pipeline_model_parallel_layout=None)
    values = []
    for p in range(stages):
        for v in range(chunks):
            chunk = v if chunks > 1 else None
            values += [get_transformer_layer_offset(config, chunk, p),
                       get_num_layers_to_build(config, chunk, p)]
    print("layers", num_layers, stages, chunks, first, last)
    print("chunks", len(values), *values)


class Communicator:  # what get_pp_rank_microbatches asks
    def __init__(self, stages, stage, chunks):
        self.pp_group = SimpleNamespace(size=lambda: stages,
                                        rank=lambda: stage)
        self.virtual_pipeline_model_parallel_size = (
            chunks if chunks > 1 else None)


def order(stages, chunks, microbatches):
    """Forwards as 1 + id, backwards as -1 - id, id = microbatch + m * chunk:
    warm-up, then one of each, then the backwards that are left."""
    table = schedules.get_schedule_table(microbatches, chunks, stages)
    print("schedule", stages, chunks, microbatches)
    for p in range(stages):
        total, _, warmup, _ = schedules.get_pp_rank_microbatches(
            microbatches, chunks, stages,
            p2p_communicator=Communicator(stages, p, chunks))
        forward = [1 + m + microbatches * c for m, c in table]
        backward = [-1 - m - microbatches * (chunks - 1 - c)
                    for m, c in table]
        steps = forward[:warmup]
        for f, b in zip(forward[warmup:], backward):
            steps += [f, b]
        steps += backward[total - warmup:]
        print("warmup", 1, warmup)
        print("order", len(steps), *steps)


def main():
    print("# Made by tests/parity/parallel_golden.py from megatron-core.")
    for sizes in SIZES:
        groups(*sizes)
    for case in LAYERS:
        layers(*case)
    for case in SCHEDULES:
        order(*case)


if __name__ == "__main__":
    main()
