"""Attention of few queries: by Triton's interpreter as near to float64 as eager is; for the GPUs there are it
compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Kernel, LoweredGraph  # noqa: E402
from framejit.backends.fuse.schedule.make_kernels import schedule  # noqa: E402
from framejit.backends.fuse.schedule.rows_of_tokens import with_rows_of_tokens  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import triton_source  # noqa: E402
from framejit.backends.fuse.triton.tiles.blocks import candidates  # noqa: E402
from tests.fuse.lowering.cuda_graphs import lowered_for_cuda, scheduled_for_cuda  # noqa: E402
from tests.fuse.triton_kernels.interpreted import cases_of, printed  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_attention.py")
NAMES = cases_of(PROGRAM)
ATENS = ["scaled_dot_product_attention"]
TOKENS = [name for name in NAMES if "a token" in name]
LEFT = {
    **dict.fromkeys(TOKENS, ["_increment_version"]),
    "one tensor repeated": ATENS, "heads that are not shared, of float32": ATENS,
    "heads that torch shares, of float32": ATENS, "into a cache": ["index_copy.default", "index_copy.default"],
}
TWO_LOOPS = (
    "float32", "several queries", "causal", "causal, one query", "many heads of one", "heads too long",
)
"""What loops do: scores, and weighted sums."""
PARTS = (
    "long", "many parts", "parts, not finite", "parts, not numbers where others are masked", "one head, expanded",
    "long heads", "parts of three heads",
)
"""Where a launch more makes the zeros in which programs count, or puts parts together."""
KERNELS = {
    **dict.fromkeys(("heads that are not shared, of float32", "heads that torch shares, of float32"), 0),
    **dict.fromkeys((name for name in NAMES if "mask" in name), 2),  # one makes the mask, and zeros
    **dict.fromkeys(("mask of numbers", "mask of one number"), 1), **dict.fromkeys((*TWO_LOOPS, *PARTS), 2),
    **dict.fromkeys(TOKENS, 3), "a token, in several turns": 5,  # sines, and what makes the mask
    **dict.fromkeys(("a token, one head", "overlapping, a token, one head", "overlapping, plain"), 2),
    "many parts, under a mask of heads": 3, "keys that are computed": 2, "into a cache": 4, "two of parts": 4,
}
"""Launches, where there are not just one."""


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_attention(name: str, reports: dict[str, list[Any]]) -> None:
    kernels, left, far = reports[name]
    assert not far
    assert left == LEFT.get(name, []) and kernels == KERNELS.get(name, 1)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def of_one_query(
    heads: int, shared: int, keys: int, size: int, batch: int = 1, dtype: torch.dtype = torch.bfloat16,
    f: Callable[..., torch.Tensor] = attend,
) -> list[Kernel]:
    """The kernels of attention of a query."""
    q, k, v = (
        torch.zeros((batch, *sizes, size), dtype=dtype) for sizes in ((heads, 1), (shared, keys), (shared, keys))
    )
    steps = scheduled_for_cuda(f, q, k, v, torch.zeros((1, 1, 1, keys), dtype=dtype))
    assert all(isinstance(step, Kernel) for step in steps)
    return [step for step in steps if isinstance(step, Kernel)]


def the_attention_of(steps: Sequence[object]) -> AttentionKernel:
    [found] = [step for step in steps if isinstance(step, AttentionKernel)]
    return found


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize(
    ("heads", "shared", "keys", "size", "batch"),
    [(32, 4, 1024, 64, 1), (32, 8, 1000, 128, 8), (12, 12, 70, 80, 2), (32, 1, 2048, 64, 1), (8, 1, 130, 256, 1)],
)
def test_one_query_compiles(heads: int, shared: int, keys: int, size: int, batch: int, capability: int) -> None:
    kernels = of_one_query(heads, shared, keys, size, batch)
    attention = the_attention_of(kernels)
    assert len(kernels) == 1 + (attention.attention.parts > 1)
    for steady in (None, frozenset[str]()) if capability >= 90 else (None,):
        kernel = replace(attention, steady=steady)
        sources = [triton_source(kernel, tile=tile) for tile in candidates(kernel)]
        assert {source.waits for source in sources} == {steady is not None}
        assert all(("gdc_wait" in source.code) == (steady is not None) for source in sources)
        assert all(binary.cubin for binary in machine_code(sources, capability))


def token(
    q: torch.Tensor, k: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor
) -> torch.Tensor:
    """A query, and a key that goes into the cache, each doubled."""
    batch, shared, _, size = keys.shape
    keys.index_copy_(2, at, (k * 2).view(batch, shared, 1, size))
    values.index_copy_(2, at, k.view(batch, shared, 1, size))
    return F.scaled_dot_product_attention((q * 2).view(batch, -1, 1, size), keys, values, enable_gqa=True)


def graph_of_token(
    f: Callable[..., Any] = token, batch: int = 1, heads: int = 8, size: int = 64, more: tuple[int, int] = (0, 0)
) -> LoweredGraph:
    """With `more`, caches have room for more sequences, or heads, than are used."""
    sizes = (batch + more[0], 2 + more[1], 300, size)
    keys, values = (torch.zeros(sizes, dtype=torch.bfloat16)[:batch, :2] for _ in range(2))
    q, k = (torch.zeros(batch, count * size, dtype=torch.bfloat16) for count in (heads, 2))
    return lowered_for_cuda(f, q, k, keys, values, torch.tensor([7]))


def of_token(*f: Callable[..., Any], **how: Any) -> AttentionKernel:
    """The attention of a token."""
    return the_attention_of(schedule(graph_of_token(*f, **how)))


@pytest.mark.parametrize(
    "how",
    [{}, {"batch": 3}, {"heads": 6}, {"more": (0, 1)}, {"batch": 3, "more": (1, 1)}, {"size": 48}, {"batch": 8}],
)
def test_attention_does_small_kernels_before_it(how: dict[str, Any]) -> None:
    kernel = of_token(**how)
    assert {store.buffer for first in kernel.first for store in first.stores} == {
        layout.buffer.name for layout in (kernel.attention.query, kernel.attention.key, kernel.attention.value)
    }
    assert not {layout.buffer.name for layout in kernel.attention.layouts} & kernel.reads.keys()
    assert all(binary.cubin for binary in machine_code([triton_source(kernel)]))


def test_attention_does_no_kernels_whose_parts_are_not_its_heads() -> None:
    def f(q: torch.Tensor, k: torch.Tensor, keys: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return token(q, k, keys.transpose(0, 1), *rest)  # key heads lie as sequences do

    for kernel in (of_token(size=20), of_token(f, batch=2)):  # odd numbers of elements
        stored = {store.buffer for each in kernel.first for store in each.stores}
        assert kernel.attention.key.buffer.name not in stored


def overlapping(*f: Callable[..., Any]) -> AttentionKernel:
    """The attention of a token where launches overlap."""
    graph = graph_of_token(*f)
    steps = [
        replace(step, steady=frozenset()) if isinstance(step, AttentionKernel) else step for step in schedule(graph)
    ]
    return the_attention_of(with_rows_of_tokens(steps, graph.buffers))


def test_the_cache_is_loaded_before_the_launch_before_has_ended() -> None:
    kernel = overlapping()
    assert {row.attr[0] for row in kernel.rows.values()} == {"x4"} and len(kernel.rows) == 2
    source = triton_source(kernel)
    lines = [line.strip().split(" = ")[0] for line in source.code.splitlines()]
    assert lines.index("keys") < lines.index("cuda.gdc_wait()") < lines.index("keys_row")
    assert all(binary.cubin for binary in machine_code([source], 90))


def test_the_cache_is_waited_for_where_it_is_not_known_what_is_written() -> None:
    def of_all(q: Any, k: Any, keys: Any, values: Any, at: Any) -> torch.Tensor:
        keys.mul_(2)
        return token(q, k, keys, values, at)

    def elsewhere(q: Any, k: Any, keys: Any, values: Any, at: Any) -> torch.Tensor:
        keys.index_copy_(2, at + 1, k.view(1, 2, 1, -1))
        return token(q, k, keys, values, at)

    def counted(q: Any, k: Any, keys: Any, values: Any, at: Any) -> torch.Tensor:
        return token(q, k, keys, values, at.add_(1))

    def behind(q: Any, k: Any, keys: Any, values: Any, at: Any) -> torch.Tensor:
        found = token(q, k, keys, values, at)
        at.add_(1)
        return found

    rows = [(overlapping(f).attention, overlapping(f).rows) for f in (of_all, elsewhere, counted, behind)]
    known = [[layout.buffer.name in found for layout in (each.key, each.value)] for each, found in rows]
    assert known == [[False, True], [False, True], [True, True], [False, False]]


def test_attention_does_no_kernels_whose_results_it_reads_in_two_ways() -> None:
    def f(q: torch.Tensor, k: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = (q * 2).view(1, 8, 1, -1)  # each program reads four heads as queries, and another one as a key
        return F.scaled_dot_product_attention(x, x.narrow(1, 0, 2), x.narrow(1, 2, 2), enable_gqa=True)

    def as_mask(q: torch.Tensor, k: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x = (q * 2).view(1, 8, 1, -1)
        return F.scaled_dot_product_attention(x, *rest[:2], x.reshape(1, 1, 1, -1).narrow(3, 0, 300), enable_gqa=True)

    for function in (f, as_mask):
        assert not of_token(function).first


def test_attention_does_no_kernels_that_others_wait_for() -> None:
    def f(q: torch.Tensor, k: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = q * 2
        return token(q, k + q.view(4, 2, -1).sum(0).view(k.shape), *rest), q

    kernel = of_token(f)
    read = {name for first in kernel.first for name in first.reads}
    assert not read & {name for first in kernel.first for name in first.writes}


def test_places_beyond_32_bits() -> None:
    step = 1 << 24
    k = torch.zeros(129 * step + 64, dtype=torch.bfloat16).as_strided((1, 1, 130, 64), (0, 0, step, 1))
    q = torch.zeros((1, 2, 1, 64), dtype=torch.bfloat16)
    mask = torch.zeros((1, 130), dtype=torch.bfloat16)
    source = triton_source(the_attention_of(scheduled_for_cuda(attend, q, k, k, mask)))
    assert "int64" in source.code and machine_code([source])


def test_keys_are_dealt_out_to_as_many_programs_as_keep_a_gpu_busy() -> None:
    few, many = (the_attention_of(of_one_query(32, 4, 4096, 64, batch)) for batch in (1, 16))
    assert few.attention.keys_a_part < many.attention.keys_a_part
    assert triton_source(few).programs >= 132


def test_torch_does_what_is_much_to_read_and_needs_no_copy() -> None:
    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    q, k = torch.zeros((8, 32, 1, 128), dtype=torch.bfloat16), torch.zeros((8, 32, 4096, 128), dtype=torch.bfloat16)
    [step] = scheduled_for_cuda(plain, q, k, k, torch.zeros(1))
    assert not isinstance(step, Kernel)
    assert len(of_one_query(12, 12, 1024, 64, f=plain)) == 2
