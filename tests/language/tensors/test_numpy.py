# ruff: noqa: B023
"""Numpy inside captured code, against plain numpy: type, dtype, shape, strides, flags, sharing of memory, values,
warnings, exceptions."""

import math
import warnings

import numpy as np
import pytest
import torch

import framejit

from comparison import assert_same
from support import CountingBackend, Pair, check, of_kind, recorded

RANDOM = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, 1.5, -2.5, 0.5, 3.0, -1.0, 2.0]


def described(value, arrays):
    """What a program can see of a value."""
    if isinstance(value, np.ndarray):
        shares = tuple(name for name, other in arrays.items() if np.shares_memory(value, other))
        flags = (
            value.flags.owndata, value.flags.writeable, value.flags.c_contiguous, value.flags.f_contiguous,
            value.base is None,
        )
        return (
            "array", value.dtype.str, value.shape, value.strides, flags, shares,
            any(value is other for other in arrays.values()),
        )
    if isinstance(value, np.generic):
        return "number", type(value)
    if isinstance(value, torch.Tensor):
        shares = tuple(name for name, other in arrays.items() if np.shares_memory(value.numpy(), other))
        return "tensor", value.dtype, value.shape, value.stride(), shares
    if isinstance(value, (tuple, list)):
        return type(value), tuple(described(item, arrays) for item in value)
    return type(value), value


def assert_values(expected, got, zeros_have_signs=True):
    if isinstance(expected, (tuple, list)):
        for a, b in zip(expected, got, strict=True):
            assert_values(a, b, zeros_have_signs)
    elif isinstance(expected, (np.ndarray, np.generic, torch.Tensor)):
        a, b = np.asarray(expected), np.asarray(got)
        assert a.dtype == b.dtype
        if a.dtype.kind == "f":
            np.testing.assert_allclose(
                b, a, rtol=1e-6 if a.dtype.itemsize == 4 else 1e-14, atol=1e-7 if a.dtype.itemsize == 4 else 1e-15
            )
        else:
            np.testing.assert_array_equal(b, a)
        if a.dtype.kind == "f" and zeros_have_signs:
            assert (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()


def outcome(function, arguments):
    arrays = {
        str(place): value.numpy() if isinstance(value, torch.Tensor) else value for place, value in enumerate(arguments)
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = function(*arguments), None
        except Exception as e:
            result, error = None, (type(e), str(e))
    return (
        result, error, described(result, arrays), sorted({str(w.message) for w in caught}),
        [np.copy(a) for a in arrays.values()],
    )


def compare(function, make, calls=2, backend="eager", zeros_have_signs=True):
    """Plain and compiled agree on what `make()` gives; whether a graph was captured without a break."""
    counting = CountingBackend() if backend == "eager" else backend
    compiled = framejit.optimize(function, backend=counting)
    with recorded() as log:
        for _ in range(calls):
            expected, got = outcome(function, make()), outcome(compiled, make())
            assert got[1] == expected[1]
            assert got[2:4] == expected[2:4]
            assert_values(expected[0], got[0], zeros_have_signs)
            assert_values(expected[4], got[4], zeros_have_signs)
    assert not of_kind(log, "warning")
    return not of_kind(log, "graph_break") and bool(of_kind(log, "graph"))


def array(dtype, shape=(2, 3), order="C"):
    n = int(np.prod(shape))
    if np.dtype(dtype).kind == "f":
        found = np.array([SPECIAL[i % len(SPECIAL)] for i in range(n)], dtype)
    elif np.dtype(dtype).kind == "b":
        found = np.array([i % 3 == 0 for i in range(n)])
    else:
        found = np.array([(i * 37 + 3) % 101 - (0 if np.dtype(dtype).kind == "u" else 50) for i in range(n)], dtype)
    return np.array(found.reshape(shape), order=order)


DTYPES = ["?", "u1", "i1", "i2", "i4", "i8", "f4", "f8"]
QUICK = ["i4", "f4"]
EACH_DTYPE = [d if d in QUICK else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES]
LAYOUTS = {
    "plain": lambda d: array(d),
    "gaps": lambda d: array(d, (2, 6))[:, ::2],
    "part": lambda d: array(d, (3, 5))[1:, 1:4],
    "column order": lambda d: array(d, order="F"),
    "one dimension": lambda d: array(d, (5,))[::2],
    "no dimensions": lambda d: np.array(array(d, (1,))[0]),
    "three dimensions": lambda d: array(d, (2, 1, 3)),
    "permuted": lambda d: array(d, (2, 3, 4)).transpose(1, 2, 0),
    "one element": lambda d: array(d, (1, 1)),
}
UNARY = """
    sqrt sin cos tan sinh cosh tanh log log2 log10 log1p exp exp2 expm1 arcsin arccos arctan arcsinh arccosh arctanh
    square reciprocal negative positive absolute fabs floor ceil trunc rint isnan isinf isfinite signbit logical_not
    invert sign cbrt degrees
""".split()
BINARY = """
    add subtract multiply true_divide floor_divide remainder power maximum minimum fmax fmin arctan2 hypot copysign
    equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor left_shift logaddexp
""".split()


# of 0.0 and -0.0 numpy takes now the one, now the other, by the machine's instructions
CHOICES = ["maximum", "minimum", "fmax", "fmin"]


@pytest.mark.parametrize("name", UNARY)
def test_elementwise_functions_of_one_array(name):
    ufunc = getattr(np, name)
    for dtype in DTYPES:
        compare(lambda x: ufunc(x), lambda: (array(dtype),), calls=1)
    for layout in LAYOUTS.values():
        compare(lambda x: ufunc(x), lambda: (layout("f8"),), calls=1)


@pytest.mark.parametrize("name", BINARY)
def test_elementwise_functions_of_two_arrays(name):
    ufunc = getattr(np, name)
    signs = name not in CHOICES
    for one, two in (
        *zip(DTYPES, DTYPES), *zip(DTYPES, DTYPES[1:]), ("f4", "i4"), ("i8", "f4"), ("?", "f8"), ("f8", "u1"),
        ("i8", "u1"),
    ):
        compare(lambda x, y: ufunc(x, y), lambda: (array(one), array(two, (3,))), calls=1, zeros_have_signs=signs)
    for layout in LAYOUTS.values():
        compare(lambda x, y: ufunc(x, y), lambda: (layout("f8"), layout("f8")), calls=1, zeros_have_signs=signs)
    compare(
        lambda x, y: (ufunc(x[:1], y), ufunc(x.T, y)), lambda: (array("f4"), array("f4", (1,))), calls=1,
        zeros_have_signs=signs,
    )


@pytest.mark.parametrize("dtype", EACH_DTYPE)
@pytest.mark.parametrize(
    "number",
    [2, 0, -1, 0.5, 1e300, float("nan"), 2**70, *(pytest.param(n, marks=pytest.mark.slow) for n in (300, True))],
)
def test_numbers_of_python_are_weak(dtype, number):
    n = number

    def maximum(x):
        return np.maximum(x, n)

    for f in (
        lambda x: x + n, lambda x: n - x, lambda x: x * n, lambda x: x / n, lambda x: n / x, lambda x: x // n,
        lambda x: x % n, lambda x: x**n,
        lambda x: x < n, lambda x: n == x, maximum, lambda x: np.where(x > 0, x, n), lambda x: np.full_like(x, n),
        lambda x: x & n if type(n) is int else 0, lambda x: np.clip(x, 0, n),
    ):
        compare(f, lambda: (array(dtype),), calls=1, zeros_have_signs=f is not maximum)
    compare(lambda x: x * n + 1, lambda: (np.array(array(dtype)[0, 1]),), calls=1)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, 800.0, 0.0])
@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=pytest.mark.slow)])
def test_floating_point_errors(dtype, value):
    for name in UNARY:
        compare(lambda x: getattr(np, name)(x), lambda: (np.array([1.0, value, 0.5], dtype),), calls=3)
    for name in BINARY[:14]:
        signs = name not in CHOICES
        compare(
            lambda x, y: getattr(np, name)(x, y),
            lambda: (np.array([1.0, value], dtype), np.array([0.0, value], dtype)), 3, zeros_have_signs=signs,
        )
    for f in (
        lambda x: x.astype(np.int32), lambda x: x.astype(np.float32), lambda x: x.astype(bool), lambda x: x.sum(),
        lambda x: (x * x).mean(0),
    ):
        compare(f, lambda: (np.array([1.0, value], dtype),), calls=3)


METHODS = {
    "sum": lambda x: (
        x.sum(), np.sum(x, axis=0), x.sum(-1, keepdims=True), np.sum(x, axis=(0, -1)) if x.ndim > 1 else 0,
    ),
    "sum in a dtype": lambda x: x.sum(dtype=np.float64),
    "mean": lambda x: (x.mean(), np.mean(x, 0), np.mean(x, axis=-1, keepdims=True)),
    "prod": lambda x: (x.prod(), np.prod(x, axis=-1)),
    "max": lambda x: (x.max(), np.max(x, axis=0), x.min(-1), np.amin(x, keepdims=True)),
    "argmax": lambda x: (x.argmax(), np.argmin(x, axis=-1)),
    "any": lambda x: (x.any(), np.all(x, axis=0), x.all(-1)),
    "var": lambda x: (x.var(), np.std(x, axis=0), x.std(-1, ddof=0)),
    "var of a sample": lambda x: np.var(x, ddof=1),
    "cumsum": lambda x: (x.cumsum(), np.cumsum(x, axis=0), x.cumprod(-1)),
    "reshape": lambda x: (x.reshape(-1), np.reshape(x, (1, -1)), x.ravel()),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: (x.T, x.transpose(), np.transpose(x), x.swapaxes(0, -1)),
    "transposed sum": lambda x: x.T.sum(0),
    "squeeze": lambda x: (x.squeeze(), np.squeeze(x), np.expand_dims(x, 0)),
    "items": lambda x: (x[0], x[-1], x[..., 0], x[None], x[:1]),
    "slices": lambda x: (x[1:], x[::2], x[:, 1:] if x.ndim > 1 else 0),
    "backwards": lambda x: x[::-1],
    "by places": lambda x: x[np.array([0, 1, 0])],
    "by a mask": lambda x: x[x > 0],
    "rows": lambda x: [row + 1 for row in x],
    "copy": lambda x: (x.copy(), np.copy(x), np.array(x)),
    "the same": lambda x: (np.asarray(x) is x, np.asarray(x)),
    "astype": lambda x: (x.astype(float), x.astype(np.float32), x.astype("int64"), x.astype(bool)),
    "where": lambda x: (np.where(x > 1, x, 0), np.where(x > 0, x, x * 2)),
    "stack": lambda x: (np.stack([x, x + 1]), np.concatenate((x, x)), np.vstack([x, x]), np.hstack([x, x])),
    "array of arrays": lambda x: np.array([x, x]),
    "like": lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 1), np.empty_like(x).shape),
    "made": lambda x: (
        np.zeros(3) + x.sum(), np.ones((2, 2), dtype=np.int32), np.arange(5), np.eye(2), np.array([1, 2.5]), x + 1,
    ),
    "made and shared": lambda x: (lambda y: (y, y[0], y.T, y.reshape(-1)))(x + 1),
    "product": lambda x: (x @ x.T, np.dot(x, x[0]) if x.ndim > 1 else np.dot(x, x)),
    "product of stacks": lambda x: (
        np.stack([x, x]) @ x.T, np.matmul(np.stack([x, x + 1]), x.T), np.stack([x, x]) @ x[0],
    ),
    "known numbers": lambda x: (
        np.linspace(0, 1, 5), np.linspace(0, 1, 4).reshape(2, 2), np.logspace(0, 2, 3), np.cumsum([1, 2, 3]),
        np.argsort((3, 1, 2)), np.prod((2, 3)), np.mean([1, 2]), np.isclose(1, 1.0), np.sign(-2), np.hanning(4),
        np.prod(x.shape), np.histogram([1, 2, 1], 2), np.broadcast_shapes((2, 1), (3,)), np.interp(0.5, [0, 1], [2, 4]),
        x + np.linspace(0, 1, x.shape[-1]), np.diff([1, 4]), np.sum([[1, 2], [3, 4]], axis=0),
    ),
    "known numbers and warnings": lambda x: (np.log(0.0), np.divide(1, 0), np.sqrt(-1.0), x),
    "known numbers that do not fit": lambda x: (x + 1, np.linspace(0, 1, -1)),
    "facts": lambda x: (
        x.shape, x.ndim, x.size, len(x), x.dtype == np.float64, x.dtype.name, x.itemsize, x.nbytes, x.strides, x + 1,
    ),
    "class": lambda x: (isinstance(x, np.ndarray), type(x) is np.ndarray, type(x.sum()) is np.float64, x + 1),
    "number": lambda x: (
        x.sum() + 1, x.sum() * x, 2 * x.max(), x.max() < x.min(), -x.mean(), isinstance(x.sum(), float),
        x.sum().dtype,
    ),
    "as a number": lambda x: (float(x.sum()), int(x.max()), x[0].tolist(), x.sum().item()),
    "number as a key": lambda x: x[x.argmax() * 0],
    "classes of numbers": lambda x: (x * np.float32(2), np.int64(3) + x, np.float64(x.sum())),
    "truth": lambda x: 1 if x.sum() > 0 else x + 1,
    "written": lambda x: (x.__setitem__(0, 1), x.__setitem__((..., slice(0, 1)), 0), x)[2],
    "written with an array": lambda x: (x.__setitem__(0, x[-1] + x[0]), x)[1],
    "written by a mask": lambda x: (x.__setitem__(x > 1, 0), x)[1],
    "fill": lambda x: (x.fill(1), x + 1),
    "out": lambda x: (np.add(x, x, out=x) is x, x),
    "abs": lambda x: (abs(x), -x, +x),
    "rolled": lambda x: (np.roll(x, 1), np.roll(x, -2, 0), np.roll(x, 7, axis=-1), np.roll(x, 0, axis=0)),
    "rolled too far": lambda x: np.roll(x, 1, axis=5),
    "tiled": lambda x: (np.tile(x, 2), np.tile(x, (2, 1, 3)), np.tile(x, (1,)), np.tile(x, (2, 1))),
    "meshed": lambda x: (
        (np.meshgrid(x[0], x[0, 1:]), np.meshgrid(x[0, :1], x[0], indexing="ij", sparse=True), np.meshgrid(x[0]))
        if x.ndim > 1
        else x + 1
    ),
    "outer product": lambda x: (np.outer(x, x[0]), np.outer(x[0], x)),
    "sorted": lambda x: (np.sort(x), np.sort(x, axis=0)),
    "by a list of places": lambda x: (x[[0, -1]], x[[1, 1, 0]]),
    "limits": lambda x: (x + np.finfo(np.float32).eps, np.finfo("f8").max, np.finfo(np.float32).tiny * x),
    "unknown": lambda x: (np.linspace(0, 1, 5), np.median(x), np.sort(x), x.argsort(), np.unique(x)),
    "to tensors": lambda x: torch.from_numpy(x) + 1,
    "to tensors and back": lambda x: ((torch.as_tensor(x) * 2).numpy(), torch.tensor(x).numpy()),
    "shared with a tensor": lambda x: (lambda t: (t.add_(1), x + 1, t)[1:])(torch.from_numpy(x)),
    "shared with a tensor made": lambda x: (lambda y: (lambda t: (t.add_(1), t)[1])(torch.from_numpy(y)))(x + 1),
    "part written through": lambda x: (lambda y: (y.__setitem__(0, 0), x + 1, y)[1:])(x[:1]),
}
UNSIGNED = ("cumsum", "max", "sorted")  # which of 0.0 and -0.0 they give, or in which order, is not numpy's
CAPTURED = set(METHODS) - {
    "backwards", "by a mask", "rolled too far", "as a number", "number as a key", "truth", "unknown", "transposed sum",
    "the same", "known numbers and warnings", "known numbers that do not fit",
}


@pytest.mark.parametrize("dtype", EACH_DTYPE)
@pytest.mark.parametrize("name", METHODS)
def test_functions_and_methods(name, dtype):
    for kind, layout in LAYOUTS.items() if dtype in ("f8", "f4") else [("plain", array)]:
        captured = compare(METHODS[name], lambda: (layout(dtype),), zeros_have_signs=name not in UNSIGNED)
        if name in CAPTURED and kind == "plain" and dtype == "f4":
            assert captured


def in_place(operation):
    def program(x, y):
        kept = x
        if operation == "+=":
            x += y
        elif operation == "-=":
            x -= y
        elif operation == "*=":
            x *= y
        elif operation == "/=":
            x /= y
        elif operation == "**=":
            x **= y
        else:
            x &= y
        return x is kept, x, y + 1

    return program


@pytest.mark.parametrize("operation", ["+=", "-=", "*=", "/=", "**=", "&="])
def test_in_place(operation):
    program = in_place(operation)
    for one in DTYPES:
        for other in (
            array("f4", (3,)), array("f8"), abs(array("i4")), abs(array("i8", (1,))), array("?"), 2, 1.5,
            np.float64(2), np.int8(3),
        ):
            compare(program, lambda: (array(one), np.copy(other) if isinstance(other, np.ndarray) else other), calls=1)
    for layout in LAYOUTS.values():
        compare(program, lambda: (layout("f8"), 2.0))
    compare(program, lambda: (lambda x: (x[1:], x[:-1]))(np.arange(1.0, 9.0)))  # they overlap
    compare(program, lambda: (lambda x: (x, x))(np.arange(1.0, 9.0)))


# ---- tensors --------------------------------------------------------------------------------------------


TENSORS = {
    "shared": lambda t: (lambda a: (t.add_(1), a + 1, a)[1:])(t.numpy()),
    "written by numpy": lambda t: (lambda a: (a.__setitem__(0, 7), t + 1, a, t)[1:])(t.numpy()),
    "two arrays": lambda t: (lambda a, b: (a is b, a, b, np.add(a, 1, out=b)))(t.numpy(), t.numpy()),
    "part": lambda t: (t[1:].numpy(), t.T.numpy(), t.numpy().T, np.asarray(t)[0]),
    "copied": lambda t: (np.array(t), np.asarray(t)),
    "and back": lambda t: torch.from_numpy(t.numpy() * 2) + t,
    "result": lambda t: ((t * 2).numpy(), np.sqrt((t * t).numpy())),
    "detached": lambda t: t.detach().numpy() + 1,
    "on the host": lambda t: t.cpu().numpy() + 1,
    "ufunc of a tensor": lambda t: np.sin(t),
    "array and tensor": lambda t: t + t.numpy(),
    "number and tensor": lambda t: t * t.numpy().sum(),
    "laid out anew": lambda t: (lambda a: (t.t_(), a + 1, a)[1:])(t.numpy()),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_arrays_over_tensors(name, dtype):
    def seen(f):
        t = torch.arange(6).reshape(2, 3).to(dtype)
        try:
            result = f(t)
        except Exception as e:
            return type(e), str(e)
        parts = result if type(result) is tuple else (result,)
        return [
            (type(r), r.tolist() if hasattr(r, "tolist") else r, getattr(r, "strides", None)) for r in parts
        ], t.tolist()

    f = TENSORS[name]
    compiled = framejit.optimize(f)
    for _ in range(2):
        assert str(seen(compiled)) == str(seen(f))


def test_numpy_of_what_needs_gradients():
    check(lambda x: x.numpy(), torch.ones(2, requires_grad=True), raises=RuntimeError)
    check(lambda x: (x * 2).detach().numpy() + 1, torch.ones(2, requires_grad=True), rtol=1e-6)


def test_numpy_writes_are_not_counted():
    def f(x, w):
        y = (x * w).sum()
        a = x.numpy()
        a += 1
        y.backward()
        return x

    for g in (f, framejit.optimize(f)):
        x, w = torch.ones(3), torch.ones(3, requires_grad=True)
        g(x, w)
        assert w.grad.tolist() == [2, 2, 2] and x._version == 0


# ---- guards ---------------------------------------------------------------------------------------------


def test_other_arrays():
    def f(x):
        return x + 1, x.shape, x.dtype.name, x.T

    class Sub(np.ndarray):
        pass

    frozen = np.ones((2, 3))
    frozen.flags.writeable = False
    compiled = framejit.optimize(f, backend="eager")
    others = (
        np.ones((2, 3)), np.ones((2, 3), "f4"), np.ones((3, 2)).T, np.ones((2, 6))[:, ::2], np.ones((2, 3))[:, ::-1],
        frozen, np.ones((2, 3)).view(Sub),
        np.ma.array(np.ones((2, 3))), np.ones((2, 3), ">f8"), np.ones((2, 3), object), np.ones((0, 3)),
        np.ones((2, 3), "f2"), np.ones((2, 3), complex),
        np.ones((2, 3), "u4"), np.float64(3), np.ones((2, 3), np.longlong),
    )
    for x in (*others, *others):
        a, b = outcome(f, (x,)), outcome(compiled, (x,))
        assert a[1:4] == b[1:4] and type(a[0][0]) is type(b[0][0]) and str(a[0]) == str(b[0])


def test_written_between_calls():
    kept = np.arange(3.0)

    def f(x):
        return x + torch.from_numpy(kept)

    compiled = framejit.optimize(f, fullgraph=True)
    for n in range(3):
        kept[0] = n
        assert compiled(torch.ones(3, dtype=torch.float64))[0] == n + 1


def test_ways_of_handling_errors():
    def f(x):
        return np.log(x)

    compiled = framejit.optimize(f, backend="eager")
    x = np.array([0.0, 1.0])
    for _ in range(2):
        for how in ("ignore", "warn", "raise", "ignore"):
            with np.errstate(all=how, under="ignore"):
                a, b = outcome(f, (x,)), outcome(compiled, (x,))
            assert a[1:4] == b[1:4]


def test_numbers_from_outside():
    def f(x, n):
        return x * n, n + 1, x[:n] if isinstance(n, np.integer) else 0

    compiled = framejit.optimize(f, backend="eager")
    for n in (np.float64(2), np.float32(2), np.int64(1), np.int64(2), np.int64(2), np.float64(3), np.bool_(True), 2):
        x = np.arange(4.0)
        a, b = outcome(f, (x, n)), outcome(compiled, (x, n))
        assert a[1:4] == b[1:4] and str(a[0]) == str(b[0])


def test_there_is_one_object_of_each_bool():
    def f(x, flag):
        positive, finite = (x > 0).all(), np.isfinite(x).all()
        found = positive is np.True_, finite is np.False_, positive is finite, x[0] is x[0]
        return *found, flag is np.True_, flag is True

    compiled = framejit.optimize(f, backend="eager")
    for numbers in ([1.0, 2.0], [-1.0, 2.0], [1.0, np.inf], [True], [False]):
        for flag in (np.True_, np.False_, True):
            assert f(np.array(numbers), flag) == compiled(np.array(numbers), flag)


def test_sizes_that_change():
    compiled = framejit.optimize(lambda x: (x * 2).sum(0))
    for n in range(1, 9):
        assert compiled(np.ones((n, 2))).tolist() == [2 * n] * 2


@pytest.mark.parametrize("name", [n for n in METHODS if n in CAPTURED])
@pytest.mark.parametrize("dtype", ["f4", pytest.param("i4", marks=pytest.mark.slow)])
def test_compiled(name, dtype):
    """Methods of arrays, compiled by the default backend."""
    compare(METHODS[name], lambda: (array(dtype, (4, 6)),), 3, "fuse", zeros_have_signs=name not in UNSIGNED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize(
    "number",
    [np.float32(2.5), np.float64(3), np.int64(3), np.uint8(2), np.float16(0.1), np.bool_(True)],
    ids=lambda n: type(n).__name__,
)
def test_numbers_beside_tensors(dtype, number):
    def fn(x, y, n):
        z = y.clone()
        z += n
        return x + n, n * x, x / n, n - y, x * np.int64(4), x < n, n == x, y ** n, x.sum() * n, z

    x = torch.tensor([0, 1, 2]).to(dtype)
    captured = type(number) not in (np.bool_, np.float16)  # to torch bools are floats here; no tensor stands for halves
    check(fn, x, x.float(), number, breaks=0 if captured else None, graphs=1 if captured else range(1, 9))


TENSORS_OF_NUMBERS = {
    "a number": lambda n, k: (torch.tensor(np.sqrt(2)), torch.as_tensor(np.int64(3)), torch.tensor(k)),
    "in another dtype": lambda n, k: (torch.tensor(np.float32(2.5), dtype=torch.float64), torch.tensor(
        np.sqrt(2), dtype=torch.float32
    )),
    "a list": lambda n, k: (torch.tensor([np.sqrt(2), 1]), torch.as_tensor([[1.5], [np.float64(2)]])),
    "a tuple of ints": lambda n, k: torch.tensor((np.int64(2), True, 3)),
    "with a number that changes": lambda n, k: torch.tensor([n, np.sqrt(2)]),
    "its device": lambda n, k: torch.tensor([np.sqrt(2)], device="cpu"),
    "no dtype of a list's": lambda n, k: torch.ones(2).new_tensor([np.sqrt(2), 1]),
    "too large": lambda n, k: torch.tensor(np.float64(1e300), dtype=torch.float16),
    "no number": lambda n, k: torch.tensor([np.float64(1), "a"]),
    "from_numpy in a dtype": lambda n, k: torch.from_numpy(np.ones(3), dtype=torch.float32),
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", TENSORS_OF_NUMBERS)
def test_tensors_of_numbers_have_their_dtype(name, backend):
    make = TENSORS_OF_NUMBERS[name]

    def fn(x, n, k):
        return make(n, k), x + 1

    compiled = framejit.optimize(fn, backend=backend)
    for n, k in ((2.0, np.float64(1.5)), (3.0, np.float64(2.5)), (4.0, np.float64(3.5)), (5, np.float32(4))):
        outcomes = []
        for call in (fn, compiled):
            try:
                outcomes.append(call(torch.ones(2), n, k))
            except (TypeError, RuntimeError) as e:
                outcomes.append((type(e), str(e)))
        assert_same(*outcomes, atol=0, rtol=0)


def test_a_number_beside_a_tensor_that_changes():
    fn = framejit.optimize(lambda x, n: x * n + n, backend="eager", fullgraph=True)
    for n in (np.float32(2), np.float32(3), np.float32(4.5), np.float64(0.1), np.int64(7), np.float32(2)):
        torch.testing.assert_close(fn(torch.ones(3), n), torch.ones(3) * n + n)
    assert len(fn.entries) <= 6


def test_numbers_from_shapes_are_known():
    """No graph breaks: sizes by np.prod are arguments of operations."""

    def fn(x):
        pairs = zip(np.linspace(0, 1, 2), np.argsort([2, 1]))
        y = x.reshape(np.prod(x.shape)) / np.sqrt(np.prod(x.shape[1:]))
        y = y + torch.tensor(np.linspace(0, 1, 12), dtype=x.dtype)
        z = torch.as_tensor(np.hanning(12), dtype=torch.float32) * y.view(int(np.prod(x.shape)))
        return y, z, np.prod(x.shape) * 2, len(list(pairs))

    check(fn, torch.arange(12.0).reshape(3, 4), fullgraph=True, changed=[(torch.arange(12.0).reshape(2, 6),)])


def test_numbers_of_an_array_in_tensor_arithmetic():
    """A step of a sampler, whose schedule is an array: one graph for all steps but the last."""
    alphas = np.cumprod(1 - np.linspace(0.001, 0.02, 20))

    def fn(x, t):
        now = alphas[t]
        before = alphas[t - 1] if t > 0 else 1.0
        start = (x - math.sqrt(1 - now) * x.tanh()) / math.sqrt(now)
        return math.sqrt(before) * start + np.exp(now) * x * now, now

    pair = Pair(lambda: fn)
    for t in (9, 8, 7, 3, 0):
        pair.call(torch.ones(3), t)
    pair.expect(breaks=0, graphs=3)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_numbers_of_an_array_as_numbers_of_python(dtype):
    template = "%.1f"

    def fn(x, values):
        one, other = values[0], values[1:].sum()
        return x * float(one) + one.item(), math.floor(other), math.ceil(one), f"{one:.2f} {other:8.1e}", (
            template % other, int(other), math.atan2(one, other)
        )

    for values in ([1.5, 2.25, -3], [7, 1, 2.75], [-2.5, 0, 0]):
        check(fn, torch.ones(3), np.array(values).astype(dtype))


@pytest.mark.parametrize("place", [0, 2, 3, 5, -1, -3, -4])
def test_a_place_in_an_array_that_is_not_assumed(place):
    values = np.array([3.0, 1.0, 2.0])

    def fn(x, i):
        try:
            return x * values[i], values[i]
        except IndexError as e:
            return x, str(e)

    pair = Pair(lambda: fn, dynamic=True)
    pair.call(torch.ones(2), 1)
    pair.call(torch.ones(2), place)
