"""Functions of `math` on numbers of numpy, which are Python's numbers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.arrays.ndarray import NumberValue
from framejit.values.base import Value
from framejit.values.handlers import HANDLERS, Handler
from framejit.values.runtime_numbers import number_functions  # noqa: F401  registers what is called then
from framejit.values.runtime_numbers.number_calls import NAMES

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _of_python(function: Handler) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        return function(frame, [a.plain(frame) if isinstance(a, NumberValue) else a for a in args], kwargs)

    return handler


for _function in NAMES:
    if _function is not round:  # of which numpy has its own
        HANDLERS[_function] = _of_python(HANDLERS[_function])
