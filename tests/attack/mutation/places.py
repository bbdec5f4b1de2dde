"""What a call can look at: arguments, globals, cells, defaults, class attributes, and everything they hold; each can be
changed, and changed back."""
from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

Path = tuple[tuple[str, Any], ...]
DEPTH = 4
OWN = ("program", "test")  # classes and functions of these modules are the program's


def places(root: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every place below `root` (a dict of roots), each object once, with what stands there."""
    seen: set[int] = set()

    def walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if path:
            yield path, value
        if len(path) >= DEPTH or id(value) in seen:
            return
        seen.add(id(value))
        for step, inner in steps(value):
            yield from walk(inner, (*path, step))

    for name, value in root.items():
        yield from walk(value, (("item", name),))


def steps(value: Any) -> Iterator[tuple[tuple[str, Any], Any]]:
    if isinstance(value, (list, tuple, collections.deque)):
        yield from ((("item", i), inner) for i, inner in enumerate(value))
    elif isinstance(value, dict):
        yield from ((("item", key), inner) for key, inner in value.items() if isinstance(key, (str, int)))
    elif isinstance(value, types.FunctionType):
        if value.__module__.startswith(OWN):
            yield from ((("default", i), inner) for i, inner in enumerate(value.__defaults__ or ()))
            yield from (
                (("cell", i), cell.cell_contents)
                for i, cell in enumerate(value.__closure__ or ())
                if cell_is_full(cell)
            )
    elif isinstance(value, type):
        if value.__module__.startswith(OWN):
            yield from (
                (("attr", name), inner)
                for name, inner in vars(value).items()
                if not name.startswith("__") and not isinstance(inner, types.MemberDescriptorType)
            )
    elif isinstance(value, torch.nn.Module):
        yield ("attr", "training"), value.training
        for table in ("_parameters", "_buffers", "_modules"):
            yield from ((("attr", name), inner) for name, inner in vars(value)[table].items())
        yield from (
            (("attr", name), inner)
            for name, inner in vars(value).items()
            if not name.startswith("_") and name != "training"
        )
    elif type(value).__module__.startswith(OWN) and not isinstance(value, BaseException):
        yield from ((("attr", name), inner) for name, inner in getattr(value, "__dict__", {}).items())


def cell_is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def read(root: Any, path: Path) -> Any:
    for kind, key in path:
        if kind == "item":
            root = root[key]
        elif kind == "attr":
            root = vars(root)[key] if isinstance(root, type) else getattr(root, key)
        elif kind == "default":
            root = root.__defaults__[key]
        else:
            root = root.__closure__[key].cell_contents
    return root


def write(root: Any, path: Path, new: Any) -> Callable[[], None]:
    """Puts `new` there and returns what puts the old value back."""
    *way, (kind, key) = path
    holder = read(root, tuple(way))
    old = read(root, path)
    if kind == "item" and isinstance(holder, tuple):
        return write(
            root,
            tuple(way),
            type(holder)(*(new if i == key else one for i, one in enumerate(holder)))
            if hasattr(holder, "_fields")
            else holder[:key] + (new,) + holder[key + 1 :],
        )
    put(holder, kind, key, new)
    return lambda: put(holder, kind, key, old)


def put(holder: Any, kind: str, key: Any, value: Any) -> None:
    if kind == "item":
        holder[key] = value
    elif kind == "attr":
        setattr(holder, key, value)
    elif kind == "default":
        holder.__defaults__ = (*holder.__defaults__[:key], value, *holder.__defaults__[key + 1 :])
    else:
        holder.__closure__[key].cell_contents = value


def words(path: Path) -> str:
    text = ""
    for kind, key in path:
        text += {
            "item": f"[{key!r}]", "attr": f".{key}", "default": f".__defaults__[{key}]",
            "cell": f".__closure__[{key}]",
        }[kind]
    return text
