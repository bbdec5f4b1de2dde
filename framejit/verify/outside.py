"""State that is reached without being copied: globals that methods of the arguments' classes name.

A method keeps its module's globals whatever instance it is called on. So the plain run works on the real ones, set back
to what they were before the call, and afterwards they are set to what the call made of them.
"""
from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import torch

from framejit.values.inspection import instance_dict
from framejit.verify.world import World, names_of

_CONTAINERS: tuple[Any, ...] = (list, OrderedDict, dict, set, deque, bytearray)
"""Classes whose content is kept, a class before those that it is derived from."""
_MISSING = object()


class Outside:
    """The globals that methods may use, and how to bring them back to an earlier moment."""

    def __init__(self, world: World) -> None:
        self._names: dict[tuple[int, str], dict[str, Any]] = {}
        for cls in _classes((world.args, world.kwargs)):
            for base in cls.__mro__:
                for function in vars(base).values():
                    if isinstance(function, FunctionType) and not str(function.__module__).startswith("torch."):
                        for name in names_of(function.__code__):
                            if not isinstance(function.__globals__.get(name), (type, ModuleType, FunctionType)):
                                self._names[id(function.__globals__), name] = function.__globals__

    def now(self) -> Callable[[], None]:
        """A function that brings back the present state."""
        bindings = [(namespace, name, namespace.get(name, _MISSING)) for (_, name), namespace in self._names.items()]
        contents: dict[int, tuple[Any, Any]] = {}
        for _, _, value in bindings:
            _keep(value, contents)

        def restore() -> None:
            for namespace, name, value in bindings:
                if value is not _MISSING:
                    namespace[name] = value
                elif name in namespace:
                    del namespace[name]
            for obj, content in contents.values():
                _refill(obj, content)

        return restore


def _keep(value: Any, contents: dict[int, tuple[Any, Any]]) -> None:
    if id(value) in contents:
        return
    if isinstance(value, torch.Tensor):
        contents[id(value)] = value, value.detach().clone()
        return
    kind = _kind(value)
    if kind is not None:
        contents[id(value)] = value, _content(value, kind)
        for part in dict.values(value) if issubclass(kind, dict) else kind.__iter__(value):
            _keep(part, contents)


def _kind(value: Any) -> Any:
    """The container that a value is, or is derived from. Its own methods are asked for the content, for those of a
    class of the program's are the program's code."""
    return next((kind for kind in _CONTAINERS if isinstance(value, kind)), None)


def _content(value: Any, kind: Any) -> list[Any]:
    return [part for item in kind.items(value) for part in item] if issubclass(kind, dict) else [*kind.__iter__(value)]


def _refill(obj: Any, content: Any) -> None:
    if isinstance(obj, torch.Tensor):
        if not torch.equal(obj.detach(), content):
            obj.data.copy_(content)  # not an operation on `obj`: what autograd saved of it stays valid
        return
    kind = _kind(obj)
    now = _content(obj, kind)
    if len(now) == len(content) and all(a is b for a, b in zip(now, content)):
        return  # another thread may be reading what is as it was
    kind.clear(obj)
    if issubclass(kind, dict):
        for key, value in zip(content[::2], content[1::2]):
            kind.__setitem__(obj, key, value)
    else:
        (kind.update if kind is set else kind.extend)(obj, content)


def _classes(roots: Iterable[Any]) -> set[type]:
    """The classes of instances among the arguments and inside them, those of torch and of the builtins excepted."""
    found: set[type] = set()
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        if isinstance(obj, (list, tuple, set)):
            todo += obj
        elif isinstance(obj, dict):
            todo += obj.values()
        elif not isinstance(obj, (type, ModuleType, FunctionType, torch.Tensor)):
            attributes = instance_dict(obj)
            if attributes is not None:
                found.add(type(obj))
                todo += attributes.values()
    return found
