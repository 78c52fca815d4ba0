"""Compares gpt-generate with Hugging Face transformers: gpt-reshape converts
tiny GPT-2 models that transformers made, then logits at every position and
greedy texts are compared, also for a checkpoint of tensor and pipeline ranks.

    generate_parity.py BUILD_DIRECTORY
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

BUILD = os.path.abspath(sys.argv[1])
EOD = 256  # ByteTokenizer: a byte is its id, then the end of a document
number = 0
failed = 0


def check(passed, what):
    global number, failed
    number += 1
    failed += not passed
    print(f"{'ok' if passed else 'not ok'} {number} - {what}", flush=True)
    return passed


def finish():
    print(f"1..{number}")
    return failed != 0


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, **options)
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode(errors="replace"))
        raise SystemExit(f"{command[0]}: exit status {done.returncode}")
    return done.stdout


def model_of(seed, positions=96, **sizes):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=257, n_positions=positions,
                        initializer_range=0.15,
                        bos_token_id=EOD, eos_token_id=EOD, resid_pdrop=0,
                        embd_pdrop=0, attn_pdrop=0, **sizes)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # biases and norms that matter
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)
    return model


def texts(rng):
    return [rng.integers(0, 257, n).tolist() for n in (1, 2, 17, 96)]


def compare_logits(model, native, what):
    rows = texts(np.random.default_rng(5))
    lines = "".join(" ".join(map(str, r)) + "\n" for r in rows)
    raw = run(f"{BUILD}/tests/parity/logits", native, input=lines.encode())
    got = np.array(raw.split(), np.float64).reshape(-1, 257)
    with torch.no_grad():
        want = np.concatenate([model.double()(torch.tensor([r])).logits[0]
                               .numpy() for r in rows])
    model.float()
    off = np.abs(got - want).max() / np.abs(want).max()
    check(got.shape == want.shape and off < 1e-4,
          f"{what}: logits of {len(want)} positions, off by {off:.1e}")


def greedy(model, prompt, tokens):
    ids = list(prompt) or [EOD]
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), max_new_tokens=tokens,
                             do_sample=False, pad_token_id=EOD)[0].tolist()
    new = out[len(ids):]
    if EOD in new:
        new = new[:new.index(EOD)]
    return bytes(new).decode(errors="replace")


def compare_texts(model, native, what):
    prompts = ["", "The quick brown fox", "a", "\u00e9\u20ac"]
    lines = "".join('{"prompt": "%s"}\n' % p for p in prompts)
    want = [greedy(model, p.encode(), 40) for p in prompts]
    for batch in ("1", "4"):
        out = run(f"{BUILD}/gpt-generate", "--load", native, "--jsonl",
                  "--tokenizer-type", "ByteTokenizer", "--greedy", "--tokens",
                  "40", "--batch-size", batch, input=lines.encode())
        got = [json.loads(line)["text"] for line in out.splitlines()]
        check(got == want, f"{what}: greedy texts, {batch} at once")
        if got != want:
            print(f"# got  {got}\n# want {want}")


def penalised(model, prompt, tokens, penalty):
    ids = torch.tensor([list(prompt.encode())])
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=tokens, do_sample=False,
                             pad_token_id=EOD, eos_token_id=None,
                             repetition_penalty=penalty)[0].tolist()
    return out[ids.shape[1]:]


def compare_penalties(model, native, what):
    prompt = "The quick brown fox"
    raw = run(f"{BUILD}/gpt-generate", "--load", native, "--jsonl", "--prompt",
              prompt, "--tokenizer-type", "ByteTokenizer", "--greedy",
              "--tokens", "40", "--repetition-penalty", "1.7", "--ignore-eod",
              "--logprobs", "3", stdin=subprocess.DEVNULL)
    got = json.loads(raw)["logprobs"]
    ids = [t["id"] for t in got]
    check(ids == penalised(model, prompt, 40, 1.7),
          f"{what}: greedy with a repetition penalty")
    with torch.no_grad():
        all_ids = torch.tensor([list(prompt.encode()) + ids])
        want = model(all_ids).logits[0, len(prompt) - 1:-1].double()
        want = want.log_softmax(-1)
    off = max(abs(t["logprob"] - want[i, t["id"]].item())
              for i, t in enumerate(got))
    check(off < 1e-4, f"{what}: log-probabilities, off by {off:.1e}")
    top = [[u["id"] for u in t["top"]] for t in got]
    check(top == want.topk(3).indices.tolist(), f"{what}: the most probable")


def compare_beams(model, native, what):
    prompts = ["The quick brown fox", "a", "xyzzy"]
    lines = "".join('{"prompt": "%s"}\n' % p for p in prompts)
    for beams, best, length, penalty, early in (
            (3, 3, 12, 1.0, False), (4, 2, 20, 1.5, False),
            (4, 4, 15, 0.0, True), (5, 5, 10, -1.0, "never"),
            (4, 4, 15, 2.0, "never"), (8, 8, 25, 0.6, True)):
        want = []
        ends = [EOD, 10, 101]
        for p in prompts:
            ids = torch.tensor([list(p.encode())])
            with torch.no_grad():
                out = model.generate(
                    ids, max_new_tokens=length, num_beams=beams,
                    num_return_sequences=best, do_sample=False,
                    length_penalty=penalty, early_stopping=early,
                    pad_token_id=EOD, eos_token_id=ends, output_scores=True,
                    return_dict_in_generate=True)
            for row, score in zip(out.sequences.tolist(),
                                  out.sequences_scores.tolist()):
                row = row[ids.shape[1]:]
                at = [i for i, t in enumerate(row) if t in ends]
                row = row[:at[0]] if at else row
                want.append((bytes(row).decode(errors="replace"), score))
        for batch in ("1", "16"):
            raw = run(f"{BUILD}/gpt-generate", "--load", native, "--jsonl",
                      "--num-beams", str(beams), "--num-samples", str(best),
                      "--tokens", str(length), "--length-penalty",
                      str(penalty), "--early-stopping", str(early).lower(),
                      "--batch-size", batch, "--tokenizer-type",
                      "ByteTokenizer", input=lines.encode())
            got = [json.loads(line) for line in raw.splitlines()]
            same = [g["text"] for g in got] == [w[0] for w in want] and all(
                abs(g["score"] - w[1]) < 1e-4 * max(1, abs(w[1]))
                for g, w in zip(got, want))
            if not check(same, f"{what}: {beams} beams, penalty {penalty}, "
                         f"early stopping {early}, batch size {batch}"):
                for g, w in zip(got, want):
                    print(f"# got {g['text']!r} {g['score']} want {w}")


def main():
    torch.set_num_threads(1)
    shapes = {
        "plain": dict(n_layer=2, n_embd=32, n_head=4),
        "another feed-forward": dict(n_layer=4, n_embd=48, n_head=6,
                                     n_inner=112),
        "one head": dict(n_layer=3, n_embd=20, n_head=1),
    }
    with tempfile.TemporaryDirectory() as top:
        for i, (what, sizes) in enumerate(shapes.items()):
            model = model_of(i, **sizes)
            hf, native = f"{top}/{i}-hf", f"{top}/{i}"
            model.save_pretrained(hf, safe_serialization=True)
            run(f"{BUILD}/gpt-reshape", "--load-path", hf, "--save-path",
                native)
            compare_logits(model, native, what)
            compare_texts(model, native, what)
            compare_penalties(model, native, what)
            model.generation_config.eos_token_id = [EOD, 10, 101]
            model.save_pretrained(f"{hf}-ends", safe_serialization=True)
            compare_beams(model, f"{hf}-ends", what)
            model.generation_config.eos_token_id = EOD
            if sizes["n_head"] > 1:
                cut = f"{native}-tp2pp2"
                run(f"{BUILD}/gpt-reshape", "--load-path", native,
                    "--save-path", cut,
                    "--target-tensor-model-parallel-size", "2",
                    "--target-pipeline-model-parallel-size", "2")
                compare_logits(model, cut, what + ", TP 2 PP 2")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
