"""What is known of torch's functions and methods by name: which are operations on tensors at all, and which look at
more of a tensor than its fake has."""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Final

import torch

_HOMES: Final = frozenset(f"torch._C.{name}" for name in ("_nn", "_fft", "_linalg", "_special", "_sparse"))
# Of the functions among operations those that change or read what is no tensor.
_NO_OPERATIONS: Final = frozenset(
    """
    _enable_functionalization _disable_functionalization _to_functional_tensor _from_functional_tensor
    _is_functional_tensor _sync _functionalize_replace _functionalize_commit_update _functionalize_sync from_numpy
    frombuffer from_file _from_blob asarray
""".split()
)

LAYS_OUT_ANEW: Final = frozenset("""
    t_ squeeze_ unsqueeze_ transpose_ swapaxes_ swapdims_ as_strided_ resize_ resize_as_ set_
""".split())
"""Give a tensor other sizes or strides in place."""

LOOKS_AT_PLACE: Final = frozenset("""
    storage_offset as_strided as_strided_ as_strided_copy as_strided_scatter sym_storage_offset
""".split())
"""What they do depends on where in its storage a tensor begins."""

_ANSWERED_BY_FAKES: Final = frozenset(
    """
    dim ndimension size stride numel nelement element_size itemsize nbytes is_contiguous is_floating_point is_complex
    is_signed is_same_size get_device type is_conj is_neg has_names dim_order result_type can_cast promote_types
    broadcast_shapes storage_offset is_set_to is_coalesced sparse_dim dense_dim q_scale is_storage is_tensor
    is_nonzero equal allclose item tolist __len__ __bool__ __int__ __float__ __index__ __complex__ sym_size sym_stride
    sym_numel sym_storage_offset sym_is_contiguous is_non_overlapping_and_dense
""".split()
)
"""Questions about tensors that are no tensors themselves; for those that look at the data fakes refuse."""


def name_of(target: Any) -> str:
    """The name of an operation, without the overload."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name.rpartition("::")[2])
    return str(getattr(target, "__name__", target))


@cache
def counted_in_lists(operation: torch._ops.OpOverload) -> frozenset[int]:
    """The positions of the lists of tensors of which an operation of ATen writes each, and raises its version.

    Autograd counts no writes into lists. What goes through a list, an operation at a time (`_foreach_add_`), has those
    count, and kernels for a device do the same; what has nothing but kernels (`_fused_adam_`) counts nothing.
    """
    schema = operation._schema
    if operation.namespace != "aten" or not schema.is_mutable or any(a.is_out for a in schema.arguments):
        return frozenset()
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "CompositeExplicitAutograd"):
        return frozenset()
    return frozenset(
        position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(argument.type, torch.ListType)
    )


def is_operation(target: Any) -> bool:
    """Whether a function works on what it is given and nothing else. Of the functions of torch._C most read or change
    torch itself."""
    if type(target) is not types.BuiltinFunctionType:
        return True
    owner, home = getattr(target, "__self__", None), getattr(target, "__module__", None)
    if isinstance(owner, types.ModuleType):
        module = str(owner.__name__)
        return not module.startswith("torch") or module in _HOMES
    if owner is None:
        name = name_of(target)
        return getattr(torch._C._VariableFunctions, name, None) is target and name not in _NO_OPERATIONS
    return home is None or not home.startswith("torch")


def is_answered_by_fakes(target: Any, of_tensors: bool) -> bool:
    """Whether an answer that is no tensor, given for fakes (or for no tensors), is the one that the program would
    get."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return not of_tensors or name_of(target) in _ANSWERED_BY_FAKES
    if getattr(target, "__module__", None) in ("_operator", "builtins", "torch.functional", "torch.nn.functional"):
        return True  # operators compute from their arguments alone; other C functions of torch may read hidden state
    return of_tensors and name_of(target) in _ANSWERED_BY_FAKES
