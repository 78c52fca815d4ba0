#!/usr/bin/env python3
"""Runs of megatron-core itself as classic Megatron-LM checkpoints.

Usage: make_megatron_core.py [DIR]   (needs torch, megatron-core 0.16)

Three runs train for three steps on a CPU, save, and train for twenty more. The
checkpoint is put together as save_checkpoint() of Megatron-LM does it, from the
state dicts of megatron-core's modules and optimizers; losses of all steps are
in DIR/NAME/losses.txt, of which the first three come before the checkpoint. All
samples are the same sixteen bytes and the first of them again, so that the
order of samples does not matter.

core-qwen: two tensor parallel ranks, a distributed optimizer with small
buckets; SwiGLU, RMSNorm, biases of queries, keys and values alone, norms of
heads, grouped queries, rotary positions, an output layer of its own.
core-groups: that model on four ranks, more than groups of queries, with an fp32
optimizer.
core-gpt: one rank, an fp32 optimizer; the model of GPT-2.
Directories of the same names and a sharding type hold the same in the format
torch_dist.
"""
import argparse
import contextlib
import os
import sys
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = b"1234567890,.-+/("
BEFORE, AFTER, SEQUENCE = 3, 20, 16
SCHEDULER = {
    "max_lr": 1e-2, "lr_warmup_steps": 0, "num_steps": 2 * BEFORE,
    "lr_decay_style": "constant", "lr_decay_steps": 16,
    "min_lr": 0.0, "start_wd": 0.01, "end_wd": 0.01,
    "wd_incr_style": "constant", "wd_incr_steps": 16}
VARIANTS = {
    "core-gpt": dict(tp=1, distributed=False),
    "core-qwen": dict(tp=2, distributed=True),
    "core-groups": dict(tp=4, distributed=False),
}

SHARDINGS = {
    "core-gpt": ["dist"],  # none: its optimizer is not distributed
    "core-qwen": ["fully_reshardable", "dp_reshardable"],
    "core-groups": [],
}


def pretend():
    """megatron-core asks for CUDA in a few places that a CPU can serve."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *a, **k: None
    torch.cuda.empty_cache = lambda: None
    torch.Tensor.cuda = lambda self, *a, **k: self

    def on_cpu(make):
        def made(*args, **options):
            if "cuda" in str(options.get("device")):
                options["device"] = "cpu"
            return make(*args, **options)
        return made

    for name in ("tensor", "zeros", "empty", "ones", "full", "zeros_like",
                 "empty_like"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *a, **k: (
        kind(self, *a, **k).replace("torch.", "torch.cuda.")
        if not a and not k else kind(self, *a, **k))
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    CudaRNGStatesTracker.fork = lambda self, *a, **k: contextlib.nullcontext()


def build(name, tp, distributed):
    import torch.nn.functional as F
    from megatron.core.distributed import (DistributedDataParallel,
                                           DistributedDataParallelConfig)
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec)
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig
    qwen = name != "core-gpt"
    args = argparse.Namespace(
        num_layers=2, hidden_size=16, num_attention_heads=4,
        group_query_attention=qwen, num_query_groups=2 if qwen else 4,
        ffn_hidden_size=24 if qwen else 64, kv_channels=4, swiglu=qwen,
        add_bias_linear=not qwen, add_qkv_bias=qwen, qk_layernorm=qwen,
        normalization="RMSNorm" if qwen else "LayerNorm", norm_epsilon=1e-5,
        untie_embeddings_and_output_weights=qwen, bias_gelu_fusion=not qwen,
        position_embedding_type="rope" if qwen else "learned_absolute",
        rotary_base=10000, rotary_percent=1.0, seed=1234,
        max_position_embeddings=SEQUENCE, seq_length=SEQUENCE,
        padded_vocab_size=64, vocab_size=64, hidden_dropout=0.0,
        attention_dropout=0.0, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=1, data_parallel_size=1, bf16=False,
        fp16=False, params_dtype=torch.float32,
        use_distributed_optimizer=distributed, overlap_grad_reduce=distributed,
        ddp_bucket_size=500, consumed_train_samples=2 * BEFORE,
        consumed_valid_samples=0)
    config = TransformerConfig(
        num_layers=2, hidden_size=16, num_attention_heads=4,
        num_query_groups=args.num_query_groups, kv_channels=4,
        ffn_hidden_size=args.ffn_hidden_size, gated_linear_unit=qwen,
        activation_func=F.silu if qwen else
        (lambda x: F.gelu(x, approximate="tanh")),
        add_bias_linear=not qwen, add_qkv_bias=qwen, qk_layernorm=qwen,
        normalization=args.normalization, layernorm_epsilon=1e-5,
        attention_dropout=0.0, hidden_dropout=0.0, use_cpu_initialization=True,
        tensor_model_parallel_size=tp, bias_activation_fusion=False,
        masked_softmax_fusion=False, bias_dropout_fusion=False)
    torch.manual_seed(7)
    model = GPTModel(
        config, get_gpt_layer_local_spec(qk_layernorm=qwen,
                                         normalization=args.normalization),
        vocab_size=64, max_sequence_length=SEQUENCE, rotary_percent=1.0,
        share_embeddings_and_output_weights=not qwen,
        position_embedding_type=args.position_embedding_type)
    with torch.no_grad():  # norms and biases that can be told from others
        for i, p in enumerate(model.parameters()):
            if p.dim() == 1:
                p += 0.01 * torch.sin(torch.arange(p.numel()) + i)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(
        use_distributed_optimizer=distributed, grad_reduce_in_fp32=True,
        overlap_grad_reduce=distributed, bucket_size=500), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=1e-2, min_lr=0.0, weight_decay=0.01,
        adam_beta1=0.9, adam_beta2=0.999, adam_eps=1e-8, clip_grad=1.0,
        use_distributed_optimizer=distributed), [model])
    for group in optimizer.param_groups:  # as OptimizerParamScheduler does
        group["weight_decay"] = 0.01 * group["wd_mult"]
    return args, model, optimizer


def save(directory, rank, args, model, optimizer):
    folder = f"{directory}/iter_{BEFORE:07d}/mp_rank_{rank:02d}"
    os.makedirs(folder, exist_ok=True)
    state = optimizer.state_dict()
    for group in (state.get("optimizer", state))["param_groups"]:
        if "step" in group:  # as Transformer Engine's Adam has it
            group["step"] = int(group["step"])
    torch.save({
        "args": args, "checkpoint_version": 3.0, "iteration": BEFORE,
        "model": model.module.state_dict_for_save_checkpoint(),
        "optimizer": state,
        "opt_param_scheduler": SCHEDULER,
    }, folder + "/model_optim_rng.pt")
    if args.use_distributed_optimizer:
        optimizer.save_parameter_state(folder + "/distrib_optim.pt")
    if rank == 0:
        with open(directory + "/latest_checkpointed_iteration.txt", "w") as f:
            f.write(str(BEFORE))


def save_dist(directory, rank, args, model, optimizer, sharding):
    """The same in the format torch_dist, as generate_state_dict() has it."""
    from megatron.core import dist_checkpointing
    folder = f"{directory}/iter_{BEFORE:07d}"
    os.makedirs(folder, exist_ok=True)
    state = {
        "args": args, "checkpoint_version": 3.0, "iteration": BEFORE,
        "model": model.module.sharded_state_dict(),
        "opt_param_scheduler": SCHEDULER}
    state["optimizer"] = optimizer.sharded_state_dict(
        state["model"], metadata={"distrib_optim_sharding_type": sharding})
    dist_checkpointing.save(state, folder)
    if rank == 0:
        with open(directory + "/latest_checkpointed_iteration.txt", "w") as f:
            f.write(str(BEFORE))


def run(rank, name, directory, port):
    warnings.filterwarnings("ignore")
    variant = VARIANTS[name]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      RANK=str(rank), WORLD_SIZE=str(variant["tp"]))
    torch.set_num_threads(1)
    pretend()
    torch.distributed.init_process_group("gloo")
    from megatron.core import parallel_state
    from megatron.core.distributed import finalize_model_grads
    parallel_state.initialize_model_parallel(variant["tp"], 1)
    args, model, optimizer = build(name, **variant)
    ids = torch.tensor([list(TEXT + TEXT[:1])] * 2)
    positions = torch.arange(SEQUENCE)[None].expand(2, -1)
    mask = torch.triu(torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool),
                      1)[None, None]
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            save(directory, rank, args, model, optimizer)
            for sharding in SHARDINGS[name]:
                save_dist(f"{directory}-{sharding}", rank, args, model,
                          optimizer, sharding)
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = model(ids[:, :-1], positions, mask, labels=ids[:, 1:]).mean()
        loss.backward()
        finalize_model_grads([model])
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        with open(directory + "/losses.txt", "w") as f:
            f.writelines(f"{x:.7f}\n" for x in losses)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "megatron")
    for i, (name, variant) in enumerate(VARIANTS.items()):
        torch.multiprocessing.spawn(run, nprocs=variant["tp"], args=(
            name, f"{top}/{name}", 29650 + i))
