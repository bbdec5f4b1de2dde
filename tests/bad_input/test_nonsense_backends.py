"""Backends that do not exist, raise, return nonsense or compute nonsense."""
import warnings

import pytest
import torch

import framejit
from framejit.errors import BackendError, FramejitError, UnknownBackend

from support import of_kind, recorded

X = torch.tensor([1.0, 2.0])


def body(x):
    return (x + 1).sin()


def eager_or_typed(fn, *args, expected):
    """The eager result plus one warning that names the place, or a typed exception; the same on the second call."""
    for attempt in range(2):
        with recorded() as log, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out = fn(*args)
            except FramejitError as e:
                assert str(e)
                continue
        torch.testing.assert_close(out, expected)
        shouts = of_kind(log, "warning")
        if attempt == 0:
            assert len(shouts) == 1 and shouts[0].fields["place"], shouts


def test_unknown_name_lists_what_there_is():
    with pytest.raises(UnknownBackend) as caught:
        framejit.optimize(body, backend="no_such_backend")(X)
    assert "no_such_backend" in str(caught.value) and "eager" in str(caught.value)


def test_backend_of_a_wrong_type():
    with pytest.raises(FramejitError):
        framejit.optimize(body, backend=5)(X)


def test_backend_that_raises():
    def broken(gm, inputs):
        raise KeyError("broken backend")

    eager_or_typed(framejit.optimize(body, backend=broken), X, expected=body(X))


@pytest.mark.parametrize("nonsense", [None, 5, "text", []], ids=repr)
def test_backend_that_returns_no_callable(nonsense):
    eager_or_typed(framejit.optimize(body, backend=lambda gm, inputs: nonsense), X, expected=body(X))


def test_backend_error_names_backend_and_cause():
    def broken(gm, inputs):
        raise KeyError("the cause")

    fn = framejit.optimize(body, backend=broken, fullgraph=True)
    with pytest.raises(BackendError) as caught:
        fn(X)
    assert "broken" in str(caught.value) and isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("bad", [lambda *a: None, lambda *a: (), lambda *a: 5], ids=["none", "nothing", "number"])
def test_compiled_graph_that_returns_the_wrong_thing(bad):
    fn = framejit.optimize(body, backend=lambda gm, inputs: bad)
    with pytest.raises(Exception) as caught:
        fn(X)
    assert not isinstance(caught.value, SystemError)


@pytest.mark.parametrize("error", [MemoryError("device full"), ValueError("bad kernel"), ZeroDivisionError()])
def test_the_program_goes_on_when_a_compiled_graph_raises(error):
    runs = []

    def backend(gm, inputs):
        def run(*args):
            runs.append(1)
            raise error

        return run

    compiled = framejit.optimize(body, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            torch.testing.assert_close(compiled(X), body(X))
    out_of_memory = isinstance(error, MemoryError)  # which may be otherwise next time
    assert len(runs) == (5 if out_of_memory else 2)
    assert [
        type(error).__name__ in str(w.message) for w in caught if "its operations don't raise" in str(w.message)
    ] == ([] if out_of_memory else [True] * 2)


def test_backend_with_a_wrong_signature():
    eager_or_typed(framejit.optimize(body, backend=lambda gm: gm.forward), X, expected=body(X))


def test_backend_that_rewrites_its_graph_is_free_to_do_so():
    def backend(gm, inputs):
        for node in gm.graph.nodes:
            node.meta.clear()
        gm.recompile()
        return gm.forward

    torch.testing.assert_close(framejit.optimize(body, backend=backend)(X), body(X))


def test_backend_that_calls_an_optimized_function_itself():
    inner = framejit.optimize(lambda x: x * 2, backend="eager")

    def backend(gm, inputs):
        inner(torch.ones(2))
        return gm.forward

    torch.testing.assert_close(framejit.optimize(body, backend=backend)(X), body(X))


def test_keyboard_interrupt_in_a_backend_is_not_swallowed():
    def backend(gm, inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        framejit.optimize(body, backend=backend)(X)


def test_good_functions_still_work_after_a_bad_backend():
    def broken(gm, inputs):
        raise KeyError

    eager_or_typed(framejit.optimize(body, backend=broken), X, expected=body(X))
    torch.testing.assert_close(framejit.optimize(body, backend="eager")(X), body(X))
