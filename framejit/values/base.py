"""The base of all symbolic values.

A value knows what is known about it, its source (the path by which the running frame can read it again, or
None if it was made here), and, for tensors, its graph node.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from framejit.signals import NotConstant, Unsupported

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.builtins.reflection import IdValue
    from framejit.values.context import Capture, Codegen, Frame
    from framejit.values.objects.user_object import ObjectValue


class Value:
    """What is known of one object of the program while its code is captured; the base class of all kinds. `source` is
    the path by which the running frame can read the object again, None for one that captured code makes."""

    source: Source | None = None
    mutable = False  # what it holds may change
    never_missed = False  # following a weak reference to it does no harm where it may be gone
    built_once: bool = True  # two names of one object are one object outside, too; of numbers and text nobody can tell
    one_of_each = False  # objects of equal content are one object, as there is one True; the content is not known yet
    # another object may take its place, as a function does that is defined anew by each call of another
    is_one_of_many = False
    looked_up = False  # an object whose attributes and special methods are looked up in it and its class
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

    def realize(self, frame: Frame) -> Value:
        """The value that stands for the object once somebody looks at it."""
        return self

    def realize_parts(self, frame: Frame) -> None:
        """Look at what is inside a container."""

    # ---- what is known ----------------------------------------------------------------------

    def constant(self) -> Any:
        """The Python object this value is known to be; NotConstant otherwise."""
        raise NotConstant(self.describe())

    def known_content(self, frame: Frame) -> Any:
        """The content that tells which object it is, for an object that there is one of each content of."""
        return self.constant()

    def is_constant(self) -> bool:
        if self.symbolic:
            return False  # asking would assume it
        try:
            self.constant()
        except NotConstant:
            return False
        return True

    def plain_copy(self, frame: Frame) -> Any:
        """A Python object of the same content, for functions that only read it: of containers of constants a copy."""
        return self.constant()

    def written_by(self, frame: Frame, conversion: str) -> Value:
        """What is written in the place of it by a conversion of `%`, such as `d` or `f`."""
        return self

    def identity(self) -> Any:
        """An object that is the same for all values of one object: an operation may give the tensor it was given."""
        return self

    def table_key(self, capture: Capture) -> Any:
        """The stand-in for the object in a table, where its class is written in C and says what its hash is made of;
        None for others."""
        return None

    def ids(self) -> Iterator[IdValue]:
        """The results of id() that the value is, or is a tuple of."""
        return iter(())

    def dict_snapshot(self, frame: Frame) -> Value | None:
        """The dict that a view of an object's attributes shows now; None for what is no such view."""
        return None

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

    def getattr(self, frame: Frame, name: str) -> Value:
        return frame.builtin_attribute(self, name)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        """Set attribute `name`, or delete it when `value` is None."""
        raise Unsupported(f"setting attribute {name!r} of {self.describe()}")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported(f"calling {self.describe()}", "FJ110")

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call method `name` of this value's type; containers implement theirs here."""
        if name == "__call__":
            return self.call(frame, args, kwargs)
        raise Unsupported(f"method {name!r} of {self.describe()}", "FJ111")

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call a method that is written in C, which was looked up and bound; `static` is its descriptor where that is
        known."""
        return self.call_method(frame, name, args, kwargs)

    def truth(self, frame: Frame) -> bool:
        return True

    def iterate(self, frame: Frame) -> Iterator[Value]:
        """Items of a finite iterable, as they are now."""
        raise Unsupported(f"iterating over {self.describe()}")

    def iterator(self, frame: Frame) -> Value:
        """`iter(self)`."""
        return frame.iterator_over(list(self.iterate(frame)))

    # ---- output -------------------------------------------------------------------------------

    def reconstruct(self, cg: Codegen) -> None:
        """Emit code that pushes this value; only called for values without a source."""
        raise Unsupported(f"{self.describe()} can't be rebuilt outside the graph", "FJ130")


def realize(frame: Frame, value: Value) -> Value:
    """The value itself, wrapping it now if nothing looked at it before."""
    return value.realize(frame)


def deep_realize(frame: Frame, values: list[Value]) -> list[Value]:
    """Realise values and what sits inside containers among them: all of it is used, in a graph or by real Python."""
    found = []
    for value in values:
        value = value.realize(frame)
        value.realize_parts(frame)
        found.append(value)
    return found


def is_user_object(value: Value) -> TypeGuard[ObjectValue]:
    """Whether attributes and special methods are looked up in the object and its class, as Python does: see
    ObjectValue."""
    return value.looked_up
