"""`framejit check`: the lock it writes, what it fails for and what it says, and that the script stays the script."""
import json

import pytest

pytestmark = pytest.mark.slow  # a process for each run of a script

SCRIPT = """
    import sys
    import torch

    def inner(x):
        return x.relu() + 1

    def outer(x):
        y = inner(x * 2)
        return y / y.max()

    print(sys.argv, outer(torch.arange(3.0)).tolist())
    if "fail" in sys.argv:
        sys.exit(7)
    if "raise" in sys.argv:
        raise ValueError("as asked")
    """


@pytest.fixture
def script(project):
    return project.write("model.py", SCRIPT)


def test_writes_a_lock_without_paths_or_line_numbers_and_passes(project, script):
    done = project.check("--update", "model.py")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("['model.py'] [0.2")
    text = (project.folder / "framejit.lock").read_text()
    assert str(project.folder) not in text
    assert json.loads(text) == {
        "version": 1,
        "programs": {
            "model.py": {"model.py::outer": {"state": "compiled", "graphs": 1, "recompiles": 0, "breaks": []}}
        },
    }
    again = project.check("model.py")
    assert (again.returncode, again.stderr) == (0, "")
    project.check("--update", "model.py")
    assert (project.folder / "framejit.lock").read_text() == text


def test_other_lines_and_comments_are_no_drift(project, script):
    project.check("--update", "model.py")
    project.change("model.py", "def outer", "# a comment\n\n\ndef outer")
    assert project.check("model.py").returncode == 0


def test_a_new_break_fails_with_a_readable_difference(project, script):
    project.check("--update", "model.py")
    project.change("model.py", "y.max()", "y.max().repeat(17).tolist()[0]")
    done = project.check("model.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "[framejit] model.py is not as framejit.lock says:"
    assert "[framejit]   model.py::outer" in lines
    assert "[framejit]     state: compiled in the lock, now compiled in parts" in lines
    source = "at `return y / y.max().repeat(17).tolist()[0]`"
    assert any("+ graph break [FJ1" in line and source in line for line in lines)
    assert lines[-1] == "[framejit] if it is meant to be so: framejit check --update model.py"
    project.check("--update", "model.py")
    assert project.check("model.py").returncode == 0
    project.change("model.py", "y.max().repeat(17).tolist()[0]", "y.max()")
    assert "- graph break" in project.check("model.py").stderr


def test_recompiles_are_drift(project, script):
    project.check("--update", "model.py")
    project.change("model.py", "print(", "outer(torch.arange(4.0))\nprint(")
    done = project.check("model.py")
    assert done.returncode == 1
    assert "recompiles: 0 in the lock, now 1" in done.stderr and "graphs: 1 in the lock, now 2" in done.stderr


def test_new_and_missing_functions(project, script):
    project.check("--update", "model.py")
    project.change("model.py", "outer", "renamed")
    done = project.check("model.py")
    assert "model.py::outer: was compiled, 1 graph, is not seen any more" in done.stderr
    assert "model.py::renamed: new, compiled, 1 graph" in done.stderr


@pytest.mark.parametrize(("argument", "code"), [("fail", 7), ("raise", 1)])
def test_a_script_that_fails_ends_as_it_would_and_writes_nothing(project, script, argument, code):
    done = project.check("--update", "model.py", argument)
    assert done.returncode == code
    assert ("ValueError: as asked" in done.stderr) == (argument == "raise") and "framejit/" not in done.stderr
    assert not (project.folder / "framejit.lock").exists()


def test_arguments_are_part_of_the_name(project, script):
    project.check("--update", "model.py", "--size", "two words")
    assert list(json.loads((project.folder / "framejit.lock").read_text())["programs"]) == [
        "model.py --size 'two words'"
    ]
    done = project.check("model.py")
    assert (
        done.returncode == 2
        and "framejit.lock knows nothing of model.py: write it with `framejit check --update model.py`" in done.stderr
    )


def test_without_a_script_all_that_the_lock_names_are_run(project, script):
    assert project.check().returncode == 2
    project.check("--update", "model.py")
    project.check("--update", "-m", "model", "b")
    done = project.check()
    assert done.returncode == 0 and done.stdout.count("0.6000000238418579") == 2
    project.change("model.py", "y.max()", "y.max().repeat(17).tolist()[0]")
    assert project.check().returncode == 1


def test_captures_that_earlier_runs_have_kept_change_nothing(project, monkeypatch):
    """A kept capture with symbolic sizes would spare the recompile that leads to it, on this machine only."""
    monkeypatch.setenv("FRAMEJIT_KEEP_CAPTURES", "1")
    monkeypatch.setenv("FRAMEJIT_CACHE_DIR", str(project.folder / "cache"))
    project.write("sizes.py", """
        import framejit, torch
        framejit.events.subscribe(lambda event: print(event.kind))
        @framejit.optimize
        def scores(x):
            return (x * 2).softmax(-1)
        for n in (3, 4, 5):
            scores(torch.ones(2, n))
        """)
    project.check("--update", "sizes.py")
    lock = project.folder / "framejit.lock"
    cold = lock.read_text()
    assert json.loads(cold)["programs"]["sizes.py"]["sizes.py::scores"]["recompiles"] == 1
    assert "capture_kept" in project.python("sizes.py").stdout and "capture_found" in project.python("sizes.py").stdout
    assert (project.check("sizes.py").returncode, project.check("sizes.py").stderr) == (0, "")
    project.check("--update", "sizes.py")
    assert lock.read_text() == cold


def test_a_lock_elsewhere_and_a_file_that_is_none(project, script):
    (project.folder / "locks").mkdir()
    project.check("--update", "--lock", "locks/my.lock", "model.py")
    assert project.check("--lock", "locks/my.lock", "model.py").returncode == 0
    project.write("framejit.lock", "not json")
    assert "is no lock of framejit" in project.check("model.py").stderr
    project.write("framejit.lock", '{"version": 99, "programs": {}}')
    assert "version 99" in project.check("model.py").stderr


def test_a_script_that_does_not_exist(project):
    done = project.check("--update", "nothing.py")
    assert done.returncode == 1 and "cannot run 'nothing.py'" in done.stderr
