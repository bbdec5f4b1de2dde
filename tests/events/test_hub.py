"""Events reach listeners, the ledger and a bounded memory that keeps nothing of the user's alive."""
import gc
import threading
import weakref

import pytest
import torch

import framejit
from framejit import events
from framejit.events import emit, listening, subscribe
from framejit.events.event import KINDS, TRANSIENT

import forked


def test_an_event_has_its_fields_as_attributes():
    emit("warning", message="m", place=None)
    [event] = events.events("warning")
    assert (event.kind, event.message, event.thread) == ("warning", "m", threading.get_ident())
    with pytest.raises(AttributeError, match="'warning' event has no field 'nothing'"):
        _ = event.nothing


def test_listeners_come_and_go():
    heard = []
    assert not listening()
    unsubscribe = subscribe(heard.append)
    assert listening()
    emit("warning", message="1", place=None)
    unsubscribe()
    unsubscribe()
    emit("warning", message="2", place=None)
    assert [event.message for event in heard] == ["1"]
    assert not listening()


def test_a_listener_that_raises_is_dropped_with_a_warning():
    calls = []

    def broken(event):
        calls.append(event)
        raise ValueError("oops")

    unsubscribe = subscribe(broken)
    with pytest.warns(framejit.FramejitWarning, match="broken raised ValueError: oops"):
        emit("warning", message="1", place=None)
    emit("warning", message="2", place=None)
    assert len(calls) == 1
    unsubscribe()


def test_memory_is_bounded_and_in_order():
    with framejit.config.patch(ring_size=10):
        for i in range(25):
            emit("warning", message=str(i), place=None)
        assert [event.message for event in events.events()] == [str(i) for i in range(15, 25)]
    emit("warning", message="25", place=None)
    assert len(events.events()) == 11


def test_memory_keeps_no_graph_alive():
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    died = weakref.ref(graph)
    emit("graph", frame_id=1, graph_id=1, graph_module=graph, n_ops=1, example_inputs=[torch.ones(1)])
    del graph
    gc.collect()
    assert died() is None
    [event] = events.events("graph")
    assert event.n_ops == 1 and not hasattr(event, "graph_module")


def test_listeners_get_everything():
    heard = []
    unsubscribe = subscribe(heard.append)
    framejit.optimize(lambda x: x + 1)(torch.ones(2))
    unsubscribe()
    for event in heard:
        assert set(KINDS[event.kind]) <= set(event.fields)
    assert {"capture_started", "graph", "guards", "backend", "frame_done"} <= {event.kind for event in heard}


def test_all_transient_fields_exist():
    assert {name for names in KINDS.values() for name in names} >= TRANSIENT


def test_a_hit_emits_nothing():
    fast, x = framejit.optimize(lambda x: x + 1), torch.ones(2)
    fast(x)
    heard = []
    unsubscribe = subscribe(heard.append)
    fast(x)
    unsubscribe()
    assert heard == []


def test_emitting_from_many_threads():
    heard = []
    unsubscribe = subscribe(heard.append)
    threads = [
        threading.Thread(target=lambda: [emit("warning", message="m", place=None) for _ in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unsubscribe()
    assert len(heard) == 800


def test_the_trace_is_light():
    heavy = ["torch._dynamo", "torch._inductor", "sympy", "framejit.capture.miss"]
    program = f"import sys, framejit.events; print([m for m in {heavy} if m in sys.modules])"
    assert forked.run(["-c", program], timeout=60).stdout.strip() == "[]"
