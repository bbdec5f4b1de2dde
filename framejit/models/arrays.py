"""Functions of numpy that only move elements: what they do, by functions that graphs have."""

from __future__ import annotations

from typing import Any

import numpy as np

from framejit.models.model_registry import models


@models(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.reshape(roll(np.reshape(a, -1), shift, 0), a.shape)
    size = a.shape[axis]
    shift = shift % size
    if shift == 0:
        return a.copy()
    before = (slice(None),) * (axis % a.ndim)
    return np.concatenate((a[(*before, slice(size - shift, None))], a[(*before, slice(None, size - shift))]), axis)


@models(np.tile)
def tile(A: Any, reps: Any) -> Any:
    if isinstance(reps, int):
        reps = (reps,)
    reps = (1,) * (A.ndim - len(reps)) + tuple(reps)
    made = A.copy()
    if len(reps) > A.ndim:
        made = np.reshape(made, (1,) * (len(reps) - A.ndim) + A.shape)
    for axis in range(len(reps)):
        if reps[axis] != 1:
            made = np.concatenate([made] * reps[axis], axis)
    return np.reshape(made, made.shape) if max(reps) > 1 else made


@models(np.meshgrid)
def meshgrid(*xi: Any, copy: Any = True, sparse: Any = False, indexing: Any = "xy") -> Any:
    sizes = [x.size for x in xi]
    order = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        order[0], order[1] = 1, 0
    found = []
    for i in range(len(xi)):
        shape, reps = [1] * len(xi), [1] * len(xi)
        for j in range(len(xi)):
            if j == i:
                shape[order[j]] = sizes[j]
            elif not sparse:
                reps[order[j]] = sizes[j]
        found.append(tile(np.reshape(xi[i], tuple(shape)), tuple(reps)).copy())
    return tuple(found)


@models(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    return np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1)), out=out)
