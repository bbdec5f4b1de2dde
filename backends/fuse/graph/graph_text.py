"""Graphs as text that people read, and that is the same for graphs that are the same: values are numbered in the order
in which they come up.

    %0 x: f32[4, 8]
    %1 weight: f32[8, 8 | 1, 8]                     strides, where they are not those of a tensor in row-major memory
    %2: f32[8, 8] = aten.t.default(%1)              view of %1
    %3: f32[4, 8] = aten.mm.default(%0, %2)         # model.py:12 in forward: return x @ self.weight
    aten.add_.Tensor(%3, 1)                         writes %3
    return %3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.graph import Constant, Graph, HiddenBase
from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.origin import UNKNOWN, Origin
from framejit.backends.fuse.graph.value import Value
from framejit.late_dataclass import dataclass
from framejit.symbols.expression import Symbol
from framejit.symbols.sym_node import expression_of

DTYPES: Final = {
    **{
        getattr(torch, f"{kind}{bits}"): f"{kind[0]}{bits}"
        for kind, widths in (("float", (16, 32, 64)), ("int", (8, 16, 32, 64)))
        for bits in widths
    },
    **{torch.bfloat16: "bf16", torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128"},
}
USUAL_DEVICE: Final = torch.device("cpu")
"""Values on it are printed without saying so."""
_COLUMN: Final = 60


@dataclass
class GraphText:
    """The lines of a graph, each with the line of the program that it stems from, and what came up in them."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    operations: dict[torch._ops.OpOverload, None] = field(default_factory=dict)
    devices: dict[torch.device, None] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    """The lines of the program, each once, in order."""
    unwritten: str = ""
    """What there is in the graph that its text does not tell; empty if there is nothing."""

    def __str__(self) -> str:
        return "\n".join(f"{text:<{_COLUMN}}  # {origin}" if origin else text for text, origin in self.lines)

    @property
    def key(self) -> str:
        """The text with the lines of the program by number: a function that moves keeps it."""
        return "\n".join(f"{text} #{self.origins[origin]}" if origin else text for text, origin in self.lines)


def text_of(graph: Graph) -> GraphText:
    """The graph as text."""
    return _Writer(graph).result


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.result = GraphText()
        self.numbers: dict[Value, str] = {}
        self.symbols: dict[Symbol, None] = {}
        self.conditions = graph.conditions
        for name, value in zip(graph.names, graph.inputs, strict=True):
            self._line(f"{self._new(value, name)}")
        for value, constant in graph.constants.items():
            self._line(f"{self._new(value)} = {_described(constant)}")
        self._nodes(graph, "", UNKNOWN)
        self.bases: dict[HiddenBase, int] = {}
        outputs = [
            f"{self._value(output)}{self._view(graph, position)}" for position, output in enumerate(graph.outputs)
        ]
        self._line(f"return {', '.join(outputs)}")
        counted = [
            f"{number} of {self._value(graph.inputs[position])}"
            for position, number in sorted(graph.counted_writes.items())
            if number
        ]
        if graph.versions:
            made = [f"{number} of {self._value(graph.outputs[place])}" for place, number in graph.versions.items()]
            self._line(f"writes that autograd counts of results: {', '.join(made)}")
        if graph.counted_apart:
            apart = [f"{self._value(graph.outputs[place])} in {n}" for place, n in graph.counted_apart.items()]
            self._line(f"writes that autograd counts apart: {', '.join(apart)}")
        uncounted = [
            self._value(value) for position, value in enumerate(graph.inputs) if position not in graph.counted_writes
        ]
        if counted or uncounted:
            self._line(
                f"writes that autograd counts: {', '.join(counted) or 'none'}; not known of "
                f"{', '.join(uncounted) or 'none'}"
            )
        if graph.own_inputs is not None:
            own = [self._value(graph.inputs[position]) for position in sorted(graph.own_inputs)]
            self._line(f"inputs are given up; held by nobody else: {', '.join(own) or 'none'}")
        for symbol in self.symbols:
            self._line(f"size {symbol}: {symbol.bounds[0]} to {symbol.bounds[1]}")

    def _view(self, graph: Graph, position: int) -> str:
        """The line that says of what the output at a position is a view for autograd."""
        hidden = graph.hidden_views.get(position)
        if hidden is None:
            return f" (view; {graph.views[position]})" if position in graph.views else ""
        base = hidden.base
        number = self.bases.setdefault(base, len(self.bases))
        shape, strides = (", ".join(map(self._size, sizes)) for sizes in (base.shape, base.strides))
        return (
            f" (view of hidden {number} {_dtype(base.dtype)} [{shape} | {strides}] from {self._size(hidden.before)} "
            f"bytes before it; {hidden.creation})"
        )

    def _nodes(self, graph: Graph, indent: str, around: Origin) -> None:
        for node in graph.nodes:
            self._node(node, indent, around)

    def _node(self, node: Node, indent: str, around: Origin) -> None:
        self.result.operations[node.operation] = None
        arguments = [
            *map(self._value, node.args),
            *(f"{name}={self._value(value)}" for name, value in node.kwargs.items()),
        ]
        call = f"{node.operation}({', '.join(arguments)})"
        notes = []
        if node.autocast:
            notes.append(f"autocast to {', '.join(f'{_dtype(dtype)} on {device}' for device, dtype in node.autocast)}")
        if node.writes:
            notes.append(f"writes {', '.join(map(self._value, node.writes))}")
        made = self._returned(node)
        several = len(node.results) > 1
        views = [
            f"{self._name(value)} view of {self._name(value.base)}"[0 if several else len(self._name(value)) + 1 :]
            for value in node.results
            if value.base
        ]
        text = f"{indent}{made} = {call}" if made else f"{indent}{call}"
        notes = [*views, *notes]
        self._line(
            (f"{text}  {'; '.join(notes)}" if notes else text) + (" {" if node.parts else ""),
            "" if node.origin == around else str(node.origin),
        )
        for number, part in enumerate(node.parts):
            if number:
                self._line(f"{indent}}} {{")
            if part.inputs:
                self._line(
                    f"{indent}    takes "
                    f"{', '.join(self._new(value, name) for name, value in zip(part.names, part.inputs, strict=True))}"
                )
            self._nodes(part, indent + "    ", node.origin)
            self._line(f"{indent}    gives {', '.join(map(self._value, part.outputs))}")
        if node.parts:
            self._line(f"{indent}}}")

    def _returned(self, node: Node) -> str:
        if node.result is None:
            return ""
        written: dict[Value, str] = {value: self._described(value) for value in node.results}
        if not written and not [*values_in((node.result,))]:
            return self._value(node.result)
        return self._structure(node.result, written)

    def _structure(self, result: Any, written: dict[Value, str]) -> str:
        if isinstance(result, Value):
            return f"{self._name(result)}: {written[result]}" if result in written else self._name(result)
        if type(result) in (tuple, list):
            return _bracketed(result, [self._structure(item, written) for item in result])
        return self._value(result)

    def _new(self, value: Value, name: str = "") -> str:
        number = self._name(value)
        base = f" view of {self._name(value.base)}" if value.base is not None else ""
        return (
            f"{number} {name}: {self._described(value)}{base}" if name else f"{number}: {self._described(value)}{base}"
        )

    def _name(self, value: Value) -> str:
        known = self.numbers.get(value)
        if known is None:
            known = self.numbers[value] = f"%{len(self.numbers)}"
        return known

    def _described(self, value: Value) -> str:
        """`f32[4, 8]`, and strides, offset and device where they are not the usual ones."""
        shape, strides, offset = value.shape, value.strides, value.offset
        if value.fake.layout is not torch.strided:
            self.result.unwritten = f"a tensor is {str(value.fake.layout).removeprefix('torch.')}"
        text = ", ".join(map(self._size, shape))
        if value.has_symbolic_sizes or strides != _row_major(shape):
            text += f" | {', '.join(map(self._size, strides))}"
        start = "" if type(offset) is int and offset == 0 else f" from {self._size(offset)}"
        self.result.devices[value.device] = None
        device = "" if value.device == USUAL_DEVICE else f" on {value.device}"
        return f"{_dtype(value.dtype)}[{text}]{start}{device}"

    def _size(self, size: Any) -> str:
        if type(size) is int:
            return str(size)
        expression = expression_of(size)
        if expression is None:
            self.result.unwritten = "a tensor's sizes are not known"
            return "?"
        if self.conditions is not None:
            expression = self.conditions.simplified(expression)
        self.symbols.update(dict.fromkeys(expression.symbols()))
        return str(expression)

    def _value(self, value: Any) -> str:
        kind = type(value)
        if kind is Value:
            return self._name(value)
        if value is None or kind in (bool, int, float, complex, str):
            return repr(value)
        if kind in (tuple, list, torch.Size):
            return _bracketed(value, [self._value(item) for item in value])
        if kind is torch.dtype:
            return _dtype(value)
        if kind is torch.device:
            self.result.devices[value] = None
            return f"device {value}"
        if kind in (torch.layout, torch.memory_format):
            return f"{kind.__name__} {str(value).removeprefix('torch.')}"
        if kind is torch.SymInt:
            return self._size(value)
        self.result.unwritten = f"an operation has an argument of type {kind.__name__}"
        return f"<{kind.__name__}>"

    def _line(self, text: str, origin: str = "") -> None:
        if origin:
            self.result.origins.setdefault(origin, len(self.result.origins))
        self.result.lines.append((text, origin))


def _described(constant: Constant) -> str:
    return (
        "numbers of the program"
        if constant.literal
        else "computed from frozen weights"
        if constant.made
        else "attribute of the module"
    )


def _bracketed(sequence: Any, items: Sequence[str]) -> str:
    kind = type(sequence)
    if kind is list:
        return f"[{', '.join(items)}]"
    text = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return text if kind is tuple else f"{kind.__name__}{text}"


def _dtype(dtype: torch.dtype) -> str:
    return DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
