"""Scripts that run a graph again, eagerly and compiled, on inputs like those it was compiled for."""
from __future__ import annotations

import contextlib
import math
import pydoc
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name

from framejit.backends.fuse.account.compiled_graph import recall
from framejit.backends.fuse.random_numbers.drawn_again import drawing_as_kernels
from framejit.backends.may_raise import draws_numbers
from framejit.fakes.fake_mode import Fakes

_SCRIPT = '''"""{title}

Runs it eagerly and through the backend `fuse`, and compares. The inputs are random; numbers that index
something lie in the range they had.
"""
import torch
{imports}
from framejit.backends.fuse.account.graph_script import compare, random_tensor


def graph() -> torch.fx.GraphModule:
    _root, _graph = torch.nn.Module(), torch.fx.Graph()
{nodes}
    return torch.fx.GraphModule(_root, _graph)


def inputs() -> list[torch.Tensor]:
    return [
{inputs}
    ]


if __name__ == "__main__":
    compare(graph, inputs, {modes})
'''


def script(gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], title: str) -> str:
    """A program that builds the graph of `gm` node by node, and inputs from the metadata of `example_inputs`. It holds
    none of their values."""
    writer = _Writer(gm)
    nodes = "\n".join(f"    {line}".rstrip() for line in writer.lines())
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    inputs = "\n".join(f"        {_random(value)},  # {name}" for name, value in zip(names, example_inputs))
    title = title.replace("\\", "\\\\").replace('"""', "'''")
    return _SCRIPT.format(
        title=title, imports="\n".join(sorted(writer.imports)), nodes=nodes, inputs=inputs, modes=_modes()
    )


def _modes() -> str:
    """The torch modes that a graph's meaning depends on, as arguments of `compare`."""
    said = [f"grad={torch.is_grad_enabled()}"]
    autocast = {
        device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
    }
    if autocast:
        said.append(f"autocast={autocast}")
    if torch.get_default_dtype() != torch.float32:
        said.append(f"default_dtype={torch.get_default_dtype()}")
    return ", ".join(said)


def _random(value: Any) -> str:
    """The call of `random_tensor` that makes something like it."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    said = [repr(tuple(value.shape)), repr(tuple(value.stride())), str(value.dtype), repr(str(value.device))]
    if value.storage_offset():
        said.append(f"offset={value.storage_offset()}")
    if value.requires_grad:
        said.append("requires_grad=True")
    bounds = _bounds(value)
    if bounds is not None:
        said.append(f"bounds={bounds}")
    return f"random_tensor({', '.join(said)})"


def _bounds(value: torch.Tensor) -> tuple[int, int] | None:
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        return None
    try:
        return int(value.min()), int(value.max())
    except Exception:  # a fake, an empty tensor, or a dtype without comparison
        return None


class _Writer:
    """Writes the calls that build a graph."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.imports: set[str] = set()
        self.missing: list[str] = []
        """Comments on what the reader has to put in by hand, for the line that is being written."""

    def lines(self) -> list[str]:
        found: list[str] = []
        place: list[str] = []
        for node in self.gm.graph.nodes:
            before, place = place, (node.meta.get("stack_trace") or "").strip().splitlines()[-2:]
            if place != before:
                found += [f"# {line.strip()}" for line in place]
            if node.op == "get_attr":
                found += self._attribute(str(node.target))
            elif node.op == "call_module":
                found.append(f"# put in the module: _root.add_submodule({node.target!r}, ...)")
            line = self._node(node)
            found += [*self.missing, line]
            self.missing.clear()
        return found

    def _node(self, node: fx.Node) -> str:
        if node.op == "output":
            return f"_graph.output({self.text(node.args[0])})"
        if node.op in ("placeholder", "get_attr"):
            return f"{node.name} = _graph.{node.op}({node.target!r})"
        target = self.text(node.target) if node.op == "call_function" else repr(node.target)
        return f"{node.name} = _graph.{node.op}({target}, {self.text(node.args)}, {self.text(node.kwargs)})"

    def _attribute(self, path: str) -> list[str]:
        value: Any = self.gm
        for name in path.split("."):
            value = getattr(value, name, None)
        if "." in path or not isinstance(value, torch.Tensor):
            return [f"# put in the attribute {path!r} of `_root`"]
        return [f"_root.register_buffer({path!r}, {_random(value)})"]

    def text(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, fx.Node):
            return value.name
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(
            value,
            (
                bool, int, float, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.layout,
                torch.memory_format,
            ),
        ):
            return repr(value)
        return self._named(value)

    def _named(self, value: Any) -> str:
        """An expression for a function or another object that a module has a name for."""
        if isinstance(value, ModuleType):
            return self._module(value.__name__)
        try:
            name = str(_get_qualified_name(value))
            module, _, attribute = name.rpartition(".")
            if name.startswith("torch."):
                return name
            if not module.startswith("__main__") and pydoc.locate(name) is value:
                return f"{self._module(module)}.{attribute}"
        except Exception:  # fx finds a name for functions only
            pass
        self.missing.append(f"# put in: {value!r}".replace("\n", " "))
        return "..."

    def _module(self, name: str) -> str:
        alias = "_" + name.replace(".", "_").lstrip("_")  # a node may have the name of the module
        self.imports.add(f"import {name.removeprefix('_') if name == '_operator' else name} as {alias}")
        return alias


def random_tensor(
    sizes: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    device: str,
    *,
    offset: int = 0,
    requires_grad: bool = False,
    bounds: tuple[int, int] = (0, 1),
) -> torch.Tensor:
    """A tensor of that layout (strides and storage offset in elements): normally distributed, or for whole numbers even
    between the bounds."""
    extent = offset + (
        0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    )
    if dtype.is_floating_point or dtype.is_complex:
        memory = torch.randn(extent, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    else:
        memory = (
            torch.randint(0, 2, (extent,)).bool()
            if dtype == torch.bool
            else torch.randint(bounds[0], bounds[1] + 1, (extent,)).to(dtype)
        )
    return memory.to(device).as_strided(tuple(sizes), tuple(strides), offset).requires_grad_(requires_grad)


def compare(
    make_graph: Callable[[], fx.GraphModule],
    make_inputs: Callable[[], list[torch.Tensor]],
    *,
    grad: bool = True,
    autocast: Mapping[str, torch.dtype] | None = None,
    default_dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> None:
    """Run a graph as ATen and through `fuse` on equal inputs, say what became of it, and leave with status 1 if outputs
    or written inputs differ.

    `grad`, `autocast` (dtypes by type of device) and `default_dtype` are the modes the graph was compiled under.
    """
    before = torch.get_default_dtype()
    with torch.set_grad_enabled(grad), contextlib.ExitStack() as modes:
        modes.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(default_dtype)
        for device, dtype in (autocast or {}).items():
            modes.enter_context(torch.autocast(device, dtype))
        wrong = _compare(make_graph, make_inputs, seed)
    if wrong:
        sys.exit(1)


def _compare(make_graph: Callable[[], fx.GraphModule], make_inputs: Callable[[], list[torch.Tensor]], seed: int) -> int:
    """How many outputs and inputs differ."""
    from framejit.backends.fuse.backend import fuse_graph  # the backend imports this file's room

    gm, inputs = make_graph(), _seeded(make_inputs, seed)
    draws = any(
        draws_numbers(node.target, node.args, node.kwargs)
        for node in gm.graph.nodes
        if node.op in ("call_function", "call_method")
    )
    eager = make_graph().forward
    expected = _run(drawing_as_kernels(eager) if draws else eager, make_inputs, seed)
    _add_fakes(gm, inputs)
    compiled = fuse_graph(gm, inputs)
    print(recall(compiled))
    got = _run(compiled, make_inputs, seed)
    wrong = 0
    for name, value in expected.items():
        difference = _difference(value, got[name])
        wrong += bool(difference)
        print(f"{name}: {difference or 'the same'}")
    return wrong


def _seeded(make_inputs: Callable[[], list[torch.Tensor]], seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return make_inputs()


def _run(graph: Callable[..., Any], make_inputs: Callable[[], list[torch.Tensor]], seed: int) -> dict[str, Any]:
    inputs = _seeded(make_inputs, seed)
    outputs = graph(*inputs)
    return {
        **{f"output {i}": value for i, value in enumerate(outputs)},
        **{f"input {i} afterwards": value for i, value in enumerate(inputs)},
    }


def _difference(expected: Any, got: Any) -> str:
    """How two results differ; empty if they are close by the standards of `torch.testing.assert_close`."""
    try:
        torch.testing.assert_close(got, expected, equal_nan=True, check_stride=True)
    except AssertionError as e:
        return str(e)
    return ""


def _add_fakes(gm: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """What a capture knows of the inputs."""
    mode = Fakes(allow_fallback_kernels=False)
    for node, value in zip((node for node in gm.graph.nodes if node.op == "placeholder"), inputs):
        node.meta["val"] = mode.from_tensor(value, static_shapes=True)
