"""Results whose sizes data decides: how many places `nonzero` finds is a symbol of its own, which the node that finds
them brings with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch

from framejit.fakes.arguments import tensors_in
from framejit.fakes.operation_kinds import LAYS_OUT_ANEW
from framejit.guards.size_program import NUMBER
from framejit.signals import Unsupported
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import DataSymbol, Expression
from framejit.symbols.sym_node import expression_of, symbolic

aten = torch.ops.aten


class DataSizes:
    """The symbols that one capture has made, and where the graph finds them. `of_numbers_only`: whether these are
    numbers that the program has read, and no operation may find others."""

    def __init__(self, conditions: Conditions, of_numbers_only: bool = False) -> None:
        self._conditions, self._made = conditions, 0
        self.of_numbers_only = of_numbers_only
        self._slices: dict[tuple[Any, ...], Any] = {}
        self._found: dict[int, Any] = {}
        self._stand_for: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = {}
        self.places: dict[DataSymbol, tuple[Any, int]] = {}
        """By the symbol the value that has it for a size, and which dimension that is; NUMBER for the number in a
        tensor of one element."""

    def new(self, is_of_slice: bool = False) -> Any:
        self._made += 1
        return symbolic(Expression.of(DataSymbol(f"data{self._made}", is_of_slice)), self._conditions)

    def left_by_slice(self, size: Any, start: Any, end: Any, step: int) -> Any:
        """How much a slice leaves of a dimension: the same for the same bounds of equal sizes."""
        bounds = tuple(expression_of(bound) or bound for bound in (size, start, end, step))
        if bounds not in self._slices:
            self._slices[bounds] = self.new(is_of_slice=True)
        return self._slices[bounds]

    def stands_for(self, mask: torch.Tensor, first: torch.Tensor | None) -> None:
        """A mask selects the places that another one does, or other ones than it did (None)."""
        self._stand_for[id(mask)] = first, mask

    def selected_by(self, mask: torch.Tensor) -> Any:
        """How many places a mask selects: the same for the same places."""
        first, _ = self._stand_for.get(id(mask), (None, mask))
        if first is None:
            return self.new()
        if id(first) not in self._found:
            self._found[id(first)] = self.new()
        return self._found[id(first)]

    def number_in(self, value: Any) -> Any:
        """The whole number in a tensor of one element."""
        size = self.new()
        self.places[_symbol(size)] = (value, NUMBER)  # type: ignore[index]
        return size

    def found_in(self, tensor: torch.Tensor, value: Any) -> None:
        """A node of the graph gives `tensor`: the sizes that come with it are read there."""
        if tensor._has_symbolic_sizes_strides:
            for dim, size in enumerate(tensor.shape):
                symbol = _symbol(size)
                if symbol is not None:
                    self.places.setdefault(symbol, (value, dim))

    def place(self, symbol: DataSymbol) -> tuple[Any, int]:
        found = self.places.get(symbol)
        if found is None:
            raise Unsupported("a size that data decides, which no result in the graph has", "FJ102")
        return found

    def forget(self) -> None:
        """Let go of what refers to the capture."""
        self.places.clear()
        self._slices.clear()
        self._found.clear()
        self._stand_for.clear()

    def result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operation whose sizes data decides, under the mode of the fakes; NotImplemented for one that
        is not known here."""
        maker = _MAKERS.get(func)
        if self.of_numbers_only and maker is not _slice:
            return NotImplemented
        return NotImplemented if maker is None else maker(self, *args, **kwargs)


def has_data_sizes(tensor: Any) -> bool:
    """Whether data decides a size of this fake."""
    return tensor._has_symbolic_sizes_strides and any(is_of_data(size) for size in tensor.shape)


def with_data_sizes(nodes: Iterable[Any]) -> Any:
    """The first of a graph's nodes that gives a size that data decides, or a tensor of such; None if there is none."""
    for node in nodes:
        value = node.meta.get("val")
        if is_of_data(value) or any(map(has_data_sizes, tensors_in((value,)))):
            return node
    return None


def check_question(name: str, tensors: Iterable[torch.Tensor], args: Sequence[Any], has_out: bool) -> None:
    """Raises Unsupported for operations whose answer, or result, is another one where a size that data decides is 0 or
    1, or after which a tensor may have other sizes than those that are read from it."""
    for tensor in tensors:
        if not has_data_sizes(tensor):
            continue
        if has_out or name in LAYS_OUT_ANEW:
            raise Unsupported(f"{name} may change sizes that data decides", "FJ102")
        by_dim = (
            name in ("squeeze", "squeeze_")
            and len(args) == 2
            and type(args[1]) is int
            and -tensor.dim() <= args[1] < tensor.dim()
        )
        if name in _LOOK_AT_LAYOUT and not (by_dim and not is_of_data(tensor.shape[args[1]])):
            raise Unsupported(f"what {name} says depends on the data of a tensor, which decides its sizes", "FJ102")


_LOOK_AT_LAYOUT: Final = frozenset("""
    squeeze squeeze_ stride is_contiguous is_non_overlapping_and_dense storage_offset dim_order
""".split())


def is_of_data(size: Any) -> bool:
    """Whether data decides a size, or what it is computed from."""
    expression = expression_of(size) if isinstance(size, torch.SymInt) else None
    return expression is not None and expression.is_of_data


def _symbol(size: Any) -> DataSymbol | None:
    """The symbol that a size is, if it is nothing else."""
    if not isinstance(size, torch.SymInt):
        return None
    expression = expression_of(size)
    symbol = expression.lone_symbol if expression is not None else None
    return symbol if isinstance(symbol, DataSymbol) else None


def _nonzero(sizes: DataSizes, self: torch.Tensor) -> torch.Tensor:
    found = sizes.selected_by(self)
    return self.new_empty_strided((found, self.dim()), (1, found), dtype=torch.int64)


def _masked_select(sizes: DataSizes, self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    selects_once = torch.broadcast_tensors(self, mask)[1].shape == mask.shape
    return self.new_empty((sizes.selected_by(mask) if selects_once else sizes.new(),))


def _unique(
    sizes: DataSizes, self: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _unique_consecutive(sizes, self, return_inverse, return_counts)


def _unique_dim(
    sizes: DataSizes, self: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _unique_consecutive(sizes, self, return_inverse, return_counts, dim)


def _unique_consecutive(
    sizes: DataSizes, self: torch.Tensor, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None
) -> tuple[torch.Tensor, ...]:
    found = sizes.new()
    shape, places = ([found], list(self.shape)) if dim is None else (list(self.shape), [self.shape[dim]])
    if dim is not None:
        shape[dim] = found
    inverse = self.new_empty(places if return_inverse else [0], dtype=torch.int64)
    counts = self.new_empty([found] if return_counts else [0], dtype=torch.int64)
    return self.new_empty(shape), inverse, counts


def _repeat_interleave(sizes: DataSizes, repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    return repeats.new_empty((sizes.new() if output_size is None else output_size,))


def _bincount(
    sizes: DataSizes, self: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    return self.new_empty((sizes.new(),), dtype=dtype)


def _slice(
    sizes: DataSizes, self: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """How much of a dimension is left is no formula of its size: ends are cut off where it is too small."""
    if not any(map(is_of_data, (self.shape[dim], start, end))):
        return NotImplemented
    if not isinstance(step, int) or step < 1:
        raise Unsupported("a slice with a step that is not a positive number, where data decides sizes", "FJ102")
    shape, strides = list(self.shape), list(self.stride())
    shape[dim], strides[dim] = sizes.left_by_slice(shape[dim], start, end, step), strides[dim] * step
    return self.as_strided(shape, strides, self.storage_offset())


_MAKERS: Final[dict[Any, Callable[..., Any]]] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique,
    aten.unique_dim.default: _unique_dim,
    aten.unique_consecutive.default: _unique_consecutive,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.bincount.default: _bincount,
    aten.slice.Tensor: _slice,
}
