"""States of the thread in which nothing is captured, and the program's own code sees what it sees in plain Python."""

import os
import textwrap

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import framejit

import forked
from support import Pair, of_kind, recorded


def fn(x):
    return (x.sin() * x).sum() + torch.zeros(())


def captured(log):
    return [
        e.fields["state"]
        for e in of_kind(log, "frame_done")
        if e.fields["function"] == "fn" and e.fields["state"].startswith("compiled")
    ]


class Calls(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append((str(func), [type(a).__name__ for a in args]))
        return func(*args, **(kwargs or {}))


def under_functions(f):
    with Calls() as mode:
        f(torch.ones(3))
    return mode.seen


def under_operations(f):
    with Operations() as mode:
        f(torch.ones(3))
    return mode.seen


def tangent(f):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(torch.ones(3), torch.ones(3)))).tangent


def traced(f):
    class M(torch.nn.Module):
        def forward(self, x):
            return f(x)

    return str(torch.jit.trace(M(), torch.ones(3)).graph).count("aten::")


def symbolically_traced(f):
    return str(torch.fx.symbolic_trace(lambda x: f(x)).code)


def with_fakes(f):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return type(f(torch.ones(3))).__name__


def anomaly(f):
    with torch.autograd.detect_anomaly(check_nan=False):
        x = torch.ones(3, requires_grad=True)
        f(x).backward()
        return x.grad


def below_autograd(f):
    with torch._C._AutoDispatchBelowAutograd():
        return f(torch.ones(3, requires_grad=True)).requires_grad


STATES = {
    "function mode": under_functions,
    "dispatch mode": under_operations,
    "forward-mode differentiation": tangent,
    "vmap": lambda f: torch.vmap(f)(torch.ones(2, 3)),
    "grad": lambda f: torch.func.grad(f)(torch.ones(3)),
    "jvp": lambda f: torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),)),
    "functionalize": lambda f: torch.func.functionalize(f)(torch.ones(3)),
    "hessian": lambda f: torch.func.hessian(f)(torch.ones(3)),
    "jit.trace": traced,
    "fx.symbolic_trace": symbolically_traced,
    "make_fx": lambda f: make_fx(f)(torch.ones(3)).code,
    "fakes": with_fakes,
    "anomaly": anomaly,
    "below autograd": below_autograd,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("before", [False, True], ids=["at capture", "at a later call"])
@pytest.mark.parametrize("state", STATES)
def test_the_program_runs_as_it_is(state, before):
    under = STATES[state]
    expected = under(fn)
    compiled = framejit.optimize(fn)
    if before:
        compiled(torch.ones(3))
        compiled(torch.ones(3, requires_grad=True))
    with recorded() as log:
        for _ in range(2):
            assert str(under(compiled)) == str(expected)
    assert state == "jit.trace" or not captured(log), "jit.trace runs the program outside of itself, too"
    assert not of_kind(log, "warning")
    with recorded() as log:
        assert compiled(torch.ones(3)) == fn(torch.ones(3))
    assert bool(captured(log)) is not before, "outside of the state it is captured as ever"


def test_a_mode_inside_captured_code_is_popped_once():
    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            r = func(*args, **(kwargs or {}))
            return r * 2 if func is torch.sin else r

    def inside(x):
        with Double():
            y = torch.sin(x)
        return y + torch.sin(x)

    depth = torch._C._len_torch_function_stack()
    pair = Pair(lambda: inside)
    for _ in range(3):
        pair.call(torch.ones(2))
        assert torch._C._len_torch_function_stack() == depth
    with Calls() as mode:
        inside(torch.ones(2))
    with Calls() as other:
        pair.compiled(torch.ones(2))
    assert mode.seen == other.seen


def test_a_dispatch_mode_inside_captured_code_sees_what_it_sees():
    def inside(x, seen):
        with Operations() as mode:
            y = x.sin() + 1
        seen += mode.seen
        return y * 2

    pair = Pair(lambda: inside)
    pair.call(torch.ones(2), [])
    pair.call(torch.ones(2), [])


def test_hooks_on_saved_tensors_see_no_fakes():
    def seen(f):
        packed, unpacked = [], []

        def pack(t):
            packed.append((type(t).__name__, tuple(t.shape)))
            return t

        def unpack(t):
            unpacked.append(type(t).__name__)
            return t

        x = torch.ones(3, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = f(x)
        y.backward()
        return packed, unpacked, x.grad.tolist()

    compiled = framejit.optimize(fn)
    for _ in range(2):
        assert seen(compiled) == seen(fn)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_an_optimized_function(reentrant):
    def gradient(f):
        x = torch.ones(3, requires_grad=True)
        checkpoint(f, x, use_reentrant=reentrant).backward()
        return x.grad.tolist()

    compiled = framejit.optimize(fn)
    for _ in range(2):
        assert gradient(compiled) == gradient(fn)


def test_checkpointing_inside_an_optimized_function():
    def outer(x):
        return checkpoint(fn, x * 2, use_reentrant=False) + 1

    pair = Pair(lambda: outer)
    for _ in range(2):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        pair.eager(x).backward()
        pair.compiled(y).backward()
        assert x.grad.tolist() == y.grad.tolist()


def test_functions_that_change_torch_are_not_tried_on_the_way():
    """What reads or changes torch's own state runs once, where the program calls it."""

    def f(x):
        torch.set_num_threads(torch.get_num_threads())
        torch.set_flush_denormal(False)
        torch._C._set_deterministic_fill_uninitialized_memory(True)
        return x + 1

    Pair(lambda: f).call(torch.ones(2))


FIRST_CALL = """
import warnings
import torch
import framejit
from test_standing_aside import Calls, Operations, fn

warnings.simplefilter("error", framejit.FramejitWarning)
x = torch.ones(3)
with {mode}() as mode:
    framejit.optimize(fn)(x)
    first = list(mode.seen)
    fn(x)
assert mode.seen == 2 * first, (first, mode.seen)
assert framejit.optimize(fn, fullgraph=True)(x) == fn(x)
"""


@pytest.mark.parametrize("mode", ["Calls", "Operations"])
def test_the_first_capture_of_a_process_shows_a_mode_nothing(mode):
    here = os.path.dirname(__file__)
    path = os.pathsep.join((here, os.path.dirname(here), *filter(None, [os.environ.get("PYTHONPATH")])))
    done = forked.run(["-c", FIRST_CALL.format(mode=mode)], env={**os.environ, "PYTHONPATH": path}, timeout=120)
    assert done.returncode == 0, done.stderr


def test_hooks_of_the_program_see_nothing_of_the_first_capture():
    """What framejit tries out once in a process is not shown to them either."""
    code = """
        import torch, framejit
        def f(x, y): return x * y
        optimized = framejit.optimize(f, backend="eager")
        for fn in (f, optimized):
            seen = []
            def pack(t): return (seen.append(type(t).__name__), t)[1]
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                fn(torch.ones(2, requires_grad=True), torch.ones(2))
            print(*seen)
    """
    told = forked.run(["-c", textwrap.dedent(code)], timeout=120)
    assert told.stdout.split() == ["Tensor", "Tensor"] and told.stderr == ""


def test_an_entry_serves_within_backwards_and_outside():
    """Autograd's engine calls nodes and hooks as if no tensor had names, in a torch that has such; that alone is no
    reason to stand aside, nor to compile again."""
    optimized = framejit.optimize(fn)
    x, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    leaf.register_hook(lambda gradient: optimized(x) * gradient)
    for _ in range(2):
        leaf.sum().backward()
        with torch.no_grad():
            optimized(x)
    assert [entry.tag.state for entry in optimized.entries] == ["compiled"]
