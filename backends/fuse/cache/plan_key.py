"""What a plan's key in the disk cache stands for: what the plan may refer to, and, besides the graph (`graph_key.py`),
all that it depends on.

A process that finds what another has kept needs no more of keys than this.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.cache.file_content import content_of
from framejit.backends.fuse.graph.packed_operations import OPERATIONS
from framejit.backends.fuse.plan.callables import callable_of
from framejit.backends.fuse.plan.plan_functions import NAMED
from framejit.backends.fuse.random_numbers.operations import DRAW_KEY
from framejit.backends.fuse.random_numbers.operations import OPERATIONS as RANDOM_NUMBERS
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.thread_state import thread_state
from framejit.config import config
from framejit.environment.intra_op_threads import intra_op_threads
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Symbol

LARGEST: Final = 1 << 22
"""Bytes of a constant whose content is hashed or kept."""

ELSEWHERE: Final = frozenset(
    (
        "disable", "default_backend", "recompile_limit", "dynamic_after", "min_graph_size", "max_inline_depth",
        "debug", "logs", "verify", "verify_folder",
    )
    + (
        "freeze", "ring_size", "artifacts", "cache_dir", "cache_size", "keep_captures", "background",
        "background_seconds",
    )
)
"""Settings that have no say in what a recorded graph is made into. All others are part of the key."""

_SWITCHES: Final = (
    *(
        "_get_deterministic_algorithms",
        "_get_deterministic_algorithms_warn_only",
        ("_get_deterministic_fill_uninitialized_memory"),
    ),
    *("_get_float32_matmul_precision", "_get_cublas_allow_tf32", "_get_cublas_allow_fp16_reduced_precision_reduction"),
    *(
        ("_get_cublas_allow_bf16_reduced_precision_reduction"),
        "_get_cublas_allow_fp16_accumulation",
        "_get_blas_preferred_backend",
    ),
    *(
        "_get_linalg_preferred_backend", "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
        "_get_cudnn_allow_tf32",
    ),
    *(
        "_get_mkldnn_enabled", "_get_mkldnn_deterministic", "_get_onednn_allow_tf32", "_get_nnpack_enabled",
        "_get_flash_sdp_enabled",
    ),
    *(
        "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled", "_get_cudnn_sdp_enabled",
        ("_get_math_sdp_allow_fp16_bf16_reduction"),
    ),
    *(
        "_get_fa3_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_sdp_priority_order",
        ("_get_cpu_allow_fp16_reduced_precision_reduction"),
    ),
)
"""How ATen works out values that are the same in each call, which a plan holds; functions of `torch._C` that not every
version has."""
_PRECISIONS: Final = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "conv", "rnn", "matmul")),
)
# float64's smallest normal number, in a list so that its half is worked out when asked for
_SMALLEST: Final = [2.2250738585072014e-308]


class NotCacheable(Exception):
    """A plan can't be kept, for the reason given."""


ADDED: Final = (
    *(
        getattr(getattr(torch.ops.aten, name), overload)
        for name, overload in (
            ("clone", "default"), ("scalar_tensor", "default"), ("add", "Tensor"), ("mm", "out"), ("expand", "default"),
        )
    ),
    *OPERATIONS.values(), DRAW_KEY, *RANDOM_NUMBERS,
)
"""Operations that passes put into graphs."""


@dataclass(frozen=True)
class SymbolicSizes:
    """The sizes that a plan leaves open: the symbols, and the conditions that a plan adds to when it is made."""

    symbols: tuple[Symbol, ...]
    conditions: Conditions


@dataclass(frozen=True)
class PlanKey:
    """The key of a graph's plan, and what the plan may refer to in the graph."""

    key: str
    functions: dict[str, Callable[..., Any]]
    """By name what the plan may call: what the recorded operations are carried out by, and what passes and lowering
    add."""
    computing: dict[str, Callable[..., Any]]
    """By name what may be done to frozen weights."""
    constants: tuple[torch.Tensor, ...]
    """The constants of the graph, in order."""
    weights: Mapping[int, torch.Tensor]
    """The inputs that are frozen weights, by position."""
    n_inputs: int
    returns: tuple[bool, ...]
    """For each output whether it is a tensor."""
    sizes: SymbolicSizes | None
    """The symbolic sizes of the graph, if it has some."""
    origins: tuple[str, ...]
    """The source lines, each once, in order. The key holds which operations share one, but not the lines: a function
    that moves keeps its plan."""


def functions_of(operations: Iterable[torch._ops.OpOverload]) -> dict[str, Callable[..., Any]]:
    """By name what a plan for a graph of these operations may call."""
    return {**NAMED, **{operation.name(): callable_of(operation) for operation in (*ADDED, *operations)}}


def surroundings(devices: set[torch.device], tracked: bool) -> tuple[str, str]:
    """The machine with these devices, and all else besides the graph that a plan depends on. Raises NotCacheable."""
    return _target(devices), repr((tracked, _torch_state(), _settings(), _native_build()))


def bytes_of(value: torch.Tensor) -> bytes:
    """The bytes of a tensor's memory from its first element to its last. Raises NotCacheable if there are many, and
    for a tensor on the meta device."""
    if value.is_meta:
        raise NotCacheable("a constant has no data")
    extent = (
        0 if not value.numel() else 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    )
    if extent * value.itemsize > LARGEST:
        raise NotCacheable(f"a constant has {extent * value.itemsize} bytes")
    if not extent:
        return b""
    with torch.no_grad():
        flat = value.detach().as_strided((extent,), (1,), value.storage_offset()).cpu()
    return ctypes.string_at(flat.data_ptr(), extent * value.itemsize)


def of_bytes(
    content: bytes, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor | None:
    """The tensor that `bytes_of` was given; None if there are not as many bytes as it has."""
    made = torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")  # whatever the program's default is
    if len(bytes_of(made)) != len(content):
        return None
    if content:
        flat = torch.frombuffer(bytearray(content), dtype=dtype)
        made.as_strided(flat.shape, (1,)).copy_(flat)
    return made.to(device)


def _target(devices: set[torch.device]) -> str:
    """The machine, as far as the graph is concerned. The CPU is always part of it: what depends on no input may be
    worked out there."""
    parts = [torch.backends.cpu.get_cpu_capability()]
    for device in sorted(devices, key=str):
        try:
            identity = target_of(device).identity
        except (RuntimeError, AssertionError) as e:
            raise NotCacheable(f"the kind of {device} can't be found out: {e}") from e
        if identity is None:
            raise NotCacheable(f"there are tensors on {device.type}")
        parts.append(identity)
    return "; ".join(parts)


def _torch_state() -> tuple[Any, ...]:
    switches = [(name, _as_set(read)) for name in _SWITCHES if (read := getattr(torch._C, name, None)) is not None]
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    precisions = [precision(*place) for place in _PRECISIONS] if precision else []
    flushes = _SMALLEST[0] / 2 == 0.0
    return (
        *map(str, thread_state()), str(torch.get_default_dtype()), intra_op_threads(), flushes, *switches,
        *precisions,
    )


def _as_set(read: Callable[[], Any]) -> str:
    """What a switch of torch's is set to. Torch refuses to say it of precisions that were set in the old and the new
    manner; what they are to it then, the new ones tell."""
    try:
        return str(read())
    except RuntimeError:
        return "refused"


def _settings() -> list[tuple[str, Any]]:
    return [(field.name, getattr(config, field.name)) for field in fields(config) if field.name not in ELSEWHERE]


@cache
def _native_build() -> tuple[Any, ...]:
    """What tells one build of the executor, and of torch, from another of the same version."""
    return torch.version.git_version, torch.version.cuda, content_of((str(_native.__file__),))
