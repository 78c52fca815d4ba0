"""Tiny random models of Hugging Face's families with experts, of odd sizes: the
parameters that are made of their files, and of files with the names that a
state in memory has; back as the same tensors, also from other layouts; the same
logits and greedy text, and back in transformers; ten steps of AdamW with
PyTorch's losses, biases of routers among what moves. Prints TAP. Usage:
experts_parity.py BUILD [CASE...] (from the repository's root). With
GPT_TENSORS_ALONE set no model is computed.
"""
import glob
import json
import os
import random
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import hf_families_parity as hf
from hf_families_parity import (GROUPS, VOCAB, close, greedy, known, logits,
                                model, numbers, ok, run, state)

# widths of experts are such that grouped products of PyTorch take them
EXPERTS, TOP, WIDTH = 4, 2, 24
SIZES = dict(hidden_size=48, intermediate_size=56)
MOE = dict(num_experts_per_tok=TOP, moe_intermediate_size=WIDTH)
LOCAL = dict(num_local_experts=EXPERTS, num_experts_per_tok=TOP)
HEADS = dict(**GROUPS, **SIZES, head_dim=12)
WIDE = dict(**GROUPS, **SIZES)
FACTORS = dict(embedding_multiplier=3.0, residual_multiplier=0.3,
               logits_scaling=5.0, attention_multiplier=0.25)
# of keys and values that are made of a row
LATENT = dict(num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=20,
              q_lora_rank=18, qk_nope_head_dim=8, qk_rope_head_dim=6,
              v_head_dim=10)
YARN = dict(rope_type="yarn", factor=4.0, beta_fast=32, beta_slow=1,
            original_max_position_embeddings=64, rope_theta=10000.0,
            mscale=1.0, mscale_all_dim=0.6)
ROUTED = dict(**MOE, n_routed_experts=EXPERTS)
DENSE = dict(num_hidden_layers=4)

# name: class, its configuration
CASES = {
    "mixtral": ("Mixtral", dict(**HEADS, **LOCAL)),
    "mixtral-window": ("Mixtral", dict(**HEADS, sliding_window=9,
                                       num_local_experts=8,
                                       num_experts_per_tok=3)),
    "mixtral-one": ("Mixtral", dict(**HEADS, num_local_experts=3,
                                    num_experts_per_tok=1)),
    "qwen2_moe": ("Qwen2Moe", dict(
        **WIDE, **MOE, **DENSE, num_experts=EXPERTS, mlp_only_layers=[1],
        decoder_sparse_step=2, shared_expert_intermediate_size=28)),
    "qwen2_moe-norm": ("Qwen2Moe", dict(
        **WIDE, **MOE, num_experts=6, norm_topk_prob=True, qkv_bias=False,
        shared_expert_intermediate_size=12)),
    "qwen3_moe": ("Qwen3Moe", dict(
        **HEADS, **MOE, **DENSE, num_experts=EXPERTS, norm_topk_prob=True,
        mlp_only_layers=[0, 3])),
    "qwen3_moe-whole": ("Qwen3Moe", dict(
        **HEADS, **MOE, num_experts=5, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=9)),
    "mellum": ("Mellum", dict(
        **HEADS, **MOE, **DENSE, num_experts=EXPERTS, sliding_window=9,
        mlp_layer_types=["sparse", "dense", "dense", "sparse"],
        layer_types=["full_attention"] + ["sliding_attention"] * 3)),
    "olmoe": ("Olmoe", dict(**WIDE, num_experts=EXPERTS,
                            num_experts_per_tok=TOP)),
    "olmoe-norm": ("Olmoe", dict(**WIDE, num_experts=EXPERTS,
                                 num_experts_per_tok=3, norm_topk_prob=True)),
    "flex_olmo": ("FlexOlmo", dict(**WIDE, num_experts=EXPERTS,
                                   num_experts_per_tok=TOP)),
    "granitemoe": ("GraniteMoe", dict(**WIDE, **LOCAL, **FACTORS)),
    "granitemoeshared": ("GraniteMoeShared", dict(
        **WIDE, **LOCAL, **FACTORS, shared_intermediate_size=28)),
    "granitemoehybrid": ("GraniteMoeHybrid", dict(
        **WIDE, **LOCAL, **FACTORS, shared_intermediate_size=28,
        position_embedding_type="rope", mamba_n_heads=4,
        layer_types=["attention"] * 2)),
    "hunyuan_v1_moe": ("HunYuanMoEV1", dict(
        **HEADS, num_experts=EXPERTS, moe_topk=TOP)),
    "glm4_moe": ("Glm4Moe", dict(
        **HEADS, **ROUTED, first_k_dense_replace=1, routed_scaling_factor=2.5,
        n_shared_experts=2)),
    "glm4_moe-norms": ("Glm4Moe", dict(
        **HEADS, **ROUTED, **DENSE, first_k_dense_replace=3, use_qk_norm=True,
        norm_topk_prob=False, attention_bias=True)),
    "dots1": ("Dots1", dict(
        **HEADS, **ROUTED, first_k_dense_replace=1, n_shared_experts=2,
        norm_topk_prob=True, routed_scaling_factor=2.5, sliding_window=None)),
    "solar_open": ("SolarOpen", dict(**HEADS, **ROUTED)),
    "aria_text": ("AriaText", dict(
        **HEADS, moe_num_experts=EXPERTS, moe_topk=TOP)),
    "sarvam_moe": ("SarvamMoE", dict(**HEADS, **ROUTED, n_shared_experts=2)),
    "sarvam_moe-plain": ("SarvamMoE", dict(
        **HEADS, **ROUTED, **DENSE, first_k_dense_replace=2,
        attention_bias=True, use_qk_norm=False)),
    "exaone_moe": ("ExaoneMoe", dict(
        **WIDE, **MOE, **DENSE, num_experts=EXPERTS, sliding_window=9)),
    "hy_v3": ("HYV3", dict(**HEADS, **MOE, **DENSE, num_experts=EXPERTS)),
    "minimax_m2": ("MiniMaxM2", dict(**HEADS, **LOCAL, rotary_dim=4)),
    "ernie4_5_moe": ("Ernie4_5_Moe", dict(
        **WIDE, moe_num_experts=EXPERTS, moe_k=TOP,
        moe_intermediate_size=WIDTH)),
    "ernie4_5_moe-some": ("Ernie4_5_Moe", dict(
        **WIDE, moe_num_experts=EXPERTS, moe_k=TOP, num_hidden_layers=6,
        moe_intermediate_size=WIDTH, moe_layer_interval=2,
        moe_layer_start_index=3, moe_num_shared_experts=0)),
    "deepseek_v3": ("DeepseekV3", dict(
        **SIZES, **LATENT, **MOE, n_routed_experts=8, n_group=4, topk_group=2,
        first_k_dense_replace=1)),
    "deepseek_v3-yarn": ("DeepseekV3", dict(
        **SIZES, **{**LATENT, "q_lora_rank": None, "v_head_dim": 12}, **MOE,
        n_routed_experts=EXPERTS, n_group=1, topk_group=1, n_shared_experts=2,
        rms_norm_eps=1e-5, norm_topk_prob=False, rope_interleave=False,
        first_k_dense_replace=0, rope_parameters=YARN)),
    "deepseek_v2": ("DeepseekV2", dict(
        **SIZES, **LATENT, **MOE, n_routed_experts=9, n_group=3, topk_group=2,
        topk_method="group_limited_greedy", routed_scaling_factor=4.0,
        first_k_dense_replace=1,
        rope_parameters={**YARN, "mscale": 0.707, "mscale_all_dim": 0.707})),
    "deepseek_v2-lite": ("DeepseekV2", dict(
        **SIZES, **{**LATENT, "q_lora_rank": None}, **MOE,
        n_routed_experts=6)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(
        **SIZES, **LATENT, **MOE, **DENSE, n_routed_experts=EXPERTS,
        mlp_layer_types=["dense", "sparse", "dense", "sparse"])),
    "youtu": ("Youtu", dict(**SIZES, **LATENT)),
    "minicpm3": ("MiniCPM3", dict(
        **SIZES, **{**LATENT, "v_head_dim": None}, scale_emb=3, scale_depth=2,
        dim_model_base=12, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, factor=4.0,
            short_factor=[1.0, 1.1, 1.3], long_factor=[1.0, 2.5, 4.0],
            original_max_position_embeddings=64))),
}

# What the matrices of an expert are called.
GATES = ("w1", "gate_proj")
UPS = ("w3", "up_proj")
DOWNS = ("w2", "down_proj")


def make(directory, name, changes):
    """As in the other families; biases of routers are no parameters."""
    cls = hf.make(directory, name, changes)
    tensors = state(directory)
    for k, v in tensors.items():
        if "bias" in k and v.numel() == v.shape[-1] and \
                v.shape[-1] <= 8 and ("score" in k or "expert_bias" in k):
            tensors[k] = torch.randn_like(v) * 0.3
    save_file(tensors, directory + "/model.safetensors",
              metadata={"format": "pt"})
    return cls


def native(directory):
    """All parameters of a checkpoint of one rank."""
    files = glob.glob(directory + "/iter_*/model_tp00_pp00.safetensors") + \
        glob.glob(directory + "/release/model_tp00_pp00.safetensors")
    return load_file(files[0])


def expected(tensors, layer):
    """Experts and routers of a layer, as this project has them; {} where it
    has none."""
    names = {k: v for k, v in tensors.items() if f".layers.{layer}." in k}
    out = {}

    def one(what, *words):
        found = [v for k, v in names.items()
                 if any(k.endswith(w) for w in words)]
        if found:
            out[what] = found[0]

    def of_expert(e, kinds):
        return next((v for k, v in names.items() for w in kinds
                     if k.endswith(f".experts.{e}.{w}.weight")), None)

    one("router.weight", "moe.gate.weight", "mlp.gate.weight",
        "router.layer.weight", "gate.wg.weight", "router.gate.weight",
        "mlp.router.weight")
    one("router.expert_bias", "e_score_correction_bias", "mlp.expert_bias",
        "gate.expert_bias")
    fused = next((v for k, v in names.items()
                  if k.endswith("moe.input_linear.weight")), None)
    if fused is not None:
        down = next(v for k, v in names.items()
                    if k.endswith("moe.output_linear.weight"))
        out["experts.linear_fc1.weight"] = fused.flatten(0, 1)
        out["experts.linear_fc2.weight"] = down.flatten(0, 1)
    elif any(k.endswith("experts.fc1.weight") for k in names):
        for which in "fc1", "fc2":  # (experts, in, out)
            out[f"experts.linear_{which}.weight"] = next(
                v for k, v in names.items() if k.endswith(
                    f"experts.{which}.weight")).transpose(1, 2).flatten(0, 1)
    elif of_expert(0, GATES) is not None:
        n = 1 + max(int(k.split(".experts.")[1].split(".")[0])
                    for k in names if ".experts." in k)
        out["experts.linear_fc1.weight"] = torch.cat(
            [of_expert(e, kind) for e in range(n) for kind in (GATES, UPS)])
        out["experts.linear_fc2.weight"] = torch.cat(
            [of_expert(e, DOWNS) for e in range(n)])
    both = next((v for k, v in names.items()
                 if k.endswith("shared_mlp.input_linear.weight")), None)
    shared = ("shared_expert", "shared_experts", "shared_mlp")
    if both is not None:
        gate, up = both.chunk(2)
        out["shared_experts.linear_gate.weight"] = gate
        out["shared_experts.linear_fc1.weight"] = up
        one("shared_experts.linear_fc2.weight",
            "shared_mlp.output_linear.weight")
    else:
        for to, word in (("gate", "gate"), ("fc1", "up"), ("fc2", "down")):
            one(f"shared_experts.linear_{to}.weight",
                *(f".{s}.{word}_proj.weight" for s in shared))
    one("shared_experts.gate_weight", "shared_expert_gate.weight")
    return out


def tensors_fit(name, there, here, layers):
    wrong = []
    seen = 0
    for layer in range(layers):
        want = {f"decoder.layers.{layer}.mlp.{k}": v
                for k, v in expected(there, layer).items()}
        got = {k: v for k, v in here.items()
               if f"layers.{layer}.mlp." in k and
               ("router" in k or "experts" in k)}
        seen += "router.weight" in "".join(want)
        wrong += [k for k in want.keys() | got.keys()
                  if k not in want or k not in got or not torch.equal(
                      want[k].reshape(got[k].shape), got[k])]
    ok((seen or name in ("youtu", "minicpm3")) and not wrong, f"{name}: {seen} layers of experts", wrong)


def same(a, b, what):
    ok(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and
                                    a[k].dtype == b[k].dtype for k in a),
       what, a.keys() ^ b.keys())


def layouts(d, name):
    """Ranks have some of the experts each."""
    for tp, pp in ((2, 1), (1, 2), (2, 2)):
        to, back = d(f"tp{tp}pp{pp}"), d(f"back{tp}{pp}")
        try:
            run("gpt-reshape", "--load-path", d("in"), "--save-path", to,
                "--target-tensor-model-parallel-size", tp,
                "--target-pipeline-model-parallel-size", pp, "--verify")
        except RuntimeError as e:
            # odd numbers of experts or groups
            ok("does not divide" in str(e), f"{name}: TP {tp}, PP {pp}", e)
            continue
        run("gpt-reshape", "--load-path", to, "--save-path", back, "--to",
            "hf", "--verify")
        same(state(d("hf")), state(back), f"{name}: TP {tp}, PP {pp} and back")


def in_memory(d, name, m):
    """The same parameters by other names."""
    tied = m.get_output_embeddings().weight is m.get_input_embeddings().weight
    os.mkdir(d("memory"))
    save_file({k: v.contiguous() for k, v in m.state_dict().items()
               if k != "lm_head.weight" or not tied},
              d("memory") + "/model.safetensors")
    shutil.copy(d("hf") + "/config.json", d("memory"))
    run("gpt-reshape", "--load-path", d("memory"), "--save-path",
        d("from-memory"), "--verify")
    same(native(d("in")), native(d("from-memory")),
         f"{name}: names of a state in memory")


def narrow(d, name, cls, m, tokens):
    """bf16 here and there, against float: of most tokens, as rounding gives a
    few of them other experts."""
    exact = logits(m, tokens)
    a, b = (float((x - exact).pow(2).mean(1).sqrt().median()) for x in (
        numbers(run("tests/parity/logits", "--bf16", d("in"), *tokens)),
        logits(model(cls, d("hf"), torch.bfloat16), tokens).float()))
    ok(a <= 1.25 * b, f"{name}: bf16 within its error ({a:.2g} from float, "
       f"transformers' {b:.2g})")


def computes(d, name, cls, m, long):
    close(numbers(run("tests/parity/logits", d("hf"), *long)), logits(m, long),
          f"{name}: logits")
    narrow(d, name, cls, m, long)
    text = run("gpt-generate", "--load", d("hf"), "--tokenizer-type",
               "NullTokenizer", "--vocab-size", VOCAB - 1, "--greedy",
               "--tokens", 100, "--ignore-eod", "--prompt",
               " ".join(map(str, long[:7])), "--device", "cpu")
    want = greedy(m, long[:7])
    ok(text.split() == want.split(), f"{name}: the same greedy text",
       f"{text}\n{want}")


# ---- training ----

# of a case: options, and how far biases of routers go in a step
TRAINED = {
    "mixtral": ([], 0),
    "qwen2_moe": (["--recompute-granularity", "full"], 0),
    "glm4_moe": ([], 0.02),
    "ernie4_5_moe": (["--moe-router-bias-update-rate", 0], 0),
}
STEPS, SEQ, BATCH, LR, DECAY = 10, 32, 2, 0.003, 0.1


def trained_here(d, words):
    """Losses of gpt-train. Every sample is the same: the text's period is the
    length of a sequence."""
    row = [random.randrange(VOCAB - 1) for _ in range(SEQ)]
    with open(d("text") + ".jsonl", "w", encoding="utf-8") as f:
        json.dump({"text": " ".join(map(str, row * 10))}, f)
    tokens = ["--tokenizer-type", "NullTokenizer", "--vocab-size", VOCAB - 1]
    run("gpt-preprocess", "--input", d("text") + ".jsonl", "--output-prefix",
        d("text"), *tokens)
    run("gpt-train", "--load", d("hf"), "--finetune", "--use-checkpoint-args",
        "--data-path", d("text") + "_text_document", *tokens, "--split",
        "1,0,0", "--eval-iters", 0, "--log-interval", 1, "--seq-length", SEQ,
        "--micro-batch-size", 1, "--global-batch-size", BATCH,
        "--train-iters", STEPS, "--lr", LR, "--lr-decay-style", "constant",
        "--weight-decay", DECAY, "--adam-beta2", 0.95, "--adam-eps", 1e-4,
        "--clip-grad", 1.0, "--hidden-dropout", 0, "--attention-dropout", 0,
        "--moe-aux-loss-coeff", 0, "--metrics", d("metrics"), *words,
        "--device", "cpu", "-q")
    with open(d("metrics"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return row, [x["lm_loss"] for x in lines if "lm_loss" in x]


def watch(m, counts):
    """Counts the tokens of each expert, where routers have biases."""
    def of(name):
        def count(router, args, _):
            x = args[0].reshape(-1, args[0].shape[-1])
            by = (x @ router.weight.T).sigmoid() + \
                router.e_score_correction_bias
            chosen = by.topk(TOP, dim=-1).indices.flatten()
            counts[name] = counts.get(name, 0) + torch.bincount(
                chosen, minlength=EXPERTS)
        return count
    for name, part in m.named_modules():
        if hasattr(part, "e_score_correction_bias") and \
                hasattr(part, "weight"):
            part.register_forward_hook(of(name))


def trained_there(cls, directory, row, rate):
    """The same of transformers and PyTorch."""
    m = model(cls, directory).train()
    decays = {True: [], False: []}
    for p in m.parameters():
        decays[p.dim() > 1].append(p)
    optimizer = torch.optim.AdamW(
        [{"params": decays[True], "weight_decay": DECAY},
         {"params": decays[False], "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.95), eps=1e-4)
    ids = torch.tensor([row + row[:1]] * BATCH)
    counts, losses = {}, []
    if rate:
        watch(m, counts)
    for _ in range(STEPS):
        counts.clear()
        logits_ = m(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits_.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
        for name, n in counts.items():
            bias = m.get_submodule(name).e_score_correction_bias
            with torch.no_grad():
                bias += rate * torch.sign(n.double().mean() - n)
        losses.append(loss.item())
    return losses, counts


def trains(d, name, cls):
    words, rate = TRAINED[name]
    row, got = trained_here(d, words + (
        ["--moe-router-bias-update-rate", rate] if rate else []))
    want, counts = trained_there(cls, d("hf"), row, rate)
    off = max((abs(a - b) for a, b in zip(got, want)), default=1)
    ok(len(got) == STEPS and off < 1e-4 and (not rate or counts),
       f"{name}: {STEPS} steps of AdamW ({off:.1e})", f"{got}\n{want}")


def case(work, name, cls, changes):
    d = lambda x: os.path.join(work, f"{name}-{x}")
    there = make(d("hf"), cls, changes)
    m = model(there, d("hf"))
    long = [random.randrange(VOCAB) for _ in range(150)]
    run("gpt-reshape", "--load-path", d("hf"), "--save-path", d("in"),
        "--verify")
    tensors_fit(name, state(d("hf")), native(d("in")),
                m.config.num_hidden_layers)
    run("gpt-reshape", "--load-path", d("in"), "--save-path", d("back"),
        "--to", "hf", "--verify")
    kind = json.load(open(d("back") + "/config.json"))["model_type"]
    ok(kind == m.config.model_type, f"{name}: goes out as it came in", kind)
    same(state(d("hf")), state(d("back")), f"{name}: and as the same tensors")
    back = model(transformers.AutoModelForCausalLM, d("back"))
    close(logits(back, long), logits(m, long),
          f"{name}: back in transformers", 1e-6)
    in_memory(d, name, m)
    layouts(d, name)
    if not os.environ.get("GPT_TENSORS_ALONE"):
        computes(d, name, there, m, long)
        if name in TRAINED:
            trains(d, name, there)


def main():
    random.seed(1)
    torch.manual_seed(3)
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as work:
        for name, (cls, changes) in CASES.items():
            if only and name not in only:
                continue
            if not known(cls):
                ok(True, f"{name} # SKIP this transformers has no {cls}")
                continue
            try:
                case(work, name, cls, changes)
            except Exception as e:  # a class that fails is a failed case
                ok(False, name, e)
    print(f"1..{hf.count}")
    return hf.failed != 0


if __name__ == "__main__":
    sys.exit(main())
