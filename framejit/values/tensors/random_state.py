"""The state of torch's random numbers: reading, setting and seeding it are nodes of the graph, in the order in which
the program draws numbers."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from framejit.backends.opaque_call import OpaqueCall
from framejit.guards.sources import const_source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE
from framejit.values.handlers import HANDLERS
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _node(frame: Frame, name: str, function: Any, args: tuple[Any, ...], result: Any = None) -> Value:
    # It comes after what was drawn before it and before what is drawn after it, as operations do that write.
    return frame.capture.graph.add(
        OpaqueCall(function, name, "the state of random numbers is no tensor operation"), args, result
    )


def _read(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args or kwargs:
        raise Unsupported("torch.get_rng_state() with arguments")
    with frame.capture.graph.metadata.faking():
        state = torch.empty(torch.default_generator.get_state().shape, dtype=torch.uint8)
    return _node(frame, "get_rng_state", torch.default_generator.get_state, (), state)


def _set(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = [realize(frame, value) for value in (*args, *kwargs.values())]
    if len(given) != 1 or not set(kwargs) <= {"new_state"} or not isinstance(given[0], TensorValue):
        raise Unsupported("torch.set_rng_state() with other arguments than it has")
    _node(frame, "set_rng_state", torch.default_generator.set_state, (given[0].node,))
    return NONE


def _seed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = [realize(frame, value) for value in (*args, *kwargs.values())]
    if len(given) != 1 or not set(kwargs) <= {"seed"} or given[0].python_type() not in (int, bool):
        raise Unsupported("torch.manual_seed() with something else than an int")
    seed = int(given[0].constant())
    if not -0x8000_0000_0000_0000 <= seed <= 0xFFFF_FFFF_FFFF_FFFF:
        raise Unsupported("torch.manual_seed() with a number that is no seed")
    _node(frame, "manual_seed", torch.manual_seed, (seed,))
    return frame.wrap(torch.default_generator, const_source(torch.default_generator, "torch.default_generator"))


HANDLERS[torch.get_rng_state] = HANDLERS[torch.random.get_rng_state] = _read
HANDLERS[torch.set_rng_state] = HANDLERS[torch.random.set_rng_state] = _set
HANDLERS[torch.manual_seed] = HANDLERS[torch.random.manual_seed] = _seed
