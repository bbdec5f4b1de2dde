"""The strides of what operations give where torch's fakes have others than eager: by groups of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any, Final

import torch

from framejit.fakes.arguments import tensors_in
from framejit.fakes.elementwise_strides import (
    Layout,
    channels_last,
    contiguous,
    converted,
    depends_on_order,
    elementwise_strides,
    like,
    suggests_channels_last,
)
from framejit.fakes.indexed_strides import indexed_strides
from framejit.fakes.tried_strides import tried

Rule = Callable[[torch._ops.OpOverload, Sequence[Any], Mapping[str, Any], torch.Tensor], Any]
"""Gives the strides of a result of an operation."""

LIKE_FIRST: Final = frozenset(
    """clone empty_like zeros_like ones_like full_like rand_like randn_like randint_like nan_to_num deg2rad rad2deg
    hardtanh _to_copy fill flip frexp index_put index_fill sort huber_loss _prelu_kernel binary_cross_entropy
""".split()
)
"""Operations whose result lies as their first argument, without gaps."""
ROW_MAJOR: Final = frozenset(
    """pow.Scalar masked_fill.Scalar masked_fill.Tensor mvlgamma.default index_add.default index_copy.default
    bernoulli.default renorm.default tril.default triu.default diag_embed.default normal.Tensor_Tensor
    normal.Tensor_float normal.float_Tensor _softmax.default _log_softmax.default any.dim any.dims all.dim all.dims
    native_layer_norm.default isin.Tensor_Tensor isin.Tensor_Scalar grid_sampler_2d.default grid_sampler_3d.default
    max_unpool3d.default poisson.default rrelu_with_noise.default""".split()
)
"""Operations, by name and overload, whose result lies in the order of its dimensions whatever their arguments do."""
CHANNELS_LAST_OR_ROW_MAJOR: Final = frozenset(
    """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update
""".split()
)
"""Operations whose result has its channels innermost if the first argument has; else it lies in the order of its
dimensions."""
AS_STRIDES_SUGGEST: Final = frozenset(
    """native_group_norm roll upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa channel_shuffle native_channel_shuffle max_unpool2d
    replication_pad2d replication_pad3d reflection_pad2d reflection_pad3d
""".split()
)
"""Operations whose result has its channels innermost if the strides of the first argument say so, be it that they say
as much of another order; else it lies in the order of its dimensions."""
LIKE_ZEROS: Final = frozenset(("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"))
"""Operations that fill zeros of the second argument's shape, if it is the result's."""
BY_ELEMENTS: Final = frozenset(
    """polygamma polar native_dropout_backward rsub hardswish elu_backward hardtanh_backward hardswish_backward
    hardsigmoid_backward softplus_backward rrelu_with_noise_backward""".split()
)
"""Elementwise operations that torch does not mark as such."""
NUMBERS_APART: Final = frozenset(("lerp",))
"""Operations whose number is a parameter, no operand."""
ANY_DTYPES: Final = frozenset(("where",))
"""Operations that do not convert their first argument."""


def full_name(func: Any) -> str:
    """The name of an operation with its overload."""
    return f"{func._opname}.{func._overloadname or 'default'}"


@cache
def rule_of(func: Any) -> Rule | None:
    """The rule for strides of what an operation makes, if there is one for it."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None
    if any(returned.alias_info is not None for returned in func._schema.returns):
        return None
    if func._opname in LIKE_FIRST:
        return _like_first
    if full_name(func) in ROW_MAJOR:
        return lambda func, args, kwargs, result: contiguous(result.shape)
    if func._opname in CHANNELS_LAST_OR_ROW_MAJOR:
        return _channels_last_or_row_major
    if func._opname in AS_STRIDES_SUGGEST:
        return _as_strides_suggest
    if func._opname == "log_sigmoid_forward":
        return lambda func, args, kwargs, result: contiguous(result.shape) if args[0].device.type == "cpu" else None
    if func._opname == "glu":
        return _by_halves
    if func is torch.ops.aten.index.Tensor:
        return lambda func, args, kwargs, result: indexed_strides(args[0], args[1], result.shape)
    if func is torch.ops.aten.angle.default:
        return _of_reals
    if func._opname in LIKE_ZEROS:
        return _like_zeros
    if func._opname in BY_ELEMENTS or _is_elementwise(func):
        return _elementwise
    return None


def elementwise_rule(func: torch._ops.OpOverload) -> Rule | None:
    """The rule for strides of what an operation by elements makes, as the shared loop over operands lays it out."""
    rule = rule_of(func)
    return _elementwise if rule is _elementwise or rule is not None and _is_elementwise(func) else None


def _is_elementwise(func: torch._ops.OpOverload) -> bool:
    return torch.Tag.pointwise in func.tags and not torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )


def _like_first(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    tensor = args[0] if args else None
    if not isinstance(tensor, torch.Tensor) or tensor.shape != result.shape or tensor.layout != torch.strided:
        return None
    return (
        None
        if kwargs.get("memory_format") not in (None, torch.preserve_format)
        else like(tensor.shape, tensor.stride())
    )


def _channels_last_or_row_major(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    tensor = args[0]
    if tensor.device.type != "cpu" or result.dim() != tensor.dim():
        return None
    if tensor.is_contiguous():
        return contiguous(result.shape)
    memory_format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    is_last = memory_format is not None and (
        tensor.is_contiguous(memory_format=memory_format)
        or "batch_norm" in func._opname
        and suggests_channels_last(tensor.shape, tensor.stride())
    )
    return channels_last(result.shape) if is_last else contiguous(result.shape)


def _as_strides_suggest(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    tensor = args[0]
    if tensor.device.type != "cpu" or result.dim() != tensor.dim():
        return None
    is_last = suggests_channels_last(tensor.shape, tensor.stride())
    if is_last and func._opname == "roll":
        # it joins two parts, and one without elements suggests nothing
        dims = args[2] if len(args) > 2 else kwargs.get("dims", ())
        is_last = bool(dims) and all(shift % tensor.shape[dim] != 0 for shift, dim in zip(args[1], dims))
    return channels_last(result.shape) if is_last else contiguous(result.shape)


def _like_zeros(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    if args[1].shape == result.shape:
        return contiguous(result.shape)
    return _elementwise(func, args, kwargs, result)


def _of_reals(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    """By elements; of complex numbers in the order of the dimensions."""
    return contiguous(result.shape) if args[0].is_complex() else _elementwise(func, args, kwargs, result)


def _by_halves(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    """Of two halves of the first argument, element by element."""
    return elementwise_strides(result.shape, [(result.shape, args[0].stride())] * 2)


def _elementwise(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    tensors = [*tensors_in((*args, *kwargs.values()))]
    if not tensors or (
        all(tensor.stride() == contiguous(tensor.shape) for tensor in tensors)
        and all(size != 0 for size in result.shape)
    ):
        return contiguous(result.shape)
    layouts = _layouts(func, args, result)
    if len(layouts) > 1 and depends_on_order(result.shape, layouts):
        small = tried(func, args, kwargs, result)
        if small is not None:
            layouts = _in_order(layouts, _layouts(func, *small), small[1])
    return elementwise_strides(result.shape, layouts)


def _in_order(layouts: list[Layout], small: list[Layout], result: torch.Tensor) -> list[Layout]:
    """The layouts of operands in the order in which the kernel has them: that which explains how the result of small
    ones lies. That of the schema if nothing does."""
    for order in permutations(range(len(layouts))):
        if elementwise_strides(result.shape, [small[position] for position in order]) == result.stride():
            return [layouts[position] for position in order]
    return layouts


def _layouts(func: Any, args: Sequence[Any], result: torch.Tensor) -> list[Layout]:
    """The layouts of operands, converted to the dtype in which the operation computes."""
    operands = _operands(func, args)
    common = _common_dtype(func, operands, result)
    layouts: list[Layout] = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, torch.Tensor):
            layouts.append(((), ()))
        elif operand.device.type != "cpu" or (position == 0 and func._opname in ANY_DTYPES):
            layouts.append((operand.shape, operand.stride()))
        else:
            layouts.append(converted(operand, common))
    return layouts


def _operands(func: Any, args: Sequence[Any]) -> list[Any]:
    """The arguments that the operation goes through element by element; of numbers those that stand for tensors."""
    found: list[Any] = []
    for argument, value in zip(func._schema.arguments, args):
        kind = str(argument.type)
        is_operand = kind == "number" and func._overloadname.startswith("Scalar") and func._opname not in NUMBERS_APART
        if isinstance(value, torch.Tensor) or (
            value is not None and (is_operand or kind in ("Tensor", "Optional[Tensor]"))
        ):
            found.append(value)
    return found[::-1] if func._opname == "rsub" else found


def _common_dtype(func: Any, operands: Sequence[Any], result: torch.Tensor) -> torch.dtype:
    """In which dtype the operation computes."""
    dtype: torch.dtype | None = None
    # what comes first outranks the rest, but not its kind: bool, integer, float or complex
    for rank in (_shaped, _single, _number):
        own: torch.dtype | None = None
        for operand in operands[1:] if func._opname in ANY_DTYPES else operands:
            given = rank(operand)
            if given is not None:
                own = given if own is None else torch.promote_types(own, given)
        if own is not None and (dtype is None or _kind(own) > _kind(dtype)):
            dtype = own if dtype is None else torch.promote_types(dtype, own)
    if dtype is None or (result.dtype.is_floating_point and _kind(dtype) < _kind(result.dtype)):
        return result.dtype
    return dtype


def _shaped(operand: Any) -> torch.dtype | None:
    return operand.dtype if isinstance(operand, torch.Tensor) and operand.dim() else None


def _single(operand: Any) -> torch.dtype | None:
    return operand.dtype if isinstance(operand, torch.Tensor) and not operand.dim() else None


def _number(operand: Any) -> torch.dtype | None:
    if isinstance(operand, torch.Tensor):
        return None
    if isinstance(operand, (bool, torch.SymBool)):
        return torch.bool
    return (
        torch.int64
        if isinstance(operand, (int, torch.SymInt))
        else torch.get_default_dtype()
        if isinstance(operand, (float, torch.SymFloat))
        else None
    )


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1 if dtype != torch.bool else 0
