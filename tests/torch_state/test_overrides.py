"""Tensors whose class has a `__torch_function__`: inlined as torch calls it, with what it changes, and noticed when it
is another."""

import pytest
import torch
from torch import nn

import framejit

from support import CountingBackend, of_kind, recorded

log: list[object] = []
HANDLED: dict[object, object] = {}


def handles(function):
    def register(own):
        HANDLED[function] = own
        return own

    return register


class Default(torch.Tensor):
    """A subclass with torch's own __torch_function__: results are of the class."""

    def twice(self):
        return self * 2

    @property
    def halved(self):
        return self / 2


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append((func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs or {})


class Deeper(Logging):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append("deeper")
        return super().__torch_function__(func, types, args, kwargs)


class Other(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append("other")
        if Logging in types:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


class Replacing(torch.Tensor):
    """Another function in place of some."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.sin, torch.Tensor.sin):
            func = torch.cos
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Table(torch.Tensor):
    """Functions by table, and attributes carried along."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in HANDLED:
            return HANDLED[func](*args, **kwargs)
        made = super().__torch_function__(func, types, args, kwargs)
        if isinstance(made, Table):
            made.unit = next((a.unit for a in args if isinstance(a, Table) and hasattr(a, "unit")), None)
        return made


@handles(torch.add)
def _add(a, b):
    return torch.Tensor.mul(a.as_subclass(torch.Tensor), 10) + 1


@handles(nn.functional.relu)
def _relu(x, inplace=False):
    return ("relu", inplace, x)


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ValueError(f"no {func.__name__} here")


class NoTensor:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return 42


def unit(x):
    x.unit = "m"
    return x


MAKE = {
    "default": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Default),
    "logging": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Logging),
    "deeper": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Deeper),
    "replacing": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Replacing),
    "table": lambda: unit(torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Table)),
    "table without": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Table),
    "refusing": lambda: torch.arange(1.0, 5.0).reshape(2, 2).as_subclass(Refusing),
    "with gradients": lambda: torch.ones(2, 2, requires_grad=True).as_subclass(Logging),
    "leaf": lambda: torch.ones(2, 2).as_subclass(Logging).requires_grad_(),
    "integers": lambda: torch.ones(2, 2, dtype=torch.int64).as_subclass(Logging),
}
PROGRAMS = {
    "operators": lambda x: (x + 1, 1 + x, x - 1, 1 - x, 2 / (x + 1), x**2, 2**x, -x, abs(x)),
    "comparisons": lambda x: (x < 2, 2 >= x, x == x, x != 1),
    "in place": lambda x: (x.detach().clone().add_(1), x),
    "in place on the argument": lambda x: (x.add_(1) if not x.requires_grad else x, x),
    "augmented": lambda x: x.detach().clone().__iadd__(x),
    "methods": lambda x: (x.sum(), x.sum(0, keepdim=True), x.view(-1), x.t(), x.reshape(4), x.max(0)),
    "functions": lambda x: (
        torch.sin(x), torch.add(x, x), torch.mul(x, other=x), torch.cat([x, x]), torch.stack((x, x), dim=1),
        torch.where(x > 1, x, x),
    ),
    "library": lambda x: (
        nn.functional.relu(x),
        nn.functional.softmax(x, -1) if x.is_floating_point() else 0,
        nn.functional.pad(x, (1, 1)),
    ),
    "attributes": lambda x: (x + 1, x.shape, x.dtype, x.ndim, x.requires_grad, x.T, x.is_leaf),
    "questions": lambda x: (
        x + 1, x.dim(), x.size(), x.size(0), x.numel(), x.is_floating_point(), len(x), isinstance(x, torch.Tensor),
        type(x),
    ),
    "questions of torch": lambda x: (torch.is_tensor(x), torch.is_floating_point(x), torch.numel(x), x * 2),
    "items": lambda x: (x[0], x[0, 1], x[:, None], [row * 2 for row in x], (x > 1)[0]),
    "written items": lambda x: (lambda y: (y.__setitem__(0, 5), y)[1])(x.detach().clone()),
    "with plain": lambda x: (x + torch.ones(2, 2), torch.ones(2, 2) * x, torch.ones(2, 2).add(x)),
    "two results": lambda x: x.max(0),
    "chain": lambda x: (x + 1).relu().sum(0) * 2,
    "own": lambda x: (x.twice(), x.halved) if type(x) is Default else 0,
    "unwrapped": lambda x: (x.as_subclass(torch.Tensor) + 1, x),
    "wrapped": lambda x: (torch.ones(2, 2).as_subclass(type(x)) + x, torch.ones(2).as_subclass(type(x))),
    "unit": lambda x: (getattr(x + 1, "unit", "none"), (x * 2, x.unit) if hasattr(x, "unit") else 0),
    "attribute set": lambda x: (lambda y: (setattr(y, "extra", 3), y)[1])(torch.ones(2) * 2),
    "module": lambda x: nn.functional.linear(x, torch.ones(2, 2)) if x.is_floating_point() else 0,
    "truth": lambda x: 1 if (x > 0).all() else 2,
    "number": lambda x: x.sum().item(),
    "text": lambda x: (x + 1, str(x.shape)),
    "no function": lambda x: with_protocol_off(x),
    "norm": lambda x: x.norm() if x.is_floating_point() else 0,
    "split": lambda x: x.split(1),
    "unpacked": lambda x: (lambda a, b: a + b)(*x),
    "out of the class": lambda x: torch.Tensor.add(x, 1),
    "refused": lambda x: caught(x),
}


def with_protocol_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
    return y, x * 2


def caught(x):
    try:
        return x + 1
    except ValueError as e:
        return str(e)


def described(value):
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            attributes = sorted((k, str(v)) for k, v in value.__dict__.items())
            return (
                type(value), value.detach().as_subclass(torch.Tensor).tolist(), value.dtype, value.stride(),
                value.requires_grad, value.is_leaf, type(value.grad_fn).__name__, value._is_view(), attributes,
            )
    if isinstance(value, (tuple, list)):
        return type(value), [described(v) for v in value]
    return type(value), str(value)


def outcome(f, make):
    x = make()
    log.clear()
    try:
        result = f(x)
    except Exception as e:
        return type(e), str(e), list(log)
    seen = list(log)
    return described(result), seen, described(x)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_plain_python(program, kind):
    f, make = PROGRAMS[program], MAKE[kind]
    expected = outcome(f, make)
    compiled = framejit.optimize(f, backend="eager")
    with recorded() as events:
        for _ in range(2):
            assert outcome(compiled, make) == expected
        outcome(compiled, lambda: torch.ones(2, 2))
        assert outcome(compiled, make) == expected
    assert not of_kind(events, "warning")


CAPTURED = [
    "operators", "comparisons", "methods", "functions", "attributes", "questions", "items", "with plain", "chain",
    "wrapped", "unit",
]


@pytest.mark.parametrize("program", CAPTURED)
@pytest.mark.parametrize("kind", ["default", "logging", "deeper", "table"])
def test_captured_in_one_graph(program, kind):
    backend = CountingBackend()
    framejit.optimize(PROGRAMS[program], backend=backend, fullgraph=True)(MAKE[kind]())
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("program", ["chain", "operators", "in place on the argument", "wrapped", "unit"])
@pytest.mark.parametrize("kind", ["logging", "table", "default"])
def test_compiled(program, kind):
    f, make = PROGRAMS[program], MAKE[kind]
    expected = outcome(f, make)
    compiled = framejit.optimize(f)
    for _ in range(3):
        assert outcome(compiled, make) == expected


def two(a, b):
    return a + b, torch.add(b, a), torch.cat([b, a]), a.mul(b)


@pytest.mark.parametrize("one", ["logging", "deeper", "default", "table", "replacing"])
@pytest.mark.parametrize("other", ["logging", "deeper", "default", "refusing", "table without"])
def test_two_classes(one, other):
    compiled = framejit.optimize(two, backend="eager")
    for f in (lambda x: two(x, MAKE[other]()), lambda x: two(torch.ones(2, 2).as_subclass(Other), x)):
        compiled = framejit.optimize(f, backend="eager")
        expected = outcome(f, MAKE[one])
        for _ in range(2):
            assert outcome(compiled, MAKE[one]) == expected


def test_objects_that_are_no_tensors():
    f = lambda x: (torch.add(x, NoTensor()), torch.ones(2) + NoTensor() if False else 1)  # noqa: E731
    for make in (MAKE["logging"], MAKE["default"], lambda: torch.ones(2)):
        assert outcome(framejit.optimize(f, backend="eager"), make) == outcome(f, make)


def test_another_torch_function(monkeypatch):
    def f(x):
        return x + 1

    compiled = framejit.optimize(f, backend="eager")
    make = MAKE["logging"]
    for _ in range(2):
        assert outcome(compiled, make) == outcome(f, make)
    with monkeypatch.context() as m:
        m.setattr(Logging, "__torch_function__", classmethod(lambda cls, func, types, args=(), kwargs=None: 7))
        for _ in range(2):
            assert outcome(compiled, make) == outcome(f, make) == ((int, "7"), [], described(make()))
    assert outcome(compiled, make) == outcome(f, make)
    with monkeypatch.context() as m:
        m.setattr(Logging, "__torch_function__", torch._C._disabled_torch_function_impl)
        assert outcome(compiled, make) == outcome(f, make)
    with monkeypatch.context() as m:
        m.setattr(Logging, "__add__", lambda self, other: 8, raising=False)
        assert outcome(framejit.optimize(f, backend="eager"), make) == outcome(f, make)
    with torch._C.DisableTorchFunctionSubclass():
        assert type(compiled(make())) is type(f(make())) is torch.Tensor
    assert outcome(compiled, make) == outcome(f, make)


def test_another_table(monkeypatch):
    compiled = framejit.optimize(lambda x: torch.mul(x, 2) if True else 0, backend="eager")
    make = MAKE["table"]
    assert outcome(compiled, make) == outcome(lambda x: torch.mul(x, 2), make)
    monkeypatch.setitem(HANDLED, torch.mul, lambda *args: "other")
    assert outcome(compiled, make)[0] == (str, "other")


def test_another_unit():
    def f(x):
        return (x + 1).unit if hasattr(x, "unit") else 0, x * 3

    compiled = framejit.optimize(f, backend="eager")
    for name in ("m", "s", "m", None):
        def make(name=name):
            x = torch.ones(2).as_subclass(Table)
            if name is not None:
                x.unit = name
            return x

        assert outcome(compiled, make) == outcome(f, make)


def test_gradients():
    def f(x):
        return ((x * 2).sin() + 1).sum()

    for g in (f, framejit.optimize(f, fullgraph=True)):
        leaf = torch.ones(3, requires_grad=True)
        result = g(leaf.as_subclass(Logging))
        assert type(result) is Logging
        result.backward()
        torch.testing.assert_close(leaf.grad, 2 * torch.cos(torch.full((3,), 2.0)))


def test_a_break_inside():
    def f(x):
        y = x + 1
        print("here")
        return y * 2, y

    for make in (MAKE["logging"], MAKE["table"], MAKE["deeper"]):
        assert outcome(framejit.optimize(f, backend="eager"), make) == outcome(f, make)


def test_printing_override(capsys):
    class Printing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            print(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def f(x):
        return (x + 1).relu()

    x = torch.ones(2).as_subclass(Printing)
    f(x)
    expected = capsys.readouterr().out
    compiled = framejit.optimize(f, backend="eager")
    for _ in range(2):
        compiled(x)
        assert capsys.readouterr().out == expected


def test_user_attributes_of_tensors():
    def f(x):
        y = x * 2
        y.note, y.other = [1], x
        y.note.append(2)
        z = y + 1
        return {"y": y}, y.note, hasattr(z, "note"), y.other is x

    compiled = framejit.optimize(f, fullgraph=True)
    for _ in range(2):
        x = torch.ones(2)
        made, note, has, same = compiled(x)
        assert made["y"].note is note and note == [1, 2] and not has and same and made["y"].other is x

    def g(x):
        x.seen = getattr(x, "seen", 0) + 1
        return x + x.seen

    compiled = framejit.optimize(g, backend="eager")
    for h in (g, compiled):
        x = torch.ones(2)
        assert [h(x).tolist() for _ in range(3)] == [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]] and x.seen == 3


def test_a_break_while_the_protocol_is_off():
    def f(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
            print("here")
            y = y * 2
        return y, x + 1

    for make in (MAKE["logging"], lambda: torch.ones(2, 2)):
        backend = CountingBackend()
        assert outcome(framejit.optimize(f, backend=backend), make) == outcome(f, make)
        assert backend.graphs


PROTOCOL = (torch._C._is_torch_function_enabled, torch._C._is_torch_function_all_disabled)


def test_what_is_said_of_the_protocol():
    def f(x):
        said = [[ask() for ask in PROTOCOL]]
        for turned_off in (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction):
            with turned_off():
                said.append([ask() for ask in PROTOCOL])
                with torch._C.DisableTorchFunctionSubclass():
                    said.append([ask() for ask in PROTOCOL])
                said.append([ask() for ask in PROTOCOL])
        said.append([ask() for ask in PROTOCOL])
        return said, x + 1

    for make in (MAKE["logging"], lambda: torch.ones(2, 2)):
        compiled = framejit.optimize(f, backend="eager", fullgraph=True)
        assert outcome(compiled, make) == outcome(f, make)
        for turned_off in (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction):
            with turned_off():
                assert outcome(compiled, make) == outcome(f, make)
        assert outcome(compiled, make) == outcome(f, make)
