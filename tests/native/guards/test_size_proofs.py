"""Conditions on sizes in guard trees that remember a short proof."""

from __future__ import annotations

import gc
import random

import torch
from size_support import (
    ALL,
    A,
    C,
    Part,
    S,
    attribute,
    const,
    dict_tree,
    eq,
    op,
    padding,
    python_value,
    random_program,
    relation,
    size,
)

from native_support import arg, node, tree


def agree(built, flat):
    expected = built.explain(flat, None) is None
    for _ in range(6):
        assert built.check(flat, None) is expected
    return expected


def test_free_sizes_behind_a_proof():
    obj = Part(w=torch.zeros(4, 6))
    built = dict_tree(["w"], [], const(1), (0b01, 0b00))
    assert agree(built, (obj,)) and sum(built.memos) > 0
    for shape, fits in [((9, 6), True), ((4, 7), False), ((1, 6), True), ((6,), False), ((0, 6), True)]:
        before = sum(built.memos)
        obj.w.resize_(*shape)
        assert agree(built, (obj,)) is fits
        assert not fits or sum(built.memos) > before
    obj.w = torch.zeros(4, 12)[:, ::2]
    assert not agree(built, (obj,))
    obj.w = torch.zeros(8, 6)
    assert agree(built, (obj,))


def test_sizes_change_in_place_behind_a_proof():
    obj = Part(a=torch.zeros(4, 6), b=torch.zeros(6, 4))
    built = dict_tree(["a", "b"], [], eq(size(0, 0), size(1, 1)))
    assert agree(built, (obj,)) and sum(built.memos) > 0
    served = 0
    for a, b in [(5, 5), (5, 4), (4, 5), (3, 3), (0, 0), (0, 1)]:
        obj.a.resize_(a, 6)
        obj.b.resize_(6, b)
        assert agree(built, (obj,)) is (a == b)
        served += sum(built.memos) > 0
    assert served == 6


def test_arguments_of_many_sizes_behind_a_proof():
    obj = Part(w=torch.zeros(4, 6))
    x = arg(1, (C.C_TENSOR, (torch.zeros(4, 6), ALL, ALL)), (C.C_RECORD, 1))
    built = dict_tree(["w"], [x], op(S.S_MIN, eq(size(0, 0), size(1, 1)), op(S.S_LT, const(1), size(1, 0))))
    assert agree(built, (obj, torch.zeros(3, 4)))
    before = sum(built.memos)
    for n in range(6):
        for m in range(2, 7):
            assert agree(built, (obj, torch.zeros(n, m))) is (m == 4 and n >= 2)
        assert not agree(built, (obj, torch.zeros(4))) and not agree(built, (obj, None)) and not agree(built, (obj,))
    assert sum(built.memos) > before + 100  # one proof for all sizes of the argument


def test_a_proof_over_values_that_need_python():
    class Computed:
        sizes = 4, 6

        @property
        def w(self):
            return torch.zeros(*self.sizes)

    made, obj = Computed(), Part(a=torch.zeros(6, 4))
    child = attribute("w", (C.C_TENSOR, (torch.zeros(4, 6), ALL, ALL)), (C.C_RECORD, 1))
    built = dict_tree(["a"], [arg(1, (C.C_TYPE, Computed), children=[child])], eq(size(0, 1), size(1, 0)))
    for sizes in [(4, 6), (5, 6), (4, 1), (3, 3)] * 3:
        Computed.sizes = sizes
        assert agree(built, (obj, made)) is (sizes[0] == 4)
    assert sum(built.memos) > 0


def test_a_remembered_tensor_dies_in_the_middle_of_a_check():
    """Python in a guard takes the tensor out of its place, after the place has been compared and before the condition
    is checked."""
    obj, taken = Part(a=torch.zeros(4, 6)), []

    def take(value):
        if taken:
            obj.__dict__["a"] = None
            gc.collect()
            taken.append([torch.zeros(9, 9) for _ in range(8)])
        return True

    built = tree(
        arg(
            0,
            (C.C_TYPE, Part),
            children=[
                node(A.A_DICT, None, children=[node(A.A_KEY, "a", (C.C_TENSOR, (obj.a, ALL, ALL)), (C.C_RECORD, 0))])
            ],
        ),
        padding(),
        arg(1, (C.C_PY, take)),
        relation(eq(size(0, 0), const(4))),
        n_records=1,
    )
    for _ in range(20):
        taken.clear()
        obj.a = torch.zeros(4, 6)
        assert agree(built, (obj, 1))
        taken.append(None)
        built.check((obj, 1), None)
        assert obj.a is None and not built.check((obj, 1), None)


def test_random_sizes_behind_proofs():
    chance = random.Random(3)
    names = "abcd"
    outcomes = [0, 0]
    for _ in range(12):
        objs = [Part(**{n: torch.zeros(chance.randrange(1, 4), 6) for n in names}) for _ in range(3)]
        examples = [torch.zeros(2, 6)] * 5
        x = arg(1, (C.C_TENSOR, (torch.zeros(4, 6), ALL, ALL)), (C.C_RECORD, 4))
        program = op(
            S.S_NOT, op(S.S_LT, random_program(chance, 3, examples), random_program(chance, 3, examples))
        )
        built = dict_tree(names, [x], program)
        for _ in range(40):
            obj = chance.choice(objs)
            name = chance.choice(names)
            if chance.random() < 0.5:
                getattr(obj, name).resize_(chance.randrange(5), 6)
            else:
                setattr(obj, name, torch.zeros(6, chance.randrange(5)).t())
            flat = (obj, torch.zeros(chance.randrange(4), chance.randrange(4)))
            tensors = [*(getattr(obj, n) for n in names), flat[1]]
            assert agree(built, flat) is bool(python_value(program, tensors))
            outcomes[agree(built, flat)] += 1
    assert min(outcomes) > 30
