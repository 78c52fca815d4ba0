"""lm-eval-harness, by its model local-completions, against gpt-generate --serve:
tasks like LAMBADA, of multiple choice, of texts without a context as BLiMP, and
of windows over long texts as WikiText, over local files. Its accuracies and
log-likelihoods must be those of gpt-generate --score and --perplexity; texts of
a task that generates, also by local-chat-completions, are the filter's.

    lm_eval_parity.py BUILD_DIRECTORY
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                  OPENAI_API_KEY="none", TOKENIZERS_PARALLELISM="false")
import lm_eval  # noqa: E402
from generate_parity import BUILD, check, finish, model_of  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

WORDS = "the cat sat on a mat and saw one dog run by to eat".split()

TASK = """task: {name}
dataset_path: json
dataset_name: null
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
{body}
metadata:
  version: 1.0
"""
LAST_WORD = """output_type: loglikelihood
doc_to_text: "{{text.split(' ')[:-1]|join(' ')}}"
doc_to_target: "{{' '+text.split(' ')[-1]}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
"""
CHOICE = """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: label
doc_to_choice: answers
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


NO_CONTEXT = """output_type: loglikelihood
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
WINDOWS = """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
    aggregation: weighted_perplexity
    higher_is_better: false
"""
GENERATE = """output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{text}}"
generation_kwargs:
  until: ["s", "a t", "\\n"]
  max_gen_toks: 20
  temperature: 0.0
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""
TEMPLATE = ("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};"
            "{% endfor %}{% if add_generation_prompt %}a:{% endif %}")
MAX_LENGTH = 96  # positions of the model


def sentence(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


def score(load, rows):
    """What --score gives for each row."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    out = subprocess.run([*load, "--score"], input=lines, capture_output=True,
                         text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def sum_of_windows(load, text, window):
    """The log-likelihood of a text by the harness's windows."""
    out = subprocess.run([*load, "--perplexity", "lm-eval", "--window",
                          str(window), "-p", text], capture_output=True,
                         text=True, check=True).stdout
    figures = json.loads(out)
    return -figures["loss"] * figures["scored"]


def serve(load, template):
    server = subprocess.Popen([*load, "--serve", "127.0.0.1:0",
                               "--chat-template", template],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"http://\S+/", line)
        if found:
            return server, found.group(0)
    return None, None


def samples_of(results, task):
    rows = sorted(results["samples"][task], key=lambda row: row["doc_id"])
    return [[float(r[0] if isinstance(r, (list, tuple)) else r)
             for r in row["filtered_resps"]] for row in rows]


def filtered(load, prompts):
    """What the filter makes of prompts with the settings of GENERATE."""
    lines = "".join(json.dumps({"prompt": p}) + "\n" for p in prompts)
    out = subprocess.run([*load, "--jsonl", "--greedy", "--tokens", "20",
                          "--stop", "s", "a t", "\n"], input=lines,
                         capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["text"] for line in out.split("\n")[:-1]]


def compare_texts(load, top, url, rows):
    """Texts of the harness, as a completion and as an answer in a chat."""
    texts = [row["text"] for row in rows]
    for name, path, chat, prompts in (
            ("local-completions", "completions", False, texts),
            ("local-chat-completions", "chat/completions", True,
             [f"u:{text};a:" for text in texts])):
        how = {} if chat else dict(tokenizer_backend="remote")
        results = lm_eval.simple_evaluate(
            model=name, model_args=dict(
                model="tiny", base_url=f"{url}v1/{path}", num_concurrent=4,
                max_retries=1, max_length=MAX_LENGTH, **how),
            tasks=["local_made"], log_samples=True, apply_chat_template=chat,
            task_manager=TaskManager(include_path=top,
                                     include_defaults=False),
            bootstrap_iters=0)
        made = sorted(results["samples"]["local_made"],
                      key=lambda row: row["doc_id"])
        got, want = [row["resps"][0][0] for row in made], filtered(load, prompts)
        if not check(got == want, f"{name}: texts are the filter's"):
            print(f"# got {got}\n# want {want}")


def main():
    rng = random.Random(3)
    texts = [{"text": sentence(rng, rng.randrange(3, 9))} for _ in range(25)]
    choices = [{"question": sentence(rng, 4), "label": rng.randrange(3),
                "answers": [sentence(rng, rng.randrange(1, 3))
                            for _ in range(3)]} for _ in range(15)]
    long = [{"text": sentence(rng, n)} for n in (3, 40, 90)]
    model = model_of(5, n_layer=2, n_embd=32, n_head=4)
    with tempfile.TemporaryDirectory() as top:
        os.environ["HF_HOME"] = f"{top}/home"
        model.save_pretrained(f"{top}/tiny", safe_serialization=True)
        load = [f"{BUILD}/gpt-generate", "--load", f"{top}/tiny",
                "--tokenizer-type", "ByteTokenizer"]
        write_lines(f"{top}/texts.jsonl", texts)
        write_lines(f"{top}/choices.jsonl", choices)
        write_lines(f"{top}/alone.jsonl", texts[:8])
        write_lines(f"{top}/long.jsonl", long)
        write_lines(f"{top}/made.jsonl", texts)
        with open(f"{top}/template", "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        for name, body in (("texts", LAST_WORD), ("choices", CHOICE),
                           ("alone", NO_CONTEXT), ("long", WINDOWS),
                           ("made", GENERATE)):
            with open(f"{top}/{name}.yaml", "w", encoding="utf-8") as f:
                f.write(TASK.format(name=f"local_{name}", body=body,
                                    file=f"{top}/{name}.jsonl"))
        server, url = serve(load, f"{top}/template")
        if not server:
            print("1..0 # SKIP this build has no libmicrohttpd")
            return 0
        results = lm_eval.simple_evaluate(
            model="local-completions",
            model_args=dict(model="tiny", base_url=f"{url}v1/completions",
                            tokenizer_backend="remote", num_concurrent=4,
                            tokenized_requests=True, max_retries=1,
                            max_length=MAX_LENGTH),
            tasks=["local_texts", "local_choices", "local_alone",
                   "local_long"], log_samples=True,
            task_manager=TaskManager(include_path=top,
                                     include_defaults=False),
            bootstrap_iters=0)
        compare_texts(load, top, url, texts)
        server.terminate()
        server.communicate(timeout=60)
        mine = score(load, texts)
        got = samples_of(results, "local_texts")
        off = max(abs(a["logprob"] - b[0]) for a, b in zip(mine, got))
        check(off < 1e-4, f"log-likelihoods of last words, off by {off:.1e}")
        acc = sum(a["greedy"] for a in mine) / len(mine)
        there = results["results"]["local_texts"]["acc,none"]
        check(abs(acc - there) < 1e-9, f"their accuracy, {acc} and {there}")
        pairs = [{"context": row["question"], "continuation": f" {answer}"}
                 for row in choices for answer in row["answers"]]
        mine = [a["logprob"] for a in score(load, pairs)]
        mine = [mine[i:i + 3] for i in range(0, len(mine), 3)]
        got = samples_of(results, "local_choices")
        off = max(abs(a - b) for x, y in zip(mine, got) for a, b in zip(x, y))
        check(off < 1e-4, f"log-likelihoods of answers, off by {off:.1e}")
        acc = sum(row["label"] == max(range(3), key=lambda k: x[k])
                  for row, x in zip(choices, mine)) / len(choices)
        there = results["results"]["local_choices"]["acc,none"]
        check(abs(acc - there) < 1e-9, f"their accuracy, {acc} and {there}")
        mine = score(load, [{"context": "", "continuation": row["text"]}
                            for row in texts[:8]])
        got = samples_of(results, "local_alone")
        off = max(abs(a["logprob"] - b[0]) for a, b in zip(mine, got))
        check(off < 1e-4, f"texts without a context, off by {off:.1e}")
        # its model for servers leaves out a position for an answer, and one
        # for a context
        mine = [sum_of_windows(load, row["text"], MAX_LENGTH - 2)
                for row in long]
        got = samples_of(results, "local_long")
        off = max(abs(a - b[0]) for a, b in zip(mine, got))
        check(off < 1e-3, f"windows over long texts, off by {off:.1e}")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
