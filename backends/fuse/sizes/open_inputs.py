"""The inputs of a part of a graph, with a symbol for each size that is not known: some of these the graph computes of
others that no input of the part has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.sizes.by_size import placeholders, places_of
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import INFINITE, Expression, Symbol
from framejit.symbols.sym_node import expression_of, symbolic


def sizes_are_read(gm: fx.GraphModule) -> bool:
    """Whether all sizes of inputs follow from those that an input has as they are."""
    known = {*places_of(gm)}
    for node in placeholders(gm):
        fake = node.meta.get("val")
        for size in fake.shape if isinstance(fake, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and (expression := expression_of(size)) is not None:
                if not known.issuperset(size.node.conditions.simplified(expression).symbols()):
                    return False
    return True


def open_inputs(gm: fx.GraphModule) -> None:
    """Give the placeholders fakes whose sizes and strides are written with symbols that are sizes of inputs. Raises
    NotFusable where a stride does not follow from sizes."""
    known = {*places_of(gm)}
    made: dict[Expression, Expression] = {}
    for node in placeholders(gm):
        fake = node.meta["val"]
        if not fake._has_symbolic_sizes_strides:
            continue
        conditions: Conditions = next(
            size.node.conditions for size in (*fake.shape, *fake.stride()) if isinstance(size, torch.SymInt)
        )
        old = _expressions(fake.shape, conditions)
        sizes = []
        for dim, size in enumerate(old):
            if not known.issuperset(size.symbols()) and size not in made:
                symbol = Symbol(f"{node.name}.size({dim})", size.hint, (2, INFINITE), grows=True)
                made[size] = Expression.of(symbol)
            sizes.append(made.get(size, size))
        strides = _strides(_expressions(fake.stride(), conditions), old, sizes)
        if sizes == old:
            continue
        if not known.union(*(size.symbols() for size in made.values())).issuperset(
            symbol for stride in strides for symbol in stride.symbols()
        ):
            raise NotFusable("an input's strides do not follow from its sizes")
        with fake.fake_mode, torch.inference_mode(fake.is_inference()):
            opened = torch.empty_strided(
                [symbolic(size, conditions) for size in sizes], [symbolic(stride, conditions) for stride in strides],
                dtype=fake.dtype, device=fake.device,
            ).requires_grad_(fake.requires_grad)
        node.meta["val"] = node.meta["example_value"] = opened


def _expressions(sizes: Sequence[Any], conditions: Conditions) -> list[Expression]:
    return [conditions.simplified(expression) for size in sizes if (expression := expression_of(size)) is not None]


def _strides(strides: list[Expression], old: list[Expression], sizes: list[Expression]) -> list[Expression]:
    """Strides as they are for other sizes, where they are those of dense dimensions."""
    found = [*strides]
    dense_before = dense = Expression.constant(1)
    for dim in sorted(range(len(strides)), key=lambda dim: (strides[dim].hint, -dim)):
        if strides[dim] == dense_before:
            found[dim] = dense
        dense_before, dense = strides[dim] * old[dim], found[dim] * sizes[dim]
    return found
