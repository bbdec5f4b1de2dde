"""Programs over sizes and strides, and conditions of them."""

from __future__ import annotations

import torch

import framejit.guards.tensor_layout  # noqa: F401  needed by tensor guards
from framejit import _native as native

from native_support import arg, node, tree

A, C, S = native, native, native
LEAST, GREATEST = -(2**63), 2**63 - 1
ALL = (1 << 64) - 1
FUNCTIONS = {
    S.S_ADD: lambda a, b: a + b,
    S.S_MUL: lambda a, b: a * b,
    S.S_FLOORDIV: lambda a, b: a // b,
    S.S_MOD: lambda a, b: a % b,
    S.S_MIN: min,
    S.S_MAX: max,
    S.S_EQ: lambda a, b: int(a == b),
    S.S_LT: lambda a, b: int(a < b),
}


def size(tensor, dim):
    return (S.S_SIZE, tensor, dim)


def stride(tensor, dim):
    return (S.S_STRIDE, tensor, dim)


def const(value):
    return (S.S_CONST, value)


def op(operation, *operands):
    return (*(item for operand in operands for item in operand), operation)


def eq(a, b):
    return op(S.S_EQ, a, b)


def relation(program, n=1):
    return node(A.A_STATE, None, (C.C_SIZES, (tuple(range(n)), program)), guard_id=n)


def condition(program, *examples):
    """A tree that checks the condition on as many arguments as there are examples, whose sizes and strides are free."""
    args = [arg(i, (C.C_TENSOR, (example, ALL, ALL)), (C.C_RECORD, i)) for i, example in enumerate(examples)]
    return tree(*args, relation(program, len(examples)), n_records=len(examples))


def holds(program, *tensors):
    return condition(program, *tensors).check(tensors, None)


def python_value(program, tensors):
    """The number, or None where the native evaluator has to fail."""
    stack, items = [], iter(program)
    for o in items:
        if o in (S.S_SIZE, S.S_STRIDE):
            t, d = tensors[next(items)], next(items)
            if d >= t.dim():
                return None
            stack.append(t.size(d) if o == S.S_SIZE else t.stride(d))
        elif o == S.S_CONST:
            stack.append(next(items))
        elif o == S.S_NOT:
            stack.append(int(not stack.pop()))
        else:
            b, a = stack.pop(), stack.pop()
            if b == 0 and o in (S.S_FLOORDIV, S.S_MOD):
                return None
            stack.append(FUNCTIONS[o](a, b))
        if not LEAST <= stack[-1] <= GREATEST:
            return None
    (value,) = stack
    return value


def random_program(chance, depth, tensors):
    kind = chance.random()
    if depth == 0 or kind < 0.2:
        t = chance.randrange(len(tensors))
        d = chance.randrange(tensors[t].dim() + (chance.random() < 0.05)) if tensors[t].dim() else 0
        edge = chance.choice(
            [0, 1, -1, 2, 3, -7, 8, 64, 2**31, -(2**32), 2**62, LEAST, GREATEST, chance.randrange(-100, 100)]
        )
        return chance.choice([size(t, d), size(t, d), stride(t, d), const(edge)])
    if kind < 0.27:
        return op(S.S_NOT, random_program(chance, depth - 1, tensors))
    return op(
        chance.choice(list(FUNCTIONS)),
        random_program(chance, depth - 1, tensors),
        random_program(chance, depth - 1, tensors),
    )


class Plain(torch.Tensor):
    pass


def attribute(name, *checks):
    return node(A.A_ATTR, name, *checks)


class Part:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def padding():
    names = {f"n{i}": i for i in range(16)}
    return node(A.A_CONST, names, children=[node(A.A_KEY, k, (C.C_EQUALS, v)) for k, v in names.items()])


def dict_tree(names, roots, program, free=(ALL, ALL), n=None):
    """Attributes of argument 0 are the first tensors of the program, arguments that `roots` adds the others."""
    example = torch.zeros(4, 6)
    children = [node(A.A_KEY, name, (C.C_TENSOR, (example, *free)), (C.C_RECORD, i)) for i, name in enumerate(names)]
    owner = arg(0, (C.C_TYPE, Part), children=[node(A.A_DICT, None, children=children)])
    n = len(names) + len(roots)
    return tree(*roots, owner, padding(), relation(program, n), n_records=n)
