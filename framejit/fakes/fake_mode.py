"""Torch's fakes, whose answers are brought in line with eager's where torch's own differ from it.

Torch computes the metadata of many operations by rules written in Python, which are not those of the kernels: strides
of elementwise results where inputs are permuted, repeated, or have dimensions of one element; dtypes that take the
default dtype to be float32. Programs can see both.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_sizes import DataSizes
from framejit.fakes.missing_rules import missing_rule
from framejit.fakes.operation_kinds import counted_in_lists
from framejit.fakes.operation_results import OperationResults
from framejit.fakes.other_dtypes import seen_as_memory
from framejit.fakes.recurrent_layers import STEPPED, below_autograd
from framejit.fakes.refused_arguments import CHECKS
from framejit.fakes.resized_outputs import lay_out_again, layouts_of_outputs
from framejit.fakes.stride_rules import Rule, full_name, rule_of
from framejit.fakes.view_strides import view_strides, whole_sizes

_log: Final = logging.getLogger("torch._subclasses.fake_tensor")

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
FROM_THE_FRONT: Final = torch.ops.aten.linalg_vector_norm.default
"""Its rule in Python takes dimensions that are counted from the end for others in torch 2.11."""
STEPS: Final = frozenset(("_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_fused_adagrad_"))
"""Steps of optimisers. Torch has no rule for most of their overloads."""
WEIGHTS_IF_WANTED: Final = torch.ops.aten._native_multi_head_attention.default
"""Its second result is None to eager where nobody wants it, and an empty tensor to torch's rule."""


class _NoStack:
    """In the place of `traceback` while a mode is made. Torch would note the stack, looking at each file on it and
    reading its lines, for a message that no fake of framejit's leads to."""

    @staticmethod
    def extract_stack() -> list[traceback.FrameSummary]:
        return []


WITHOUT_MEMORY: Final = torch.ops.aten._efficientzerotensor.default
"""Zeros that forward-mode differentiation begins with. As fakes they are plain zeros: ATen has kernels of their own for
the others, which come before those of Python, and some of which make tensors that are no fakes (`view`)."""


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
        self.copies_existing = False
        """Whether fakes of existing tensors are being made. A view lies in its storage, then, but the storage of its
        base's fake may end where the base does, which was made smaller than what it is a part of."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            raise AssertionError(f"{func} arrives at fakes that make fakes")
        return self.dispatch(func, types, args, kwargs)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is WITHOUT_MEMORY:
            func = torch.ops.aten.zeros.default
        is_step = getattr(func, "_opname", "") in STEPS
        if type(func) is torch._ops.OpOverload and func._schema.is_mutable:
            known = [getattr(fake, "constant", None) is not None for fake in tensors_in((*args, *kwargs.values()))]
            if any(known) and (is_step or not all(known)):  # what has constants alone is done with these, too
                self._forget_constants(func, args, kwargs)
        if is_step:
            return None  # it gives nothing, and that it writes is counted already
        parts = _parts(func)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        if (
            getattr(func, "_opname", "") in PLACED
            and not self.copies_existing
            and not _is_placed_by_symbols(*args[:4], **kwargs)
        ):
            check_reach(*args[:4], **kwargs)
        if self.copies_existing:
            args = seen_as_memory(func, args)
        check = CHECKS.get(func)
        if check is not None:
            check(*args, **kwargs)
        outputs = layouts_of_outputs(func, kwargs)
        result = self.operation_results.get(func, args, kwargs, lambda: self._worked_out(func, types, args, kwargs))
        if outputs:
            with self:
                lay_out_again(func, args, kwargs, outputs)
        if type(func) is torch._ops.OpOverload and func._schema.is_mutable:
            for position in counted_in_lists(func):  # by what the operation consists of, which fakes do not run
                torch._C._increment_version([t for t in args[position] if not t.is_inference()])
        return result

    def _forget_constants(self, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> None:
        """Tensors that an operation writes into hold no constants any more. Torch looks at no lists."""
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[position] if position < len(args) else kwargs.get(argument.name)
                for fake in tensors_in((given,)):
                    constant = getattr(fake, "constant", None)
                    if constant is not None:
                        self.fake_tensor_converter.invalidate_constant_aliases(constant)

    def _worked_out(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in VIEWS:
            with self:
                return _resized(*args, **kwargs)
        if func is FROM_THE_FRONT and len(args) > 2 and args[2]:
            rank = args[0].dim()
            args = (*args[:2], [dim + rank if -rank <= dim < 0 else dim for dim in args[2]], *args[3:])
        if getattr(func, "_opname", "") in STEPPED:  # where composite operations arrive whole
            with self:
                few = below_autograd(func, args, kwargs)
            if few is not None:
                return few
        if _is_composed(func):
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        rule_in_place = missing_rule(func, args, kwargs)
        if rule_in_place is not None:
            with self:
                return rule_in_place()
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
        rule = rule_of(func)
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
        if not result.dim() or result.layout != torch.strided or any(result is tensor for tensor in tensors_in(args)):
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
    """Raise a RuntimeError, as eager does, if a view would reach beyond its storage, or has a size or stride below 0.
    Of symbolic sizes it is assumed whether it does."""
    if any(number < 0 for number in (*size, *stride)):
        raise RuntimeError(f"sizes {list(size)} and strides {list(stride)} must not be negative")
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
    return BY_PARTS.get(full_name(func)) if func.namespace == "aten" else None


@cache
def _is_composed(func: Any) -> bool:
    return (
        isinstance(func, torch._ops.OpOverload)
        and func.namespace == "aten"
        and func._opname in COMPOSED
        and not func._schema.is_mutable
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )
