"""A copy of everything a function can reach: the plain run works on it, so that the program sees the effects of one
call only.

Arguments, variables of enclosing functions and the globals that the function and its neighbours in the module name are
copied together, once, so that what was shared stays shared. Functions of the module are copied too where their
variables or globals were, to see the copies; so are weak references, by which a scheduler of learning rates has the
optimizer that it belongs to.
"""
from __future__ import annotations

import copy
import functools
import os
import weakref
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from framejit.originals import function_behind
from framejit.values.inspection import instance_dict

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PLAIN = (type(None), bool, int, float, str)
_ATOMS = (type(None), bool, int, float, complex, str, bytes, type, ModuleType, CodeType, torch.dtype, torch.device)


class CannotCopy(Exception):
    """Something the call can reach has no copy: an open file, a running generator, a lock."""


class World:
    """A function with its arguments, and the state around it by the names a reader would use."""

    def __init__(
        self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...], kept: Any = ()
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self._names = names
        self._kept = kept  # what nothing else here may hold but weakly

    def state(self) -> dict[str, Any]:
        """The objects that a call may have changed, by names: arguments, variables of enclosing functions, globals."""
        parameters = self.fn.__code__.co_varnames[: self.fn.__code__.co_argcount]
        found: dict[str, Any] = {}
        for i, arg in enumerate(self.args):
            found[f"argument {parameters[i] if i < len(parameters) else i}"] = arg
        found |= {f"argument {name}": value for name, value in self.kwargs.items()}
        for name, cell in zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ()):
            found[f"variable {name}"] = _contents(cell)
        missing = object
        return found | {f"global {name}": self.fn.__globals__.get(name, missing) for name in self._names}


def original(fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> World:
    """The world of the program itself."""
    return World(fn, args, kwargs, tuple(_Reachable(fn, (args, kwargs)).names))


def duplicate(world: World) -> World:
    """A copy of a world that shares nothing with it that a call could change. Raises CannotCopy."""
    try:
        return _Copier(world).copy()
    except CannotCopy:
        raise
    except Exception as e:  # whatever a user's __deepcopy__ or __reduce__ raises
        raise CannotCopy(f"{type(e).__name__}: {e}") from e


class _Reachable:
    """The functions, tensors and names of globals that a call can reach through plain containers and instances."""

    def __init__(self, fn: FunctionType, roots: Any) -> None:
        self.home = fn.__globals__
        self.names: dict[str, None] = {}
        self.functions: dict[int, tuple[Any, FunctionType]] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.weak: dict[int, weakref.ref[Any]] = {}
        self._seen: dict[int, Any] = {}
        todo: list[Any] = [fn, roots]
        while todo:
            obj = todo.pop()
            if id(obj) not in self._seen and not isinstance(obj, _ATOMS):
                self._seen[id(obj)] = obj
                todo += self._parts(obj)

    def objects(self) -> list[Any]:
        """All that was met."""
        return list(self._seen.values())

    def _parts(self, obj: Any) -> Iterator[Any]:
        if isinstance(obj, torch.Tensor):
            self.tensors[id(obj)] = obj
        function = function_behind(obj)
        if isinstance(function, FunctionType):
            if not function.__code__.co_filename.startswith(_PACKAGE) and (
                function.__globals__ is self.home or function.__closure__
            ):
                self.functions[id(obj)] = (obj, function)
                yield from self._of_function(function)
                yield from _attributes(obj, function).values()
        elif isinstance(obj, (list, tuple, set, frozenset)):
            yield from obj
        elif isinstance(obj, dict):
            yield from obj.values()
        elif isinstance(obj, CellType):
            yield _contents(obj)
        elif isinstance(obj, MethodType):
            yield from (obj.__func__, obj.__self__)
        elif type(obj) is weakref.ref:
            self.weak[id(obj)] = obj
            yield obj()
        elif isinstance(obj, functools.partial):
            yield from (obj.func, obj.args, obj.keywords)
        else:
            yield from (instance_dict(obj) or {}).values()

    def _of_function(self, fn: FunctionType) -> Iterator[Any]:
        yield from fn.__closure__ or ()
        yield from fn.__defaults__ or ()
        yield from (fn.__kwdefaults__ or {}).values()
        if fn.__globals__ is self.home:
            for name in sorted(names_of(fn.__code__)):
                if name in self.home and not isinstance(self.home[name], (type, ModuleType)):
                    self.names[name] = None
                    yield self.home[name]


class _Memo(dict[int, Any]):
    """What `copy.deepcopy` looks copies up in: of weak references, which it would share, new ones to copies."""

    def __init__(self, weak: dict[int, weakref.ref[Any]]) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self._weak = weak

    def get(self, key: int, default: Any = None) -> Any:
        if key in self._weak and key not in self:
            there = self._weak[key]()
            twin = there if there is None else copy.deepcopy(there, self)
            self.kept.append(twin)
            self[key] = self._weak[key] if twin is None else weakref.ref(twin)
        return super().get(key, default)


class _Copier:
    def __init__(self, world: World) -> None:
        self.world = world
        self.reachable = _Reachable(world.fn, (world.args, world.kwargs))
        self.globals: dict[str, Any] = dict(world.fn.__globals__)
        self.memo = _Memo(self.reachable.weak)
        self.cells: dict[int, tuple[CellType, CellType]] = {}

    def copy(self) -> World:
        for obj, function in self.reachable.functions.values():
            self.memo[id(obj)] = self.memo[id(function)] = self._twin(function)
        self._copy_history()
        args, kwargs = self._copied(self.world.args), self._copied(self.world.kwargs)
        for cell, twin_cell in self.cells.values():
            try:
                twin_cell.cell_contents = self._copied(cell.cell_contents)
            except ValueError:  # a variable without a value yet
                pass
        for obj, function in self.reachable.functions.values():
            twin = self.memo[id(function)]
            twin.__defaults__, twin.__kwdefaults__ = (
                self._copied(function.__defaults__),
                self._copied(function.__kwdefaults__),
            )
            twin.__dict__.update((name, self._copied(value)) for name, value in _attributes(obj, function).items())
        for name in self.reachable.names:
            self.globals[name] = self._copied(self.world.fn.__globals__[name])
        self._complete()
        return World(self.memo[id(self.world.fn)], args, kwargs, tuple(self.reachable.names), self.memo.kept)

    def _complete(self) -> None:
        """What deepcopy leaves out: gradients of parameters, and attributes that a class keeps out of its pickles, or
        writes into them as another value, as a gradient scaler does."""
        for obj in self.reachable.objects():
            twin = self.memo.get(id(obj))
            if twin is None or twin is obj:
                continue
            if isinstance(obj, torch.Tensor):
                if obj.is_leaf and obj.grad is not None and twin.grad is None:
                    twin.grad = self._copied(obj.grad)
                continue
            attributes, copies = instance_dict(obj), instance_dict(twin)
            if (
                attributes is not None
                and copies is not None
                and type(obj) is type(twin)
                and not isinstance(obj, FunctionType)
            ):
                for name, value in list(attributes.items()):
                    if type(value) in _PLAIN or type(copies.get(name, self)) is not type(value):
                        copies[name] = self._copied(value)

    def _copied(self, obj: Any) -> Any:
        return self.memo[id(obj)] if id(obj) in self.memo else copy.deepcopy(obj, self.memo)

    def _twin(self, function: FunctionType) -> FunctionType:
        cells = []
        for cell in function.__closure__ or ():
            self.cells.setdefault(id(cell), (cell, CellType()))
            cells.append(self.cells[id(cell)][1])
        namespace = self.globals if function.__globals__ is self.reachable.home else function.__globals__
        twin = FunctionType(function.__code__, namespace, function.__name__, None, tuple(cells))
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        return twin

    def _copy_history(self) -> None:
        """Results of differentiable operations, which deepcopy refuses: a copy whose history ends at itself, so that no
        gradient reaches the original."""
        storages: set[int] = set()
        for tensor in self.reachable.tensors.values():
            if tensor.requires_grad and not tensor.is_leaf:
                storage = tensor.untyped_storage()._cdata
                if storage in storages:
                    raise CannotCopy("two tensors with gradient history share memory")
                storages.add(storage)
                with torch.enable_grad():
                    self.memo[id(tensor)] = tensor.detach().requires_grad_().clone()


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _attributes(obj: Any, function: FunctionType) -> dict[str, Any]:
    """What the program keeps in a function; of one that verifies calls, in that."""
    if not hasattr(obj, "_framejit_verified"):
        return vars(function)
    own = ("__wrapped__", "_framejit_verified", "options")
    return {name: value for name, value in vars(obj).items() if name not in own}


def names_of(code: CodeType) -> set[str]:
    """The names that code and the functions defined in it may look up as globals."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_of(constant)
    return found
