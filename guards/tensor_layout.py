"""Prepares the native core to read tensors and torch's thread-local modes.

Tensors are read directly from memory where that is proven right, through the C functions libtorch exports where it is
not, and through Python attributes where even those are missing. The proof happens here, once, at import:
`framejit._native.setup` measures where known tensors keep their metadata, and the three ways are compared on other
tensors.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from framejit import _native
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks


def key_bits(*names: str) -> int:
    """The dispatch keys of these names, of which this torch may lack some, as one word."""
    keys = (torch._C._parse_dispatch_key(name) for name in names)
    return functools.reduce(
        operator.or_, (torch._C.DispatchKeySet(key).raw_repr() for key in keys if key is not None), 0
    )


NAMES: Final = key_bits("Named")
"""What tensors with named dimensions have, in a torch before 2.13. A thread excludes it while autograd's engine calls a
node in it, which is no difference to other tensors, and no graph holds named ones."""


def _probes() -> tuple[torch.Tensor, ...]:
    """Tensors whose metadata, taken together, tell every field of a tensor from every other.

    None of them has met autograd unless it requires grad: a tensor keeps its autograd metadata once it has some.
    """
    meta = torch.empty(5, 3, device="meta", dtype=torch.int32)
    seven = torch.empty(2, 1, 3, 1, 2, 1, 2)
    return (
        torch.empty(3, 5, 7, 11, dtype=torch.float64).permute(3, 1, 0, 2)[2:],
        torch.empty(4, 6, dtype=torch.int64),
        torch.empty(9, dtype=torch.bool),
        torch.empty(2, 2, 2, dtype=torch.bfloat16),
        torch.empty((), dtype=torch.float16),
        torch.empty(13, 2, requires_grad=True),
        torch.nn.Parameter(torch.empty(6)),
        torch.empty(1, 2, 3, 4, 5, dtype=torch.uint8),
        seven,
        seven.transpose(0, 2),
        meta,
        torch.empty(3, dtype=torch.complex64).conj(),
    )


def _examples() -> list[torch.Tensor]:
    """Other tensors, in pairs that differ in one respect each, for the comparison of the three ways."""
    base = torch.zeros(4, 6)
    grad = torch.zeros(4, 6, requires_grad=True)
    with torch.inference_mode():
        inference = torch.zeros(4, 6)
    return [
        base,
        torch.zeros(4, 6),
        base.t(),
        base[:, :3],
        base[0],
        base.double(),
        base.to("meta"),
        grad,
        grad.detach(),
        grad.view(4, 6),
        inference,
        torch.zeros(4, 6, dtype=torch.complex64),
        torch.zeros(4, 6, dtype=torch.complex64).conj(),
        torch.zeros(2, 1, 2, 1, 2, 1),
        torch.zeros(2, 1, 2, 1, 2, 1).transpose(0, 1),
        torch.zeros(0, 6),
        torch.zeros(()),
        torch.nn.Parameter(torch.zeros(4, 6)),
        base.to_sparse(),
        torch.zeros(2, 1, 4, 6).to(memory_format=torch.channels_last),
    ]


def _verdicts(access: str, tensors: list[torch.Tensor]) -> Iterator[bool]:
    _native.force_tensor_access(access)
    for example in tensors:
        for value in tensors:
            yield _native.tensor_matches(example, value)[0]


def _choose_access(layout: dict[str, Any]) -> str:
    tensors = _examples()
    truth = list(_verdicts("attributes", tensors))
    for access in ("direct", "shim"):
        if layout[access] and list(_verdicts(access, tensors)) == truth:
            return access
    return "attributes"


def _autograd_flags() -> bytes:
    return _native.autograd_flags() or b""


def _changed_bits(before: bytes, after: bytes) -> list[int]:
    return [x ^ y for x, y in zip(before, after, strict=True)]


def _autograd_bits() -> tuple[int, int]:
    """Offset and mask of the bits in which torch keeps grad mode, inference mode and forward-mode grad; (0, 0) if they
    cannot be found."""
    with torch.enable_grad():
        grad_on = _autograd_flags()
        with torch.no_grad():
            grad_off = _autograd_flags()
        with torch.autograd.forward_ad._set_fwd_grad_enabled(False):
            forward_off = _autograd_flags()
        with torch.inference_mode():
            inference = _autograd_flags()
    changes = [_changed_bits(grad_on, other) for other in (grad_off, forward_off, inference)]
    places = [i for i in range(len(grad_on)) if any(change[i] for change in changes)]
    if len(places) != 1 or not all(change[places[0]] for change in changes):
        return 0, 0
    place = places[0]
    return place, changes[0][place] | changes[1][place] | changes[2][place]


def _function_state_known() -> bool:
    """Whether the state of torch functions lies in memory as the native core takes it to: it must be right about
    several known states."""
    c = torch._C
    mode = torch.overrides.BaseTorchFunctionMode
    states = (
        ((), (0, 0)),
        ((c.DisableTorchFunctionSubclass(),), (1, 0)),
        ((c.DisableTorchFunction(),), (2, 0)),
        ((mode(),), (0, 1)),
        ((mode(), mode(), c.DisableTorchFunctionSubclass()), (1, 2)),
    )
    outside = c._len_torch_function_stack()
    for contexts, (disabled, modes) in states:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            if _native.function_flags() != (disabled, modes + outside):
                return False
    return True


def _function_modes() -> tuple[str, ...]:
    c = torch._C
    return tuple(_mode_name(c._get_function_stack_at(i)) for i in range(c._len_torch_function_stack()))


def _torch_functions() -> str:
    c = torch._C
    return (
        "enabled"
        if c._is_torch_function_enabled()
        else "disabled"
        if c._is_torch_function_all_disabled()
        else "disabled for subclasses"
    )


def _tensor_methods() -> str:
    methods = _native.tensor_methods()
    return "torch's" if methods == 1 else f"replaced ({methods})"


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "any"
    what = "wanted" if torch.is_deterministic_algorithms_warn_only_enabled() else "only"
    return f"{what}, new memory filled" if torch._C._get_deterministic_fill_uninitialized_memory() else what


def _mode_name(mode: Any) -> str:
    if isinstance(mode, DeviceContext):
        return f"default device {mode.device}"
    return f"{type(mode).__module__}.{type(mode).__qualname__} at {id(mode):#x}"


def _excluded_keys() -> torch._C.DispatchKeySet:
    named = torch._C.DispatchKeySet.from_raw_repr(NAMES)
    return torch._C._dispatch_tls_local_exclude_set() - named


_STATE: dict[str, dict[str, Callable[[], Any]]] = {
    "autograd": {
        "grad mode": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "forward-mode grad": torch._C._is_fwd_grad_enabled,
        "autograd multithreading": torch._C._is_multithreading_enabled,
    },
    "process": {
        "level of forward-mode differentiation": lambda: forward_ad._current_level,
        "methods of torch.Tensor": _tensor_methods,
    },
    "default dtype": {"default dtype": torch.get_default_dtype},
    "anomaly detection": {"anomaly detection": torch.is_anomaly_enabled},
    "deterministic algorithms": {"deterministic algorithms": _deterministic},
    "torch functions": {"torch functions": _torch_functions, "torch function modes": _function_modes},
    "dispatch keys": {
        "dispatch modes": torch._C._len_torch_dispatch_stack,
        "functorch level": torch._C._functorch.maybe_current_level,
        "included dispatch keys": lambda: str(torch._C._dispatch_tls_local_include_set()),
        "excluded dispatch keys": lambda: str(_excluded_keys()),
    },
}
"""How Python reads the modes of a thread, by the part that the native core reads at once, and by the names people know
them by."""


def _describe_state(parts: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The modes of this thread, or some parts of them. Called for each snapshot, and compared in messages."""
    wanted = _STATE if parts is None else [part for part in parts if part in _STATE]
    state = {name: read() for part in wanted for name, read in _STATE[part].items()}
    if parts is None or "autocast" in parts:
        for device in ("cpu", "cuda"):
            on = torch.is_autocast_enabled(device)
            state[f"autocast on {device}"] = torch.get_autocast_dtype(device) if on else "off"
            if on:
                state["autocast cache"] = torch.is_autocast_cache_enabled()
    return state


def _versions_known() -> bool:
    """Whether the native core can read how often tensors were written into: it must be right about known versions, and
    follow them."""
    made = [
        torch.zeros(3), torch.zeros(2, 2, requires_grad=True), torch.zeros(5, dtype=torch.int64),
        torch.zeros(4, 4).t(),
    ]
    probes = (*made, torch.nn.Parameter(torch.zeros(1)))
    for tensor, writes in zip(probes, (3, 91, 0, 200, 17), strict=True):
        _write(tensor, writes)
    if not _native.setup_versions(probes):
        return False
    with torch.inference_mode():
        uncounted = torch.zeros(3)
    views = [probe.detach() for probe in probes]
    for probe in probes:
        _write(probe, 2)
    if (
        all(_native.tensor_version(t) == t._version for t in (*probes, *views))
        and _native.tensor_version(uncounted) is None
    ):
        return True
    _native.setup_versions(())
    return False


def _write(tensor: torch.Tensor, times: int) -> None:
    for _ in range(times):
        torch.autograd.graph.increment_version(tensor)


def _owners_known() -> bool:
    """Whether the native core can tell that nobody else holds a tensor or its memory: it must be right about known
    tensors, and follow them."""
    probes = (torch.zeros(3), torch.zeros(2, 2), torch.zeros(5, dtype=torch.int64), torch.zeros(4, 4)[1:])
    addresses = tuple([probe.untyped_storage()._cdata for probe in probes])
    if not _native.setup_owners(probes, addresses):
        return False
    alone, weight = torch.zeros(3), torch.zeros(3, requires_grad=True)
    found = [_native.owners(alone)]
    other = alone.detach()
    found += [_native.owners(alone), _native.owners(other)]
    del other
    found.append(_native.owners(alone))
    product = weight * alone  # autograd keeps a factor
    found.append(_native.owners(alone))
    del product
    found += [_native.owners(alone), _native.owners(alone[1:])]
    if [count == 1 for count in found] == [True, False, False, True, False, True, False]:
        return True
    _native.setup_owners((), ())
    return False


def _set_up() -> dict[str, Any]:
    _native.setup_process_state(torch.Tensor, torch.nn.Parameter, vars(forward_ad))
    with torch._C.DisableTorchFunction():
        autograd_bits = _autograd_bits()
    functions_known = _function_state_known()
    lost = _native.setup_state(
        _describe_state, torch._C._get_function_stack_at, DeviceContext, *autograd_bits, functions_known, NAMES
    )
    # The probes must be plain tensors whatever modes and hooks the program that imports us has switched on, and these
    # see nothing of them.
    with (
        torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.inference_mode(False),
        torch.enable_grad(), torch.device("cpu"),
        without_saved_tensor_hooks(),
    ):
        layout: dict[str, Any] = _native.setup(torch.Tensor, torch._C._dispatch_keys, _probes())
        _native.force_tensor_access(_choose_access(layout))
        layout["versions"] = _versions_known()
        layout["owners"] = _owners_known()
    layout["state"] = not lost
    layout |= {f"state of {part}": False for part in lost}
    layout["functions"] = functions_known
    return layout


LAYOUT: dict[str, Any] = _set_up()
"""Where a tensor keeps its metadata in this process, as measured: byte offsets, -1 for what was not found. The flags
`direct`, `shim`, `state`, `functions`, `versions` and `owners` say what can be read natively; `state of ...` is a part
of the state that can't."""
