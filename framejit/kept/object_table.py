"""The objects of a process that an entry refers to: in a record each is a number, with its description and, where it
has one, the name by which another process finds it. The others are found on the frame that the entry is tried on."""

from __future__ import annotations

import enum
import importlib
import inspect
import random
import sys
import types
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy
import torch

from framejit.guards.plain_text import class_name, module_of
from framejit.kept.description import IN_C as BUILTIN_TYPES
from framejit.kept.description import OF_MODULES, Describer, Description, is_of_cython
from framejit.kept.not_kept import DoesNotFit, NotKept

_NAME = vars(type)["__qualname__"].__get__
_OWN: Final = "framejit."
_ABSENT: Final = object()
_IN_TYPES: Final = {getattr(types, name).__name__: name for name in types.__all__ if name.endswith("Type")}
"""By the names of classes that are no builtins what the module `types` calls them."""
Place = list[Any]


def find(place: Place) -> Any:
    """The object at a place of this process. Raises DoesNotFit if there is none."""
    kind, module, *names = place
    if kind == "binding":
        return type(torch._C._dispatch_keys.__self__)  # type: ignore[attr-defined]
    if module.startswith(_OWN):
        importlib.import_module(module)
    found: Any = sys.modules.get(module)
    if found is None:
        raise DoesNotFit(f"the module {module} is not imported")
    if kind == "namespace":
        return vars(found)
    if kind == "class of":
        return type(found)
    member = names.pop() if kind == "member" else None
    for name in names:
        found = _held(found, name)
        if found is _ABSENT:
            raise DoesNotFit(f"{module} has no {'.'.join(names)}")
    if member is not None:
        members = vars(type)["__dict__"].__get__(found).get("_member_map_", {}) if issubclass(type(found), type) else {}
        if member not in members:
            raise DoesNotFit(f"{module} has no {'.'.join(names)}.{member}")
        return members[member]
    return found


def _held(owner: Any, name: str) -> Any:
    """What a module or class has under a name itself, without any of its code being asked."""
    if issubclass(type(owner), type):
        held = vars(type)["__dict__"].__get__(owner)
    else:
        held = object.__getattribute__(owner, "__dict__") if issubclass(type(owner), ModuleType) else {}
    return held.get(name, _ABSENT)


def place_of(obj: Any, label: str = "") -> Place | None:
    """Where an object is found by names, in this process; None if nowhere. `label` is what guards call it."""
    return next((place for place in _places(obj, label) if _is_at(place, obj)), None)


def _is_at(place: Place, obj: Any) -> bool:
    try:
        return find(place) is obj
    except (DoesNotFit, ImportError):
        return False


def _places(obj: Any, label: str) -> Iterator[Place]:
    """Where it may be."""
    if issubclass(type(obj), ModuleType):
        name = object.__getattribute__(obj, "__dict__").get("__name__")
        if type(name) is str:
            yield ["module", name]
        return
    if type(obj) is dict and type(obj.get("__name__")) is str:
        yield ["namespace", obj["__name__"]]
    if isinstance(obj, enum.Enum):
        cls = type(obj)
        yield ["member", module_of(cls), *_NAME(cls).split("."), str(object.__getattribute__(obj, "_name_"))]
        return
    if type(obj) in (random.Random, numpy.random.RandomState) and obj in OF_MODULES:
        yield ["name", *OF_MODULES[obj]]
    name, modules = _own_name(obj)
    if "pybind11_builtins" in modules:
        yield ["binding", "torch"]  # the class of what torch's functions are bound to, which is in no module
    if type(name) is str:
        for module in (*modules, "builtins", "types"):
            if type(module) is str:
                yield ["name", module, *name.split(".")]
                if issubclass(type(obj), type) and name in _IN_TYPES:
                    yield ["name", "types", _IN_TYPES[name]]
                if issubclass(type(obj), type) and issubclass(obj, ModuleType):
                    yield ["class of", module]  # a module that has put an object of its own in its place
    if label:
        module, _, name = label.rpartition(".")
        if module:
            yield ["name", module, name]
        for module, loaded in list(sys.modules.items()):
            if type(loaded) is ModuleType and vars(loaded).get(name, _ABSENT) is obj:
                yield ["name", module, name]


def _own_name(obj: Any) -> tuple[Any, tuple[Any, ...]]:
    """What functions and classes are called, and the modules that they may be in, without any code of theirs being
    asked; None for other objects."""
    if issubclass(type(obj), type):
        return _NAME(obj), (module_of(obj),)
    if type(obj) is FunctionType or issubclass(type(obj), BUILTIN_TYPES) or is_of_cython(type(obj)):
        owner = getattr(obj, "__objclass__", None)
        return obj.__qualname__, (getattr(obj, "__module__", None), None if owner is None else module_of(owner))
    return None, (type(obj).__module__,) if type(obj) is torch._ops.OpOverload else ()


class WrittenObjects:
    """Gives the objects that a record refers to numbers."""

    def __init__(self, signatures: dict[int, tuple[Any, FunctionType, int]]) -> None:
        self.describe = Describer()
        self._signatures = signatures
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        self.table: list[list[Any]] = []
        """By number a place or None, and a description."""

    def on_frame(self, obj: Any) -> int:
        """The number of an object that the entry's guards compare with what is found on the frame."""
        number = self._numbers.get(id(obj))
        if number is None:
            description = self.describe(obj)
            number = self._numbers[id(obj)] = len(self.table)
            self._held.append(obj)
            self.table.append([None, description])
        return number

    def by_name(self, obj: Any, label: str = "") -> int:
        """The number of an object that has to be found by its name. Raises NotKept if it has none."""
        known = self._numbers.get(id(obj))
        if known is not None and self.table[known][0] is not None:
            return known
        if id(obj) in self._signatures:
            _, function, bound = self._signatures[id(obj)]
            place: Place | None = ["signature", self.known(function), bound]
            description: Description = ("signature", str(obj))
        else:
            place, description = place_of(obj, label), ()
        if place is None:
            raise NotKept(f"{label or _said(obj)}, which has no name to find it by")
        if known is None:
            known = self._numbers[id(obj)] = len(self.table)
            self._held.append(obj)
            self.table.append([None, description or self._description(obj)])
        self.table[known][0] = place
        return known

    def _description(self, obj: Any) -> Description:
        return self.describe(obj)

    def has(self, obj: Any) -> bool:
        """Whether an object has a number already."""
        return id(obj) in self._numbers

    def known(self, obj: Any) -> int:
        """The number of an object, found by its name if guards don't lead to it. Raises NotKept."""
        return self._numbers[id(obj)] if id(obj) in self._numbers else self.by_name(obj)


def _said(obj: Any) -> str:
    name, _ = _own_name(obj)
    return str(name) if type(name) is str else f"an object of type {class_name(type(obj))}"


class FoundObjects:
    """The objects of a record in this process: each one object, wherever the record refers to it, and described as it
    was."""

    def __init__(self, table: list[list[Any]]) -> None:
        self.describe = Describer()
        self._table = table
        self._found: list[Any] = [_ABSENT] * len(table)

    def bind(self, number: int, obj: Any) -> None:
        """Take `obj` for the object with this number in the table. Raises DoesNotFit if it is described otherwise, or
        another object has been found for the number."""
        found = self._found[number]
        if found is obj:
            return
        if found is not _ABSENT:
            raise DoesNotFit(f"{_said(obj)} is not the {_said(found)} that was found before")
        place, expected = self._table[number]
        self._check(obj, expected)
        if place is not None and place[0] != "signature" and find(place) is not obj:
            raise DoesNotFit(f"{_said(obj)} is not what {'.'.join(map(str, place[1:]))} names")
        self._found[number] = obj

    def get(self, number: int) -> Any:
        """The object, by its name where the frame has not shown it yet. Raises DoesNotFit."""
        if self._found[number] is not _ABSENT:
            return self._found[number]
        place, expected = self._table[number]
        if place is None:
            raise DoesNotFit(f"{expected} was not found on the frame")
        if place[0] == "signature":
            self._found[number] = self._signature(place, expected)
        else:
            obj = find(place)
            self._check(obj, expected)
            self._found[number] = obj
        return self._found[number]

    def _signature(self, place: Place, expected: Description) -> Any:
        made = inspect.signature(self.get(place[1]))
        made = made.replace(parameters=list(made.parameters.values())[place[2] :])
        if ("signature", str(made)) != expected:
            raise DoesNotFit(f"the signature is {made} in place of {expected[1]}")
        return made

    def _check(self, obj: Any, expected: Description) -> None:
        try:
            described = self.describe(obj)
        except NotKept as e:
            raise DoesNotFit(str(e)) from None
        if described != expected:
            raise DoesNotFit(f"{_said(obj)} is not what it was")
