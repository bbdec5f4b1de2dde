"""What the operations that libraries carry out give, beside what their fakes say of it.

Fakes are wrong about some of what a library keeps for its own backward. One call of each kind tells: sizes and dtypes
do not depend on what is in the operands, so they are zeros, and nothing else of the graph has to run before. Generators
of random numbers are afterwards where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from framejit.backends.fuse.graph.execute import fits
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering.accepted import generators_of
from framejit.backends.fuse.random_numbers.generators import drawing_in_vain
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.symbols.expression import Symbol

BY_DATA: Final = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
"""What torch says of operations whose results have sizes that data decides."""
INDEXING: Final = ("index", "_unsafe_index")
"""Of them those that do so only if they are given masks."""
DRAWING: Final = frozenset(
    "bernoulli native_dropout rand rand_like randn randn_like randint randint_like rrelu_with_noise".split()
)
ATTENTION: Final = "_scaled_dot_product"
"""Operations that draw random numbers, and take zeros. Others may not: on GPUs `multinomial` of zeros ends all."""


def can_be_tried(node: Node) -> bool:
    """Whether what an operation gives for zeros says what it gives, and nothing comes of calling it: ATen's own whose
    results have sizes that no data decides."""
    if node.operation.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in node.operation.tags:
        return node.name in DRAWING or node.name.startswith(ATTENTION)
    by_data = any(tag in node.operation.tags for tag in BY_DATA)
    if by_data and node.name in INDEXING:
        by_data = any(value.dtype in (torch.bool, torch.uint8) for value in values_in((node.args[1],)))
    return not by_data and not node.name.startswith("_assert")


def other_results(
    nodes: Iterable[Node], is_ours: Callable[[Node], bool], sizes: Mapping[Symbol, int]
) -> list[str] | None:
    """A line for each operation whose results have other dtypes or sizes than the graph says, or are undefined. None
    where that can't be told without running the graph.

    is_ours: Whether an operation becomes loops of ours, whose results are what the graph says.
    sizes: What symbolic sizes are.
    """
    differences: list[str] = []
    seen: set[Any] = set()
    with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
        for node in nodes:
            if node.results and all(value.base is not None for value in node.results):
                continue  # a view
            kind = _kind(node)
            if kind in seen or is_ours(node):
                continue
            seen.add(kind)
            if not can_be_tried(node):
                return None
            try:
                is_right = _gives_what_is_said(node, sizes)
            except Exception:  # perhaps it takes no zeros
                return None
            if not is_right:
                differences.append(f"{node.operation.name()} gives other results than on fakes")
    return differences


def _kind(node: Node) -> Any:
    """What the sizes and dtypes of an operation's results depend on."""
    described = lambda value: (value.shape, value.strides, value.dtype, value.device)  # noqa: E731
    return node.operation, repr(map_values((node.args, tuple(node.kwargs.items())), described))


def _gives_what_is_said(node: Node, sizes: Mapping[Symbol, int]) -> bool:
    made: dict[Value, torch.Tensor] = {}

    def zeros(value: Value) -> torch.Tensor:
        if value not in made:
            shape, strides = concrete(value.shape, sizes), concrete(value.strides, sizes)
            made[value] = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device).zero_()
        return made[value]

    args = concrete([map_values(arg, zeros) for arg in node.args], sizes)
    kwargs = concrete({key: map_values(arg, zeros) for key, arg in node.kwargs.items()}, sizes)
    with drawing_in_vain(generators_of(node)):
        return _has_results(node.result, node.operation(*args, **kwargs), sizes)


def _has_results(values: Any, results: Any, sizes: Mapping[Symbol, int]) -> bool:
    if isinstance(values, Value):
        return fits(results, values, sizes)
    if isinstance(values, (tuple, list)):
        return all(_has_results(value, result, sizes) for value, result in zip(values, results, strict=True))
    return True
