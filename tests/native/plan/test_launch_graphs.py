"""Launch graphs, with a driver and a recorder made for the test: what is given new addresses, what is copied, what
runs when, and what the program sees."""

from __future__ import annotations

import pytest
from fake_cuda import fake_driver  # noqa: F401  (a fixture)

GRAPHS = """
import itertools
from framejit._native import Value
from framejit.backends.fuse.launches.launch_graphs import KEPT, PATIENCE, WORTH, LaunchGraphs
from framejit.backends.fuse.plan.plan_functions import view_of
from framejit.backends.fuse.plan.plan_parts import PlanParts

CPU, N = torch.device("cpu"), 4
HOST = ctypes.CFUNCTYPE(None)
native.withhold_symbols({"aoti_torch_empty_strided"})  # so that memory is asked for here
plain_empty = torch.empty_strided

class Recorder:
    device = CPU
    recording = fails = 0
    def __init__(self):
        self.memory, self.recorded = [], 0
    def is_capturing(self):
        return bool(number("fake_capturing"))
    def record(self, run, is_alone):
        self.alone = is_alone
        def empty(*args, **kwargs):
            self.memory.append(plain_empty(*args, **kwargs))
            return self.memory[-1]
        torch.empty_strided, Recorder.recording = empty, 1
        graph = native.CudaGraph(0x9000, 0)
        try:
            result = run()
            if self.fails:
                raise RuntimeError("operation not permitted when stream is capturing\\nand more")
            graph.end()
        except BaseException:
            graph.abandon()
            raise
        finally:
            torch.empty_strided, Recorder.recording = plain_empty, 0
        self.recorded += 1
        return graph, result

recorder = Recorder()

def on_device(run):
    host = HOST(run)
    recorder.memory.append(host)
    fake.fake_host(host)

def memory_of(tensor):
    # a tensor over the same memory, which does not hold it: who launches does, or else the recorder
    n = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    floats = (ctypes.c_float * n).from_address(tensor.data_ptr())
    return torch.frombuffer(floats, dtype=torch.float32).as_strided(tensor.shape, tensor.stride())

def library(f):
    def call(*args):
        if not Recorder.recording:
            return f(*args)
        out, args = torch.full_like(f(*args), -1), [memory_of(arg) for arg in args]
        recorder.memory += [out, *args]
        on_device(lambda: out.copy_(f(*args)))
        return out
    return call

def library_in_place(f):
    def call(x):
        if Recorder.recording:
            view = x.data                            # with a version of its own
            torch._C._increment_version([x])
            recorder.memory.append(view)
            on_device(lambda: f(view))
        else:
            f(x)
    return call

def empty(slot):
    return ("empty", slot, (N,), (1,), torch.float32, CPU)

def affine(out, x, a=1.0, b=0):
    args = ("p", out), ("p", x), ("i32", N), ("f32", a), ("i64", b), ("f64", 0.0), ("null",)
    return ("cuda_kernel", 7, (2, 1, 1), 128, 0, args, 0, False)

def call(f, slots, result):
    return ("call", f, tuple(map(Value, slots)), None, result)

def launches(n_inputs, n_values, steps, outputs, alone=(), n_seen=None, forward=None):
    parts = PlanParts(n_inputs, n_values, steps, tuple(map(Value, outputs)), (), (), alone, (4 * N,) * n_inputs)
    told = []
    eager = lambda *inputs: "eager"
    plan = parts.native((), eager, "mine")
    tell = lambda state, why: told.append((state, why))
    made = LaunchGraphs(plan, parts, lambda device: recorder, tell, n_seen, forward)
    made.plan, made.told = plan, told
    return made

def fresh():
    return torch.randn(2 * N)[N:]

def captured(run, *inputs):
    before = recorder.recorded
    for _ in range(PATIENCE + 1):
        run(*inputs)
    assert recorder.recorded == before + 1 and run.told[-1][0] == "captured", run.told
    return run
"""


@pytest.fixture
def run(fake_driver):  # noqa: F811
    return lambda program: fake_driver(GRAPHS + program)


def test_inputs_are_read_where_they_are_and_outputs_are_fresh(run):
    run(
        """
f = launches(1, 3, [empty(1), affine(1, 0, 2.0), empty(2), affine(2, 1, 3.0, 1), ("free", 1)], [2])
kept, keep = [], []
for i in range(100):
    x = fresh()
    keep.append(x)
    (out,) = f(x)
    kept.append((out, 6 * x + 1))
assert recorder.recorded == 1 and f.told == [("captured", "")], f.told
assert number("fake_copies") == 0
assert len({out.data_ptr() for out, _ in kept}) == 100
for out, expected in kept:
    torch.testing.assert_close(out, expected)
sets = number("fake_sets")
before = f(x)[0]
assert number("fake_sets") == sets + 1          # only where the result goes is new
"""
    )


def test_what_a_library_reads_is_copied_if_it_moves_and_what_it_gives_is_copied(run):
    run(
        """
double = library(lambda x: x * 2)
f = launches(1, 2, [call(double, [0], 1), ("expect", 1, (N,), (1,), print)], [1])
xs = [fresh() for _ in range(50)]
outs = [f(x)[0] for x in xs]
for x, out in zip(xs, outs):
    torch.testing.assert_close(out, 2 * x)
assert recorder.recorded == 1 and f.told == [("captured", "1 inputs are copied")], f.told
"""
    )


def test_an_input_on_another_device_is_not_copied(run):
    run(
        """
f = launches(1, 2, [call(library(lambda x: x * 2), [0], 1)], [1])
held = [fresh() for _ in range(20)]
for x in held:
    f(x)
n = f._launch.graph.launches
assert f(torch.empty(N, device="meta"))[0].device.type == "meta" and f._launch.graph.launches == n
torch.testing.assert_close(f(x)[0], 2 * x)
"""
    )


def test_a_weight_that_a_library_reads_is_read_in_place_until_it_is_replaced(run):
    run(
        """
add = library(lambda x, w: x + w)
f = launches(2, 4, [empty(2), affine(2, 0, 2.0), call(add, [2, 1], 3)], [3])
weights = [fresh(), fresh()]
for i in range(60):
    x, w = fresh(), weights[i >= 30]
    torch.testing.assert_close(f(x, w)[0], 2 * x + w)
    w.add_(1)                                    # what is in it is read anew at each launch
assert recorder.recorded == 2, recorder.recorded
copies = number("fake_copies")
f(x, w)
assert number("fake_copies") == copies + 1       # the result
for i in range(100):                             # both are known by now
    x, w = fresh(), weights[i % 2]
    torch.testing.assert_close(f(x, w)[0], 2 * x + w)
assert recorder.recorded == 2, recorder.recorded
"""
    )


def test_captures_that_are_of_little_use_become_rare(run):
    run(
        """
f = launches(1, 2, [call(library(lambda x: x * 2), [0], 1)], [1])
held = []
for i in range(2000):
    if i % 20 == 0:
        x = fresh()
        held.append(x)
    x.add_(1)
    torch.testing.assert_close(f(x)[0], 2 * x)
assert recorder.recorded < 12, recorder.recorded
"""
    )


def test_inputs_are_written_in_place_and_their_versions_count(run):
    run(
        """
grow = library_in_place(lambda x: x.mul_(2))
def made():
    count = ("call", torch._C._increment_version, ([Value(0)],), None, None)
    return launches(2, 2, [affine(0, 0, 1.0, 1), count, call(grow, [1], None)], [0], alone=(0, 1))
f = made()
held = []                                        # so that memory does not come back
for i in range(40):
    x, cache = fresh(), fresh()
    held += [x, cache]
    x2, cache2, versions = x + 1, cache * 2, (x._version, cache._version)
    (out,) = f(x, cache)
    assert out is x
    torch.testing.assert_close((x, cache), (x2, cache2))
    assert (x._version, cache._version) == (versions[0] + 1, versions[1] + 1), i
assert f.told == [("captured", "1 inputs are copied")], f.told
f = made()
x, cache, cache2 = fresh(), fresh(), None
cache2 = cache.clone()
for i in range(40):
    f(x, cache)
    cache2 *= 2
    torch.testing.assert_close(cache, cache2)
    assert cache._version == i + 1
assert f.told == [("captured", "")], f.told
copies = number("fake_copies")
f(x, cache)
assert number("fake_copies") == copies, (number("fake_copies"), copies, f._launch.fixed, f._moving, f.told)
"""
    )


def test_writes_into_results_count(run):
    run(
        """
from framejit.backends.fuse.plan.plan_functions import count_exactly
count = ("call", count_exactly, ([Value(1)], [2]), None, None)
f = captured(launches(1, 2, [empty(1), affine(1, 0, 2.0), count], [1]), fresh())
for i in range(5):
    x = fresh()
    (out,) = f(x)
    assert out._version == 2 and torch.equal(out, 2 * x), i
"""
    )


def test_views_among_the_outputs_are_made_anew(run):
    run(
        """
half = lambda slot, base: ("call", view_of, (Value(base), (2,), (1,), 1, None), None, slot)
give = library(lambda x: x + 1)
f = launches(1, 6, [empty(1), affine(1, 0, 2.0), half(2, 1), half(3, 0), call(give, [1], 4), half(5, 4)],
    [1, 2, 3, 4, 5])
for i in range(20):
    x = fresh()
    a, b, c, d, e = f(x)
    torch.testing.assert_close((a, b, c, d, e), (2 * x, (2 * x)[1:3], x[1:3], 2 * x + 1, (2 * x + 1)[1:3]))
    assert b._base is a and c._base is x._base and e._base is d, i
assert f.told[-1][0] == "captured"
"""
    )


def test_memory_that_a_view_leads_to_stays(run):
    run(
        """
half = ("call", view_of, (Value(0), (N,), (1,), 0, None), None, 1)
f = launches(1, 3, [half, empty(2), affine(2, 1, 2.0)], [2])
for i in range(20):
    x = fresh()
    torch.testing.assert_close(f(x)[0], 2 * x)
"""
    )


def test_parts_of_memory(run):
    run(
        """
part = ("reinterpret", 1, 0, (N,), (1,), 1, torch.float32)
f = launches(1, 3, [part, empty(2), affine(2, 1, 2.0), ("free", 1)], [2])
for i in range(20):
    x = torch.randn(3 * N)[N:]
    torch.testing.assert_close(f(x)[0], 2 * x[1:N + 1])
assert f.told == [("captured", "")], f.told
"""
    )


def test_what_cannot_be_captured_runs_plainly_and_says_why(run):
    run(
        """
def stays(f, why, *inputs):
    for i in range(8):
        f(*(inputs or [fresh()]))
    assert len(f.told) == 1 and f.told[0][0] == "plain" and why in f.told[0][1], f.told
    assert f.why_plain == f.told[0][1]

stays(launches(1, 1, [("cpu_kernel", 1, (), (), 0, 1)], [0]), "on the CPU")
recorder.fails = 1
stays(launches(1, 2, [empty(1), affine(1, 0)], [1]), "RuntimeError: operation not permitted when stream is capturing")
recorder.fails = 0
stays(launches(1, 2, [call(lambda x: x, [0], 1)], [1]), "shares memory")
stays(launches(1, 2, [call(lambda x: 3, [0], 1)], [1]), "not on the device")
import warnings
def warns(x):
    warnings.warn("oh")
    return x * 2
told = []
warnings.showwarning = lambda *args: told.append(args)
warnings.simplefilter("always")
stays(launches(1, 2, [call(warns, [0], 1)], [1]), "warns: oh")
assert len(told) == 8
class Elsewhere(Recorder):
    device = torch.device("meta")
f = launches(1, 2, [call(library(lambda x: x * 2), [0], 1)], [1])
f._recorder_of = lambda device: Elsewhere()
stays(f, "its input 0 is on the device cpu")
f = launches(1, 2, [empty(1), affine(1, 0)], [1])
f._recorder_of = lambda device: None
f(fresh())
assert f.told == [] and f.why_plain
"""
    )


def test_an_error_of_the_driver_leads_to_the_plan(run):
    run(
        """
f = captured(launches(1, 2, [empty(1), affine(1, 0, 2.0)], [1]), fresh())
set_number("fake_set_error", 400)
for i in range(3):
    x = fresh()
    torch.testing.assert_close(f(x)[0], 2 * x)
assert f.told[-1][0] == "plain" and "CUDA_ERROR_OTHER" in f.told[-1][1]
set_number("fake_set_error", 0)
"""
    )


def test_into_a_graph_of_the_programs_goes_what_the_plan_launches(run):
    run(
        """
f = launches(1, 2, [empty(1), affine(1, 0, 2.0)], [1])
set_number("fake_capturing", 1)
for i in range(10):
    f(fresh())
assert recorder.recorded == 0
set_number("fake_capturing", 0)
captured(f, fresh())
n = f._launch.graph.launches
set_number("fake_capturing", 1)
x = fresh()
torch.testing.assert_close(f(x)[0], 2 * x)
assert f._launch.graph.launches == n
set_number("fake_capturing", 0)
f(x)
assert f._launch.graph.launches == n + 1
"""
    )


def test_what_the_plan_cannot_run_runs_as_eager(run):
    run(
        """
f = captured(launches(2, 3, [empty(2), affine(2, 1, 2.0), affine(0, 0, 1.0, 1)], [2], alone=(0,)), fresh(), fresh())
x = fresh()
assert f(x, x) == "eager"
assert f(x, fresh()) != "eager"
"""
    )


def test_launches_on_several_streams_run_one_behind_the_other(run):
    run(
        """
f = captured(launches(1, 2, [empty(1), affine(1, 0, 2.0)], [1]), fresh())
g = captured(launches(1, 2, [empty(1), affine(1, 0, 3.0)], [1]), fresh())
assert (number("fake_waits"), number("fake_synchronised"), number("fake_events")) == (0, 0, 0)
stream = ctypes.c_long.in_dll(fake, "fake_stream")
stream.value = 0x2000
f(fresh())
assert (number("fake_waits"), number("fake_synchronised"), number("fake_events")) == (0, 1, 1)
f(fresh())
assert number("fake_waits") == 0
stream.value = 0x3000
g(fresh())
assert (number("fake_waits"), number("fake_synchronised")) == (1, 1)
"""
    )


def test_threads(run):
    run(
        """
f = launches(1, 3, [empty(1), affine(1, 0, 2.0), empty(2), affine(2, 1, 3.0, 1), ("free", 1)], [2])
wrong = []
def work():
    for i in range(300):
        x = fresh()
        (out,) = f(x)
        if not torch.allclose(out, 6 * x + 1):
            wrong.append(i)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong and f.told == [("captured", "")]
"""
    )


def test_a_launch_graph_is_refused_a_bad_description(run):
    run(
        """
good = (1, 7, (1, 1, 1), 128, 0, (("p", 5), ("i32", 1)))
LaunchGraph, captured = native.LaunchGraph, native.CudaGraph(0x9000, 0)
with pytest.raises(ValueError, match="not whole"):
    LaunchGraph(captured, ())
captured.end()
graph = LaunchGraph(captured, (good,))
for nodes in [(1,), ((1, 2),), ((*good[:5], (1,)),), ((*good[:5], (("x", 1),)),), ((*good[:5], (("i32", 2**40),)),)]:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        LaunchGraph(captured, nodes)
with pytest.raises(TypeError):
    LaunchGraph(1, ())
def plan(*parts):
    return native.Plan(1, 1, [("graph", *parts, CPU)], [], fallback=print)
plan(graph, ((0, 0, 0, 0),), ((0, 16, 4),), ())
for parts in [(1, (), (), ()), (graph, ((0, 1, 0, 0),), (), ()), (graph, ((0, 0, 2, 0),), (), ()),
              (graph, ((1, 0, 0, 0),), (), ()), (graph, (1,), (), ()), (graph, (), (1,), ()),
              (graph, (), (), ((3, 1, 1),))]:
    with pytest.raises((TypeError, ValueError, IndexError)):
        plan(*parts)
"""
    )


def test_a_capture_that_fails_leaves_nothing(run):
    run(
        """
def counts():
    return number("fake_recording"), number("fake_graphs"), number("fake_executables")
graph = native.CudaGraph(0x9000, 0)
with pytest.raises(RuntimeError, match="beginning to capture"):
    native.CudaGraph(0x9000, 0)
assert counts() == (1, 0, 0)
graph.end()
assert counts() == (0, 1, 1)
with pytest.raises(RuntimeError, match="nothing is being captured"):
    graph.end()
launch = native.LaunchGraph(graph, ())
del graph
assert counts() == (0, 1, 1)                     # the launch graph keeps it
del launch
assert counts() == (0, 0, 0)
for name in "fake_capture_error", "fake_instantiate_error":
    set_number(name, 901)
    graph = native.CudaGraph(0x9000, 0)
    with pytest.raises(RuntimeError, match="capturing a CUDA graph"):
        graph.end()
    graph.abandon()
    assert counts() == (0, 0, 0)
    set_number(name, 0)
for leave in native.CudaGraph.abandon, lambda graph: None:
    graph = native.CudaGraph(0x9000, 0)
    leave(graph)
    del graph
    assert counts() == (0, 0, 0)
"""
    )


def test_a_thread_captures_what_it_ran(run):
    run(
        """
f = launches(1, 2, [empty(1), affine(1, 0, 2.0)], [1])
for i in range(2 * PATIENCE):
    thread = threading.Thread(target=f, args=(fresh(),))
    thread.start()
    thread.join()
    f._threads.clear()                           # the number of a thread that ended comes back
assert recorder.recorded == 0
f(fresh())
f(fresh())
assert recorder.recorded == 1
"""
    )


def test_torch_is_left_as_it_was(run):
    run(
        """
import contextlib, gc, itertools
from framejit.backends.fuse.targets.cuda_graphs import CudaRecorder
log, handles = [], itertools.count(1)
def noted(name):
    setattr(torch._C, name, lambda *args: log.append((name, *args[1:])))
for name in "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool":
    noted(name)
torch._C._cuda_clearCublasWorkspaces = lambda: None
torch.cuda.graph_pool_handle = lambda: next(handles)
torch.cuda.stream = lambda stream: contextlib.nullcontext()
class Stream:
    def __init__(self, stream, device):
        self.cuda_stream = stream
torch.cuda.ExternalStream = Stream
def begun(pool):
    return ("_cuda_beginAllocateCurrentThreadToPool", pool)
def ended(pool):
    return ("_cuda_endAllocateToPool", pool)
def released(pool):
    return ("_cuda_releasePool", pool)
def happened():
    happened, log[:] = [*log], []
    return happened
def raises():
    raise KeyError("oh")
mine = CudaRecorder(torch.device("cuda", 0))
with pytest.raises(KeyError):
    mine.record(raises, False)
assert happened() == [begun(1), ended(1), released(1)] and not number("fake_recording")
a, result = mine.record(lambda: 5, False)
assert result == 5 and happened() == [begun(2), ended(2)]
b, _ = mine.record(int, False)                          # in the same pool
with pytest.raises(KeyError):
    mine.record(raises, False)
set_number("fake_capture_error", 901)
with pytest.raises(RuntimeError, match="capturing a CUDA graph"):
    mine.record(int, False)
set_number("fake_capture_error", 0)
assert happened() == [begun(2), ended(2), *[begun(2), ended(2), released(2)] * 2]
del a
c, _ = mine.record(int, False)
assert happened() == [released(2), begun(2), ended(2)]
del b, c
assert happened() == [released(2)] * 2
d, _ = mine.record(int, False)                          # the pool is gone with what was in it
assert happened() == [begun(3), ended(3)]
"""
    )


KEPT = """
native.withhold_symbols({"aoti_torch_empty_strided"})
plus = library(lambda x: x + 1)
half = ("call", view_of, (Value(3), (2,), (1,), 1, None), None, 4)
# what the program sees, what a kernel of ours and what a library keep, and a view of that
def forward():
    steps = [empty(1), affine(1, 0, 2.0), empty(2), affine(2, 1, 3.0), call(plus, [2], 3), half]
    return launches(1, 5, steps, [1, 2, 3, 4], n_seen=1)
def right(x, outs):
    torch.testing.assert_close(outs, (2 * x, 6 * x, 6 * x + 1, (6 * x + 1)[1:3]))
"""


def test_what_is_kept_lies_in_memory_of_the_graph_while_nobody_holds_it(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
assert recorder.alone
n, seen, places = f._launch.graph.launches, [], set()
for i in range(20):
    x = fresh()
    out, *kept = f(x)
    right(x, (out, *kept))
    assert kept[2]._base is kept[1]
    seen.append((out, 2 * x))
    places.add(tuple(tensor.data_ptr() for tensor in kept))
    del kept
assert f._launch.graph.launches == n + 20 and len(places) == 1, (f._launch.graph.launches, places)
sets, copies = number("fake_sets"), number("fake_copies")
f(x)
assert (number("fake_sets"), number("fake_copies")) == (sets + 2, copies)  # where `out` lies
for out, expected in seen:
    torch.testing.assert_close(out, expected)
"""
    )


def test_what_is_kept_and_held_is_not_written(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
n = f._launch.graph.launches
for holds in (lambda outs: outs[1], lambda outs: outs[2], lambda outs: outs[3], lambda outs: outs[2].detach()[1:]):
    x = fresh()
    outs = f(x)
    n += 1
    held, before = holds(outs), holds(outs).clone()
    del outs
    for i in range(5):
        y = fresh()
        right(y, f(y))
        assert f._launch.graph.launches == n and torch.equal(held, before)
    del held
right(x, f(x))
assert f._launch.graph.launches == n + 1 and f.told[-1][0] == "captured"
"""
    )


def test_what_is_kept_is_read_where_it_lies_and_a_backward_waits_for_that(run):
    run(
        KEPT
        + """
f = forward()
take = library(lambda kept, grad: kept * grad)
b = launches(3, 5, [empty(3), affine(3, 0, 2.0), call(take, [1, 2], 4)], [3, 4], forward=f)
held = []                                        # so that memory does not come back
for i in range(30):
    x, grad = fresh(), fresh()
    out, ours, theirs, part = f(x)
    saved = [ours, theirs, grad]
    del ours, theirs, part
    outs = b.consume(saved)
    assert saved == []
    torch.testing.assert_close(outs, (12 * x, (6 * x + 1) * grad))
    held += [x, grad, out, outs]
assert recorder.recorded == 2 and not recorder.alone, recorder.recorded
assert b.told == [("captured", "1 inputs are copied")], b.told
assert {slot for slot, _ in b._launch.fixed} == {1}
"""
    )


def test_what_is_kept_is_launched_on_one_stream(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
n, stream = f._launch.graph.launches, ctypes.c_long.in_dll(fake, "fake_stream")
assert n == 1
for stream.value, launched in (0x2000, 0), (0x1000, 1):
    x = fresh()
    right(x, f(x))
    assert f._launch.graph.launches == n + launched
"""
    )


def test_memory_that_a_plan_takes_over_is_its_own_when_captured(run):
    run(
        """
inherit = ("inherit", 1, 0, (N,), (1,), torch.float32, CPU, 4 * N)
f = launches(1, 2, [inherit, affine(1, 0, 2.0)], [1])
for i in range(10):
    x = fresh()
    expected = 2 * x
    given = [x]
    del x
    torch.testing.assert_close(f.consume(given)[0], expected)
assert f.told == [("captured", "")], f.told
"""
    )


DRAWS = """
aten = torch.ops.aten
drawn = torch.Tensor.bernoulli_
like = ("call", aten.empty_like.default._op, (Value(1),), None, 2)
def mask(slot, of):
    return ("call", aten.bernoulli.p._op, (Value(of), 0.5), {"generator": None}, slot)
"""


def test_random_numbers_are_those_of_the_plan(run):
    run(
        DRAWS
        + """
noise = ("call", aten.rand.default._op, ((N,),), {"device": CPU}, 6)
def made():
    steps = [empty(1), affine(1, 0, 2.0), like, mask(3, 2), ("free", 2), empty(4), affine(4, 3, 3.0), noise, empty(5),
        affine(5, 6, 2.0)]
    return launches(1, 7, steps, [1, 4, 5, 3])
f, eager = made(), made().plan
for i in range(20):
    x = fresh()
    torch.manual_seed(i)
    got = f(x)
    after = torch.rand(3)
    torch.manual_seed(i)
    expected = eager(x)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
    assert got[1].data_ptr() != got[3].data_ptr()
assert f.told == [("captured", "")], f.told
# numbers are not drawn twice where a launch is not to be
for name, value in ("fake_capturing", 1), ("fake_capturing", 0):
    set_number(name, value)
    torch.manual_seed(5)
    got, after = f(x), torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(got, eager(x), rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
"""
    )


def test_keys_of_random_numbers_are_those_of_the_plan(run):
    run(
        """
aten = torch.ops.aten
key = ("call", aten.randint.low._op, (-(1 << 63), (1 << 63) - 1, [1]), {"dtype": torch.int64, "device": CPU}, 2)
f = launches(1, 3, [key, empty(1), affine(1, 0, 2.0)], [1, 2])
seen = set()
for i in range(20):
    x = fresh()
    torch.manual_seed(i)
    got, after = f(x), torch.rand(3)
    torch.manual_seed(i)
    torch.testing.assert_close(got, f.plan(x), rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
    seen.add(got[1].item())
assert len(seen) == 20
assert f.told == [("captured", "")], f.told
"""
    )


def test_random_numbers_that_a_library_reads_are_copied(run):
    run(
        DRAWS
        + """
take = library(lambda x, mask: x * mask)
def made():
    return launches(1, 5, [empty(1), affine(1, 0, 2.0), like, mask(3, 2), ("free", 2), call(take, [1, 3], 4)], [4])
f, eager = made(), made().plan
def same(f, eager):
    for i in range(20):
        x = fresh()
        torch.manual_seed(i)
        got = f(x)
        torch.manual_seed(i)
        torch.testing.assert_close(got, eager(x), rtol=0, atol=0)
    assert f.told[-1][0] == "captured", f.told
same(f, eager)
# a kernel writes over them before a library reads and the program sees them
noise = ("call", aten.rand.default._op, ((N,),), {"device": CPU}, 1)
def written():
    return launches(1, 3, [noise, affine(1, 1, 3.0, 1), call(take, [0, 1], 2)], [1, 2])
same(written(), written().plan)
"""
    )
