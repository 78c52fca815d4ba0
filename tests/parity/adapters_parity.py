"""Random adapters of PEFT on tiny random models of many families. Weights are
those of merge_and_unload(), bit for bit where each sum has one term, else
within a rounding; logits are those of the adapter beside its model; and the
same bytes come out of every format of the model and every layout. Prints TAP.
Usage: adapters_parity.py BUILD [CASE...] (from the repository's root).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

BUILD = os.path.abspath(sys.argv[1])
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
warnings.simplefilter("ignore")
torch.set_num_threads(1)
count = failed = 0

SMALL = dict(vocab_size=131, hidden_size=48, num_hidden_layers=2,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
GROUPS = dict(num_attention_heads=6, num_key_value_heads=2)
NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
PART = dict(rope_type="default", rope_theta=10000.0)
FAMILIES = {
    "gpt2": ("GPT2", dict(num_attention_heads=4, n_inner=52, **NO_DROPOUT)),
    "llama": ("Llama", GROUPS),
    "mistral": ("Mistral", dict(**GROUPS, head_dim=4, sliding_window=None)),
    "qwen2": ("Qwen2", dict(**GROUPS, use_sliding_window=False)),
    "qwen3": ("Qwen3", dict(**GROUPS, head_dim=10)),
    "phi3": ("Phi3", dict(**GROUPS, sliding_window=None)),
    "gemma2": ("Gemma2", dict(**GROUPS, head_dim=8, sliding_window=64,
                              query_pre_attn_scalar=8)),
    "neox": ("GPTNeoX", dict(num_attention_heads=4, rope_parameters=dict(
        partial_rotary_factor=0.5, **PART))),
    "falcon": ("Falcon", dict(num_attention_heads=6, num_kv_heads=2,
                              new_decoder_architecture=True,
                              ffn_hidden_size=52)),
    "gptj": ("GPTJ", dict(num_attention_heads=4, n_inner=52, rotary_dim=6,
                          **NO_DROPOUT)),
    "bloom": ("Bloom", dict(num_attention_heads=4, seq_length=64)),
    "olmo2": ("Olmo2", GROUPS),
    "phi": ("Phi", dict(**GROUPS, rope_parameters=dict(
        partial_rotary_factor=0.5, **PART))),
    "opt": ("OPT", dict(num_attention_heads=4, ffn_dim=52, dropout=0.0,
                        word_embed_proj_dim=48)),
}
LINEAR = dict(r=4, lora_alpha=7, target_modules="all-linear")
QV = dict(r=4, lora_alpha=7, target_modules=["q_proj", "v_proj"])
# name: family, more of its configuration, that of the adapter
CASES = {
    **{f: (f, {}, dict(LINEAR, bias="all")) for f in FAMILIES},
    "gpt2-dora": ("gpt2", {}, dict(LINEAR, use_dora=True)),
    "llama-dora": ("llama", {}, dict(LINEAR, use_dora=True)),
    "phi3-dora": ("phi3", {}, dict(LINEAR, use_dora=True, use_rslora=True)),
    "embedding-dora": ("llama", {}, dict(
        r=3, target_modules=["embed_tokens", "k_proj"], use_dora=True)),
    "patterns": ("llama", {}, dict(
        LINEAR, use_rslora=True,
        rank_pattern={"v_proj": 3, r"^model\.layers\.1\.mlp\.(up|down)_proj": 5,
                      r"layers\.[01]\.self_attn\.k_proj": 2},
        alpha_pattern={r"layers\.\d\.mlp\..*": 3,
                       r"model.layers.0.self_attn.[qk]_proj": 11,
                       r"(?:o|v)_proj": 2})),
    "some-layers": ("qwen2", {}, dict(QV, layers_to_transform=[1],
                                      layers_pattern="layers",
                                      bias="lora_only")),
    "embeddings": ("llama", {}, dict(
        r=3, target_modules=["embed_tokens", "lm_head", "q_proj"])),
    "neox-head": ("neox", {}, dict(
        r=3, target_modules=["lm_head", "query_key_value"])),
    "gpt2-embedding": ("gpt2", {}, dict(
        r=3, target_modules=["wpe", "c_attn"], fan_in_fan_out=True)),
    "lora-bias": ("qwen2", {}, dict(QV, lora_bias=True, use_rslora=True)),
    "gpt2-lora-bias": ("gpt2", {}, dict(r=2, target_modules=["c_fc", "c_attn"],
                                        lora_bias=True)),
    "saved": ("llama", {}, dict(QV, modules_to_save=["embed_tokens", "norm",
                                                     "lm_head"])),
    "tied-input": ("qwen3", dict(tie_word_embeddings=True), dict(
        QV, modules_to_save=["embed_tokens"])),
    "tied-output": ("qwen3", dict(tie_word_embeddings=True), dict(
        QV, modules_to_save=["lm_head"])),
    "tied-both": ("llama", dict(tie_word_embeddings=True), dict(
        QV, modules_to_save=["lm_head", "embed_tokens"])),
    "tokens": ("llama", {}, dict(QV, trainable_token_indices=[130, 7, 8, 0])),
    "tied-tokens": ("qwen3", dict(tie_word_embeddings=True), dict(
        QV, trainable_token_indices={"embed_tokens": [5, 4]})),
    "one-term": ("llama", {}, dict(LINEAR, r=1)),
    "one-term-embedding": ("llama", {}, dict(
        r=1, target_modules=["embed_tokens", "o_proj"])),
}
# Tied layers whose table is added to: peft changes both when it merges, so
# that weights are compared and logits are not.
TIED = {
    "tied-embedding": ("qwen3", dict(tie_word_embeddings=True), dict(
        r=3, target_modules=["embed_tokens", "q_proj"])),
    "tied-head": ("qwen3", dict(tie_word_embeddings=True), dict(
        r=3, target_modules=["lm_head", "q_proj"])),
}


def ok(passed, text, why=""):
    global count, failed
    count += 1
    failed += not passed
    print("ok" if passed else "not ok", count, "-", text, flush=True)
    if not passed:
        for line in str(why).splitlines()[-12:]:
            print("#", line)


def run(*args):
    done = subprocess.run([os.path.join(BUILD, args[0]), *map(str, args[1:])],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{args}: {done.returncode}: {done.stderr}")
    return done.stdout


def reshape(source, target, to, *options):
    shutil.rmtree(target, ignore_errors=True)
    run("gpt-reshape", "convert", source, target, "--to", to, "--quiet",
        *options)


def make(family, more):
    kind, config = FAMILIES[family]
    cls = getattr(transformers, kind + "Config")
    sizes = {**SMALL, **config, **more}
    if "n_inner" in sizes:
        sizes["n_positions"] = 64
    elif kind != "Bloom":
        sizes["max_position_embeddings"] = 64
    if not {"n_inner", "ffn_hidden_size", "ffn_dim", "seq_length"} & set(sizes):
        sizes["intermediate_size"] = 52
    model = transformers.AutoModelForCausalLM.from_config(cls(**sizes)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model


def adapt(model, config, to):
    """Saves a random adapter of all that it can have; returns it."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", **config)
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) * 0.1)
    adapted.save_pretrained(to)
    return adapted


def loaded(base, adapter, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    return peft.PeftModel.from_pretrained(model.eval(), adapter).eval()


def weights(model):
    """Of a model of transformers by their names; tied ones twice."""
    found = dict(model.named_parameters(remove_duplicate=False))
    return {k: v.detach() for k, v in found.items()}


def apart(model, path):
    """The largest difference: of float, in units of the last place of a number
    of the size of what was added up, where rounding a sum of some terms moves it
    by less than two; of narrower types, in neighbours."""
    here = load_file(os.path.join(path, "model.safetensors"))
    there, most = weights(model), 0.0
    for name, w in there.items():
        mine = here.get(name)
        if name == "lm_head.weight":  # files of some families call it so
            mine = here.get(name, here.get("embed_out.weight"))
        for k, v in there.items():  # tied ones are stored once
            if mine is None and k in here and v.data_ptr() == w.data_ptr():
                mine = here[k]
        if mine is None:
            return float("inf")
        if mine.dtype != w.dtype or mine.shape != w.shape:
            return float("inf")
        if w.dtype is torch.float32:
            unit = torch.finfo(w.dtype).eps * w.abs().clamp(min=0.25)
            units = (mine - w).abs() / unit
        else:  # numbers of neighbours differ by one
            units = (mine.view(torch.int16).int() -
                     w.view(torch.int16).int()).abs() * (mine != w)
        most = max(most, units.max().item())
    return most


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def own_logits(path, ids):
    lines = run("tests/parity/logits", path, *ids).splitlines()
    return torch.tensor([[float(x) for x in line.split()] for line in lines])


def same(a, b):
    x = load_file(os.path.join(a, "model.safetensors"))
    y = load_file(os.path.join(b, "model.safetensors"))
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def check_weights(name, d, one_term, dtype):
    merged = loaded(d("base"), d("adapter"), dtype).merge_and_unload()
    word = str(dtype).split(".")[-1]
    if dtype is not torch.float32:
        reshape(d("base"), d("narrow"), "hf", "--target-params-dtype",
                {"bfloat16": "bf16", "float16": "fp16"}[word])
    base = d("base" if dtype is torch.float32 else "narrow")
    reshape(base, d("out"), "hf", "--verify", "--merge-adapter", d("adapter"))
    units = apart(merged, d("out"))
    # the sums of an embedding are rounded twice
    twice = any("emb" in x for x in d.config["target_modules"])
    most = 0 if one_term else 2 if dtype is torch.float32 else 1 + twice
    ok(units <= most, f"{name}: weights in {word}, "
       f"{units:.2g} units apart", units)


def check_ways(name, d):
    """Other formats and layouts of the model, and of the result."""
    adapter = ["--merge-adapter", d("adapter")]
    reshape(d("base"), d("out"), "hf", *adapter, "--threads", 1)
    ways = {
        "threads": [("base", "hf", adapter + ["--threads", 3])],
        "layout": [("base", "native", adapter + [
            "--target-tensor-model-parallel-size", 2,
            "--target-pipeline-model-parallel-size", 2]),
            (None, "hf", [])],
        "native": [("base", "native", [
            "--target-tensor-model-parallel-size", 2]),
            (None, "hf", adapter)],
        "megatron": [("base", "megatron", [
            "--target-tensor-model-parallel-size", 2]),
            (None, "hf", adapter)],
    }
    for way, steps in ways.items():
        try:
            source = None
            for i, (first, to, options) in enumerate(steps):
                reshape(d(first) if first else source, d(f"way{i}"), to,
                        *options)
                source = d(f"way{i}")
            ok(same(source, d("out")), f"{name}: the same bytes by {way}")
        except RuntimeError as e:
            if "Megatron-LM has no such model" in str(e):
                continue
            ok(False, f"{name}: {way}", e)


def check(name, family, more, config, compares=True):
    d = lambda *path: os.path.join(top, name, *path)
    d.config = config
    os.mkdir(d())
    torch.manual_seed(len(name))
    model = make(family, more)
    model.save_pretrained(d("base"))
    adapt(model, config, d("adapter"))
    one_term = config["r"] == 1
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        if not (config.get("use_dora") and dtype is torch.float16):
            check_weights(name, d, one_term, dtype)
    if not compares:
        return
    ids = [(7 * i + 3) % 131 for i in range(20)]
    there = logits(loaded(d("base"), d("adapter")), ids)
    reshape(d("base"), d("native"), "native", "--merge-adapter", d("adapter"))
    here = own_logits(d("native"), ids)
    worst = (here - there).abs().max().item() / there.abs().max().item()
    ok(worst < 1e-5, f"{name}: logits, {worst:.1e} apart")
    check_ways(name, d)


def check_resized():
    """The vocabulary grows before training, and both tables are stored."""
    d = lambda *path: os.path.join(top, "resized", *path)
    os.mkdir(d())
    model = make("llama", {})
    model.save_pretrained(d("base"))
    model.resize_token_embeddings(140)
    adapted = adapt(model, QV, d("x"))
    with torch.no_grad():
        model.get_input_embeddings().weight.add_(0.01)
    adapted.save_pretrained(d("adapter"), save_embedding_layers=True)
    reshape(d("base"), d("out"), "hf", "--merge-adapter", d("adapter"))
    units = apart(adapted.merge_and_unload(), d("out"))
    ok(units <= 2, f"a vocabulary that has grown, {units:.2g} units apart")
    shutil.rmtree(d("x"))
    for name in ("adapter_model.safetensors",):
        path = d("adapter", name)
        less = load_file(path)
        less.pop("base_model.model.lm_head.weight")
        save_file(less, path)
    done = subprocess.run(
        [os.path.join(BUILD, "gpt-reshape"), "convert", d("base"), d("no"),
         "--merge-adapter", d("adapter")], capture_output=True, text=True)
    ok(done.returncode == 3 and "has no rows" in done.stderr,
       "one of its tables alone is refused", done.stderr)


def check_forms():
    """Other forms of the same files: names, a file of torch.save(), half."""
    d = lambda *path: os.path.join(top, "forms", *path)
    os.mkdir(d())
    model = make("gpt2", {})
    model.save_pretrained(d("base"))
    adapt(model, dict(LINEAR), d("adapter"))
    tensors = load_file(d("adapter", "adapter_model.safetensors"))
    reshape(d("base"), d("out"), "hf", "--merge-adapter", d("adapter"))

    def form(name, change, save):
        shutil.copytree(d("adapter"), d(name))
        os.remove(d(name, "adapter_model.safetensors"))
        save({change(k): v for k, v in tensors.items()}, name)
        reshape(d("base"), d("form"), "hf", "--merge-adapter", d(name))
        ok(same(d("form"), d("out")), f"an adapter as {name}")

    def by_torch(tensors, name):
        torch.save(tensors, d(name, "adapter_model.bin"))

    def by_safetensors(tensors, name):
        save_file(tensors, d(name, "adapter_model.safetensors"))

    def turned(tensors, name):
        by_torch({k: v.t().contiguous().t() for k, v in tensors.items()}, name)

    form("bin", lambda k: k, by_torch)
    form("bin, turned", lambda k: k, turned)
    form("names with default", lambda k: k.replace(".weight",
                                                   ".default.weight"),
         by_safetensors)
    form("names of the base model", lambda k: k.replace(".transformer.", "."),
         by_safetensors)
    form("names of a wrapped model", lambda k: "module." + k, by_safetensors)


def check_two():
    """Two adapters in turn are one merge after the other; order counts only in
    the last rounding."""
    d = lambda *path: os.path.join(top, "two", *path)
    os.mkdir(d())
    model = make("neox", {})
    model.save_pretrained(d("base"))
    adapt(model, dict(LINEAR), d("one"))
    adapt(transformers.AutoModelForCausalLM.from_pretrained(d("base")),
          dict(r=2, target_modules=["query_key_value"]), d("other"))
    reshape(d("base"), d("out"), "hf", "--merge-adapter", d("one"), d("other"))
    loaded(d("base"), d("one")).merge_and_unload().save_pretrained(d("first"))
    units = apart(loaded(d("first"), d("other")).merge_and_unload(), d("out"))
    ok(units <= 2, f"two adapters in turn, {units:.2g} units apart")
    reshape(d("base"), d("step"), "hf", "--merge-adapter", d("one"))
    reshape(d("step"), d("steps"), "hf", "--merge-adapter", d("other"))
    ok(same(d("out"), d("steps")), "... the same bytes as one by one")


def check_gguf():
    d = lambda *path: os.path.join(top, "gguf", *path)
    os.mkdir(d())
    model = make("llama", {})
    model.save_pretrained(d("base"))
    adapt(model, dict(LINEAR), d("adapter"))
    reshape(d("base"), d("out"), "hf", "--merge-adapter", d("adapter"))
    run("gpt-reshape", "convert", d("base"), d("m.gguf"), "--quiet")
    reshape(d("m.gguf"), d("way"), "hf", "--merge-adapter", d("adapter"))
    ok(same(d("way"), d("out")), "a model of GGUF gives the same bytes")


with tempfile.TemporaryDirectory() as top:
    asked = sys.argv[2:]
    for table, compares in ((CASES, True), (TIED, False)):
        for name, (family, more, config) in table.items():
            if not asked or name in asked:
                try:
                    check(name, family, more, config, compares)
                except (RuntimeError, ValueError, KeyError) as e:
                    ok(False, name, e)
    for function in (check_resized, check_forms, check_two, check_gguf):
        if not asked or function.__name__ in asked:
            try:
                function()
            except (RuntimeError, ValueError, KeyError) as e:
                ok(False, function.__name__, e)
print(f"1..{count}")
sys.exit(failed > 0)
