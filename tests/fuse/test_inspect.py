"""`framejit.inspect` and `framejit.status` tell what runs: kernels, sources, what ATen does, and what was quicker."""
import functools
import time

import pytest
import torch

import framejit
from framejit import _native
from framejit.errors import InvalidTarget
from framejit.events import emit

import forked


def fused(x, y):
    return (x + y).relu() * 2


def optimized(fn, *args, calls=1, **options):
    made = framejit.optimize(fn, backend="fuse", **options)
    for _ in range(calls):
        made(*args)
    return made


def test_kernels_and_their_sources():
    seen = framejit.inspect(optimized(fused, torch.randn(8), torch.randn(8)))
    assert (len(seen.graphs), seen.n_kernels) == (1, 1)
    (kernel,) = seen.kernels
    assert kernel.language == "llvm"
    assert "define void" in kernel.source
    assert kernel.source in seen.source
    assert "test_inspect.py" in kernel.origins[0]


def test_what_aten_carries_out_is_named():
    (graph,) = framejit.inspect(optimized(lambda x: torch.linalg.inv(fused(x, x)), torch.randn(8, 8))).graphs
    assert len(graph.externs) == 1
    assert "1 operation by ATen" in str(graph)


def test_states_and_times():
    f = optimized(fused, torch.randn(8), torch.randn(8))
    (graph,) = framejit.inspect(f).graphs
    assert (graph.state, graph.compiled_us, graph.eager_us) == ("measuring", None, None)
    for _ in range(20):
        f(torch.randn(8), torch.randn(8))
    (graph,) = framejit.inspect(f).graphs
    assert graph.state in ("compiled", "eager")
    assert graph.compiled_us > 0
    assert graph.eager_us > 0
    assert "us as ATen" in str(graph)


def test_a_graph_that_is_not_fused_says_why():
    (graph,) = framejit.inspect(
        optimized(lambda x: torch.nn.functional.rrelu(x, training=True), torch.randn(4, requires_grad=True))
    ).graphs
    assert graph.state == "eager"
    assert "rrelu_with_noise has no form" in graph.reason
    assert "rrelu_with_noise has no form" in str(graph)


def test_both_halves_of_a_graph_with_gradients_are_seen():
    forward, backward = framejit.inspect(
        optimized(lambda x: (x.sin() * 2).sum(), torch.randn(4, requires_grad=True))
    ).graphs
    assert (forward.state, backward.state) == ("compiled", "compiled")
    assert backward.name == f"{forward.name}_backward" and "backward of" in str(backward.recorded)


def test_each_entry_is_seen():
    f = optimized(fused, torch.randn(8), torch.randn(8))
    f(torch.randn(9), torch.randn(9))
    assert len(framejit.inspect(f).graphs) == 2


def test_graphs_behind_breaks_are_seen_with_their_places(capsys):
    def broken(x):
        x = x.sin() + 1
        print("a break")
        x = x.cos() + 1
        for i in range(2):
            print("another", i)
            x = x.exp() * 2
        return x

    seen = framejit.inspect(optimized(broken, torch.randn(8)))
    assert [graph.name for graph in seen.graphs] == list(dict.fromkeys(graph.name for graph in seen.graphs))
    assert len(seen.graphs) >= 3
    first, *rest = seen.graphs
    assert "broken (" in first.function
    assert all("test_inspect.py" in graph.function and " on" in graph.function for graph in rest)


def test_every_way_to_name_it():
    x = torch.randn(8)

    class Thing:
        @framejit.optimize(backend="fuse")
        def method(self, x):
            return x.sin() + 1

        @staticmethod
        @framejit.optimize(backend="fuse")
        def static(x):
            return x.sin() + 1

        def __call__(self, x):
            return x.sin() + 1

    thing, module = Thing(), torch.nn.GELU()
    thing.method(x)
    Thing.static(x)
    ways = [thing.method, Thing.method, Thing.static]
    for target in (fused, thing, module):
        made = optimized(target, x, x) if target is fused else optimized(target, x)
        ways.append(made)
    ways += [functools.partial(ways[3], x), fused]
    verified = optimized(lambda x: x.sin() + 1, x, verify=True)
    ways.append(verified)
    for way in ways:
        assert framejit.inspect(way).n_kernels == 1, way


def test_functions_under_framejit_run(tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch, framejit\ndef f(x):\n    return (x.sin() + 1).cos()\nf(torch.randn(8))\nf(torch.randn(8))\n"
        "print(framejit.inspect(f).n_kernels)\n"
    )
    ran = forked.run(["-m", "framejit", "run", "--backend", "fuse", "script.py"], cwd=tmp_path, timeout=120)
    assert ran.stdout == "1\n", ran.stderr


def test_a_pointless_question_is_answered_clearly():
    def never(x):
        return x

    for target in (never, 3, None, torch.nn.GELU(), len):
        with pytest.raises(InvalidTarget, match="inspect takes"):
            framejit.inspect(target)
    assert "no graph" in str(framejit.inspect(framejit.optimize(never, backend="fuse")))
    assert "no graph" in str(framejit.inspect(_called(framejit.optimize(lambda x: x + 1, backend="eager"))))


def _called(fn):
    fn(torch.randn(4))
    return fn


def test_it_prints_an_outline():
    text = str(framejit.inspect(optimized(fused, torch.randn(8), torch.randn(8))))
    assert text.startswith("fused: ")
    assert "(llvm)" in text
    assert "return (x + y).relu() * 2" in text


def test_inspecting_keeps_nothing_of_the_program_alive():
    import gc
    import weakref

    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    with torch.no_grad():
        made = optimized(module, torch.randn(2, 4))
    seen, gone = framejit.inspect(made), weakref.ref(module)
    del made, module
    gc.collect()
    assert gone() is None
    assert seen.n_kernels >= 1


# ---- status -----------------------------------------------------------------------------------------------


def slowed(gm, example_inputs):
    """A backend whose compiled code is slow."""
    emit("fusion", graph_id="graph_slow", text="")

    def run(*inputs):
        time.sleep(0.002)
        return gm.forward(*inputs)

    def decided(selector):
        emit(
            "perf", graph="graph_slow", compiled_us=selector.compiled_ns / 1e3, eager_us=selector.eager_ns / 1e3,
            state=selector.state,
        )

    return _native.Selector(run, gm.forward, pure=True, cuda=False, on_decision=decided)


def test_status_shows_what_was_reverted_with_both_figures():
    f = framejit.optimize(fused, backend=slowed)
    for _ in range(10):
        f(torch.randn(8), torch.randn(8))
    (reverted,) = framejit.status().reverted
    assert (reverted.graph, reverted.function) == ("graph_slow", "fused")
    assert reverted.compiled_us > 2000 > reverted.eager_us > 0
    text = str(framejit.status())
    assert "not used, because ATen measured quicker:" in text
    assert f"graph_slow of fused: {reverted.compiled_us:.1f} us compiled, {reverted.eager_us:.1f} us as ATen" in text
    framejit.reset()
    assert framejit.status().reverted == ()


def test_status_is_silent_about_what_is_quicker():
    emit("fusion", graph_id="graph_quick", text="")
    emit("perf", graph="graph_quick", compiled_us=1.0, eager_us=2.0, state="compiled")
    assert framejit.status().reverted == ()
    assert "not used" not in str(framejit.status())


def test_a_graph_that_is_not_of_a_captured_function_is_shown_too():
    emit("fusion", graph_id="graph_alone", text="")
    emit("perf", graph="graph_alone", compiled_us=2.0, eager_us=1.0, state="eager")
    assert "graph_alone: 2.0 us compiled, 1.0 us as ATen" in str(framejit.status())
