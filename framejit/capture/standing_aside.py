"""When framejit does not capture at all: states of the thread in which operations on tensors mean something else than
they do in a graph.

All but the last are part of the state guard (native/torch/thread_state.c), so that the entry which says "run it as it
is" holds in the same kind of state only, and a call outside of it pays nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from framejit import _native as native
from framejit.capture.capture import Capture
from framejit.guards.sources import const_source
from framejit.guards.tensor_layout import NAMES, key_bits
from framejit.guards.thread_questions import has_no_saved_tensor_hooks, has_saved_tensor_hooks, is_fx_tracing

_C = torch._C
Answer = Callable[[Any], bool]


def reason_to_stand_aside() -> str | None:
    """Why the program is to run as it is for as long as the thread's state is what it is now; None if it need not."""
    if any(not isinstance(_C._get_function_stack_at(i), DeviceContext) for i in range(_C._len_torch_function_stack())):
        return "a torch function mode is active"
    if _C._len_torch_dispatch_stack() or _C._functorch.peek_interpreter_stack() is not None:
        return "a torch dispatch mode or functorch transform is active"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is active"
    if torch.is_anomaly_enabled():
        # tracebacks of the forward pass are kept, and shown when the backward pass fails
        return "autograd looks for anomalies"
    if _unusual_keys():
        return "the thread dispatches operations in an unusual way"
    return next((reason for reason, active in _UNGUARDED.items() if active(torch)), None)


def guard_aside(capture: Capture) -> None:
    """Guards for what the state guard does not cover."""
    for active in _UNGUARDED.values():
        if active(torch):
            capture.add_guard(const_source(torch), native.C_PY, active)


_UNGUARDED: dict[str, Answer] = {
    "torch.fx traces the program": is_fx_tracing,
}


@functools.cache
def _usual_keys() -> tuple[int, int, int]:
    """What a thread includes, what inference mode excludes, and the keys of autocast, which the state guard knows."""
    autocast = key_bits(
        *(
            f"Autocast{device}"
            for device in ("CPU", "CUDA", "MPS", "XPU", "MTIA", "MAIA", "IPU", "HPU", "XLA", "PrivateUse1")
        )
    )
    with torch.inference_mode(False):
        before = _C._dispatch_tls_local_exclude_set().raw_repr()
        with torch.inference_mode():
            autograd = _C._dispatch_tls_local_exclude_set().raw_repr() & ~before
    return key_bits("BackendSelect", "ADInplaceOrView"), autograd, autocast


def _unusual_keys() -> bool:
    usual, autograd, autocast = _usual_keys()
    included, excluded = (
        _C._dispatch_tls_local_include_set().raw_repr(),
        _C._dispatch_tls_local_exclude_set().raw_repr(),
    )
    if torch.is_inference_mode_enabled():
        included |= usual & key_bits("ADInplaceOrView")
        excluded &= ~autograd
    return bool((included ^ usual) & ~autocast or excluded & ~(autocast | NAMES))


def hooks_would_see_effects(capture: Capture) -> bool:
    """Whether hooks on what autograd saves are active, and captured code changes objects, or looks at what the hooks
    have in their closures; guarded where it does.

    Such changes are made after the graph. Hooks run inside it: they may look at the objects, and end the code in its
    middle by raising, as checkpointing does when it has recomputed what it wants. What they change themselves, captured
    code would have looked at before.

    A tensor in the place of a number, which is not assumed or was read, is saved and handed to hooks, where the number
    is not. Under hooks there is none; what was captured without them is guarded to run without.
    """
    changes, has_numbers = capture.effects.any(), bool(capture.scalar_inputs) or capture.reads_numbers
    active = has_saved_tensor_hooks(torch)
    changes = changes or active and any(map(capture.has_met, _held_by_hooks()))
    if not (changes or has_numbers) or not any(
        getattr(node.meta.get("val"), "requires_grad", False) for node in capture.graph.graph.nodes
    ):
        return False
    if changes or not active:
        capture.add_guard(
            const_source(torch), native.C_PY, has_saved_tensor_hooks if active else has_no_saved_tensor_hooks
        )
    return changes and active


def _held_by_hooks() -> Iterator[Any]:
    """The cells and objects that the hook which autograd asks first, and functions that it calls by its closure, can
    change."""
    seen, waiting = set[int](), list[Any]((_C._autograd._top_saved_tensors_default_hooks(True) or ())[:1])
    while waiting:
        obj = waiting.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if type(obj) is functools.partial:
            waiting += [obj.func, *obj.args, *obj.keywords.values()]
        elif type(obj) is MethodType:
            waiting += [obj.__func__, obj.__self__]
        elif type(obj) is FunctionType:
            waiting += obj.__closure__ or ()
        else:
            yield obj
            if type(obj) is CellType:
                with contextlib.suppress(ValueError):  # it is empty
                    waiting.append(obj.cell_contents)


HOOKS_SEE_EFFECTS: Final = "hooks on what autograd saves would run before side effects that come first"
