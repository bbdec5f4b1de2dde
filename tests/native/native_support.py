"""Helpers to build replacement code and guard trees by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from framejit import _native as native

_VAR_FLAGS = 0x04 | 0x08


def n_slots(code: CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def flat(fn: FunctionType | CodeType, **constants: Any) -> CodeType:
    """The code of a template function as a replacement takes it: every argument slot positional.

    A string constant that names one of `constants` is replaced by that object.
    """
    code = fn if isinstance(fn, CodeType) else fn.__code__
    consts = tuple(constants[c] if isinstance(c, str) and c in constants else c for c in code.co_consts)
    return code.replace(
        co_argcount=n_slots(code), co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=code.co_flags & ~_VAR_FLAGS,
        co_consts=consts
    )


def compile_function(source: str, **namespace: Any) -> FunctionType:
    """The function that `source` defines."""
    name = source.removeprefix("def ").partition("(")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a string in the place of a slot is called
        exec(source, namespace)
    return namespace[name]


def arg(
    index: int, *checks: tuple[int, Any], children: list[Any] | None = None, guard_id: int | None = None
) -> tuple[Any, ...]:
    """A node for an argument; its checks carry the node's guard id, by default the index."""
    guard_id = index if guard_id is None else guard_id
    return node(native.A_ARG, index, *checks, children=children, guard_id=guard_id)


def node(
    accessor: int, key: Any, *checks: tuple[int, Any], children: list[Any] | None = None, guard_id: int = 0
) -> tuple[Any, ...]:
    return (accessor, key, [(check, payload, guard_id) for check, payload in checks], children or [], guard_id)


def tree(*roots: tuple[Any, ...], n_records: int = 0) -> native.GuardTree:
    return native.GuardTree(list(roots), n_records)


def entry_for(
    fn: FunctionType,
    replacement: FunctionType | CodeType,
    *roots: tuple[Any, ...],
    slots: tuple[native.Slot, ...] = (),
    flags: int = 0,
    tag: Any = None,
    **constants: Any,
) -> native.Entry:
    return native.Entry(flat(replacement, **constants), fn, tree(*roots), slots, flags, tag)


def never(*args: Any) -> Any:
    raise AssertionError("on_miss was called")


def replaced(fn: FunctionType, replacement: FunctionType | CodeType, **kwargs: Any) -> native.Dispatcher:
    """A dispatcher that always runs the replacement."""
    dispatcher = native.Dispatcher(fn, never)
    dispatcher.add_entry(entry_for(fn, replacement, **kwargs))
    return dispatcher


class Value:
    """An object whose references are counted."""


class Hooked:
    """Context in which every frame goes through the frame hook, to hand-made replacements."""

    def __init__(self) -> None:
        # by identity: code objects of the same source compare equal
        self._makers: dict[int, tuple[CodeType, Callable[[FunctionType], native.Entry | None]]] = {}
        self.misses: list[tuple[Any, FunctionType, tuple[Any, ...]]] = []

    def replace(self, fn: Any, replacement: Any, *roots: Any, **kwargs: Any) -> None:
        self.make(fn, lambda actual: entry_for(actual, replacement, *roots, **kwargs))

    def make(self, fn: Any, maker: Callable[[FunctionType], native.Entry | None]) -> None:
        """Frames of `fn` run what `maker` gives."""
        native.reset_code(fn.__code__)
        self._makers[id(fn.__code__)] = fn.__code__, maker

    def forget(self) -> None:
        self._makers.clear()
        self.misses.clear()

    def wants(self, code: CodeType, namespace: dict[str, Any]) -> bool:
        return id(code) in self._makers

    def on_miss(self, cache: native.EntryCache, fn: FunctionType, flat_args: tuple[Any, ...]) -> native.Entry | None:
        self.misses.append((cache, fn, flat_args))
        made = self._makers[id(fn.__code__)][1](fn)
        if made is not None:
            cache.add_entry(made)
        return made

    def __enter__(self) -> Hooked:
        native.install_hook_policy(self.wants, self.on_miss)
        native.intercept_all(True)
        return self

    def __exit__(self, *exc: object) -> None:
        native.intercept_all(False)
        native.install_hook_policy(None, None)
        native.reset_all_codes()
