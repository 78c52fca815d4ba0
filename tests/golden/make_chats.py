"""Writes chat/conversations.jsonl: conversations and what transformers'
apply_chat_template() makes of them by the templates in chat/; "text" is null
where it ends in an error. test_jinja.c reads it.

    python make_chats.py >chat/conversations.jsonl
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "parity"))
from chat_parity import NOW, SPECIAL, conversation, oracle, templates  # noqa


def main():
    rng = random.Random(11)
    for name, source in templates([]):
        for _ in range(1 if name == "everything.jinja" else 6):
            given = conversation(rng)
            print(json.dumps({"template": name, "input": given,
                              "special": SPECIAL, "now": NOW,
                              "text": oracle(source, given)}))


if __name__ == "__main__":
    main()
