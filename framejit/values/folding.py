"""Running real Python on known values, instead of modelling it again."""

from __future__ import annotations

import enum
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.signals import NotConstant, Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import is_constant_object
from framejit.values.hash_order import note_order
from framejit.values.inspection import instance_dict, is_a, runs_code
from framejit.values.sym_int import on_sizes
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


# ~True, complex(1j, 1) and b"\\d".decode("unicode_escape") warn; nothing else that is folded does, and watching takes
# time
_MAY_WARN = frozenset(("invert", "complex", "decode"))


def fold(frame: Frame, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call the pure `function` on constants now.  What it raises, the captured program raises."""
    args = deep_realize(frame, args)
    expression = on_sizes(function, *args) if not kwargs else None
    if expression is not None:
        return expression
    try:
        real_args = [a.constant() for a in args]
        real_kwargs = {k: v.constant() for k, v in zip(kwargs, deep_realize(frame, list(kwargs.values())))}
    except NotConstant as e:
        raise Unsupported(
            f"{getattr(function, '__qualname__', function)}() on {e.what}, which is not known before the program runs",
            "FJ121",
        ) from None
    if any(
        type(part) is type and part in frame.capture.made_classes
        for part in _parts((getattr(function, "__self__", None), *real_args, *real_kwargs.values()))
    ):
        raise Unsupported("what is made of a class that was made here, and would hold the one of the capture")
    if any(map(runs_code, real_args)):
        raise Unsupported(
            f"{getattr(function, '__qualname__', function)}() of a class or enum with operators of the program's own"
        )
    called = _unless_it_warns if getattr(function, "__name__", "") in _MAY_WARN else operator.call
    try:
        result = called(function, *real_args, **real_kwargs)
    except Unsupported:
        raise
    except Exception as e:
        raise frame.raised_from(e) from None
    _note_what_is_of_this_process(frame, real_args, result)
    for value, real in zip(args, real_args):
        if result is real:
            return value
    if (
        not is_constant_object(result)
        and not is_a(result, enum.Enum)
        and type(result) not in (list, tuple, dict, set)
        or is_a(result, enum.Enum)
        and not _is_member(result)
    ):
        raise Unsupported(f"{getattr(function, '__qualname__', function)}() returns a {type(result).__name__}", "FJ121")
    return from_python(result)


def _parts(objects: Iterable[Any]) -> Iterator[Any]:
    """Objects, and what collections among them hold."""
    for obj in objects:
        yield obj
        if is_a(obj, (tuple, list, frozenset)):
            yield from _parts(obj)


def _note_what_is_of_this_process(frame: Frame, args: list[Any], result: Any) -> None:
    """Other processes have other hashes of text, and other addresses."""
    assumed = frame.capture.assumed
    for arg in args:
        if is_a(arg, frozenset) and len(arg) > 1:
            note_order(assumed, arg)
    if type(result) is str and " at 0x" in result:
        assumed.holds_only_here("an address is part of a text")


def _unless_it_warns(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The result of a call; one that warns is left to the program, at whose line that is told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    if told:
        raise Unsupported(f"{function.__name__}() warns", "FJ126")
    return result


def _is_member(made: enum.Enum) -> bool:
    """Whether an enum's class knows an instance, which is then the only one of its kind; `int.__new__` of the class
    makes another each time."""
    cls: Any = type(made)
    held = instance_dict(made) or {}
    if cls._member_map_.get(held.get("_name_")) is made:
        return True
    try:
        return bool(cls._value2member_map_.get(held.get("_value_")) is made)
    except TypeError:  # a value that can't be hashed
        return False


def plain(frame: Frame, value: Value) -> Any:
    """A Python object of the content of a value: of containers of constants a copy, for functions that only read
    them."""
    return realize(frame, value).plain_copy(frame)
