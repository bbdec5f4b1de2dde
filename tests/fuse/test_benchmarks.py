"""The benchmark commands run from a checkout, in their smallest size, and write what they say they write. Nothing here
looks at times."""
import argparse
import json
import math
import pathlib
import sys

import pytest

import forked

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"


def run(command, tmp_path, *options):
    figures = tmp_path / "figures.json"
    common = ["--device", "cpu", "--size", "tiny", "--impls", "ours,eager", "--rounds", "1", "--json", str(figures)]
    started = [str(BENCHMARKS / command), *common, *options]
    done = forked.run(started, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(figures.read_text())
    assert {"torch", "python", "device", "dtype", "size", "backend", "rows", "summary"} <= written.keys()
    for row in written["rows"]:
        assert row["name"] in done.stdout
    return {row["name"]: row for row in written["rows"]}, done.stdout


def assert_measured(row):
    for implementation in ("ours", "eager"):
        result = row[implementation]
        assert result["right"] is True, result
        assert result["seconds"] > 0 and result["first_s"] > 0 and 0 <= result["noise"] < math.inf
    assert math.isclose(row["of_eager"], row["ours"]["seconds"] / row["eager"]["seconds"])
    assert row["of_compile"] is None and "compile" not in row


@pytest.mark.process
def test_kernels(tmp_path):
    rows, printed = run("kernels.py", tmp_path)
    assert len(rows) == 9
    for row in rows.values():
        assert_measured(row)
        assert row["bandwidth"]["ours"] > 0
    assert "copy ceiling" in printed and "geometric mean" in printed


@pytest.mark.process
def test_small_graphs(tmp_path):
    rows, _ = run("small_graphs.py", tmp_path)
    assert set(rows) == {"tiny_op", "many_tensors", "matmul_softmax", "small_mlp"}
    for row in rows.values():
        assert_measured(row)
        assert row["verdict"] in ("ok", "short")
        assert row["ours"]["host_s"] > 0


@pytest.mark.process
def test_training(tmp_path):
    rows, _ = run("training.py", tmp_path, "--only", "lstm")
    assert set(rows) == {"lstm"}
    assert_measured(rows["lstm"])
    assert rows["lstm"]["ours"]["error_worst"] < 1e-4
    assert rows["lstm"]["ours"]["peak_bytes"] > 0


@pytest.mark.process
def test_models(tmp_path):
    pytest.importorskip("transformers")
    rows, _ = run("models.py", tmp_path, "--only", "bert,llama")
    for row in rows.values():
        assert_measured(row)
        assert row["ours"]["peak_bytes"] > 0
        assert row["eager"]["peak_bytes"] > 0


@pytest.mark.process
def test_cold_start(tmp_path):
    rows, _ = run("cold_start.py", tmp_path, "--only", "pw_sum", "--impls", "ours,eager")
    ours, eager = rows["pw_sum"]["ours"], rows["pw_sum"]["eager"]
    assert min(ours["cold_s"], ours["warm_s"], ours["start_s"], ours["peak_mb"], eager["cold_s"]) > 0


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measure

    yield measure
    for name in ("measure", "workloads", "capture"):
        sys.modules.pop(name, None)


def test_a_failure_stays_in_its_row(measure, capsys):
    import torch
    from workloads import WORKLOADS, Setting, Workload

    def unbuildable(setting):
        raise ModuleNotFoundError("No module named 'absent'")

    workloads = [Workload("needs_more", "model", "", unbuildable), WORKLOADS["tiny_op"]]
    options = argparse.Namespace(impls=["ours", "eager"], backend="no such backend", rounds=1)
    (_, row), = measure.run_all(workloads, Setting("cpu", torch.float32, "tiny"), options)
    assert "needs_more" in capsys.readouterr().out
    assert "UnknownBackend" in row.ours.error and "UnknownBackend" in row.remarks()
    assert row.judge(True) == "FAILED" and row.of_eager is None
    assert row.eager.right is True and row.eager.seconds > 0
    assert measure.exit_code([row]) == 1


def test_wrong_results_are_told_from_rounding(measure):
    import torch
    from workloads import WORKLOADS, Setting

    case = WORKLOADS["softmax"].make(Setting("cpu", torch.float32, "tiny"))

    def one_wrong_row(x):
        result = case.fn(x)
        result[-1] *= 1.01
        return result

    sides = {
        "same": case.fn,
        "in another order": lambda x: torch.softmax(x.flip(1) * 0.125, dim=1).flip(1),
        "one wrong row": one_wrong_row,
        "another type": lambda x: case.fn(x).double(),
        "another shape": lambda x: case.fn(x)[:-1],
        "not a number": lambda x: case.fn(x) * float("nan"),
    }
    results = {name: measure.Result() for name in sides}
    measure.check(case, sides, results)
    assert [name for name, result in results.items() if result.right] == ["same", "in another order"]
    assert not any(result.error for result in results.values())


def test_every_implementation_gets_other_inputs_of_the_same_shape(measure):
    import torch
    from workloads import WORKLOADS, Setting

    for workload in WORKLOADS.values():
        if workload.kind != "model":
            case = workload.make(Setting("cpu", torch.bfloat16, "tiny"))
            one, other = (measure.tensors_in(case.args(seed)) for seed in (1, 2))
            assert [t.shape for t in one] == [t.shape for t in other] and not all(
                torch.equal(a, b) for a, b in zip(one, other)
            )
            assert all(t.dtype in (torch.bfloat16, torch.int64) for t in one)


REPORTED = {
    "rows": [
        {
            "name": "tiny", "ours": {"seconds": 2.0, "first_s": 8.0, "kernels": 3}, "eager": {"seconds": 4.0},
            "bandwidth": {"ours": 0.5},
        },
        {"name": "call", "framejit": 3.0, "bare": 2.0},
    ],
    "models": {"bert": {"framejit": {"first_s": 1.0, "graphs": 5}, "torch.compile": {"first_s": 9.0}}},
}


@pytest.mark.parametrize(("slower", "worse"), [("1.05", []), ("1.5", ["tiny seconds"])])
def test_two_checkouts_are_compared_figure_by_figure(tmp_path, slower, worse):
    """Programs that write a report stand for the benchmarks: of the checkout afterwards one figure is larger."""
    for name, factor in (("before", "1"), ("after", slower)):
        (tmp_path / name / "benchmarks").mkdir(parents=True)
        (tmp_path / name / "benchmarks" / "kernels.py").write_text(
            f"import json, sys\nreport = {REPORTED!r}\nreport['rows'][0]['ours']['seconds'] *= {factor}\n"
            "json.dump(report, open(sys.argv[sys.argv.index('--json') + 1], 'w'))\nsys.exit(1)\n"
        )
        (tmp_path / name / "benchmarks" / "models.py").write_text("raise MemoryError('too large')\n")
    report = tmp_path / "report.json"
    command = [BENCHMARKS / "checkouts.py", tmp_path / "before", tmp_path / "after", "--json", report, "--rounds", "2"]
    done = forked.run([*command, "--only", "kernels"], timeout=60)
    assert done.returncode == bool(worse), done.stderr
    rows = {row["name"]: row for row in json.loads(report.read_text())["kernels"]}
    assert set(rows) == {"tiny seconds", "tiny first_s", "bert first_s", "call"}
    assert [name for name, row in rows.items() if row["worse"]] == worse
    assert rows["tiny seconds"]["ratio"] == float(slower) and rows["tiny seconds"]["plain"] == 1.0
    assert rows["bert first_s"]["plain"] is None
    failed = forked.run([*command, "--only", "models"], timeout=60)
    assert failed.returncode == 1 and "MemoryError: too large" in failed.stdout
