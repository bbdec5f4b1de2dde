"""What a number that was read from a tensor may be used for without being known: the graph goes on with it as a tensor,
and gives, and raises, what plain Python does."""
import math

import pytest
import torch

import framejit

from comparison import assert_same
from support import Pair, of_kind, recorded

FLOATS = [0.75, 1.5, -2.25, 0.0, -0.0, 1e10, math.nan, math.inf, -math.inf, 0.75]
INTS = [2, 3, 0, -4, 2**40, 2**62, -(2**63), 2]


def same(fn, numbers, dtype=torch.float32, x=None, graphs=1, **options):
    """For each number what plain Python gives or raises, from one graph."""
    pair = Pair(lambda: fn, **options)
    x = torch.arange(-6.0, 6.0).view(3, 4) if x is None else x
    pair.call(x, torch.tensor(numbers[0], dtype=dtype))
    pair.expect(graphs=graphs, breaks=0)
    for number in numbers[1:]:
        pair.call(x, torch.tensor(number, dtype=dtype))


def reads(fn):
    """`fn` of a number that was read in each way."""
    return [lambda x, t: fn(x, t.item()), lambda x, t: fn(x, float(t))]


ARGUMENTS = {
    "masked_fill": lambda x, n: (x.masked_fill(x > 0, n), (x * 2).masked_fill_(x > 0, n)),
    "where": lambda x, n: (torch.where(x > 0, x, n), x.where(x > 0, n), torch.where(x > 0, n, 0.5)),
    "clamp": lambda x, n: (x.clamp(max=n), x.clamp(n, 3), torch.clip(x, -1.5, n), (x + 0).clamp_min_(n)),
    "fill": lambda x, n: ((x + 0).fill_(n), torch.full((2, 3), n), torch.full_like(x.t(), n), x.new_full([2], n)),
    "tensors": lambda x, n: (
        torch.tensor(n), torch.tensor([n, 2, 2 * n]), x.new_tensor(n), torch.tensor(n, dtype=torch.float64),
        torch.as_tensor(n), torch.scalar_tensor(n),
    ),
    "setitem": lambda x, n: [x.clone().__setitem__(key, n) for key in (0, (slice(None), 1), x > 2)],
    "written": lambda x, n: x[1:].fill_(n),
    "compared": lambda x, n: (torch.gt(x, n), x.le(n), torch.eq(x, n), torch.isclose(x, torch.full_like(x, n))),
    "floored": lambda x, n: (x // n, x % n),
    "bools": lambda x, n: (x * (n > 0.5), x + (n == n), x / (n < 1), x > (n > 0), torch.full((2,), n > 0)),
}


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("fn", ARGUMENTS.values(), ids=ARGUMENTS)
def test_floats_as_arguments(fn, read):
    same(reads(fn)[read], FLOATS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_floats_that_the_tensors_dtype_may_not_hold(dtype):
    """Where one is too large for it torch raises, but for `torch.tensor`, which makes it infinite."""
    numbers = [0.75, 3e38, 1e39, -1e300, math.inf, math.nan, 0.1]
    for fn in ARGUMENTS.values():
        same(lambda x, t, fn=fn: fn(x, t.item() * 1.0), numbers, dtype)


def test_floats_beside_narrower_tensors():
    for fn in map(ARGUMENTS.get, ("masked_fill", "where", "clamp", "fill", "setitem")):
        pair = Pair(lambda fn=fn: lambda x, t: fn(x, t.item()))
        for number in (0.75, 7e4, 1e6, -0.1):
            pair.call(torch.arange(-6, 6).view(3, 4).half(), torch.tensor(number))


@pytest.mark.parametrize("name", ["masked_fill", "where", "fill", "tensors", "setitem", "compared", "bools"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_ints_as_arguments(name, dtype):
    x = torch.arange(-6, 6, dtype=dtype).view(3, 4)
    pair = Pair(lambda: lambda x, t: ARGUMENTS[name](x, t.item()))
    for number in INTS:
        pair.call(x, torch.tensor(number))
    for number in (True, False):
        pair.call(x, torch.tensor(number))


@pytest.mark.parametrize("fill", [0.5, None])
def test_sizes_beside_fills(fill):
    def made(x, t, n, rate):
        k = t.item()
        sized = torch.full((k, 2), k if fill is None else fill), x.new_full((n,), k if fill is None else fill)
        return sized, torch.full((n,), rate), torch.where(x > 0, rate, 0.5), x.clone().fill_(rate), torch.fill(x, k)

    pair = Pair(lambda: made)
    for number, rate in ((2, 0.1), (3, 0.2), (4, 0.3), (5, 0.4), (2, 1e300), (3, 0.5)):
        pair.call(torch.arange(4.0), torch.tensor(number), number + 1, rate)


def test_ints_as_bounds():
    same(lambda x, t: (x.clamp(max=t.item()), torch.arange(4).clamp(t.item(), 3)), INTS, torch.int64)


ROUNDED = {
    "round": lambda x, n: (x * round(n), round(n)), "floor": lambda x, n: (x * math.floor(n), math.floor(n) - 1),
    "ceil": lambda x, n: (x * math.ceil(n), math.ceil(n) // 2), "trunc": lambda x, n: (math.trunc(n), x * int(n)),
    "bool": lambda x, n: (bool(n), x * bool(n), int(bool(n))),
}


@pytest.mark.parametrize("fn", ROUNDED.values(), ids=ROUNDED)
def test_floats_that_are_rounded(fn):
    same(reads(fn)[0], [0.5, 1.5, 2.5, -0.5, -1.75, 0.0, 3.999999, 2.0**31, 1e15, 1e17, 1e30, math.nan, math.inf, 0.5])


def test_ints_of_floats():
    same(lambda x, t: (x * int(t), int(t) + 1), [2.75, -2.75, 0.0, 1e18, math.nan, -math.inf, 2.75])


CHOSEN = {
    "least": lambda x, n: (x * min(n, 1.0), min(n, 1.0)), "most": lambda x, n: (max(n, 1e-6), x / max(1e-6, n)),
    "of three": lambda x, n: (max(n, -n, 0.5), min([0.25, n, 1.5])), "two": lambda x, n: max(n, n * 2),
    "from infinity": lambda x, n: min(float("inf"), n, max(-math.inf, n)),
    "clipping": lambda x, n: x * min(1.0 / (n + 1e-6), 1.0), "range": lambda x, n: max(0.0, min(1.0, n)),
}


@pytest.mark.parametrize("fn", CHOSEN.values(), ids=CHOSEN)
def test_the_least_and_the_greatest(fn):
    same(reads(fn)[0], FLOATS)
    same(reads(fn)[1], FLOATS)


def test_the_least_and_the_greatest_of_ints():
    same(lambda x, t: (max(t.item(), 1), x / max(t.item(), 1), min(3, t.item(), int(x.shape[0]))), INTS, torch.int64)


def test_an_int_or_a_float():
    """Which of both `max(number, 1)` is makes no difference to floats."""
    def scaled(x, t):
        n = t.item()
        return x / max(n, 1), max(1, n) + 0.5, x > min(n, 2), 1 / max(n, 3)

    def told(x, t):
        n = max(t.item(), 1)
        return n, x * 2, n * 3

    def made(x, t):
        n = min(t.item(), 1)
        return x.int() * n, type(n), torch.tensor(n), torch.full((2,), n)

    same(scaled, FLOATS)
    for fn in (told, made):
        pair = Pair(lambda fn=fn: fn)
        for number in FLOATS:
            pair.call(torch.ones(2), torch.tensor(number))


FUNCTIONS = {
    "powers": lambda x, n: (n**2, x * n**0.5, n**-1.5, 2**n, n**n, pow(n, 3)),
    "roots": lambda x, n: (math.sqrt(n), x * math.sqrt(n + 1e-6)), "logarithms": lambda x, n: x * math.log(n, 2),
    "exponentials": lambda x, n: (math.exp(n), x * math.expm1(-n), math.tanh(n)),
    "of two": lambda x, n: (math.hypot(n, 1), math.pow(n, 2.5), math.atan2(n, 0.5), math.copysign(1.0, n)),
    "floored": lambda x, n: (n // 0.3, n % -0.3, divmod(n, 1.5), 7.5 // n, x * (n % 1)),
    "digits": lambda x, n: (round(n, 2), x * round(n / 3, 1)),
    "asked": lambda x, n: (math.isnan(n), x * math.isfinite(n), math.isinf(n)),
    "chained": lambda x, n: x * math.exp(-max(math.log(abs(n) + 1), 0.5)) * (math.floor(math.log2(n * n + 1)) + 1),
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_give_and_raise_what_python_does(fn):
    same(reads(fn)[0], [*FLOATS, 8.0, 1e300, 7e-320], torch.float64)
    same(reads(fn)[1], FLOATS)


def test_operators_of_ints():
    def bits(x, t):
        n = t.item()
        return n & 6, x * (n | 1), n ^ 5, n >> 2, 3 << (n & 7), n**2, 7 % (n | 1), divmod(n, 3)

    same(bits, INTS, torch.int64)
    same(lambda x, t: (7 // t.item(), x * (t.item() % t.item())), INTS, torch.int64)
    same(lambda x, t: (t.item() ** t.item(), x * 2 ** t.item()), [2, 3, 0, -4, 63, 64, 2], torch.int64)
    same(lambda x, t: x / math.sqrt(t.item()), INTS, torch.int64)
    same(lambda x, t: (x * t.item() * t.item(), t.item() * t.item()), INTS, torch.int64)


def test_gradients_are_those_of_a_number():
    def clipped(x, w):
        norm = w.norm().item()
        y = x * w * min(1.0, 2.0 / max(norm, 1e-6))
        return y.masked_fill(y > 3, norm), norm

    for scale in (0.1, 5.0):
        results = []
        for run in (clipped, framejit.optimize(clipped, backend="eager", fullgraph=True)):
            w = (torch.ones(4) * scale).requires_grad_()
            y, norm = run(torch.arange(4.0), w)
            y.square().sum().backward()
            results.append((y.detach(), norm, w.grad))
        assert_same(*results)


@pytest.mark.parametrize(
    "uses", [ARGUMENTS, ROUNDED, CHOSEN, FUNCTIONS], ids=["arguments", "rounded", "chosen", "functions"]
)
def test_fused(uses):
    for fn in uses.values():
        fast = framejit.optimize(reads(fn)[0], backend="fuse")
        for number in (0.75, 1.5, 2.0, 40.0):
            given = [(torch.arange(-6.0, 6.0).view(3, 4), torch.tensor(number)) for _ in range(2)]
            assert_same(reads(fn)[0](*given[0]), fast(*given[1]), atol=1e-6, rtol=1e-6)
            assert_same(*given)


BESIDE_OPEN_NUMBERS = {
    "hypot": lambda v, rate, n: math.hypot(v, rate), "copysign": lambda v, rate, n: math.copysign(v, rate),
    "atan2": lambda v, rate, n: math.atan2(rate, v), "fmod": lambda v, rate, n: math.fmod(v, rate),
    "power": lambda v, rate, n: v**rate, "remainder": lambda v, rate, n: v % rate,
}


@pytest.mark.parametrize("fn", BESIDE_OPEN_NUMBERS.values(), ids=list(BESIDE_OPEN_NUMBERS))
def test_functions_of_a_read_and_an_open_number(fn):
    def program(x, state):
        number = fn(x.sum().item(), state["rate"], state["n"])
        return x * number, number

    compiled = framejit.optimize(program, backend="eager")
    with recorded() as events:
        for n in range(1, 8):
            x, state = torch.full((3,), n * 1.37, dtype=torch.float64), {"rate": n * 0.75 + 0.1, "n": n}
            assert repr(compiled(x, state)) == repr(program(x, state))
    assert len(of_kind(events, "capture_started")) <= 3 and not of_kind(events, "graph_break")
