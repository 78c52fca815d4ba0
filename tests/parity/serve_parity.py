"""The OpenAI client against gpt-generate --serve, and its answers against those
of the filter.

    serve_parity.py BUILD_DIRECTORY
"""
import json
import re
import subprocess
import sys
import tempfile

import openai
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
        check(False, "tools are refused")
    except openai.BadRequestError as e:
        check("'tools'" in str(e), "tools are refused")


def main():
    model = model_of(7, n_layer=2, n_embd=32, n_head=4)
    with tempfile.TemporaryDirectory() as top:
        model.save_pretrained(f"{top}/tiny", safe_serialization=True)
        load = [f"{BUILD}/gpt-generate", "--load", f"{top}/tiny",
                "--tokenizer-type", "ByteTokenizer"]
        with open(f"{top}/template", "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        server = subprocess.Popen([*load, "--serve", "127.0.0.1:0",
                                   "--chat-template", f"{top}/template"],
                                  stderr=subprocess.PIPE, text=True)
        url = None
        for line in server.stderr:
            if "no libmicrohttpd" in line:
                print("1..0 # SKIP this build has no libmicrohttpd")
                return 0
            found = re.search(r"http://\S+/", line)
            if found:
                url = found.group(0)
                break
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
    return finish()


if __name__ == "__main__":
    sys.exit(main())
