"""Which storage of a fake holds what at the present point of the program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from framejit.backends.fuse.errors import NotFusable
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.constants import Constants
from framejit.backends.fuse.lowering.tensor import Content, Tensor
from framejit.backends.fuse.open_size import as_size, as_sizes, hint
from framejit.backends.fuse.plan_functions import reinterpreted
from framejit.backends.fuse.trace import Call, Trace, storage_of, written_arguments


class Storage:
    """A fake's storage: its present content, and where in it the content begins."""

    def __init__(self, content: Content, offset: int, input: int | None = None) -> None:
        self.content, self.offset, self.input = content, offset, input


class Storages:
    """The storages of all fakes that have been met. Fakes whose storage is known are views of its content."""

    def __init__(self, builder: Builder, trace: Trace) -> None:
        self.builder, self.constants = builder, trace.constants
        self.known_values = Constants(trace)
        self._storages: dict[int, Storage] = {}
        self._uses: Counter[int] = Counter()
        self._written: set[int] = set()
        self.written: list[int] = []
        """Inputs that kernels of ours have written into, once for each time."""

    def add_input(self, fake: torch.Tensor, name: str, position: int) -> None:
        """An input of the graph. One that shares its storage with an earlier one is a view of that."""
        b = self.builder
        if self.knows(fake):
            return
        buffer = b.buffer(fake.shape, fake.stride(), fake.dtype, fake.device, name=name, input=position)
        self._storages[storage_of(fake)] = Storage(b.held(buffer), as_size(fake.storage_offset()), position)

    def count_uses(self, trace: Trace) -> None:
        """How often each storage is looked at; views of it do not count, for they look only when somebody looks at them."""
        for call in trace.calls:
            if call.func._schema.is_mutable:
                self._written.update(map(storage_of, written_arguments(call)))
            made = {storage_of(fake) for fake in call.results()}
            for fake in call.tensors():
                if call.func._schema.is_mutable or storage_of(fake) not in made:
                    self._uses[storage_of(fake)] += 1

    def knows(self, fake: torch.Tensor) -> bool:
        """Whether it is a view of something that has been made before."""
        return storage_of(fake) in self._storages

    def storage(self, fake: torch.Tensor) -> Storage:
        """The storage of a fake that is known, or is a constant."""
        found = self._storages.get(storage_of(fake))
        if found is None:
            constant = self.constants[id(fake)]
            b = self.builder
            buffer = b.buffer(fake.shape, fake.stride(), fake.dtype, fake.device, name=b.free_name("constant"), constant=constant)
            found = self._storages[storage_of(fake)] = Storage(b.held(buffer), int(fake.storage_offset()))
        return found

    def tensor(self, fake: torch.Tensor) -> Tensor:
        """The fake's elements at the present point of the program."""
        storage = self.storage(fake)
        if fake.dtype != storage.content.dtype:
            return self._as_dtype(fake, storage)
        tensor = Tensor(storage.content, as_sizes(fake.shape), as_sizes(fake.stride()), as_size(fake.storage_offset()) - storage.offset)
        if storage.input is not None and not _lies_inside(tensor):
            raise NotFusable("it looks past the ends of an input into the storage that the input is a part of")
        return tensor

    def _as_dtype(self, fake: torch.Tensor, storage: Storage) -> Tensor:
        """A view in another dtype: a buffer of its own, though it lies over the same memory."""
        if storage_of(fake) in self._written:
            raise NotFusable("something is viewed in another dtype and written in place")
        b = self.builder
        b.realise(storage.content)
        base = Tensor.of(storage.content)
        buffer = b.buffer(fake.shape, fake.stride(), fake.dtype, fake.device)
        offset = fake.storage_offset() * fake.itemsize - storage.offset * storage.content.dtype.itemsize
        b.extern(reinterpreted, (base, fake.dtype, as_sizes(fake.shape), as_sizes(fake.stride()), as_size(offset)), results=buffer)
        return Tensor.of(b.held(buffer))

    def bind(self, fake: torch.Tensor, tensor: Tensor) -> None:
        """A fake that has a storage of its own holds the elements of a tensor."""
        content = tensor.content
        b = self.builder
        if content.bound or tensor.offset or tensor.dtype != fake.dtype or not _same_places(tensor, fake):
            content = _relaid(b, tensor, fake)
        content.bound = True
        if content.buffer is None:
            content.known = lambda: self.known_values.value(fake)
        self._storages[storage_of(fake)] = Storage(content, as_size(fake.storage_offset()))
        self.settle_if_shared(fake, content)

    def settle_if_shared(self, fake: torch.Tensor, content: Content) -> None:
        """Put the new content of a fake's storage into memory if it costs something and is looked at more than once."""
        if self._uses[storage_of(fake)] > 1:
            self.builder.settle(Tensor.of(content))

    def input_content(self, position: int) -> Content:
        """The present content of an input."""
        return next(storage.content for storage in self._storages.values() if storage.input == position)

    def operands(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with Tensors for fakes."""
        return tuple(map(self.operand, call.args)), {key: self.operand(value) for key, value in call.kwargs.items()}

    def operand(self, value: Any) -> Any:
        """An argument with Tensors for fakes."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        return type(value)(map(self.operand, value)) if type(value) in (list, tuple) else as_size(value)


def _same_places(tensor: Tensor, fake: torch.Tensor) -> bool:
    """Whether the content, as the tensor sees it, lies in memory just as the fake does, and there is nothing else in it."""
    return (
        tensor.covers_content
        and tensor.sizes == as_sizes(fake.shape)
        and all(size == 1 or stride == other for size, stride, other in zip(tensor.sizes, tensor.strides, as_sizes(fake.stride())))
    )


def _relaid(b: Builder, tensor: Tensor, fake: torch.Tensor) -> Content:
    """A content of its own with the fake's strides and the tensor's elements."""
    b.prepare(tensor)
    content = tensor.content
    if not content.bound and content.buffer is None and tensor.is_root:
        made = b.lazy(fake.shape, fake.stride(), fake.dtype, fake.device, content.reader or tensor.at, content.parents, 0)
        made.ops, made.loads, made.origins, made.cuts = content.ops, content.loads, content.origins, content.cuts
        return made
    return b.lazy(fake.shape, fake.stride(), fake.dtype, fake.device, tensor.at, [content], 0)


def _lies_inside(tensor: Tensor) -> bool:
    """Whether a view reaches no further than its content, by the sizes at hand; only `as_strided` gives one that does."""

    def end(view: Tensor | Content) -> int:
        return sum((hint(size) - 1) * hint(stride) for size, stride in zip(view.sizes, view.strides))

    if any(hint(size) == 0 for size in tensor.sizes):
        return True
    return 0 <= hint(tensor.offset) and hint(tensor.offset) + end(tensor) <= end(tensor.content)
