"""Checks that the native core reads the internals of this interpreter where they are.

The core is built for one release of CPython, and a patch of that release may lay something out otherwise. Here, once,
at import, it reads objects whose contents are known; what it gets wrong is not used, which costs speed or reach and
nothing else, and one sentence says so.
"""

from __future__ import annotations

import platform
import warnings
from functools import partial
from types import FunctionType
from typing import Any

from framejit import _native
from framejit.errors import FramejitWarning

CONSEQUENCES = {
    "frames": "functions that compiled code calls are not captured",
    "dicts": "guards are evaluated in full at each call",
    "instances": "guards are evaluated in full at each call",
    "types": "guards are evaluated in full at each call",
    "codes": "what is known of a code object is looked up more slowly",
    "sets": "code that depends on the order of a set is not captured",
}
"""What follows where a part of the interpreter is not laid out as the native core expects."""


class _Instance:
    alpha: float
    beta: tuple[int, ...]
    x: int


def _probed(a: object, b: object) -> object:
    return b


def _replacement(a: object, b: object) -> object:
    both: Any = [a, b]
    for x in both:
        return x
    return both


def _dicts_hold() -> bool:
    plain = {"alpha": 1.5, "beta": (2,)}
    general = {("alpha",): 1.5, 7.25: (2,)}
    shared = _Instance()
    shared.alpha, shared.beta = 1.5, (2,)
    return _native.check_dict(vars(shared), *_items(vars(shared)), True) and all(
        _native.check_dict(d, *_items(d), False) for d in (plain, general)
    )


def _items(d: dict[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(d), tuple(d.values())


def _instances_hold() -> bool:
    made, unmade, filled = _Instance(), _Instance(), _Instance()
    made.__dict__ = {"x": 1}
    filled.x = 1
    return all(map(_native.check_instance, (made, unmade, filled)))


def _types_hold() -> bool:
    """A class has a number of its own, which changes with it and with what it inherits from."""
    base: Any = type("Base", (), {})
    derived = type("Derived", (base,), {})
    first = _native.type_version(base), _native.type_version(derived)
    base.attribute = 1
    second = _native.type_version(base), _native.type_version(derived)
    again = _native.type_version(base), _native.type_version(derived)
    return len({0, *first, *second}) == 5 and second == again


def _attributes_are_told() -> bool:
    """Whether each write to an instance, also by instructions that were specialised before it had a dictionary, is told
    to who watches that dictionary."""
    shared = _Instance()
    for instance in [*(_Instance() for _ in range(64)), shared]:
        _write(instance, 1.5)
        _remove(instance)
        _write(instance, 2.5)
    changes = (
        partial(_write, shared, 3.5),
        partial(_remove, shared),
        partial(_write, shared, 4.5),
        partial(setattr, shared, "beta", (2,)),
        partial(vars(shared).__setitem__, "x", 3),
        partial(vars(shared).clear),
    )
    return _native.check_attribute_watch(vars(shared), changes)


def _write(instance: _Instance, value: float) -> None:
    instance.alpha = value


def _remove(instance: _Instance) -> None:
    del instance.alpha


def _sets_hold() -> bool:
    gone = {1, 2, 3}
    gone.discard(2)
    probes: tuple[set[Any] | frozenset[Any], ...] = (gone, {1.5, "a", (2,)}, frozenset(range(9)))
    return all(map(_native.check_set, probes))


def check() -> dict[str, bool]:
    """By part of the interpreter, whether the native core reads it right. What it does not is switched off."""
    answers = {
        "frames": _native.check_frames(FunctionType(_probed.__code__, {}), _replacement.__code__),
        "dicts": _dicts_hold(),
        "instances": _instances_hold(),
        "types": _types_hold(),
        "codes": _native.check_code(_probed.__code__.replace()),
        "sets": _sets_hold(),
    }
    for part, holds in answers.items():
        _native.set_cpython_layout(part, holds)
    return answers


def report(answers: dict[str, bool]) -> str:
    """One sentence about what is switched off; empty where nothing is."""
    wrong = [part for part, holds in answers.items() if not holds]
    if not wrong:
        return ""
    parts, effects = ", ".join(wrong), "; ".join(dict.fromkeys(CONSEQUENCES[part] for part in wrong))
    return f"CPython {platform.python_version()} lays out its {parts} otherwise than framejit was built for: {effects}"


LAYOUT = check()
"""By part of the interpreter, whether the native core reads it."""

ATTRIBUTES_ARE_TOLD = _attributes_are_told()
"""Whether guards need not look at attributes while no dictionary has changed. 3.13.0 tells nobody of changes by
assignment."""

if _sentence := report(LAYOUT):
    warnings.warn(_sentence, FramejitWarning, stacklevel=2)
