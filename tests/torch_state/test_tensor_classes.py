"""Subclasses of torch.Tensor, torch functions of other objects, and methods of torch.Tensor that the program
replaces."""

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import framejit

from comparison import assert_same
from support import Pair, check, of_kind, recorded

log: list[str] = []


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Cosine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(
            torch.Tensor.cos if func in (torch.sin, torch.Tensor.sin) else func, types, args, kwargs or {}
        )


class WithMethods(torch.Tensor):
    def twice(self):
        return self * 2

    def sum(self, dim=None):
        return super().sum(dim) + 1

    @property
    def halved(self):
        return self / 2


class Untracked(torch.Tensor):
    """A subclass made as nn.Parameter is: torch functions see a plain tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def twice(self):
        return self * 2

    def sin(self):
        return super().cos()

    def __add__(self, other):
        return torch.Tensor.mul(self, 10) - other

    def __neg__(self):
        return torch.Tensor.mul(self, 3)

    def __lt__(self, other):
        return "less"


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self, *, tensor_contents=None):
        return f"Wrapper({self.inner})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        log.append(str(func))
        made = func(*[a.inner if isinstance(a, Wrapper) else a for a in args], **(kwargs or {}))
        return Wrapper(made) if isinstance(made, torch.Tensor) else made


class FortyTwo:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(func.__name__)
        return 42


def softmax(x):
    return nn.functional.softmax(x, -1)


FUNCTIONS = {
    "operators": lambda x: (x + 1).sin().relu(),
    "operators with tensors": lambda x: torch.ones(2) + x,
    "comparison": lambda x: x < 2,
    "negative": lambda x: -x,
    "own method": lambda x: x.twice() if hasattr(x, "twice") else x * 3,
    "own property": lambda x: x.halved if hasattr(x, "halved") else x * 3,
    "overridden": lambda x: x.sum(0),
    "functions": lambda x: torch.sin(x) + torch.add(x, x),
    "library": softmax,
    "questions": lambda x: (
        type(x).__name__, isinstance(x, torch.Tensor), isinstance(x, nn.Parameter), x.shape, x.dtype, x.requires_grad,
    ),
    "in place": lambda x: (x.add_(1), x)[1],
    "items": lambda x: (x[0], [t + 1 for t in x], len(x)),
    "subclass made": lambda x: torch.ones(2).as_subclass(WithMethods).sum(0),
    "data": lambda x: x.data,
    "truth": lambda x: bool((x == x).all()),
}
MAKE = {
    "logging": lambda: torch.ones(2).as_subclass(Logging),
    "other function": lambda: torch.ones(2).as_subclass(Cosine),
    "methods": lambda: torch.ones(2).as_subclass(WithMethods),
    "untracked": lambda: torch.ones(2).as_subclass(Untracked),
    "wrapper": lambda: Wrapper(torch.ones(2)),
    "two tensors": lambda: TwoTensor(torch.ones(2), torch.ones(2) * 2),
    "parameter of a subclass": lambda: nn.Parameter(torch.ones(2).as_subclass(WithMethods)),
    "no tensor": FortyTwo,
}


def outcome(f, make):
    x = make()
    log.clear()
    try:
        result = f(x)
    except Exception as e:
        return type(e), str(e)[:60], list(log)
    seen = list(log)
    return repr(result), type(result), seen, repr(x) if isinstance(x, torch.Tensor) else None


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_in_plain_python(function, kind):
    f, make = FUNCTIONS[function], MAKE[kind]
    expected = outcome(f, make)
    compiled = framejit.optimize(f)
    with recorded() as events:
        for _ in range(2):
            assert outcome(compiled, make) == expected
        compiled = framejit.optimize(f)
        outcome(compiled, lambda: torch.ones(2))
        for _ in range(2):
            assert outcome(compiled, make) == expected
    assert not of_kind(events, "warning")


def test_methods_of_untracked_classes_are_captured():
    compiled = framejit.optimize(FUNCTIONS["own method"], fullgraph=True)
    assert torch.equal(compiled(MAKE["untracked"]()), torch.full((2,), 2.0))


def test_guards_do_not_call_the_torch_function():
    def f(x):
        return (x + 1).relu()

    compiled = framejit.optimize(f)
    x = MAKE["logging"]()
    compiled(torch.ones(2))
    compiled(torch.ones(2, 3))
    for _ in range(3):
        log.clear()
        compiled(x)
        assert log == ["add", "relu"]


@pytest.mark.parametrize(
    "name, program",
    [
        ("relu", lambda x: x.relu()), ("__add__", lambda x: x + 1), ("__neg__", lambda x: -x),
        ("twice", lambda x: x.twice()),
    ],
)
def test_replaced_methods(name, program, monkeypatch):
    def outcomes(f):
        try:
            return f(torch.ones(2)).tolist()
        except AttributeError as e:
            return str(e)

    compiled = framejit.optimize(program)
    assert outcomes(compiled) == outcomes(program)
    with monkeypatch.context() as m:
        m.setattr(torch.Tensor, name, lambda self, *others: self * 77, raising=False)
        for _ in range(2):
            assert outcomes(compiled) == outcomes(program)
        fresh = framejit.optimize(program)
        assert outcomes(fresh) == outcomes(program) == [77.0, 77.0]
    assert outcomes(compiled) == outcomes(program) == outcomes(fresh)


def test_replaced_functions(monkeypatch):
    def f(x):
        return torch.relu(x) + nn.functional.gelu(x)

    compiled = framejit.optimize(f)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), f(x))
    for owner, name in ((torch, "relu"), (nn.functional, "gelu")):
        with monkeypatch.context() as m:
            m.setattr(owner, name, lambda x: x * 77)
            torch.testing.assert_close(compiled(x), f(x))
    torch.testing.assert_close(compiled(x), f(x))


def test_hash():
    check(
        lambda x: (x + 1, hash(x) == x.__hash__(), hash(x) == id(x)), torch.ones(2), graphs=None, breaks=None, calls=1
    )


def test_new():
    check(
        lambda x: (x.new(x.shape).shape, x.new(2, 3).shape, x.new([2, 3]), x.new_zeros(x.shape) + 1),
        torch.ones(5, 8), breaks=None, graphs=None,
    )


# ---- where in its storage a tensor lies -----------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.storage_offset(), x + 1),
        lambda x: x.as_strided((2,), (1,), 0) * 2,
        lambda x: x.as_strided((2,), (1,)) * 2,
        lambda x: torch.as_strided(x, (2, 2), (1, 1), 3) + 1,
        lambda x: (x[1:].storage_offset(), x[1:] + 1),
        lambda x: x[1:].as_strided((2,), (1,), 1) * 2,
        lambda x: x.as_strided_scatter(x[:2] * 3, (2,), (1,)) + 1,
        lambda x: (x.data_ptr() == x.untyped_storage().data_ptr(), x + 1),
    ],
)
def test_places_in_storages(f, dynamic):
    memory = torch.arange(12.0)
    compiled = framejit.optimize(f, dynamic=dynamic)
    with recorded() as events:
        for x in (memory[:4], memory[3:7], memory[:4], memory[5:9], torch.arange(9.0)[:4], memory[2:10]):
            assert str(compiled(x)) == str(f(x))
    assert not of_kind(events, "warning")


@pytest.mark.filterwarnings("error::framejit.FramejitWarning")  # of graphs that break their rules, too
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.squeeze_(0),
        lambda x: x.squeeze_(),
        lambda x: x.unsqueeze_(1),
        lambda x: x.transpose_(0, 1),
        lambda x: x.swapdims_(0, -1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.resize_(2, 2),
        lambda x: x.set_(torch.ones(2, 3)),
        lambda x: x.as_strided_((2, 1), (1, 1)),
    ],
)
def test_sizes_changed_in_place(change, dynamic):
    def of_argument(x):
        n = x.shape[0]
        change(x)
        return x.shape, x.stride(), torch.zeros(x.shape), n, torch.ones(n), x + 1

    def of_result(x):
        y = x * 1
        change(y)
        return y.shape, y.stride(), torch.zeros(y.shape), y + 1, x.shape

    for f in (of_argument, of_result):
        compiled = framejit.optimize(f, dynamic=dynamic)
        for shape in ((3, 2), (4, 2), (5, 2), (6, 2), (1, 6), (2, 6), (3, 2)):
            a, b = torch.ones(shape), torch.ones(shape)
            assert str(compiled(a)) == str(f(b)) and a.shape == b.shape and a.stride() == b.stride()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.filterwarnings("error::framejit.FramejitWarning")
def test_a_view_that_is_larger_than_what_it_is_a_view_of(backend, dynamic):
    """What was made smaller in place has its memory still."""

    def fn(small, view):
        view.mul_(3)
        small.add_(1)
        return small * 2, view + 1

    compiled = framejit.optimize(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    for n in (3, 3, 4):
        outcomes = []
        for call in (fn, compiled):
            small = torch.arange(20.0).resize_(2)
            view = small.as_strided((n, 3), (3, 1))
            outcomes.append([*call(small, view), small, view])
        assert_same(*outcomes)


@pytest.mark.parametrize(
    "make",
    [lambda: torch.arange(4.0).expand(3, 4), lambda: torch.arange(12.0).view(3, 4)[1:], lambda: torch.ones(3, 4).t()],
)
def test_a_view_that_was_given_other_memory(make):
    def set_inside(x, y):
        x.set_(x.clone())
        return x + 1, y[1]

    pair = Pair(lambda: set_inside)
    for _ in range(2):
        x = make()
        pair.call(x, x)

    def program(_):
        x = make()
        x.set_(torch.ones(2, 5))
        return of_given(x)

    def of_given(x):
        return x[0] + 1, x.mul_(2)

    check(program, torch.ones(1), graphs=range(9), breaks=range(9))
