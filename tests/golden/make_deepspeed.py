#!/usr/bin/env python3
"""Runs of DeepSpeed with transformers' models as checkpoints.

Usage: make_deepspeed.py [DIR | corpus]   (needs torch, transformers, deepspeed 0.19)

One directory a stage of ZeRO, as the Trainer of transformers leaves it:
config.json, `latest`, global_step3/. Two data parallel ranks train on a CPU for
three steps, save, and train for twenty more; losses.txt has the losses of all.
DIR/universal is that of stage 1 as ds_to_universal.py makes it. DIR_whole has
runs without ZeRO.

DIR_layers is a step of two stages of a pipeline, with the modules that GPT-NeoX
has in a file a layer, and weights/ what the model then was.

DIR_frozen has runs whose word table, keys and first norm were not trained, and
in weights/ what the model then was.
"""
import glob
import os
import shutil
import sys
import warnings

import torch

import named_runs
from named_runs import AFTER, BEFORE

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = {"zero1": (1, "gpt2"), "zero2": (2, "llama"), "zero3": (3, "llama")}
# without ZeRO: the optimizer is PyTorch's, wrapped for bf16, or for bf16 by what
# takes fused ones, for which one of that name stands in
WHOLE = {"stage0": (0, "tied"), "stage0_bf16": (0, "tied"),
         "stage0_fused": (0, "tied")}
FROZEN = {"stage1": (1, "tied"), "stage3": (3, "tied")}


def build(kind):
    tied = {} if kind == "gpt2" else {"tie_word_embeddings": kind == "tied"}
    return named_runs.build(kind, 64, 1 if kind == "tied" else 2, 24, **tied)


def run(rank, name, directory, port):
    warnings.filterwarnings("ignore")
    named_runs.set_ranks(port, RANK=str(rank), LOCAL_RANK=str(rank),
                         WORLD_SIZE="2", DS_ACCELERATOR="cpu")
    import deepspeed
    import deepspeed.comm.torch
    # an operation that would be compiled, for minutes; the package has
    # PyTorch itself under the name of this module
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    stage, kind = {**VARIANTS, **WHOLE, **FROZEN}[name]
    deepspeed.init_distributed("gloo")
    config, model = build(kind)
    for n, p in model.named_parameters():
        p.requires_grad = name not in FROZEN or not any(
            part in n for part in ("embed", "k_proj", "input_layernorm"))
    settings = {
        "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 1000}}
    optimizer = named_runs.adam(model)
    if name == "stage0_fused":
        deepspeed.ops.adam.FusedAdam = type("FusedAdam", (torch.optim.AdamW,),
                                            {})
        sys.modules["deepspeed.runtime.engine"].FusedAdam = \
            deepspeed.ops.adam.FusedAdam
        optimizer.__class__ = deepspeed.ops.adam.FusedAdam
    if name in ("stage0_bf16", "stage0_fused"):
        settings["bf16"] = {"enabled": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer,
                                      config=settings)
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            engine.save_checkpoint(directory)
            if name in FROZEN:
                save_weights(rank, stage, config, model, directory)
                break
        loss = named_runs.loss_of(engine)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if rank == 0:
        config.save_pretrained(directory)
        if name not in FROZEN:
            named_runs.write_losses(directory, losses)
        if name == "stage0_fused":
            # a container without checksums: tests edit it
            file = directory + "/global_step3/mp_rank_00_model_states.pt"
            torch.save(torch.load(file, weights_only=False), file,
                       _use_new_zipfile_serialization=False)
        for script in glob.glob(directory + "/*.py"):
            os.remove(script)
    torch.distributed.barrier()


def save_weights(rank, stage, config, model, directory):
    import deepspeed
    with deepspeed.zero.GatheredParameters(list(model.parameters()),
                                           enabled=stage == 3):
        if rank == 0:
            model.save_pretrained(directory + "/weights")
            os.remove(directory + "/weights/generation_config.json")


def layers(rank, directory, port):
    """Modules of GPT-NeoX in the order of its pipeline: words, a function, the
    blocks, a function, a norm, the output layer."""
    warnings.filterwarnings("ignore")
    named_runs.set_ranks(port, RANK=str(rank), LOCAL_RANK=str(rank),
                         WORLD_SIZE="2", DS_ACCELERATOR="cpu")
    import deepspeed
    import deepspeed.comm.torch
    import transformers
    from deepspeed.pipe import LayerSpec, PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    config = transformers.GPTNeoXConfig(
        hidden_size=16, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=2, vocab_size=64, max_position_embeddings=32,
        bos_token_id=63, eos_token_id=63, tie_word_embeddings=False)
    model = transformers.GPTNeoXForCausalLM(config)
    for p in model.parameters():
        p.data.copy_(torch.randn_like(p))
    base = model.gpt_neox

    class Holder(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            for name, part in (module.items() if isinstance(module, dict)
                               else module.named_children()):
                self.add_module(name, part)

        def forward(self, x):
            return x
    pipe = PipelineModule(
        [LayerSpec(Holder, {"word_embeddings": base.embed_in}), lambda x: x] +
        [LayerSpec(Holder, block) for block in base.layers] +
        [lambda x: x, LayerSpec(Holder, {"norm": base.final_layer_norm}),
         LayerSpec(Holder, {"final_linear": model.get_output_embeddings()})],
        topology=PipeModelDataParallelTopology(num_pp=2, num_mp=1, num_dp=1),
        partition_method="uniform")
    engine, *_ = deepspeed.initialize(
        model=pipe, optimizer=torch.optim.AdamW(pipe.parameters(), lr=1e-2),
        config={"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1})
    args = {"num_layers": 3, "hidden_size": 16, "num_attention_heads": 2,
            "padded_vocab_size": 64, "model_parallel_size": 1}
    engine.save_checkpoint(directory, tag="global_step3",
                           client_state={"iteration": 3, "args": args})
    if rank == 0:
        config.architectures = ["GPTNeoXForCausalLM"]
        config.save_pretrained(directory)
        model.save_pretrained(directory + "/weights")
        os.remove(directory + "/weights/generation_config.json")
        for script in glob.glob(directory + "/*.py"):
            os.remove(script)
    torch.distributed.barrier()


def corpus(directory):
    """Both files of a rank in one, of stages 2 and 3, for tests/fuzz."""
    os.makedirs(directory, exist_ok=True)
    shapes = [{"wte.weight": torch.Size([3, 2])}, {"ln_f.weight":
                                                   torch.Size([2])}]
    flat = [torch.arange(6.), torch.ones(2)]
    adam = {"state": {i: {"exp_avg": t, "exp_avg_sq": t,
                          "step": torch.tensor(3.)}
                      for i, t in enumerate(flat)}, "param_groups": []}
    common = {"param_shapes": shapes, "global_steps": 3, "global_samples": 6}
    old = dict(_use_new_zipfile_serialization=False)
    torch.save(dict(common, optimizer_state_dict={
        "single_partition_of_fp32_groups": flat, "base_optimizer_state": adam,
        "partition_count": [1, 1], "param_alignment_paddings": [[0], [0]]}),
        directory + "/zero2", **old)
    torch.save(dict(common, optimizer_state_dict={
        "fp32_flat_groups": flat, "optimizer_state_dict": adam,
        "partition_count": 1}), directory + "/zero3", **old)
    directory = os.path.join(directory, "..", "whole")
    os.makedirs(directory, exist_ok=True)
    groups = [{"params": [0]}, {"params": [1]}]
    adam = {"state": {i: {"exp_avg": t, "exp_avg_sq": t,
                          "step": torch.tensor(3.)}
                      for i, t in enumerate((flat[0].view(3, 2), flat[1]))},
            "param_groups": groups}
    weights = {"wte.weight": flat[0].view(3, 2), "ln_f.weight": flat[1]}
    weights["lm_head.weight"] = weights["wte.weight"]
    half = {k: v.to(torch.bfloat16) for k, v in weights.items()}
    half["lm_head.weight"] = half["wte.weight"]
    torch.save(dict(common, module=weights, optimizer=adam, param_shapes=None,
                    buffer_names=[]), directory + "/fp32", **old)
    torch.save(dict(common, module=half, buffer_names=["x"], optimizer={
        "optimizer_state_dict": adam, "fp32_groups": [[flat[0].view(3, 2)],
                                                      [flat[1]]]}),
        directory + "/bf16", **old)
    adam = {"state": {i: {"exp_avg": t, "exp_avg_sq": t, "step": 3}
                      for i, t in enumerate(flat)}, "param_groups": groups}
    torch.save(dict(common, module=half, optimizer={
        "optimizer_state_dict": adam, "fp32_groups_flat": flat}),
        directory + "/fused", **old)


if __name__ == "__main__":
    if sys.argv[1:] == ["corpus"]:
        corpus(os.path.join(HERE, "..", "fuzz", "corpus", "deepspeed"))
        sys.exit()
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "deepspeed")
    for i, name in enumerate(VARIANTS):
        torch.multiprocessing.spawn(run, nprocs=2, args=(
            name, f"{top}/{name}", 29680 + i))
    for i, name in enumerate(WHOLE):
        torch.multiprocessing.spawn(run, nprocs=2, args=(
            name, f"{top}_whole/{name}", 29700 + i))
    for i, name in enumerate(FROZEN):
        torch.multiprocessing.spawn(run, nprocs=2, args=(
            name, f"{top}_frozen/{name}", 29690 + i))
    torch.multiprocessing.spawn(layers, nprocs=2, args=(top + "_layers", 29697))
    out = top + "/universal"
    from deepspeed.checkpoint import ds_to_universal
    sys.argv = ["ds_to_universal.py", "--input_folder", top +
                "/zero1/global_step3", "--output_folder", out + "/global_step3",
                "--num_extract_workers", "1", "--num_merge_workers", "1",
                "--inject_missing_state"]
    arguments = ds_to_universal.parse_arguments()
    ds_to_universal.main(arguments)
    for file in ("config.json", "losses.txt"):
        shutil.copy(f"{top}/zero1/{file}", out)
