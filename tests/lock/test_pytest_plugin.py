"""The pytest plugin: limits of a mark, the lock, and that it costs nothing where it is not used."""
import pathlib
import tomllib

import pytest

pytestmark = pytest.mark.slow  # a process for each run of a script

TESTS = """
    import pytest, torch, framejit

    @framejit.optimize
    def f(x):
        y = x + 1
        if y.sum() > 0:
            y = y.cumsum(0)
        return y

    @pytest.mark.framejit(max_graphs={graphs}, max_breaks={breaks})
    def test_it():
        f(torch.ones(3))
        f(torch.ones(3))
    """


def test_within_its_limits(project):
    project.write("test_a.py", TESTS.format(graphs=2, breaks=1))
    assert project.pytest().returncode == 0


def test_exceeding_them(project):
    project.write("test_a.py", TESTS.format(graphs=1, breaks=0))
    done = project.pytest()
    assert done.returncode == 1
    for line in (
        "2 graphs, at most 1 allowed",
        "1 breaks, at most 0 allowed",
        "  test_a.py::f: compiled in parts, graphs 2, recompiles 0",
        "    graph break [FJ106] at `if y.sum() > 0:`: bool() of a tensor needs its data",
    ):
        assert line in done.stdout.splitlines()


def test_a_test_that_fails_fails_for_its_own_reason(project):
    project.write("test_a.py", TESTS.format(graphs=0, breaks=0) + "    assert 1 == 2\n")
    done = project.pytest()
    assert "assert 1 == 2" in done.stdout and "at most" not in done.stdout


@pytest.mark.parametrize(
    ("mark", "message"),
    [("max_graph=1", "did you mean 'max_graphs'"), ("max_graphs=-1", "a number from 0"), ("1", "by name")],
)
def test_a_mark_that_makes_no_sense(project, mark, message):
    project.write("test_a.py", f"import pytest\n@pytest.mark.framejit({mark})\ndef test_it():\n    pass\n")
    done = project.pytest()
    assert done.returncode != 0 and message in done.stdout + done.stderr


def test_a_lock(project):
    project.write("test_a.py", TESTS.format(graphs=9, breaks=9))
    missing = project.pytest("--framejit-lock", "framejit.lock")
    assert (
        missing.returncode == 1
        and "knows nothing of test_a.py::test_it: run pytest with --framejit-update" in missing.stdout
    )
    assert project.pytest("--framejit-lock", "framejit.lock", "--framejit-update").returncode == 0
    assert project.pytest("--framejit-lock", "framejit.lock").returncode == 0
    project.change("test_a.py", "y = x + 1", "y = x + x.max().repeat(17).tolist()[0]")
    drifted = project.pytest("--framejit-lock", "framejit.lock")
    assert (
        drifted.returncode == 1
        and "+ graph break [FJ1" in drifted.stdout
        and "not as framejit.lock says:" in drifted.stdout
    )


def test_updating_needs_a_file(project):
    done = project.pytest("--framejit-update")
    assert done.returncode == 4 and "needs --framejit-lock FILE" in done.stderr


def test_unused_it_imports_nothing_heavy(project):
    project.write(
        "test_a.py", "import sys\ndef test_it():\n    assert not {'torch', 'framejit', 'numpy'} & set(sys.modules)\n"
    )
    done = project.pytest(fresh=True)
    assert done.returncode == 0, done.stdout


def test_it_is_registered():
    with open(pathlib.Path(__file__).parents[2] / "pyproject.toml", "rb") as f:
        project = tomllib.load(f)
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_framejit": "pytest_framejit"}
    assert project["tool"]["setuptools"]["py-modules"] == ["pytest_framejit"]
