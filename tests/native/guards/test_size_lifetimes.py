"""Conditions on sizes: values that nothing else keeps, memory, and threads."""

from __future__ import annotations

import gc
import random
import sys
import threading
import tracemalloc
import weakref

import pytest
import torch
from size_support import (
    ALL,
    A,
    C,
    Part,
    Plain,
    S,
    attribute,
    condition,
    const,
    dict_tree,
    eq,
    op,
    padding,
    relation,
    size,
)

from native_support import arg, node, tree


class Maker:
    """Makes a tensor at each look, and leaves rubbish in the place of the last one."""

    def __init__(self, *dims):
        self.dims = dims

    @property
    def fresh(self):
        return torch.zeros(*self.dims).as_subclass(Plain)

    @property
    def rubbish(self):
        return [object() for _ in range(50)]


@pytest.mark.parametrize("guarded", [False, True])
def test_tensors_that_die_as_soon_as_they_are_read(way, guarded):
    """The condition is checked after the values of the other branches have been let go of."""
    checks = [(C.C_TENSOR, (Maker(4, 6).fresh, ALL, ALL))] if guarded else []
    children = [
        attribute("fresh", *checks, (C.C_RECORD, 0)),
        attribute("rubbish", (C.C_TYPE, list)),
        attribute("fresh", *checks, (C.C_RECORD, 1)),
    ]
    for pad in ([], [padding()]):
        built = tree(
            arg(0, (C.C_TYPE, Maker), children=children), *pad, relation(eq(size(0, 0), size(1, 1)), 2), n_records=2
        )
        for _ in range(20):
            assert built.check((Maker(4, 4),), None) and not built.check((Maker(4, 5),), None)
            assert [t.shape for t in built.explain((Maker(4, 5),), None)[1]] == [(4, 5)] * 2
    gc.collect()


def test_python_that_resizes_while_a_condition_is_read():
    class Resizing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if other is not None:
                other.resize_(*(2,) * 9)
            return super().__torch_function__(func, types, args, kwargs or {})

    other = None
    first = torch.zeros(3).as_subclass(Resizing)
    roots = [
        arg(1, (C.C_TENSOR, (torch.zeros((1,) * 9), ALL, ALL)), (C.C_RECORD, 0)),
        arg(0, (C.C_RECORD, 1)),
        relation(eq(size(0, 8), size(1, 0)), 2),
    ]
    built = tree(*roots, n_records=2)
    for _ in range(50):
        other = torch.zeros(*(1,) * 8, 3)
        assert not built.check((first, other), None)
        assert other.shape == (2,) * 9


def test_nothing_leaks(way):
    x, y = torch.zeros(4, 6).as_subclass(Plain), torch.zeros(6, 4)
    program = eq(size(0, 0), size(1, 1))
    obj = Part(a=torch.zeros(4, 6))
    built = [
        condition(program, x, y),
        tree(arg(0, (C.C_RECORD, 0)), arg(1, (C.C_RECORD, 1)), relation(program, 2), n_records=2),
        tree(
            arg(0, (C.C_PY, lambda v: True), (C.C_RECORD, 0)), arg(1, (C.C_RECORD, 1)), padding(),
            relation(program, 2), n_records=2,
        ),
    ]
    remembered = dict_tree(["a"], [arg(1, (C.C_TENSOR, (x, ALL, ALL)), (C.C_RECORD, 1))], eq(size(0, 0), size(1, 0)))
    failing = [
        condition(eq(size(0, 0), size(1, 0)), x, y),
        tree(arg(0, (C.C_RECORD, 0)), relation(eq(size(0, 5), const(1))), n_records=1),
    ]

    def counts():
        gc.collect()
        return [sys.getrefcount(o) for o in (x, y, Plain, obj, obj.a, None, program)]

    def work(times):
        for _ in range(times):
            assert all(b.check((x, y), None) for b in built) and not any(b.check((x, y), None) for b in failing)
            assert all(b.explain((x, y), None)[1][0] is x for b in failing)
            assert remembered.check((obj, x), None)

    work(10)
    before = counts()
    work(500)
    after = counts()
    assert [abs(a - b) < 20 for a, b in zip(before, after)] == [True] * 7  # None is used elsewhere, too
    assert before[:5] == after[:5]


def test_a_tree_goes_with_what_it_holds():
    class Short(torch.Tensor):
        pass

    example = torch.zeros(2).as_subclass(Short)
    gone = weakref.ref(Short)
    built = condition(eq(size(0, 0), const(2)), example)
    assert built.check((example,), None)
    for bad in ((S.S_CONST, 1.0), (S.S_SIZE, 7, 0)):
        with pytest.raises((TypeError, ValueError)):
            condition(bad, example)
    del example, built, Short
    gc.collect()
    assert gone() is None


def test_construction_gives_its_memory_back():
    example = torch.zeros(4, 6)
    payloads = [
        ((0,), eq(size(0, 0), const(4))), ((0,), (S.S_CONST, 1.0)), ((0,), (S.S_CONST, 1) * 300),
        ((9,), (S.S_CONST, 1)), ((0,), 3),
    ]

    def make(times):
        for _ in range(times):
            for payload in payloads:
                try:
                    tree(
                        arg(0, (C.C_TENSOR, example), (C.C_RECORD, 0)),
                        node(A.A_STATE, None, (C.C_SIZES, payload)),
                        n_records=1,
                    )
                except (TypeError, ValueError):
                    pass
        gc.collect()

    tracemalloc.start()
    try:
        make(50)
        before = tracemalloc.get_traced_memory()[0]
        make(500)
        assert tracemalloc.get_traced_memory()[0] - before < 10_000  # bytes; one program a turn would be 80,000
    finally:
        tracemalloc.stop()


def test_threads_share_a_condition():
    program = op(S.S_MIN, eq(size(0, 0), size(1, 1)), eq(op(S.S_MOD, size(0, 1), const(8)), const(0)))
    example = torch.zeros(4, 6)
    obj = Part(a=torch.zeros(4, 8))
    made = [
        condition(program, example, example),
        tree(
            arg(0, (C.C_RECORD, 0)), arg(1, (C.C_PY, lambda v: True), (C.C_RECORD, 1)), padding(),
            relation(program, 2), n_records=2,
        ),
    ]
    remembered = dict_tree(["a"], [arg(1, (C.C_TENSOR, (example, ALL, ALL)), (C.C_RECORD, 1))], program)
    failures = []

    def work(seed):
        chance = random.Random(seed)
        for _ in range(300):
            a, b, c, d = (chance.choice([1, 4, 8, 16]) for _ in range(4))
            x, y = torch.zeros(a, b), torch.zeros(c, d)
            expected = a == d and b % 8 == 0
            if any(built.check((x, y), None) is not expected for built in made):
                failures.append((a, b, c, d))
            if remembered.check((obj, y), None) is not (d == 4):
                failures.append(d)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
