"""Graphs whose sizes are symbols, lowered as for a GPU without there being one, and what is generated for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.loop_ir.nodes import Buffer, ExternNode, Kernel, Layout, LoweredGraph
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.sizes.by_size import Variant
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.backends.fuse.triton.kernel_source import TritonSource, triton_source
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU, GpuLimits
from framejit.fakes.light_torch import light
from framejit.symbols.conditions import LEAST, Conditions
from framejit.symbols.expression import INFINITE, Expression, Symbol, evaluate
from framejit.symbols.sym_node import symbolic
from tests.fuse.stages import lower

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Input:
    """A contiguous tensor: names of sizes, or numbers. Integers are from 0 to `high` - 1, the others normally
    distributed."""

    shape: tuple[str | int, ...]
    dtype: torch.dtype = torch.float32
    high: int = 2

    def real(self, sizes: Sizes) -> torch.Tensor:
        shape = [sizes.get(size, size) if isinstance(size, str) else size for size in self.shape]
        return (
            torch.randn(shape).to(self.dtype)
            if self.dtype.is_floating_point
            else torch.randint(0, self.high, shape, dtype=self.dtype)
        )


class SymbolicVariant:
    """What is generated for a graph, for the sizes that meet its conditions."""

    def __init__(
        self, lowered: LoweredGraph, conditions: Conditions, symbols: tuple[Symbol, ...],
        limits: GpuLimits = WITHOUT_A_GPU,
    ) -> None:
        self.lowered, self.steps = lowered, schedule(lowered)
        self.sources: dict[Kernel, TritonSource] = {}
        for step in self.steps:
            if isinstance(step, Kernel) and not step.is_empty:
                self.sources[step] = triton_source(step, limits)
        self.conditions, self.symbols = tuple(conditions), symbols
        self._asked, self._written = 0, None

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return Variant.fits(self, sizes)  # type: ignore[arg-type]

    def closed(self, sizes: tuple[int, ...]) -> tuple[LoweredGraph, dict[Kernel, TritonSource]]:
        """The scheduled graph, with numbers for what was symbolic; the sources are the same for all sizes."""
        values = dict(zip(self.symbols, sizes))
        buffers = {name: _static_buffer(buffer, values) for name, buffer in self.lowered.buffers.items()}

        def real(value: Any) -> Any:
            if isinstance(value, Layout):
                return Layout(
                    buffers[value.buffer.name],
                    *(concrete(each, values) for each in (value.sizes, value.strides, value.offset)),
                )
            if isinstance(value, Buffer):
                return buffers[value.name]
            return type(value)(map(real, value)) if type(value) in (tuple, list) else concrete(value, values)

        nodes: list[Any] = []
        sources: dict[Kernel, TritonSource] = {}
        for step in self.steps:
            if isinstance(step, ExternNode):
                kwargs = {name: real(value) for name, value in step.kwargs.items()}
                nodes.append(replace(step, args=real(step.args), kwargs=kwargs, results=real(step.results)))
                continue
            nodes.append(replace(step, buffers={name: buffers[name] for name in step.buffers}))
            if step in self.sources:
                source = self.sources[step]
                sources[nodes[-1]] = replace(
                    source, programs=concrete(source.programs, values), scalars=concrete(source.scalars, values)
                )
        return LoweredGraph(
            buffers, nodes, [real(output) for output in self.lowered.outputs], self.lowered.n_inputs
        ), sources


def _static_buffer(buffer: Buffer, values: Mapping[Symbol, int]) -> Buffer:
    return replace(
        buffer, sizes=concrete(buffer.sizes, values), strides=concrete(buffer.strides, values),
        offset=concrete(buffer.offset, values),
    )


class SymbolicProgram:
    """A function on inputs some of whose sizes are symbolic; variants are made as `by_size.BySize` makes them, but at
    once."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Input], names: Sequence[str],
        limits: GpuLimits = WITHOUT_A_GPU, grows: bool = False,
    ) -> None:
        self.function, self.inputs, self.names, self.limits = function, inputs, tuple(names), limits
        self.grows = grows
        self.variants: list[SymbolicVariant] = []

    @cached_property
    def _captured(self) -> tuple[fx.GraphModule, Conditions, tuple[Symbol, ...]]:
        conditions = Conditions()
        symbols = {name: Symbol(f"x.size({name})", LEAST, (LEAST, INFINITE), self.grows) for name in self.names}
        graph = fx.Graph()
        with light():
            mode = FakeTensorMode(allow_fallback_kernels=False)
            mode.cache_enabled = False  # as capture has it
            nodes = []
            for position, given in enumerate(self.inputs):
                strides = [Expression.constant(1)]
                shape = [
                    Expression.of(symbols[size]) if isinstance(size, str) else Expression.constant(size)
                    for size in given.shape
                ]
                for size in reversed(shape[1:]):
                    strides.insert(0, strides[0] * size)
                layout = [[symbolic(each, conditions) for each in list] for list in (shape, strides[: len(shape)])]
                with mode:
                    fake = torch.empty_strided(*layout, dtype=given.dtype, device="cuda")
                nodes.append(graph.placeholder(f"x{position}"))
                nodes[-1].meta["val"] = fake
        graph.output((graph.call_function(self.function, tuple(nodes)),))
        return fx.GraphModule(torch.nn.Module(), graph), conditions, tuple(symbols.values())

    def variant(self, sizes: Sizes) -> SymbolicVariant:
        """The first variant that is right for the sizes; a new one if there is none."""
        gm, conditions, symbols = self._captured
        numbers = tuple(sizes[name] for name in self.names)
        for variant in self.variants:
            if variant.fits(numbers):
                return variant
        own, replaced = conditions.with_hints(dict(zip(symbols, numbers)))
        examples = [
            torch.empty_strided(*_layout(given, sizes), dtype=given.dtype, device="meta") for given in self.inputs
        ]
        lowered = lower(gm, examples, own)
        made = SymbolicVariant(lowered, own, tuple(replaced[symbol] for symbol in symbols), self.limits)
        assert made.fits(numbers), [
            str(condition) for condition in made.conditions if not _holds(condition, dict(zip(made.symbols, numbers)))
        ]
        self.variants.append(made)
        return made


def _layout(given: Input, sizes: Sizes) -> tuple[torch.Size, tuple[int, ...]]:
    meta = torch.empty([sizes[size] if isinstance(size, str) else size for size in given.shape], device="meta")
    return meta.shape, meta.stride()


def _holds(condition: Any, values: Mapping[Symbol, int]) -> bool:
    number = evaluate(condition.expression, values)
    return (number == 0 if condition.relation == "==" else number < 0) == condition.outcome
