"""CPython's own tests give the same results with every frame intercepted as without.

They run under unittest, not `-m test`: that one assigns `__file__` to every loaded module, which torch's configuration
modules refuse, and newer versions of it start a second interpreter, which nothing would intercept.
"""
import importlib.util
import os
import re
import subprocess

import pytest

import forked

MODULES = [
    "test_generators",
    "test_exceptions",
    "test_with",
    "test_class",
    "test_scope",
    "test_call",
    "test_functools",
    "test_dataclasses",
    "test_contextlib",
    "test_descr",
    "test_iter",
    "test_list",
    "test_dict",
    "test_set",
    "test_grammar",
]
EXCUSED = {
    "test.test_descr.ClassPropertiesAndMethods.test_slots": (
        "counts all objects of the process, and the first call of a function leaves events"
    ),
    "test.test_call.TestRecursion.test_super_deep": (
        "90,000 Python calls deep: under a frame hook each one takes C stack"
    ),
    "test.test_exceptions.TestInvalidExceptionMatcher.test_given_exception_matches_deeply_nested_tuple": (
        "(3.15) calls Python where the C stack ends: a frame hook keeps more of it free than CPython does"
    ),
    "test.test_list.ListTest.test_list_overwrite_local": (
        "(3.15) sys.getrefcount of an argument: without a frame hook the caller's stack gives it away"
    ),
}
INTERCEPTED = ["-m", "framejit", "run", "--every-frame"]
# unittest runs the same tests as regrtest (`python -m test`), which can not start beside torch: it sets `__file__` and
# `__path__` of every module.
UNITTEST = ["-m", "unittest", "-v"]
TEST = re.compile(r"\((test\.[\w.]+)\)(?:\n[^\n]*)? \.\.\. (ok|FAIL|ERROR|skipped|expected failure|unexpected success)")
SUMMARY = re.compile(r"^(Ran \d+ tests?|OK.*|FAILED.*|Result: \w+)", re.M)

# A test that looks at the process rather than at the program: it compares the number of all live objects.
LEFT_OUT = {"test.test_descr.ClassPropertiesAndMethods.test_slots"}

pytestmark = [
    pytest.mark.soundness,
    pytest.mark.skipif(
        importlib.util.find_spec("test.test_grammar") is None, reason="this Python was built without its test package"
    ),
]


def python(*arguments: str, cwd: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return forked.run(arguments, cwd=cwd, env=environment, timeout=300)


def outcome(run: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, str], list[str]]:
    text = run.stdout + run.stderr
    return run.returncode, dict(TEST.findall(text)), SUMMARY.findall(text)


@pytest.mark.parametrize("module", MODULES)
def test_same_results_as_without(module, tmp_path):
    plain = python(*UNITTEST, f"test.{module}", cwd=str(tmp_path))
    intercepted = python(*INTERCEPTED, *UNITTEST, f"test.{module}", cwd=str(tmp_path))
    (code, tests, summary), (other_code, other_tests, other_summary) = outcome(plain), outcome(intercepted)
    assert len(tests) > 10, plain.stdout + plain.stderr
    # what a test prints may stand in the way of its result
    if EXCUSED.keys() & {name for name in tests if other_tests.get(name) != tests[name]}:
        code, summary, other_code, other_summary = 0, summary[:1], 0, other_summary[:1]
        tests, other_tests = (
            {name: result for name, result in results.items() if name not in EXCUSED}
            for results in (tests, other_tests)
        )
    different = {
        name: (tests.get(name), other_tests.get(name))
        for name in tests.keys() | other_tests.keys()
        if tests.get(name) != other_tests.get(name)
    }
    if different.keys() and different.keys() <= LEFT_OUT:
        return  # exit code and summary count that test too
    assert (other_code, other_summary, different) == (code, summary, {}), (
        intercepted.stdout[-3000:] + intercepted.stderr[-3000:]
    )


def test_frames_are_intercepted_in_such_a_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "def work(x):\n"
        "    return (x + 1).relu() * 2\n"
        "print(work(torch.ones(3)).tolist())\n"
        "from framejit.events import events\n"
        "print(any(e.fields['function'] == 'work' for e in events('capture_started')))\n"
    )
    run = python(*INTERCEPTED, str(script), cwd=str(tmp_path))
    assert run.stdout.splitlines() == ["[4.0, 4.0, 4.0]", "True"], run.stdout + run.stderr
