"""The seam between what is compiled and what it is compiled for: a target that is not framejit's own, plain C, runs
kernels, programs and the plan cache."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.loop_ir.expr import COMPUTE, OPERATIONS, Expr, cast, const, load, op
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Store
from framejit.backends.fuse.targets.cpu import CpuTarget
from framejit.backends.fuse.targets.lookup import standing_in, target_of
from framejit.backends.fuse.targets.target import Target
from tests.fuse.c_target.c_source import DIVISIONS, supports
from tests.fuse.c_target.plain_c import CKernel, CTarget
from tests.fuse.kernel_reference import Reference, kernel, run, steps_apart
from tests.fuse.llvm_kernels import test_llvm_kernels as kernels
from tests.fuse.llvm_kernels.test_llvm_operations import ALL_DTYPES, DTYPES, LOOSE, samples, second_samples
from tests.fuse.lowering.plan_checks import check, planned

CPU = torch.device("cpu")


@pytest.fixture
def in_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plain C is what CPUs are known to run."""
    with standing_in("cpu", CTarget):
        yield


# ---- the kernels' tests ----

KERNELS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    (kernels.test_one_loop, (100,)),
    (kernels.test_no_loops, ()),
    (kernels.test_broadcasting, (3, 17)),
    (kernels.test_transposed, (33, 65, torch.bfloat16)),
    (kernels.test_mixed_widths, (100,)),
    (kernels.test_bytes_only, (100,)),
    (kernels.test_reductions, (33, 17, False)),
    (kernels.test_reductions, (33, 17, True)),
    *(
        (kernels.test_odd_elements, (kind, 70, content))
        for kind in ("max", "argmin")
        for content in ("nan", "infinite", "equal")
    ),
    (kernels.test_reduction_around_a_parallel_loop, ((9, 130, 3),)),
    *((kernels.test_softmax, (1000, across, in_place)) for across in (False, True) for in_place in (False, True)),
    (kernels.test_sum_is_accurate, ()),
    (kernels.test_nothing_to_reduce, ()),
    (kernels.test_no_elements, ()),
    (kernels.test_masked_loads_are_not_carried_out, (40, torch.bfloat16)),
    (kernels.test_padding, (37, torch.float32)),
    (kernels.test_division_in_an_index, (7, 100)),
    (kernels.test_rows_picked_by_number, (16, torch.bfloat16)),
    (kernels.test_scatter_to_numbered_rows, ()),
    (kernels.test_strided_loads, (-1,)),
    (kernels.test_in_place_with_two_results, ()),
    (kernels.test_a_deep_expression, ()),
    *(
        (kernels.test_reductions_of_other_dtypes, (kind, dtype, False))
        for kind, dtype in (("max", torch.bool), ("argmax", torch.uint8), ("xor", torch.int16))
    ),
    (kernels.test_layer_norm_of_half_floats, (torch.float16, True)),
    (kernels.test_a_costly_value_of_one_of_two_reduction_loops, ()),
    (kernels.test_nothing_is_written_beyond_a_row, (17, torch.bfloat16)),
]


@pytest.mark.parametrize(
    ("test", "arguments"),
    KERNELS,
    ids=[f"{test.__name__.removeprefix('test_')}-{number}" for number, (test, _) in enumerate(KERNELS)],
)
def test_kernel(test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that the generator for CPUs is tried on, with their values and tolerances."""
    monkeypatch.setattr(kernels, "compile_cpu_kernel", CKernel.of)
    test(*arguments)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_operation(dtype: torch.dtype) -> None:
    """All of a dtype's operations in one kernel."""
    i = Var("i", 1000)
    operands = {
        "x": samples(dtype), "y": second_samples(dtype), "flag": samples(torch.bool),
        "amount": torch.randint(-3, 70, (1000,)).clamp(0).to(dtype),
    }
    x, y, flag, amount = (load(name, Index.of(i), tensor.dtype) for name, tensor in operands.items())
    values: dict[str, Expr] = {}
    for name, (arity, _) in OPERATIONS.items():
        by_number = name in DIVISIONS and not dtype.is_floating_point
        second = const(7, dtype) if by_number else amount if name in ("shl", "shr") else y
        if not supports(name, dtype, second) or (dtype == torch.float32 and name in ("fmod", "mod", "floordiv")):
            continue  # of float32, torch's vectors divide by denormal numbers as if by zero
        values[name] = op(name, flag, x, y) if name == "where" else op(name, *(x, second)[:arity])
    tensors = {**operands, **{f"out_{name}": torch.zeros(1000, dtype=value.dtype) for name, value in values.items()}}
    which = kernel([i], [], [Store(f"out_{name}", Index.of(i), value) for name, value in values.items()], tensors)
    expected = Reference(which, tensors).run()
    run(CKernel.of(which), tensors)
    for name, value in values.items():
        got, wanted = tensors[f"out_{name}"], expected[f"out_{name}"]
        if value.dtype.is_floating_point:
            assert steps_apart(got, wanted) <= LOOSE.get(name, 2) or torch.equal(
                got.nan_to_num(), wanted.nan_to_num()
            ), name
        else:
            assert torch.equal(got, wanted), name


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_casts(source: torch.dtype) -> None:
    x = samples(source)
    if source.is_floating_point:
        x = x.double().nan_to_num(1.0, 2.0, 3.0).clamp(0, 100).to(source)
    i = Var("i", x.numel())
    tensors = {"x": x, **{str(dtype): torch.zeros(x.numel(), dtype=dtype) for dtype in ALL_DTYPES}}
    value = load("x", Index.of(i), source)
    run(
        CKernel.of(
            kernel([i], [], [Store(str(dtype), Index.of(i), cast(value, dtype)) for dtype in ALL_DTYPES], tensors)
        ),
        tensors,
    )
    for dtype in ALL_DTYPES:
        assert torch.equal(tensors[str(dtype)], x.to(dtype)), dtype


# ---- whole programs ----


def _attention(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x @ x.transpose(-1, -2) / 4).masked_fill(mask, float("-inf")).softmax(-1) @ x


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0].mul_(2)
    y.add_(1)
    return y.sum(0)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "pointwise": (
        lambda x, y: torch.where(x > y, x.sigmoid() * 2, (y - x).exp().clamp(max=3)),
        lambda: (torch.randn(33, 17), torch.randn(17)),
    ),
    "layer norm": (lambda x: F.gelu(F.layer_norm(x, (40,))), lambda: (torch.randn(9, 40),)),
    "half floats": (lambda x: (x * 3 + 1).softmax(-1), lambda: (torch.randn(9, 40).bfloat16(),)),
    "statistics": (
        lambda x: (x.std(0), x.var(), x.argmax(1), x.amin(), (x > 0).any(1)),
        lambda: (torch.randn(20, 31),),
    ),
    "a long row": (lambda x: x.square().sum(), lambda: (torch.randn(1 << 17),)),
    "moved": (lambda x: torch.cat([x.flip(0), x.roll(1, 1), F.pad(x, (0, 0, 1, 2))]), lambda: (torch.randn(6, 7),)),
    "integers": (lambda x: (x // 3, x % 7, x << 2, x ^ 5, x.sum()), lambda: (torch.randint(-100, 100, (50,)),)),
    "attention": (_attention, lambda: (torch.randn(2, 8, 16), torch.ones(8, 8, dtype=torch.bool).triu(1))),
    "in place": (_in_place, lambda: (torch.randn(5, 6),)),
    "a scan": (lambda x: (x * 2).cumsum(-1) + 1, lambda: (torch.randn(5, 60),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, in_c: None) -> None:
    """Values, aliases and what is left in the arguments are eager's; the kernels that ran are C."""
    function, inputs = PROGRAMS[name]
    (account,) = check(
        function, *inputs(), atol=1e-2 if name == "half floats" else 1e-5, rtol=1e-2 if name == "half floats" else 1e-5
    )
    assert account.kernels and {source.language for source in account.kernels} == {"c"}
    assert all("framejit_kernel(" in source.source for source in account.kernels)


def test_what_the_target_can_not_do_is_left_to_aten(in_c: None) -> None:
    (account,) = check(lambda x: (x * 2).cumsum(-1) + 1, torch.randn(5, 60))
    assert account.externs == ["cumsum"]


def test_symbolic_sizes_that_the_target_can_not_pass_become_numbers(in_c: None) -> None:
    """Each combination of sizes gets kernels of its own."""
    compiled, graphs = planned(lambda x: x.softmax(-1))
    for columns in (5, 9, 12):
        x = torch.randn(3, columns)
        torch.testing.assert_close(compiled(x), x.softmax(-1))
    assert {source.language for graph in graphs for source in graph.kernels} <= {"c"}


# ---- what else asks the target ----


def test_plans_are_kept_and_found(in_c: None, tmp_path: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + 1).sum(-1)

    x = torch.randn(7, 30)
    with framejit.config.patch(cache_dir=str(tmp_path)):
        first, second = (planned(functools.partial(program)) for _ in range(2))
        torch.testing.assert_close(first[0](x), program(x))
        before = stages.copy()
        torch.testing.assert_close(second[0](x), program(x))
        assert (stages["record"], stages["lower"]) == (before["record"] + 1, before["lower"])
    (one,), (other,) = first[1], second[1]
    assert [source.source for source in one.kernels] == [source.source for source in other.kernels] != []


def test_a_plan_of_another_target_is_not_found(tmp_path: Any) -> None:
    def languages() -> set[str]:
        compiled, graphs = planned(functools.partial(lambda x: x.cos() * 2))
        x = torch.randn(50)
        torch.testing.assert_close(compiled(x), x.cos() * 2)
        return {source.language for graph in graphs for source in graph.kernels}

    with framejit.config.patch(cache_dir=str(tmp_path)):
        assert languages() == {"llvm"}
        with standing_in("cpu", CTarget):
            assert languages() == {"c"}
        assert languages() == {"llvm"}


def test_artifacts_have_the_languages_suffix(in_c: None, tmp_path: Any) -> None:
    with framejit.config.patch(artifacts=str(tmp_path)):
        framejit.optimize(lambda x: x.exp() + 1, backend="fuse")(torch.randn(9))
    (source,) = tmp_path.glob("*/kernels/*")
    assert source.suffix == ".c" and "framejit_kernel(" in source.read_text()


def test_a_device_without_a_generator_has_no_kernels() -> None:
    class Nothing(Target):
        """A processor of which nothing is known."""

        is_there = True
        identity = "nothing"

    with standing_in("cpu", Nothing):
        compiled, (graphs) = planned(lambda x: (x.exp() + 1).sum(-1))
        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled(x), (x.exp() + 1).sum(-1))
        assert not graphs[0].kernels


def test_a_target_is_one_object_for_a_device() -> None:
    assert target_of(CPU) is target_of(torch.device("cpu"))
    own = target_of(CPU)
    with standing_in("cpu", CTarget):
        assert type(target_of(CPU)) is CTarget and target_of(CPU) is not own
    assert type(own) is CpuTarget and target_of(CPU) is own
    assert type(target_of(torch.device("xla"))) is Target and target_of(torch.device("xla")).identity is None
    assert not any(
        supports("load", dtype) and target_of(torch.device("xla")).supports("load", dtype) for dtype in COMPUTE
    )
