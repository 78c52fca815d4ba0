"""Templates of chats against transformers' apply_chat_template(), over random
conversations.

    chat_parity.py BUILD_DIRECTORY [--count N] [TEMPLATE ...]

Without templates those of tests/golden/chat are taken, and what is in the
directory that GPT_CHAT_TEMPLATES names: *.jinja, *.j2 and tokenizer_config.json.
Both must give the same text, or both an error; what this program says that it
does not support is counted, and shown by name.
"""
import argparse
import datetime
import glob
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1717243200
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
           "pad_token": "<pad>"}
WORDS = ["hello", "world", " ", "\n", "\n\n", "é", "日本", "😀", "'", '"', "\\",
         "<think>", "</think>", "{{ x }}", "{% if %}", "\t", "a b", "  ", "0",
         "[INST]", "<|im_end|>", "\u00a0", "<tool_response>", "end."]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "It's the \"weather\" in a place.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "city, é"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "list": {"type": "array", "items": {"type": ["number", "null"]}},
        "days": {"type": "integer", "default": 3, "minimum": -0.0,
                 "maximum": 1e3, "x": [2 ** 62, 1e16, 1e-7]}}}}}]


done = []  # of checks


def check(passed, what):
    done.append(passed)
    print(f"{'ok' if passed else 'not ok'} {len(done)} - {what}", flush=True)
    return passed


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(6)))


def message(rng, role):
    m = {"role": role, "content": text(rng)}
    if rng.random() < 0.08:
        m["content"] = [{"type": "text", "text": text(rng)}]
    if role == "assistant" and rng.random() < 0.1:
        m["tool_calls"] = [{"type": "function", "id": "abcdef123",
                            "function": {"name": "get_weather", "arguments": {
                                "place": text(rng), "days": 2, "x": None}}}]
        if rng.random() < 0.5:
            m["content"] = None
    if role == "assistant" and rng.random() < 0.1:
        m["reasoning_content"] = text(rng)
    return m


def conversation(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append(message(rng, "system"))
    for i in range(rng.randrange(1, 6)):
        role = "assistant" if i % 2 else "user"
        if rng.random() < 0.07:
            role = rng.choice(["system", "tool", "user", "assistant", "other"])
        messages.append(message(rng, role))
    given = {"messages": messages, "tools": None, "documents": None,
             "add_generation_prompt": rng.random() < 0.5}
    if rng.random() < 0.15:
        given["tools"] = TOOLS
    if rng.random() < 0.2:
        given["enable_thinking"] = rng.random() < 0.5
    return given


class Then(datetime.datetime):
    """The time that every template sees."""
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def oracle(template, given):
    """transformers' text, or None for an error."""
    from transformers.utils import chat_template_utils as utils
    utils.datetime = Then
    try:
        return utils._compile_jinja_template(template).render(
            **{**SPECIAL, **given})
    except Exception:  # of any kind: templates make TypeErrors, too
        return None


def templates(names):
    if not names:
        names = sorted(glob.glob(f"{HERE}/../golden/chat/*.jinja"))
        more = os.environ.get("GPT_CHAT_TEMPLATES")
        for kind in ("*.jinja", "*.j2", "tokenizer_config.json"):
            if more:
                names += sorted(glob.glob(f"{more}/**/{kind}", recursive=True))
    for name in names:
        with open(name, encoding="utf-8", newline="") as f:
            source = f.read()
        if name.endswith(".json"):
            source = json.loads(source).get("chat_template")
            if isinstance(source, list):
                source = next((t["template"] for t in source
                               if t["name"] == "default"), None)
        if isinstance(source, str):
            yield os.path.basename(name), source


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    rng = random.Random(7)
    cases = [(name, source, conversation(rng))
             for name, source in templates(args.names)
             for _ in range(args.count)]
    lines = "".join(json.dumps({"template": source, "input": given,
                                "special": SPECIAL, "now": NOW}) + "\n"
                    for _, source, given in cases)
    got = subprocess.run([f"{args.build}/tests/parity/chat_render"],
                         input=lines, capture_output=True, text=True,
                         check=True).stdout.splitlines()
    bad, unsupported, texts, shown = {}, {}, 0, {}
    for (name, source, given), line in zip(cases, got):
        have, want = json.loads(line), oracle(source, given)
        bad.setdefault(name, 0)
        if "error" in have and "not supported" in have["error"] \
                and want is not None:
            unsupported.setdefault(name, have["error"])
        elif have.get("text") != want:
            bad[name] += 1
            shown.setdefault(name, (given, want, have))
        texts += want is not None
    for name, wrong in bad.items():
        if name in unsupported:
            check(True, f"{name} # SKIP {unsupported[name]}")
            continue
        if not check(wrong == 0, f"{name}: {wrong} of {args.count} differ"):
            given, want, have = shown[name]
            print("#", json.dumps(given)[:600])
            print("# want", json.dumps(want)[:900])
            print("# have", json.dumps(have)[:900])
    check(texts > len(cases) / 3, f"{texts} of {len(cases)} are texts")
    print(f"1..{len(done)}")
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
