"""Programs over sizes and strides in guards: what they compute is what Python computes."""

from __future__ import annotations

import random

import pytest
import torch
from size_support import (
    ALL,
    GREATEST,
    LEAST,
    A,
    C,
    Plain,
    S,
    condition,
    const,
    eq,
    holds,
    op,
    python_value,
    random_program,
    relation,
    size,
    stride,
)

from native_support import arg, node, tree


def evaluates(program):
    """A condition that is true of whatever a program gives, and fails where it fails."""
    return op(S.S_MAX, const(1), program)


def value_is(program, expected):
    """Whether a program without tensors gives a number; a program that fails gives none."""
    return tree(relation(eq(program, const(expected)), 0)).check((), None)


def fails(program):
    """Neither true nor false."""
    return not tree(relation(evaluates(program), 0)).check((), None)


def test_random_programs_agree_with_python(way):
    chance = random.Random(11)
    tensors = (
        torch.zeros(3, 8), torch.zeros(5, 7, 2).transpose(0, 2), torch.zeros(()),
        torch.zeros(1, 2, 3, 2, 3, 2, 3)[..., ::2], torch.zeros(0, 4),
    )
    outcomes = {"value": 0, "none": 0}
    for _ in range(1500):
        program = random_program(chance, chance.randrange(5), tensors)
        expected = python_value(program, tensors)
        built = [condition(p, *tensors) for p in (program, op(S.S_NOT, program), eq(program, const(expected or 0)))]
        verdicts = [b.check(tensors, None) for b in built]
        if expected is None:
            assert verdicts == [False] * 3, program
        else:
            assert verdicts == [expected != 0, expected == 0, True], (program, expected)
        outcomes["none" if expected is None else "value"] += 1
    assert min(outcomes.values()) > 100


NUMBERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 10, GREATEST, GREATEST - 1, LEAST, LEAST + 1]


@pytest.mark.parametrize("name", ["FLOORDIV", "MOD", "ADD", "MUL"])
def test_arithmetic_at_the_edges(name):
    operation = getattr(S, f"S_{name}")
    for a in NUMBERS:
        for b in NUMBERS:
            program = op(operation, const(a), const(b))
            expected = python_value(program, ())
            if expected is None:
                assert fails(program), (a, b)
            else:
                assert value_is(program, expected) and not fails(program), (a, b, expected)


def test_rounding_is_towards_minus_infinity():
    for a, b, quotient, remainder in [
        (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (-8, 2, -4, 0), (LEAST, 3, -3074457345618258603, 1),
    ]:
        assert value_is(op(S.S_FLOORDIV, const(a), const(b)), quotient) and value_is(
            op(S.S_MOD, const(a), const(b)), remainder
        )
    assert fails(op(S.S_FLOORDIV, const(LEAST), const(-1))) and value_is(op(S.S_MOD, const(LEAST), const(-1)), 0)


def test_all_operands_are_evaluated():
    broken = op(S.S_MOD, const(1), const(0))
    assert fails(op(S.S_MUL, const(0), broken)) and fails(op(S.S_MAX, broken, const(1))) and fails(op(S.S_NOT, broken))


@pytest.mark.parametrize(
    "payload, error, words",
    [
        (3, TypeError, "pair"),
        (((0,),), TypeError, "pair"),
        (((0,), (S.S_CONST, 1), 0), TypeError, "pair"),
        (([0], (S.S_CONST, 1)), TypeError, "pair"),
        (((0,), [S.S_CONST, 1]), TypeError, "tuple of ints, not list"),
        (((0,), (S.S_CONST, 1.0)), TypeError, "item 1 is of type float"),
        (((0,), (S.S_CONST, True)), TypeError, "item 1 is of type bool"),
        (((0,), ("SIZE", 0, 0)), TypeError, "item 0 is of type str"),
        (((0,), (S.S_CONST, 2**63)), ValueError, "item 1 .* 64 bits"),
        (((0,), ()), ValueError, "leaves 0"),
        (((0,), (S.S_CONST,)), ValueError, "a constant is expected"),
        (((0,), (S.S_SIZE, 0)), ValueError, "a dimension is expected"),
        (((0,), (S.S_STRIDE,)), ValueError, "position of a tensor is expected"),
        (((0,), (99,)), ValueError, "unknown operation 99 at item 0"),
        (((0,), (-1,)), ValueError, "unknown operation -1"),
        (((0,), (S.S_SIZE, 1, 0)), ValueError, "tensor 1 of 1"),
        (((0,), (S.S_SIZE, -1, 0)), ValueError, "tensor -1 of 1"),
        (((0,), (S.S_SIZE, 0, -1)), ValueError, "dimension -1"),
        (((0,), (S.S_CONST, 1, S.S_ADD)), ValueError, "item 2 .* 2 operands, and there are 1"),
        (((0,), (S.S_NOT,)), ValueError, "1 operands, and there are 0"),
        (((0,), (S.S_CONST, 1, S.S_CONST, 1)), ValueError, "leaves 2"),
        (((0,), (S.S_CONST, 1) * 65 + (S.S_ADD,) * 64), ValueError, "more than 64 numbers"),
        (((1,), (S.S_CONST, 1)), ValueError, "record slot 1"),
        ((("a",), (S.S_CONST, 1)), TypeError, "integer"),
        (((0,) * 65, (S.S_CONST, 1)), ValueError, "at most 64 tensors"),
    ],
)
def test_malformed_conditions_are_refused(payload, error, words):
    with pytest.raises(error, match=words):
        tree(arg(0, (C.C_RECORD, 0)), node(A.A_STATE, None, (C.C_SIZES, payload)), n_records=1)


def test_the_greatest_depth():
    ones = (S.S_CONST, 1) * 63
    assert value_is(ones + (S.S_ADD,) * 62, 63)  # one number of the 64 is what it is compared with
    assert value_is(op(S.S_LT, const(62), ones + (S.S_ADD,) * 62), 1)


def test_dimensions_that_a_tensor_lacks(way):
    x, scalar = torch.zeros(2, 3), torch.zeros(())
    built = tree(arg(0, (C.C_RECORD, 0)), relation(evaluates(size(0, 1))), n_records=1)
    assert built.check((x,), None) and not built.check((scalar,), None) and not built.check((torch.zeros(5),), None)
    assert not holds(evaluates(size(0, 2**40)), x)


def test_values_that_are_no_readable_tensors(way):
    anything = [evaluates(size(0, 0)), evaluates(stride(0, 0))]
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    sparse = torch.zeros(4, 6).to_sparse_csr()
    # a compressed tensor has sizes but no strides, a nested one neither
    for program, readable in zip(anything, (True, False)):
        built = tree(arg(0, (C.C_RECORD, 0)), relation(program), n_records=1)
        for value in (None, 3, "x", (2, 3), torch.Size([2]), torch.float32, torch.zeros(2).numpy(), type, torch.Tensor):
            assert not built.check((value,), None)
        assert built.check((torch.zeros(2),), None)
        assert [built.check((t,), None) for t in (sparse, nested)] == [readable, False]
        guarded = condition(program, sparse)
        assert guarded.check((sparse,), None) is readable and not guarded.check((torch.zeros(4, 6),), None)


def test_a_slot_that_was_never_filled():
    built = tree(relation(evaluates(size(0, 0))), n_records=1)
    assert not built.check((), None) and built.explain((), None) == (1, (None,), False)


def test_sizes_and_strides_of_all_ranks(way):
    for dims in range(1, 10):
        t = torch.zeros(*range(2, dims + 2))[..., ::2].transpose(0, -1)
        for d in range(dims):
            for other in (torch.empty_like(t), t):
                assert condition(eq(size(0, d), const(t.size(d))), t).check((other,), None)
            assert holds(eq(stride(0, d), const(t.stride(d))), t) and not holds(
                eq(stride(0, d), const(t.stride(d) + 1)), t
            )


def test_relations_between_tensors(way):
    x, y = torch.zeros(4, 6), torch.zeros(5, 4)
    built = condition(eq(size(0, 0), size(1, 1)), x, y)
    assert built.check((x, y), None) and built.check((torch.zeros(9, 1), torch.zeros(2, 9)), None)
    assert not built.check((torch.zeros(9, 1), y), None) and not built.check((y, x), None)
    assert built.explain((torch.zeros(9, 1), y), None)[0] == 2
    contiguous = condition(eq(stride(0, 0), op(S.S_MUL, size(0, 1), const(1))), x)
    assert contiguous.check((torch.zeros(7, 3),), None) and not contiguous.check((torch.zeros(7, 3).t(),), None)
    x.resize_(5, 6)
    assert not built.check((x, y), None)


def test_many_tensors(way):
    tensors = tuple(torch.zeros(i + 1, 2) for i in range(64))
    total = size(0, 0)
    for i in range(1, 64):
        total = op(S.S_ADD, total, size(i, 0))
    built = condition(eq(total, const(64 * 65 // 2)), *tensors)
    assert built.check(tensors, None) and not built.check((*tensors[:-1], tensors[0]), None)
    assert not built.check((*tensors[:-1], None), None)
    bare = tree(
        *(arg(i, (C.C_RECORD, i)) for i in range(64)), relation(eq(total, const(64 * 65 // 2)), 64), n_records=64
    )
    assert bare.check(tensors, None) and not bare.check((*tensors[:-1], None), None)


def test_explaining_gives_the_tensors():
    x, y = torch.zeros(4, 6), torch.zeros(5, 4)
    built = condition(eq(size(1, 0), size(0, 0)), x, y)
    guard_id, values, failed_access = built.explain((x, y), None)
    assert guard_id == 2 and values[0] is x and values[1] is y and not failed_access


class Liar(torch.Tensor):
    """Its sizes are what Python says."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__self__", None) is torch.Tensor.shape:
            return torch.Size([100, 100])
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses(way):
    plain = torch.zeros(4, 6).as_subclass(Plain)
    assert holds(eq(size(0, 0), const(4)), plain) and not holds(eq(size(0, 0), const(5)), plain)
    liar = torch.zeros(4, 6).as_subclass(Liar)
    assert liar.shape == (100, 100)
    assert holds(eq(size(0, 0), const(100)), liar) and not holds(eq(size(0, 0), const(4)), liar)


def test_symbols_are_no_free_sizes(way):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode() as mode:
        fixed = mode.from_tensor(torch.zeros(4, 6))
    symbols = ShapeEnv()
    with FakeTensorMode(shape_env=symbols):
        unknown = symbols.create_unbacked_symint()
        torch._check(unknown >= 2)
        symbolic = torch.empty(unknown, 6)
    assert type(symbolic.shape[0]) is torch.SymInt
    free = tree(arg(0, (C.C_TENSOR, (fixed, ALL, ALL))))
    assert free.check((fixed,), None) and not free.check((symbolic,), None)
    bare = tree(arg(0, (C.C_RECORD, 0)), relation(evaluates(size(0, 0))), n_records=1)
    assert bare.check((fixed,), None) and not bare.check((symbolic,), None)
