"""Guards on what a function reads besides its arguments: globals, builtins, cells, defaults, code, imported modules."""
import builtins
import types

import torch

from comparison import Opaque
from support import Pair, world

X = torch.tensor([1.0, 2.0])

SOURCE = """
    scale = 2
    table = {"k": [1, 2]}
    def helper(x):
        return x + 1
    def fn(x):
        return helper(x) * scale + table["k"][0]
"""


def both(pair, change):
    for side in (pair.eager_state, pair.state):
        change(side.value)


def from_source(source=SOURCE):
    def make():
        ns = world(source)
        return ns["fn"], Opaque(ns)

    return Pair(make)


def test_global_number_changed():
    p = from_source()
    p.call(X)
    both(p, lambda ns: ns.__setitem__("scale", 3))
    p.call(X, captures=True)
    both(p, lambda ns: ns.__setitem__("scale", 2))
    p.call(X, captures=False)


def test_global_function_replaced():
    p = from_source()
    p.call(X)
    both(p, lambda ns: ns.__setitem__("helper", torch.sin))
    p.call(X, captures=True)


def test_global_container_changed_inside():
    p = from_source()
    p.call(X)
    both(p, lambda ns: ns["table"]["k"].__setitem__(0, 50))
    p.call(X, captures=True)
    both(p, lambda ns: ns["table"].__setitem__("other", 1))
    p.call(X)


def test_unrelated_global_changed():
    p = from_source()
    p.call(X)
    both(p, lambda ns: ns.__setitem__("unrelated", object()))
    p.call(X, captures=False)


def test_builtin_shadowed_later():
    p = from_source("def fn(x):\n    return x + len(x)\n")
    p.call(X)
    both(p, lambda ns: ns.__setitem__("len", lambda v: 100))
    p.call(X, captures=True)


def test_builtin_replaced(monkeypatch):
    p = from_source("def fn(x):\n    return x + max(1, 2)\n")
    p.call(X)
    monkeypatch.setattr(builtins, "max", lambda *a: 100)
    assert torch.equal(p.compiled(X), X + 100)


def test_closure_cell_rebound():
    def make():
        k = 2

        def fn(x):
            return x * k

        def setter(v):
            nonlocal k
            k = v

        return fn, Opaque(setter)

    p = Pair(make)
    p.call(X)
    both(p, lambda s: s(5))
    p.call(X, captures=True)
    both(p, lambda s: s(2))
    p.call(X, captures=False)


def test_two_closures_of_one_code_do_not_mix():
    def scaled(k):
        def fn(x):
            return x * k

        return fn

    two, three = Pair(lambda: scaled(2)), Pair(lambda: scaled(3))
    for p in (two, three, two):
        p.call(X)


def test_defaults_of_the_function_changed():
    def make():
        def fn(x, k=2, *, j=1):
            return x * k + j

        return fn, Opaque(fn)

    p = Pair(make)
    p.call(X)
    both(p, lambda h: setattr(h, "__defaults__", (7,)))
    p.call(X, captures=True)
    both(p, lambda h: setattr(h, "__kwdefaults__", {"j": 9}))
    p.call(X, captures=True)


def test_defaults_of_an_inlined_function_changed():
    def make():
        def inner(x, k=2):
            return x * k

        def fn(x):
            return inner(x) + 1

        return fn, Opaque(inner)

    p = Pair(make)
    p.call(X)
    both(p, lambda h: setattr(h, "__defaults__", (7,)))
    p.call(X, captures=True)


def test_code_of_an_inlined_function_changed():
    def make():
        def inner(x):
            return x * 2

        def fn(x):
            return inner(x) + 1

        return fn, Opaque(inner)

    p = Pair(make)
    p.call(X)
    both(p, lambda h: setattr(h, "__code__", (lambda x: x * 50).__code__))
    p.call(X, captures=True)


def test_code_of_the_function_itself_changed():
    import framejit

    from support import CountingBackend

    def fn(x):
        return x + 1

    fast = framejit.optimize(fn, backend=CountingBackend())
    assert torch.equal(fast(X), X + 1)
    fn.__code__ = (lambda x: x * 50).__code__
    assert torch.equal(fast(X), X * 50)


def test_attribute_of_an_imported_module_changed():
    module = types.ModuleType("settings")
    module.gain = 2
    p = Pair(lambda: lambda x: x * module.gain)
    p.call(X)
    module.gain = 3
    p.call(X, captures=True)


def test_torch_function_patched(monkeypatch):
    p = Pair(lambda: lambda x: torch.sin(x) + 1)
    p.call(X)
    monkeypatch.setattr(torch, "sin", torch.cos)
    p.call(X, captures=True)


def test_function_attribute_changed():
    def make():
        def fn(x):
            return x + fn.bias

        fn.bias = 1
        return fn, Opaque(fn)

    p = Pair(make)
    p.call(X)
    both(p, lambda h: setattr(h, "bias", 2))
    p.call(X, captures=True)


def test_new_code_of_functions_that_are_in_no_file():
    """As in a console or a notebook."""
    source = (
        "import functools\ndef helper(x, k=2): return x * k\npart = functools.partial(helper, k=3)\n"
        "class Holder: method = helper\n"
        "def fn(x): return helper(x), part(x), Holder.method(x, 5), functools.partial(helper)(x)\n"
    )

    def make():
        namespace = {"__name__": "console"}
        exec(compile(source, "<stdin>", "exec"), namespace)
        return namespace["fn"], Opaque(namespace)

    pair = Pair(make)
    pair.call(X)
    pair.call(X, captures=False)
    for change in (lambda x, k=2: x - k, lambda x, k=2, *, s=1: x * 50, lambda x, k: x.sum() + k):
        for side in (pair.eager_state, pair.state):
            side.value["helper"].__code__ = change.__code__
        pair.call(X)
        pair.call(X)
