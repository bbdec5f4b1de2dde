"""`framejit run`, `status` and `explain` on unchanged scripts: arguments, exit code, output and exceptions are the
script's own."""
import json
import os
import subprocess
import sys
import textwrap

import pytest

import forked

pytestmark = pytest.mark.process


@pytest.fixture
def shell(tmp_path):
    """Writes files, and runs Python in their folder."""

    class Shell:
        def write(self, name: str, text: str) -> None:
            (tmp_path / name).write_text(textwrap.dedent(text))

        def python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
            return forked.run(arguments, cwd=tmp_path, env={**os.environ, **environment}, timeout=300)

        def framejit(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
            return self.python("-m", "framejit", *arguments, **environment)

        def same(
            self, *arguments: str, framejit: tuple[str, ...] = ("run",), fresh: bool = False
        ) -> subprocess.CompletedProcess:
            """The script runs as it does without framejit. `fresh`: in processes in which nothing stands below it, not
            even in a traceback."""
            commands = arguments, ("-m", "framejit", *framejit, *arguments)
            if fresh:
                plain, ours = (
                    subprocess.run([sys.executable, *line], cwd=tmp_path, capture_output=True, text=True, timeout=300)
                    for line in commands
                )
            else:
                plain, ours = (self.python(*line) for line in commands)
            assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)
            return ours

    return Shell()


@pytest.fixture
def script(shell):
    shell.write(
        "script.py",
        """
        import os, sys
        import torch

        def inner(x):
            if len(sys.argv) > 1 and sys.argv[1] == "raise":
                raise ValueError("as asked")
            return x.relu() + 1

        def outer(x):
            y = inner(x * 2)
            return y / y.max().repeat(17).tolist()[0]

        print(sys.argv, __name__, os.path.basename(__file__), sys.path[0] == os.path.dirname(__file__))
        print(outer(torch.arange(3.0)))
        if sys.argv[1:2] == ["exit"]:
            sys.exit(7)
        """,
    )


@pytest.mark.parametrize("arguments", [(), ("exit",), ("raise",), ("--backend", "mine", "-m"), ("--help",)])
def test_a_script_runs_as_without(shell, script, arguments):
    shell.same("script.py", *arguments)


def test_a_module(shell, script):
    assert shell.same("-m", "script", "exit").returncode == 7


def test_a_module_in_a_package(shell, tmp_path):
    (tmp_path / "pkg").mkdir()
    shell.write("pkg/__init__.py", "")
    shell.write("pkg/other.py", "value = 3")
    shell.write("pkg/__main__.py", "from .other import value; print(value, __package__, __spec__.name)")
    shell.same("-m", "pkg")


def test_an_interrupted_script(shell):
    shell.write("interrupted.py", "raise KeyboardInterrupt")
    assert shell.same("interrupted.py", fresh=True).returncode != 0


def test_a_syntax_error(shell):
    shell.write("broken.py", "a b c")
    shell.same("broken.py", fresh=True)


def test_an_excepthook_of_the_script_s_own(shell):
    shell.write(
        "hooked.py",
        """
        import sys, traceback
        sys.excepthook = lambda kind, error, trace: print("caught", kind.__name__, traceback.extract_tb(trace)[0].name)
        raise ValueError
        """,
    )
    assert shell.same("hooked.py").stdout == "caught ValueError <module>\n"


def test_classes_of_the_script_can_be_pickled(shell):
    shell.write(
        "pickles.py",
        """
        import pickle
        class Point:
            def __init__(self, x): self.x = x
        print(pickle.loads(pickle.dumps(Point(3))).x)
        """,
    )
    shell.same("pickles.py")


def test_a_module_attribute_of_main(shell):
    shell.write(
        "main.py", "import __main__, sys; here = 1; print(__main__.here, sys.modules['__main__'].__dict__ is globals())"
    )
    shell.same("main.py")


@pytest.mark.parametrize("target", [("nowhere.py",), ("-m", "nowhere"), (".",)])
def test_what_is_not_there(shell, target):
    done = shell.framejit("run", *target)
    assert done.returncode == 1
    assert done.stderr.startswith(f"framejit: cannot run {target[-1]!r}: ") and done.stderr.count("\n") == 1


def test_an_unknown_backend(shell, script):
    done = shell.framejit("run", "--backend", "egaer", "script.py")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "framejit: there is no backend 'egaer'; did you mean 'eager'?\n"


def test_status_reports_at_the_end(shell, script):
    done = shell.framejit("status", "script.py", "exit")
    assert done.returncode == 7
    assert "outer" in done.stderr and "compiled in parts" in done.stderr
    assert done.stdout == shell.python("script.py", "exit").stdout


def test_explain_reports_at_the_end(shell, script, tmp_path):
    done = shell.framejit("explain", "--json", "report.json", "script.py")
    assert done.stdout == shell.python("script.py").stdout
    assert "script.py:12, in outer" in done.stderr and ".tolist()" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [finding["line"] for finding in report["findings"]] == [12]


def test_explain_reports_even_if_the_script_raises(shell, script):
    done = shell.framejit("explain", "script.py", "raise")
    assert done.returncode == 1
    assert "ValueError: as asked" in done.stderr and "1 frame seen" in done.stderr


def test_disabled_by_the_environment(shell, script):
    done = shell.framejit("status", "script.py", FRAMEJIT_DISABLE="1")
    assert done.stdout == shell.python("script.py").stdout
    assert "no function" in done.stderr


def test_what_is_called_once_or_while_others_import_costs_little(shell):
    """A module's constructor is not compiled, and a function without tensors is asked about once, even while
    torch._dynamo is being imported."""
    shell.write(
        "made.py",
        """
        import sys, types
        from importlib.machinery import ModuleSpec
        from collections import Counter
        import torch
        import framejit

        seen = Counter()

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(3) * 2)
                self.register_buffer("shift", self.weight.detach() + 1)

            def forward(self, x):
                return x * self.weight + self.shift

        def plain(n):
            return n + 1

        def listen(event):
            if event.kind == "frame_done":
                seen[event.function, event.state] += 1

        framejit.events.subscribe(listen)
        print(Net()(torch.ones(3)))
        real = sys.modules.pop("torch._dynamo", None)
        half = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
        half.__spec__ = ModuleSpec("torch._dynamo", None)
        half.__spec__._initializing = True
        total = sum([plain(n) for n in range(100)])
        del sys.modules["torch._dynamo"]
        print(total, {name: state for name, state in list(seen) if name in ("Net.__init__", "Net.forward")})
        print(seen["plain", "skipped"], seen["plain", "eager"])
        """,
    )
    done = shell.framejit("run", "made.py")
    assert done.stdout.splitlines()[1:] == [
        "5050 {'Net.__init__': 'skipped', 'Net.forward': 'compiled'}", "1 0",
    ], done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "tensor([5., 5., 5.], grad_fn=<CompiledBackward>)"


def test_every_frame(shell):
    shell.write("json_user.py", "import json; print(json.loads(json.dumps({'a': [1, 2.5, None]})))")
    shell.same("json_user.py", framejit=("run", "--every-frame"))


def test_version(shell):
    assert shell.framejit("--version").stdout.strip() == "0.1.0"


MOMENT = """
import sys, time
import torch

def work(x):
    return x.sin() * 2 + x.cos()

for i in range(int(sys.argv[1])):
    work(torch.ones(4))
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("options", "environment", "calls", "pause", "compiled"),
    [
        ((), "", "3", "0", False),  # all within a moment
        ((), "", "3", "0.4", True),
        (("--compile-after", "0"), "", "1", "0", True),
        (("--compile-after", "30"), "0", "3", "0.2", False),
        ((), "0", "1", "0", True),
    ],
)
def test_run_compiles_what_is_called_for_longer_than_a_moment(tmp_path, options, environment, calls, pause, compiled):
    (tmp_path / "moment.py").write_text(MOMENT)
    env = {**os.environ, "FRAMEJIT_LOGS": "status", "FRAMEJIT_COMPILE_AFTER": environment}
    if not environment:
        del env["FRAMEJIT_COMPILE_AFTER"]
    done = forked.run(
        ["-m", "framejit", "run", *options, "moment.py", calls, pause], cwd=tmp_path, env=env, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stderr.splitlines() if " work " in line]
    assert [" compiled " in row for row in rows] == [compiled], done.stderr


BUSY = """
import sys, time
import torch

from framejit import left_calls

def work(x):
    return x.sin() * 2 + x.cos()

begun = time.monotonic()
if sys.argv[1] == "busy":
    left_calls.waited_for_processors = lambda: time.monotonic() - begun
for i in range(4):
    work(torch.ones(4))
    time.sleep(0.4)
"""


@pytest.mark.parametrize("machine", ["busy", "idle"])
def test_time_in_which_a_program_did_not_come_to_run_does_not_count(tmp_path, machine):
    (tmp_path / "busy.py").write_text(BUSY)
    env = {**os.environ, "FRAMEJIT_LOGS": "status"}
    env.pop("FRAMEJIT_COMPILE_AFTER", None)
    done = forked.run(["-m", "framejit", "run", "busy.py", machine], cwd=tmp_path, env=env, timeout=120)
    rows = [line for line in done.stderr.splitlines() if " work " in line]
    assert [" compiled " in row for row in rows] == [machine == "idle"], done.stderr


RARELY = """
import sys, time
import torch

def work(x):
    return torch.sin(x) + 1

@torch.no_grad()
def evaluate(x):
    return sum(work(x).sum() for _ in range(3))

w = torch.ones(64, requires_grad=True)
for step in range(30):
    work(w)
    time.sleep(0.05)
for _ in range(int(sys.argv[1])):
    evaluate(w)
    time.sleep(0.05 if _ else 0.8)
"""


@pytest.mark.parametrize(("calls", "compiled"), [("3", False), ("15", True)])
def test_run_leaves_a_function_alone_that_is_called_rarely_and_calls_what_is_compiled(tmp_path, calls, compiled):
    (tmp_path / "rarely.py").write_text(RARELY)
    env = {**os.environ, "FRAMEJIT_LOGS": "status"}
    env.pop("FRAMEJIT_COMPILE_AFTER", None)
    done = forked.run(["-m", "framejit", "run", "rarely.py", calls], cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[2]: " compiled " in line for line in done.stderr.splitlines() if ".py:" in line}
    assert (rows["work"], rows["evaluate"]) == (True, compiled), done.stderr


EVALUATED = """
import time
import torch

import framejit

class Part(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) + 1

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.linear = Part(), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.part(self.linear(x)).relu()

def told():
    records = {record.function: record for record in framejit.status().functions}
    net, part = records["Net.forward"], records["Part.forward"]
    return net.entries, net.waiting is not None, net.recompiles, part.entries, part.state

net, x = Net(), torch.ones(4, 8)
for step in range(20):
    net(x).sum().backward()
    time.sleep(0.05)
end = time.monotonic() + 60
with torch.no_grad():
    print(told(), net(x).equal(net(x)), *told())
    while told()[0] < 2 and time.monotonic() < end:
        for _ in range(100):
            net(x)
print(*told(), net(x).requires_grad)
"""


def test_run_compiles_for_other_calls_once_they_have_taken_a_while(tmp_path):
    """Nor are the parts of what runs in Python meanwhile compiled one by one."""
    (tmp_path / "evaluated.py").write_text(EVALUATED)
    env = {**os.environ, "FRAMEJIT_LOGS": "status", "FRAMEJIT_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("FRAMEJIT_COMPILE_AFTER", None)
    done = forked.run(["-m", "framejit", "run", "evaluated.py"], cwd=tmp_path, env=env, timeout=120)
    assert done.stdout.splitlines() == [
        "(1, False, 0, 0, 'eager') True 1 True 0 0 eager", "2 False 1 0 eager True",
    ], done.stdout + done.stderr


UNROLLED = """
import json, sys, time
import torch
import framejit
from framejit.capture import budget
from framejit.events import hub

states = {"unrolled": [], "<lambda>": []}

def listen(event):
    if event.kind == "frame_done" and event.function in states and event.reason != "called for a moment so far":
        if event.state not in states[event.function]:
            states[event.function].append(event.state)

hub.subscribe(listen)

def unrolled(x):
    for _ in range(10):
        x = torch.sin(x)
    return x

named = framejit.optimize(lambda x: unrolled(x))
budget.CHEAP_S, budget.SECONDS_OF_A_NODE = 0.0, float(sys.argv[1])
named(torch.ones(3))
until = time.thread_time() + float(sys.argv[2])
unrolled(torch.ones(3))
while True:
    unrolled(torch.ones(3))
    if time.thread_time() > until:
        break
print(json.dumps(states))
"""


@pytest.mark.parametrize(("each", "seconds", "told"), [
    ("0", "0.1", ["compiled"]),
    ("1000", "0.1", ["eager"]),
    ("0.5", "15", ["eager", "compiled"]),  # about 6 s, which the program has run only then
])
def test_run_compiles_what_takes_long_once_the_program_has_run_for_as_long(tmp_path, each, seconds, told):
    (tmp_path / "unrolled.py").write_text(UNROLLED)
    arguments = ["-m", "framejit", "run", "--compile-after", "0.01", "unrolled.py", each, seconds]
    done = forked.run(arguments, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"unrolled": told, "<lambda>": ["compiled"]}


PARTS = """
import os, sys, time
import torch
from framejit.events import hub

told = []
hub.subscribe(lambda event: event.kind == "frame_done" and "so little" in event.reason and told.append(event.function))
drawn = []

def sample(x):
    x = x * 2
    drawn.append(os.getpid())
    x = x + 1
    drawn.append(os.getpid())
    x = x * 3
    drawn.append(os.getpid())
    x = x - 2
    drawn.append(os.getpid())
    x = x * 5
    drawn.append(os.getpid())
    return x.sum(), len(drawn)

x = torch.ones(int(sys.argv[1]))
sums = [float(sample(x)[0]) for _ in range(30) if not time.sleep(0.002)]
print(sums == [x.numel() * 35.0] * 30, len(drawn), told)
"""


@pytest.mark.parametrize(("elements", "told"), [("3", "['sample']"), ("100000", "[]")])
def test_run_leaves_what_falls_into_small_parts(tmp_path, elements, told):
    (tmp_path / "parts.py").write_text(PARTS)
    arguments = ["-m", "framejit", "run", "--compile-after", "0.01", "parts.py", elements]
    done = forked.run(arguments, cwd=tmp_path, timeout=240)
    assert (done.returncode, done.stdout) == (0, f"True 150 {told}\n"), done.stderr


MAKES = """
import torch

def filled(x, value):
    return x * 0 + value

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(filled(torch.ones(3), 2.0))

model = Model()
"""


@pytest.mark.parametrize(("more", "compiled"), [("", False), ("print(filled(torch.ones(3), 1.0))", True)])
def test_what_a_constructor_calls_is_not_compiled_there(tmp_path, more, compiled):
    (tmp_path / "makes.py").write_text(MAKES + more)
    done = forked.run(["-m", "framejit", "status", "makes.py"], cwd=tmp_path, env={**os.environ}, timeout=120)
    rows = [line for line in done.stderr.splitlines() if " filled " in line]
    assert [" compiled " in row for row in rows] == [compiled], done.stderr


LIBRARY = """
    import torch
    from framejit import _native

    def doubled(x):
        return x * 2

    seen = [_native.hook_active(), float(doubled(torch.ones(3)).sum())]
"""


def test_imports_of_libraries_are_not_looked_at(shell, tmp_path):
    """What a library calls while it is imported is nobody's to compile, and costs what it costs without us. What it
    defines is looked at when the program calls it, and so is what modules of the program call."""
    (tmp_path / "site-packages").mkdir()
    for name in ("site-packages/library.py", "own.py"):
        shell.write(name, LIBRARY)
    shell.write("site-packages/broken.py", "import library\nraise ValueError('as asked')\n")
    shell.write(
        "script.py",
        """
        import sys, torch, framejit
        from framejit import _native
        looked_at = []
        framejit.events.subscribe(
            lambda event: event.kind == "frame_done" and event.function == "doubled" and looked_at.append(event.state)
        )
        sys.path.append("site-packages")
        import library
        print(looked_at)
        import own
        print(looked_at, library.seen, own.seen)
        for _ in range(2):
            try:
                import broken
            except ValueError:
                print(_native.hook_active())
        print(library.doubled(torch.ones(3)), looked_at)
        """,
    )
    told = shell.framejit("run", "--compile-after", "0", "script.py")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [
        "[]", "['compiled'] [False, 6.0] [True, 6.0]", "True", "True",
        "tensor([2., 2., 2.]) ['compiled', 'compiled']",
    ]


def test_the_collector_rests_while_a_library_is_imported(shell, tmp_path):
    """And does afterwards what the library, or the program, has said of it."""
    (tmp_path / "site-packages").mkdir()
    lines = {
        "plain": "many = [[] for _ in range(30_000)]",
        "raises": "raise ValueError('as asked')",
        "disables": "gc.disable()",
        "sets": "gc.set_threshold(500, 7, 7)",
        "stops": "gc.set_threshold(0)",
    }
    for name, line in lines.items():
        shell.write(f"site-packages/{name}.py", f"import gc, weakref\nseen = gc.get_threshold()[0]\n{line}\n")
    shell.write("site-packages/inner.py", "import plain, gc\nseen = plain.seen, gc.get_threshold()[0]\n")
    shell.write(
        "script.py",
        """
        import gc, sys
        sys.path.append("site-packages")
        gc.set_threshold(900, 8, 8)
        frozen = gc.get_freeze_count()
        import inner
        print(inner.seen[0] == inner.seen[1] > 10**6, gc.get_threshold()[:2])
        print(gc.isenabled(), gc.get_freeze_count() - frozen)
        try:
            import raises
        except ValueError as e:
            print(e, gc.get_threshold()[:2])
        import disables
        print(gc.isenabled(), gc.get_threshold()[:2])
        gc.enable()
        import sets
        print(gc.get_threshold()[:2])
        import stops
        print(gc.get_threshold()[0])
        """,
    )
    told = shell.framejit("run", "script.py")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [
        "True (900, 8)", "True 0", "as asked (900, 8)", "False (900, 8)", "(500, 7)", "0",
    ]
