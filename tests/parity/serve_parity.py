"""The OpenAI client against gpt-generate --serve, and its answers against those
of the filter.

    serve_parity.py BUILD_DIRECTORY
"""
import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import jinja2
import openai
from chat_parity import SPECIAL, TOOLS
from generate_parity import BUILD, check, finish, model_of, run


TEMPLATE = ("{% for m in messages %}{{ m.role[0]|upper }}: {{ m.content }}\n"
            "{% endfor %}{% if add_generation_prompt %}A:{% endif %}")


def chats(client, load):
    """The client's chats, whole and streamed, against the filter's text of what
    transformers makes of the messages."""
    from transformers.utils import chat_template_utils as utils
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "The cat?"}]
    prompt = utils._compile_jinja_template(TEMPLATE).render(
        messages=messages, add_generation_prompt=True)
    want = json.loads(run(*load, "--jsonl", "-p", prompt, "--seed", "5",
                          "--tokens", "30", "--temperature", "0.8",
                          "--num-samples", "1", stdin=subprocess.DEVNULL))
    how = dict(model="tiny", messages=messages, seed=5, max_tokens=30,
               temperature=0.8)
    whole = client.chat.completions.create(**how, logprobs=True, top_logprobs=3)
    choice = whole.choices[0]
    check(choice.message.content == want["text"]
          and choice.message.role == "assistant", "a chat is the filter's text")
    check(choice.finish_reason in ("stop", "length"), "and has its reason")
    check(len(choice.logprobs.content) == want["tokens"]
          and len(choice.logprobs.content[0].top_logprobs) == 3,
          "with probabilities")
    check(whole.usage.prompt_tokens == len(prompt.encode())
          and whole.usage.prompt_tokens_details.cached_tokens == 0,
          "its tokens are counted")
    pieces = list(client.chat.completions.create(
        **how, stream=True, stream_options={"include_usage": True}))
    text = "".join(p.choices[0].delta.content or "" for p in pieces
                   if p.choices)
    check(text == want["text"], "a stream of a chat is the same text")
    check(pieces[0].choices[0].delta.role == "assistant", "begins with a role")
    idle = client.chat.completions.create(
        **how, tools=[], tool_choice="none", parallel_tool_calls=True,
        store=False, modalities=["text"], logprobs=False, top_logprobs=0,
        user="u", metadata={"a": "b"}, service_tier="auto",
        reasoning_effort=None, response_format={"type": "text"}, stop=None,
        stream_options=None, max_completion_tokens=None)
    check(idle.choices[0].message.content == want["text"],
          "fields that change nothing")
    short = dict(how, max_tokens=2)
    said = client.chat.completions.create(**short).choices[0].message
    again = client.chat.completions.create(**dict(short, messages=[
        said, said.model_dump(), {"role": "assistant", "content": None}]))
    check(again.usage.prompt_tokens ==
          2 * len(f"A: {said.content}\n".encode()) + len("A: \nA:"),
          "answers are given back as they came")
    try:
        client.chat.completions.create(**how, response_format={
            "type": "json_object"})
        check(False, "another form is refused")
    except openai.BadRequestError as e:
        check("'response_format'" in str(e), "another form is refused")
        check((e.type, e.param, e.code) == ("invalid_request_error",
              "response_format", None), "no word is no code")
    try:
        client.chat.completions.create(**how, tools=[
            {"type": "function", "function": {"name": "f"}}])
        check(False, "tools that a template does not know are refused")
    except openai.BadRequestError as e:
        check("'tools'" in str(e),
              "tools that a template does not know are refused")


def start(*command):
    """A server and its address; None where this build has none."""
    server = subprocess.Popen([*command, "--serve", "127.0.0.1:0"],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "no libmicrohttpd" in line:
            return server, None
        found = re.search(r"http://\S+/", line)
        if found:
            return server, found.group(0)
    raise SystemExit("the server does not start")


def call(place, **more):
    """A call as a client has it: its arguments are a string."""
    arguments = json.dumps({"place": place, **more}, ensure_ascii=False)
    return {"id": "abcdef123", "type": "function",
            "function": {"name": "get_weather", "arguments": arguments}}


def tools_of(name, source, load, top):
    """A conversation with tools by one template: the text is the filter's of
    what transformers makes of it."""
    from transformers.utils import chat_template_utils as utils
    with open(f"{top}/template", "w", encoding="utf-8") as f:
        f.write(source)
    server, url = start(*load, "--chat-template", f"{top}/template")
    client = openai.OpenAI(base_url=url + "v1", api_key="none", max_retries=0,
                           timeout=60)
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather in \"Köln\"?"},
                {"role": "assistant", "content": "",
                 "tool_calls": [call("Köln", days=2, x=1.0, y=None)]},
                {"role": "tool", "tool_call_id": "abcdef123",
                 "name": "get_weather", "content": "{\"t\": 7.50}"}]
    seen = copy.deepcopy(messages)
    for one in seen[2]["tool_calls"]:
        one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    for n in (2, 3, 4):
        how = dict(model="tiny", messages=messages[:n], tools=TOOLS, seed=5,
                   max_tokens=9, tool_choice="auto")
        try:
            prompt = utils._compile_jinja_template(source).render(
                messages=seen[:n], tools=TOOLS, documents=None,
                add_generation_prompt=True, **SPECIAL)
        except jinja2.TemplateError as e:
            try:
                client.chat.completions.create(**how)
                check(False, f"{name}: {n} messages are refused")
            except openai.BadRequestError as said:
                check(str(e) in str(said), f"{name}: {n} messages are refused")
            continue
        want = json.loads(run(*load, "--jsonl", "-p", prompt, "--seed", "5",
                              "--tokens", "9", stdin=subprocess.DEVNULL))
        got = client.chat.completions.create(**how)
        check(got.choices[0].message.content == want["text"]
              and got.usage.prompt_tokens == len(prompt.encode()),
              f"{name}: tools and {n} messages are transformers'")
    server.terminate()
    server.communicate(timeout=60)


def tools(load, top):
    with open(f"{top}/tiny/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump(SPECIAL, f)
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(f"{here}/../golden/chat/*.jinja")):
        with open(path, encoding="utf-8") as f:
            source = f.read()
        if "tool_calls" in source:
            tools_of(os.path.basename(path), source, load, top)


def main():
    model = model_of(7, 4096, n_layer=2, n_embd=32, n_head=4)
    with tempfile.TemporaryDirectory() as top:
        model.save_pretrained(f"{top}/tiny", safe_serialization=True)
        load = [f"{BUILD}/gpt-generate", "--load", f"{top}/tiny",
                "--tokenizer-type", "ByteTokenizer"]
        with open(f"{top}/template", "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        server, url = start(*load, "--chat-template", f"{top}/template")
        if not url:
            print("1..0 # SKIP this build has no libmicrohttpd")
            return 0
        client = openai.OpenAI(base_url=url + "v1", api_key="none",
                               max_retries=0, timeout=60)
        check(client.models.list().data[0].id == "tiny", "the model's name")
        want = json.loads(run(*load, "--jsonl", "-p", "The cat", "--seed", "5",
                              "--tokens", "30", "--temperature", "0.8",
                              "--top-p", "0.9", "--logprobs", "2",
                              "--num-samples", "1", stdin=subprocess.DEVNULL))
        how = dict(model="tiny", prompt="The cat", seed=5, max_tokens=30,
                   temperature=0.8, top_p=0.9)
        whole = client.completions.create(**how, logprobs=2)
        choice = whole.choices[0]
        check(choice.text == want["text"], "a completion is the filter's text")
        check(whole.usage.completion_tokens == want["tokens"]
              and whole.usage.prompt_tokens == 7, "tokens are counted")
        off = max(abs(a - b["logprob"]) for a, b in
                  zip(choice.logprobs.token_logprobs, want["logprobs"]))
        check(off < 1e-5, f"log-probabilities, off by {off:.1e}")
        pieces = list(client.completions.create(
            **how, stream=True, stream_options={"include_usage": True}))
        text = "".join(p.choices[0].text for p in pieces if p.choices)
        check(text == want["text"], "a stream is the same text")
        check(pieces[-1].usage.completion_tokens == want["tokens"],
              "and ends with its counts")
        many = client.completions.create(model="tiny", prompt=["a", "b"], n=3,
                                         max_tokens=4, seed=1)
        check([c.index for c in many.choices] == list(range(6)),
              "texts of several prompts in order")
        try:
            client.completions.create(model="other", prompt="a")
            check(False, "another model is refused")
        except openai.NotFoundError as e:
            check("only 'tiny'" in str(e), "another model is refused")
            check((e.type, e.param, e.code) == ("invalid_request_error",
                  "model", "model_not_found"), "with OpenAI's words for it")
        chats(client, load)
        server.terminate()
        server.communicate(timeout=60)
        check(server.returncode == -15, "SIGTERM ends the server")
        tools(load, top)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
