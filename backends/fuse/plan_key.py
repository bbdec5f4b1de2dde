"""The key of a plan in the disk cache: a hash over the traced operations, and over all else that what is made of them depends on.

The key is taken after the trace, not of the FX graph before it. What a trace gives depends on every decomposition, mode and switch of torch, which the
operations themselves show and no list of switches could be trusted to; and tracing is the smaller part of what a plan costs (37 of 400 ms for
a BERT of 12 layers, 16 of 240 for a ResNet-18).
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.cache_key import key_of
from framejit.backends.fuse.lowering.extern import callable_of
from framejit.backends.fuse.plan_functions import NAMED
from framejit.backends.fuse.thread_state import thread_state
from framejit.backends.fuse.trace import Trace, storage_of
from framejit.config import config

LARGEST: Final = 1 << 22
"""Bytes of a constant whose content is hashed or kept."""

ELSEWHERE: Final = frozenset(
    ("disable", "default_backend", "recompile_limit", "dynamic_after", "min_graph_size", "max_inline_depth", "debug", "logs", "verify", "verify_folder")
    + ("freeze", "ring_size", "artifacts", "cache_dir", "cache_size")
)
"""Settings that have no say in what a traced graph is made into. All others are part of the key."""

_SWITCHES: Final = (
    *("_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_get_deterministic_fill_uninitialized_memory"),
    *("_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction"),
    *("_get_cublas_allow_bf16_reduced_precision_reduction", "_get_cublas_allow_fp16_accumulation", "_get_blas_preferred_backend"),
    *("_get_linalg_preferred_backend", "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32"),
    *("_get_mkldnn_enabled", "_get_mkldnn_deterministic", "_get_onednn_allow_tf32", "_get_nnpack_enabled", "_get_flash_sdp_enabled"),
    *("_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled", "_get_cudnn_sdp_enabled", "_get_math_sdp_allow_fp16_bf16_reduction"),
    *("_get_fa3_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_sdp_priority_order", "_get_cpu_allow_fp16_reduced_precision_reduction"),
)
"""How ATen works out values that are the same in each call, which a plan holds; functions of `torch._C` that not every version has."""
_PRECISIONS: Final = (("generic", "all"), *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "conv", "rnn", "matmul")))
_SMALLEST: Final = [2.2250738585072014e-308]  # float64's smallest normal number, in a list so that its half is worked out when asked for


class NotCacheable(Exception):
    """A plan can't be kept, for the reason given."""


@dataclass(frozen=True)
class PlanKey:
    """The key of a trace's plan, and what the plan may refer to in the trace."""

    key: str
    functions: dict[str, Callable[..., Any]]
    """By name what the plan may call: what the traced operations are carried out by, and what lowering adds."""
    constants: tuple[torch.Tensor, ...]
    """The tensors that the trace knows, in order."""
    n_inputs: int
    returns: tuple[bool, ...]
    """For each output whether it is a tensor."""
    origins: tuple[str, ...]
    """The source lines, each once, in order. The key holds which operations share one, but not the lines: a function that moves keeps its plan."""


def plan_key(traced: Trace, tracked: bool) -> PlanKey:
    """The key of what `lower_trace(traced, tracked)` and the later stages give. Raises NotCacheable."""
    writer = _Writer(traced)
    text = writer.text()
    devices = {fake.device for fake in writer.fakes} | writer.devices
    key = key_of(_target(devices), text, repr((tracked, _torch_state(), _settings(), _native_build())))
    returns = tuple(isinstance(output, torch.Tensor) for output in traced.outputs)
    return PlanKey(key, {**NAMED, **writer.functions}, tuple(traced.constants.values()), len(traced.inputs), returns, tuple(writer.origins))


class _Writer:
    """The canonical text of a trace: tensors and storages by number, everything else by value and type."""

    def __init__(self, traced: Trace) -> None:
        self.trace = traced
        self.functions: dict[str, Callable[..., Any]] = {}
        self.origins: dict[str, int] = {}
        self.fakes: list[torch.Tensor] = []
        self.devices: set[torch.device] = set()
        self._known: dict[int, str] = {}
        self._storages: dict[int, int] = {}
        self._operations: dict[torch._ops.OpOverload, str] = {}

    def text(self) -> str:
        trace = self.trace
        lines = [f"input {name!r} {self._value(fake)}" for name, fake in zip(trace.names, trace.inputs, strict=True)]
        # a constant's fake is met where it is used, and written there; here it is said which these are
        calls = [
            f"{self._operation(call.func)} {self._value(call.args)} {self._value(call.kwargs)} -> {self._value(call.result)} {self._origin(call.origin)}"
            for call in trace.calls
        ]
        autograd = f"views {sorted(trace.views)} writes {sorted(trace.writes.items())}"
        return "\n".join([*lines, *calls, f"return {self._value(trace.outputs)}", autograd, *self._constants()])

    def _origin(self, origin: str) -> int:
        return self.origins.setdefault(origin, len(self.origins)) if origin else -1

    def _operation(self, func: Any) -> str:
        text = self._operations.get(func)
        if text is None:
            if not isinstance(func, torch._ops.OpOverload):
                raise NotCacheable(f"{func} is no operation of ATen's or of a library's")
            text = func.name()
            self.functions[text] = callable_of(func)
            if func.namespace != "aten":  # ATen's are told by torch's version
                text = f"{func._schema} {sorted(map(str, func.tags))}"
            self._operations[func] = text
        return text

    def _value(self, value: Any) -> str:
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str):
            return repr(value)
        if isinstance(value, torch.Tensor):
            return self._known.get(id(value)) or self._tensor(value)
        if kind in (tuple, list, torch.Size):
            return f"{kind.__name__}({', '.join(map(self._value, value))})"
        if kind is dict:
            return f"dict({', '.join(f'{name!r}: {self._value(item)}' for name, item in value.items())})"
        if kind is torch.device:
            self.devices.add(value)
        if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
            return f"{kind.__name__} {value}"
        raise NotCacheable(f"an operation has an argument of type {kind.__name__}")

    def _tensor(self, fake: torch.Tensor) -> str:
        if fake.layout is not torch.strided:
            raise NotCacheable(f"a tensor is {str(fake.layout).removeprefix('torch.')}")
        shape = (*fake.shape, *fake.stride(), fake.storage_offset())
        if any(type(number) is not int for number in shape):
            raise NotCacheable("a tensor's sizes are not known")
        storage = self._storages.setdefault(storage_of(fake), len(self._storages))
        name = self._known[id(fake)] = f"%{len(self._known)}"
        self.fakes.append(fake)
        return f"{name}=({storage} {fake.dtype} {fake.device} {fake.dim()} {shape})"

    def _constants(self) -> Iterable[str]:
        first: dict[int, int] = {}
        fakes = {id(fake): name for fake in self.fakes if (name := self._known[id(fake)])}
        for number, (key, value) in enumerate(self.trace.constants.items()):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                raise NotCacheable(f"a constant is of type {type(value).__name__}")
            same = first.setdefault(id(value), number)
            content = key_of("content", bytes_of(value)) if key in self.trace.literals else f"{value.is_cuda and value.data_ptr() % 16 == 0}"
            yield f"constant {fakes.get(key)} {same} {value.dtype} {value.device} {tuple(value.shape)} {value.stride()} {content}"


def bytes_of(value: torch.Tensor) -> bytes:
    """The bytes of a tensor's memory from its first element to its last. Raises NotCacheable if there are many."""
    extent = 0 if not value.numel() else 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    if extent * value.itemsize > LARGEST:
        raise NotCacheable(f"a constant has {extent * value.itemsize} bytes")
    if not extent:
        return b""
    with torch.no_grad():
        flat = value.detach().as_strided((extent,), (1,), value.storage_offset()).cpu()
    return ctypes.string_at(flat.data_ptr(), extent * value.itemsize)


def _target(devices: set[torch.device]) -> str:
    """The machine, as far as the graph is concerned. The CPU is always part of it: what depends on no input may be worked out there."""
    parts = [torch.backends.cpu.get_cpu_capability()]
    if any(device.type == "cpu" for device in devices):
        from framejit.backends.fuse.llvm.machine import machine

        parts.append(machine().key)
    others = sorted({device.type for device in devices} - {"cpu", "cuda", "meta"})
    if others:
        raise NotCacheable(f"there are tensors on {others[0]}")
    on_cuda = [device for device in devices if device.type == "cuda"]
    if on_cuda:
        try:
            current = torch.cuda.current_device()
            indices = sorted({current if device.index is None else device.index for device in on_cuda})
            parts += [f"{current} is current", *(f"{i} {torch.cuda.get_device_name(i)} {torch.cuda.get_device_capability(i)}" for i in indices)]
        except (RuntimeError, AssertionError) as e:
            raise NotCacheable(f"the GPU's kind can't be found out: {e}") from e
    return "; ".join(parts)


def _torch_state() -> tuple[Any, ...]:
    switches = [(name, str(read())) for name in _SWITCHES if (read := getattr(torch._C, name, None)) is not None]
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    precisions = [precision(*place) for place in _PRECISIONS] if precision else []
    flushes = _SMALLEST[0] / 2 == 0.0
    return (*map(str, thread_state()), str(torch.get_default_dtype()), torch.get_num_threads(), flushes, *switches, *precisions)


def _settings() -> list[tuple[str, Any]]:
    return [(field.name, getattr(config, field.name)) for field in fields(config) if field.name not in ELSEWHERE]


@cache
def _native_build() -> tuple[Any, ...]:
    """What tells one build of the executor, and of torch, from another of the same version."""
    file = os.stat(_native.__file__)
    return torch.version.git_version, torch.version.cuda, file.st_size, file.st_mtime_ns
