"""Fake tensors without torch._dynamo and sympy, whose import would cost the first compiled call more than all the rest
of it.

Static shapes need neither, but torch's code for fake tensors imports them on the way. What it asks of them is answered
here, on plain Python values and framejit's own symbols, by modules that stand in for them (`stand_ins.py`).
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from framejit.fakes.stand_ins import DYNAMO, STAND_INS, SYMBOLS, SYMPY, Never, StandIn, disable, light, real
from framejit.symbols.sym_node import is_ours

__all__ = ["DYNAMO", "SOURCES", "SYMBOLS", "StandIn", "light", "real"]

CONFIG, SOURCES = "torch._dynamo.config", "torch._dynamo.source"
FUNCTIONS = "torch.utils._sympy.functions"


def _plain(value: Any) -> bool:
    """Whether there are no symbols in `value`, or only framejit's own, which answer for themselves."""
    if isinstance(value, (int, float, str, type(None))):
        return True
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return is_ours(value)
    if isinstance(value, torch.Tensor):
        return not value._has_symbolic_sizes_strides or _plain((*value.shape, *value.stride()))
    return isinstance(value, (tuple, list)) and all(map(_plain, value))


def _unless_symbolic(home: str, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if all(map(_plain, args)) and all(map(_plain, kwargs.values())):
            return plain(*args, **kwargs)
        return getattr(real(home), name)(*args, **kwargs)

    return call


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _known_true(x: Any) -> bool:
    return x.node.known() is True if isinstance(x, torch.SymBool) else x


def _known_false(x: Any) -> bool:
    return x.node.known() is False if isinstance(x, torch.SymBool) else not x


def _hint(x: Any, *_: Any, **__: Any) -> Any:
    return x.node.hint if isinstance(x, torch.SymInt) else x


def _decided(x: Any, *_: Any, **__: Any) -> Any:
    return bool(x) if isinstance(x, torch.SymBool) else x


def _equal(x: Any, y: Any) -> bool:
    return bool(tuple(x) == tuple(y) if isinstance(x, (tuple, list)) else x == y)


def _all(*conditions: Any) -> Any:
    return functools.reduce(operator.and_, conditions)


def _any(*conditions: Any) -> Any:
    return functools.reduce(operator.or_, conditions)


_ON_PLAIN_VALUES: dict[str, Callable[..., Any]] = {
    "guard_or_false": _decided,
    "guard_or_true": _decided,
    "guard_size_oblivious": _decided,
    "expect_true": _decided,
    "guard_int": int,
    "guard_bool": _decided,
    "guard_scalar": _same,
    "statically_known_true": _known_true,
    "statically_known_false": _known_false,
    "sym_eq": _equal,
    "sym_and": _all,
    "sym_or": _any,
    "is_symbolic": lambda x, **_: False,
    "is_nested_int": lambda x, **_: False,
    "has_free_symbols": lambda x, **_: False,
    "has_free_unbacked_symbols": lambda x, **_: False,
    "has_hint": lambda x, **_: True,
    "size_hint": _hint,
    "has_guarding_hint": lambda x, **_: True,
    "guarding_hint_or_throw": _hint,
    "optimization_hint": _hint,
    "_advise_is_size": lambda x, **_: None,
    "_advise_is_bounded": lambda x, *_, **__: None,
    "_iterate_exprs": lambda x, **_: (),
    "_iterate_nodes": lambda x, **_: (),
    "free_symbols": lambda x, **_: set(),
    "free_unbacked_symbols": lambda x, **_: set(),
}


def _compute_unbacked_bindings(shape_env: Any, *args: Any, **kwargs: Any) -> Any:
    return None if shape_env is None else real(SYMBOLS).compute_unbacked_bindings(shape_env, *args, **kwargs)


class _ClassOf(type):
    """For `isinstance` with a class of a module: nothing is an instance of it while the module is not there."""

    home: str

    def __instancecheck__(cls, value: object) -> bool:
        module = sys.modules.get(cls.home)
        return not isinstance(module, (StandIn, type(None))) and isinstance(value, getattr(module, cls.__name__))


def _classes(home: str, *names: str) -> dict[str, type]:
    return {name: _ClassOf(name, (), {"home": home}) for name in names}


class _ConstantSource:
    """The name of a tensor nobody named; only symbols would be derived from it."""

    def __init__(self, name: str) -> None:
        self.name = name


class _AttrSource:
    """Where the base or the gradient of such a tensor was found."""

    def __init__(self, base: Any, member: str) -> None:
        self.base, self.member, self.name = base, member, f"{base.name}.{member}"


# torch's defaults: without Dynamo nobody can have changed them
_config = StandIn(
    CONFIG,
    {"fake_tensor_cache_enabled": True, "fake_tensor_cache_crosscheck_enabled": False, "_custom_ops_profile": None},
)
_sources = StandIn(
    SOURCES, {"ConstantSource": _ConstantSource, "AttrSource": _AttrSource, **_classes(SOURCES, "RandomValueSource")}
)
_symbols = StandIn(
    SYMBOLS,
    {
        "GuardOnDataDependentSymNode": Never,
        "compute_unbacked_bindings": _compute_unbacked_bindings,
        **{name: _unless_symbolic(SYMBOLS, name, plain) for name, plain in _ON_PLAIN_VALUES.items()},
    },
    keepable={*_ON_PLAIN_VALUES, "GuardOnDataDependentSymNode"},
)
STAND_INS.update(
    (module.__name__, module)
    for module in (
        StandIn(SYMPY, _classes(SYMPY, "Basic", "Expr", "Symbol")),
        StandIn(FUNCTIONS, {"Max": _unless_symbolic(FUNCTIONS, "Max", torch.sym_max)}),
        _config,
        _sources,
        _symbols,
        StandIn(DYNAMO, {"disable": disable, "config": _config, "source": _sources}),
    )
)
