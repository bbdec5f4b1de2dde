"""Text with numbers in it that are not assumed: `f"loss {loss:.4f}"`, `"%.4f" % loss`, `str(step)`.

Replacement code writes it anew. Whoever asks for more, such as its length, assumes the numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_KNOWN: Final = (str, int, float, bool, type(None))
_CONVERSION: Final = re.compile("%[^a-zA-Z%]*([a-zA-Z%])")
_OF_FLOATS: Final = frozenset("eEfFgGrsa")
"""Conversions of `%` that take any float; others take ints alone, or no nan."""


class NumberTextValue(Value):
    """What a function makes of text and numbers of which some are not assumed."""

    built_once = True

    def __init__(self, function: Callable[..., str], parts: tuple[Value, ...]) -> None:
        self.function, self.parts = function, parts
        self.has_read: bool = any(
            isinstance(part, ReadNumberValue) or isinstance(part, NumberTextValue) and part.has_read for part in parts
        )
        """Whether a number in it is known only once the graph has run."""

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return "text with numbers that change"

    def is_constant(self) -> bool:
        return not self.has_read  # it can be had then, at the price of guards

    def constant(self) -> Any:
        return self.function(*[_known(part) for part in self.parts])

    def truth(self, frame: Frame) -> bool:
        return bool(self.constant())

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return ConstantValue(self.constant()).iterate(frame)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return ConstantValue(self.constant()).call_method(frame, name, args, kwargs)

    def children(self) -> Iterator[Value]:
        return iter(self.parts)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(self.function, lambda: [cg.load(part) for part in self.parts], len(self.parts))


_OPEN: Final = (SymNumberValue, SymIntValue, ReadNumberValue, NumberTextValue)


def _known(part: Value) -> Any:
    return part.must_be_known() if isinstance(part, ReadNumberValue) else part.constant()


def text_made_of(function: Callable[..., str], parts: Sequence[Value]) -> Value | None:
    """What a function makes of text and numbers; None where none of these is open, others are among them, or it
    raises. Whether it raises must not depend on what the numbers are."""
    if not any(isinstance(part, _OPEN) for part in parts):
        return None
    like = [_like(part) for part in parts]
    if None in like:
        return None
    try:
        function(*[found for found, in like])  # type: ignore[misc]
    except Exception:  # as it will with the number that is known then
        return None
    return NumberTextValue(function, tuple(parts))


def _like(part: Value) -> tuple[Any] | None:
    """What stands for a part to find out whether a function raises; None for what is neither text nor a number."""
    if isinstance(part, NumberTextValue):
        return ("",)
    if isinstance(part, ReadNumberValue):
        return None if part.is_either else (part.cls(1),)
    if isinstance(part, SymIntValue) and not part.is_of_data():
        return (1,)
    if isinstance(part, SymNumberValue) and part.python_type() is float:
        return (1.0,)
    return (part.value,) if isinstance(part, ConstantValue) and type(part.value) in _KNOWN else None


def joined(*parts: str) -> str:
    """The text of an f-string."""
    return "".join(parts)


def formatted(*parts: Any) -> str:
    """`format(number, spec)`."""
    return format(*parts)


def by_percent(template: str, *values: Any) -> str:
    """`template % values`."""
    return template % values


def by_template(template: str, names: str, *values: Any) -> str:
    """`template.format(...)`; the last values have names, which are separated by commas."""
    by_name = names.split(",") if names else []
    n_places = len(values) - len(by_name)
    return template.format(*values[:n_places], **dict(zip(by_name, values[n_places:])))


def text_of_number(function: Callable[..., str], args: Sequence[Value]) -> Value | None:
    """`str()`, `repr()`, `ascii()` or `format()` of an open number, or of text with such; None of anything else."""
    if len(args) == 1 and function is str and isinstance(args[0], NumberTextValue):
        return args[0]
    if function is not format:
        return text_made_of(function, args) if len(args) == 1 else None
    spec = args[1] if len(args) == 2 else ConstantValue("")
    if not isinstance(spec, ConstantValue) or type(spec.value) is not str or spec.value.endswith("c"):
        return None
    return text_made_of(formatted, args)


def _is_whole(value: Value) -> bool:
    """Whether an open number is an int, or it is known."""
    return isinstance(value, (SymIntValue, ConstantValue)) or isinstance(value, ReadNumberValue) and value.cls is int


def text_by_operator(frame: Frame, symbol: str, a: Value, b: Value) -> Value | None:
    """Text put together by `+`, or filled in by `%`; None where no number in it is open."""
    if symbol == "+" and (isinstance(a, NumberTextValue) or isinstance(b, NumberTextValue)):
        return text_made_of(operator.add, [a, b]) if a.python_type() is b.python_type() is str else None
    if symbol != "%" or not isinstance(a, ConstantValue) or type(a.value) is not str:
        return None
    values = [realize(frame, v) for v in b.items] if isinstance(b, TupleValue) and b.python_type() is tuple else [b]
    conversions = [conversion for conversion in _CONVERSION.findall(a.value) if conversion != "%"]
    if len(conversions) != len(values) or "c" in conversions:
        return None
    values = [value.written_by(frame, conversion) for conversion, value in zip(conversions, values)]
    takes_any = (conversion in _OF_FLOATS for conversion in conversions)
    if not all(takes or _is_whole(value) for takes, value in zip(takes_any, values)):
        return None
    return text_made_of(by_percent, [a, *values])


def text_by_template(template: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`template.format(...)`; None where no number in it is open."""
    if "c}" in template or any("," in name for name in kwargs):
        return None
    names = ConstantValue(",".join(kwargs))
    return text_made_of(by_template, [ConstantValue(template), names, *args, *kwargs.values()])
