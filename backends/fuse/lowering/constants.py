"""Values that depend on nothing but what is known, such as attention masks made of positions: worked out once, while compiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from framejit.backends.fuse.trace import Call, Trace, storage_of, tensors_in, written_arguments

MOST_BYTES: Final = 1 << 13
"""Larger ones are computed in each call, rather than kept: writing them costs a kernel a few microseconds, and they would take memory for good."""


class Constants:
    """Which fakes stand for values that are the same in each call, and those values.

    `known` has the values of fakes, by their ids, besides the numbers of the program.
    """

    def __init__(self, trace: Trace, known: Mapping[int, torch.Tensor] | None = None) -> None:
        self._values: dict[int, Callable[[], torch.Tensor]] = {key: _given(value) for key, value in {**trace.literals, **(known or {})}.items()}
        # what the caller gets, and what is written in place, must be made anew
        self._own = {storage_of(fake) for fake in tensors_in(trace.outputs)}
        for call in trace.calls:
            if call.func._schema.is_mutable:
                self._own.update(map(storage_of, written_arguments(call)))

    def note(self, call: Call) -> None:
        """See whether the results of an operation are constant."""
        results = list(call.results())
        if (
            call.func._schema.is_mutable
            or call.func.namespace != "aten"
            or torch.Tag.nondeterministic_seeded in call.func.tags
            or call.name.startswith(("empty", "new_empty"))
            or any(id(fake) not in self._values for fake in call.tensors())
            or any(fake._has_symbolic_sizes_strides for fake in results)
            or any(storage_of(fake) in self._own or fake.numel() * fake.itemsize > self.most_bytes(call) for fake in results)
        ):
            return
        compute = _once(lambda: call.func(*self._real(call.args), **{key: self._real(value) for key, value in call.kwargs.items()}))
        several = isinstance(call.result, (tuple, list))
        for position, fake in enumerate(results):
            self._values[id(fake)] = _part(compute, position) if several else compute

    def most_bytes(self, call: Call) -> int:
        """How large a result of an operation may be to be kept."""
        return MOST_BYTES

    def value(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The value of a constant that owns its storage, with the very sizes and strides of the fake; None for anything else."""
        compute = self._values.get(id(fake))
        if compute is None:
            return None
        try:
            with torch.no_grad():
                value = compute()
        except Exception:  # it will raise in each call
            return None
        same = value.shape == fake.shape and value.stride() == fake.stride() and value.dtype == fake.dtype and not value.storage_offset()
        return value if same and not value.is_conj() and not value.is_neg() else None

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._values[id(value)]()
        return type(value)(map(self._real, value)) if type(value) in (list, tuple) else value


def _given(value: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: value


def _part(compute: Callable[[], Any], position: int) -> Callable[[], torch.Tensor]:
    return lambda: compute()[position]


def _once(compute: Callable[[], Any]) -> Callable[[], Any]:
    known: list[Any] = []

    def result() -> Any:
        if not known:
            known.append(compute())
        return known[0]

    return result
