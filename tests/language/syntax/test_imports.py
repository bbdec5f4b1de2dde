"""Imports inside functions: what `sys.modules` holds when the statement runs, and names that a module makes when it is
asked for them."""
import sys
import types

import pytest
import torch

import framejit

from support import check_state


def module(name, **parts):
    made = types.ModuleType(name)
    vars(made).update(parts)
    return made


def whole(x):
    import framejit_made_up

    return x + framejit_made_up.a


def part(x):
    from framejit_made_up import a

    return x + a


def dotted(x):
    import framejit_made_up.inner

    return x + framejit_made_up.inner.a


def renamed(x):
    import framejit_made_up.inner as inner

    return x + inner.a


def part_of_dotted(x):
    from framejit_made_up.inner import a

    return x + a


def submodule(x):
    from framejit_made_up import inner

    return x + inner.a


def optional(x):
    try:
        from framejit_made_up import missing
    except AttributeError:
        return x + 50
    except ImportError as e:
        return x + 1, str(e), e.name
    return x + missing


def changes():
    def put(name, value):
        sys.modules[name] = value

    inner, last = (module("framejit_made_up.inner", a=n) for n in (5, 7))
    first, second = (
        module("framejit_made_up", a=1, __path__=[], inner=inner),
        module("framejit_made_up", a=2, __path__=[]),
    )
    yield lambda: (put("framejit_made_up", first), put("framejit_made_up.inner", inner))
    yield lambda: put("framejit_made_up", second)
    yield lambda: put("framejit_made_up.inner", last)
    yield lambda: put("framejit_made_up", first)
    yield lambda: setattr(first, "missing", 30)
    yield lambda: put("framejit_made_up", types.SimpleNamespace(a=8, inner=types.SimpleNamespace(a=9)))
    yield lambda: put("framejit_made_up", type("Posing", (), {"a": 10}))
    yield lambda: put("framejit_made_up", None)
    yield lambda: sys.modules.pop("framejit_made_up")
    yield lambda: put("framejit_made_up", first)


@pytest.mark.parametrize("fn", [whole, part, dotted, renamed, part_of_dotted, submodule, optional])
def test_another_module_in_its_place(fn, monkeypatch):
    def ended(run):
        found = []
        for change in changes():
            change()
            for _ in range(2):
                try:
                    found.append(str(run(torch.ones(2))))
                except Exception as e:
                    found.append((type(e), str(e)))
        return found

    for name in ("framejit_made_up", "framejit_made_up.inner"):
        monkeypatch.setitem(sys.modules, name, None)  # taken out again at the end
    assert ended(framejit.optimize(fn, backend="eager")) == ended(fn)


def made_once(x):
    from framejit_made_up import made

    return x + made


def made_twice(x):
    import framejit_made_up

    return x + framejit_made_up.made + framejit_made_up.made


@pytest.mark.parametrize("fn", [made_once, made_twice, optional])
def test_a_module_that_makes_its_names_is_asked_each_time(fn, monkeypatch):
    def told(run):
        asked = []

        def make(name):
            asked.append(name)
            if name == "made":
                return len(asked)
            raise AttributeError(name)

        monkeypatch.setitem(sys.modules, "framejit_made_up", module("framejit_made_up", __getattr__=make))
        # which telling of a module's frames asks for
        return [str(run(torch.ones(2))) for _ in range(3)], [name for name in asked if name != "__file__"]

    assert told(framejit.optimize(fn, backend="eager")) == told(fn)


def test_the_program_imports_in_its_own_way(monkeypatch):
    compiled, original = framejit.optimize(whole, backend="eager"), __import__
    monkeypatch.setitem(sys.modules, "framejit_made_up", module("framejit_made_up", a=1))
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    asked = []

    def own(name, *args):
        asked.append(name)
        return module(name, a=3) if name == "framejit_made_up" else original(name, *args)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.__import__", own)
        assert compiled(torch.ones(2)).tolist() == [4, 4]
    assert asked == ["framejit_made_up"]
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_what_a_module_is_asked_for_may_come_later():
    """An attribute that it has not: its `__getattr__`, or another class, may give it from then on."""

    def make():
        made = types.ModuleType("made")
        made.k = 2
        calls = []

        class Computes(types.ModuleType):
            @property
            def q(self):
                calls.append("q")
                return self.k * 2

            def method(self):
                return self.k

        def missing(name):
            if name != "late":
                raise AttributeError(name)
            return 6

        def change():
            step = next(steps)
            if step == 2:
                made.__getattr__ = missing
            elif step == 3:
                made.__class__ = Computes
            elif step == 4:
                made.k = 8
            elif step == 5:
                del made.__getattr__
            return calls

        def fn(x):
            y = x * made.k
            for name in ("late", "q"):
                if hasattr(made, name):
                    y = y + getattr(made, name)
            return y, made.method() if hasattr(made, "method") else None

        steps = iter(range(9))
        return fn, change

    check_state(make, *[(torch.ones(2),)] * 7)
