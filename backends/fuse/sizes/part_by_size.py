"""A part of a graph in which data decides sizes: compiled as graphs of symbolic sizes are, for sizes of which most come
only once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.fuse.account.compiled_graph import CompiledGraph, name_of, recall_all, remember
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.sizes.by_size import CompiledBySize, CompileStatic, CompileSymbolic, Run
from framejit.backends.fuse.sizes.new_sizes import NewSizes
from framejit.backends.graph_identity import identity
from framejit.symbols.conditions import LEAST

MOST: Final = 6
"""Variants that are compiled of one part."""
PATIENCE: Final = 3
"""How many times as many sizes that none fits must have come before each further one."""
MOST_IN_VAIN: Final = 64
"""New sizes in a row that are not worth a plan before ATen is taken for good."""


class PartBySize(CompiledBySize):
    """The compiled part. Sizes 0 and 1, which mean other things, and sizes that it can't be compiled for without being
    told which run as ATen."""

    def __init__(
        self, gm: fx.GraphModule, example_inputs: list[torch.Tensor], compile_symbolic: CompileSymbolic,
        compile_static: CompileStatic, give_up: Callable[[], None],
    ) -> None:
        self._give_up = give_up
        self._unfit = 0
        """How many sizes came that no variant fits, since the last one was made."""
        self._new = NewSizes({given.device for given in example_inputs})
        super().__init__(gm, example_inputs, compile_symbolic, compile_static)

    def _begin(self, inputs: list[torch.Tensor]) -> None:
        sizes = self._sizes(inputs)
        if min(sizes) >= LEAST:
            self._made_for(sizes, inputs)

    def _compiled(self, sizes: tuple[int, ...], inputs: list[torch.Tensor]) -> Run:
        try:
            return self._variant_for(sizes, inputs).run(sizes)
        except NotFusable as e:
            self.why_static = str(e)
            number = identity(self.gm)
            remember(self.gm, CompiledGraph(name_of(number or 0, self.gm.meta), weakref.ref(self.gm), number))
            self._leave(self.why_static)
        return self.eager

    def _miss(self, sizes: tuple[int, ...], inputs: tuple[torch.Tensor, ...]) -> tuple[Run, bool]:
        eager: Run = self._variants[0].eager if self._variants else self.eager
        if self._never or min(sizes) < LEAST:
            return eager, True
        variant = next((variant for variant in self._variants if variant.fits(sizes)), None)
        if variant is None:
            self._unfit += 1
            if self._variants and (self._unfit < PATIENCE ** len(self._variants) or len(self._variants) >= MOST):
                return eager, False
            self._unfit = 0
            return self._safely(sizes, lambda: self._made_for(sizes, [*inputs])), True

        def plan() -> Any:
            return self._safely(sizes, lambda: self._remember(sizes, variant.run(sizes)))

        if self._new.in_vain > MOST_IN_VAIN and eager == self.eager:
            self._leave("ATen is quicker than to make a plan for each of its sizes, most of which come once")
            return eager, True
        return self._new.run_for(sizes, plan, eager)

    def _leave(self, reason: str) -> None:
        """Have ATen run the part from now on."""
        self._never = True
        for graph in recall_all(self):
            graph.reason, graph.left_to_aten, graph.run = reason, True, None
        self._tell(f"runs as ATen: {reason}")
        self._give_up()
