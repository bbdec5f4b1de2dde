"""Sources: where a running frame can read a value again.

A source does two jobs and nothing else does either: `emit` writes the bytecode that pushes the value,
and `access` names the step of the native guard tree that reaches it.  `name` is the same path in words.
Sources are immutable, compared structurally, and form chains through `base`.
"""
from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

from framejit import _native as native
from framejit.guards.plain_text import short
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.bytecode.emitter import Emitter

MODULE_TABLES = ("_parameters", "_buffers", "_modules")


_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True)
def source(cls: _Class) -> _Class:
    """A frozen dataclass that works its hash and its name out once: both go all the way down the chain, and are asked
    for again and again."""
    made: Any = dataclass(frozen=True)(cls)
    hashed, named = made.__hash__, made.__dict__.get("name")

    def kept_hash(self: Any) -> int:
        known: int | None = self._hash
        if known is None:
            object.__setattr__(self, "_hash", known := hashed(self))
        return known

    def kept_name(self: Any) -> str:
        known: str | None = self._name
        if known is None:
            object.__setattr__(self, "_name", known := named(self))
        return known

    made.__hash__ = kept_hash
    if named is not None:
        made.name = kept_name
    return cast(_Class, made)


@source
class Source:
    """A path to a value.  `base` is the source it is read from, or None for a root."""

    _hash: ClassVar[int | None] = None
    _name: ClassVar[str | None] = None

    @property
    def base(self) -> Source | None:
        return None

    def access(self) -> tuple[int, Any]:
        """The native accessor (an `A_*` constant) and its key."""
        raise NotImplementedError

    def emit(self, em: Emitter) -> None:
        """Push the value; `em.load_source(self.base)` pushes the base first."""
        raise NotImplementedError

    def name(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name()


class ByIdentity:
    """Compares the object it holds by identity, so that any object may sit in a structural source."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


# ---- roots -------------------------------------------------------------------------------------


@source
class ArgSource(Source):
    """Argument slot `index` of the frame, named `arg`."""

    index: int
    arg: str

    def access(self) -> tuple[int, Any]:
        return native.A_ARG, self.index

    def emit(self, em: Emitter) -> None:
        em.load_fast(self.arg)

    def name(self) -> str:
        return self.arg


@source
class CellArgSource(Source):
    """An argument slot of a resume function that holds a cell; the value is the cell itself."""

    index: int
    arg: str

    def access(self) -> tuple[int, Any]:
        return native.A_ARG, self.index

    def emit(self, em: Emitter) -> None:
        em.load_fast(self.arg)

    def name(self) -> str:
        return f"cell of {self.arg}"


@source
class ClosureCellSource(Source):
    """The cell of free variable `var` of the frame's function."""

    index: int
    var: str

    def access(self) -> tuple[int, Any]:
        return native.A_CLOSURE_CELL, self.index

    def emit(self, em: Emitter) -> None:
        em.load_closure(self.var)

    def name(self) -> str:
        return f"cell of {self.var}"


@source
class GlobalSource(Source):
    """A global of the frame's own function."""

    var: str

    def access(self) -> tuple[int, Any]:
        return native.A_GLOBAL, self.var

    def emit(self, em: Emitter) -> None:
        em.load_global(self.var)

    def name(self) -> str:
        return self.var


@source
class ConstSource(Source):
    """A given object, held by the entry (weakly by its guards)."""

    ref: ByIdentity
    label: str

    def access(self) -> tuple[int, Any]:
        return native.A_CONST, self.ref.value

    def emit(self, em: Emitter) -> None:
        em.load_object(self.ref.value)

    def name(self) -> str:
        return self.label


def const_source(value: Any, label: str | None = None) -> ConstSource:
    """The source of an object that replacement code refers to itself, since no path of the program leads to it. `label`
    is its name in logs."""
    return ConstSource(ByIdentity(value), label or getattr(value, "__qualname__", None) or type(value).__name__)


@source
class StateSource(Source):
    """The thread's torch state (grad mode, autocast, ...); only guarded, never loaded."""

    def access(self) -> tuple[int, Any]:
        return native.A_STATE, None

    def name(self) -> str:
        return "torch state"


@source
class FunctionSource(Source):
    """The function of the frame itself; only guarded (defaults, attributes), never loaded."""

    label: str

    def access(self) -> tuple[int, Any]:
        return native.A_FUNC, None

    def name(self) -> str:
        return self.label


@source
class OwnGlobalsSource(FunctionSource):
    """The global namespace of the frame."""

    @property
    def base(self) -> Source:
        return FunctionSource(self.label)

    def access(self) -> tuple[int, Any]:
        return native.A_ATTR, "__globals__"

    def emit(self, em: Emitter) -> None:
        em.call_object(globals, list, 0)

    def name(self) -> str:
        return f"{self.label}.__globals__"


# ---- steps -------------------------------------------------------------------------------------


@source
class Step(Source):
    origin: Source

    @property
    def base(self) -> Source:
        return self.origin

    def after(self, origin: Source) -> Step:
        """The same step from another source, as `replace` makes it, which takes three times as long."""
        made: Step = object.__new__(type(self))
        content = vars(made)
        content.update(vars(self), origin=origin)
        content.pop("_hash", None)
        content.pop("_name", None)
        return made


@source
class AttrSource(Step):
    attr: str

    def access(self) -> tuple[int, Any]:
        return native.A_ATTR, self.attr

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_attr(self.attr)

    def name(self) -> str:
        return f"{self.origin.name()}.{self.attr}"


@source
class DictSource(Step):
    """`__dict__` of an instance."""

    def access(self) -> tuple[int, Any]:
        return native.A_DICT, None

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_attr("__dict__")

    def name(self) -> str:
        return f"{self.origin.name()}.__dict__"


@source
class UnaskedDictSource(DictSource):
    """`__dict__` of an instance whose class has a `__getattribute__` of the program's, which is not to be asked."""

    def emit(self, em: Emitter) -> None:
        em.call_object(object.__getattribute__, lambda: (em.load_source(self.origin), em.load_object("__dict__")), 2)


def _keyed_name(origin: Source, key: Any) -> str:
    if isinstance(key, str):
        if isinstance(origin, DictSource):
            return f"{origin.origin.name()}.{key}"
        if (
            isinstance(origin, KeySource)
            and isinstance(origin.origin, DictSource)
            and origin.key.value in MODULE_TABLES
        ):
            owner = origin.origin.origin.name()
            return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
    return f"{origin.name()}[{key!r}]"


@dataclass(frozen=True)
class TypedKey:
    """A dict key compared with its type, so that 1, 1.0 and True stay apart."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedKey) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@source
class KeySource(Step):
    """Item `key` of a dict, looked up in it without its class being asked."""

    key: TypedKey

    def access(self) -> tuple[int, Any]:
        return native.A_KEY, self.key.value

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_object(self.key.value)
        em.subscript()

    def name(self) -> str:
        return _keyed_name(self.origin, self.key.value)


def key_source(origin: Source, key: Any) -> KeySource:
    """The source of the item under a key of the dict at `origin`."""
    return KeySource(origin, TypedKey(key))


@source
class GetItemSource(Step):
    """Item `key` of any object, through its type's `__getitem__`."""

    key: TypedKey

    def access(self) -> tuple[int, Any]:
        return native.A_GETITEM, self.key.value

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_object(self.key.value)
        em.subscript()

    def name(self) -> str:
        return _keyed_name(self.origin, self.key.value)


@source
class IndexSource(Step):
    """Item `index` of a tuple or list."""

    index: int

    def access(self) -> tuple[int, Any]:
        return native.A_INDEX, self.index

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_object(self.index)
        em.subscript()

    def name(self) -> str:
        return f"{self.origin.name()}[{self.index}]"


@source
class DictKeySource(Step):
    """The `index`-th key of a dict, for keys that are no constants."""

    index: int

    def access(self) -> tuple[int, Any]:
        return native.A_DICT_KEY_AT, self.index

    def emit(self, em: Emitter) -> None:
        em.call_object(list, lambda: em.load_source(self.origin))
        em.load_object(self.index)
        em.subscript()

    def name(self) -> str:
        return f"list({self.origin.name()})[{self.index}]"


@source
class DictValueSource(Step):
    """The `index`-th value in the table of a dict or an instance of a subclass, whatever its key is. The order of an
    OrderedDict may be another one than that of its table."""

    index: int

    def access(self) -> tuple[int, Any]:
        return native.A_DICT_VALUE_AT, self.index

    def emit(self, em: Emitter) -> None:
        em.call_object(list, lambda: em.call_object(dict.values, lambda: em.load_source(self.origin)))
        em.load_object(self.index)
        em.subscript()

    def name(self) -> str:
        return f"list({self.origin.name()}.values())[{self.index}]"


@source
class TypeLookupSource(Step):
    """The attribute that the MRO of the class at `origin` holds under `attr`, no descriptor applied."""

    attr: str

    def access(self) -> tuple[int, Any]:
        return native.A_TYPE_LOOKUP, self.attr

    def emit(self, em: Emitter) -> None:
        origin = self.origin
        load_class = (
            partial(em.load_class, origin.ref.value)
            if isinstance(origin, ConstSource)
            else partial(em.load_source, origin)
        )
        em.call_object(static_lookup, lambda: (load_class(), em.load_object(self.attr)), 2)

    def name(self) -> str:
        return f"{self.origin.name()}.{self.attr}"


ABSENT = object()
"""What a class that lacks an attribute holds in its place."""
LookedUp = Callable[[type, str, Any], None]
"""Is told of a class, the name of an attribute, and what the class's MRO holds under it."""


class _Listening(threading.local):
    told: LookedUp | None = None


_listening = _Listening()
# a metaclass may answer for them in its own way
_mro, _names = (vars(type)[name].__get__ for name in ("__mro__", "__dict__"))


def static_lookup(cls: type, attr: str, default: Any = ABSENT) -> Any:
    """The attribute that `cls` or a base of it holds under `attr`, no descriptor applied; without one `default`, or an
    AttributeError where none is given."""
    for klass in _mro(cls):
        if attr in (names := _names(klass)):
            found = names[attr]
            break
    else:
        found = ABSENT
    if _listening.told is not None:
        _listening.told(cls, attr, found)
    if found is not ABSENT:
        return found
    if default is ABSENT:
        raise AttributeError(attr)
    return default


@contextlib.contextmanager
def lookups_told_to(told: LookedUp) -> Iterator[None]:
    """Calls `told` with class, name and finding of each look-up in a class that this thread makes in the block."""
    before = _listening.told
    _listening.told = told
    try:
        yield
    finally:
        _listening.told = before


@source
class CellContentsSource(Step):
    def access(self) -> tuple[int, Any]:
        return native.A_CELL, None

    def emit(self, em: Emitter) -> None:
        em.load_source(self.origin)
        em.load_attr("cell_contents")

    def name(self) -> str:
        return self.origin.name().removeprefix("cell of ")


@source
class CallSource(Step):
    """`function(value)` for a pure reader of the value, e.g. `tuple` of a set."""

    function: Any

    def access(self) -> tuple[int, Any]:
        return native.A_CALL, self.function

    def emit(self, em: Emitter) -> None:
        em.call_object(self.function, lambda: em.load_source(self.origin))

    def name(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}({self.origin.name()})"


@source
class BuiltinSource(Source):
    """A builtin, read by name through the frame's globals."""

    var: str

    def access(self) -> tuple[int, Any]:
        return native.A_BUILTIN, self.var

    def emit(self, em: Emitter) -> None:
        em.load_global(self.var)

    def name(self) -> str:
        return self.var


class ManySource(Source):
    """A number that is computed from several places: it can be computed again, but no step leads to it."""

    def computation(self) -> tuple[Callable[..., Any], tuple[Source, ...]]:
        """The function that gives it, and where the function's arguments are read."""
        raise NotImplementedError


@source
class ComputedSource(ManySource):
    """What a function gives for what is read at several places."""

    function: Callable[..., Any]
    parts: tuple[Source, ...]

    def computation(self) -> tuple[Callable[..., Any], tuple[Source, ...]]:
        return self.function, self.parts

    def emit(self, em: Emitter) -> None:
        em.call_object(self.function, lambda: [em.load_source(part) for part in self.parts], len(self.parts))

    def name(self) -> str:
        said = getattr(self.function, "__name__", self.function)
        return f"{said}({', '.join(part.name() for part in self.parts)})"


@source
class PairSource(ManySource):
    """`left <symbol> right` of two numbers."""

    left: Source
    right: Source
    symbol: str
    operation: str

    def computation(self) -> tuple[Callable[..., Any], tuple[Source, ...]]:
        return getattr(operator, self.operation), (self.left, self.right)

    def emit(self, em: Emitter) -> None:
        em.call_object(
            getattr(operator, self.operation), lambda: (em.load_source(self.left), em.load_source(self.right)), 2
        )

    def name(self) -> str:
        return f"({self.left.name()} {self.symbol} {self.right.name()})"


@source
class BinarySource(Step):
    """`value <symbol> const` of two numbers, or `const <symbol> value` when `reflected`."""

    symbol: str
    operation: str  # the name in the operator module
    const: TypedKey
    reflected: bool = False

    def access(self) -> tuple[int, Any]:
        return (native.A_RBINOP if self.reflected else native.A_BINOP), (self.operation, self.const.value)

    def emit(self, em: Emitter) -> None:
        def load() -> None:
            parts = [lambda: em.load_source(self.origin), lambda: em.load_object(self.const.value)]
            for part in reversed(parts) if self.reflected else parts:
                part()

        em.call_object(getattr(operator, self.operation), load, 2)

    def name(self) -> str:
        left, right = self.origin.name(), short(self.const.value)
        if isinstance(self.origin, BinarySource):
            left = f"({left})"
        return f"{right} {self.symbol} {left}" if self.reflected else f"{left} {self.symbol} {right}"
