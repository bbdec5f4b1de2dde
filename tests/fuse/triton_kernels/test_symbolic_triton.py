"""Triton kernels whose sizes are arguments: one source is right for all sizes of its variant, and variants are few. No
GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher

pytest.importorskip("triton")
from framejit.backends.fuse import backend
from framejit.backends.fuse.graph.known import KnownValues
from framejit.backends.fuse.plan.plan_parts import PlanParts
from framejit.backends.fuse.sizes.by_size import Variant
from framejit.backends.fuse.sizes.symbolic_size import greatest, sizes_written, symbolic_size
from framejit.backends.fuse.targets import cuda  # noqa: E402
from framejit.backends.fuse.triton import compile as triton_compiling
from framejit.backends.fuse.triton.compile import GpuBinary
from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.fakes.light_torch import light
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression, Symbol
from tests.fuse.operators.operator_wall_triton import do_without_gpu
from tests.fuse.symbolic_cases import CASES
from tests.fuse.symbolic_graphs import Input, SymbolicProgram, SymbolicVariant
from tests.fuse.triton_kernels.interpreted import printed  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code

PROGRAM = Path(__file__).with_name("triton_symbolic.py")
BF16 = torch.bfloat16


@pytest.fixture(scope="module", autouse=True)
def without_gpu() -> Iterator[None]:
    real = KnownValues._operand
    do_without_gpu()
    yield
    KnownValues._operand = real  # for the tests of a process that has a GPU


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    """What came of each case. One program runs them all: the interpreter is chosen before Triton is imported."""
    return printed(PROGRAM)


def sources_of(report: dict[str, Any]) -> list[TritonSource]:
    """The sources as they were."""
    given = [
        {
            **fields, "scalars": (), "buffers": tuple(fields["buffers"]),
            "signature": tuple(map(tuple, fields["signature"])),
        }
        for fields in report["sources"]
    ]
    return [TritonSource(**fields) for fields in given]


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(CASES))
def test_one_source_serves_many_sizes(name: str, reports: dict[str, dict[str, Any]]) -> None:
    assert not reports[name]["failures"], "\n".join(reports[name]["failures"])[-6000:]
    variants = reports[name]["variants"]
    assert 0 < len(variants) <= CASES[name].variants, "\n".join(map(str, variants))


@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_sources_compile_for_sm_90(reports: dict[str, dict[str, Any]]) -> None:
    sources = {source.key: source for report in reports.values() for source in sources_of(report)}
    assert len(sources) > 50
    for source, binary in zip(sources.values(), machine_code([*sources.values()])):
        assert binary.cubin[:4] == b"\x7fELF" and binary.pointers == len(source.buffers) and 0 <= binary.scratch <= 3


@pytest.mark.process
def test_each_kind_of_kernel_is_among_them(reports: dict[str, dict[str, Any]]) -> None:
    """Else the sweeps would show less than they seem to."""
    sources = [source for report in reports.values() for source in sources_of(report)]
    flags = " ".join(source.remarks.splitlines()[-1] for source in sources)
    assert all(word in flags.split() for word in ("looped", "online", "apart", "hints"))
    scalars = [(kind, aligned) for source in sources for _, kind, aligned in source.signature if kind in ("i32", "i64")]
    assert {*scalars} == {("i32", True), ("i32", False), ("i64", True), ("i64", False)}


@pytest.mark.process
def test_no_size_is_written_as_what_it_is(reports: dict[str, dict[str, Any]]) -> None:
    for report in reports.values():
        for source in sources_of(report):
            assert "size(" not in source.code
            named = [name for name, kind, _ in source.signature if kind in ("i32", "i64")]
            assert named == [f"n{number}" for number in range(len(named))]
            body = source.code.partition("def framejit_")[2]
            assert all(
                re.search(rf"\b{name}\b", body.partition("\n")[2]) and f"# {name} is " in source.remarks
                for name in named
            )


def test_a_size_becomes_text_in_one_way_while_code_is_written() -> None:
    size = symbolic_size(Expression.of(Symbol("x.size(0)", 7, (2, 9))), Conditions())
    with sizes_written(lambda written: f"<{written.hint}>"):
        assert f"{size} {size!s:>4}" == "<7>  <7>" and str(size) == "<7>"
    assert f"{size}" == "x.size(0)"


def test_a_size_that_has_become_known_is_written_as_a_number() -> None:
    """Kernels that share a launch take no sizes: all of theirs are known."""
    conditions = Conditions()
    symbol = Expression.of(Symbol("x.size(0)", 7, (2, 9)))
    size = -1 % symbolic_size(symbol, conditions)
    assert str(size) == "(-1 % x.size(0))"
    conditions.pin(symbol)
    assert str(size) == "6"
    with sizes_written(lambda written: "n0"):
        assert str(size) == "6"


def test_the_greatest_of_sizes_is_no_question() -> None:
    conditions = Conditions()
    size = symbolic_size(Expression.of(Symbol("n", 7, (2, 100))), conditions)
    assert (
        greatest([3, 5]) == 5
        and greatest([size, 1]) is not size
        and str(greatest([size, 1, 2])) == "n"
        and greatest([size, 200]) == 200
    )
    assert str(greatest([2 * size, size, 5])) == "max(2*n, 5)"
    assert ((size + 15) // 16).expression.bounds == (1, 7)  # never less than one block
    assert not [*conditions]


# ---- how many variants there are, with the generator's own limits ----

LENGTHS = sorted({
    *range(2, 70),
    *(int(2 ** (step / 3)) + more for step in range(18, 50) for more in (0, 1)),
    *(16 * n for n in (9, 60, 100, 500, 2000)),
})


@pytest.mark.parametrize(
    ("name", "of_lengths", "of_batches"),
    [
        ("pointwise", 1, 0), ("pointwise_bf16", 1, 0), ("broadcast_row", 4, 0), ("broadcast_column", 5, 0),
        ("transposed", 5, 3), ("viewed", 2, 0),
        ("row_sum", 17, 0), ("full_sum", 10, 0), ("column_sum", 4, 2), ("column_mean_of_many", 3, 0),
        ("softmax", 17, 0), ("layer_norm", 2, 1),
        ("joined", 6, 2), ("joined_rows", 8, 3), ("gathered", 3, 1), ("embedded", 6, 2), ("scanned", 17, 0),
    ],
)
def test_variants_are_few(name: str, of_lengths: int, of_batches: int) -> None:
    case = CASES[name]
    program = SymbolicProgram(case.function, case.inputs, case.names)
    for length in LENGTHS:
        program.variant({"b": 37, "n": length})
    assert len(program.variants) <= of_lengths
    if "b" in case.names:
        for batch in LENGTHS:
            program.variant({"b": batch, "n": 1024})
        assert len(program.variants) <= of_lengths + of_batches


@pytest.mark.parametrize("name", ["pointwise", "broadcast_row", "transposed", "column_sum", "joined", "embedded"])
def test_a_text_that_grows_takes_few_variants(name: str) -> None:
    case = CASES[name]
    program = SymbolicProgram(case.function, case.inputs, case.names, grows=True)
    for length in range(60, 900):
        program.variant({"b": 8, "n": length})
    assert len(program.variants) == 1
    assert not any("%" in str(condition) for condition in program.variants[0].conditions)


def _mlp(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.linear(F.gelu(F.linear(x, w)), v) + x


def _attention(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask) * 2


@pytest.mark.parametrize(
    ("function", "inputs", "most"),
    [
        (
            lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
            (Input(("b", 8, "n", 32), BF16), Input((16, 8, 3, 3), BF16)),
            2,
        ),
        (
            lambda x, w: F.conv2d(x, w).reshape(x.shape[0], -1),
            (Input(("b", 8, "n", 32), BF16), Input((16, 8, 1, 1), BF16)),
            2,
        ),
        (lambda x, w: F.linear(x, w).float(), (Input(("b", "n", 64), BF16), Input((2001, 64), BF16)), 2),
        (_mlp, (Input(("b", "n", 64), BF16), Input((128, 64), BF16), Input((64, 128), BF16)), 2),
        (_attention, (Input(("b", 4, "n", 64), BF16), Input(("b", 1, "n", "n"), torch.bool)), 2),
    ],
    ids=["conv", "conv_and_reshape", "odd_linear", "mlp", "attention"],
)
def test_what_a_gpu_prefers_pins_no_batch_and_no_length(
    function: Callable[..., Any], inputs: tuple[Input, ...], most: int
) -> None:
    program = SymbolicProgram(function, inputs, ("b", "n"))
    for batch, length in ((4, 16), (5, 17), (8, 33), (3, 70), (16, 100), (6, 48)):
        program.variant({"b": batch, "n": length})
    assert len(program.variants) <= most
    conditions = [condition for variant in program.variants for condition in variant.conditions]
    assert all("%" in str(condition) for condition in conditions if condition.relation == "==" and condition.outcome)


def test_a_view_that_a_preference_makes_impossible_is_traced_without() -> None:
    program = SymbolicProgram(
        lambda x, w: F.conv2d(x, w).view(x.shape[0], -1), (Input(("n", 8, 6, 6), BF16), Input((16, 8, 1, 1), BF16)), "n"
    )
    assert program.variant({"n": 5}) is program.variant({"n": 9})


def test_results_have_the_strides_of_eager_at_each_size() -> None:
    """Capture has noted them in symbols of its own, and a preference has led to others."""
    program = SymbolicProgram(
        lambda x, w: F.conv2d(x, w), (Input(("b", 8, "n", 32), BF16), Input((16, 8, 1, 1), BF16)), "bn"
    )
    gm, _, _ = program._captured
    *placeholders, result, _ = gm.graph.nodes
    fakes = [node.meta["val"] for node in placeholders]
    with light(), fakes[0].fake_mode, enable_python_dispatcher():
        result.meta["val"] = program.function(*fakes)
    variant = program.variant({"b": 4, "n": 16})
    assert variant is program.variant({"b": 7, "n": 48})
    graph, _ = variant.closed((7, 48))
    assert graph.outputs[0].sizes == (7, 16, 48, 32) and graph.outputs[0].strides == (16 * 48 * 32, 48 * 32, 32, 1)


# ---- the way from a source to the plan's steps ----


def _softmaxes(rows: int) -> SymbolicVariant:
    return SymbolicProgram(lambda x: x.softmax(-1), [Input(("b", "n"), BF16)], "bn").variant({"b": rows, "n": 1024})


def test_rows_whose_length_is_a_multiple_are_read_in_wide_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(triton_compiling, "_parameters", lambda ptx: texts.append(ptx) or 0)
    made = [_softmaxes(4096), SymbolicProgram(lambda x: x * 2, [Input(("n",), BF16)], "n").variant({"n": 1 << 20})]
    machine_code([source for variant in made for source in variant.sources.values()])
    assert len(texts) == 2 and all(re.search(r"ld\.global\S*\.v4\.b32", text) for text in texts)


class _Module:
    function, device_index, registers, local_bytes = 123, 0, 0, 0


class _Plan:
    """The steps of a plan. A real one asks for a driver."""

    def __init__(self, steps: Sequence[tuple[Any, ...]]) -> None:
        self.steps = steps

    def for_sizes(self, changes: Sequence[tuple[int, tuple[Any, ...]]], *rest: Any) -> _Plan:
        changed = dict(changes)
        return _Plan([changed.get(number, step) for number, step in enumerate(self.steps)])


def test_the_plan_for_given_sizes_has_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    binary = GpuBinary(b"", "kernel", 64, 128, 2, 1)
    monkeypatch.setattr(cuda.CudaTarget, "begun_binaries", lambda self, sources: lambda: [binary] * len(sources))
    monkeypatch.setattr(cuda.GpuModule, "of", lambda key, binary, index: _Module())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(PlanParts, "native", lambda self, *rest: _Plan(self.steps))
    program = SymbolicProgram(lambda x: x.softmax(-1), [Input(("b", "n"))], "bn")
    gm, conditions, symbols = program._captured
    own, replaced = conditions.with_hints(dict(zip(symbols, (700, 200))))
    variant = backend._compile_symbolic(
        gm, [torch.empty(700, 200, device="meta")], own, tuple(replaced[symbol] for symbol in symbols)
    )
    assert (
        isinstance(variant, Variant)
        and variant.fits((900, 120))
        and not variant.fits((900, 121))
        and not variant.fits((900, 300))
    )
    kernels = []
    for sizes in ((700, 200), (900, 120)):
        plan = variant.run_for.__self__.plan_for(dict(zip(variant.symbols, sizes)))  # type: ignore[attr-defined]
        kernels.append(next(step for step in plan.steps if step[0] == "cuda_kernel"))
        assert ("empty", 1, sizes, (sizes[1], 1), torch.float32, torch.device("cuda:0")) in plan.steps
    (_, function, grid, threads, shared, arguments, device, waits), other = kernels
    assert (function, threads, shared, device, waits) == (123, 128, 64, 0, False)
    assert arguments == (("p", 0), ("p", 1), ("i32", 200), ("null",)) and grid == (700, 1, 1)
    assert other[5] == (("p", 0), ("p", 1), ("i32", 120), ("null",)) and other[2] == (900, 1, 1)
