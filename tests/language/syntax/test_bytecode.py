"""Code objects taken apart and put together again are what they were; the variables in them are told apart."""
import ast
import dis
import json
import os
import sysconfig
import textwrap
import types
import warnings

import pytest
import torch

from framejit.bytecode.assemble import assemble
from framejit.bytecode.decode import decode
from framejit.bytecode.disassemble import disassemble
from framejit.bytecode.instr import Location
from framejit.bytecode.tables import encode_locations

from support import TEST_BACKEND, check

LIBRARY = sysconfig.get_path("stdlib")


def put_together(code):
    same = assemble(
        disassemble(code),
        code,
        variables=code.co_varnames,
        argcount=code.co_argcount,
        cells=code.co_cellvars,
        free=code.co_freevars,
        stacksize=code.co_stacksize,
    )
    assert same.co_code == code.co_code
    assert same.co_exceptiontable == code.co_exceptiontable
    # the same table in most cases: its reading takes longer than writing it
    assert same.co_linetable == code.co_linetable or list(same.co_positions()) == list(code.co_positions())
    return same


def codes_of(path):
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waiting = [compile(file.read(), path, "exec")]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [const for const in code.co_consts if isinstance(const, types.CodeType)]


@pytest.mark.parametrize("module", [ast, dis, json.decoder, textwrap, types])
def test_a_module_is_put_together_again(module):
    for code in codes_of(module.__file__):
        assert put_together(code) == code


@pytest.mark.slow
@pytest.mark.skipif(TEST_BACKEND != "eager", reason="no backend has a part in it, and it takes half a minute")
def test_the_library_is_put_together_again():
    count = 0
    for folder, _, names in os.walk(LIBRARY):
        if "site-packages" in folder or "lib2to3" in folder:
            continue
        for name in sorted(names):
            try:
                codes = list(codes_of(os.path.join(folder, name))) if name.endswith(".py") else []
            except (SyntaxError, ValueError, RecursionError, OSError, MemoryError):  # tests of the compiler
                continue
            for code in codes:
                assert put_together(code) == code, f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
            count += len(codes)
    assert count > 10_000


def test_long_jumps_and_many_constants():
    body = "\n".join(f"        x = x + {i}.5 if x else {i}" for i in range(700))
    namespace = {}
    exec(f"def fn(x):\n    for _ in range(2):\n{body}\n    return x", namespace)
    code = namespace["fn"].__code__
    assert any(ins.opname == "EXTENDED_ARG" for ins in dis.get_instructions(code))
    assert put_together(code) == code


@pytest.mark.parametrize(
    "places",
    [[(5, 5, 0, 1)], [(5, 9, 300, 2)], [(90, 90, 0, 200), (3, 3, 0, 1)], [(5, None, None, None), None, (5, 5, 1, 2)]],
)
def test_positions(places):
    def fn():
        pass

    locations = [None if place is None else Location(*place) for place in places]
    raw = bytes((dis.opmap["NOP"], 0)) * 20 * len(places)
    made = fn.__code__.replace(
        co_code=raw,
        co_linetable=encode_locations(locations, [20] * len(places), fn.__code__.co_firstlineno),
        co_exceptiontable=b"",
    )
    expected = [
        (None,) * 4 if place is None else (place[0], place[0] if place[1] is None else place[1], *place[2:])
        for place in places
        for _ in range(20)
    ]
    assert list(made.co_positions()) == expected


X = torch.arange(6.0)


def test_a_comprehension_has_a_variable_called_like_a_free_one():
    item = 3

    def fn(x):
        made = [lambda: item for item in range(2)]  # noqa: B023
        plain = [item + 1 for item in range(3)]
        y = x * item + plain[-1]
        if y.sum() > 0:
            y = y + item
        return y, [f() for f in made], item, sum(item for item in plain)

    decode(fn.__code__)
    assert put_together(fn.__code__) == fn.__code__
    check(fn, X, breaks=None, graphs=None)
    item = 4
    check(fn, X, breaks=None, graphs=None)


def test_a_break_inside_such_a_comprehension():
    item = 3

    def fn(x):
        made = [(lambda: item + y.sum().item())() + item for item in range(2) for y in [x + item]]
        return x * item, made, item

    check(fn, X, breaks=None, graphs=None)
