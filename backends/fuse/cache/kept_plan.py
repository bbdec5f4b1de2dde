"""What it takes to find a graph's plan in the disk cache without recording the graph: for captures that are kept
(framejit/kept), whose second process has no graph.

The key of a plan is taken of the recorded graph. What recording the same captured graph may come to otherwise, in
another process with the same code, is in the surroundings: the machine, torch's modes and switches, and the kernels
that Python has registered with torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.plan_key import PlanKey, SymbolicSizes, bytes_of, functions_of, of_bytes, surroundings
from framejit.backends.fuse.cache.registered_kernels import registered_kernels
from framejit.backends.own_operations import NAMESPACE, define
from framejit.late_dataclass import dataclass
from framejit.symbols.expression import Symbol

if TYPE_CHECKING:
    from framejit.backends.fuse.graph.graph import Graph


@dataclass(frozen=True)
class KeptPlan:
    """All that a process needs to find a plan on the disk without recording its graph, as plain data."""

    key: str
    surroundings: str
    tracked: bool
    devices: tuple[str, ...]
    operations: tuple[str, ...]
    """The recorded operations by name, as `torch.ops` has them."""
    n_inputs: int
    returns: tuple[bool, ...]
    origins: tuple[str, ...]
    sizes: tuple[tuple[str, float, float, int, int, bool], ...] = ()
    """For each symbol its name and bounds, the input and dimension that it is read from, and whether
    that is its stride."""
    constants: tuple[tuple[Any, ...], ...] = ()
    """For each constant of the graph the number of the first one that is the same tensor, and what that consists of:
    bytes, as hexadecimal text, sizes, strides, dtype, device."""

    def written(self) -> str:
        return json.dumps(asdict(self))

    def symbols(self, sizes: Sequence[int]) -> tuple[Symbol, ...]:
        """The symbols, of which these are the sizes now."""
        return tuple(Symbol(name, now, (low, high)) for (name, low, high, *_), now in zip(self.sizes, sizes))

    def key_now(self, sizes: SymbolicSizes | None = None) -> PlanKey | None:
        """The key in this process; None where something is not as it was. Raises whatever data that is none leads
        to."""
        if surroundings_now([*map(torch.device, self.devices)], self.tracked) != self.surroundings:
            return None
        return PlanKey(
            self.key, functions_of(map(operation_of, self.operations)), {}, self.tensors(), {}, self.n_inputs,
            self.returns, sizes, self.origins,
        )

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The constants of the graph."""
        made: list[torch.Tensor] = []
        for first, content, sizes, strides, dtype, device in self.constants:
            tensor = made[first] if first < len(made) else of_bytes(
                bytes.fromhex(content), sizes, strides, getattr(torch, dtype), torch.device(device)
            )
            if tensor is None:
                raise ValueError("a constant's bytes don't fill it")
            made.append(tensor)
        return tuple(made)


def read_kept(written: str) -> KeptPlan:
    """The KeptPlan that `KeptPlan.written` made this text of. Other text raises exceptions of whatever type comes of
    it."""
    fields = {name: _tuples(value) for name, value in json.loads(written).items()}
    return KeptPlan(**fields)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if type(value) is list else value


def kept_plan(key: PlanKey, graph: Graph, operations: Sequence[torch._ops.OpOverload], devices: Sequence[torch.device],
              tracked: bool) -> KeptPlan | None:
    """How to find the plan of a key again, which is that of a recorded graph; None where it depends on tensors of this
    process."""
    if key.weights or not all(constant.literal for constant in graph.constants.values()):
        return None
    return KeptPlan(
        key.key, surroundings_now(devices, tracked), tracked, tuple(map(str, devices)),
        tuple(operation.name() for operation in operations), key.n_inputs, key.returns, key.origins,
        constants=tuple(_written_constants(key.constants)),
    )


def _written_constants(constants: Sequence[torch.Tensor]) -> Iterator[tuple[Any, ...]]:
    first: dict[int, int] = {}
    for number, tensor in enumerate(constants):
        yield (
            first.setdefault(id(tensor), number), bytes_of(tensor).hex(), tuple(tensor.shape), tensor.stride(),
            str(tensor.dtype).removeprefix("torch."), str(tensor.device),
        )


def surroundings_now(devices: Sequence[torch.device], tracked: bool) -> str:
    """A hash over all besides the captured graph that its plan depends on. Raises NotCacheable."""
    return key_of(*surroundings({*devices}, tracked), "\n".join(registered_kernels()))


def operation_of(name: str) -> torch._ops.OpOverload:
    """The operation that is called so. Raises AttributeError or TypeError where there is none."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    if namespace == NAMESPACE:
        define(packet)
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    if not isinstance(found, torch._ops.OpOverload):
        raise TypeError(f"{name} is no operation")
    return found

