"""Running real Python on known values, instead of modelling it again."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, realize

if TYPE_CHECKING:
    from framejit.values.context import Frame


def fold(tx: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call the pure `function` on constants now.  What it raises, the captured program raises."""
    from framejit.values.constant import is_constant_object
    from framejit.values.lazy import deep_realize
    from framejit.values.size import on_sizes
    from framejit.values.wrap import from_python

    args = deep_realize(tx, args)
    expression = on_sizes(function, *args) if not kwargs else None
    if expression is not None:
        return expression
    try:
        real_args = [a.constant() for a in args]
        real_kwargs = {k: v.constant() for k, v in zip(kwargs, deep_realize(tx, list(kwargs.values())))}
    except NotConstant as e:
        raise Unsupported(f"{getattr(function, '__qualname__', function)}() on {e.what}, which is not known before the program runs", "FJ121") from None
    try:
        result = function(*real_args, **real_kwargs)
    except Exception as e:
        raise tx.raised_from(e) from None
    for value, real in zip(args, real_args):
        if result is real:
            return value
    if not is_constant_object(result) and type(result) not in (list, tuple, dict, set):
        raise Unsupported(f"{getattr(function, '__qualname__', function)}() returns a {type(result).__name__}", "FJ121")
    return from_python(result)


def fold_plain(tx: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The same for functions that only read their arguments, which may be containers of constants, and give a constant."""
    from framejit.values.constant import ConstantValue

    real_args, real_kwargs = [plain(tx, a) for a in args], {k: plain(tx, v) for k, v in kwargs.items()}
    try:
        return ConstantValue(function(*real_args, **real_kwargs))
    except Exception as e:
        raise tx.raised_from(e) from None


def plain(tx: Frame, value: Value) -> Any:
    """A Python copy of containers of constants, for functions that only read them."""
    from framejit.values.containers.mapping import DictValue
    from framejit.values.containers.sequence import ListValue, TupleValue
    from framejit.values.containers.sets import SetValue

    value = realize(tx, value)
    if isinstance(value, ListValue):
        items = [plain(tx, i) for i in value.items]
        return items if value.cls is list else value.cls(items, value.maxlen)  # type: ignore[attr-defined]
    if isinstance(value, TupleValue):
        return value.real([plain(tx, i) for i in value.items])
    if isinstance(value, DictValue):
        return value.cls({k.constant() if isinstance(k, Value) else k: plain(tx, v) for k, v in value.items.items()})
    if isinstance(value, SetValue):
        if any(isinstance(k, Value) for k in value.items):
            raise NotConstant(value.describe())
        value.in_order(tx)
        return value.items
    return value.constant()
