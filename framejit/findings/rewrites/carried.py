"""A call as plain data: what another process needs to make it again. No statement of the program's module runs there
but imports and definitions."""
from __future__ import annotations

import ast
import importlib
import io
import sys
import types
from collections.abc import Iterator
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from framejit.findings.evidence import Call

Data = dict[str, Any]


class CannotCarry(Exception):
    """A part of the call is no plain data, and stands nowhere it could be imported from."""


def carried(call: Call) -> Data:
    """The function as the definitions and values that it needs, and the arguments, all of which
    `torch.load(weights_only=True)` reads. Raises CannotCarry."""
    fn, args = call.fn, call.args()
    names = fn.__code__.co_varnames
    for i, value in enumerate(args or ()):
        _must_carry(f"the argument `{names[i]}`", value)
    try:
        with open(fn.__code__.co_filename, encoding="utf-8") as f:
            text = f.read()
    except OSError as e:
        raise CannotCarry(f"the source of {fn.__qualname__} can't be read ({e.strerror})") from None
    if fn.__closure__ or "<locals>" in fn.__qualname__:
        raise CannotCarry(f"{fn.__qualname__} is defined inside another function")
    needs = _Needs(fn, text)
    return {
        **{
            "file": fn.__code__.co_filename, "text": text, "module": fn.__globals__.get("__name__", ""),
            "function": fn.__qualname__,
        },
        **{"definitions": sorted(needs.definitions), "imports": needs.imports, "values": needs.values, "args": args},
    }


class _Needs:
    """What a function refers to by the names of its module, directly and through other definitions there."""

    def __init__(self, fn: FunctionType, text: str) -> None:
        self._namespace = fn.__globals__
        self._statements = {
            node.name: node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        self.definitions: set[str] = set()
        self.imports: dict[str, tuple[str, str]] = {}
        """For a name, the module and the path in it; no path for the module itself."""
        self.values: Data = {}
        self._take(fn.__qualname__.partition(".")[0])

    def _take(self, name: str) -> None:
        if name in self.definitions or name in self.imports or name in self.values or name not in self._namespace:
            return
        value = self._namespace[name]
        statement = self._statements.get(name)
        if statement is not None and getattr(value, "__module__", None) == self._namespace.get("__name__"):
            self.definitions.add(name)
            for node in ast.walk(statement):
                if isinstance(node, ast.Name):
                    self._take(node.id)
        elif isinstance(value, ModuleType):
            self.imports[name] = value.__name__, ""
        elif _is_importable(value):
            self.imports[name] = value.__module__, value.__qualname__
        else:
            _must_carry(f"the global `{name}`", value)
            self.values[name] = value


def _is_importable(value: Any) -> bool:
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__" or module not in sys.modules:
        return False
    try:
        return attrgetter(path)(sys.modules[module]) is value
    except AttributeError:
        return False


def _must_carry(what: str, value: Any) -> None:
    try:
        from_bytes(to_bytes(value))
    except Exception as e:
        raise CannotCarry(f"{what} is no plain data ({type(value).__qualname__})") from e


def to_bytes(data: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(data, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


# ---- in the other process ---------------------------------------------------------------------------------


def call_of(data: Data) -> Call:
    """The call that was carried here."""
    module = types.ModuleType(data["module"])
    module.__file__ = data["file"]
    namespace = module.__dict__
    sys.modules[data["module"]] = module
    for name, (home, path) in data["imports"].items():
        found: Any = importlib.import_module(home)
        namespace[name] = attrgetter(path)(found) if path else found
    namespace.update(data["values"])
    tree = ast.parse(data["text"])
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    wanted: list[ast.stmt] = [node for node in imports if getattr(node, "module", None) == "__future__"]
    others: list[ast.stmt] = [node for node in imports if node not in wanted]
    if others:  # CPython has other instructions for what it sees imported, also where that is not done
        wanted.append(ast.If(ast.Constant(False), others, []))
    wanted += [node for node in tree.body if getattr(node, "name", None) in data["definitions"]]
    exec(compile(ast.fix_missing_locations(ast.Module(wanted, [])), data["file"], "exec", dont_inherit=True), namespace)
    return Call(attrgetter(data["function"])(module), data["args"])


def code_of(file: str, name: str, line: int, functions: Iterator[FunctionType]) -> CodeType | None:
    """The code of the function of a name that begins at a line of a file, among functions and those inside them."""
    todo = [function.__code__ for function in functions]
    while todo:
        code = todo.pop()
        if (code.co_filename, code.co_qualname, code.co_firstlineno) == (file, name, line):
            return code
        if code.co_filename == file:
            todo += [const for const in code.co_consts if isinstance(const, CodeType)]
    return None
