"""The base of all symbolic values.

A value knows what is known about it, its source (the path by which the running frame can read it again, or
None if it was made here), and, for tensors, its graph node.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.signals import NotConstant, Unsupported

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame

Args = "list[Value]"
Kwargs = "dict[str, Value]"


class Value:
    source: Source | None = None
    mutable = False  # what it holds may change
    built_once: bool = True  # two names of one object are one object outside, too; of numbers and text nobody can tell
    enters_natively = False  # a context manager written in C whose methods the value itself has

    @property
    def symbolic(self) -> bool:
        """Whether it is, or holds, a size that is known as an expression only."""
        return False


    def python_type(self) -> type:
        raise Unsupported(f"the type of a {type(self).__name__} is not known")

    def describe(self) -> str:
        """The value in words, for reasons and logs."""
        where = f" {self.source.name()!r}" if self.source is not None else ""
        try:
            return f"{self.python_type().__name__}{where}"
        except Unsupported:
            return f"{type(self).__name__.removesuffix('Value').lower()}{where}"

    # ---- what is known ----------------------------------------------------------------------

    def constant(self) -> Any:
        """The Python object this value is known to be; NotConstant otherwise."""
        raise NotConstant(self.describe())

    def is_constant(self) -> bool:
        if self.symbolic:
            return False  # asking would assume it
        try:
            self.constant()
        except NotConstant:
            return False
        return True

    def proxy(self) -> Any:
        """The value as an argument of a graph node."""
        try:
            return self.constant()
        except NotConstant:
            raise Unsupported(f"{self.describe()} can't be an argument of a tensor operation", "FJ120") from None

    def argument_of(self, target: Any) -> Any:
        """The value as an argument of a node that calls `target`."""
        return self.proxy()

    def children(self) -> Iterator[Value]:
        """Values directly inside this one."""
        return iter(())

    def close(self) -> None:
        """At the end of the capture: let go of the values inside, among which this one may be."""
        self.__dict__.clear()

    def taken_out(self) -> Iterator[Value]:
        """Values that were inside before the capture, which the replay takes out and so has to load."""
        return iter(())

    # ---- behaviour ---------------------------------------------------------------------------

    def getattr(self, tx: Frame, name: str) -> Value:
        from framejit.values.builtins.c_methods import builtin_attribute

        return builtin_attribute(tx, self, name)

    def setattr(self, tx: Frame, name: str, value: Value | None) -> None:
        """Set attribute `name`, or delete it when `value` is None."""
        raise Unsupported(f"setting attribute {name!r} of {self.describe()}")

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported(f"calling {self.describe()}", "FJ110")

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call method `name` of this value's type; containers implement theirs here."""
        if name == "__call__":
            return self.call(tx, args, kwargs)
        raise Unsupported(f"method {name!r} of {self.describe()}", "FJ111")

    def truth(self, tx: Frame) -> bool:
        return True

    def iterate(self, tx: Frame) -> Iterator[Value]:
        """Items of a finite iterable, as they are now."""
        raise Unsupported(f"iterating over {self.describe()}")

    def iterator(self, tx: Frame) -> Value:
        """`iter(self)`."""
        from framejit.values.containers.iterators import ItemsIterator
        from framejit.values.containers.sequence import TupleValue

        return ItemsIterator(TupleValue(list(self.iterate(tx))), type(iter(())))

    # ---- output -------------------------------------------------------------------------------

    def reconstruct(self, cg: Codegen) -> None:
        """Emit code that pushes this value; only called for values without a source."""
        raise Unsupported(f"{self.describe()} can't be rebuilt outside the graph", "FJ130")


def realize(tx: Frame, value: Value) -> Value:
    """The value itself, wrapping it now if nothing looked at it before."""
    from framejit.values.lazy import LazyValue

    return value.realize(tx) if isinstance(value, LazyValue) else value
