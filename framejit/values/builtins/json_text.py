"""`json.dumps` of plain data, and `json.loads` of known text: the module does both while capturing, unless numbers in
the data are not assumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from framejit.late_dataclass import dataclass
from framejit.signals import NotConstant
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.folding import plain
from framejit.values.handlers import handles
from framejit.values.runtime_numbers.texts_of_data import text_of_data
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame

_OPTIONS: Final = frozenset(("indent", "sort_keys", "ensure_ascii", "separators", "allow_nan", "skipkeys"))
_PLAIN: Final = (str, int, float, bool, type(None))


def _is_plain(obj: Any) -> bool:
    """Whether a Python object is data that has no code of the program's."""
    if type(obj) is dict:
        return all(type(key) in _PLAIN for key in obj) and all(map(_is_plain, obj.values()))
    return all(map(_is_plain, obj)) if type(obj) in (list, tuple) else type(obj) in _PLAIN


@dataclass(frozen=True)
class JsonWriter:
    """`json.dumps` with options."""

    options: tuple[tuple[str, Any], ...]

    def __call__(self, data: Any) -> str:
        return json.dumps(data, **dict(self.options))


@handles(json.dumps)
def _dumps(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 1 or not _OPTIONS.issuperset(kwargs):
        return None
    data = realize(frame, args[0])
    if not isinstance(data, (DictValue, SequenceValue, ConstantValue)):
        return None
    try:
        options = {name: plain(frame, value) for name, value in kwargs.items()}
        if not all(map(_is_plain, options.values())):
            return None
        if options.get("allow_nan", True):  # else it raises for some numbers
            text = text_of_data(frame, JsonWriter(tuple(options.items())), data)
            if text is not None:
                return text
        real = plain(frame, data)
    except (NotConstant, RecursionError):
        return None
    if not _is_plain(real):
        return None
    try:
        return ConstantValue(json.dumps(real, **options))
    except Exception as e:
        raise frame.raised_from(e) from None


@handles(json.loads)
def _loads(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    text = realize(frame, args[0]) if len(args) == 1 and not kwargs else None
    if not isinstance(text, ConstantValue) or type(text.value) not in (str, bytes):
        return None
    try:
        return from_python(json.loads(text.value))
    except ValueError:  # whose traceback leads through the module
        return None
