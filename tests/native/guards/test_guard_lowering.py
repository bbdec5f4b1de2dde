"""Guards become a native tree: shared paths, cheap checks first, and misses told in words."""

from __future__ import annotations

import torch

from framejit import _native as native
from framejit.guards import tensor_layout
from framejit.guards.diff import explain_miss
from framejit.guards.guard import Guard, record
from framejit.guards.lower import lower
from framejit.guards.sources import ArgSource, AttrSource, CallSource, DictSource, StateSource, key_source
from framejit.guards.tree_text import render

X, Y, N = ArgSource(0, "x"), ArgSource(1, "y"), ArgSource(2, "n")
LINE = ("/home/me/model.py", 12)

assert tensor_layout.LAYOUT


def f(x, y, n):
    return None


def miss(guards, *args):
    return explain_miss([record(g) for g in guards], lower(guards), args, f)


def test_duplicates_and_implied_types_are_dropped():
    x = torch.zeros(2)
    guards = [
        Guard(X, native.C_TYPE, torch.Tensor), Guard(X, native.C_TENSOR, x), Guard(X, native.C_TENSOR, x),
        Guard(N, native.C_EQUALS, 3), Guard(N, native.C_EQUALS, 3),
    ]
    tree = lower(guards)
    assert tree.size == 2 and tree.check((x, None, 3), f) and not tree.check((x, None, 3.0), f)


def test_cheap_checks_fail_first():
    ran = []
    slow = CallSource(X, lambda v: ran.append("slow") or v)
    guards = [
        Guard(slow, native.C_EQUALS, 1),
        Guard(N, native.C_PY, lambda v: ran.append("python") or True),
        Guard(Y, native.C_EQUALS, 2),
    ]
    tree = lower(guards)
    assert not tree.check((1, 3, 0), f) and ran == []
    assert tree.check((1, 2, 0), f) and sorted(ran) == ["python", "slow"]


def test_a_value_is_checked_before_it_is_entered():
    class Trap:
        @property
        def inner(self):
            raise AssertionError("entered without a check")

    guards = [Guard(AttrSource(X, "inner"), native.C_EQUALS, 1), Guard(X, native.C_TYPE, int)]
    assert lower(guards).explain((Trap(), 0, 0), f)[0] == 1


def test_relations_come_after_all_values():
    guards = [Guard(X, native.C_DISTINCT, None, (Y, N)), Guard(AttrSource(X, "real"), native.C_SAME, None, (X,))]
    tree = lower(guards)
    assert tree.check((1, 2, 3), f)
    assert tree.explain((1, 2, 1), f) == (0, None, False) and miss(guards, True, 2, 3) is not None
    assert "same object" in miss(guards, 1, 2, 1).text


def test_a_failed_access_blames_the_guard_that_needs_it():
    deep = key_source(DictSource(AttrSource(X, "config")), "size")
    guards = [Guard(N, native.C_EQUALS, 1), Guard(deep, native.C_EQUALS, 4, user_line=LINE)]
    found = miss(guards, 3, 0, 1)
    assert found.text == "'x.config.size' cannot be read any more" and found.user_line == LINE


def test_tensor_misses_in_words():
    guards = [Guard(X, native.C_TENSOR, torch.zeros(4, 6), user_line=LINE)]
    others = {
        "tensor 'x': size 4 was expected at dimension 0, got 8": torch.zeros(8, 6),
        "tensor 'x': stride 6 was expected at dimension 0, got 1": torch.zeros(6, 4).t(),
        "tensor 'x': 2 dimensions were expected, got 1": torch.zeros(4),
        "tensor 'x': dtype float32 was expected, got float64": torch.zeros(4, 6).double(),
        "tensor 'x': device cpu was expected, got meta": torch.zeros(4, 6, device="meta"),
        "tensor 'x': requires_grad=False was expected, got requires_grad=True": torch.zeros(4, 6, requires_grad=True),
        "tensor 'x': a tensor was expected, got int": 3,
    }
    for text, value in others.items():
        found = miss(guards, value, 0, 0)
        assert found.text == text and found.source_name == "x" and found.user_line == LINE
    assert miss(guards, torch.ones(4, 6), 0, 0) is None
    complex_guard = [Guard(X, native.C_TENSOR, torch.zeros(2, dtype=torch.complex64))]
    assert "conj" in miss(complex_guard, torch.zeros(2, dtype=torch.complex64).conj(), 0, 0).text


def test_other_misses_in_words():
    def text(check, payload, value):
        return miss([Guard(N, check, payload)], 0, 0, value).text

    assert text(native.C_EQUALS, 3, 4) == "'n': 3 was expected, got 4"
    assert text(native.C_TYPE, int, "a") == "type of 'n': int was expected, got str"
    assert text(native.C_LEN, 2, [1]) == "length of 'n': 2 was expected, got 1"
    assert text(native.C_KEYS, ("a",), {"b": 1}) == "keys of 'n': ('a',) was expected, got ('b',)"
    assert text(native.C_ID, f, miss) == "'n' is another object than before"
    assert text(native.C_NO_KEY, "k", {"k": 1}) == "key 'k' of 'n' is present now"
    assert text(native.C_NO_ATTR, "real", 3) == "attribute 'real' of 'n' is present now"
    assert text(native.C_TRUTH, True, 0) == "truth of 'n': True was expected, got False"


def test_state_misses_in_words():
    guards = [Guard(StateSource(), native.C_STATE, native.snapshot_state())]
    with torch.no_grad():
        assert miss(guards, 0, 0, 0).text == "grad mode: True was expected, got False"
    with torch.autocast("cpu"):
        assert "autocast on cpu: off was expected, got torch.bfloat16" in miss(guards, 0, 0, 0).text
    assert miss(guards, 0, 0, 0) is None


def test_rendering():
    guards = [
        Guard(X, native.C_TYPE, torch.nn.Linear, user_line=LINE),
        Guard(key_source(DictSource(X), "training"), native.C_EQUALS, True, user_line=("/home/me/model.py", 7)),
        Guard(N, native.C_EQUALS, 3),
    ]
    assert render(guards).splitlines() == [
        "3 guards",
        "├─ x",
        "│  ├─ type of x is torch.nn.modules.linear.Linear  # model.py:12",
        "│  └─ x.training",
        "│     └─ x.training == True                        # model.py:7",
        "└─ n",
        "   └─ n == 3",
    ]
    assert render([]) == "0 guards"
