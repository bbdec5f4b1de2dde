"""The order in which gradients are added up in leaves that have hooks.

A node of ours gives all gradients of its segment at once, and autograd takes them to leaves in an order of its own.
Eager's operations give them one after the other, as the backward goes on, and hooks of the program (on the gradients of
parameters, or to be called when they are there) see in which order. So where there are such hooks, nodes stand between,
one for each leaf, that do nothing: autograd runs first the node that was made last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from heapq import heappop, heappush
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from framejit.backends.fuse.autograd_nodes.segments import is_end, nodes_of


def ends_in_order(results: Sequence[torch.Tensor], ends: Set[Any]) -> list[Any]:
    """The nodes where gradients of results end, in the order in which autograd comes to them: it runs the node that was
    made last of those that are ready, and goes to leaves at once. `ends`: as for `segments_of`."""
    nodes = nodes_of(results, ends)
    waiting = Counter(before for node in nodes for before, _ in node.next_functions)
    ready: list[tuple[int, int, Any]] = []
    for place, node in enumerate(nodes):
        if node not in waiting:
            heappush(ready, (-node._sequence_nr(), place, node))
    found, place = [], len(nodes)
    while ready:
        for before, _ in heappop(ready)[2].next_functions:
            waiting[before] -= 1
            if before is None or waiting[before]:
                continue
            if is_end(before, ends):
                found.append(before)
            else:
                place += 1
                heappush(ready, (-before._sequence_nr(), place, before))
    return found


def have_hooks(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the program has hooks on what is added up in some of these tensors."""
    return RemovableHandle.next_id > 0 and any(
        tensor._backward_hooks or tensor._post_accumulate_grad_hooks for tensor in tensors
    )


def one_by_one(tensors: Sequence[torch.Tensor], arrival: Sequence[int]) -> list[torch.Tensor]:
    """What a node takes in the place of tensors, so that gradients come to these in the order of `arrival`, their
    places."""
    found = [*tensors]
    for place in reversed(arrival):
        if found[place].is_leaf:
            found[place] = torch.ops.aten.alias.default(found[place])
    return found
