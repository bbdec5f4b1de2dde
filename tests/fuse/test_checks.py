"""What eager refuses raises in what is compiled, too, though the result be unused: dtypes without a kernel, numbers
that do not fit, checks of data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import framejit
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.origin import UNKNOWN
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering import accepted
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression, Symbol
from framejit.symbols.sym_node import symbolic


def outcome(function: Any, args: Any) -> tuple[str, str]:
    try:
        function(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def unused(operation: Any) -> Any:
    def program(*args: Any) -> Any:
        operation(*args)
        return args[0] + 1

    return program


def used(operation: Any) -> Any:
    def program(*args: Any) -> Any:
        return args[0] + 1, operation(*args)

    return program


REFUSED = {
    "xor of floats": (lambda x: x ^ x, lambda: (torch.ones(2),)),
    "index": (lambda x, i: x[i], lambda: (torch.ones(3), torch.tensor([9]))),
    "subtraction of bools": (lambda x: x - x, lambda: (torch.ones(2, dtype=torch.bool),)),
    "negative of bools": (lambda x: -x, lambda: (torch.ones(2, dtype=torch.bool),)),
    "lerp of dtypes": (lambda x, y: torch.lerp(x, y, 0.5), lambda: (torch.ones(2), torch.ones(2, dtype=torch.float64))),
    "relu of complex": (lambda x: x.relu(), lambda: (torch.ones(2, dtype=torch.complex64),)),
    "gelu of ints": (lambda x: F.gelu(x), lambda: (torch.ones(2, dtype=torch.int64),)),
    "image of ints": (lambda x: F.interpolate(x, scale_factor=2), lambda: (torch.ones(1, 2, 3, dtype=torch.int64),)),
    "range of bools": (lambda x: x + torch.arange(2, dtype=torch.bool), lambda: (torch.ones(2),)),
    "rows at bytes": (
        lambda i: F.embedding(i, torch.ones(300, 3)), lambda: (torch.ones(2, dtype=torch.uint8),)
    ),
    "in place into ints": (lambda x: x.clone().addcmul_(x, torch.tensor(0.75)), lambda: (torch.arange(3),)),
    "in place, broadcast": (lambda x: x.clone().eq_(torch.ones(3, 2)), lambda: (torch.ones(2),)),
    "in place, empty": (lambda x: x.clone().atan2_(torch.ones(4, 0)), lambda: (torch.ones(1, 0),)),
    "clamp overflow": (lambda x: x.clamp(min=300), lambda: (torch.ones(2, dtype=torch.uint8),)),
    "fill overflow": (lambda x: torch.full_like(x, 300), lambda: (torch.ones(2, dtype=torch.uint8),)),
    "full overflow": (lambda x: torch.full((2,), 300, dtype=torch.uint8), lambda: (torch.ones(2),)),
    "layer norm dtypes": (
        lambda x, w: F.layer_norm(x, (4,), w),
        lambda: (torch.ones(2, 4), torch.ones(4, dtype=torch.bfloat16)),
    ),
    "mean of ints": (lambda x: x.mean(), lambda: (torch.arange(3),)),
    "softmax of ints": (lambda x: x.softmax(0), lambda: (torch.arange(3),)),
    "var of ints": (lambda x: x.var(), lambda: (torch.arange(3),)),
    "division by zero": (lambda x, y: x // y, lambda: (torch.arange(3), torch.arange(3))),
    "modulo zero": (lambda x: x % 0, lambda: (torch.arange(3),)),
    "negative power": (lambda x: x**-1, lambda: (torch.arange(3),)),
    "cholesky": (torch.linalg.cholesky, lambda: (-torch.eye(2),)),
    "inv": (torch.linalg.inv, lambda: (torch.zeros(2, 2),)),
    "inverse": (torch.inverse, lambda: (torch.zeros(2, 2),)),
    "solve": (lambda x: torch.linalg.solve(x, torch.ones(2)), lambda: (torch.zeros(2, 2),)),
    "tensorinv": (lambda x: torch.linalg.tensorinv(x, ind=1), lambda: (torch.zeros(4, 2, 2),)),
    "one_hot": (lambda i: F.one_hot(i, 3), lambda: (torch.tensor([7]),)),
    "one_hot, negative": (lambda i: F.one_hot(i, 3), lambda: (torch.tensor([-1]),)),
    "assert_async": (lambda x: torch._assert_async(x.sum() > 100), lambda: (torch.ones(2),)),
    "gather": (lambda x, i: x.gather(0, i), lambda: (torch.ones(3), torch.tensor([3]))),
    "index_select": (lambda x, i: x.index_select(0, i), lambda: (torch.ones(3), torch.tensor([3]))),
    "embedding": (lambda i, w: F.embedding(i, w), lambda: (torch.tensor([5]), torch.ones(3, 2))),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (torch.ones(2, 3), torch.tensor([0, 4]))),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), lambda: (torch.ones(3), torch.tensor([3]))),
    "take": (lambda x, i: torch.take(x, i), lambda: (torch.ones(3), torch.tensor([3]))),
    "bce": (lambda x, t: F.binary_cross_entropy(x, t), lambda: (torch.full((2,), 2.0), torch.ones(2))),
    "as_strided": (lambda x: x.as_strided((8,), (1,)) * 1, lambda: (torch.ones(4),)),
    "as_strided, far": (lambda x: x.as_strided((2,), (1,), 7), lambda: (torch.ones(4),)),
    "slice_scatter, narrower": (lambda x, y: x.slice_scatter(y, 1, 0, 4), lambda: (torch.ones(4, 6), torch.ones(4, 3))),
    "slice_scatter, by rows": (lambda x, y: x.slice_scatter(y, 0, 1), lambda: (torch.ones(4, 6), torch.ones(1, 6))),
    "slice_scatter, of a row": (lambda x, y: x.slice_scatter(y, 0, 1), lambda: (torch.ones(4, 6), torch.ones(6))),
    "select, before the first dimension": (lambda x: x.select(-4, 1) + 1, lambda: (torch.ones(4, 6),)),
    "select, written": (lambda x: x.clone().select(-3, 0).add_(1), lambda: (torch.ones(4, 6),)),
    "multinomial": (lambda x: torch.multinomial(x, 1), lambda: (-torch.ones(4),)),
    "bitwise shift of floats": (lambda x: x << 1, lambda: (torch.ones(2, dtype=torch.bool) * 1.5,)),
    "bincount": (lambda x: torch.bincount(x, minlength=2), lambda: (torch.tensor([-1]),)),
    "constant": (lambda x: torch.linalg.inv(torch.zeros(2, 2)), lambda: (torch.ones(2, 2),)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", (used, unused))
def test_what_eager_refuses_raises(name: str, kind: Any) -> None:
    operation, args = REFUSED[name]
    program = kind(operation)
    expected = outcome(program, args())
    assert expected[0] != "nothing"
    compiled = framejit.optimize(program)
    for _ in range(2):
        assert outcome(compiled, args()) == expected


def test_images_are_enlarged_to_sizes_that_are_left_open() -> None:
    """To try it with other numbers would make whether it works depend on them."""
    conditions = Conditions()
    wanted = symbolic(Expression.of(Symbol("n", 12, (2, 1000))), conditions)
    with FakeTensorMode():
        image, made = (Value(torch.empty(1, 2, size, size)) for size in (6, 12))
    node = Node(torch.ops.aten.upsample_nearest2d.default, (image, [wanted, wanted]), {}, made, UNKNOWN)
    assert accepted.accepts(node) and not [*conditions]


CLAMPS = {
    "clamp": lambda x, low, high: x.clamp(low, high), "clip": torch.clip, "min": lambda x, low, high: x.clamp_min(low),
    "max": lambda x, low, high: torch.clamp_max(x, high), "in place": lambda x, low, high: x.clone().clamp_(low, high),
    "hardtanh": F.hardtanh,
}


def values(function: Any, *args: Any) -> Any:
    try:
        return function(*args).tolist()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CLAMPS)
@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int32))
def test_bounds_that_the_dtype_does_not_hold(name: str, dtype: torch.dtype) -> None:
    """Until torch 2.14 they raise, from 2.15 on those do that leave no element."""
    x = torch.tensor([77, 7, 1], dtype=dtype)
    opened = framejit.optimize(lambda x, low, high: CLAMPS[name](x, low, high) + 1, dynamic=True)
    for low, high in ((2, 9), (0, 300), (-5, 2**40 + 1), (-(2**40) - 1, 20), (300, 400)):

        def program(x: torch.Tensor) -> Any:
            return CLAMPS[name](x, low, high) + 1  # noqa: B023

        expected = values(program, x)
        assert values(framejit.optimize(program), x) == expected
        assert values(opened, x, low, high) == expected


def test_trying_leaves_no_trace() -> None:
    accepted._known.clear()
    state, mode = torch.get_rng_state(), torch.is_grad_enabled()
    x = torch.ones(5, 7)
    compiled = framejit.optimize(lambda x: F.layer_norm(x, (7,)) + x.sum(0).clamp(min=2) * 3)
    torch.testing.assert_close(compiled(x), F.layer_norm(x, (7,)) + x.sum(0).clamp(min=2) * 3)
    assert accepted._known and all(accepted._known.values())
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled() == mode


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def untried(device: str) -> Iterator[Node]:
    """What is known to be carried out: every overload of these operations that makes a tensor, in every dtype."""
    floats, integers = accepted.USUAL, (torch.int32, torch.int64)
    tables = (
        (accepted.OF_FLOATS | accepted.COMPARING, floats), (accepted.OF_INTEGERS, integers),
        (accepted.OF_BOOLS, (torch.bool,)),
    )
    for names, dtypes in tables:
        for name, dtype in itertools.product(sorted(names), dtypes):
            packet = getattr(torch.ops.aten, name)
            for operation in (getattr(packet, overload) for overload in packet.overloads()):
                with FakeTensorMode():
                    made = {"Tensor": torch.empty(3, 4, dtype=dtype, device=device), "Scalar": 2, "int[1]?": [1]}
                    wanted = [each for each in operation._schema.arguments if not each.has_default_value()]
                    kinds = [str(each.type) for each in wanted]
                    if operation._schema.is_mutable or not all(kind in made for kind in kinds) or "Tensor" not in kinds:
                        continue
                    if operation is torch.ops.aten.where.default:  # gives places
                        continue
                    args = [made[kind] for kind in kinds]
                    if name == "where":
                        args[0] = args[0].bool()
                    result = operation(*args)
                values = [Value(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
                yield Node(operation, tuple(values), {}, Value(result), UNKNOWN)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_tried_is_carried_out(device: str) -> None:
    found = [node for node in untried(device) if accepted._is_usual(node)]
    assert len({node.name for node in found}) > 45
    assert not [node.operation.name() for node in found if not accepted._Trial(node, None)._tried()]


def test_what_is_refused_is_not_told_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return x << 3
        except RuntimeError:
            return x + 1

    assert torch.equal(framejit.optimize(program)(torch.ones(2)), program(torch.ones(2)))
    assert "fake" not in capfd.readouterr().err


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
def test_dtypes_that_are_computed_in_another(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, -2.0, float("inf"), -float("inf"), 300.0], dtype=dtype)

    def program(x: torch.Tensor) -> Any:
        return torch.nextafter(x, -x), x**0.5, x**-0.5, x.nextafter(torch.zeros_like(x))

    for got, expected in zip(framejit.optimize(program)(x), program(x)):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=0, equal_nan=True)
