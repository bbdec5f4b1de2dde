"""Torch's fakes, whose answers are brought in line with eager's where torch's own differ from it.

Torch computes the metadata of many operations by rules written in Python, which are not those of the kernels: strides
of elementwise results where inputs are permuted, repeated, or have dimensions of one element; dtypes that take the
default dtype to be float32. Programs can see both.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.fakes.data_sizes import DataSizes
from framejit.fakes.elementwise_strides import (
    Layout,
    channels_last,
    contiguous,
    converted,
    elementwise_strides,
    like,
    suggests_channels_last,
)
from framejit.fakes.indexed_strides import indexed_strides
from framejit.fakes.operation_kinds import counted_in_lists
from framejit.fakes.operation_results import OperationResults
from framejit.fakes.view_strides import view_strides, whole_sizes

_log: Final = logging.getLogger("torch._subclasses.fake_tensor")

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
    replication_pad2d replication_pad3d reflection_pad3d
""".split()
)
"""Operations whose result has its channels innermost if the strides of the first argument say so, be it that they say
as much of another order; else it lies in the order of its dimensions."""
BY_ELEMENTS: Final = frozenset(("polygamma", "polar", "native_dropout_backward", "rsub", "hardswish"))
"""Elementwise operations that torch does not mark as such."""
COMPOSED: Final = frozenset(
    """
    multiply divide true_divide greater greater_equal less less_equal not_equal where __and__ __or__ __xor__ clip square
    max min isfinite positive
    """.split()
)
"""Operations by elements that are other operations by elements to eager. Torch's fakes of symbolic sizes have rules in
Python for some of them as a whole."""
PLACED: Final = frozenset(("as_strided", "as_strided_", "as_strided_copy"))
"""Operations that place a view in the storage of a tensor, wherever it ends."""
BY_PARTS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "ldexp.Tensor": lambda x, other: torch.mul(x, torch.pow(2.0, other))
}
"""Operations for which torch has parts in Python that differ from those of its C++: these."""
VIEWS: Final = frozenset((torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default))
"""Operations that give all elements other sizes, or refuse to. Torch's rule for them in Python accepts repeated
dimensions that the kernel refuses, and has other strides for tensors without elements."""
NUMBERS_APART: Final = frozenset(("lerp",))
"""Operations whose number is a parameter, no operand."""
FROM_THE_FRONT: Final = torch.ops.aten.linalg_vector_norm.default
"""Its rule in Python takes dimensions that are counted from the end for others in torch 2.11."""
STEPS: Final = frozenset(("_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_fused_adagrad_"))
"""Steps of optimisers. Torch has no rule for most of their overloads."""
ANY_DTYPES: Final = frozenset(("where",))
"""Operations that do not convert their first argument."""
WEIGHTS_IF_WANTED: Final = torch.ops.aten._native_multi_head_attention.default
"""Its second result is None to eager where nobody wants it, and an empty tensor to torch's rule."""


class _NoStack:
    """In the place of `traceback` while a mode is made. Torch would note the stack, looking at each file on it and
    reading its lines, for a message that no fake of framejit's leads to."""

    @staticmethod
    def extract_stack() -> list[traceback.FrameSummary]:
        return []


class Fakes(FakeTensorMode):
    """A mode for fakes that have eager's metadata."""

    def __init__(self, **options: Any) -> None:
        vars(fake_tensor)["traceback"] = _NoStack
        try:
            super().__init__(**options)
        finally:
            vars(fake_tensor)["traceback"] = traceback
        self.operation_results = OperationResults(self)
        # without them, no operation is known whose result's sizes data decides
        self.data_sizes: DataSizes | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            raise AssertionError(f"{func} arrives at fakes that make fakes")
        return self.dispatch(func, types, args, kwargs)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "_opname", "") in STEPS:
            return None  # it gives nothing, and that it writes is counted already
        parts = _parts(func)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        if getattr(func, "_opname", "") in PLACED and not _is_placed_by_symbols(*args[:4], **kwargs):
            check_reach(*args[:4], **kwargs)
        result = self.operation_results.get(func, args, kwargs, lambda: self._worked_out(func, types, args, kwargs))
        if type(func) is torch._ops.OpOverload and func._schema.is_mutable:
            for position in counted_in_lists(func):  # by what the operation consists of, which fakes do not run
                torch._C._increment_version([t for t in args[position] if not t.is_inference()])
        return result

    def _worked_out(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in VIEWS:
            with self:
                return _resized(*args, **kwargs)
        if func is FROM_THE_FRONT and len(args) > 2 and args[2]:
            rank = args[0].dim()
            args = (*args[:2], [dim + rank if -rank <= dim < 0 else dim for dim in args[2]], *args[3:])
        if _is_composed(func):
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if self.data_sizes is not None:
            with self:
                made = self.data_sizes.result(func, args, kwargs)
            if made is not NotImplemented:
                return made
        _log.disabled = True  # what an operation refuses is for the program to hear of, and for nobody else
        try:
            result: Any = super().dispatch(func, types, args, kwargs)
        finally:
            _log.disabled = False
        if func is WEIGHTS_IF_WANTED and not (args[10] if len(args) > 10 else kwargs.get("need_weights", True)):
            return result[0], None
        rule = _rule(func)
        if rule is None:
            return result
        if isinstance(result, torch.Tensor):
            return self._laid_out(result, rule, func, args, kwargs)
        if isinstance(result, (tuple, list)):
            made = [
                self._laid_out(item, rule, func, args, kwargs) if isinstance(item, torch.Tensor) else item
                for item in result
            ]
            return type(result)(made) if type(result) in (tuple, list) else type(result)(*made)
        return result

    def _laid_out(self, result: torch.Tensor, rule: Rule, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        if not result.dim() or result.layout != torch.strided or any(result is tensor for tensor in _tensors(args)):
            return result
        strides = rule(func, args, kwargs, result)
        if strides is None or tuple(strides) == result.stride():
            return result
        with self:
            return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


def _is_placed_by_symbols(
    self: torch.Tensor, size: Sequence[Any] = (), stride: Sequence[Any] = (), storage_offset: Any = None, **_: Any
) -> bool:
    numbers = (*size, *stride, storage_offset, self.storage_offset(), self.untyped_storage().nbytes())
    return any(isinstance(number, torch.SymInt) for number in numbers)


def check_reach(
    self: torch.Tensor, size: Sequence[Any] = (), stride: Sequence[Any] = (), storage_offset: Any = None, **_: Any
) -> None:
    """Raise a RuntimeError, as eager does, if a view would reach beyond its storage. Of symbolic sizes it is assumed
    whether it does."""
    if 0 in size:
        return
    first = self.storage_offset() if storage_offset is None else storage_offset
    last = first + sum((length - 1) * step for length, step in zip(size, stride))
    if (last + 1) * self.itemsize > self.untyped_storage().nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)} and storage offset {first} are out of bounds for "
            "the storage"
        )


def _resized(self: torch.Tensor, size: Sequence[Any]) -> torch.Tensor:
    """A view of all elements of a tensor in other sizes, one of which may be -1. Raises, as eager does, if there is
    none."""
    sizes = whole_sizes(size, self.numel())
    strides = view_strides(self.shape, self.stride(), sizes)
    if strides is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride")
    view: torch.Tensor = torch.ops.aten.as_strided.default(self, sizes, strides, self.storage_offset())
    return view


@cache
def _parts(func: Any) -> Callable[..., torch.Tensor] | None:
    return BY_PARTS.get(_full_name(func)) if func.namespace == "aten" else None


def _full_name(func: Any) -> str:
    return f"{func._opname}.{func._overloadname or 'default'}"


@cache
def _is_composed(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace == "aten"
        and func._opname in COMPOSED
        and not func._schema.is_mutable
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


@cache
def _rule(func: Any) -> Rule | None:
    """The rule for strides of what an operation makes, if there is one for it."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None
    if any(returned.alias_info is not None for returned in func._schema.returns):
        return None
    if func._opname in LIKE_FIRST:
        return _like_first
    if _full_name(func) in ROW_MAJOR:
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
    if func._opname in BY_ELEMENTS:
        return _elementwise
    if torch.Tag.pointwise in func.tags and not torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):
        return _elementwise
    return None


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


def _of_reals(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    """By elements; of complex numbers in the order of the dimensions."""
    return contiguous(result.shape) if args[0].is_complex() else _elementwise(func, args, kwargs, result)


def _by_halves(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    """Of two halves of the first argument, element by element."""
    return elementwise_strides(result.shape, [(result.shape, args[0].stride())] * 2)


def _elementwise(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> Any:
    tensors = [*_tensors((*args, *kwargs.values()))]
    if not tensors or (
        all(tensor.stride() == contiguous(tensor.shape) for tensor in tensors)
        and all(size != 0 for size in result.shape)
    ):
        return contiguous(result.shape)
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
    return elementwise_strides(result.shape, layouts)


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


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
