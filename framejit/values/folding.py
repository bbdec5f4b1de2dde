"""Running real Python on known values, instead of modelling it again."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from framejit.values.base import Value
from framejit.values.signals import NotConstant, Unsupported

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame


def fold(tx: "Frame", function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call the pure `function` on constants now.  What it raises, the captured program raises."""
    from framejit.values.constant import is_constant_object
    from framejit.values.wrap import from_python

    try:
        real_args = [a.constant() for a in args]
        real_kwargs = {k: v.constant() for k, v in kwargs.items()}
    except NotConstant as e:
        raise Unsupported(f"{getattr(function, '__qualname__', function)}() on {e}, which is not known before the program runs", "FJ121") from None
    try:
        result = function(*real_args, **real_kwargs)
    except Exception as e:
        raise tx.raised_from(e) from None
    if not is_constant_object(result) and type(result) not in (list, tuple, dict, set):
        raise Unsupported(f"{getattr(function, '__qualname__', function)}() returns a {type(result).__name__}", "FJ121")
    return from_python(result)
