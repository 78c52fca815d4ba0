"""Compares gpt-generate --score and --perplexity with a slow reference: logits
of a tiny model of transformers in double, one window at a time, and each
convention's windows and figures from its own program's rule.

    scores_parity.py BUILD_DIRECTORY
"""
import json
import math
import re
import subprocess
import sys
import tempfile

import torch
from generate_parity import BUILD, EOD, check, finish, model_of, run

TEXT = (' = Robert Bo = \n\n Robert @-@ Bo ( born 1978 ) , " an actor " , had 1 @,@ '
        "5 roles in ' 90s and ' 80s . It 's said : [ sic ] of N . \n = = Career = = \n"
        "He plays { a } role ; or two ? \u00e9t\u00e9 90 \u00b0 C ! ' so ' or ' 70 \n")


def detokenize(s):
    """The rules of the harness's wikitext task, as a list."""
    s = s.replace("s '", "s'")
    s = re.sub(r"/' [0-9]/", r"/'[0-9]/", s)
    for a, b in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (" : ", ": "),
                 (" ; ", "; "), (" . ", ". "), (" ! ", "! "), (" ? ", "? "),
                 (" , ", ", ")):
        s = s.replace(a, b)
    for a, b in ((r"\(", r"\)"), (r"\[", r"\]"), ("{", "}"), ('"', '"'),
                 ("'", "'")):
        inner = "[^%s]*?" % b
        s = re.sub(r"%s\s*(%s)\s*%s" % (a, inner, b),
                   lambda m, a=a, b=b: a[-1] + m.group(1) + b[-1], s)
    for a, b in (("= = = =", "===="), ("= = =", "==="), ("= =", "=="),
                 (" " + chr(176) + " ", chr(176)), (" \n", "\n"),
                 ("\n ", "\n"), (" N ", " 1 "), (" 's", "'s")):
        s = s.replace(a, b)
    return s


def logprobs(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def nll(model, ids, targets):
    """The last `targets` tokens of ids, each after all before it."""
    rows = logprobs(model, ids[:-1])
    at = range(len(ids) - targets, len(ids))
    return -sum(rows[i - 1, ids[i]].item() for i in at)


def megatron(model, ids, raw, length, stride):
    total = 0
    targets = len(ids) - 1
    windows = max(math.ceil((targets - length) / stride), 0) + 1
    for i in range(windows):
        window = ids[i * stride:i * stride + length + 1]
        mask = [1] * (len(window) - 1) + [0] * (length + 1 - len(window))
        if i > 0 and stride != length:
            mask[:-stride] = [0] * (length - stride)
        rows = logprobs(model, window[:-1])
        total -= sum(rows[j, window[j + 1]].item()
                     for j in range(len(window) - 1) if mask[j])
    words = len(raw.strip().split(" "))
    loss = total / targets
    return {"scored": targets, "loss": loss,
            "perplexity": math.exp(min(20, loss)), "words": words,
            "adjusted_perplexity":
                math.exp(min(20, loss * targets / (words - 1)))}


def lm_eval(model, ids, raw, length):
    total = done = 0
    first = min(length, len(ids))
    total += nll(model, [EOD] + ids[:first], first)
    done = first
    while done < len(ids):
        n = min(len(ids) - done, length)
        end = done + n
        total += nll(model, ids[end - length - 1:end], n)
        done = end
    words, size = len(re.split(r"\s+", raw)), len(raw.encode())
    return {"scored": len(ids), "loss": total / len(ids),
            "words": words, "bytes": size,
            "word_perplexity": math.exp(total / words),
            "byte_perplexity": math.exp(total / size),
            "bits_per_byte": total / size / math.log(2)}


def llama_cpp(model, ids, raw, length, bos):
    total = count = 0
    for c in range(len(ids) // length):
        window = ids[c * length:(c + 1) * length]
        if bos:
            window[0] = EOD
        rows = logprobs(model, window)
        for j in range(length // 2, length - 1):
            total -= rows[j, window[j + 1]].item()
            count += 1
    return {"scored": count, "loss": total / count,
            "perplexity": math.exp(total / count)}


def training(model, ids, raw, length):
    total = count = 0
    for at in range(0, len(ids) - length, length):
        total += nll(model, ids[at:at + length + 1], length)
        count += length
    return {"scored": count, "loss": total / count}


def measure(path, *options, text):
    out = run(f"{BUILD}/gpt-generate", "--load", path, "--tokenizer-type",
              "ByteTokenizer", *options, input=text.encode())
    return json.loads(out)


def compare(model, path, what, want, text, *options):
    got = measure(path, *options, text=text)
    off = max(abs(got[k] - want[k]) / abs(want[k]) for k in want)
    if not check(off < 1e-5, f"{what}, off by {off:.1e}"):
        print(f"# got {got}\n# want {want}")


def compare_perplexities(model, path):
    raw = TEXT * 3
    plain = list(raw.encode())
    cut = list(detokenize(raw).encode())
    for length, stride in ((96, 32), (40, 7), (32, 32), (96, 96)):
        compare(model, path, f"Megatron's, window {length}, stride {stride}",
                megatron(model, cut, raw, length, stride), raw,
                "--perplexity", "megatron", "--window", str(length),
                "--overlapping-eval", str(stride), "--detokenize", "wikitext")
    for length in (96, 31):
        compare(model, path, f"lm-eval's, window {length}",
                lm_eval(model, cut, raw, length), raw, "--perplexity",
                "lm-eval", "--window", str(length), "--detokenize", "wikitext")
        compare(model, path, f"training's, window {length}",
                training(model, plain, raw, length), raw, "--perplexity",
                "training", "--window", str(length))
    short = raw[:20]
    compare(model, path, "lm-eval's of less than a window",
            lm_eval(model, list(short.encode()), short, 96), short,
            "--perplexity", "lm-eval")
    compare(model, path, "Megatron's of less than a window",
            megatron(model, list(short.encode()), short, 96, 32), short,
            "--perplexity", "megatron")
    for bos in (False, True):
        compare(model, path, f"llama.cpp's, BOS {bos}",
                llama_cpp(model, plain, raw, 64, bos), raw, "--perplexity",
                "llama.cpp", "--window", "64", *(["--add-bos"] * bos))


def compare_scores(model, path):
    pairs = [("The cat", " sat"), ("The cat", " ran away"), ("", "start"),
             ("space  ", "after"), ("a" * 60, "b" * 36), ("x", "\u00e9"),
             ("The cat", " sat")]
    lines = "".join(json.dumps({"context": c, "continuation": k, "id": i}) + "\n"
                    for i, (c, k) in enumerate(pairs))
    out = run(f"{BUILD}/gpt-generate", "--load", path, "--score", "--logprobs",
              "2", "--return-logits", "--tokenizer-type", "ByteTokenizer",
              input=lines.encode()).decode().splitlines()
    for (context, continuation), line in zip(pairs, out):
        got = json.loads(line)
        n = len(context) - len(context.rstrip())
        context, continuation = (context[:len(context) - n],
                                 " " * n + continuation)
        ids = list(context.encode()) or [EOD]
        more = list(continuation.encode())
        rows = logprobs(model, (ids + more)[:-1])[len(ids) - 1:]
        want = sum(rows[i, t].item() for i, t in enumerate(more))
        same = (abs(got["logprob"] - want) < 1e-4 * max(1, abs(want))
                and got["greedy"] == (rows.argmax(-1).tolist() == more)
                and got["tokens"] == len(more)
                and [t["id"] for t in got["logprobs"]] == more
                and [[u["id"] for u in t["top"]] for t in got["logprobs"]]
                == rows.topk(2).indices.tolist()
                and torch.allclose(torch.tensor(got["logits"]).double()
                                   .log_softmax(-1), rows, atol=1e-4))
        check(same, f"the score of {continuation!r} after {context[:9]!r}")
    check(out[0].replace('"id":0', '') == out[6].replace('"id":6', ''),
          "the same pair has the same score, to the bit")
    greedy = json.loads(run(
        f"{BUILD}/gpt-generate", "--load", path, "--greedy", "--jsonl", "-p",
        "The cat", "--tokenizer-type", "ByteTokenizer", "--tokens", "9",
        "--logprobs", "0", "--ignore-eod", stdin=subprocess.DEVNULL))
    text = "The cat" + greedy["text"]
    if "\ufffd" not in text:
        line = json.dumps({"context": "The cat", "continuation": greedy["text"]})
        got = json.loads(run(f"{BUILD}/gpt-generate", "--load", path,
                             "--score", "--tokenizer-type", "ByteTokenizer",
                             input=line.encode()))
        total = sum(t["logprob"] for t in greedy["logprobs"])
        check(got["greedy"] and abs(got["logprob"] - total) < 1e-4,
              "a greedy text is greedy, and its score is the sum")


def main():
    torch.set_num_threads(1)
    model = model_of(3, n_layer=2, n_embd=32, n_head=4).double()
    with tempfile.TemporaryDirectory() as top:
        path = f"{top}/hf"
        model.float().save_pretrained(path, safe_serialization=True)
        model.double()
        compare_perplexities(model, path)
        compare_scores(model, path)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
