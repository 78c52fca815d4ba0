"""Small models of every architecture, trained here on a page of text, in GGUF
files: llama.cpp writes the same greedy text as gpt-generate; packed matrices
are the bytes of gguf-py, unpacked ones its numbers; vocabularies of every kind
give llama.cpp the same ids. Prints TAP.
Usage: gguf_parity.py BUILD [CASE]... (from the repository's root).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import sentencepiece
import xllamacpp

BUILD = os.path.abspath(sys.argv[1])
count = failed = 0
TEXT = ("The quick brown fox jumps over the lazy dog, and the dog does not "
        "mind. It's 1611; there were 42 of them, weren't there? "
        "In the beginning was the word: na\u00efve caf\u00e9s, \u4e2d\u6587 "
        "and  two  spaces.\n")
PROMPTS = ["The quick brown", "In the beginning", "It's 1611;"]

ROPE = "--position-embedding-type rope "
LLAMA = (ROPE + "--normalization RMSNorm --norm-epsilon 1e-6 --swiglu "
         "--disable-bias-linear ")
GEMMA = (ROPE + "--normalization RMSNorm --norm-epsilon 1e-6 --geglu "
         "--disable-bias-linear --apply-layernorm-1p --scale-embedding ")
COHERE = (ROPE + "--rotary-interleaved --no-norm-bias --shared-norm --swiglu "
          "--disable-bias-linear ")
UNTIED = "--untie-embeddings-and-output-weights "
GQA = "--num-attention-heads 4 --num-query-groups 2 "
MHA = "--num-attention-heads 4 "
MOE = "--num-experts 4 --moe-router-topk 2 "
SIGMOID = (MOE + "--moe-ffn-hidden-size 32 "
           "--moe-shared-expert-intermediate-size 64 "
           "--moe-router-score-function sigmoid --moe-router-expert-bias ")
LATENT = (LLAMA + UNTIED + MHA + "--rotary-interleaved --kv-lora-rank 32 "
          "--qk-head-dim 16 --qk-pos-emb-head-dim 8 --moe-dense-layers 1 "
          "--q-lora-rank 24 ")
# name: options of gpt-train, architecture
CASES = {
    "gpt2": (MHA, "gpt2"),
    "gpt2 untied": (MHA + UNTIED, "gpt2"),
    "llama": (LLAMA + UNTIED + GQA, "llama"),
    "llama tied": (LLAMA + GQA + "--rotary-base 500000", "llama"),
    "llama of wide heads": (LLAMA + UNTIED + GQA + "--kv-channels 32",
                            "llama"),
    "llama of turned pairs": (LLAMA + UNTIED + GQA + "--rotary-interleaved",
                              "llama"),
    **{f"llama with biases{less}": (
        LLAMA.replace("--disable-bias-linear", less) + UNTIED + GQA, "llama")
       for less in ("", " --no-attention-bias", " --no-mlp-bias",
                    " --no-qkv-bias", " --no-mlp-bias --no-qkv-bias")},
    "llama3 scaling": (LLAMA + UNTIED + GQA +
                       "--rotary-scaling-type llama3 "
                       "--rotary-scaling-factor 4 "
                       "--rotary-original-positions 8192", "llama"),
    "linear scaling": (LLAMA + UNTIED + GQA +
                       "--rotary-scaling-type linear "
                       "--rotary-scaling-factor 3", "llama"),
    "yarn scaling": (LLAMA + UNTIED + GQA +
                     "--rotary-scaling-type yarn --rotary-scaling-factor 4 "
                     "--rotary-original-positions 32", "llama"),
    "deepseek2": (LATENT + SIGMOID + "--v-head-dim 20 "
                  "--moe-router-num-groups 2 --moe-router-group-topk 1 "
                  "--moe-router-topk-scaling-factor 2.5", "deepseek2"),
    "deepseek2 yarn": (LATENT + MOE + "--moe-ffn-hidden-size 32 "
                       "--moe-shared-expert-intermediate-size 32 "
                       "--v-head-dim 24 --moe-router-pre-softmax "
                       "--rotary-scaling-type yarn --rotary-scaling-factor 4 "
                       "--rotary-original-positions 32 "
                       "--rotary-attention-factor 1 "
                       "--query-pre-attn-scalar 16.5701", "deepseek2"),
    "qwen2": (LLAMA + UNTIED + GQA + "--add-qkv-bias", "qwen2"),
    "qwen3": (LLAMA + GQA + "--kv-channels 32 --qk-layernorm", "qwen3"),
    "phi3": (LLAMA + UNTIED + GQA, "phi3"),
    # llama.cpp's context is as long as texts of pretraining, and longer
    "longrope short": (LLAMA + UNTIED + GQA + "--rotary-percent 0.5 "
                    "--rotary-scaling-type longrope "
                    "--rotary-original-positions 128 "
                    "--rotary-short-factors 1,1.25,2,3.5 "
                    "--rotary-long-factors 1,7,9,31", "phi3"),
    "longrope long": (LLAMA + GQA + "--rotary-scaling-type longrope "
                   "--rotary-original-positions 2 "
                   "--rotary-short-factors 1,2,3,4,5,6,7,8 "
                   "--rotary-long-factors 1,1.25,2,3.5,9.1,12,17,19.99",
                   "phi3"),
    "gptneox": (ROPE + MHA + UNTIED + "--rotary-percent 0.25", "gptneox"),
    "gptneox side by side": (ROPE + MHA + UNTIED +
                             "--parallel-residual", "gptneox"),
    "falcon": (ROPE + MHA + "--num-query-groups 1 --disable-bias-linear "
               "--shared-norm",
               "falcon"),
    "starcoder2": (ROPE + GQA, "starcoder2"),
    "gemma": (GEMMA + GQA, "gemma"),
    "gemma2": (GEMMA + GQA + "--num-layers 4 --post-norm --window-size 9 "
               "--window-attn-skip-freq 2 --attn-logit-softcapping 20 "
               "--final-logit-softcapping 30", "gemma2"),
    "gemma3": (GEMMA + GQA + "--num-layers 7 --post-norm --qk-layernorm "
               "--window-size 9 --window-attn-skip-freq 6 --rotary-base 1000 "
               "--rotary-local-base 10000 --rotary-scaling-type linear "
               "--rotary-scaling-factor 3", "gemma3"),
    "olmo2": (LLAMA + UNTIED + GQA + "--no-pre-norm --qk-norm-whole", "olmo2"),
    "olmo3": (LLAMA + UNTIED + GQA + "--no-pre-norm --qk-norm-whole "
              "--num-layers 4 --window-size 9 --window-attn-skip-freq 4",
              "olmo2"),
    "granite": (LLAMA + GQA + "--embedding-multiplier 3 "
                "--residual-multiplier 0.4 --logit-multiplier 0.5 "
                "--query-pre-attn-scalar 25", "granite"),
    "smollm3": (LLAMA + GQA + "--num-layers 4 --no-rope-freq 4", "smollm3"),
    "arcee": (ROPE + GQA + UNTIED + "--normalization RMSNorm --squared-relu "
              "--disable-bias-linear", "arcee"),
    "olmo": (ROPE + MHA + UNTIED + "--swiglu --no-norm-weight "
             "--disable-bias-linear --clip-qkv 2", "olmo"),
    "exaone4": (LLAMA + UNTIED + GQA + "--no-pre-norm --qk-layernorm",
                "exaone4"),
    "hunyuan": (LLAMA + UNTIED + GQA + "--qk-norm-turned "
                "--rotary-scaling-type ntk_alpha --rotary-scaling-factor 50",
                "hunyuan-dense"),
    "glm4": (LLAMA + UNTIED + GQA + "--rotary-percent 0.5 "
             "--rotary-interleaved --post-norm --add-qkv-bias", "glm4"),
    "command-r": (COHERE + GQA + "--logit-multiplier 0.5", "command-r"),
    "cohere2": (COHERE + GQA + "--num-layers 4 --logit-multiplier 0.5 "
                "--window-size 9 --window-attn-skip-freq 4 --no-rope-freq 4",
                "cohere2"),
    "stablelm": (ROPE + GQA + UNTIED + "--rotary-percent 0.25 --swiglu "
                 "--disable-bias-linear --add-qkv-bias", "stablelm"),
    "stablelm with norms of heads": (
        ROPE + GQA + UNTIED + "--rotary-percent 0.25 --swiglu "
        "--disable-bias-linear --qk-norm-each", "stablelm"),
    "command-r of 64 layers": (
        COHERE + GQA + "--num-layers 64 --hidden-size 32 --logit-multiplier 4 "
        "--qk-norm-each --train-iters 40", "command-r"),
    "apertus": (ROPE + GQA + UNTIED + "--normalization RMSNorm --qk-layernorm "
                "--activation-function xielu --disable-bias-linear "
                "--rotary-scaling-type llama3 --rotary-scaling-factor 4 "
                "--rotary-original-positions 8192", "apertus"),
    "nemotron": (ROPE + GQA + UNTIED + "--rotary-percent 0.5 "
                 "--apply-layernorm-1p --squared-relu --disable-bias-linear",
                 "nemotron"),
    "phi2": (ROPE + MHA + UNTIED + "--rotary-percent 0.5 --shared-norm "
             "--output-bias", "phi2"),
    "mistral3": (LLAMA + UNTIED + GQA + "--rotary-scaling-type yarn "
                 "--rotary-scaling-factor 16 --rotary-original-positions 10 "
                 "--rotary-attention-factor 1 --rotary-query-growth 0.3",
                 "mistral3"),
    "mpt": (MHA + "--position-embedding-type alibi --no-norm-bias "
            "--disable-bias-linear --clip-qkv 3", "mpt"),
    "bloom": (MHA + "--position-embedding-type alibi --embedding-norm "
              "--ffn-hidden-size 256", "bloom"),
    "mixtral": (LLAMA + UNTIED + GQA + MOE, "llama"),
    "qwen2moe": (LLAMA + UNTIED + GQA + MOE + "--add-qkv-bias "
                 "--moe-ffn-hidden-size 64 --moe-router-pre-softmax "
                 "--moe-shared-expert-intermediate-size 80 "
                 "--moe-shared-expert-gate", "qwen2moe"),
    "qwen3moe": (LLAMA + UNTIED + GQA + MOE + "--kv-channels 32 "
                 "--qk-layernorm --moe-ffn-hidden-size 64", "qwen3moe"),
    "olmoe": (LLAMA + UNTIED + MHA + MOE + "--qk-norm-whole "
              "--moe-router-pre-softmax", "olmoe"),
    "granitemoe": (LLAMA + GQA + MOE + "--embedding-multiplier 3 "
                   "--residual-multiplier 0.4 --logit-multiplier 0.5 "
                   "--query-pre-attn-scalar 25 "
                   "--moe-shared-expert-intermediate-size 80", "granitemoe"),
    "glm4moe": (LLAMA + UNTIED + GQA + SIGMOID + "--rotary-percent 0.5 "
                "--add-qkv-bias --moe-dense-layers 1 "
                "--moe-router-topk-scaling-factor 2.5", "glm4moe"),
    "glm4moe with norms of heads": (
        LLAMA + GQA + SIGMOID + "--rotary-percent 0.5 --qk-layernorm "
        "--moe-router-pre-softmax", "glm4moe"),
    "dots1": (LLAMA + UNTIED + MHA + SIGMOID + "--kv-channels 32 "
              "--qk-layernorm --moe-dense-layers 1 "
              "--moe-router-topk-scaling-factor 2.5", "dots1"),
    "ernie4_5-moe": (LLAMA + GQA + MOE + "--rotary-interleaved "
                     "--moe-ffn-hidden-size 32 --moe-router-expert-bias "
                     "--moe-dense-layers 1 "
                     "--moe-shared-expert-intermediate-size 64",
                     "ernie4_5-moe"),
    "hunyuan-moe": (LLAMA + UNTIED + GQA + MOE + "--qk-norm-turned "
                    "--rotary-scaling-type ntk_alpha "
                    "--rotary-scaling-factor 50 "
                    "--moe-shared-expert-intermediate-size 96",
                    "hunyuan-moe"),
    "minimax-m2": (LLAMA + UNTIED + GQA + MOE + "--rotary-percent 0.5 "
                   "--qk-norm-whole --moe-router-score-function sigmoid "
                   "--moe-router-expert-bias", "minimax-m2"),
    "bailingmoe": (LLAMA + UNTIED + GQA + MOE + "--kv-channels 32 "
                   "--add-qkv-bias "
                   "--moe-ffn-hidden-size 32 "
                   "--moe-shared-expert-intermediate-size 64", "bailingmoe"),
    "deepseek": (LLAMA + UNTIED + GQA + MOE + "--moe-ffn-hidden-size 32 "
                 "--moe-router-pre-softmax --moe-dense-layers 1 "
                 "--moe-shared-expert-intermediate-size 64", "deepseek"),
    "chatglm": (LLAMA + UNTIED + GQA + "--rotary-percent 0.5 "
                "--rotary-interleaved --add-qkv-bias", "chatglm"),
}


def test(ok, what):
    global count, failed
    count += 1
    failed += not ok
    print(f"{'ok' if ok else 'not ok'} {count} - {what}", flush=True)
    return ok


def run(*words, **kw):
    r = subprocess.run([os.path.join(BUILD, words[0]), *words[1:]],
                       capture_output=True, text=True, **kw)
    if r.returncode:
        print(r.stderr, file=sys.stderr)
    return r


def make(name, options, layers=2, steps=150):
    """Trains a model and keeps its checkpoint in directory NAME."""
    r = run("gpt-train", "--data-path", "t_text_document", "--num-layers",
            str(layers), "--hidden-size", "64", "--seq-length", "64",
            "--max-position-embeddings", "128", "--ffn-hidden-size", "96",
            "--vocab-file", "t-vocab.json", "--merge-file", "t-merges.txt",
            "--train-iters", str(steps), "--global-batch-size", "4",
            "--micro-batch-size", "4", "--lr", "3e-3", "--split", "100,0,0",
            "--hidden-dropout", "0", "--attention-dropout", "0", "--save",
            name, "-q", *options.split())
    return r.returncode == 0


def llama_cpp(path):
    """A server of llama.cpp for the file."""
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx = 128
    p.n_parallel = 1
    p.cpuparams.n_threads = 1
    p.warmup = False
    return xllamacpp.Server(p)


def complete(server, prompt, n):
    return server.handle_completions({
        "prompt": prompt, "n_predict": n, "temperature": 0.0,
        "cache_prompt": False})


def greedy(path, prompt, n):
    r = run("gpt-generate", "--load", path, "--prompt", prompt, "--tokens",
            str(n), "--greedy", "-q")
    return r.stdout.rstrip() if r.returncode == 0 else None


def copy_file(source, to, change):
    """Writes the file again; change(name, data) gives a tensor's new bytes
    and type."""
    w = gguf.GGUFWriter(to, source.fields["general.architecture"].contents())
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or \
                field.name == "general.architecture":
            continue
        kind = field.types[0]
        w.add_key_value(field.name, field.contents(), kind,
                        field.types[-1] if kind == gguf.GGUFValueType.ARRAY
                        else None)
    for t in source.tensors:
        data, kind = change(t)
        w.add_tensor(t.name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


SEES = {"qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3moe"}


def compare_pictures(arch, of):
    """The text part of a model that reads pictures, too: its files have another
    architecture's keys, and which positions of three a pair turns by."""
    if not test(make(arch, CASES[of][0]), f"{arch}: a model"):
        return
    run("gpt-reshape", "--load-path", arch, "--save-path", "part.gguf",
        "--force")
    source = gguf.GGUFReader("part.gguf")
    w = gguf.GGUFWriter(arch + ".gguf", arch)
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or \
                field.name == "general.architecture":
            continue
        name = field.name
        if name.startswith(of + "."):
            name = arch + name[len(of):]
        kind = field.types[0]
        w.add_key_value(name, field.contents(), kind, field.types[-1]
                        if kind == gguf.GGUFValueType.ARRAY else None)
    w.add_rope_dimension_sections([4, 2, 2, 0])
    if arch != "qwen2vl":
        w.add_num_deepstack_layers(0)
    for t in source.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    server = llama_cpp(arch + ".gguf")
    for prompt in PROMPTS:
        want = greedy(arch, prompt, 24)
        got = complete(server, prompt, 24)["choices"][0]["text"].rstrip()
        test(got == want == greedy(arch + ".gguf", prompt, 24),
             f"{arch}: the same text of {prompt!r}")
    del server


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


# where the bytes of a block have halves
SCALES = {"q8_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,),
          "q5_1": (0, 2), "q4_K": (0, 2), "q5_K": (0, 2), "q6_K": (208,),
          "q2_K": (80, 82), "q3_K": (108,), "iq4_nl": (0,), "iq4_xs": (0,),
          "tq1_0": (52,), "tq2_0": (64,), "mxfp4": (), "iq1_s": (0,),
          "iq1_m": (), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,),
          "iq3_xxs": (0,), "iq3_s": (0,)}


def compare_packing():
    """What is packed here is what gguf-py packs, and what gguf-py or anyone
    packs is unpacked here to its numbers."""
    if not test(make("wide", LLAMA + UNTIED + MHA + "--hidden-size 256 "
                     "--ffn-hidden-size 256", 1, 2), "packing: a model"):
        return
    run("gpt-reshape", "--load-path", "wide", "--save-path", "wide.gguf")
    plain = tensors("wide.gguf")
    for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1"):
        kind = gguf.GGMLQuantizationType[name.upper()]
        r = run("gpt-reshape", "--load-path", "wide", "--save-path",
                name + ".gguf", "--target-params-dtype", name, "--verify")
        test(r.returncode == 0 and f"after rounding to {name}" in r.stderr,
             f"packing: {name} is verified")
        packed = tensors(name + ".gguf")
        same = set(packed) == set(plain)
        for key, t in packed.items():
            want = plain[key].data
            if len(plain[key].shape) == 2:
                same = same and t.tensor_type == kind
                want = gguf.quants.quantize(want, kind)
            same = same and np.array_equal(np.asarray(t.data), want)
        test(same, f"packing: {name} is gguf-py's, byte for byte")
    rng = np.random.default_rng(1)
    for name in SCALES:
        kind = gguf.GGMLQuantizationType[name.upper()]
        block, size = gguf.GGML_QUANT_SIZES[kind]

        def pack(t):
            if len(t.shape) < 2:
                return t.data, t.tensor_type
            rows, columns = t.data.shape
            data = rng.integers(0, 256, (rows, columns // block, size),
                                dtype=np.uint8)
            # scales that are numbers, of both signs, and some zero
            for at in SCALES[name]:
                scale = rng.normal(0, .01, (rows, columns // block, 1))
                scale[:, 0] *= rng.integers(0, 2, (rows, 1))
                data[..., at:at + 2] = scale.astype(np.float16).view(np.uint8)
            if name == "mxfp4":
                data[..., 0] = rng.integers(100, 130, data.shape[:2])
            if name == "iq1_m":  # the top of a scale whose parts are four
                data[..., 55] = data[..., 55] & 15 | 0x10
            return data.reshape(rows, -1), kind

        copy_file(gguf.GGUFReader("wide.gguf"), "random.gguf", pack)
        r = run("gpt-reshape", "--load-path", "random.gguf", "--save-path",
                "unpacked.gguf", "--force")
        same = r.returncode == 0
        got = tensors("unpacked.gguf") if same else {}
        for t in tensors("random.gguf").values() if same else ():
            want = gguf.quants.dequantize(np.asarray(t.data), t.tensor_type)
            same = same and np.array_equal(np.asarray(got[t.name].data), want)
        test(same, f"packing: {name} is unpacked to gguf-py's numbers")
        # ranks hold parts of rows and of columns, and heads of Llama in
        # another order
        for path in ("random.gguf", "unpacked.gguf"):
            r = run("gpt-reshape", "--load-path", path, "--save-path",
                    path + ".two", "--target-tensor-model-parallel-size", "2",
                    "--verify", "--force")
            same = same and r.returncode == 0
        r = run("gpt-reshape", "diff", "random.gguf.two", "unpacked.gguf.two")
        test(same and r.returncode == 0, f"packing: {name} is cut for ranks")


TEXTS = ["hello world", "Hello,  World!\n\n  done \n ", "it's we'll 12345 6.78",
         "caf\u00e9 \u4e2d\u6587\u3001 abc", "    if x:\n        return x",
         "HTTPServer/1.1\r\n\r\n// x\n", "the other the_ the", "x"]


def ids_here(words, text):
    """Ids of a text, by gpt-preprocess."""
    with open("x.jsonl", "w") as f:
        f.write(json.dumps({"text": text}) + "\n")
    r = run("gpt-preprocess", "--input", "x.jsonl", "--output-prefix", "x",
            "--force", "-q", *words)
    if r.returncode:
        return None
    r = run("gpt-dataset", "cat", "x_text_document")
    return [int(i) for i in r.stdout.split()] if r.returncode == 0 else None


def ids_there(server, text):
    request = urllib.request.Request(
        server.listening_address + "/tokenize",
        json.dumps({"content": text, "add_special": True}).encode(),
        {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["tokens"]


def compare_vocabularies(golden):
    """A vocabulary that lies beside a model goes into the file: llama.cpp has
    the same ids of a text, and so has the file as a tokenizer here."""
    run("gpt-preprocess", "--input", "t.jsonl", "--output-prefix", "b",
        "--tokenizer-type", "ByteTokenizer", "-q")
    for name in ("bpe.model", "unigram.model", "llama3.json", "qwen2.json",
                 "starcoder.json", "deepseek3.json", "llama2.json",
                 "gemma.json"):
        path = os.path.join(golden, name)
        if name in ("llama2.json", "gemma.json"):
            path = os.path.abspath("from-" + name)
            converted(os.path.join(golden, "bpe.model"),
                      name == "llama2.json", path)
        model = name.endswith(".model")
        kind = ["--tokenizer-type", "SentencePieceTokenizer" if model else
                "HuggingFaceTokenizer", "--tokenizer-model"]
        r = run("gpt-train", "--data-path", "b_text_document", "--num-layers",
                "1", "--hidden-size", "32", "--num-attention-heads", "2",
                "--seq-length", "32", "--vocab-size", "700", "--train-iters",
                "1", "--split", "100,0,0", "--lr", "1e-3", "--save",
                "n" + name, "-q")
        r = run("gpt-reshape", "--load-path", "n" + name, "--save-path",
                "h" + name, "--to", "hf")
        if not model: # without tokens of conditions, which no key can say
            with open(path) as f:
                plain = json.load(f)
            plain["added_tokens"] = [
                t for t in plain["added_tokens"]
                if not (t["single_word"] or t["lstrip"] or t["rstrip"] or
                        t["normalized"])]
            with open(name, "w") as f:
                json.dump(plain, f)
            path = os.path.abspath(name)
        shutil.copy(path, os.path.join("h" + name, "tokenizer.model" if model
                                       else "tokenizer.json"))
        out = name + ".gguf"
        r = run("gpt-reshape", "--load-path", "h" + name, "--save-path", out)
        if not test(r.returncode == 0, f"{name}: goes into a file"):
            continue
        # what goes out as pieces with scores comes back as a model of those
        pieces = kind
        if name in ("llama2.json", "gemma.json"):
            pieces = ["--tokenizer-type", "SentencePieceTokenizer",
                      "--tokenizer-model"]
        server = llama_cpp(out)
        same = True
        for text in TEXTS + HARD * name.startswith(("llama2", "gemma")):
            want = ids_here([*kind, path], text)
            own = ids_here([*pieces, out], text)
            got = ids_there(server, text)
            if not want == got == own:
                same = False
                print(f"# {text!r}: {want}\n# llama.cpp: {got}\n# here: {own}")
        test(same, f"{name}: the same ids of texts")
        del server


def converted(model, prepend, to):
    """A tokenizer.json of a SentencePiece model of pairs, as transformers makes
    it for Llama 2 (with a space in front of a text) and Gemma."""
    p = sentencepiece.SentencePieceProcessor(model_file=model)
    n = p.vocab_size()
    vocab = {p.id_to_piece(i): i for i in range(n)}
    merges = []
    for piece, i in vocab.items():
        if p.is_control(i) or p.is_unknown(i) or p.is_byte(i):
            continue
        cuts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        cuts = [c for c in cuts if c[0] in vocab and c[1] in vocab]
        merges += [(*c, p.get_score(i)) for c in
                   sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]]))]
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    space = [{"type": "Replace", "pattern": {"String": " "},
              "content": "\u2581"}]
    if prepend:
        space.insert(0, {"type": "Prepend", "prepend": "\u2581"})
    decoder = [{"type": "Replace", "pattern": {"String": "\u2581"},
                "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if prepend:
        decoder.append({"type": "Strip", "content": " ", "start": 1,
                        "stop": 0})
    added = [i for i in range(n) if p.is_control(i) or p.is_unknown(i)]
    with open(to, "w") as f:
        json.dump(dict(
            version="1.0", truncation=None, padding=None,
            added_tokens=[dict(id=i, content=p.id_to_piece(i), special=True,
                               single_word=False, lstrip=False, rstrip=False,
                               normalized=False) for i in added],
            normalizer=dict(type="Sequence", normalizers=space),
            pre_tokenizer=None, post_processor=None,
            decoder=dict(type="Sequence", decoders=decoder),
            model=dict(type="BPE", dropout=None, unk_token="<unk>",
                       continuing_subword_prefix=None,
                       end_of_word_suffix=None, fuse_unk=True,
                       byte_fallback=True, ignore_merges=False, vocab=vocab,
                       merges=[" ".join(m[:2]) for m in merges])), f)


HARD = ["", " ", "  ", " a", "a ", "   the   other  the", "\n\n\tthe\r\n",
        "the\u2581end", "\u2581", "\U0001f600\U0001f680 \u200d", "\x01\x7f",
        "caf\u00e9 cafe\u0301 \ufb01", "<0x41>the",
        "hello hello world world" * 9, "12345 6.78 \u0663", "t" * 70]


def make_phi3(llama, to):
    """The directory of a Llama model as Phi-3: the same function with queries,
    keys and values, and gate and up, in one tensor each."""
    os.makedirs(to)
    with open(os.path.join(llama, "model.safetensors"), "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        head = json.loads(f.read(n))
        data = f.read()
    head.pop("__metadata__")
    w = {k: np.frombuffer(data[slice(*h["data_offsets"])], np.float32)
         .reshape(h["shape"]) for k, h in head.items()}
    for i in range(2):
        at = f"model.layers.{i}."
        qkv = [w.pop(f"{at}self_attn.{x}_proj.weight") for x in "qkv"]
        w[at + "self_attn.qkv_proj.weight"] = np.concatenate(qkv)
        fc = [w.pop(f"{at}mlp.{x}_proj.weight") for x in ("gate", "up")]
        w[at + "mlp.gate_up_proj.weight"] = np.concatenate(fc)
    head, at = {}, 0
    for k in sorted(w):
        head[k] = dict(dtype="F32", shape=list(w[k].shape),
                       data_offsets=[at, at + w[k].nbytes])
        at += w[k].nbytes
    text = json.dumps(head).encode()
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for k in sorted(w):
            f.write(w[k].tobytes())
    with open(os.path.join(llama, "config.json")) as f:
        config = json.load(f)
    for key in ("architectures", "head_dim"):
        config.pop(key, None)
    config["model_type"] = "phi3"
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(os.path.join(llama, name), to)


def main(golden):
    with open("t.jsonl", "w") as f:
        for _ in range(40):
            f.write(json.dumps({"text": TEXT}) + "\n")
    run("gpt-vocab", "--input", "t.jsonl", "--output-prefix", "t",
        "--vocab-size", "350", "-q")
    run("gpt-preprocess", "--input", "t.jsonl", "--output-prefix", "t",
        "--vocab-file", "t-vocab.json", "--merge-file", "t-merges.txt",
        "--append-eod", "-q")
    for name, (options, arch) in CASES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        at = name.replace(" ", "_")
        if not test(make(at, options), f"{name}: a model"):
            continue
        if arch == "phi3" and "longrope" not in options:
            run("gpt-reshape", "--load-path", at, "--save-path", at + "_hf",
                "--to", "hf")
            at = "fused"
            make_phi3("phi3_hf", at)
        r = run("gpt-reshape", "--load-path", at, "--save-path",
                at + ".gguf", "--verify")
        if not test(r.returncode == 0, f"{name}: goes out"):
            continue
        g = gguf.GGUFReader(at + ".gguf")
        test(g.fields["general.architecture"].contents() == arch,
             f"{name}: as {arch}")
        server = llama_cpp(at + ".gguf")
        same = True
        for prompt in PROMPTS:
            want = greedy(at, prompt, 24)
            got = complete(server, prompt, 24)["choices"][0]["text"].rstrip()
            if got != want:
                same = False
                print(f"# {prompt!r}: {want!r}\n# llama.cpp: {got!r}")
            if greedy(at + ".gguf", prompt, 24) != want:
                same = False
                print(f"# {prompt!r}: another text from the GGUF file")
        test(same, f"{name}: llama.cpp writes the same text")
        del server
        r = run("gpt-reshape", "--load-path", at + ".gguf", "--save-path",
                at + "_back", "--true-vocab-size", "350")
        test(r.returncode == 0, f"{name}: comes back")
    for arch, of in SEES.items():
        if not sys.argv[2:] or arch in sys.argv[2:]:
            compare_pictures(arch, of)
    if not sys.argv[2:] or "packing" in sys.argv[2:]:
        compare_packing()
    if not sys.argv[2:] or "vocabularies" in sys.argv[2:]:
        compare_vocabularies(golden)


with tempfile.TemporaryDirectory() as d:
    families = os.path.abspath("tests/golden/families")
    os.chdir(d)
    main(families)
print(f"1..{count}")
sys.exit(failed > 0)
