"""`benchmarks/train_gpt.py` under `framejit run` learns what it learns without, goes on from a checkpoint, and is
compiled once."""

import json
import os
import pathlib

import pytest

import forked

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "train_gpt.py"
SMALL = ["--steps", "12", "--evaluate", "6", "--width", "32", "--block", "32", "--batch", "4", "--device", "cpu"]


def trained(folder, name, compiled, *options):
    """The losses, and what was compiled anew."""
    losses, log = folder / f"{name}.json", folder / f"{name}.log"
    before = ["-m", "framejit", "run"] if compiled else []
    done = forked.run(
        [*before, SCRIPT, *SMALL, "--losses", losses, "--checkpoint", folder / f"{name}.pt", *options],
        env={**os.environ, "FRAMEJIT_LOGS": f"recompiles,file={log}"}, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(losses.read_text()), log.read_text() if log.exists() else ""


@pytest.mark.process
@pytest.mark.parametrize("precision", [["--single"], []])
def test_losses_are_eagers(tmp_path, precision):
    eager, _ = trained(tmp_path, "eager", False, *precision)
    ours, log = trained(tmp_path, "ours", True, *precision)
    tolerance = 1e-4 if precision else 5e-3
    assert ours["losses"] == pytest.approx(eager["losses"], abs=tolerance)
    assert ours["evaluated"] == pytest.approx(eager["evaluated"], abs=tolerance)
    assert "recompiling" not in log
    if not precision:
        return
    trained(tmp_path, "parts", True, *precision, "--stop", "6")
    parts, _ = trained(tmp_path, "parts", True, *precision)
    assert len(parts["losses"]) == 12 and parts["losses"] == pytest.approx(ours["losses"], abs=tolerance)
