"""What a guard on a tensor expects, in words and as facts that keep no tensor alive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from framejit.guards.plain_text import short
from framejit.late_dataclass import dataclass


def split_tensor_payload(payload: Any) -> tuple[Any, int, int]:
    """Example, free sizes and free strides (bit d: dimension d may be any) of what C_TENSOR takes: a tensor, or a tuple
    of it and one or two masks."""
    if not isinstance(payload, tuple):
        return payload, 0, 0
    tensor, free_sizes, *rest = payload
    return tensor, free_sizes, rest[0] if rest else free_sizes


def _starred(dims: Iterable[int], free: int) -> list[str]:
    return ["*" if free >> d & 1 else str(n) for d, n in enumerate(dims)]


def describe_tensor(payload: Any) -> str:
    """The tensor that a C_TENSOR guard expects, in words; sizes that may be any as `*`: `float32[*, 64] on cpu,
    strides (64, 1)`."""
    t, free_sizes, free_strides = split_tensor_payload(payload)
    if not hasattr(t, "stride"):
        return short(t)
    kind = "" if type(t).__name__ == "Tensor" else f"{type(t).__name__} "
    try:
        strides = _starred(t.stride(), free_strides)
        layout = f", strides ({', '.join(strides)}{',' if len(strides) == 1 else ''})"
    except RuntimeError:  # sparse tensors have none
        layout = f", layout {t.layout}"
    shape = ", ".join(_starred(t.shape, free_sizes))
    return (
        f"{kind}{str(t.dtype).removeprefix('torch.')}[{shape}] on "
        f"{t.device}{layout}{', requires grad' if t.requires_grad else ''}"
    )


@dataclass(frozen=True)
class TensorFacts:
    """The metadata that a tensor guard expects; kept in place of the tensor, which must stay free to die."""

    cls: str
    dtype: str
    device: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    requires_grad: bool
    free_sizes: int = 0  # bit d: the size of dimension d may be any
    free_strides: int = 0

    @staticmethod
    def of(payload: Any) -> TensorFacts:
        """The facts of a tensor, or of the payload of C_TENSOR."""
        t, free_sizes, free_strides = split_tensor_payload(payload)
        try:
            strides = tuple(t.stride())
        except RuntimeError:  # sparse layouts
            strides = None
        dtype = str(t.dtype).removeprefix("torch.")
        return TensorFacts(
            type(t).__name__, dtype, str(t.device), tuple(t.shape), strides, t.requires_grad, free_sizes, free_strides
        )
