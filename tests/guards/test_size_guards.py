"""Conditions over sizes as guards: lowered, deduplicated, in words; and tensors some of whose dimensions may be any."""

from __future__ import annotations

import random

import pytest
import torch

from framejit import _native as native
from framejit.guards import tensor_layout
from framejit.guards.diff import explain_miss
from framejit.guards.guard import Guard, record
from framejit.guards.lower import lower
from framejit.guards.size_program import SizeRead, size_text, sizes_read
from framejit.guards.sources import ArgSource, AttrSource, Source
from framejit.guards.tensor_facts import TensorFacts, describe_tensor
from framejit.guards.tree_text import render

assert tensor_layout.LAYOUT

N = native
X, Y, Z = ArgSource(0, "x"), ArgSource(1, "y"), AttrSource(ArgSource(2, "m"), "weight")
LINE = ("/home/me/model.py", 12)
ALL = (1 << 64) - 1


def f(x, y, m):
    return None


def size(tensor, dim):
    return (N.S_SIZE, tensor, dim)


def stride(tensor, dim):
    return (N.S_STRIDE, tensor, dim)


def const(value):
    return (N.S_CONST, value)


def op(operation, *operands):
    return (*(item for operand in operands for item in operand), operation)


def sizes(program, *sources: Source):
    return Guard(sources[0], N.C_SIZES, program, sources[1:], user_line=LINE)


def any_tensor(source, rank=2):
    return Guard(source, N.C_TENSOR, (torch.zeros((4,) * rank), ALL, ALL))


def miss(guards, *args):
    return explain_miss([record(g) for g in guards], lower(guards), args, f)


WORDS = {
    "x.size(0) == y.size(1)": op(N.S_EQ, size(0, 0), size(1, 1)),
    "x.size(0) >= 2": op(N.S_NOT, op(N.S_LT, size(0, 0), const(2))),
    "x.size(0) > 2": op(N.S_LT, const(2), size(0, 0)),
    "x.size(0) < 2": op(N.S_LT, size(0, 0), const(2)),
    "x.size(0) <= 2": op(N.S_NOT, op(N.S_LT, const(2), size(0, 0))),
    "x.size(1) >= y.size(0)": op(N.S_NOT, op(N.S_LT, size(0, 1), size(1, 0))),
    "x.size(1) != 3": op(N.S_NOT, op(N.S_EQ, const(3), size(0, 1))),
    "x.size(1) % 8 == 0": op(N.S_EQ, op(N.S_MOD, size(0, 1), const(8)), const(0)),
    "x.stride(0) == x.size(1) * 64": op(N.S_EQ, stride(0, 0), op(N.S_MUL, size(0, 1), const(64))),
    "(x.size(0) + 1) * 2 // 3 == y.size(0)": op(
        N.S_EQ, op(N.S_FLOORDIV, op(N.S_MUL, op(N.S_ADD, size(0, 0), const(1)), const(2)), const(3)), size(1, 0)
    ),
    "x.size(0) + (y.size(0) + -1) != 3 * (4 // 2)": op(
        N.S_NOT,
        op(
            N.S_EQ,
            op(N.S_ADD, size(0, 0), op(N.S_ADD, size(1, 0), const(-1))),
            op(N.S_MUL, const(3), op(N.S_FLOORDIV, const(4), const(2))),
        ),
    ),
    "max(x.size(0), min(y.size(0), -3)) == 7": op(
        N.S_EQ, const(7), op(N.S_MAX, size(0, 0), op(N.S_MIN, size(1, 0), const(-3)))
    ),
    "not max(x.size(0) == 1, y.size(0) != 2)": op(
        N.S_NOT, op(N.S_MAX, op(N.S_EQ, size(0, 0), const(1)), op(N.S_NOT, op(N.S_EQ, size(1, 0), const(2))))
    ),
    "(x.size(0) < 2) == (y.size(0) < 2)": op(
        N.S_EQ, op(N.S_LT, size(0, 0), const(2)), op(N.S_LT, size(1, 0), const(2))
    ),
    "1 == 2": op(N.S_EQ, const(1), const(2)),
}


@pytest.mark.parametrize("words", WORDS)
def test_conditions_in_words(words):
    guard = sizes(WORDS[words], X, Y)
    assert guard.text == words and size_text(WORDS[words], ("x", "y")) == words
    kept = record(guard)
    assert kept.expected == WORDS[words] and (kept.source_name, kept.also_names) == ("x", ("y",)) and kept.text == words


def _random_number(chance, depth):
    if depth == 0 or chance.random() < 0.3:
        return chance.choice([size(0, 0), size(0, 1), size(1, 0), stride(1, 0), const(chance.randrange(-9, 9))])
    operation = chance.choice([N.S_ADD, N.S_MUL, N.S_FLOORDIV, N.S_MOD, N.S_MIN, N.S_MAX])
    divides = operation in (N.S_FLOORDIV, N.S_MOD)  # never by zero: Python would fail only if it came to that operand
    return op(
        operation,
        _random_number(chance, depth - 1),
        const(chance.choice([-3, 2, 5])) if divides else _random_number(chance, depth - 1),
    )


def _random_condition(chance, depth):
    if depth and chance.random() < 0.5:
        operation = chance.choice([N.S_MIN, N.S_MAX, N.S_NOT, N.S_EQ])
        return op(operation, *(_random_condition(chance, depth - 1) for _ in range(1 if operation == N.S_NOT else 2)))
    return op(chance.choice([N.S_EQ, N.S_LT]), _random_number(chance, 3), _random_number(chance, 2))


def test_the_words_mean_what_is_checked():
    chance, outcomes = random.Random(7), [0, 0]
    for _ in range(400):
        condition = _random_condition(chance, 2)
        x, y = (
            torch.zeros(chance.randrange(1, 6), chance.randrange(1, 6)),
            torch.zeros(chance.randrange(1, 6), chance.randrange(1, 6)),
        )
        guards = [any_tensor(X), any_tensor(Y), sizes(condition, X, Y)]
        expected = bool(eval(guards[-1].text, {"x": x, "y": y}))
        assert (miss(guards, x, y, None) is None) is expected, guards[-1].text
        outcomes[expected] += 1
    assert min(outcomes) > 50


def test_what_a_program_reads():
    program = op(N.S_MIN, op(N.S_EQ, size(0, 1), stride(1, 0)), op(N.S_LT, size(0, 1), const(N.S_SIZE)))
    assert sizes_read(program) == [SizeRead(N.S_SIZE, 0, 1), SizeRead(N.S_STRIDE, 1, 0)]


def test_misses_in_words():
    def words(program, *values, n=2):
        guards = [any_tensor(source) for source in (X, Y)[:n]] + [sizes(program, *(X, Y)[:n])]
        found = miss(guards, *values, *[None] * (3 - len(values)))
        assert (
            found.text == f"{found.expected}, but {found.actual}"
            and found.source_name == "x"
            and found.user_line == LINE
        )
        assert found.expected == guards[-1].text
        return found.text

    a, b = torch.zeros(1, 6), torch.zeros(3, 5)
    assert words(WORDS["x.size(0) >= 2"], a, n=1) == "x.size(0) >= 2, but x.size(0) is 1"
    assert (
        words(WORDS["x.size(0) == y.size(1)"], a, b) == "x.size(0) == y.size(1), but x.size(0) is 1 and y.size(1) is 5"
    )
    assert (
        words(WORDS["x.stride(0) == x.size(1) * 64"], a, n=1)
        == "x.stride(0) == x.size(1) * 64, but x.stride(0) is 6 and x.size(1) is 6"
    )
    assert words(WORDS["1 == 2"], a, n=1) == "1 == 2, but that never holds"
    assert (
        miss([any_tensor(X), any_tensor(Y), sizes(WORDS["x.size(0) == y.size(1)"], X, Y)], torch.zeros(5, 5), b, None)
        is None
    )


def test_misses_by_what_is_no_such_tensor():
    def words(program, value):
        return miss([sizes(program, X)], value, None, None).text

    at_least = WORDS["x.size(0) >= 2"]
    assert words(at_least, 3) == "x.size(0) >= 2, but x is of type int"
    assert words(at_least, None) == "x.size(0) >= 2, but x is of type NoneType"
    assert words(at_least, torch.zeros(())) == "x.size(0) >= 2, but x has 0 dimensions"
    strides = op(N.S_EQ, stride(0, 0), const(2))
    assert words(strides, torch.zeros(2, 2).to_sparse_csr()) == "x.stride(0) == 2, but x has no strides"
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert words(at_least, nested) == "x.size(0) >= 2, but x has no sizes"
    assert (
        miss([any_tensor(X)], nested, None, None).text
        == "tensor 'x': a tensor with sizes was expected, got one without"
    )


def test_conditions_are_checked_after_their_tensors():
    module = torch.nn.Linear(4, 6)
    guards = [
        sizes(op(N.S_EQ, size(0, 0), size(1, 1)), Z, X),
        any_tensor(X),
        Guard(Z, N.C_TENSOR, (module.weight, ALL, ALL)),
    ]
    assert lower(guards).check((torch.zeros(1, 6), None, module), f)
    assert (
        miss(guards, torch.zeros(1, 5), None, module).text
        == "m.weight.size(0) == x.size(1), but m.weight.size(0) is 6 and x.size(1) is 5"
    )
    assert miss(guards, torch.zeros(1, 5).double(), None, module).source_name == "x"


def test_equal_conditions_are_checked_once():
    x = torch.zeros(4, 4)
    condition = WORDS["x.size(0) == y.size(1)"]
    guards = [
        Guard(X, N.C_TENSOR, (x, 1, 0)), Guard(X, N.C_TENSOR, (x, 1, 0)), any_tensor(Y), sizes(condition, X, Y),
        sizes(tuple(list(condition)), X, Y),
    ]
    size_before = lower(guards[:3]).size
    assert lower(guards).size == size_before + 3  # the two records, and one condition
    assert len({g.key() for g in guards}) == 3
    others = [
        sizes(condition, Y, X), sizes(op(N.S_EQ, size(0, 0), size(1, 0)), X, Y), Guard(X, N.C_TENSOR, (x, 1, 1)),
        Guard(X, N.C_TENSOR, x),
    ]
    assert len({g.key() for g in (*guards, *others)}) == 7


def test_a_malformed_condition_is_refused():
    with pytest.raises(ValueError, match="tensor 1 of 1"):
        lower([sizes(size(1, 0), X)])


def test_free_dimensions_in_words():
    x = torch.zeros(4, 64)
    assert describe_tensor((x, 0b01, 0b00)) == "float32[*, 64] on cpu, strides (64, 1)"
    assert describe_tensor((x, 0b01)) == "float32[*, 64] on cpu, strides (*, 1)"
    assert describe_tensor((x, 0b11, 0b11)) == "float32[*, *] on cpu, strides (*, *)"
    assert describe_tensor(x) == "float32[4, 64] on cpu, strides (64, 1)"
    assert describe_tensor((torch.zeros(3), 1, 1)) == "float32[*] on cpu, strides (*,)" and describe_tensor(
        torch.zeros(3)
    ).endswith("strides (1,)")
    assert describe_tensor(torch.zeros(())) == "float32[] on cpu, strides ()"
    assert Guard(X, N.C_TENSOR, (x, 1, 0)).text == "tensor x: float32[*, 64] on cpu, strides (64, 1)"
    facts = record(Guard(X, N.C_TENSOR, (x, 1, 2))).expected
    assert facts == TensorFacts("Tensor", "float32", "cpu", (4, 64), (64, 1), False, 1, 2)


def test_a_free_dimension_is_not_blamed():
    guards = [Guard(X, N.C_TENSOR, (torch.zeros(4, 6), 0b01, 0b00))]

    def words(value):
        return miss(guards, value, None, None).text

    assert miss(guards, torch.zeros(9, 6), None, None) is None
    assert words(torch.zeros(9, 7)) == "tensor 'x': size 6 was expected at dimension 1, got 7"
    assert words(torch.zeros(9, 12)[:, ::2]) == "tensor 'x': stride 6 was expected at dimension 0, got 12"
    assert words(torch.zeros(9, 6).double()) == "tensor 'x': dtype float32 was expected, got float64"
    free_strides = [Guard(X, N.C_TENSOR, (torch.zeros(4, 6), 0b11, 0b01))]
    assert (
        miss(free_strides, torch.zeros(9, 7).t(), None, None).text
        == "tensor 'x': stride 1 was expected at dimension 1, got 7"
    )


def test_rendering():
    guards = [Guard(X, N.C_TENSOR, (torch.zeros(4, 6), 1, 0), user_line=LINE), sizes(WORDS["x.size(0) >= 2"], X)]
    assert render(guards).splitlines() == [
        "2 guards",
        "└─ x",
        "   ├─ tensor x: float32[*, 6] on cpu, strides (6, 1)  # model.py:12",
        "   └─ x.size(0) >= 2                                  # model.py:12",
    ]
