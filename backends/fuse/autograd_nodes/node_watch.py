"""Whether anybody may ask for gradients at nodes of autograd that lie between others.

A hook on a node, or on a tensor that came out of it, lies in the node's memory. Which words of it these are is measured
once, on nodes made for the purpose: words that every kind of hook changes some of, and nothing else that happens to
nodes changes. Gradients that a backward is to stop at (`inputs=`) are no property of nodes; whether it is to stop
anywhere torch says of a leaf that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from framejit import _native
from framejit.environment.hook_handles import remove_hook
from framejit.environment.own_thread import asked_apart
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks

WORD: Final = 8


class Watch:
    """The nodes that tensors of one call came out of. To be asked within the backward of a node that leads to all of
    them."""

    __slots__ = ("_nodes",)

    def __init__(self, tensors: list[torch.Tensor], views: list[torch.Tensor]) -> None:
        """`views`: tensors that are views of others of these, made in one step or several."""
        self._nodes = _native.NodeWatch(tensors, views)

    def sees_nobody(self) -> bool:
        """Whether no gradient of theirs is asked for in this backward, or shown to a hook."""
        return torch._C._will_engine_execute_node(leaf_node()) and self._nodes.unchanged()


@cache
def leaf() -> torch.Tensor:
    """A leaf that no program has: a backward which is to stop at some tensors does not go there."""
    with torch.inference_mode(False):
        return torch.empty((), device="cpu", requires_grad=True)


@cache
def leaf_node() -> Any:
    """Where the leaf's gradients would be added up."""
    with torch.enable_grad():
        return get_gradient_edge(leaf()).node


_MOST_LOOKS: Final = 3
_looks: list[bool] = []
"""What looking gave so far: what else the process does to nodes meanwhile may be in the way."""


def can_watch() -> bool:
    """Whether hooks can be seen in this process."""
    if not any(_looks) and len(_looks) < _MOST_LOOKS:
        _looks.append(asked_apart(_set_up) is True)
    return any(_looks)


class _Pair(torch.autograd.Function):
    """What nodes of Python's look like."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


HOOKS: Final[tuple[Callable[[torch.Tensor], Any], ...]] = (
    lambda tensor: tensor.register_hook(lambda gradient: gradient),
    lambda tensor: tensor.retain_grad(),
    lambda tensor: tensor.grad_fn.register_hook(lambda out, given: None),  # type: ignore[union-attr]
    lambda tensor: tensor.grad_fn.register_prehook(lambda given: None),  # type: ignore[union-attr]
)


def _made() -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor that came out of a node of Python's, and a view of it."""
    tensor, _ = _Pair.apply(torch.ones(2, requires_grad=True))
    return tensor, tensor.view(2, 1)


def _set_up() -> bool:
    with without_saved_tensor_hooks():
        pair = _made()
        if any(_native.node_memory(tensor) is None for tensor in pair):
            return False
        shown = [_changed(number, hook) for number in (0, 1) for hook in HOOKS]
        spared = set().union(*(_changed(number, _used) for number in (0, 1)))
        words = set().union(*shown) - spared
        if not all(words & each for each in shown):
            return False
        if not _native.setup_nodes(pair[1], pair[0], tuple(sorted(word * WORD for word in words))):
            return False
        return _is_right()


def _changed(number: int, change: Callable[[torch.Tensor], Any]) -> set[int]:
    """The words of a node that something changes."""
    pair = _made()
    following = pair[0].exp() + pair[1].sum()  # as in use: there are nodes behind it
    before = _words(pair[number])
    held = change(pair[number])
    after = _words(pair[number])
    _forget(held)
    del following
    return {word for word, (old, new) in enumerate(zip(before, after)) if old != new}


def _words(tensor: torch.Tensor) -> Sequence[int]:
    memory = _native.node_memory(tensor)
    assert memory is not None
    return memoryview(memory).cast("Q")


def _used(tensor: torch.Tensor) -> Any:
    """What happens to nodes that nobody asks for gradients."""
    node = tensor.grad_fn
    assert node is not None
    more = tensor.sin() + tensor
    more.sum().backward(retain_graph=True)
    return node, node.next_functions, get_gradient_edge(tensor), more


def _is_right() -> bool:
    """Whether watches see each kind of hook, on nodes of Python's, on those of views and behind them, and nothing
    else."""
    for hook in HOOKS:
        for number in range(3):
            tensor, middle = _made()
            view = middle.t()
            following = view.sum()
            watch = _native.NodeWatch([tensor], [view])
            _used(view)
            if not watch.unchanged():
                return False
            held = hook((tensor, middle, view)[number])
            is_seen = not watch.unchanged()
            _forget(held)
            del following
            if not is_seen:
                return False
    return True


def _forget(held: Any) -> None:
    """Lets go of what putting on a hook gave."""
    if isinstance(held, RemovableHandle):
        remove_hook(held)
