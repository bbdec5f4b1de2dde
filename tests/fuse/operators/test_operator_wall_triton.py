"""Every operator of torch's test database as on a GPU: its kernels in Triton's interpreter do as eager does, and are
machine code for sm_90."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tests.fuse.operators.operator_cases import operators  # noqa: E402
from tests.fuse.operators.operator_wall_triton import TritonReport  # noqa: E402
from tests.fuse.triton_kernels.interpreted import interpreting  # noqa: E402
from tests.fuse.triton_kernels.machine_code import assembled_together, functions_of, machine_code  # noqa: E402

import forked  # noqa: E402

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).with_name("operator_wall_triton.py")
PROCESSES = 2
"""Processes that share the operators, as many as machines for tests have cores. Together they take about 100 seconds
of a core."""
MOST_SECONDS = 1500
"""A machine that others share may take many times as long."""
BATCH = 64
"""Kernels compiled at a time: the collector rests meanwhile, and what a compiler has used stays in memory until it
works again."""
KNOWN_FUSED = (
    "add", "sigmoid", "softmax", "nn.functional.layer_norm", "sum", "where", "nn.functional.gelu", "gather", "argmax",
    "nn.functional.cross_entropy",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonReport]:
    file = tmp_path_factory.mktemp("wall") / "report.json"
    command = ["-W", "ignore", SCRIPT, "--json", file, "--processes", PROCESSES]
    done = forked.run(command, env=interpreting(), timeout=MOST_SECONDS)
    assert done.returncode in (0, 1), f"crashed with {done.returncode} after {done.stderr[-2000:]}"
    report = TritonReport.from_json(json.loads(file.read_text()))
    yield report
    print(f"\n{report}")


@pytest.mark.timeout(MOST_SECONDS)
def test_no_operator_is_wrong(report: TritonReport) -> None:
    assert not report.failures, "\n".join(report.failures)[-20000:]
    assert len(report.operators) > 0.95 * len(operators())  # the others have no samples of tensors on a CPU
    assert report.launches >= 2 * len(report.kernels) > 2000


@pytest.mark.timeout(MOST_SECONDS)
@pytest.mark.parametrize("name", KNOWN_FUSED)
def test_what_is_meant_to_be_fused_is(name: str, report: TritonReport) -> None:
    assert report.users[name], f"{name} has no kernel"


@pytest.mark.timeout(MOST_SECONDS)
def test_every_kernel_compiles_for_sm_90(report: TritonReport) -> None:
    sources = list(report.kernels.values())
    assert {source.key for source in sources} == set(report.kernels) == set().union(*report.users.values())
    with functions_of(sources):
        for start in range(0, len(sources), BATCH):
            batch = sources[start : start + BATCH]
            with assembled_together():
                binaries = machine_code(batch)
            assert [binary.pointers for binary in binaries] == [len(source.buffers) for source in batch]
    print(f"\n{len(sources)} kernels of {len(report.users)} operators compiled for sm_90")


SABOTAGE = {
    "another operation": ("add", " + in", " - in", "not close"),
    "a store elsewhere": ("sin", "tl.store(out_ptr0 + (", "tl.store(out_ptr0 + (1 + ", "outside of its buffers"),
    "a store into an input": ("sin", "tl.store(out_ptr0", "tl.store(in_ptr0", "only to read"),
    "a name of nothing": ("sin", "in1 = ", "in1 = nothing + ", "crashed"),
}
"""Per mistake an operator, what of its kernels' sources becomes what, and what the wall is to say."""


@pytest.fixture(scope="module")
def verdicts() -> dict[str, tuple[int, str]]:
    """Per mistake the wall's status and what it prints, all of one process: most of its time goes into imports."""
    program = f"""
import contextlib, io, json
from dataclasses import replace
from tests.fuse.operators import operator_wall_triton
from tests.fuse.triton_kernels import triton_run
write, verdicts = triton_run.triton_source, {{}}
for mistake, (operator, old, new, _) in {SABOTAGE!r}.items():
    def sabotaged(kernel, **tile):
        source = write(kernel, **tile)
        return replace(source, code=source.code.replace(old, new))
    triton_run.triton_source = sabotaged
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = operator_wall_triton.main([operator])
    verdicts[mistake] = status, printed.getvalue()
triton_run.triton_source = write
with contextlib.redirect_stdout(io.StringIO()) as printed:
    status = operator_wall_triton.main(["sin"])
assert status == 0, printed.getvalue()  # the mistakes were the sources' alone
print(json.dumps(verdicts))
"""
    done = forked.run(["-W", "ignore", "-c", program], env=interpreting(), cwd=SCRIPT.parents[3], timeout=220)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("mistake", SABOTAGE)
@pytest.mark.timeout(240)
def test_the_wall_sees_a_wrong_kernel(mistake: str, verdicts: dict[str, tuple[int, str]]) -> None:
    status, printed = verdicts[mistake]
    assert status == 1
    assert SABOTAGE[mistake][-1] in printed
