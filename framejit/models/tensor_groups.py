"""How torch's optimisers and `clip_grad_norm_` group tensors by device and dtype."""

from __future__ import annotations

from typing import Any

import torch

from framejit.models.absent import message
from framejit.models.model_registry import models

_REAL = torch._C._group_tensors_by_device_and_dtype
_NO_LISTS = message(_REAL, [], False)
_NO_TENSORS = message(_REAL, [[]], False)
_LENGTHS = message(_REAL, [[None], [None, None]], False)
_UNDEFINED = message(_REAL, [[None]], False)


@models(_REAL)
def group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: Any = False) -> Any:
    if not tensorlistlist:
        raise RuntimeError(_NO_LISTS)
    first = tensorlistlist[0]
    if not first:
        raise RuntimeError(_NO_TENSORS)
    for tensors in tensorlistlist:
        if tensors and len(tensors) != len(first):
            raise RuntimeError(_LENGTHS)
    groups: dict[Any, Any] = {}
    for index in range(len(first)):
        tensor = first[index]
        if tensor is None:
            raise RuntimeError(_UNDEFINED.replace("0-th", f"{index}-th"))
        key = (tensor.device, tensor.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = groups[key]
        for place in range(len(tensorlistlist)):
            if tensorlistlist[place]:
                lists[place].append(tensorlistlist[place][index])
        if with_indices:
            indices.append(index)
    return groups
