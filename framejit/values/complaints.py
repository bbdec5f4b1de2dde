"""What Python says of operands it has no operation for: asked of Python, with objects of the same kinds."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.type_flags import HEAP_TYPE
from framejit.values.base import Value
from framejit.values.inspection import mro_of

if TYPE_CHECKING:
    from framejit.signals import Raised
    from framejit.values.context import Frame

_SAMPLES: tuple[Any, ...] = (
    [], (), {}, set(), frozenset(), "", b"", bytearray(), 1, 1.0, 1j, True, None, ..., range(1), slice(1), len,
    object(), type,
)
_BY_CLASS = {type(sample): sample for sample in (*_SAMPLES, collections.deque(), collections.OrderedDict())}
_ARITHMETIC = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor"
_OPERATIONS = {
    *(f"__{prefix}{name}__" for name in _ARITHMETIC.split() for prefix in ("", "r", "i")),
    *(f"__{name}__" for name in ("lt", "le", "eq", "ne", "gt", "ge")),
}
SPECIAL: dict[str, Callable[..., Any]] = {
    "__setitem__": operator.setitem, "__delitem__": operator.delitem, "__index__": operator.index,
}


def refused(frame: Frame, function: Callable[..., Any], operands: list[Value], otherwise: str) -> Raised:
    """The TypeError of `function` on operands whose classes don't have it; `otherwise` is said where that can't be
    tried."""
    try:
        function(*(_like(v.python_type()) for v in operands))
    except TypeError as e:
        return frame.raised(TypeError, str(e))
    except Exception:
        pass
    return frame.raised(TypeError, otherwise)


def wrong_answer(
    frame: Frame, cls: type, method: str, ask: Callable[[Any], Any], answer: Value, otherwise: str
) -> Raised:
    """The error of `ask` on an object whose special method gave `answer`, which is of no use; `otherwise` is said where
    that can't be tried."""
    try:
        given = _like(answer.python_type())
        ask(type(cls.__name__, (), {**_names(cls), method: lambda self, *_: given})())
    except Exception as e:
        return frame.raised(type(e), str(e))
    return frame.raised(TypeError, otherwise)


def _names(cls: type) -> dict[str, str]:
    return {"__module__": module_of(cls), "__qualname__": cls.__qualname__}


def _like(cls: type) -> Any:
    """An object whose class has the name of `cls`. If `cls` is the program's own, it derives from the same built-in
    class, and its operations give NotImplemented; of other classes written in C it has no operations."""
    if cls in _BY_CLASS:
        return _BY_CLASS[cls]
    own = list(itertools.takewhile(lambda base: base not in _BY_CLASS, mro_of(cls)))
    base = mro_of(cls)[len(own)] if all(_is_made_by_python(part) for part in own) else object
    operations = {name for part in own for name in vars(part) if name in _OPERATIONS}
    made = type(native.type_name(cls), (base,), {**_names(cls), **dict.fromkeys(operations, _not_implemented)})
    return made(*("", (), {}) if base is type else ())


def _is_made_by_python(cls: type) -> bool:
    """Whether a class is no C code's, which has the module in its names but for `builtins`."""
    return bool(cls.__flags__ & HEAP_TYPE) and module_of(cls) != "builtins" and "." not in native.type_name(cls)


def _not_implemented(*_: Any) -> Any:
    return NotImplemented
