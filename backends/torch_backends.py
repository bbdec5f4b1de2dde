"""The way to torch.compile's backends and back. Only here is torch._dynamo imported, and only when one of its backends
is asked for."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.backends.graph_identity import SAME_RANDOM_NUMBERS
from framejit.backends.opaque_call import OpaqueCall
from framejit.config import config

if TYPE_CHECKING:
    import torch

    from framejit.backends.registry import Backend

_WELL_KNOWN = frozenset(
    ("inductor", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager_debug", "tvm", "openxla")
)


def names() -> list[str]:
    """The names of torch.compile's backends, those for debugging included; `framejit` itself is not one."""
    from framejit.fakes.light_torch import DYNAMO, real

    return sorted(set(real(DYNAMO).list_backends(exclude_tags=())) - {"framejit"})


def has(name: str) -> bool:
    """Whether torch.compile knows a backend of that name. The well-known ones are not worth the seconds torch._dynamo
    takes to import."""
    return name in _WELL_KNOWN or name in names()


@functools.cache
def adapter(name: str) -> Backend:
    """torch.compile's backend `name` as one of ours. The contract is the same; it is looked up when it is first
    needed."""

    def backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
        if any(isinstance(node.target, OpaqueCall) for node in gm.graph.nodes):
            return gm.forward  # torch's compilers trace what nodes call, and would take its effects for their own
        from framejit.fakes.light_torch import real

        return real("torch._dynamo.backends.registry").lookup_backend(name)(gm, example_inputs)

    backend.__name__ = backend.__qualname__ = name
    return backend


def framejit(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **_: Any) -> Callable[..., Any]:
    """`torch.compile(backend="framejit")`: Dynamo captures, our default backend compiles."""
    from framejit.backends.registry import resolve  # which imports this file

    if config.same_random_numbers:
        gm.meta[SAME_RANDOM_NUMBERS] = True
    return resolve(None)[0](gm, example_inputs)
