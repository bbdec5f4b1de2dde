"""Text of containers with numbers in them that change from call to call, or are read from tensors: lines of a log."""

from __future__ import annotations

import json

import pytest
import torch

from support import Pair

X = torch.arange(4.0)


def as_json(x, n):
    loss = (x * 2).sum().item()
    record = {"step": n, "loss": loss, "rest": [loss, {"a": (n, None, True)}], "rate": n / 3, "name": f"step {n}"}
    return x + 1, json.dumps(record), json.dumps([n, loss], indent=1), json.dumps(record, sort_keys=True)


def as_text(x, n):
    metrics = {"loss": x.mean().item(), "step": n}
    return x + 1, str(metrics), f"{metrics}", repr([n, (n,), metrics["loss"]]), f"{[metrics['loss']]!r}", str((n / 3,))


def of_made_lists(x, n):
    rows = []
    for row in range(2):
        rows.append([x[row].item(), n + row])
    rows[0].append(n)
    text = str(rows)
    rows[0].append("later")
    return x * 2, text


@pytest.mark.parametrize("fn", [as_json, as_text, of_made_lists])
def test_few_graphs(fn):
    pair = Pair(lambda: fn)
    for n in range(6):
        pair.call(X + n, n)
    pair.expect(graphs=range(1, 3), breaks=0)


def not_finite(x, n):
    number = (x.sum() * (float("nan") if n % 2 else float("inf"))).item()
    return x + 1, json.dumps({"x": number}), json.dumps(number), str([number, -number])


def refusing_what_is_not_finite(x, n):
    number = (x.sum() / n).item() if n else float(n)
    try:
        return x, json.dumps({"x": number * float("inf")}, allow_nan=False)
    except ValueError as e:
        return x + 1, str(e)


def holding_itself(x, n):
    data = [n]
    data.append(data)
    return x + 1, str(data)


class Shown:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Shown({self.n})"


def holding_an_object(x, n):
    return x + 1, str([n, Shown(n)]), f"{ {'a': Shown(n), 'b': n} }"


def with_a_specification(x, n):
    try:
        return x, format({"a": n}, ">10")
    except TypeError as e:
        return x + 1, str(e), f"{(n,)!s:>10}"


@pytest.mark.parametrize(
    "fn", [not_finite, refusing_what_is_not_finite, holding_itself, holding_an_object, with_a_specification]
)
def test_text(fn):
    pair = Pair(lambda: fn)
    for n in range(5):
        pair.call(X + n, n)
