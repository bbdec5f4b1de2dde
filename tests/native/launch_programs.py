"""What programs of launch graphs begin with."""

from __future__ import annotations

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
    made = LaunchGraphs(plan, parts, lambda device: recorder, tell, n_seen, lambda: forward)
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
