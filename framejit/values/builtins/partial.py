"""functools.partial objects."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, DictSource, Source, key_source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.wrap import wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame


class PartialValue(Value):
    """A partial object: an existing one (`obj`, with a source), or one made here. `attributes` is what the program
    wrote besides."""

    mutable = True

    def __init__(
        self, function: Value, args: TupleValue, keywords: DictValue, obj: Any = None, source: Source | None = None
    ) -> None:
        self.function, self.args, self.keywords, self.obj, self.source = function, args, keywords, obj, source
        self.attributes = DictValue({})

    def python_type(self) -> type:
        return functools.partial

    def children(self) -> Iterator[Value]:
        return iter((self.function, self.args, self.keywords, self.attributes))

    def arguments(self, args: list[Value], kwargs: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
        """The arguments of the function when this is called with `args` and `kwargs`."""
        return [*self.args.items, *args], {**self.keywords.items, **kwargs}

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.call(self.function, *self.arguments(args, kwargs))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in ("func", "args", "keywords"):
            return {"func": self.function, "args": self.args, "keywords": self.keywords}[name]
        if name in self.attributes.items:
            return self.attributes.items[name]
        if self.source is not None and name in self.obj.__dict__:
            return frame.wrap(self.obj.__dict__[name], key_source(DictSource(self.source), name))
        if self.source is not None and name == "__dict__":
            return frame.wrap(self.obj.__dict__, DictSource(self.source))
        if self.source is not None and static_lookup(functools.partial, name, None) is None:
            frame.capture.add_guard(DictSource(self.source), native.C_NO_KEY, name)
        return self.attributes if name == "__dict__" else super().getattr(frame, name)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if self.source is not None or value is None or static_lookup(functools.partial, name, None) is not None:
            raise Unsupported(f"setting attribute {name!r} of {self.describe()}")
        self.attributes.change(frame, {**self.attributes.items, name: value})

    def reconstruct(self, cg: Codegen) -> None:
        def load() -> None:
            for v in (self.function, *self.args.items, *self.keywords.items.values()):
                cg.load(v)

        cg.em.call(
            lambda: cg.em.load_object(functools.partial), load, 1 + len(self.args.items) + len(self.keywords.items),
            tuple(self.keywords.items),
        )
        cg.capture.effects.changed(self)  # replay fills in the attributes, so that cycles are possible

    def replay(self, cg: Codegen) -> None:
        for name, value in self.attributes.items.items():
            cg.load(value)
            cg.load(self)
            cg.em.store_attr(name)


def make_partial(frame: Frame, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.partial(function, *args, **kwargs)`; a partial of a partial is one of the inner function."""
    function = realize(frame, function)
    if static_lookup(function.python_type(), "__call__", None) is None:
        raise frame.raised(TypeError, "the first argument must be callable")
    if (
        isinstance(function, PartialValue)
        and not function.attributes.items
        and not (function.obj is not None and function.obj.__dict__)
    ):
        args, kwargs = function.arguments(args, kwargs)
        function = function.function
    return PartialValue(function, TupleValue(args), DictValue(dict(kwargs)))


@wraps(functools.partial)
def _existing_partial(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, functools.partial)
    function, args, keywords = (
        wrap(capture, getattr(obj, part), AttrSource(source, part)) for part in ("func", "args", "keywords")
    )
    if not isinstance(args, TupleValue) or not isinstance(keywords, DictValue):
        raise Unsupported("a functools.partial that was given its state by hand")
    return PartialValue(function, args, keywords, obj, source)
