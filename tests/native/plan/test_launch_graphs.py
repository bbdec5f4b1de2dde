"""Launch graphs, with a driver and a recorder made for the test: what is given new addresses, what is copied, what
runs when, and what the program sees."""

from __future__ import annotations


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
