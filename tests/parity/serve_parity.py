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


def main():
    model = model_of(7, n_layer=2, n_embd=32, n_head=4)
    with tempfile.TemporaryDirectory() as top:
        model.save_pretrained(f"{top}/tiny", safe_serialization=True)
        load = [f"{BUILD}/gpt-generate", "--load", f"{top}/tiny",
                "--tokenizer-type", "ByteTokenizer"]
        server = subprocess.Popen([*load, "--serve", "127.0.0.1:0"],
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
        except openai.BadRequestError as e:
            check("only 'tiny'" in str(e), "another model is refused")
        server.terminate()
        server.communicate(timeout=60)
        check(server.returncode == -15, "SIGTERM ends the server")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
