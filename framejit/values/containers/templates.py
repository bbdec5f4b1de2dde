"""Template strings (PEP 750): what `t"..."` makes, and the interpolations in it. Nothing in them ever changes."""

from __future__ import annotations

from collections.abc import Iterator
from string import templatelib  # type: ignore[attr-defined, import-not-found, unused-ignore]  # from 3.14 on
from typing import TYPE_CHECKING

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.iterator_values import ItemsIterator
from framejit.values.containers.tuples import TupleValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_ITERATOR = type(iter(templatelib.Template()))


class InterpolationValue(Value):
    """A value between the braces of a template string, with the text of its expression."""

    mutable = True

    def __init__(self, value: Value, expression: Value, conversion: Value, format_spec: Value) -> None:
        self.parts = {"value": value, "expression": expression, "conversion": conversion, "format_spec": format_spec}

    def python_type(self) -> type:
        return templatelib.Interpolation

    def children(self) -> Iterator[Value]:
        return iter(self.parts.values())

    def getattr(self, frame: Frame, name: str) -> Value:
        return self.parts[name] if name in self.parts else super().getattr(frame, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(
            templatelib.Interpolation, lambda: [cg.load(part) for part in self.parts.values()], len(self.parts)
        )


class TemplateValue(Value):
    """A template string: one string more than there are interpolations, which stand between them."""

    mutable = True

    def __init__(self, strings: list[str], interpolations: TupleValue) -> None:
        self.strings, self.interpolations = strings, interpolations
        self._strings = TupleValue([ConstantValue(s) for s in strings])

    def python_type(self) -> type:
        return templatelib.Template

    def children(self) -> Iterator[Value]:
        return iter((self._strings, self.interpolations))

    def items(self) -> list[Value]:
        """Strings and interpolations in order, without the empty strings."""
        found: list[Value] = []
        for i, text in enumerate(self.strings):
            if text:
                found.append(self._strings.items[i])
            found += self.interpolations.items[i : i + 1]
        return found

    def getattr(self, frame: Frame, name: str) -> Value:
        match name:
            case "strings":
                return self._strings
            case "interpolations":
                return self.interpolations
            case "values":
                return TupleValue([part.getattr(frame, "value") for part in self.interpolations.items])
        return super().getattr(frame, name)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return iter(self.items())

    def iterator(self, frame: Frame) -> Value:
        return TemplateIterator(TupleValue(self.items()), _ITERATOR)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__iter__":
            return self.iterator(frame)
        if name == "__add__" and isinstance(args[0], TemplateValue):
            left, right = self.strings, args[0].strings
            strings = [*left[:-1], left[-1] + right[0], *right[1:]]
            return TemplateValue(strings, TupleValue([*self.interpolations.items, *args[0].interpolations.items]))
        if name == "__add__":
            raise Unsupported(f"adding {args[0].describe()} to a template string")
        return super().call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        items = self.items()
        cg.em.call_object(templatelib.Template, lambda: [cg.load(item) for item in items], len(items))


class TemplateIterator(ItemsIterator):
    """Over what a template string is made of."""

    def reconstruct(self, cg: Codegen) -> None:
        rest = [] if self.exhausted else self.sequence.items[self.index :]
        cg.em.call_object(
            iter, lambda: cg.em.call_object(templatelib.Template, lambda: [cg.load(item) for item in rest], len(rest))
        )
