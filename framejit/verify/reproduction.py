"""Scripts that show a difference again: a folder each, with the tensors or arguments of the call."""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from framejit.backends.registry import is_registered
from framejit.config import config
from framejit.options import Options
from framejit.verify.first_node import NodeDifference

_GRAPH = '''"""{title}"""
from pathlib import Path

import torch
{imports}
from framejit.backends.graph_identity import SAME_RANDOM_NUMBERS
from framejit.verify.graph_runs import against_eager, private


class Graph(torch.nn.Module):
{forward}

{backend}
inputs = torch.load(Path(__file__).with_name("inputs.pt"), weights_only=True)
graph = torch.fx.symbolic_trace(Graph())
graph.meta[SAME_RANDOM_NUMBERS] = True
compiled = backend(graph, private(inputs))
arguments = private(inputs)
seed = lambda: torch.manual_seed(0)
seed()
outputs = private(compiled(*arguments))
print(against_eager(torch.fx.symbolic_trace(Graph()), inputs, private(arguments), outputs, seed) or "no difference")
'''

_CALL = '''"""{title}"""
import importlib
import importlib.util
from pathlib import Path

import torch

import framejit
from framejit.originals import function_behind
from framejit.verify.difference import first_difference

try:
    function = importlib.import_module({module!r})
except (ImportError, ValueError):  # the function's file is no module that can be imported by name
    spec = importlib.util.spec_from_file_location("program", {file!r})
    function = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(function)
for name in {qualname!r}.split("."):
    function = getattr(function, name)
function = function_behind(function)
compiled = framejit.optimize(function, backend="eager")
# the first is the call that was compiled, where it is known; the last one differed
for path in sorted(Path(__file__).parent.glob("call-*.pt")):
    load = lambda: torch.load(path, weights_only=False)
    args, kwargs = load()
    expected = function(*args, **kwargs)
    args, kwargs = load()
    result = compiled(*args, **kwargs)
    print(path.name, first_difference({{"result": expected}}, {{"result": result}}) or "no difference")
'''


def write_graph(function: str, title: str, found: NodeDifference, options: Options) -> Path:
    """A script that compiles the shortest graph that differs and compares it with its own Python code."""
    code = found.module.graph.python_code("self")
    folder = _folder(function)
    torch.save([t.detach() for t in found.inputs], folder / "inputs.pt")
    imports = "\n".join(
        filter(
            None,
            (
                _import(name, value)
                for name, value in sorted(code.globals.items())
                if re.search(rf"\b{re.escape(name)}\b", code.src)
            ),
        )
    )
    forward = "\n".join(f"    {line}".rstrip() for line in code.src.strip().splitlines())
    text = _GRAPH.format(title=_docstring(title), imports=imports, forward=forward, backend=_backend(options))
    return _written(folder, text)


def write_call(name: str, fn: Any, title: str, calls: list[Callable[[Path], None]]) -> Path:
    """A script that makes the given calls, each run plainly and optimized. A function without an importable name has to
    be put in by hand."""
    folder = _folder(name)
    for i, save in enumerate(calls, 1):
        try:
            save(folder / f"call-{i}.pt")
        except Exception as e:  # arguments that can't be pickled
            (folder / f"call-{i}.txt").write_text(f"The arguments can't be stored: {type(e).__name__}: {e}\n")
            (folder / f"call-{i}.pt").unlink(missing_ok=True)
    return _written(
        folder,
        _CALL.format(
            title=_docstring(title), module=_importable(fn.__module__), file=fn.__code__.co_filename,
            qualname=fn.__qualname__,
        ),
    )


def _importable(module: str) -> str:
    """A module's name for a script, which is `__main__` itself."""
    return "" if module == "__main__" else module


def saver(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Path], None]:
    return lambda path: torch.save((args, kwargs), path)


def _docstring(title: str) -> str:
    return title.replace("\\", "\\\\").replace('"""', "'''")


def _folder(function: str) -> Path:
    name = re.sub(r"\W+", "-", function).strip("-") or "call"
    number = 1
    while True:
        folder = Path(config.verify_folder) / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:  # another report's, perhaps of another process
            number += 1


def _written(folder: Path, text: str) -> Path:
    script = folder / "reproduce.py"
    script.write_text(text)
    return script


def _import(name: str, value: Any) -> str:
    """How a global of a graph's code comes into being in a script."""
    if name == "torch":
        return ""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module not in (None, "builtins", "__main__") and qualname and qualname.isidentifier():
        return f"from {module} import {qualname} as {name}"
    if isinstance(value, float):
        return f'{name} = float("{value}")'
    return f"{name} = ...  # put in: {json.dumps(repr(value))}"


def _backend(options: Options) -> str:
    if is_registered(options.backend_name, options.backend):
        name = options.backend_name
        return f"from framejit.backends.registry import resolve  # noqa: E402\n\nbackend, _ = resolve({name!r})"
    module, qualname = getattr(options.backend, "__module__", ""), getattr(options.backend, "__qualname__", "")
    if module not in ("", "__main__") and qualname.isidentifier():
        return f"from {module} import {qualname} as backend  # noqa: E402"
    return f"backend = ...  # put in the backend {options.backend_name!r}"
