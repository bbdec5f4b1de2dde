"""Functions that torch.func transforms, while a graph is recorded: the operations that arrive below torch.func are what
they do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import torch

from framejit.backends.opaque_call import TransformCall

_AUTOGRAD: Final = reduce(
    torch._C.DispatchKeySet.add,
    (torch._C.DispatchKey.AutogradOther, torch._C.DispatchKey.AutogradNestedTensor),
    torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradFunctionality),
)


def transformed(call: TransformCall, args: Sequence[Any]) -> Any:
    """What a call gives on fakes."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    # transforms differentiate with autograd, below of which a graph without gradients is recorded; and the thread's
    # dispatch keys are put back whatever becomes of a transform
    with torch._C._ForceDispatchKeyGuard(included, excluded - _AUTOGRAD):
        return call(*args)
