"""`status()` tells what became of every function seen; `reset()` forgets everything."""
import pytest
import torch

import framejit

from support import CountingBackend

X = torch.arange(4.0)


def record(name: str) -> framejit.events.FunctionRecord:
    [found] = [r for r in framejit.status().functions if r.function.endswith(name)]
    return found


def whole(x):
    return x + 1


def in_parts(x):
    x = x + 1
    framejit.graph_break()
    return x * 2


def test_nothing_seen():
    assert framejit.status().functions == ()
    assert "no function" in str(framejit.status())


def test_a_function_in_one_graph():
    fast = framejit.optimize(whole)
    for _ in range(3):
        fast(X)
    seen = record("whole")
    assert (seen.state, seen.graphs, seen.ops, len(seen.breaks), seen.recompiles, seen.entries, seen.hits) == (
        "compiled", 1, 1, 0, 0, 1, 2,
    )
    assert (seen.file, seen.line) == (__file__, whole.__code__.co_firstlineno)
    assert seen.seconds > 0


def test_a_function_in_parts():
    framejit.optimize(in_parts)(X)
    seen = record("in_parts")
    assert seen.state == "compiled in parts"
    [broken] = seen.breaks.values()
    assert broken.line == in_parts.__code__.co_firstlineno + 2


def test_recompiles_are_counted():
    fast = framejit.optimize(whole)
    for dtype in (torch.float32, torch.float64, torch.int64):
        fast(torch.ones(2, dtype=dtype))
    seen = record("whole")
    assert (seen.recompiles, seen.entries) == (2, 3)


def test_a_module_is_named_by_its_class():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x + 1

    model = framejit.optimize(Net())
    model(X)
    model(X)
    seen = record("Net")
    assert (seen.entries, seen.hits) == (1, 1)
    assert (seen.file, seen.line) == (__file__, Net.forward.__code__.co_firstlineno)


def test_it_prints_as_a_table():
    fast = framejit.optimize(in_parts)  # held: entries are those of living functions
    fast(X)
    text = str(framejit.status())
    for part in ("in_parts", "compiled in parts", "test_status_and_reset.py"):
        assert part in text


def test_it_is_plain_data():
    framejit.optimize(in_parts)(X)
    [seen] = framejit.status().to_dict()
    assert seen["state"] == "compiled in parts"
    assert seen["breaks"][0]["code"].startswith("FJ")


def test_reset_forgets_compiled_code_status_and_events():
    backend = CountingBackend()
    fast = framejit.optimize(whole, backend=backend)
    fast(X)
    framejit.reset()
    assert fast.entries == ()
    assert framejit.status().functions == ()
    assert framejit.events.events() == []
    fast(X)
    assert len(backend.graphs) == 2


def test_reset_forgets_which_warnings_were_given():
    def backend(gm, inputs):
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise TypeError("tensors only")
        return gm.forward

    for _ in range(2):
        with pytest.warns(framejit.FramejitWarning, match="anew for each new size"):
            framejit.optimize(whole, backend=backend, dynamic=True)(X)
        framejit.reset()


def test_reset_reaches_modules():
    backend = CountingBackend()
    model = framejit.optimize(torch.nn.ReLU(), backend=backend)
    model(X)
    framejit.reset()
    model(X)
    assert len(backend.graphs) == 2
