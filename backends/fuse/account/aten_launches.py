"""How many kernels ATen launches at least for a captured graph, and so how long the host takes for it at least."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import fx

LAUNCH_NS: Final = 3000
"""What a captured operation takes at least where a kernel is launched for it: a call of Python's, torch's dispatcher
and the driver. (16 us in a decoder on an H200's host; 2.2 us are the driver's alone.)"""
FIRST_LAUNCH_NS: Final = 100_000
"""What the first launch of a kernel takes more, with which the driver brings it to the device. (0.9 s for the 1,400
operations of a decoder's prompt, 0.05 s for the same again.)"""
MANY: Final = 256
"""Launches from which on the first ones together are felt."""


def aten_launches(gm: fx.GraphModule | None) -> int:
    """One for each operation with a result in memory of its own; more are not known of."""
    return 0 if gm is None else sum(map(_launches, gm.graph.nodes))


def _launches(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or "empty" in _name(node.target):
        return False
    given = {memory for each in node.all_input_nodes for memory in _memories(_fake_of(each))}
    return any(memory not in given for memory in _memories(_fake_of(node)))


def _name(target: Any) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))


def _fake_of(node: fx.Node) -> Any:
    return node.meta.get("val", node.meta.get("example_value"))


def _memories(fake: Any) -> Iterator[int]:
    """The memory of each tensor on a device in a fake, or in a sequence of them."""
    for each in fake if isinstance(fake, (tuple, list)) else (fake,):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.device.type == "cuda":
            yield each.untyped_storage()._cdata
