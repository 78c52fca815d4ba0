"""Models with experts of megatron-core on CPUs, as its ranks would save them:
converted, they have the logits that megatron-core computes; what is written for
ranks loads there, key by key, and has the same logits; saved again by these
ranks, as classic files and as torch_dist, it is the same bytes here. Adam's
state goes both ways. Prints TAP. Usage: megatron_experts_parity.py BUILD
[CASE...] (from the repository's root).
"""
import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import types

import torch

torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda: None
make_tensor = torch.tensor
torch.tensor = lambda data, device=None, **more: make_tensor(data, **more)
import megatron.core.dist_checkpointing as dist_checkpointing  # noqa: E402
from megatron.core.dist_checkpointing.strategies import (  # noqa: E402
    filesystem_async)
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel, DistributedDataParallelConfig)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_decoder_block_spec)
from megatron.core.optimizer import (  # noqa: E402
    OptimizerConfig, get_megatron_optimizer)
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.moe import experts as moe_experts  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
torch.set_num_threads(1)
VOCAB, TEXT = 128, 24
ALL = dict(num_layers=4, hidden_size=32, num_attention_heads=4,
           num_query_groups=2, ffn_hidden_size=56, num_moe_experts=4,
           moe_router_topk=2, moe_ffn_hidden_size=24, add_bias_linear=False,
           normalization="RMSNorm", gated_linear_unit=True,
           activation_func=torch.nn.functional.silu, hidden_dropout=0.0,
           attention_dropout=0.0, bias_activation_fusion=False,
           masked_softmax_fusion=False, bias_dropout_fusion=False,
           moe_token_dispatcher_type="allgather", use_cpu_initialization=True,
           moe_router_load_balancing_type="none", init_method_std=0.2)
CASES = {
    "mixtral": {},
    "one": dict(moe_router_topk=1, moe_router_pre_softmax=True),
    "some": dict(moe_layer_freq=[0, 1, 1, 0],
                 moe_shared_expert_intermediate_size=40,
                 moe_shared_expert_gate=True, moe_router_pre_softmax=True,
                 add_qkv_bias=True, qk_layernorm=True),
    "every": dict(moe_layer_freq=2, moe_shared_expert_intermediate_size=40),
    "sigmoid": dict(moe_layer_freq=[0, 1, 1, 1], moe_router_topk=3,
                    moe_shared_expert_intermediate_size=24,
                    moe_router_score_function="sigmoid",
                    moe_router_enable_expert_bias=True,
                    moe_router_topk_scaling_factor=2.5),
    "groups": dict(num_moe_experts=8, moe_router_topk=4,
                   moe_router_num_groups=4, moe_router_group_topk=2,
                   moe_router_score_function="sigmoid",
                   moe_router_enable_expert_bias=True),
    "best": dict(num_moe_experts=8, moe_router_num_groups=4,
                 moe_router_group_topk=2, moe_router_pre_softmax=True),
    "plain": dict(gated_linear_unit=False,
                  activation_func=torch.nn.functional.gelu),
    "grouped": dict(moe_grouped_gemm=True, moe_use_legacy_grouped_gemm=True),
}
# tensor, pipeline and expert ranks, tensor ranks of an expert
LAYOUTS = [(2, 1, 1, 2), (1, 2, 2, 1), (2, 1, 2, 2)]
FEWER = (2, 1, 2, 1)
count = failed = 0


def ok(good, what, why=""):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}", flush=True)
    if not good and why:
        print("# " + str(why)[-2000:].replace("\n", "\n# "), flush=True)
    return good


def run(program, *args):
    p = subprocess.run([os.path.join(BUILD, program), *map(str, args)],
                       capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{program} {args}: {p.returncode}\n{p.stderr}")
    return p.stdout


def convert(source, to, *args):
    run("gpt-reshape", "--load-path", source, "--save-path", to, *args, "-q")


def weights(d):
    """The bytes of a native checkpoint of one rank."""
    files = {}
    for folder, _, names in os.walk(d):
        for name in names:
            if name.endswith(".safetensors"):
                files[name] = open(os.path.join(folder, name), "rb").read()
    return files


class Grouped(torch.nn.Module):
    """Grouped products without the package that computes them on GPUs."""
    @staticmethod
    def gmm(a, b, n, trans_b=False):
        return torch.cat([x @ m for x, m in zip(a.split(n.tolist()), b)])


# dropout is 0: there are no states of random numbers on a device
tensor_parallel.random.CudaRNGStatesTracker.fork = (
    lambda self, name=None: contextlib.nullcontext())
moe_utils.te_general_gemm = getattr(moe_utils, "te_general_gemm", None)
moe_experts.gg = types.SimpleNamespace(
    ops=Grouped, assert_grouped_gemm_is_available=lambda: None)


def namespace(changes, layout=(1, 1, 1, 1)):
    """Arguments as a run of Megatron-LM has them."""
    c = dict(ALL, **changes)
    args = {k: v for k, v in c.items() if k.startswith("moe_")}
    return argparse.Namespace(
        **args, num_experts=c["num_moe_experts"], num_layers=c["num_layers"],
        hidden_size=c["hidden_size"], ffn_hidden_size=c["ffn_hidden_size"],
        num_attention_heads=c["num_attention_heads"], kv_channels=8,
        group_query_attention=True, num_query_groups=c["num_query_groups"],
        max_position_embeddings=64, position_embedding_type="rope",
        rotary_base=10000, rotary_percent=1.0, normalization="RMSNorm",
        norm_epsilon=1e-5, swiglu=c["gated_linear_unit"], add_bias_linear=False,
        add_qkv_bias=c.get("add_qkv_bias", False),
        qk_layernorm=c.get("qk_layernorm", False), bias_gelu_fusion=False,
        untie_embeddings_and_output_weights=True, padded_vocab_size=VOCAB,
        vocab_size=VOCAB, tensor_model_parallel_size=layout[0],
        pipeline_model_parallel_size=layout[1],
        expert_model_parallel_size=layout[2],
        expert_tensor_parallel_size=layout[3], params_dtype=torch.float32,
        add_position_embedding=False, iteration=7)


def build(changes, layout=(1, 1, 1, 1)):
    tp, pp, ep, etp = layout
    torch.manual_seed(3)
    config = TransformerConfig(
        **dict(ALL, **changes), tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp, pipeline_dtype=torch.float32)
    first = parallel_state.is_pipeline_first_stage()
    last = parallel_state.is_pipeline_last_stage()
    m = GPTModel(config, get_gpt_decoder_block_spec(config, False,
                                                    normalization="RMSNorm"),
                 VOCAB, 64, pre_process=first, post_process=last,
                 share_embeddings_and_output_weights=False,
                 position_embedding_type="rope", parallel_output=False)
    config.bf16 = config.moe_grouped_gemm  # an assertion of its module alone
    return m.eval()


def logits(m, tokens, pp):
    """Of all stages, on the last one."""
    ids = torch.tensor([tokens])
    shape = len(tokens), 1, m.config.hidden_size
    rank, size = (torch.distributed.get_rank(),
                  torch.distributed.get_world_size())
    mask = torch.ones(1, 1, len(tokens), len(tokens)).tril() < 0.5
    with torch.no_grad():
        if not m.pre_process:
            x = torch.empty(shape)
            torch.distributed.recv(x, rank - size // pp)
            m.set_input_tensor([x])
        y = m(ids, torch.arange(len(tokens))[None], mask)
        if not m.post_process:
            torch.distributed.send(y, rank + size // pp)
            return None
    return y[0]


def world(n, work, function, *args):
    """Calls function(rank, ...) on n ranks; true where all return."""
    store = os.path.join(work, "store")
    if os.path.exists(store):
        os.remove(store)
    children = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                torch.distributed.init_process_group(
                    "gloo", init_method="file://" + store, rank=rank,
                    world_size=n)
                function(rank, *args)
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)
        children.append(pid)
    return all([os.waitpid(pid, 0)[1] == 0 for pid in children])


def begin(layout):
    tp, pp, ep, etp = layout
    parallel_state.initialize_model_parallel(
        tp, pp, expert_model_parallel_size=ep, expert_tensor_parallel_size=etp)


def place(layout):
    """The directory of this rank."""
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if layout[1] > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if layout[2] > 1:
        name += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    return name


def save(m, d, changes, layout, optimizer=None):
    folder = os.path.join(d, "iter_0000007", place(layout))
    os.makedirs(folder, exist_ok=True)
    state = {"args": namespace(changes, layout), "checkpoint_version": 3.0,
             "iteration": 7, "model": m.state_dict()}
    if optimizer:
        state["optimizer"] = optimizer
        state["opt_param_scheduler"] = dict(
            max_lr=1e-3, lr_warmup_steps=0, num_steps=7, min_lr=0.0,
            lr_decay_style="constant", lr_decay_steps=10, start_wd=0.0,
            end_wd=0.0, wd_incr_style="constant", wd_incr_steps=10)
    torch.save(state, os.path.join(folder, "model_optim_rng.pt"))
    open(os.path.join(d, "latest_checkpointed_iteration.txt"),
         "w").write("7")


def adam(m):
    """State of two groups, as Megatron-LM's plain optimizer numbers them."""
    named = [(n, p) for n, p in m.named_parameters()]
    groups = [[p for n, p in named if p.dim() > 1],
              [p for n, p in named if p.dim() == 1]]
    numbers, state = [], {}
    for group in groups:
        numbers.append([])
        for p in group:
            numbers[-1].append(len(state))
            state[len(state)] = dict(exp_avg=p.detach() * 3,
                                     exp_avg_sq=p.detach() ** 2, step=7)
    return {"state": state, "param_groups": [
        dict(params=n, lr=1e-3, step=7) for n in numbers]}


def optimizer_of(m, distributed):
    whole = DistributedDataParallel(m.config, DistributedDataParallelConfig(
        use_distributed_optimizer=distributed), m)
    return get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=1e-2, weight_decay=0.1, clip_grad=0.0,
        use_distributed_optimizer=distributed), [whole])


def trains(m, d, changes, layout, distributed=False):
    """A step of megatron-core's optimizers, with gradients that follow from the
    weights and from no layout."""
    optimizer = optimizer_of(m, distributed)
    for p in m.parameters():
        p.main_grad.copy_(p.detach() * 0.5)
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        one.prepare_grads()
        one.step_with_ready_grads()
    save(m, d, changes, layout, optimizer.state_dict())
    if distributed:
        optimizer.save_parameter_state(shards(d, layout))


def shards(d, layout):
    return os.path.join(d, "iter_0000007", place(layout), "distrib_optim.pt")


def shares(rank, work, changes, layout):
    """A distributed optimizer's step, and one that loads what was written for
    it. It wants types of tensors of CUDA."""
    begin(layout)
    m = build(changes, layout)
    f = f"{work}/ranks/iter_0000007/{place(layout)}/model_optim_rng.pt"
    m.load_state_dict(torch.load(f, weights_only=False)["model"])
    name = torch.Tensor.type
    torch.Tensor.type = lambda t, *a, **k: name(t, *a, **k) if a or k else \
        name(t).replace("torch.", "torch.cuda.")
    trains(m, work + "/shares", changes, layout, True)
    m = build(changes, layout)
    d = os.path.dirname(shards(work + "/sharded", layout))
    state = torch.load(d + "/model_optim_rng.pt", weights_only=False)
    m.load_state_dict(state["model"])
    optimizer = optimizer_of(m, True)
    optimizer.load_state_dict(state["optimizer"])
    # where others count steps, PyTorch's Adam has tensors, for which there is
    # no place in the file
    states = [s for one in getattr(optimizer, "chained_optimizers", [optimizer])
              for s in one.optimizer.state.values()]
    steps = [s.pop("step") for s in states]
    with torch.no_grad():
        optimizer.load_parameter_state(d + "/distrib_optim.pt")
    for s, step in zip(states, steps):
        s["step"] = step
    save(m, work + "/loaded", changes, layout, optimizer.state_dict())
    optimizer.save_parameter_state(shards(work + "/loaded", layout))


def original(rank, work, changes, tokens):
    """One rank makes the model, and says what it computes."""
    begin((1, 1, 1, 1))
    m = build(changes)
    for name, p in m.named_parameters():
        if p.dim() == 1:
            p.data += 0.1 * torch.randn_like(p)
        elif "router" in name:
            p.data *= 5
    for name, b in m.named_buffers():
        if name.endswith("router.expert_bias"):
            b.copy_(0.3 * torch.randn_like(b))
    torch.save(logits(m, tokens, 1), work + "/logits")
    save(m, work + "/m", changes, (1, 1, 1, 1), adam(m))
    if not m.config.moe_grouped_gemm:
        trains(m, work + "/step", changes, (1, 1, 1, 1))


def check(m, work, tokens, layout):
    got = logits(m, tokens, layout[1])
    if got is not None:
        err = float((got - torch.load(work + "/logits")).abs().max())
        assert err < 1e-4, err


def reload(rank, work, changes, layout, tokens):
    """Ranks load what was written for them, compute, and save it in both
    ways."""
    begin(layout)
    m = build(changes, layout)
    f = f"{work}/ranks/iter_0000007/{place(layout)}/model_optim_rng.pt"
    m.load_state_dict(torch.load(f, weights_only=False)["model"])
    check(m, work, tokens, layout)
    save(m, work + "/again", changes, layout)
    d = work + "/dist/iter_0000007"
    if rank == 0:
        os.makedirs(d)
    torch.distributed.barrier()
    dist_checkpointing.save(
        dict(m.sharded_state_dict(), args=namespace(changes, layout),
             checkpoint_version=3.0, iteration=7), d)
    if rank == 0:
        open(work + "/dist/latest_checkpointed_iteration.txt", "w").write("7")
    trains(m, work + "/steps", changes, layout)


def regroup(rank, work, changes, layout, tokens):
    """Ranks of which fewer share an expert load what others saved."""
    begin(layout)
    m = build(changes, layout)
    state = dist_checkpointing.load(m.sharded_state_dict(),
                                    work + "/dist/iter_0000007")
    for key in ("args", "checkpoint_version", "iteration"):
        del state[key]
    m.load_state_dict(state)
    check(m, work, tokens, layout)
    save(m, work + "/fewer", changes, layout)
    trains(m, work + "/fewer-step", changes, layout)


def case(work, name, changes):
    tokens = [(7 * i * i + 3 * i) % VOCAB for i in range(TEXT)]
    if not ok(world(1, work, original, work, changes, tokens),
              f"{name}: megatron-core makes it"):
        return
    convert(work + "/m", work + "/native", "--verify")
    want = torch.load(work + "/logits")
    text = run("tests/parity/logits", work + "/native", *tokens)
    got = torch.tensor([[float(x) for x in line.split()]
                        for line in text.splitlines()])
    err = float((got - want).abs().max())
    ok(err < 1e-4, f"{name}: the same logits ({err:.2g})")
    mine = weights(work + "/native")
    ok(len(mine) == 3, f"{name}: with its optimizer")
    alone = {k: v for k, v in mine.items() if "optimizer" not in k}
    convert(work + "/native", work + "/back", "--to", "megatron",
            "--saver-transformer-impl", "local")
    convert(work + "/back", work + "/native2")
    ok(weights(work + "/native2") == mine, f"{name}: back and again")
    if "moe_grouped_gemm" in changes:
        return
    convert(work + "/step", work + "/native-step")
    step = weights(work + "/native-step")
    ok(len(step) == 3 and step != mine, f"{name}: the optimizer of a step")
    convert(work + "/native", work + "/half", "--to", "megatron", "--verify",
            "--target-params-dtype", "bf16")
    f = "/iter_0000007/mp_rank_00/model_optim_rng.pt"
    here, there = (torch.load(work + d + f, weights_only=False)
                   for d in ("/back", "/m"))
    ok(list(here["model"]) == [k for k in there["model"]
                               if "_extra_state" not in k],
       f"{name}: keys in the order of megatron-core",
       (list(here["model"]), list(there["model"])))
    one = ("--target-tensor-model-parallel-size", 1,
           "--target-pipeline-model-parallel-size", 1)
    for layout in LAYOUTS:
        for d in ("ranks", "again", "dist", "steps", "shares", "sharded",
                  "loaded", "native3", "native4", "native6", "native8",
                  "native9"):
            subprocess.run(["rm", "-rf", f"{work}/{d}"], check=True)
        tp, pp, ep, _ = layout
        to = ("--to", "megatron", "--target-tensor-model-parallel-size", tp,
              "--target-pipeline-model-parallel-size", pp,
              "--target-expert-model-parallel-size", ep,
              "--saver-transformer-impl", "local")
        convert(work + "/native", work + "/ranks", *to)
        convert(work + "/native-step", work + "/sharded", *to,
                "--use-distributed-optimizer")
        what = f"{name}: TP {tp}, PP {pp}, EP {ep}"
        if not ok(world(tp * pp * ep, work, reload, work, changes, layout,
                        tokens), f"{what}: loads and computes"):
            continue
        convert(work + "/again", work + "/native3", *one)
        ok(weights(work + "/native3") == alone, f"{what}: classic files")
        convert(work + "/dist", work + "/native4", *one)
        ok(weights(work + "/native4") == alone, f"{what}: torch_dist")
        convert(work + "/steps", work + "/native6", *one)
        ok(weights(work + "/native6") == step, f"{what}: its optimizers")
        if ok(world(tp * pp * ep, work, shares, work, changes, layout),
              f"{what}: a distributed optimizer"):
            convert(work + "/shares", work + "/native8", *one)
            ok(weights(work + "/native8") == step, f"{what}: its state")
            convert(work + "/loaded", work + "/native9", *one)
            ok(weights(work + "/native9") == step, f"{what}: loads it")
    if ok(world(2, work, regroup, work, changes, FEWER, tokens),
          f"{name}: whole experts in tensor ranks"):
        convert(work + "/fewer", work + "/native5", *one)
        ok(weights(work + "/native5") == alone, f"{name}: classic files")
        convert(work + "/fewer-step", work + "/native7", *one)
        ok(weights(work + "/native7") == step, f"{name}: its optimizers")


def main():
    # a queue of a process that is forked: one that is spawned would import all
    # of this again
    filesystem_async._results_queue = multiprocessing.get_context(
        "fork").Manager().Queue()
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as work:
            try:
                case(work, name, CASES[name])
            except RuntimeError as e:
                ok(False, name, e)
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
