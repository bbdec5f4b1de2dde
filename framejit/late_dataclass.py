"""`dataclass` as the standard library has it, but for when a class's methods are written: when they are first needed.

Writing them takes half a millisecond for a class, a millisecond for a frozen one: for framejit's two hundred classes
more than all else that importing them takes. Most processes make instances of a quarter of them.
"""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, eq: bool = True, frozen: bool = False) -> Any:
        """A class with methods made of its annotated fields, as `dataclasses.dataclass` makes them; for other options
        there is that."""
        return _promised(cls, eq, frozen) if cls is not None else lambda cls: _promised(cls, eq, frozen)


_SHOWN: Final = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


_promises: Final[list[Any]] = []


def write_all() -> None:
    """Write what all classes are to have that there are: for what runs at exit. Text that is executed there has CPython
    forget that an interrupt ended the program, which is its exit code."""
    for promise in _promises:
        promise.keep()


def _promised(cls: type, eq: bool, frozen: bool) -> type:
    """The class, with methods that write the real ones when they are called, and go on with them."""
    own = vars(cls)
    has_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    methods = [name for name in ("__init__", "__repr__") if name not in own]
    if eq and "__eq__" not in own:
        methods.append("__eq__")
    if eq and not has_hash:
        if frozen:
            methods.append("__hash__")
        else:
            cls.__hash__ = None  # type: ignore[assignment]
    promise = _Promise(cls, {"eq": eq, "frozen": frozen}, methods)
    for name in methods:
        setattr(cls, name, promise.method(name))
    _promises.append(promise)
    for name in _SHOWN:
        setattr(cls, name, _Shown(promise, name))
    if frozen:
        _freeze(cls)
    return cls


class _Promise:
    """What a class is to have. It is kept without a lock, which a fork might find taken: two threads at once write the
    same twice, and the class has each method at any time."""

    def __init__(self, cls: type, options: dict[str, bool], methods: list[str]) -> None:
        self._cls, self._options, self._methods = cls, options, methods
        self._annotations = cls.__annotations__
        held = {name: getattr(cls, name, dataclasses.MISSING) for name in self._annotations}
        self._given = {name: value for name, value in held.items() if value is not dataclasses.MISSING}
        for name, value in self._given.items():
            if type(value) is dataclasses.Field:
                if value.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, value.default)
        self._written: dict[str, Any] = {}
        self._promised: dict[str, Any] = {}

    def method(self, name: str) -> Any:
        """A function that keeps the promise, and goes on."""

        def first_call(*args: Any, **kwargs: Any) -> Any:
            return self.keep()[name](*args, **kwargs)

        self._promised[name] = first_call
        return first_call

    def keep(self) -> dict[str, Any]:
        """What was promised, which the class has from now on."""
        if not self._written:
            model: type = dataclasses.dataclass(**self._options)(self._model())
            written = {name: vars(model)[name] for name in (*_SHOWN, *self._methods)}
            for name, value in written.items():
                held = vars(self._cls).get(name)
                if type(held) is _Shown or held is not None and held is self._promised.get(name):
                    setattr(self._cls, name, value)  # what a decorator has put in its place stays
            self._written = written
        return self._written

    def _model(self) -> type:
        """A class of the same fields, those of the bases among them, and without anything else: the real one is never
        without a method, and what bases and metaclasses do when a class is made is done once."""
        annotations: dict[str, Any] = {}
        given: dict[str, Any] = {}
        for base in reversed(self._cls.__mro__[1:]):
            if "__dataclass_fields__" in vars(base):
                for field in dataclasses.fields(base):
                    annotations[field.name], given[field.name] = field.type, field
        for name, annotation in self._annotations.items():
            annotations[name] = annotation
            given.pop(name, None)
        if hasattr(self._cls, "__post_init__"):
            given["__post_init__"] = None
        names = {"__module__": self._cls.__module__, "__qualname__": self._cls.__qualname__, "__doc__": "its fields"}
        return type(self._cls.__name__, (), given | self._given | names | {"__annotations__": annotations})


class _Shown:
    """In the place of what tells others about a class's fields."""

    def __init__(self, promise: _Promise, name: str) -> None:
        self._promise, self._name = promise, name

    def __get__(self, instance: object, owner: type) -> Any:
        return self._promise.keep()[self._name]


def _freeze(cls: Any) -> None:
    """Have instances keep their fields. Nothing is written for that, so that it needs no promise."""

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute
