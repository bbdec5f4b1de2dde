"""Random programs that read and change lists, deques and tables at places which differ from call to call."""

from __future__ import annotations

import random
from collections import deque

import pytest
import torch

from support import Pair, world

OF_BOTH = """
    h.append(n)|h.append(n * 0.5)|h.append(x.sum().item())|h.append([n])|h.extend([n, n + 1])
    h.extend(v for v in (n, 2))
    out.append(len(h))|out.append(h[-1])|out.append(h[0])|out.append(h[-2])|out.append(h.pop())|h[-1] = n|h[0] = 5
    h.clear()|out.append(list(h))|out.append([*h])|out.append(bool(h))|c = list(h); c.append(1); out.append(c)
    out.append(n in h)|x = x + len(h)|h.insert(0, n)|del h[0]|h.reverse()|out.append(sum(h))|out.append(max(h))
    h.append(h[0])|h.append(h[-1])|h.extend(h)|print(end="")|kept.append(list(h))|kept.append(h[-1])|x = x * h[-1]
    out.append(sum(h) / len(h))|d = list(h); h.append(0); d.pop(); out.append((d, h[-1]))|h.remove(n)
    c = [*h]; c[-1] = 3; c.extend([2]); out.append((c, len(c)))|out.append(str(list(h)))|out.append(h == list(h))
"""
OF_LISTS = """
    out.append(h.pop(0))|out.append(h[-3:])|out.append(h[-20:])|out.append(h[:2])|out.append(h[:])|h.sort()|h[-3:] = [1]
    out.append(sorted(h))|del h[:-3]|h[:] = h[-4:]|s = h[-18:]; s.append(4); out.append((s, len(s), s[0]))
    kept.append(h[-25:])|out.append(sum(h[-20:]))|out.append(h[-17:][-1])|h.append(h[-5:])|out.append(h[1:-1])
"""
OF_DEQUES = """
    out.append(h.popleft())|h.appendleft(n)|h.rotate(1)|h.extendleft([n, 7])|out.append(h.copy())|out.append(h.maxlen)
    out.append(h.popleft()); h.append(9); out.append(h.pop())|h.append(1); h.append(2); out.append(h.popleft())
"""
OF_TABLES = """
    t[n] = n|t[n, 1] = x|t[n % 3] = 0.5 * n|out.append(t[n % 3])|out.append(t.get(n))|t["a", n] = n
    out.append((n, 1) in t)
    out.append(len(t))|out.append(list(t))|out.append(t.setdefault((n % 2,), n))|out.append(t.pop((n - 1, 1), None))
    del t[n]|x = x * b[n]|out.append(b[n % 3] * 2)|b[n] = 2|out.append(b[n] > 1)|t[f"k{n}", n] = 1|t[True, 0] = n
    t[n % 2, 0.0] = "f"|out.append(t[n % 2, 0])|t[n, (n, "s")] = n * 2|out.append(t[n - 1, (n - 1, "s")])
    x = x + t["a", n]|t["a", n] += 1|out.append(c[n] + c[-1 - n])|x = x + c[n % 4]|out.append((0.5, 1, "c", 2.5)[n % 4])
    out.append(m[n])|out.append(m[n] + 1 if n in m else 0)|m[n] = n / 2|print(end="")|b[n + 1] = b[n] + 1
    kept.append(b[n])
    out.append(str([b[n], n, c[n]]))|b[n] = "x"|b.append(n)|out.append(b[-1])|t["last"] = c[n]
"""


def statements(text):
    return [statement.strip().split("; ") for line in text.strip().splitlines() for statement in line.split("|")]


def program(seed, choices):
    """The text of a function of random statements, some of them under a condition or in a try block."""
    chance, lines = random.Random(seed), ["out = []"]
    for _ in range(chance.randint(3, 8)):
        body = chance.choice(choices)
        if chance.random() < 0.8:
            body = ["try:", *(f"    {line}" for line in body), "except (LookupError, ValueError, TypeError) as e:"]
            body.append("    out.append(type(e).__name__)")
        if chance.random() < 0.2:
            body = [f"if {chance.choice(['n % 3 == 0', 'n > 4'])}:", *(f"    {line}" for line in body)]
        lines += body
    return "def fn(x, n):\n" + "\n".join(f"    {line}" for line in [*lines, "return x + n, out"])


def compare(seed, choices, make):
    text = program(seed, choices)

    def made():
        names = {"kept": [], **make()}
        return world(text, **names)["fn"], {name: value for name, value in names.items() if name != "c"}

    pair = Pair(made)
    for n in range(8):
        pair.call(torch.arange(3.0) + n, n)


@pytest.mark.parametrize("seed", range(24))
def test_lists(seed):
    start = [[], [1.5], [1, 2, 3], [0.5] * 20][seed % 4]
    compare(seed, statements(OF_BOTH) + statements(OF_LISTS) * 2, lambda: {"h": list(start)})


@pytest.mark.parametrize("seed", range(24))
def test_deques(seed):
    start, bound = [[], [1.5], [1, 2, 3], [0.5] * 20][seed % 4], [None, 1, 3, 5, 25][seed % 5]
    compare(seed, statements(OF_BOTH) + statements(OF_DEQUES) * 2, lambda: {"h": deque(start, bound)})


@pytest.mark.parametrize("seed", range(24))
def test_tables(seed):
    def make():
        numbers = [k * 0.5 for k in range(24)]
        return {"t": {}, "b": numbers, "c": tuple(numbers), "m": {k: k * 1.5 for k in range(0, 20, 2)}}

    compare(seed, statements(OF_TABLES), make)
