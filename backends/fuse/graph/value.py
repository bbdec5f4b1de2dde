"""Values: what operations take and give, with all that is known of them before they run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from framejit.backends.fuse.graph.node import Node


class Storage:
    """Memory. Values that lie in the same storage see each other's writes."""

    __slots__ = ("first",)

    def __init__(self, first: Value) -> None:
        self.first = first
        """The value that it was made for."""


class Value:
    """A tensor of the graph: dtype, device, sizes, strides and offset, the storage that it lies in, and who makes it.

    It is made once, by one operation, or stands for an input or constant, and never changes; what is in its storage
    may. Sizes, strides and the offset are ints or symbolic ints of framejit's. Questions are answered by the names that
    `torch.Tensor` has for them.
    """

    __slots__ = ("dtype", "device", "shape", "strides", "offset", "storage", "base", "maker", "users", "fake")

    def __init__(self, fake: torch.Tensor, storage: Storage | None = None, base: Value | None = None) -> None:
        """`storage`: the one it lies in; without it there is a new one. `base`: the value it is a view of, if it is
        one."""
        self.dtype: torch.dtype = fake.dtype
        self.device: torch.device = fake.device
        self.shape: tuple[Any, ...] = tuple(fake.shape)
        self.strides: tuple[Any, ...] = tuple(fake.stride())
        self.offset: Any = fake.storage_offset()
        self.storage: Storage = Storage(self) if storage is None else storage
        self.base = base
        self.maker: Node | None = None
        """The operation that it is a result of; None for inputs and constants."""
        self.users: dict[Node, None] = {}
        """The operations that have it for an argument, nested ones too, in the order in which they came to have it."""
        self.fake = fake
        """For those who run operations on fakes (the recorder, passes that make new values)."""

    @classmethod
    def described(
        cls, dtype: torch.dtype, device: torch.device, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any
    ) -> Value:
        """A value of a graph that is only run: what stands for its fake tells no more than its dtype."""
        made = cls(torch.empty(0, dtype=dtype, device="meta"))
        made.device, made.shape, made.strides, made.offset = device, shape, strides, offset
        return made

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def has_symbolic_sizes(self) -> bool:
        """Whether a size, stride or the offset is not known."""
        return type(self.offset) is not int or any(type(number) is not int for number in (*self.shape, *self.strides))

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def storage_offset(self) -> Any:
        return self.offset

    def numel(self) -> Any:
        return math.prod(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape} by {self.maker.operation if self.maker else 'nobody'}>"
