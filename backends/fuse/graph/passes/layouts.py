"""What ATen's operations on a GPU are quickest with: they are given it early, where it can still be fused with what
comes before.

Convolutions of half precision run on tensor cores in channels-last memory, and otherwise copy everything there and back
(two thirds of their time in a ResNet-50 on an H200). Where such a convolution cuts an image of few channels into
patches, it is a product, which takes a tenth of the time there. Attention takes a mask of booleans only after it has
made one of numbers, for each layer anew, and leaves its quick kernels altogether if the mask's last dimension isn't
contiguous. A product with a number of columns that isn't a multiple of 16 bytes (GPT-2's 50257 logits) is none of the
quick kernels' business: most of its columns are, in rows that are a little longer, and the last few are made apart.

What they are given changes how results lie, and what composite operations behind them consist of. So the graph is
recorded anew, with these things put in; where that comes to nothing (a view that is only possible in the layout that
the program expects), the graph stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from framejit.backends.fuse.graph.attention_masks import MASK, Arguments
from framejit.backends.fuse.graph.frozen_values import frozen_weights
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.packed_weights import packs_convolution
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.record import Recorder
from framejit.backends.fuse.graph.replay import recorded_again
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.targets.lookup import target_of

HALF: Final = (torch.float16, torch.bfloat16)
ROW: Final = 8  # elements of half precision in 16 bytes
WIDE: Final = 1024  # columns from which the store decides how long a product takes


def layouts(graph: Graph, context: Context) -> Graph:
    """Give operations on a GPU what they prefer. Results of the graph keep the strides that eager gives them."""
    if any(target_of(value.device).prefers_layouts for value in graph.inputs):
        wanted = any(_is_choosy(node.name) for node in graph.all_nodes())
        packed = frozenset[int]()
    else:
        packed = _packed_later(graph, context)
        wanted = bool(packed)
    if not wanted:
        return graph
    try:
        return recorded_again(graph, partial(_LayoutRecorder, packed))
    except NotFusable:
        return graph


def _packed_later(graph: Graph, context: Context) -> frozenset[int]:
    """The `id`s of the fakes of those frozen weights of convolutions that `pack_weights` is going to pack: such
    convolutions give results in channels-last memory."""
    weights = {node.args[1] for node in graph.all_nodes() if packs_convolution(node)}
    if not weights or context.gm is None:
        return frozenset()
    known = [graph.inputs[position] for position in frozen_weights(graph, context.gm, context.examples)]
    return frozenset(id(value.fake) for value in known if value in weights)


def _is_choosy(name: str) -> bool:
    return name in ("conv2d", "scaled_dot_product_attention", "linear")


class _LayoutRecorder(Recorder):
    """Records operations with arguments in the memory layout that their kernels prefer."""

    def __init__(self, packed: Set[int], graph: Graph) -> None:
        super().__init__(graph, keeps)
        self.choices = LayoutChoices(self._recorded, packed)

    def _recorded(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        with self:
            return function()

    def carry_out(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func._schema.is_mutable:
            self.choices.forget()
        name = func.name()
        instead = self.choices.instead(name, args, kwargs)
        if instead is not None:
            return instead
        args, kwargs = self.choices.arguments(name, args, kwargs)
        return super().carry_out(func, args, kwargs)


class LayoutChoices:
    """Chooses the memory layout of operations' arguments, and other operations in the place of some. `record` runs a
    function on fakes so that the operations in it become part of the graph; `packed` has the `id`s of weights that
    will be packed, as fakes."""

    def __init__(
        self, record: Callable[[Callable[[], torch.Tensor]], torch.Tensor], packed: Set[int] = frozenset()
    ) -> None:
        self.record, self.packed = record, packed
        self._known: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def arguments(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments that an ATen operation of this name is to be called with."""
        if name == "aten::conv2d" and all(_is_half_on_gpu(tensor) and tensor.dim() == 4 for tensor in args[:2]):
            args = (*(self._once("channels last", tensor, in_channels_last) for tensor in args[:2]), *args[2:])
        elif name == "aten::conv2d" and id(args[1]) in self.packed and args[0].dim() == 4:
            args = (self._once("channels last", args[0], in_channels_last), *args[1:])
        elif name == "aten::scaled_dot_product_attention" and _is_half_on_gpu(args[0]):
            mask = args[MASK] if len(args) > MASK else kwargs.get("attn_mask")
            if (
                isinstance(mask, torch.Tensor)
                and mask.dim() >= 2
                and (mask.dtype == torch.bool or mask.stride(-1) != 1)
            ):
                made = self._once(f"mask of {args[0].dtype}", mask, lambda given: _numbers(given, args[0].dtype))
                if len(args) > MASK:
                    args = (*args[:MASK], made, *args[MASK + 1 :])
                else:
                    kwargs = {**kwargs, "attn_mask": made}
        return args, dict(kwargs)

    def instead(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
        """The result of an operation done another way, in a layout that the GPU's kernels prefer; None where it is left
        as it is."""
        if name == "aten::conv2d" and not kwargs and _cuts_into_patches(*args):
            return self.record(lambda: _product_of_patches(*args[:3]))
        if name != "aten::linear" or kwargs or len(args) > 2 and args[2] is not None:
            return None
        x, weight = args[:2]
        if (
            not (_is_half_on_gpu(x) and _is_half_on_gpu(weight))
            or x.dtype != weight.dtype
            or x.dim() < 2
            or 0 in x.shape
        ):
            return None
        columns = weight.shape[0]
        if columns < WIDE or columns % ROW == 0 or weight.shape[1] % ROW:
            return None
        return self.record(lambda: _product_in_longer_rows(x, weight))

    def forget(self) -> None:
        """Something was written in place: what was made before may be out of date."""
        self._known.clear()

    def _once(self, what: str, tensor: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        known = self._known.get((what, id(tensor)))
        if known is None:  # the tensor is kept too, so that no other gets its id
            known = self._known[what, id(tensor)] = tensor, self.record(lambda: make(tensor))
        return known[1]


def _is_half_on_gpu(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and target_of(tensor.device).prefers_layouts and tensor.dtype in HALF


def _cuts_into_patches(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0), dilation: Sequence[int] = (1, 1), groups: int = 1,
) -> bool:
    """Whether a convolution's windows lie side by side, in images of so few channels that its kernels are not meant for
    them."""
    return (
        _is_half_on_gpu(x)
        and x.dtype == weight.dtype
        and x.dim() == 4
        and groups == 1
        and x.shape[1] % ROW != 0
        and weight.shape[2] * weight.shape[3] > 1
        and tuple(_pair(stride)) == tuple(weight.shape[2:])
        and not any(padding)
        and tuple(_pair(dilation)) == (1, 1)
        and 0 not in (*x.shape, *weight.shape)
        and not any(isinstance(size, torch.SymInt) for size in x.shape[1:])
    )


def _pair(numbers: Sequence[int]) -> Sequence[int]:
    return numbers if len(numbers) > 1 else (*numbers, *numbers)


def _product_of_patches(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """The convolution of images by windows that lie side by side, in channels-last memory."""
    (images, channels, *_), (features, _, height, width) = x.shape, weight.shape
    rows, columns = x.shape[2] // height, x.shape[3] // width
    whole = x.narrow(2, 0, rows * height).narrow(3, 0, columns * width)
    patches = whole.reshape(images, channels, rows, height, columns, width).permute(0, 2, 4, 1, 3, 5)
    product = F.linear(patches.reshape(images, rows, columns, -1), weight.reshape(features, -1), bias)
    return product.permute(0, 3, 1, 2)


def in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor
        if tensor.is_contiguous(memory_format=torch.channels_last)
        else tensor.clone(memory_format=torch.channels_last)
    )


def _numbers(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask to be added: 0 where the mask is true, else minus infinity. Dimensions that repeat their one element go on
    doing so."""
    small = mask
    for dim in range(mask.dim() - 2):
        if mask.stride(dim) == 0:
            small = small.narrow(dim, 0, 1)
    if mask.dtype == torch.bool:
        small = torch.where(small, 0.0, -math.inf)
    return small.to(dtype).clone(memory_format=torch.contiguous_format).expand(mask.shape)


def _product_in_longer_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    rows, columns = x.reshape(-1, x.shape[-1]), weight.shape[0]
    whole = columns - columns % ROW
    product = torch.empty((rows.shape[0], whole + ROW), dtype=x.dtype, device=x.device).narrow(1, 0, columns)
    torch.mm(rows, weight.narrow(0, 0, whole).t(), out=product.narrow(1, 0, whole))
    torch.mm(rows, weight.narrow(0, whole, columns - whole).t(), out=product.narrow(1, whole, columns - whole))
    return product.view(*x.shape[:-1], columns)
