"""`str.maketrans` of known text or a known dict: the table is made while capturing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.handlers import handles
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame


@handles(str.maketrans)
def _table(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    given = [realize(frame, arg) for arg in args]
    if kwargs or not all(isinstance(arg, ConstantValue) or arg.python_type() is dict for arg in given):
        return None
    try:
        return from_python(str.maketrans(*[arg.plain_copy(frame) for arg in given]))
    except (TypeError, ValueError) as e:
        raise frame.raised_from(e) from None
