"""Kernels built by hand, with inputs and what torch says they should give. For Triton's interpreter, for the compiler,
and for a GPU."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, index_value, load, masked, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Var, flatten, strided
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Store
from framejit.backends.fuse.lowering.operators.pointwise import floor_of_inverted, times_inverse

CASES: dict[str, Callable[[], Case]] = {}
F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64


@dataclass
class Case:
    kernel: Kernel
    inputs: dict[str, torch.Tensor]
    expected: dict[str, torch.Tensor]
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass
class Build:
    """Collects what a kernel is made of."""

    parallel: tuple[Var, ...]
    reduction: tuple[Var, ...] = ()
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)

    def read(self, name: str, tensor: torch.Tensor, *indices: Index | Var | int) -> Expr:
        """A load of an element, cast to the dtype that is computed with."""
        self.inputs[name] = tensor
        value = load(name, strided(indices, tensor.stride()), tensor.dtype)
        return cast(value, F32) if tensor.dtype in (BF16, torch.float16) else value

    def write(
        self, name: str, expected: torch.Tensor, value: Expr, *indices: Index | Var | int, in_reduction: bool = False
    ) -> None:
        self.outputs[name] = expected
        self.stores.append(Store(name, strided(indices, expected.stride()), value, in_reduction))

    def case(self, name: str, **tolerance: float) -> Case:
        tensors = {**self.inputs, **self.outputs}
        device = torch.device("cuda")
        buffers = {
            key: Buffer(key, tuple(tensor.shape), tensor.stride(), tensor.dtype, device)
            for key, tensor in tensors.items()
        }
        kernel = Kernel(
            self.parallel, self.reduction, self.stores, device, (f"{name}.py:1",), name=name, buffers=buffers
        )
        return Case(kernel, self.inputs, self.outputs, **tolerance)


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def _of(name: str, *operands: Expr) -> Expr:
    return op(name, *operands)


@case
def pointwise_ragged() -> Case:
    n = Var("n", 1000)
    x, y = torch.randn(1000), torch.randn(1000)
    b = Build((n,))
    a, c = b.read("x", x, n), b.read("y", y, n)
    b.write("o", (x + y).relu() * 2, _of("mul", _of("maximum", _of("add", a, c), const(0.0, F32)), const(2.0, F32)), n)
    return b.case("pointwise_ragged")


@case
def the_sign_of_zeros() -> Case:
    n = Var("n", 6)
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf])
    b = Build((n,))
    b.write("o", 1 / -x, _of("reciprocal", _of("neg", b.read("x", x, n))), n)
    b.write("p", (-x.double()).signbit(), _of("signbit", _of("neg", b.read("y", x.double(), n))), n)
    return b.case("the_sign_of_zeros")


@case
def pointwise_large_and_odd() -> Case:
    n = Var("n", (1 << 18) + 3)
    x = torch.randn(n.size).bfloat16()
    b = Build((n,))
    b.write("o", x + 1, _of("add", b.read("x", x, n), const(1.0, F32)), n)
    return b.case("pointwise_large_and_odd", rtol=8e-3)


@case
def odd_rows_and_bias() -> Case:
    i, j = Var("i", 257), Var("j", 1031)
    x, bias = torch.randn(257, 1031), torch.randn(1031)
    b = Build((i, j))
    b.write("o", x + bias, _of("add", b.read("x", x, i, j), b.read("bias", bias, j)), i, j)
    return b.case("odd_rows_and_bias")


@case
def one_element() -> Case:
    b = Build(())
    x = torch.randn(())
    b.write("o", x.sin(), _of("sin", b.read("x", x)))
    return b.case("one_element")


@case
def divided_by_numbers() -> Case:
    n = Var("n", 1000)
    x, number = torch.randn(1000) * 100, torch.tensor(-0.3)
    b = Build((n,))
    a, c = b.read("x", x, n), b.read("number", number)
    b.write("known", x * torch.tensor(1 / 10.1), times_inverse(a, const(10.1, F32), 10.1), n)
    b.write("read", x * (1 / number), times_inverse(a, c), n)
    b.write("known_floor", x // 3.7, floor_of_inverted(a, const(3.7, F32)), n)
    b.write("read_floor", x // number, floor_of_inverted(a, c), n)
    return b.case("divided_by_numbers", rtol=0, atol=0)


@case
def bfloat16_sigmoid() -> Case:
    n = Var("n", 2048)
    x = torch.randn(2048).bfloat16()
    b = Build((n,))
    b.write("o", x.sigmoid(), _of("sigmoid", b.read("x", x, n)), n)
    return b.case("bfloat16_sigmoid", rtol=8e-3)


@case
def gelu() -> Case:
    n = Var("n", 4096)
    x = torch.linspace(-9, 9, 4096).bfloat16()
    b = Build((n,))
    v = b.read("x", x, n)
    erf = _of("erf", _of("mul", v, const(math.sqrt(0.5), F32)))
    value = _of("mul", _of("mul", v, const(0.5, F32)), _of("add", erf, const(1.0, F32)))
    b.write("o", torch.nn.functional.gelu(x), value, n)
    return b.case("gelu", rtol=8e-3, atol=2e-6)


@case
def gelu_exact() -> Case:
    n = Var("n", 4096)
    x = torch.linspace(-9, 9, 4096)
    b = Build((n,))
    v = b.read("x", x, n)
    erf = _of("erf", _of("mul", v, const(math.sqrt(0.5), F32)))
    b.write(
        "o", torch.nn.functional.gelu(x),
        _of("mul", _of("mul", v, const(0.5, F32)), _of("add", erf, const(1.0, F32))), n,
    )
    return b.case("gelu_exact", rtol=1e-5, atol=1e-6)


@case
def gelu_tanh() -> Case:
    n = Var("n", 1024)
    x = torch.linspace(-9, 9, 1024).bfloat16()
    b = Build((n,))
    v = b.read("x", x, n)
    cube = _of("mul", _of("mul", v, v), v)
    inside = _of("mul", _of("add", v, _of("mul", cube, const(0.044715, F32))), const(math.sqrt(2 / math.pi), F32))
    value = _of("mul", _of("mul", v, const(0.5, F32)), _of("add", const(1.0, F32), _of("tanh", inside)))
    b.write("o", torch.nn.functional.gelu(x, approximate="tanh"), value, n)
    return b.case("gelu_tanh", rtol=8e-3, atol=1e-5)


@case
def batch_norm() -> Case:
    shape = (4, 6, 56)
    n, c, h = (Var(name, size) for name, size in zip("nch", shape))
    x = torch.randn(shape).bfloat16()
    mean, var = torch.randn(6), torch.rand(6) + 0.5
    b = Build((n, c, h))
    value = _of(
        "mul",
        _of("sub", b.read("x", x, n, c, h), b.read("mean", mean, c)),
        _of("rsqrt", _of("add", b.read("var", var, c), const(1e-5, F32))),
    )
    expected = ((x.float() - mean[:, None]) * (var[:, None] + 1e-5).rsqrt()).bfloat16()
    b.write("o", expected, value, n, c, h)
    return b.case("batch_norm", rtol=8e-3)


@case
def transpose_add() -> Case:
    i, j = Var("i", 100), Var("j", 72)
    x, y = torch.randn(72, 100).bfloat16(), torch.randn(100, 72).bfloat16()
    b = Build((i, j))
    b.write("o", x.t() + y, _of("add", b.read("x", x, j, i), b.read("y", y, i, j)), i, j)
    return b.case("transpose_add", rtol=8e-3)


@case
def transpose_batched() -> Case:
    n, i, j = Var("n", 3), Var("i", 20), Var("j", 33)
    x = torch.randn(3, 33, 20)
    b = Build((n, i, j))
    b.write("o", x.transpose(1, 2).contiguous(), b.read("x", x, n, j, i), n, i, j)
    return b.case("transpose_batched")


def _softmax(name: str, rows: int, columns: int, dtype: torch.dtype, x: torch.Tensor | None = None) -> Case:
    r, c = Var("r", rows), Var("c", columns)
    x = torch.randn(rows, columns).to(dtype) if x is None else x
    b = Build((r,), (c,))
    v = _of("mul", b.read("x", x, r, c), const(0.125, F32))
    e = _of("exp", _of("sub", v, reduce("max", v)))
    b.write("o", (x.float() * 0.125).softmax(-1).to(dtype), _of("div", e, reduce("sum", e)), r, c, in_reduction=True)
    return b.case(name, rtol=8e-3 if dtype == BF16 else 2e-6)


@case
def stores_of_one_memory_in_order() -> Case:
    """What the last one stores is known a pass before what the first one does."""
    rows, columns = 5, 6000
    x = torch.randn(rows, columns)
    r, c = Var("r", rows), Var("c", columns)
    b = Build((r,), (c,))
    v = b.read("x", x, r, c)
    b.write("o", x * 2, _of("sub", v, reduce("sum", v)), r, c, in_reduction=True)
    b.write("o", x * 2, _of("mul", v, const(2.0, F32)), r, c, in_reduction=True)
    return b.case("stores_of_one_memory_in_order")


@case
def softmax_row() -> Case:
    return _softmax("softmax_row", 3, 2048, BF16)


@case
def softmax_short_rows() -> Case:
    return _softmax("softmax_short_rows", 90, 100, F32)


@case
def softmax_long_row() -> Case:
    return _softmax("softmax_long_row", 2, 6000, BF16)


@case
def softmax_ragged_long_row() -> Case:
    return _softmax("softmax_ragged_long_row", 2, 5001, F32)


@case
def softmax_infinite() -> Case:
    x = torch.randn(6, 5000)
    x[0] = -math.inf
    x[1, 3] = math.inf
    x[2, 7] = math.nan
    x[3, 8:] = -math.inf
    return _softmax("softmax_infinite", 6, 5000, F32, x)


@case
def layer_norm_gelu() -> Case:
    rows, columns = 6, 1024
    r, c = Var("r", rows), Var("c", columns)
    x, res = torch.randn(rows, columns).bfloat16(), torch.randn(rows, columns).bfloat16()
    w, bias = torch.randn(columns).bfloat16(), torch.randn(columns).bfloat16()
    b = Build((r,), (c,))
    v = cast(cast(_of("add", b.read("x", x, r, c), b.read("res", res, r, c)), BF16), F32)
    scale = const(1 / columns, F32)
    mean = _of("mul", reduce("sum", v), scale)
    d = _of("sub", v, mean)
    var = _of("mul", reduce("sum", _of("mul", d, d)), scale)
    normal = _of("mul", d, _of("rsqrt", _of("add", var, const(1e-5, F32))))
    y = cast(cast(_of("add", _of("mul", normal, b.read("w", w, c)), b.read("b", bias, c)), BF16), F32)
    erf = _of("erf", _of("mul", y, const(math.sqrt(0.5), F32)))
    value = _of("mul", _of("mul", y, const(0.5, F32)), _of("add", erf, const(1.0, F32)))
    expected = torch.nn.functional.gelu(
        torch.nn.functional.layer_norm((x + res).float(), (columns,), w.float(), bias.float()).bfloat16()
    )
    b.write("o", expected, value, r, c, in_reduction=True)
    return b.case("layer_norm_gelu", rtol=1.6e-2, atol=1e-4)


@case
def variance_in_loops() -> Case:
    rows, columns = 3, 9000
    r, c = Var("r", rows), Var("c", columns)
    x = torch.randn(rows, columns, dtype=torch.float64)
    b = Build((r,), (c,))
    scale = const(1 / columns, torch.float64)
    v = b.read("x", x, r, c)
    mean = _of("mul", reduce("sum", v), scale)
    d = _of("sub", v, mean)
    b.write("m", x.mean(-1), mean, r)
    b.write("v", x.var(-1, correction=0), _of("mul", reduce("sum", _of("mul", d, d)), scale), r)
    return b.case("variance_in_loops", rtol=1e-9)


@case
def cross_entropy_rows() -> Case:
    rows, columns = 3, 5000
    r, c = Var("r", rows), Var("c", columns)
    x, target = torch.randn(rows, columns).bfloat16(), torch.randint(0, columns, (rows,))
    b = Build((r,), (c,))
    v = b.read("x", x, r, c)
    top = reduce("max", v)
    total = reduce("sum", _of("exp", _of("sub", v, top)))
    place = Index({Indirect(b.read("y", target, r), columns): 1})
    chosen = b.read("x", x, r, place)
    value = _of("sub", _of("add", _of("log", total), top), chosen)
    b.write("o", torch.nn.functional.cross_entropy(x.float(), target, reduction="none"), value, r)
    return b.case("cross_entropy_rows")


@case
def column_sums() -> Case:
    i, j = Var("i", 300), Var("j", 70)
    x = torch.randn(300, 70)
    b = Build((j,), (i,))
    b.write("o", x.sum(0), reduce("sum", b.read("x", x, i, j)), j)
    return b.case("column_sums", atol=1e-4)


@case
def short_columns() -> Case:
    i, k, j = Var("i", 37), Var("k", 4), Var("j", 24)
    x = torch.randn(37, 4, 24).bfloat16()
    x[3, 2] = math.nan
    counts = torch.randint(-9, 9, (37, 4, 24))
    b = Build((i, j), (k,))
    v, n = b.read("x", x, i, k, j), b.read("n", counts, i, k, j)
    greatest = reduce("max", v)
    fallen = _of("exp", _of("sub", v, greatest))
    b.write("s", x.float().sum(1), reduce("sum", v), i, j)
    b.write("top", x.float().amax(1), greatest, i, j)
    b.write("l", x.float().logsumexp(1), _of("add", greatest, _of("log", reduce("sum", fallen))), i, j)
    b.write("p", counts.prod(1), reduce("prod", n), i, j)
    b.write("least", counts.amin(1), reduce("min", n), i, j)
    b.write("some", (counts > 5).any(1), reduce("any", _of("gt", n, const(5, I64))), i, j)
    b.write("every", (counts > -5).all(1), reduce("all", _of("gt", n, const(-5, I64))), i, j)
    return b.case("short_columns", rtol=1e-4)


@case
def places_of_short_columns() -> Case:
    """Where a column's sum says is where its greatest goes."""
    k, j = Var("k", 3), Var("j", 24)
    x = torch.randn(3, 24)
    places = torch.stack([torch.randperm(24), torch.zeros(24, dtype=torch.int64), torch.zeros(24, dtype=torch.int64)])
    b = Build((j,), (k,))
    place = reduce("sum", b.read("places", places, k, j))
    expected = torch.zeros(24)
    expected[places.sum(0)] = x.amax(0)
    b.write("o", expected, reduce("max", b.read("x", x, k, j)), Index({Indirect(place, 24): 1}))
    return b.case("places_of_short_columns")


@case
def short_windows() -> Case:
    """The greatest of three by three in a border that counts as less than all."""
    y, x, c, u, v = Var("y", 6), Var("x", 5), Var("c", 16), Var("u", 3), Var("v", 3)
    images = torch.randn(6, 5, 16)
    b = Build((y, x, c), (u, v))
    rows, columns = Index.of(y) + u - 1, Index.of(x) + v - 1
    inside = const(True, torch.bool)
    for place, size in ((rows, 6), (columns, 5)):
        number = index_value(place)
        inside = _of("bitand", inside, _of("ge", number, const(0, I64)))
        inside = _of("bitand", inside, _of("lt", number, const(size, I64)))
    window = masked(inside, b.read("images", images, rows, columns, c), const(-math.inf, F32))
    expected = torch.nn.functional.max_pool2d(images.permute(2, 0, 1), 3, 1, 1).permute(1, 2, 0).contiguous()
    b.write("o", expected, reduce("max", window), y, x, c)
    return b.case("short_windows")


@case
def sums_of_few_long_columns() -> Case:
    i, j = Var("i", 5000), Var("j", 12)
    x = torch.randn(5000, 12)
    b = Build((j,), (i,))
    v = b.read("x", x, i, j)
    b.write("o", x.sum(0), reduce("sum", v), j)
    b.write("top", x.amax(0), reduce("max", v), j)
    return b.case("sums_of_few_long_columns", atol=1e-3)


@case
def channel_statistics() -> Case:
    n, c, h = Var("n", 5), Var("c", 7), Var("h", 240)
    x = torch.randn(5, 7, 240)
    b = Build((c,), (n, h))
    v = b.read("x", x, n, c, h)
    b.write("s", x.sum((0, 2)), reduce("sum", v), c)
    b.write("q", (x * x).sum((0, 2)), reduce("sum", _of("mul", v, v)), c)
    return b.case("channel_statistics", atol=1e-4)


@case
def group_norm() -> Case:
    n, g, c, h = Var("n", 2), Var("g", 3), Var("c", 4), Var("h", 64)
    x, w = torch.randn(2, 3, 4, 64), torch.randn(3, 4)
    b = Build((n, g), (c, h))
    v = b.read("x", x, n, g, c, h)
    scale = const(1 / 256, F32)
    d = _of("sub", v, _of("mul", reduce("sum", v), scale))
    var = _of("mul", reduce("sum", _of("mul", d, d)), scale)
    value = _of("mul", _of("mul", d, _of("rsqrt", _of("add", var, const(1e-5, F32)))), b.read("w", w, g, c))
    expected = torch.nn.functional.group_norm(x.view(2, 12, 64), 3, w.view(12)).view(2, 3, 4, 64)
    b.write("o", expected, value, n, g, c, h, in_reduction=True)
    return b.case("group_norm", atol=1e-5)


@case
def kinds_of_reductions() -> Case:
    r, c = Var("r", 9), Var("c", 77)
    x = torch.rand(9, 77) + 0.5
    x[4, 30] = math.nan
    k = torch.randint(-50, 50, (9, 77), dtype=torch.int32)
    b = Build((r,), (c,))
    v, i = b.read("x", x, r, c), b.read("k", k, r, c)
    for kind, expected in (
        ("max", x.amax(1)), ("min", x.amin(1)), ("prod", x.prod(1)), ("argmax", x.argmax(1)), ("argmin", x.argmin(1)),
    ):
        b.write(kind, expected, reduce(kind, v), r)
    positive = _of("gt", i, const(-49, torch.int32))
    b.write("any", (k > -49).any(1), reduce("any", positive), r)
    b.write("all", (k > -49).all(1), reduce("all", positive), r)
    b.write("imax", k.amax(1), reduce("max", i), r)
    b.write("iargmin", k.argmin(1), reduce("argmin", i), r)
    b.write("isum", k.sum(1), reduce("sum", i, I64), r)
    return b.case("kinds_of_reductions", rtol=1e-4)


@case
def kinds_of_reductions_in_loops() -> Case:
    r, c = Var("r", 1), Var("c", 5000)
    x = torch.randn(1, 5000)
    x[0, 3000] = math.nan
    b = Build((r,), (c,))
    v = b.read("x", x, r, c)
    for kind, expected in (("max", x.amax(1)), ("min", x.amin(1)), ("argmax", x.argmax(1)), ("argmin", x.argmin(1))):
        b.write(kind, expected, reduce(kind, v), r)
    b.write("any", (x > 3).any(1), reduce("any", _of("gt", v, const(3.0, F32))), r)
    return b.case("kinds_of_reductions_in_loops")


@case
def reductions_of_one_element() -> Case:
    r, c = Var("r", 5), Var("c", 1)
    x = torch.randn(5, 1)
    b = Build((r,), (c,))
    v = b.read("x", x, r, c)
    for kind, expected in (("sum", x.sum(1)), ("max", x.amax(1)), ("argmax", x.argmax(1)), ("argmin", x.argmin(1))):
        b.write(kind, expected, reduce(kind, v), r)
    b.write("any", (x > 0).any(1), reduce("any", _of("gt", v, const(0.0, F32))), r)
    return b.case("reductions_of_one_element")


@case
def reductions_to_one_element() -> Case:
    c = Var("c", 100)
    x = torch.randn(100)
    b = Build((), (c,))
    v = b.read("x", x, c)
    for kind, expected in (("prod", x.prod()), ("max", x.amax()), ("argmax", x.argmax())):
        b.write(kind, expected, reduce(kind, v))
    b.write("count", torch.tensor(200.0), reduce("sum", const(2.0, F32)))
    b.write("places", torch.tensor(4950), reduce("sum", index_value(c)))
    return b.case("reductions_to_one_element")


@case
def sums_of_what_does_not_change() -> Case:
    r, c = Var("r", 6), Var("c", 5)
    x = torch.randn(6)
    b = Build((r,), (c,))
    b.write("o", 5 * x, reduce("sum", b.read("x", x, r)), r)
    return b.case("sums_of_what_does_not_change")


@case
def whole_sum() -> Case:
    n = Var("n", 20000)
    x = torch.randn(20000, dtype=torch.float64)
    b = Build((), (n,))
    b.write("o", x.sum(), reduce("sum", b.read("x", x, n)))
    return b.case("whole_sum", rtol=1e-9)


@case
def padding() -> Case:
    i, j = Var("i", 12), Var("j", 50)
    x = torch.randn(10, 40)
    b = Build((i, j))
    row, column = index_value(Index.of(i) - 1), index_value(Index.of(j) - 5)
    zero = const(0, I64)
    inside = [
        _of("ge", row, zero), _of("lt", row, const(10, I64)), _of("ge", column, zero),
        _of("lt", column, const(40, I64)),
    ]
    condition = inside[0]
    for one in inside[1:]:
        condition = _of("bitand", condition, one)
    value = masked(condition, b.read("x", x, Index.of(i) - 1, Index.of(j) - 5), const(-2.0, F32))
    b.write("o", torch.nn.functional.pad(x, (5, 5, 1, 1), value=-2.0), value, i, j)
    return b.case("padding")


@case
def concatenation() -> Case:
    i = Var("i", 300)
    x, y = torch.randn(100), torch.randn(200)
    b = Build((i,))
    first = _of("lt", index_value(i), const(100, I64))
    value = masked(
        first, b.read("x", x, i), masked(_of("bitnot", first), b.read("y", y, Index.of(i) - 100), const(0.0, F32))
    )
    b.write("o", torch.cat([x, y]), value, i)
    return b.case("concatenation")


def _losses(b: Build, rows: Var, scores: torch.Tensor, labels: torch.Tensor) -> Expr:
    """What cross_entropy makes of each row's score, 0 where the label is to be ignored: the mask loads the label by
    which the score is found."""
    label = b.read("y", labels, rows)
    within = _of("bitand", _of("ge", label, const(0, I64)), _of("lt", label, const(scores.shape[1], I64)))
    chosen = b.read("x", scores, rows, Index({Indirect(label, scores.shape[1]): 1}))
    return masked(_of("bitand", within, _of("ne", label, const(-100, I64))), _of("neg", chosen), const(0.0, F32))


@case
def ignored_labels() -> Case:
    n = Var("n", 700)
    scores, labels = torch.randn(700, 9), torch.randint(0, 9, (700,))
    labels[::5] = -100
    labels[3] = 1 << 40
    b = Build((n,))
    expected = torch.where((labels >= 0) & (labels < 9), -scores.gather(1, labels.clamp(0, 8)[:, None])[:, 0], 0.0)
    b.write("o", expected, _losses(b, n, scores, labels), n)
    return b.case("ignored_labels")


@case
def sum_of_losses() -> Case:
    n = Var("n", 5000)
    scores, labels = torch.randn(5000, 9), torch.randint(0, 9, (5000,))
    labels[::5] = -100
    b = Build((), (n,))
    loss = _losses(b, n, scores, labels)
    count = reduce("sum", cast(_of("ne", b.read("y", labels, n), const(-100, I64)), F32))
    expected = torch.nn.functional.nll_loss(scores, labels)
    b.write("o", expected, _of("div", reduce("sum", loss), count))
    return b.case("sum_of_losses", rtol=1e-4, atol=1e-5)


@case
def nested_masks() -> Case:
    i, j = Var("i", 60), Var("j", 40)
    x, rows, columns = torch.randn(30, 20), torch.randint(-5, 35, (60,)), torch.randint(-5, 25, (35,))
    b = Build((i, j))
    row, place = b.read("rows", rows, i), index_value(Index.of(j) - 5)
    in_rows = _of("bitand", _of("ge", row, const(0, I64)), _of("lt", row, const(30, I64)))
    in_places = _of("ge", place, const(0, I64))
    # may be loaded under the second mask only, and is needed for the third
    column = b.read("columns", columns, Index.of(j) - 5)
    in_columns = _of("bitand", _of("ge", column, const(0, I64)), _of("lt", column, const(20, I64)))
    value = b.read("x", x, Index({Indirect(row, 30): 1}), Index({Indirect(column, 20): 1}))
    inside = masked(
        in_rows, masked(in_places, masked(in_columns, value, const(0.0, F32)), const(-1.0, F32)), const(-2.0, F32)
    )
    chosen = torch.nn.functional.pad(columns, (5, 0))
    found = x[rows.clamp(0, 29)][:, chosen.clamp(0, 19)]
    expected = torch.where((chosen >= 0) & (chosen < 20), found, 0.0)
    expected[:, :5] = -1.0
    expected[(rows < 0) | (rows >= 30)] = -2.0
    b.write("o", expected, inside, i, j)
    return b.case("nested_masks")


@case
def sums_wanted_in_places() -> Case:
    """A sum of a whole row that is wanted in the row's first places, loads beside it under the same mask."""
    r, c = Var("r", 6), Var("c", 11)
    x, y = torch.randn(6, 11), torch.randn(6, 8)
    b = Build((r,), (c,))
    v, first = b.read("x", x, r, c), _of("lt", index_value(Index.of(c)), const(3, I64))
    total = reduce("sum", v)
    value = masked(first, _of("add", total, v), b.read("y", y, r, Index.of(c) - 3))
    expected = torch.cat([x.sum(1, keepdim=True) + x[:, :3], y], 1)
    b.write("o", expected, value, r, c, in_reduction=True)
    return b.case("sums_wanted_in_places", atol=1e-5)


@case
def embedding() -> Case:
    t, d = Var("t", 13), Var("d", 48)
    table, ids = torch.randn(30, 48).half(), torch.randint(0, 30, (13,))
    b = Build((t, d))
    value = b.read("w", table, Index({Indirect(b.read("ids", ids, t), 30): 1}), d)
    b.write("o", table[ids], value, t, d)
    return b.case("embedding")


@case
def reshaped_index() -> Case:
    i = Var("i", 24 * 35)
    x = torch.randn(35, 24)
    b = Build((i,))
    b.write("o", x.t().contiguous().view(-1), b.read("x", x, Index.of(i) % 35, Index.of(i) // 35), i)
    return b.case("reshaped_index")


@case
def in_place() -> Case:
    r, c = Var("r", 3), Var("c", 5000)
    x = torch.randn(3, 5000)
    b = Build((r,), (c,))
    v = b.read("x", x, r, c)
    b.write("s", x.sum(1), reduce("sum", v), r)
    expected = x / (x * x).sum(1, keepdim=True)
    b.stores.append(Store("x", flatten((r, c), (3, 5000)), _of("div", v, reduce("sum", _of("mul", v, v))), True))
    made = b.case("in_place", atol=1e-4)
    made.expected["x"] = expected
    return made


FLOAT_OPERATIONS = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "tanh": torch.tanh, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "erf": torch.erf, "erfc": torch.erfc,
    "lgamma": torch.lgamma, "sigmoid": torch.sigmoid,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "neg": torch.neg,
    "abs": torch.abs,
    "sign": lambda x: torch.where(x.isnan(), x, x.sign()),
    "reciprocal": torch.reciprocal, "isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit,
}
POSITIVE_OPERATIONS = {
    "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
}
UNIT_OPERATIONS = {"asin": torch.asin, "acos": torch.acos, "atanh": torch.atanh}
FLOAT_PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "fmax": torch.fmax,
    "fmin": torch.fmin, "atan2": torch.atan2, "copysign": torch.copysign, "hypot": torch.hypot, "fmod": torch.fmod,
    "nextafter": torch.nextafter,
    "floordiv": torch.floor_divide, "mod": torch.remainder,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
}


def _floats(name: str, dtype: torch.dtype) -> Case:
    n = Var("n", 240)
    x, y = torch.randn(240, dtype=dtype) * 3, torch.randn(240, dtype=dtype).round(decimals=1)
    x[:6] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 2.5], dtype=dtype)
    y[y == 0] = 1.0
    b = Build((n,))
    v, w = b.read("x", x, n), b.read("y", y, n)
    for key, function in FLOAT_OPERATIONS.items():
        b.write(key, function(x), _of(key, v), n)
    absolute, unit = _of("abs", v), _of("mul", _of("sin", v), const(0.99, dtype))
    for key, function in POSITIVE_OPERATIONS.items():
        b.write(key, function(x.abs()), _of(key, absolute), n)
    for key, function in UNIT_OPERATIONS.items():
        b.write(key, function(x.sin() * 0.99), _of(key, unit), n)
    for key, function in FLOAT_PAIRS.items():
        b.write(key, function(x, y), _of(key, v, w), n)
    b.write("pow", x.abs() ** y, _of("pow", absolute, w), n)
    return b.case(name, rtol=2e-5 if dtype == F32 else 1e-9, atol=1e-5 if dtype == F32 else 1e-12)


@case
def floats_32() -> Case:
    return _floats("floats_32", F32)


@case
def floats_64() -> Case:
    return _floats("floats_64", torch.float64)


INTEGER_PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "floordiv": torch.floor_divide,
    "mod": torch.remainder, "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "bitand": torch.bitwise_and, "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor, "lt": torch.lt, "ge": torch.ge,
}


def _integers(name: str, dtype: torch.dtype) -> Case:
    n = Var("n", 200)
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -1000), min(info.max, 1000), (200,), dtype=dtype)
    y = torch.randint(max(info.min, -9), 9, (200,), dtype=dtype)
    y[y == 0] = 3
    s = torch.randint(0, info.bits, (200,), dtype=dtype)
    b = Build((n,))
    v, w, t = b.read("x", x, n), b.read("y", y, n), b.read("s", s, n)
    for key, function in INTEGER_PAIRS.items():
        b.write(key, function(x, y), _of(key, v, w), n)
    b.write("shl", x << s, _of("shl", v, t), n)
    b.write("shr", x >> s, _of("shr", v, t), n)
    for key, one in {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "bitnot": torch.bitwise_not}.items():
        b.write(key, one(x), _of(key, v), n)
    b.write("float", x.float(), cast(v, F32), n)
    b.write("bool", x.bool(), cast(v, torch.bool), n)
    b.write("more", x + 100, _of("add", v, const(100, dtype)), n)
    return b.case(name)


@case
def integers_64() -> Case:
    return _integers("integers_64", I64)


@case
def integers_32() -> Case:
    return _integers("integers_32", torch.int32)


@case
def integers_8() -> Case:
    return _integers("integers_8", torch.int8)


@case
def integers_unsigned() -> Case:
    return _integers("integers_unsigned", torch.uint8)


@case
def casts() -> Case:
    n = Var("n", 100)
    x, flags = torch.randn(100) * 40, torch.rand(100) > 0.5
    b = Build((n,))
    v, f = b.read("x", x, n), b.read("f", flags, n)
    for dtype in (torch.int8, torch.int16, torch.int32, I64, torch.float64, torch.float16, torch.bool):
        b.write(str(dtype).removeprefix("torch."), x.to(dtype), cast(v, dtype), n)
    b.write("from_bool", flags.float(), cast(f, F32), n)
    b.write("int_from_bool", flags.long(), cast(f, I64), n)
    b.write("not", ~flags, _of("bitnot", f), n)
    b.write("chosen", torch.where(flags, x, 0.5), _of("where", f, v, const(0.5, F32)), n)
    b.write("doubled", x.double() + 0.1, _of("add", cast(v, torch.float64), const(0.1, torch.float64)), n)
    return b.case("casts", rtol=1e-7, atol=0.0)


@case
def casts_to_bfloat16() -> Case:
    n = Var("n", 100)
    x, k = torch.randn(100) * 40, torch.randint(-1000, 1000, (100,))
    b = Build((n,))
    b.write("float", x.bfloat16(), cast(b.read("x", x, n), BF16), n)
    b.write("integer", k.bfloat16(), cast(b.read("k", k, n), BF16), n)
    b.write("double", x.bfloat16(), cast(cast(b.read("x", x, n), torch.float64), BF16), n)
    return b.case("casts_to_bfloat16", rtol=8e-3)
