"""Other tools of the same process, which hold the watchers, the frame hook or the tracing: the answers stay plain
Python's."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import forked

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
SMALL_PROGRAM = PROGRAM.replace("range(6)", "range(1)")  # where every line of the compiler is counted
assert SMALL_PROGRAM != PROGRAM
TAKE_ALL_WATCHERS = """
import ctypes
signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
watch = signature(lambda *args: 0)
add = ctypes.pythonapi.PyDict_AddWatcher
taken = 0
try:
    while add(watch) >= 0: taken += 1
except RuntimeError:
    pass
assert taken >= 2, taken
"""


def run(program: str, **environment: str) -> str:
    """What the program writes. Settings of Python's own take a process of its own."""
    if environment:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
            env={**os.environ, **environment},
        )
    else:
        done = forked.run(["-c", program], timeout=300)
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


MIXED = """
import torch, framejit, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning)

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 2)
    def forward(self, x): return self.part(x).relu()

def plain(x): return x.sin() + 1
def breaking(x):
    y = x * 2
    print(end="")
    return y + 1
module, other = Module(), Module()
other.compile(backend="eager")
theirs, their_module = torch.compile(plain, backend="eager"), torch.compile(module, backend="eager")
ours, ours_breaking = framejit.optimize(plain), framejit.optimize(breaking)
both = lambda x: ours(x) * theirs(x) + ours_breaking(x)
CASES = {
    "theirs in ours": (framejit.optimize(lambda x: theirs(x) * 2), lambda x: plain(x) * 2),
    "their modules in ours": (
        framejit.optimize(lambda x: their_module(x) + other(x)), lambda x: module(x) + other.forward(x)
    ),
    "ours made theirs": (torch.compile(ours, backend="eager"), plain),
    "both in theirs": (torch.compile(both, backend="eager"), lambda x: plain(x) ** 2 + breaking(x)),
    "both in ours": (framejit.optimize(both), lambda x: plain(x) ** 2 + breaking(x)),
}
"""


@pytest.mark.parametrize(
    "case",
    ["theirs in ours", "their modules in ours", "ours made theirs", "both in theirs", "both in ours"],
)
def test_functions_of_torch_compile_and_of_ours_call_each_other(case):
    """Dynamo looks neither into our Python nor into our replacement code, and our hook leaves it its frames."""
    calls = f"""
fn, expected = CASES[{case!r}]
for size in (1, 2, 3, 1, 2):
    x = torch.randn(size, 2)
    torch.testing.assert_close(fn(x), expected(x))
assert "could not" not in str(framejit.status()) and "internal" not in str(framejit.status())
"""
    run(MIXED + calls)


def test_a_tracer_and_a_profiler():
    for tool in ("settrace", "setprofile"):
        traced = f"""
import sys
events = []
sys.{tool}(lambda frame, event, arg: events.append(event))
agree()
sys.{tool}(None)
assert events
agree()
"""
        run(PROGRAM + traced)


@pytest.mark.parametrize(
    "backend",
    [
        "settrace",
        pytest.param("monitoring", marks=pytest.mark.skipif(sys.version_info < (3, 14), reason="new in 3.14")),
    ],
)
def test_a_debugger(backend):
    """It stops at breakpoints in functions that are compiled, before and after they are, and steps through what
    follows."""
    tool = f"""
import bdb, linecache, os, tempfile
path = tempfile.mkstemp(suffix=".py")[1]
open(path, "w").write("def debugged(x):\\n    y = x * 2\\n    return below(y, model.part)\\n")
exec(compile(open(path).read(), path, "exec"))
quick = framejit.optimize(debugged, backend="eager")
stops = []
class Debugger(bdb.Bdb):
    def user_line(self, frame):
        if frame.f_code.co_name == "debugged":
            stops.append(frame.f_lineno)
        (self.set_next if len(stops) % 2 else self.set_continue)(*[frame] * (len(stops) % 2))
def stopped(fn):
    stops.clear()
    debugger = Debugger({'' if backend == "settrace" else 'backend="monitoring"'})
    assert debugger.set_break(path, 2) is None
    result = debugger.runcall(fn, x)
    debugger.clear_all_breaks()
    return result
assert torch.equal(stopped(debugged), debugged(x)) and stops[:1] == [2]
assert torch.equal(stopped(quick), debugged(x))
agree()
for _ in range(3): assert torch.equal(quick(x), debugged(x))
assert torch.equal(stopped(quick), debugged(x)) and torch.equal(quick(x), debugged(x))
agree()
os.unlink(path)
"""
    run(PROGRAM + tool)


@pytest.mark.parametrize("tool", ["trace", "cProfile"])
def test_coverage_and_profiles(tool):
    """What the standard library counts lines and calls with."""
    begin, end = {
        "trace": (
            "import trace; t = trace.Trace(count=True, trace=False); t.runfunc(agree)",
            "assert t.results().counts",
        ),
        "cProfile": (
            "import cProfile; t = cProfile.Profile(); t.runcall(agree)",
            "assert any(e.callcount for e in t.getstats())",
        ),
    }[tool]
    run(SMALL_PROGRAM + f"{begin}\n{end}\nagree()")
    run(SMALL_PROGRAM + f"agree()\n{begin}\n{end}\nagree()")


@pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
def test_coverage_py(core, tmp_path):
    """The tool that counts covered lines and branches in most projects, by each of its three ways."""
    pytest.importorskip("coverage")
    if core == "sysmon" and sys.version_info < (3, 14):
        pytest.skip("it counts no branches that way before 3.14")
    script = tmp_path / "program.py"
    script.write_text(SMALL_PROGRAM + "agree()\n")

    def lines(**environment):
        data, report = str(tmp_path / "data"), str(tmp_path / "report.json")
        measured = {**os.environ, "COVERAGE_CORE": core, "COVERAGE_FILE": data, **environment}
        for command in (["run", "--branch", str(script)], ["json", "-q", "-o", report, "--include", str(script)]):
            done = forked.run(["-m", "coverage", *command], timeout=300, env=measured)
            assert done.returncode == 0, done.stderr
        (found,) = json.loads(pathlib.Path(report).read_text())["files"].values()
        return found["executed_lines"], found["executed_branches"], found["missing_lines"]

    assert lines() == lines(FRAMEJIT_DISABLE="1")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_every_tool_of_monitoring_is_taken():
    """Nothing here needs one; a tool that switches its events off as they come changes code while it runs."""
    tool = """
import sys
m = sys.monitoring
counts = {}
def counted(kind):
    def callback(*args):
        counts[kind] = counts.get(kind, 0) + 1
        return m.DISABLE if kind in ("LINE", "PY_START", "CALL") and counts[kind] % 3 else None
    return callback
for tool in range(6):
    if m.get_tool(tool) is None: m.use_tool_id(tool, f"tool{tool}")
    for kind in ("LINE", "PY_START", "PY_RETURN", "CALL", "BRANCH" if sys.version_info < (3, 14) else "BRANCH_LEFT"):
        m.register_callback(tool, getattr(m.events, kind), counted(kind))
    m.set_events(tool, m.events.LINE | m.events.PY_START | m.events.PY_RETURN | m.events.CALL)
agree()
m.restart_events()
agree()
for tool in range(6):
    m.set_events(tool, 0); m.free_tool_id(tool)
assert counts["LINE"] and counts["PY_START"]
agree()
"""
    run(PROGRAM + tool)
    run(PROGRAM + "agree()" + tool)


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


def test_traces_of_the_jit_honour_the_frame_hook(tmp_path):
    """A loop that the JIT has traced along with the function it calls runs on while the hook is there."""
    script = tmp_path / "program.py"  # functions of no file are not captured
    script.write_text("""
import sys
import torch, framejit
from framejit.events import events
jit = getattr(sys, "_jit", None)
is_active = jit.is_active if jit else bool
x = torch.ones(2)

def small(t): return t + 1
def traced():
    active = False
    while True:
        for _ in range(6000):
            y = small(x)
            active = is_active() or active
        yield y, active

source = traced()
for _ in range(2): y, active = next(source)
assert active == (jit is not None and jit.is_enabled())

@framejit.optimize(backend="eager")
def consume(source, x):
    x = x * 2
    return x + next(source)[0]

def captured(): return {event.fields["function"] for event in events("capture_started")}
assert "small" not in captured()
assert torch.equal(consume(source, x), x * 2 + x + 1)
assert "small" in captured(), captured()
print(active)
""")
    program = f"import runpy; runpy.run_path({str(script)!r})"
    has_jit = hasattr(sys, "_jit") and sys._jit.is_available()
    assert run(program, PYTHON_JIT="1").split() == [str(has_jit)]
    assert run(program, PYTHON_JIT="0").split() == ["False"]


@pytest.mark.parametrize("first", ["", "import framejit"])
def test_a_subinterpreter(first):
    """With a lock of its own and with the main interpreter's, whether or not framejit works in that one."""
    program = """
try:
    import _interpreters as interpreters
    kinds = [("isolated",), ("legacy",)]
except ModuleNotFoundError:
    import _xxsubinterpreters as interpreters
    kinds = [()]
source = '''
try:
    import framejit
except ImportError as e:
    assert str(e) == "framejit works in the main interpreter of a process only, not in a subinterpreter", e
else:
    raise AssertionError("imported")
'''
for kind in kinds:
    made = interpreters.create(*kind)
    failure = interpreters.run_string(made, source)
    assert failure is None, failure
    interpreters.destroy(made)
"""
    run(f"{first}\n{program}")
