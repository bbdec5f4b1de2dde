"""Plans called with inputs that differ in one property from those they were made for: a guard must say no, or the plan
must give eager's answer."""
from __future__ import annotations

import contextlib
import itertools
import random
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch

import framejit
from framejit import _native as native
from tests.attack.compare import Strict
from tests.attack.fuzz.guard_world import OwnTensor

Inputs = list[Any]
Mutant = tuple[str, Callable[[Inputs], Inputs]]
MUTANTS = 14  # of the inputs of one function
SHAPES = ((4, 6), (6, 6), (1, 5), (5, 1), (16, 64), (3, 33), (1, 1), (8, 8))


# ---- what is compiled: functions of two matrices ----
def pointwise(x, y):
    return (x * 2 + y).relu(), x.exp() - y.abs().sqrt()


def rows(x, y):
    return torch.softmax(x, -1) * y, x.sum(-1, keepdim=True) + y.mean(0)


def columns(x, y):
    return x.amax(0) + y.sum(0), (x - y).var(0, unbiased=False), x.argmax(0)


def turned(x, y):
    return x.t().contiguous() + 1, (x.t() * 2).sum(0), torch.cat([x.t(), y.t()], 1)


def product(x, y):
    return torch.relu(x @ y.t()) + 1, x.sum()


def written(x, y):
    x.add_(y)
    y.mul_(x)
    return x + y, x.sum()


def overwritten(x, y):
    y.copy_(x * 2)
    x[:, 0] = 0
    return y.sum(-1), x[:1]


def views(x, y):
    return x.t(), x.view(-1), x[:, 1:], y.reshape(-1), (x + y).t()


def same_again(x, y):
    z = x * y
    return x, z, z, z.flatten(), y


def scanned(x, y):
    return x.cumsum(-1) + y.cumsum(0), torch.sort(x, -1)[0] * 2


def chosen(x, y):
    return torch.where(x > y, x, y * 2), x.masked_fill(y > 0, 3.0), (x > 0) & (y > 0)


def normed(x, y):
    # not gelu: of an infinite number eager gives inf or nan, as many elements as there are
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) + y, torch.nn.functional.silu(y), x.softmax(0)


def strided(x, y):
    return x[::2] + 1, y[:, ::2] * 2, x.flip(0) + y, x.roll(1, 0)


def sized(x, y):
    return x / x.shape[0] + y.numel(), x.new_zeros(x.shape[1]) + y[0], torch.arange(x.shape[1]) + x


def grown(x, y):
    return x.repeat(2, 1), y.expand(2, *y.shape) + 1, torch.nn.functional.pad(x, (1, 2)) * 2, x.unsqueeze(1) - y


FUNCTIONS = (
    pointwise, rows, columns, turned, product, written, overwritten, views, same_again, scanned, chosen, normed,
    strided, sized, grown,
)


# ---- what is done to the inputs ----
def of(i: int, change: Callable[[torch.Tensor], Any]) -> Callable[[Inputs], Inputs]:
    return lambda inputs: [change(one) if k == i else one for k, one in enumerate(inputs)]


def both(change: Callable[[torch.Tensor], Any]) -> Callable[[Inputs], Inputs]:
    return lambda inputs: [change(one) for one in inputs]


def offset(t: torch.Tensor, by: int) -> torch.Tensor:
    return torch.cat([t.new_zeros(by), t.flatten()])[by:].view(t.shape)


def inference(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.clone()


def wide(t: torch.Tensor, by: int) -> torch.Tensor:
    return torch.cat([t, t.new_zeros(t.shape[0], by)], 1)[:, : t.shape[1]]


ONE: dict[str, Callable[[torch.Tensor], Any]] = {
    "the same kind": lambda t: t + 1,
    "a row more": lambda t: torch.cat([t, t[:1]]),
    "a column more": lambda t: torch.cat([t, t[:, :1]], 1),
    "one row": lambda t: t[:1].clone(),
    "one column": lambda t: t[:, :1].clone(),
    "no rows": lambda t: t[:0].clone(),
    "no columns": lambda t: t[:, :0].clone(),
    "nothing": lambda t: t[:0, :0].clone(),
    "a vector": lambda t: t[0].clone(),
    "a cube": lambda t: t.unsqueeze(0).clone(),
    "a scalar": lambda t: t.sum(),
    "transposed memory": lambda t: t.t().contiguous().t(),
    "transposed": lambda t: t.t(),
    "wide rows": lambda t: wide(t, 3),
    "wider rows": lambda t: wide(t, 8),
    "every other row": lambda t: torch.cat([t, t])[::2],
    "every other column": lambda t: torch.cat([t, t], 1)[:, ::2],
    "expanded rows": lambda t: t[:1].expand_as(t),
    "expanded columns": lambda t: t[:, :1].expand_as(t),
    "overlapping": lambda t: torch.arange(t.shape[0] + t.shape[1], dtype=t.dtype).as_strided(tuple(t.shape), (1, 1)),
    "odd strides of a size of one": lambda t: t[:1].clone().as_strided((1, t.shape[1]), (7, 1)),
    "offset by one": lambda t: offset(t, 1),
    "offset by three": lambda t: offset(t, 3),
    "offset by four": lambda t: offset(t, 4),
    "misaligned": lambda t: torch.frombuffer(
        memoryview(bytearray(b"\0" + t.numpy().tobytes()))[1:], dtype=t.dtype
    ).view(t.shape),
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "int32": lambda t: t.int(),
    "bool": lambda t: t > 0,
    "complex": lambda t: t.to(torch.complex64),
    "conjugated": lambda t: t.to(torch.complex64).conj(),
    "negated": lambda t: torch._neg_view(t),
    "imaginary part": lambda t: torch.complex(t, t).conj().imag,
    "needs gradients": lambda t: t.clone().requires_grad_(),
    "a parameter": lambda t: torch.nn.Parameter(t),
    "a frozen parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "a result with history": lambda t: t.clone().requires_grad_() * 1,
    "of inference mode": inference,
    "of a subclass": lambda t: t.clone().as_subclass(OwnTensor),
    "sparse": lambda t: t.to_sparse(),
    "without memory": lambda t: t.to("meta"),
    "a view": lambda t: t[:],
    "a number": lambda t: 2.5,
    "None": lambda t: None,
    "nan": lambda t: t * float("nan"),
    "infinite": lambda t: t / 0,
    "huge": lambda t: t * 1e17,  # sums of larger numbers overflow in one order and not in another
    "tiny": lambda t: t * 1e-42,
    "a detached alias": lambda t: t.detach(),
}
SHARED: list[Mutant] = [
    ("one object twice", lambda inputs: [inputs[0]] * 2),
    ("two objects of one memory", lambda inputs: [inputs[0], inputs[0][:]]),
    (
        "turned alias",
        lambda inputs: [inputs[0], inputs[0].t()] if inputs[0].shape[0] == inputs[0].shape[1] else [inputs[0]] * 2,
    ),
    ("a row apart", lambda inputs: (lambda m: [m[:-1], m[1:]])(torch.cat([inputs[0], inputs[0][:1]]))),
    ("halves of one memory", lambda inputs: [*torch.cat([inputs[0], inputs[1]]).split(inputs[0].shape[0])]),
    ("interleaved", lambda inputs: (lambda m: [m[::2], m[1::2]])(torch.cat([inputs[0], inputs[0]]))),
    ("exchanged", lambda inputs: inputs[::-1]),
]
ALL: list[Mutant] = [
    *SHARED,
    *((f"{name} ({place})", of(i, change)) for name, change in ONE.items() for i, place in enumerate("xy")),
    *((f"{name} (both)", both(change)) for name, change in ONE.items()),
]
def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


MODES: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("", contextlib.nullcontext),
    ("no_grad", torch.no_grad),
    ("inference mode", torch.inference_mode),
    ("autocast", autocast),
)


class Case:
    """A function, compiled for some inputs, and what it is called with afterwards."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        original = self.rng.choice(FUNCTIONS)
        self.shape = self.rng.choice(SHAPES)
        # code objects of its own, so that no case meets the entries of another
        self.fn = types.FunctionType(original.__code__.replace(co_name=f"{original.__name__}_{seed}"), globals())
        self.open = self.rng.random() < 0.5
        self.start: Mutant = self.rng.choice(ALL) if self.rng.random() < 0.4 else ("as they are", lambda inputs: inputs)
        self.served = 0

    def inputs(self, *mutants: Mutant) -> Inputs:
        generator = torch.Generator().manual_seed(self.seed)
        found: Inputs = [torch.randn(self.shape, generator=generator) for _ in range(2)]
        for _, change in mutants:
            found = change(found)
        return found

    def difference(self) -> str | None:
        optimized = framejit.optimize(self.fn, backend="fuse", dynamic=self.open or None)
        mode_name, mode = self.rng.choice(MODES) if self.rng.random() < 0.3 else MODES[0]
        first = self.calls(optimized, mode, mode, self.start)
        where = (
            f"seed {self.seed}, {self.fn.__code__.co_name} of {self.shape}, {'open' if self.open else 'closed'} sizes, "
            f"made {mode_name} for {self.start[0]}"
        )
        if first:
            return f"{where}: {first}"
        for mutant in self.rng.sample(ALL, MUTANTS):
            both = [self.start, mutant] if self.rng.random() < 0.3 else [mutant]
            another = self.rng.choice(MODES)[1] if self.rng.random() < 0.1 else mode
            text = self.calls(optimized, another, another, *both)
            if text:
                return f"{where}, called with {' and '.join(name for name, _ in both)}: {text}"
        return None

    def calls(self, optimized: Any, mode: Callable[[], Any], other: Callable[[], Any], *mutants: Mutant) -> str | None:
        try:
            plain, given, probe = (self.inputs(*mutants) for _ in range(3))
        except Exception:
            return None  # such inputs there are not
        with mode():
            known = any(entry.guards.check(tuple(probe), self.fn) for entry in optimized.entries)
            if not known and optimized.entries and self.rng.random() < 0.8:
                return None  # the guards say no, and making another plan takes long
            self.served += known
            a = outcome(self.fn, plain)
            b = outcome(optimized, given)
        comparison = Strict(exact=False)
        try:
            comparison.same((a, plain), (b, given), "outcome")
        except AssertionError as e:
            return f"{'served' if known else 'made anew'}: {e}"
        except NotImplementedError:
            return None  # tensors without memory have no numbers to compare
        narrow = any(isinstance(t, torch.Tensor) and t.dtype in (torch.float16, torch.bfloat16) for t in plain)
        text = beyond_rounding(comparison, 1e-2 if narrow or mode is autocast else 1e-4)
        return text and f"{'served' if known else 'made anew'}: {text}"


def outcome(fn: Any, inputs: Inputs) -> Any:
    try:
        return fn(*inputs)
    except Exception as e:
        return type(e)


def beyond_rounding(comparison: Strict, tolerance: float) -> str | None:
    """Whether the numbers that differ do so by more than rounding can explain."""
    for path, (a, b) in comparison.suspects.items():
        if a.dtype.is_complex:
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a.isinf(), b.isinf()):
            return f"{path}: {a} expected, got {b}"
        if not torch.allclose(a.double(), b.double(), tolerance, tolerance, equal_nan=True):
            return f"{path}: {a} expected, got {b}"
    return None


@contextlib.contextmanager
def plans_only() -> Iterator[None]:
    """Whatever eager measures, the plan is what runs."""
    with mock.patch.object(native, "Selector", lambda compiled, eager, **_: compiled):
        yield


def fuzz(seeds: Iterable[int] = itertools.count(), seconds: float = float("inf")) -> tuple[int, list[str]]:
    """How many functions were tried, and the differences."""
    end, n, found = time.monotonic() + seconds, 0, []
    with warnings.catch_warnings(), plans_only():
        warnings.simplefilter("ignore")
        for seed in seeds:
            if time.monotonic() > end:
                break
            text = Case(seed).difference()
            found += [text] if text else []
            framejit.reset()
            n += 1
    return n, found
