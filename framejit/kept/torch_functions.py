"""Python functions of torch that graphs call as they are, and what these call in their turn: no guard leads to it, and
programs replace some of it (attention of their own in the place of torch's, say)."""

from __future__ import annotations

import hashlib
import os
import typing
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from operator import attrgetter, is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any, Final

import torch
import typing_extensions

from framejit.kept.not_kept import NotKept

_PLACES: Final = (
    torch, torch.functional, torch.nn.functional, torch.special, torch.linalg, torch.fft, torch._C, torch._C._nn,
    torch._C._special, torch._C._linalg, torch._C._fft, torch.Tensor, torch.nn.Parameter,  # type: ignore[attr-defined]
)
_HOME: Final = os.path.join(os.path.dirname(torch.__file__), "")
_ALSO: Final = frozenset((typing.__file__, typing_extensions.deprecated.__call__.__code__.co_filename))
"""Files with decorators and functions that torch has among its own."""
_LIBRARIES: Final = frozenset("torch builtins typing typing_extensions abc collections types enum threading _thread "
                              "pybind11_builtins importlib warnings _py_warnings".split())
_HIDING: Final = torch._compile.__file__
"""The file with the wrapper that hides functions from Dynamo; Dynamo puts it around `torch.manual_seed` when it is
imported."""
_OF_C: Final = frozenset("torch torch._C torch._C._nn torch._C._special torch._C._linalg torch._C._fft".split())
_PLAIN: Final = (int, float, bool, str, type(None))
_BOUND: Final = (MethodType, MethodWrapperType)
_OF_FUNCTIONS: Final = (FunctionType, _lru_cache_wrapper)
_code_of: Final = attrgetter("__code__")

_Content = tuple[list[Any], list[Any], list[Any]]
"""What a module or class holds; the functions among it, and their code, in whose place other code can be put."""
_seen: list[_Content] = []
_digest: list[str] = []


def torch_functions() -> str:
    """A hash over the functions of torch that graphs may reach, with the names they are under. Raises NotKept where
    one of them is not torch's own: what such a function depends on is not known."""
    if not (_digest and all(map(_is_as_it_was, _PLACES, _seen))):
        seen = [_content(place) for place in _PLACES]
        if _digest and all(map(_are_alike, seen, _seen)):
            _seen[:] = seen
            return _digest[0]
        digest, met = hashlib.sha256(), set[int]()
        for place in _PLACES:
            for name, value in list(vars(place).items()):
                if type(value) is BuiltinFunctionType and value.__name__ == name and value.__module__ in _OF_C:
                    continue  # most of them
                for said in _said(name, value, met):
                    digest.update(name.encode())
                    digest.update(said)
        _seen[:], _digest[:] = seen, [digest.hexdigest()]
    return _digest[0]


def _content(place: Any) -> _Content:
    held = list(vars(place).values())
    functions = [value for value in held if type(value) is FunctionType]
    return held, functions, [*map(_code_of, functions)]


def _is_as_it_was(place: Any, seen: _Content) -> bool:
    """Whether a module or class holds what it held, in the order in which it did. Each capture asks, of thousands."""
    held, functions, code = seen
    return _is_same(list(vars(place).values()), held) and all(map(is_, map(_code_of, functions), code))


def _are_alike(one: _Content, other: _Content) -> bool:
    """Whether two contents are the same but for modules, of which some are imported late."""
    return _is_same(*([value for value in held if type(value) is not ModuleType] for held, *_ in (one, other))) and (
        _is_same(one[2], other[2])
    )


def _is_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _said(name: str, value: Any, met: set[int]) -> Iterator[bytes]:
    """What tells a value from another that could be under its name; `met` are the functions that were told already."""
    kind = type(value)
    if kind is FunctionType:
        if id(value) in met:
            return
        met.add(id(value))
        file = value.__code__.co_filename
        _check(name, file.startswith(_HOME) or file in _ALSO)
        if file == _HIDING:
            yield from _said(name, value.__dict__.get("__wrapped__"), met)
            return
        yield _of_code(value.__code__)
        yield repr([given for given in value.__defaults__ or () if type(given) in _PLAIN]).encode()
        for cell in value.__closure__ or ():
            if type(cell.cell_contents) in _OF_FUNCTIONS:
                yield from _said(name, cell.cell_contents, met)
    elif kind is _lru_cache_wrapper:
        yield from _said(name, value.__wrapped__, met)
    elif kind is BuiltinFunctionType:
        _check(name, _is_of_torch(value))
        yield value.__name__.encode()
    elif kind in (staticmethod, classmethod):
        yield from _said(name, value.__func__, met)
    elif kind is property:
        for part in (value.fget, value.fset, value.fdel):
            yield from _said(name, part, met)
    elif callable(value):
        named = value if issubclass(kind, type) else kind
        _check(name, str(named.__module__).partition(".")[0] in _LIBRARIES and kind not in _BOUND)
        yield kind.__qualname__.encode() if issubclass(kind, type) else str(getattr(value, "__name__", "")).encode()


def _of_code(code: CodeType) -> bytes:
    """What tells code from other code of a file that is as it was; that of functions inside of it comes with it."""
    constants = [constant for constant in code.co_consts if type(constant) in _PLAIN]
    return b"%b %d %b" % (code.co_code, code.co_firstlineno, repr((code.co_name, constants)).encode())


def _is_of_torch(function: BuiltinFunctionType) -> bool:
    owner = function.__self__
    named = owner if isinstance(owner, ModuleType) else type(owner)
    return str(function.__module__ or named.__name__).partition(".")[0] in _LIBRARIES | {"pybind11_detail"}


def _check(name: str, is_torch: bool) -> None:
    if not is_torch:
        raise NotKept(f"the program's own {name} is in the place of torch's")
