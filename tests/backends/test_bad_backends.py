"""A backend that raises or returns something that cannot be called: the eager result and one warning, or an error under
`fullgraph`."""
import pytest
import torch

import framejit
from framejit.backends.registry import compile_with_backend
from framejit.errors import BackendError, FramejitWarning
from framejit.options import make_options

from support import of_kind, recorded

X = torch.arange(4.0)


def raising(gm, example_inputs):
    raise KeyError("no kernel")


def returning_nothing(gm, example_inputs):
    return None


def f(x):
    return x * 2 + 1


BAD = [
    (raising, "'raising' raised KeyError: 'no kernel'"),
    (returning_nothing, "'returning_nothing' must return something that can be called, not NoneType"),
]


@pytest.mark.parametrize(("backend", "message"), BAD)
def test_the_eager_result_and_one_warning(backend, message):
    fast = framejit.optimize(f, backend=backend)
    with pytest.warns(FramejitWarning) as caught:
        for _ in range(3):
            assert torch.equal(fast(X), f(X))
    assert len(caught) == 1
    assert message in str(caught[0].message)
    assert (caught[0].filename, caught[0].lineno) == (__file__, f.__code__.co_firstlineno)


@pytest.mark.parametrize(("backend", "message"), BAD)
def test_an_error_under_fullgraph(backend, message):
    with pytest.raises(BackendError, match="backend") as caught:
        framejit.optimize(f, backend=backend, fullgraph=True)(X)
    assert message in str(caught.value)


@pytest.mark.parametrize(("backend", "message"), BAD)
def test_it_is_in_the_status(backend, message):
    fast = framejit.optimize(f, backend=backend)
    with pytest.warns(FramejitWarning):
        fast(X)
    [seen] = framejit.status().functions
    assert seen.state == "eager" and message in seen.reason


def test_the_cause_is_kept():
    graph = torch.fx.symbolic_trace(f)
    with pytest.raises(BackendError) as caught:
        compile_with_backend(make_options(backend=raising), graph, [X])
    assert isinstance(caught.value.__cause__, KeyError)


def test_success_is_an_event():
    graph = torch.fx.symbolic_trace(f)
    with recorded() as log:
        compile_with_backend(make_options(backend="eager"), graph, [X], frame_id=3)
    [event] = of_kind(log, "backend")
    assert (event.name, event.frame_id) == ("eager", 3) and event.seconds >= 0


def test_what_only_the_compiled_graph_raises_is_told_and_kept_from_the_program():
    def explosive(gm, example_inputs):
        def run(*inputs):
            raise RuntimeError("out of memory")

        return run

    with pytest.warns(
        FramejitWarning,
        match="'explosive' made of f raised RuntimeError: out of memory, and its operations don't raise",
    ):
        assert framejit.optimize(f, backend=explosive)(X).equal(f(X))
