"""Classes of tensors: which of them are torch's own, and what a program's class, or a program that replaces torch's
methods, makes of a method."""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from framejit import _native as native
from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.values.inspection import is_a, is_of_torch

_NOT_OF_PROGRAMS: Final = ("torch._subclasses", "torch._functorch", "torch.fx", "torch._dynamo", "torch._export")

_DESCRIBE_MEMORY: Final = tuple("""
    shape size dim stride storage_offset untyped_storage dtype device layout requires_grad is_leaf grad_fn _base
    _is_view is_inference is_nested is_sparse is_quantized is_mkldnn is_conj is_neg
""".split())
"""What torch asks a tensor of which it makes a fake."""


def dispatches_as_torch_does(cls: type) -> bool:
    """Whether no code of the program sees the operations on its tensors; that must not run on fakes."""
    if cls.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]
        return True
    return is_of_torch(module_of(cls)) and not module_of(cls).startswith(_NOT_OF_PROGRAMS)


def own_attribute(cls: type, name: str) -> Any:
    """The function or other descriptor that the program itself put into a class of tensors under a name; None for what
    is torch's."""
    if cls is torch.Tensor and native.tensor_methods() == 1:
        return None
    if not is_of_torch(module_of(cls)):
        static_lookup(cls, name, None)  # of which is told, so that somebody who gives the class one later is noticed
    for klass in cls.__mro__[:-1]:
        if name in klass.__dict__:
            found = klass.__dict__[name]
            if not is_of_torch(module_of(klass)):
                return found
            function = (
                found.__func__
                if is_a(found, (staticmethod, classmethod))
                else found.fget
                if is_a(found, property)
                else found
            )
            return found if is_a(function, types.FunctionType) and not is_of_torch(function.__module__) else None
    return None


def is_overridden(cls: type, name: str) -> bool:
    """Whether a special method of a tensor is the program's own."""
    return own_attribute(cls, name) is not None and static_lookup(cls, name, None) is not None


def own_description(cls: type) -> str | None:
    """The name, if any, under which the program's own class of tensors says itself how its tensors lie in memory, which
    may be another way than they do. Classes that are given such a name later change nothing of what was read."""
    for klass in cls.__mro__[:-1]:
        if not is_of_torch(module_of(klass)):
            for name in _DESCRIBE_MEMORY:
                if name in vars(klass):
                    return name
    return None
