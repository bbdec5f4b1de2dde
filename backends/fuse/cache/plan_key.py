"""The key of a plan in the disk cache: a hash over the recorded graph, and over all else that what is made of it
depends on.

The key is taken of the recorded graph, not of the FX graph before it. What is recorded depends on every decomposition,
mode and switch of torch, which the operations themselves show (composite ones hold what they consist of) and no list of
switches could be trusted to. Passes, lowering and all that comes after are the same for graphs with the same key, so
that none of them is run for a plan that is found. Where weights are frozen, passes compute new weights: the key says
which are frozen and not what is in them, the plan how they are computed (`folding_record.py`).
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.file_content import content_of
from framejit.backends.fuse.graph.direct_convolution import blocked_weight
from framejit.backends.fuse.graph.folded_norm import folded_norm
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import GraphText
from framejit.backends.fuse.graph.known import is_computable
from framejit.backends.fuse.graph.packed_weights import OPERATIONS, packed_convolution_weight, packed_product_weight
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering.extern import callable_of
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

if TYPE_CHECKING:
    from framejit.backends.fuse.layers.shortened import Shortened

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


def plan_key(
    graph: Graph, text: GraphText, tracked: bool, weights: Mapping[int, torch.Tensor],
    sizes: SymbolicSizes | None = None, autotune: bool = False, same_random_numbers: bool = False,
    short: Shortened | None = None,
) -> PlanKey:
    """The key of what passes, `lower_graph(graph, tracked)` and the later stages give. `text` is the graph's; with
    `autotune` kernels are measured, with `same_random_numbers` all are drawn that eager draws; `short` is what the
    graph is recorded of, if that was shortened, and the plan is for the whole. Raises NotCacheable.

    Plans for symbolic sizes have the same key whatever the sizes are now: each holds for those that meet its own
    conditions.
    """
    if text.unwritten:
        raise NotCacheable(text.unwritten)
    lines = [text.key, *_constants(graph), *_foreign(text), f"frozen {sorted(weights)}", f"autotune {autotune}"]
    making = [str(device) for device in text.devices if target_of(device).makes_random_numbers]
    lines.append(f"random numbers made on {[] if same_random_numbers else sorted(making)}")
    if sizes is not None:
        lines += [
            f"symbol {symbol} from {symbol.bounds[0]} to {symbol.bounds[1]}" for symbol in sizes.symbols
        ] + sizes.conditions.granted()
    if short is not None:
        lines.append(short.told)
    machine, state = surroundings({*text.devices}, tracked)
    key = key_of(machine, "\n".join(lines), state)
    operations = {operation.name(): operation for operation in (*ADDED, *text.operations)}
    computing = {
        "folded_norm": folded_norm, "packed_convolution_weight": packed_convolution_weight,
        "packed_product_weight": packed_product_weight, "blocked_weight": blocked_weight,
        **{name: operation for name, operation in operations.items() if is_computable(operation)},
    }
    returns = tuple(isinstance(output, Value) for output in graph.outputs)
    tensors = tuple(constant.tensor for constant in graph.constants.values())
    return PlanKey(
        key, functions_of(text.operations), computing, tensors, weights,
        len(graph.inputs if short is None else short.names), returns, sizes, tuple(text.origins),
    )


def functions_of(operations: Iterable[torch._ops.OpOverload]) -> dict[str, Callable[..., Any]]:
    """By name what a plan for a graph of these operations may call."""
    return {**NAMED, **{operation.name(): callable_of(operation) for operation in (*ADDED, *operations)}}


def surroundings(devices: set[torch.device], tracked: bool) -> tuple[str, str]:
    """The machine with these devices, and all else besides the graph that a plan depends on. Raises NotCacheable."""
    return _target(devices), repr((tracked, _torch_state(), _settings(), _native_build()))


def _constants(graph: Graph) -> Iterator[str]:
    """What the text does not tell of constants, in their order."""
    first: dict[int, int] = {}
    for number, constant in enumerate(graph.constants.values()):
        tensor = constant.tensor
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise NotCacheable(f"a constant is of type {type(tensor).__name__}")
        same = first.setdefault(id(tensor), number)
        content = (
            key_of("content", bytes_of(tensor))
            if constant.literal
            else f"{target_of(tensor.device).is_aligned and tensor.data_ptr() % 16 == 0}"
        )
        yield f"constant {same} {tensor.dtype} {tensor.device} {tuple(tensor.shape)} {tensor.stride()} {content}"


def _foreign(text: GraphText) -> Iterator[str]:
    """What the operations of libraries are; ATen's are told by torch's version."""
    for operation in text.operations:
        if not isinstance(operation, torch._ops.OpOverload):
            raise NotCacheable(f"{operation} is no operation of ATen's or of a library's")
        if operation.namespace != "aten":
            yield f"{operation._schema} {sorted(map(str, operation.tags))}"


def bytes_of(value: torch.Tensor) -> bytes:
    """The bytes of a tensor's memory from its first element to its last. Raises NotCacheable if there are many."""
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
    made = torch.empty_strided(sizes, strides, dtype=dtype)
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
    switches = [(name, str(read())) for name in _SWITCHES if (read := getattr(torch._C, name, None)) is not None]
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    precisions = [precision(*place) for place in _PRECISIONS] if precision else []
    flushes = _SMALLEST[0] / 2 == 0.0
    return (
        *map(str, thread_state()), str(torch.get_default_dtype()), intra_op_threads(), flushes, *switches,
        *precisions,
    )


def _settings() -> list[tuple[str, Any]]:
    return [(field.name, getattr(config, field.name)) for field in fields(config) if field.name not in ELSEWHERE]


@cache
def _native_build() -> tuple[Any, ...]:
    """What tells one build of the executor, and of torch, from another of the same version."""
    return torch.version.git_version, torch.version.cuda, content_of((str(_native.__file__),))
