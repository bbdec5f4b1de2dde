"""Which of what captured code changes of torch's state is done by the graph, and which by the code behind it."""

from __future__ import annotations

from typing import Final

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from framejit.backends.autocast_nesting import NESTING
from framejit.capture.capture import Capture, StateChange
from framejit.environment.inference_modes import enter_inside
from framejit.values.context import TorchState
from framejit.values.tensors.inference_modes import ModeChange

_C = torch._C
_RESTORED: Final = (_C._set_grad_enabled, _C.set_autocast_enabled)
"""The setters of what the end of an inference mode puts back."""
_OF_MODES: Final = (_C._set_grad_enabled, _enter_inference_mode, enter_inside, _exit_inference_mode)


def leave_state_to_replacement(capture: Capture) -> list[StateChange | ModeChange]:
    """Have the graph put back the torch state that it changed by its end, and give the calls that change it behind
    the graph. So graphs of a part of a `with` block, which break in it or begin there, change no state, as backends
    and plans want it. Asked when all operations are there, and the state is what the captured code has made it."""
    modes: list[ModeChange] = capture.mode_changes
    if not capture.state_changed or not (capture.graph.n_ops or modes):
        return []
    for change in modes:
        change.value.check_is_held(capture)
    before, now = capture.state_before, capture.state_now()
    held = dict(before)
    left = list[StateChange | ModeChange]()
    for change in modes:
        if change.enters:  # its end is to put back what held there
            left += _setting(held, change.before)
        left.append(change)
        held |= {key: state for key, state in change.after.items() if change.enters or key[0] in _RESTORED}
    left += _setting(held, now)
    at_end = _put_back_modes(capture, before, now)
    for setter, values in _setting(at_end, before):
        capture.graph.state_change(setter, values)
    deeper, back = NESTING
    targets = [node.target for node in capture.graph.graph.nodes]
    depth = targets.count(deeper) - targets.count(back)
    for _ in range(abs(depth)):
        left.append((deeper if depth > 0 else back, ()))
        capture.graph.state_change(back if depth > 0 else deeper, ())
    if depth < 0 and torch.clear_autocast_cache in targets:  # the outermost block has ended
        left.append((torch.clear_autocast_cache, ()))
    return left


def _setting(held: TorchState, wanted: TorchState) -> list[StateChange]:
    """The calls that make of one state another."""
    return [(key[0], values) for key, values in wanted.items() if held.get(key, values) != values]


def _put_back_modes(capture: Capture, before: TorchState, now: TorchState) -> TorchState:
    """Have the graph leave the inference modes that it has entered; the state of torch by then. Those that are entered
    behind its last operation are none of its own."""
    graph, modes = capture.graph.graph, capture.mode_changes
    behind = list[object]()
    for node in reversed(graph.nodes):
        if node.target not in _OF_MODES:
            break
        behind.append(node)
    own = [change for change in modes if change.node not in behind]
    at_end = now
    if len(own) < len(modes):
        first = modes[len(own)]
        at_end = before | first.before
        for node in list(graph.nodes)[::-1]:
            graph.erase_node(node)
            if node is first.node:
                break
    for change in reversed(own):
        capture.graph.state_change(_exit_inference_mode, (change.node,))
    if not own:
        return at_end
    around = before | own[0].before
    return {key: around[key] if key[0] in _RESTORED else state for key, state in at_end.items()}
