"""A fault inside framejit gives the eager result plus one warning that names the place, or a typed exception."""
import warnings

import pytest
import torch

import framejit
from framejit import _native
from framejit.errors import FramejitError, InternalError

from support import CountingBackend, of_kind, recorded

X = torch.tensor([1.0, 2.0])


def body(x):
    y = x + 1
    return y.sin() * 2


def survives(fn, *args, expected):
    """Returns the warnings of two calls, each of which gave the eager result or a typed exception."""
    with recorded() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            try:
                torch.testing.assert_close(fn(*args), expected)
            except FramejitError as e:
                assert str(e)
    return of_kind(log, "warning")


def test_fault_while_the_graph_is_built(monkeypatch):
    fn = framejit.optimize(body, backend=CountingBackend())
    with monkeypatch.context() as patch:
        patch.setattr(torch.fx.Graph, "create_node", raising)
        shouts = survives(fn, X, expected=body(X))
    assert len(shouts) <= 1 and all(w.fields["place"] for w in shouts)


@pytest.mark.parametrize("place", [(torch.fx.Graph, "create_node"), (_native, "GuardTree")])
def test_under_fullgraph_a_fault_raises_each_time(monkeypatch, place):
    fn = framejit.optimize(body, backend=CountingBackend(), fullgraph=True)
    with monkeypatch.context() as patch:
        patch.setattr(*place, raising)
        for _ in range(2):
            with pytest.raises(InternalError, match="ZeroDivisionError: injected"):
                fn(X)
    torch.testing.assert_close(fn(X), body(X))


def raising(*args, **kwargs):
    raise ZeroDivisionError("injected")


def test_fault_while_metadata_is_computed(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    fn = framejit.optimize(body, backend=CountingBackend())
    with monkeypatch.context() as patch:
        patch.setattr(FakeTensorMode, "dispatch", raising)
        shouts = survives(fn, X, expected=body(X))
    assert len(shouts) <= 1


def test_fault_while_guards_are_lowered(monkeypatch):
    fn = framejit.optimize(body, backend=CountingBackend())
    with monkeypatch.context() as patch:
        patch.setattr(_native, "GuardTree", raising)
        shouts = survives(fn, X, expected=body(X))
    assert len(shouts) <= 1


def test_a_fault_in_one_function_leaves_the_others_compiled(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.fx.Graph, "create_node", raising)
        survives(framejit.optimize(body, backend=CountingBackend()), X, expected=body(X))
    backend = CountingBackend()
    torch.testing.assert_close(framejit.optimize(lambda x: x * 3, backend=backend)(X), X * 3)
    assert len(backend.graphs) == 1


def test_listener_of_events_that_raises_does_not_break_the_program():
    from framejit import events

    def listener(event):
        raise ZeroDivisionError("bad listener")

    unsubscribe = events.subscribe(listener)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.testing.assert_close(framejit.optimize(body, backend="eager")(X), body(X))
    finally:
        unsubscribe()


def test_debug_mode_checks_new_guards_on_their_own_frame():
    with framejit.config.patch(debug=True):
        backend = CountingBackend()
        fn = framejit.optimize(lambda x, d: x * d["k"] + len(d), backend=backend)
        torch.testing.assert_close(fn(X, {"k": 2}), X * 2 + 1)
        assert len(backend.graphs) == 1


def test_arguments_are_untouched_when_capture_fails(monkeypatch):
    def fn(x, log):
        log.append(1)
        x.add_(1)
        return x * 2

    log, x = [], X.clone()
    fast = framejit.optimize(fn, backend=CountingBackend())
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(torch.fx.Graph, "create_node", raising)
        try:
            fast(x, log)
        except FramejitError:
            assert not log and torch.equal(x, X)
        else:
            assert log == [1] and torch.equal(x, X + 1)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_users_errors_are_never_reported_as_internal(fullgraph):
    def fn(x):
        return (x + 1).reshape(77)

    with recorded() as log, pytest.raises(RuntimeError, match="77"):
        framejit.optimize(fn, backend="eager", fullgraph=fullgraph)(X)
    assert not of_kind(log, "warning")
