"""Each rewrite that is advertised as checked is applied here to the file itself, and looked at from outside."""
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
import torch

import framejit
from framejit.findings import Explanation
from framejit.findings.rewrites import propose, trial
from framejit.findings.rewrites.propose import IN_A_LIBRARY, NO_TIME

from comparison import assert_same

SAMPLES = pathlib.Path(__file__).parent / "samples.py"
X = torch.arange(1.0, 5.0)


@pytest.fixture(autouse=True)
def no_branch_is_selected():
    """Each `if` on data breaks the graph, however short it is."""
    with framejit.config.patch(branch_operations=0):
        yield


def load(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def samples(tmp_path):
    copy = tmp_path / "framejit_samples.py"
    shutil.copy(SAMPLES, copy)
    yield load(copy)
    sys.modules.pop(copy.stem, None)


def apply(diff: str, path: pathlib.Path) -> None:
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1", "-"], input=diff, cwd=path.parent, text=True, capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


NAMES = [fn.__name__ for fn in load(SAMPLES).FUNCTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_a_rewrite_removes_the_break_and_keeps_the_result(samples, name, tmp_path, capsys):
    fn = getattr(samples, name)
    explanation = framejit.explain(fn)(X)
    found = [finding for finding in explanation.findings if finding.rewrite]
    assert found, f"no rewrite of {[str(f) for f in explanation.findings]}"
    assert all(finding.rewrite_checked for finding in found)
    finding = found[0]
    expected = fn(X)
    before = sum(finding.count for finding in explanation.findings)
    apply(finding.rewrite, pathlib.Path(samples.__file__))
    rewritten = getattr(load(pathlib.Path(samples.__file__)), name)
    after = framejit.explain(rewritten)(X)
    assert sum(finding.count for finding in after.findings) < before
    assert finding.excerpt.splitlines()[0].strip() not in [f.excerpt.splitlines()[0].strip() for f in after.findings]
    assert_same(expected, after.result, rtol=1e-5, atol=1e-6)
    assert_same(expected, rewritten(X), rtol=1e-5, atol=1e-6)
    if finding.next_break is not None:
        assert finding.next_break.line in [f.line for f in after.findings]


def test_the_method_of_a_module(samples):
    torch.manual_seed(0)
    explanation = framejit.explain(samples.Scaled())(X)
    [finding] = explanation.findings
    assert finding.rewrite_checked
    assert "+        return y / y.abs().max().repeat(17)[0]" in finding.rewrite.splitlines()


def test_the_next_break_is_named(samples):
    [finding] = framejit.explain(samples.numbers_gathered_in_a_loop)(X).findings
    assert finding.count == 3
    assert finding.next_break.code == "FJ101"
    assert finding.next_break.source == "return x, torch.stack(losses).tolist()"


def test_a_wrong_rewrite_is_not_shown():
    """Python numbers leave the function, so that `.tolist()` can't just go."""

    def fn(x):
        return x + 1, x.max().repeat(17).tolist()[0]

    [finding] = framejit.explain(fn)(X).findings
    assert finding.rewrite is None and not finding.rewrite_checked


def test_checking_does_not_touch_the_program():
    calls = []

    def fn(x):
        calls.append(len(calls))
        x += 1
        return x / x.max().repeat(17).tolist()[0]

    x = X.clone()
    explanation = framejit.explain(fn)(x)
    assert calls == [0]
    assert torch.equal(x, X + 1)
    assert [f.rewrite_checked for f in explanation.findings] == [True]


def test_what_can_not_be_tried_says_so():
    def fn(x, handle):
        return x / x.max().repeat(17).tolist()[0]

    with open(__file__) as handle:  # a file can't be copied
        [finding] = framejit.explain(fn)(X, handle).findings
    assert finding.rewrite and not finding.rewrite_checked
    assert "rewrite (not checked: the arguments of the call could not be copied)" in str(finding)


def test_where_no_time_is_left_there_is_a_note_instead():
    def fn(x):
        y = x / x.max().repeat(17).tolist()[0]
        if y.sum() > 0:
            y = y + 1
        return y

    explanation = Explanation()
    listening = explanation.listen()
    framejit.optimize(fn)(X)
    listening.stop()
    explanation.find_rewrites(0.0)
    assert [(f.rewrite, f.rewrite_checked, f.rewrite_note) for f in explanation.findings] == [
        (None, False, NO_TIME)
    ] * 2
    assert f"2 findings without a rewrite: {NO_TIME}" in str(explanation)


def test_a_process_that_dies_in_a_trial_does_not_take_the_others_with_it(monkeypatch):
    """The trial of the first proposal kills its process; the second finding is tried in another one."""
    run, tried = trial._Trials.run, []

    def first_kills(self, proposal):
        if proposal.finding.code == "FJ101":
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self, proposal)

    monkeypatch.setattr(trial._Trials, "run", first_kills)
    forked = propose.forked
    monkeypatch.setattr(propose, "forked", lambda proposals: tried.append(len(proposals)) or forked(proposals))

    def fn(x):
        y = x / x.max().repeat(17).tolist()[0]
        if y.sum() > 0:
            y = y + 1
        return y

    explanation = Explanation()
    listening = explanation.listen()
    framejit.optimize(fn)(X)
    listening.stop()
    by_code = {finding.code: finding for finding in explanation.findings}
    by_code["FJ101"].cost_us = 1e9  # so it is tried first
    explanation.find_rewrites()
    assert by_code["FJ101"].rewrite is None and by_code["FJ106"].rewrite_checked
    assert len(tried) > 1 and tried == sorted(tried, reverse=True)


def test_trials_in_one_process_leave_nothing_to_each_other(samples, tmp_path):
    """Several proposals are tried one after the other on the same program; each sees the program as it is."""
    explanation = Explanation()
    listening = explanation.listen()
    for name in ("unsupported_call", "branch_that_assigns", "item"):
        framejit.optimize(getattr(samples, name))(X)
    listening.stop()
    explanation.find_rewrites()
    assert len(explanation.findings) >= 3 and all(f.rewrite_checked for f in explanation.findings)
    with_helper = [f for f in explanation.findings if "+@framejit.assume_constant" in f.rewrite.splitlines()]
    assert with_helper and all(f.function == "unsupported_call" for f in with_helper)


def test_libraries_are_rewritten_on_request_only(monkeypatch):
    monkeypatch.setattr("framejit.findings.evidence._LIBRARIES", (os.path.dirname(__file__),))

    def fn(x):
        return x / x.max().repeat(17).tolist()[0]

    def explained(**options):
        explanation = Explanation()
        listening = explanation.listen()
        framejit.optimize(fn)(X)
        listening.stop()
        explanation.find_rewrites(**options)
        [finding] = explanation.findings
        return finding

    found = explained()
    assert (found.rewrite, found.rewrite_note) == (None, IN_A_LIBRARY)
    assert explained(libraries=True).rewrite_checked


def test_a_function_that_never_ends_in_the_check(monkeypatch):
    import time

    monkeypatch.setattr("framejit.findings.rewrites.checking.answer", lambda *args: time.sleep(60))
    monkeypatch.setattr("framejit.findings.rewrites.propose.SECONDS", 0.5)

    def fn(x):
        return x / x.max().repeat(17).tolist()[0]

    start = time.monotonic()
    [finding] = framejit.explain(fn)(X).findings
    assert time.monotonic() - start < 20
    assert finding.rewrite is None
