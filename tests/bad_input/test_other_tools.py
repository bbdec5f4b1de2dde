"""Other tools of the same process, which hold the watchers, the frame hook or the tracing: the answers stay plain Python's."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, framejit

class Part:
    def __init__(self): self.scale, self.names = 2.0, {"a": 1}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(6))
        self.part = Part()
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * self.part.scale
        print("", end="")
        return below(x, self.part)

def below(x, part):
    return x * FACTOR + sum(part.names.values())

FACTOR = 3
model, x = Model(), torch.ones(2, 3)
compiled = framejit.optimize(model, backend="eager")
def agree():
    global FACTOR
    for change in (None, None, "scale", "names", "key", "global", None):
        if change == "scale": model.part.scale = 5.0
        if change == "names": model.part.names["a"] = 7
        if change == "key": model.part.names["b"] = 1
        if change == "global": FACTOR = 4
        for _ in range(6):
            assert torch.equal(compiled(x), model(x)), change
"""
TAKE_ALL_WATCHERS = """
import ctypes
watch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(lambda *args: 0)
add = ctypes.pythonapi.PyDict_AddWatcher
taken = 0
try:
    while add(watch) >= 0: taken += 1
except RuntimeError:
    pass
assert taken >= 2, taken
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.version_info < (3, 12), reason="dictionaries have watchers from 3.12 on")
def test_no_watcher_is_left():
    # torch cannot be imported without one for itself
    access = "print(framejit._native.dict_access())"
    assert run("import torch" + TAKE_ALL_WATCHERS + PROGRAM + f"agree()\n{access}").split() == ["comparison"]
    assert run(PROGRAM + TAKE_ALL_WATCHERS + f"agree()\n{access}").split() == ["watcher"]


def test_torch_compile_has_the_frame_hook():
    other = """
def g(x): return torch.sin(x) + FACTOR
theirs = torch.compile(g, backend="eager")
assert torch.equal(theirs(x), g(x))
"""
    run(PROGRAM + other + "agree()\nassert torch.equal(theirs(x), g(x))\nagree()")
    run(PROGRAM + "agree()" + other + "agree()")


def test_a_tracer_and_a_profiler():
    run(PROGRAM + "import sys\nlines = []\nsys.settrace(lambda frame, event, arg: lines.append(event))\nagree()\nsys.settrace(None)\nassert lines\nagree()")
    run(PROGRAM + "import sys\ncalls = []\nsys.setprofile(lambda frame, event, arg: calls.append(event))\nagree()\nsys.setprofile(None)\nassert calls\nagree()")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_a_user_of_monitoring():
    tool = """
import sys
lines, m = [], sys.monitoring
m.use_tool_id(m.COVERAGE_ID, "lines")
m.register_callback(m.COVERAGE_ID, m.events.LINE, lambda code, line: lines.append(line))
m.set_events(m.COVERAGE_ID, m.events.LINE)
agree()
m.set_events(m.COVERAGE_ID, 0)
m.free_tool_id(m.COVERAGE_ID)
assert lines
agree()
"""
    run(PROGRAM + tool)
    run(PROGRAM + "agree()" + tool)


def test_the_jit_of_cpython():
    """Where the build has none, the variable says nothing."""
    run(PROGRAM + "for _ in range(40): agree()", PYTHON_JIT="1")


def test_a_subinterpreter():
    program = """
try:
    import _interpreters as interpreters
except ModuleNotFoundError:
    import _xxsubinterpreters as interpreters
source = '''
try:
    import framejit
except ImportError as e:
    assert str(e) == "framejit works in the main interpreter of a process only, not in a subinterpreter", e
else:
    raise AssertionError("imported")
'''
failure = interpreters.run_string(interpreters.create(), source)
assert failure is None, failure
"""
    run(program)
