"""Makes tests/golden/dataset/caches.cksum: checksums of the caches that
Megatron-LM's GPTDataset writes for the set `many` of tests/cli/t14-dataset.sh.
Needs the Python package megatron-core.

    cd DIRECTORY-OF-many.bin
    python3 make_dataset_caches.py
    cd caches && cksum *valid* *train* > .../tests/golden/dataset/caches.cksum
"""

from megatron.core.datasets.blended_megatron_dataset_builder import (
    BlendedMegatronDatasetBuilder)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig


class Tokenizer:
    vocab_size = 1000
    eod = 999
    eos = 999
    special_tokens_dict = {}
    unique_identifiers = {"class": "test", "tokenizer_path": ["v"]}


BlendedMegatronDatasetBuilder(
    GPTDataset, [40, 20, 0], lambda: True,
    GPTDatasetConfig(
        random_seed=1234, sequence_length=2048, split="50,1,49",
        blend=(["many"], None), tokenizer=Tokenizer(), path_to_cache="caches",
        reset_position_ids=False, reset_attention_mask=False,
        eod_mask_loss=False)).build()
