"""Random templates of shapes that no template in tests/golden/chat has, against
transformers: what becomes of safe strings, loops with a condition that are left,
and parameters of macros with the names of what a call has.

    chat_shapes.py BUILD_DIRECTORY [--count N] [--seed N]
"""
import argparse
import json
import random
import subprocess
import sys

from chat_parity import NOW, check, done, oracle

TEXTS = ["'<b>'", "'a<b&c'", "'  x y<\\n z '", "''", "'\"q\\''", "s", "t"]
FILTERS = ["trim", "upper", "lower", "capitalize", "title", "string", "safe",
           "replace('b', '<')", "indent(2, true)", "first", "last", "reverse",
           "join('<')", "default('<')", "trim('<')", "list|last", "tojson"]
METHODS = ["strip()", "lstrip('<')", "rstrip()", "upper()", "lower()",
           "title()", "capitalize()", "replace('b', '<&')",
           "replace('<', '&'|safe, 1)", "split('b')[0]", "split()|last",
           "split(None, 1)|last", "rsplit('b', 1)|first",
           "splitlines()|first", "join(['<', '&'|safe])"]


def string(rng, depth=0):
    """An expression whose value is a string."""
    kind = rng.randrange(9 if depth < 4 else 2)
    if kind < 2:
        return rng.choice(TEXTS)
    of = f"({string(rng, depth + 1)})"
    if kind == 2:
        return f"{of}|safe"
    if kind == 3:
        return f"{of}|{rng.choice(FILTERS)}"
    if kind == 4:
        return f"{of}.{rng.choice(METHODS)}"
    if kind == 5:
        return f"{of}[{rng.choice(['1:', ':-1', '::-1', '0', '-1', '::2'])}]"
    if kind == 6:
        return f"{of} {rng.choice('+~')} ({string(rng, depth + 1)})"
    if kind == 7:
        return rng.choice([f"{of} * {rng.randrange(3)}",
                           f"[{of}]|map('upper')|first",
                           f"(({of}|list)|join)"])
    return f"({of} if {rng.random() < .5} else 'else')"


def safe(rng):
    return rng.choice(["{{ %s }}", "{{ [%s] }}", "{{ (%s) + '<' }}",
                       "{%% for c in %s %%}{{ c + '>' }}{%% endfor %%}"]
                      ) % string(rng)


def loop(rng, depth=0):
    """A loop over numbers, with state that condition and body share."""
    over = rng.choice(["[1, 2, 3, 4, 5]", "g", "range(6)", "[]", "[3, 0, 2]",
                       "'abc'", "[1,2,3,4]|reverse"])
    when = rng.choice(["", "", " if x != 2", " if ns.n < 3", " if 6 // x > 1",
                       " if not ns.found", " if x in [2, 3]"])
    parts = [rng.choice([
        "{{ x }}", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }},",
        "{{ loop.nextitem }}", "{{ loop.previtem }}", "{{ loop.revindex }}",
        "{% set ns.n = ns.n + 1 %}", "{% if x == 3 %}{% break %}{% endif %}",
        "{% if x == 2 %}{% continue %}{% endif %}", "{{ loop.first }}",
        "{% if loop.index0 == 1 %}{% set ns.found = true %}{% endif %}",
        "{% if loop.last %}{% break %}{% endif %}"])
        for _ in range(rng.randrange(1, 5))]
    if depth == 0 and rng.random() < .2:
        parts.append(loop(rng, 1).replace("x", "y"))
    other = "{% else %}none" if rng.random() < .4 else ""
    return (f"{{% for x in {over}{when} %}}{''.join(parts)}{other}"
            "{% endfor %};{{ ns.n }}")


def loops(rng):
    return ("{% set ns = namespace(n=0, found=false) %}"
            "{% set g = [5, 4, 3, 2, 1]|map('abs') %}" +
            "".join(loop(rng) for _ in range(rng.randrange(1, 4))) +
            "{{ g|list }}")


def macro(rng):
    names = rng.sample(["kwargs", "varargs", "caller", "a", "b"],
                       rng.randrange(1, 4))
    # Jinja fails where a caller before others is given by its place.
    names.sort(key=lambda n: n == "caller")
    first = rng.randrange(len(names) + 1)
    given = ", ".join(n + ("" if i < first else f"={i}")
                      for i, n in enumerate(names))
    used = "".join(f"[{{{{ {n} }}}}]" for n in names)
    call = ", ".join(f"{n}={i + 7}" if rng.random() < .4 else str(i + 7)
                     for i, n in enumerate(names[:rng.randrange(1, 5)]))
    return f"{{% macro m({given}) %}}{used}{{% endmacro %}}{{{{ m({call}) }}}}"


def call(rng):
    """A macro that calls back the block of its call, with what is spread."""
    n = rng.randrange(3)
    back = ", ".join(rng.choice(["a", "1", "*[a, 2]", "b", "*l"])
                     for _ in range(rng.choice([n, n, n, 1])))
    body = rng.choice(["{{ caller(%s) }}", "[{{ caller(%s) }}{{ b }}]",
                       "{%% for b in l %%}{{ caller(%s) }},{%% endfor %%}",
                       "{%% set c = caller(%s) %%}{{ c|upper }}",
                       "{%% if caller %%}{{ caller(%s) }}{%% endif %%}",
                       "none%.0s"]) % back
    names = ["x", "y=3", "z='q'"][:n]
    given = rng.choice(["", "1", "*l", "1, *l", "*l, b=2", "b=5", "*'u'",
                        "b=4, *l"])
    block = "".join(rng.choice([
        "{{ x }}", "{{ y }}", "{{ l }}", "<{{ b }}>", "{{ caller }}", "t",
        "{% set l = [8] %}{{ l }}"]) for _ in range(3))
    return ("{%% set l = [6] %%}{%% macro m(a, b='d') %%}%s{{ l }}"
            "{%% endmacro %%}{%% call%s m(%s) %%}%s{%% endcall %%}{{ l }}"
            % (body, f"({', '.join(names)})" if names else "", given, block))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    given = {"s": "<s>", "t": "A b"}
    for name, draw in (("safe strings", safe), ("loops", loops),
                       ("parameters of macros", macro),
                       ("calls of macros", call)):
        sources = [draw(rng) for _ in range(args.count)]
        got = subprocess.run(
            [f"{args.build}/tests/parity/chat_render"], text=True, check=True,
            input="".join(json.dumps({"template": s, "input": given,
                                      "special": {}, "now": NOW}) + "\n"
                          for s in sources), capture_output=True).stdout
        wrong = texts = 0
        for source, line in zip(sources, got.splitlines()):
            have, want = json.loads(line), oracle(source, given)
            texts += want is not None
            if " object at 0x" in (want or ""):
                continue
            if have.get("text") != want and "not supported" not in have.get(
                    "error", ""):
                wrong += 1
                print("#", source, "\n# want", json.dumps(want), "\n# have",
                      json.dumps(have))
        check(wrong == 0, f"{name}: {wrong} of {args.count} differ")
        check(texts > args.count / 3, f"{name}: {texts} are texts")
    print(f"1..{len(done)}")
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
