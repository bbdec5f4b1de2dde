"""Whether ATen itself would carry out an operation that kernels of ours are to take over.

Fakes know shapes and dtypes by rules of their own, and accept what some of ATen's kernels reject: dtypes that they are
not written for, numbers that a dtype can't hold, results that do not fit what they are to be written into. So the real
operation is tried, once in a process for each combination of dtypes, ranks and other arguments, on tensors of a few
ones. One that raises stays with ATen, and raises when the program gets there. Generators of random numbers are
afterwards where they were.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from framejit import _native
from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.random_numbers.generators import drawing_in_vain, generator_of
from framejit.backends.fuse.sizes.symbolic_size import as_size, hint
from framejit.backends.fuse.targets.lookup import target_of
from framejit.fakes.dropped_warnings import without_warnings

UNTRIED: Final = frozenset(
    """embedding index_select gather nll_loss_forward arange eye zeros ones zeros_like ones_like new_zeros new_ones
    zero clone _to_copy lift_fresh_copy flip roll repeat rot90 diag_embed cat concat concatenate stack pixel_shuffle
    upsample_nearest1d upsample_nearest2d upsample_nearest3d slice_scatter""".split()
)
"""Operations on whatever dtypes there are, which raise for nothing that fakes don't know; and those that read at
places, which ones may not be."""
REAL_SIZES: Final = frozenset(
    """constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d max_pool2d max_pool2d_with_indices max_pool2d_with_indices_backward group_norm native_group_norm
    slice_backward select_backward""".split()
)
"""Operations with arguments that fit the real sizes only."""
OF_FLOATS: Final = frozenset(
    """add sub rsub mul div neg abs reciprocal sqrt rsqrt exp exp2 log log2 sin cos tanh sigmoid erf relu silu gelu pow
    tanh_backward sigmoid_backward silu_backward gelu_backward maximum minimum sum mean amax amin where""".split()
)
COMPARING: Final = frozenset("eq ne lt le gt ge".split())
OF_INTEGERS: Final = frozenset(("add", "sub", "mul", *COMPARING))
OF_BOOLS: Final = frozenset(("bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or", "logical_not"))
"""Operations that ATen has on all devices for tensors of one dtype and small numbers: trying them would load a kernel
for each, which on GPUs takes some ten milliseconds."""
SMALL: Final = 1 << 24
"""Numbers below it fit all of these dtypes; ATen converts them as it computes."""
AS_FORWARD: Final = frozenset(("slice_backward", "select_backward"))
"""Operations whose numbers are those of an operation that did not raise, and fit its sizes only."""
SIZES_AT: Final = {"full": 0, "new_full": 1}
"""Where the sizes of a result stand among the arguments."""
SHAPES: Final = {
    "layer_norm": 1, "native_layer_norm": 1, "rms_norm": 1, "native_layer_norm_backward": 2, "slice_backward": 1,
    "select_backward": 1,
}
"""Operations with sizes of a tensor among their arguments, and where."""
MOST_ELEMENTS: Final = 1 << 16
"""With more of them, an operation that needs the real sizes is not tried, and taken over for the usual dtypes only."""
USUAL: Final = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
INDEXED: Final = {"max_pool2d_with_indices_backward": frozenset((torch.int64,))}
"""Operations that take places as well."""
MOST_KNOWN: Final = 8192
GREAT: Final = 1 << 62
"""What a number that is left open is tried with, besides what it is now."""

_known: dict[Any, bool] = {}


def accepts(node: Node) -> bool:
    """Whether ATen carries out the operation of a node. Raises NotFusable where that depends on a number that is left
    symbolic."""
    if _has_no_kernel(node):
        return False
    if (
        node.name.removesuffix("_") in UNTRIED
        or node.operation.namespace != "aten"
        or not all(target_of(tensor.device).is_there for tensor in node.values())
    ):
        return True
    if _is_usual(node):
        return True
    trial = _Trial(node, None)
    verdict = trial.verdict()
    if trial.has_symbolic_number and node.name not in AS_FORWARD and _Trial(node, GREAT).verdict() != verdict:
        raise NotFusable(f"whether {node.operation.name()} raises depends on a number that is left open")
    return verdict


def _has_no_kernel(node: Node) -> bool:
    """Whether ATen is known to have none for the dtypes of an operation that is not tried."""
    if node.name == "embedding":
        return node.args[1].dtype not in (torch.int32, torch.int64)
    if node.name.startswith("upsample_nearest"):
        return node.args[0].dtype not in USUAL and node.args[0].dtype != torch.uint8
    return node.name == "arange" and any(tensor.dtype == torch.bool for tensor in node.returned())


def _is_usual(node: Node) -> bool:
    """Whether it is known without trying that ATen carries out an operation."""
    name, args = node.name, node.args  # in place, the result has to fit as well
    if name == "where" and isinstance(args[0], Value) and args[0].dtype == torch.bool:
        args = args[1:]
    tensors = [*values_in((*args, *node.kwargs.values()))]
    dtypes, others = {tensor.dtype for tensor in tensors}, [arg for arg in args if not isinstance(arg, Value)]
    if len(dtypes) != 1 or len({tensor.device for tensor in node.values()}) != 1:
        return False
    if any(type(size) is int and not size for tensor in tensors for size in tensor.shape):
        return False
    (dtype,) = dtypes
    if dtype in USUAL:
        known = name in OF_FLOATS or name in COMPARING
    elif dtype in (torch.int32, torch.int64):
        known = name in OF_INTEGERS
    else:
        known = dtype == torch.bool and name in OF_BOOLS
    named = [*node.kwargs.values()]
    return known and bool not in map(type, named) and all(_is_small(each, dtype in USUAL) for each in (*others, *named))


def _is_small(given: Any, of_floats: bool) -> bool:
    """Whether an argument fits all dtypes that are asked about."""
    if type(given) in (int, float):
        return (of_floats or type(given) is int) and abs(given) < SMALL
    if type(given) in (list, tuple):
        return all(type(item) is int for item in given)
    return given is None or type(given) in (bool, str)


class _Trial:
    """A node with tensors of ones in place of its own. Sizes that are equal stay equal, 0 and 1 stay, others become
    small."""

    def __init__(self, node: Node, great: int | None) -> None:
        self.node, self.great = node, great
        self.name = node.name.removesuffix("_")
        self.has_symbolic_number = False
        self.real = self.name in REAL_SIZES
        self.elements = 0
        sizes = sorted({size for tensor in node.values() for size in map(_hint, tensor.shape) if size > 1})
        self.small = {size: size if self.real else place + 2 for place, size in enumerate(sizes)}
        self.key = (
            node.operation, self._part(node.args), self._part(tuple(node.kwargs.items())), torch.get_default_dtype(),
        )

    def verdict(self) -> bool:
        if self.elements > MOST_ELEMENTS:
            dtypes = USUAL | INDEXED.get(self.name, frozenset())
            return all(tensor.dtype in dtypes for tensor in self.node.values())
        known = _known.get(self.key)
        if known is None:
            if len(_known) > MOST_KNOWN:
                _known.clear()
            known = _known[self.key] = self._tried()
        return known

    def _tried(self) -> bool:
        made: dict[Value, torch.Tensor] = {}
        # both: from torch 2.15 on operators give their warnings themselves, before that nobody does
        with (
            _disable_current_modes(), torch._C.DisableTorchFunctionSubclass(), torch._C._DisableAutocast(),
            torch.no_grad(), without_warnings(), drawing_in_vain(generators_of(self.node)),
        ):
            try:
                args = tuple(self._real(value, made, position) for position, value in enumerate(self.node.args))
                result = _native.without_warnings(
                    self.node.operation,
                    *args,
                    **{key: self._real(value, made) for key, value in self.node.kwargs.items()},
                )
            except Exception:  # as in each call: the operation stays ATen's, which raises it
                return False
        expected = [value.dtype for value in self.node.returned()]
        found = [
            tensor.dtype
            for tensor in (result if isinstance(result, (tuple, list)) else (result,))
            if isinstance(tensor, torch.Tensor)
        ]
        return len(found) < len(expected) or found[: len(expected)] == expected

    def _part(self, value: Any) -> Any:
        """What a result of trying depends on."""
        if isinstance(value, Value):
            sizes = self._sizes(value.shape)
            self.elements += torch.Size(sizes).numel()
            return sizes, value.dtype, value.device
        if isinstance(value, (tuple, list)):
            return type(value), tuple(map(self._part, value))
        if isinstance(value, torch.SymInt):
            self.has_symbolic_number = True
            return int, self._number(value)
        return type(value), repr(value)

    def _sizes(self, sizes: Any) -> tuple[int, ...]:
        return tuple(self.small.get(size, size) for size in map(_hint, sizes))

    def _number(self, value: torch.SymInt) -> int:
        return _hint(value) if self.great is None else self.great

    def _real(self, value: Any, made: dict[Value, torch.Tensor], position: int = -1) -> Any:
        if isinstance(value, Value):
            if value not in made:
                made[value] = torch.ones(self._sizes(value.shape), dtype=value.dtype, device=value.device)
            return made[value]
        if isinstance(value, (tuple, list)):
            if position == SIZES_AT.get(self.name):
                # one element is filled in another way, which takes numbers too large for the dtype
                return [] if all(_hint(size) == 1 for size in value) else [2]
            if position == SHAPES.get(self.name):
                return list(self._sizes(value))
            return type(value)(self._real(item, made) for item in value)
        return self._number(value) if isinstance(value, torch.SymInt) else value


def generators_of(node: Node) -> list[torch.Generator]:
    """What a node may draw random numbers from."""
    if not node.ordered:
        return []
    given = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, torch.Generator)]
    return [*map(generator_of, {tensor.device for tensor in (*node.values(), *node.returned())}), *given]


def _hint(size: Any) -> int:
    return int(hint(as_size(size)))
