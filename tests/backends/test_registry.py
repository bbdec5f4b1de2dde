"""Backends by name: our own, registered, installed."""
import importlib.metadata
import types

import pytest
import torch

import framejit
from framejit.backends import registry
from framejit.errors import BackendError, InvalidOption, UnknownBackend

from support import CountingBackend

X = torch.arange(4.0)


def f(x):
    return x * 2 + 1


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def installed(monkeypatch):
    """Pretends that a package has installed a backend."""

    def install(name: str, value: str) -> None:
        point = importlib.metadata.EntryPoint(name, value, registry.ENTRY_POINTS)
        monkeypatch.setattr(
            registry,
            "entry_points",
            lambda group: importlib.metadata.EntryPoints([point] if group == point.group else []),
        )

    return install


def installable(gm, example_inputs):
    installable.calls += 1
    return gm.forward


def test_eager_is_a_python_function_of_the_graph():
    """The interpreter enters one without a call in C; torch.nn.Module.__call__ would cost more than a small graph."""
    graph = torch.fx.symbolic_trace(f)
    compiled = registry.resolve("eager")[0](graph, [X])
    assert (
        isinstance(compiled, types.MethodType)
        and isinstance(compiled.__func__, types.FunctionType)
        and compiled.__self__ is graph
    )
    assert torch.equal(compiled(X), graph(X))


def test_the_default_is_a_setting():
    assert registry.resolve(None)[1] == framejit.config.default_backend
    backend = framejit.register_backend("counting", CountingBackend())
    with framejit.config.patch(default_backend="counting"):
        fast = framejit.optimize(f)
    fast(X)
    assert backend.runs == 1


def test_a_function_as_backend():
    seen = []

    def mine(gm, example_inputs):
        seen.append(([type(i) for i in example_inputs], [i.shape for i in example_inputs]))
        return gm.forward

    fast = framejit.optimize(f, backend=mine)
    assert fast.options.backend_name == "mine"
    assert torch.equal(fast(X), f(X))
    assert len(seen) == 1 and seen[0][1] == [X.shape]


def test_an_object_as_backend_is_named_by_its_class():
    assert registry.resolve(CountingBackend())[1] == "CountingBackend"


def test_register_by_name():
    backend = CountingBackend()
    framejit.register_backend("counting", backend)
    assert "counting" in framejit.list_backends()
    framejit.optimize(f, backend="counting")(X)
    assert backend.runs == 1


def test_register_as_decorator():
    @framejit.register_backend
    def first(gm, example_inputs):
        return gm.forward

    @framejit.register_backend("second")
    def other(gm, example_inputs):
        return gm.forward

    assert registry.resolve("first") == (first, "first")
    assert registry.resolve("second") == (other, "second")


def test_registering_again_replaces():
    framejit.register_backend("mine", CountingBackend())
    newer = framejit.register_backend("mine", CountingBackend())
    assert registry.resolve("mine")[0] is newer


def test_what_cannot_be_registered():
    with pytest.raises(InvalidOption, match="eager"):
        framejit.register_backend("eager", CountingBackend())
    with pytest.raises(InvalidOption, match="callable"):
        framejit.register_backend("number", 3)
    with pytest.raises(InvalidOption, match="empty"):
        framejit.register_backend(CountingBackend())


def test_an_installed_backend(installed):
    installable.calls = 0
    installed("shipped", f"{__name__}:installable")
    assert "shipped" in framejit.list_backends()
    import sys

    sys.modules[__name__].installable = installable
    assert torch.equal(framejit.optimize(f, backend="shipped")(X), f(X))
    assert installable.calls == 1


@pytest.mark.parametrize("value", ["no_such_module:backend", "math:no_such_name", "math:pi"])
def test_an_installed_backend_that_cannot_be_loaded(installed, value):
    installed("shipped", value)
    with pytest.raises(BackendError, match=rf"'shipped' \({value}\)"):
        framejit.optimize(f, backend="shipped")


@pytest.mark.parametrize(("name", "meant"), [("egaer", "eager"), ("inducter", "inductor"), ("countng", "counting")])
def test_an_unknown_name_gets_a_suggestion(name, meant):
    framejit.register_backend("counting", CountingBackend())
    with pytest.raises(UnknownBackend, match=f"there is no backend '{name}'; did you mean '{meant}'"):
        framejit.optimize(f, backend=name)


def test_an_unknown_name_unlike_any_other_gets_the_list():
    with pytest.raises(UnknownBackend, match="there are: .*eager"):
        framejit.optimize(f, backend="zzzzzz")


def test_neither_name_nor_callable():
    with pytest.raises(InvalidOption, match="backend must be a name or a callable, not int"):
        framejit.optimize(f, backend=3)
