"""Nothing leaks and nothing dies early: dispatchers, entries, guards and slots go when the user drops the function, not
before."""

from __future__ import annotations

import gc
import sys
import weakref

import torch

import framejit.guards.tensor_layout  # noqa: F401
from framejit import _native as native

from native_support import arg, compile_function, entry_for, never, node, replaced, tree


def _resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_dropping_the_function_frees_everything():
    class Graph:
        def __call__(self, x):
            return x

    def make():
        big = torch.zeros(3)

        def fn(x):
            return fn, big  # a cycle through its own closure

        graph = Graph()
        template = compile_function("def fn(x):\n return 'GRAPH'(x)")
        # the replacement needs the same free variables: take the function's own code
        slot = native.Slot(graph, native.SLOT_VALUE)
        guards = tree(
            arg(0, (native.C_TENSOR, torch.zeros(2))),
            node(native.A_CLOSURE_CELL, 0, children=[node(native.A_CELL, None, (native.C_ID, big))]),
        )
        code = fn.__code__.replace(co_consts=(*fn.__code__.co_consts, slot, template.__code__))
        entry = native.Entry(code, fn, guards, (slot,), 0, {"tag": graph})
        dispatcher = native.Dispatcher(fn, lambda *a: dispatcher)
        dispatcher.add_entry(entry)
        fn.optimized = dispatcher
        return dispatcher, [weakref.ref(o) for o in (dispatcher, fn, graph, big)]

    dispatcher, refs = make()
    gc.collect()
    assert all(ref() is not None for ref in refs)
    del dispatcher
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


def test_guards_do_not_keep_modules_alive():
    def fn(module, x):
        return None

    dispatcher = native.Dispatcher(fn, lambda *a: None)
    for _ in range(5):
        module = torch.nn.Linear(2, 2)
        guards = [
            arg(
                0,
                (native.C_TYPE, torch.nn.Linear),
                (native.C_ID, module),
                children=[
                    node(
                        native.A_DICT,
                        None,
                        children=[
                            node(
                                native.A_KEY,
                                "_parameters",
                                children=[
                                    node(
                                        native.A_KEY, "weight", (native.C_TENSOR, module.weight),
                                        (native.C_ID, module.weight),
                                    )
                                ],
                            )
                        ],
                    )
                ],
            )
        ]
        dispatcher.add_entry(entry_for(fn, lambda module, x: "hit", *guards))
        assert dispatcher(module, 1) == "hit"
        gone, weight = weakref.ref(module), weakref.ref(module.weight)
        del module, guards
        gc.collect()
        assert gone() is None and weight() is None and dispatcher.entries[-1].guards.expired
    dispatcher(None, 1)  # a miss sweeps the entries that can never match again
    assert dispatcher.entries == ()


def test_entries_live_while_they_run():
    """Every owner goes away in the middle of a run."""
    log = []

    class Graph:
        def __call__(self, x):
            return x + 1

        def __del__(self):
            log.append("freed")

    def fn(action):
        return None

    template = compile_function("def fn(action):\n action()\n return 'GRAPH'(1)")
    for _ in range(4):
        slot = native.Slot(Graph(), native.SLOT_VALUE)
        holder = [native.Dispatcher(fn, never)]
        holder[0].add_entry(entry_for(fn, template, slots=(slot,), GRAPH=slot))
        log.clear()

        def drop(holder=holder):
            holder.clear()
            gc.collect()
            assert log == []

        assert holder[0](drop) == 2
        del slot
        gc.collect()
        assert log == ["freed"]


def test_entries_may_be_replaced_from_their_own_guards():
    def fn(a):
        return "original"

    dispatcher = native.Dispatcher(fn, lambda *a: None)

    def upset(value):
        dispatcher.clear()
        gc.collect(0)
        dispatcher.add_entry(entry_for(fn, lambda a: "second", arg(0, (native.C_PY, lambda v: False))))
        return value

    for _ in range(20):
        dispatcher.clear()
        for _ in range(3):
            dispatcher.add_entry(entry_for(fn, lambda a: "first", arg(0, (native.C_PY, upset), (native.C_TYPE, bool))))
        assert dispatcher(True) == "first"
        dispatcher.clear()
        for _ in range(3):
            dispatcher.add_entry(entry_for(fn, lambda a: "first", arg(0, (native.C_PY, upset), (native.C_TYPE, bool))))
        assert dispatcher(False) == "original"


def test_a_cleared_dispatcher_raises_instead_of_crashing():
    """The collector may clear a dispatcher that a finaliser of the same cycle still calls."""
    outcomes = []

    class Finalised:
        def __del__(self):
            try:
                outcomes.append(self.dispatcher(1))
            except RuntimeError as e:
                outcomes.append(e)

    for _ in range(10):
        def fn(a):
            return a

        obj = Finalised()
        obj.dispatcher = replaced(fn, lambda a: "hit")
        obj.dispatcher.back = obj
        del obj, fn
    gc.collect()
    assert outcomes == ["hit"] * 10  # finalisers run before anything is cleared


def test_no_growth():
    def fn(a, b=2, *rest, k=3, **kw):
        return None

    def once():
        dispatcher = native.Dispatcher(fn, lambda *a: None)
        slot = native.Slot(len, native.SLOT_VALUE)
        guards = [
            arg(0, (native.C_TENSOR, torch.zeros(2, 2)), (native.C_RECORD, 0)),
            arg(1, (native.C_EQUALS, (1, "x")), (native.C_ID, once)),
            node(native.A_STATE, None, (native.C_STATE, native.snapshot_state()), (native.C_DISTINCT, (0,))),
        ]
        dispatcher.add_entry(native.Entry(entry_for(fn, fn).code, fn, tree(*guards, n_records=1), (slot,), 1, ["tag"]))
        dispatcher(torch.zeros(2, 2), (1, "x"), 5, z=1)
        dispatcher.lookup((1, 2, (), 3, {}))
        dispatcher.entries[0].guards.explain((1,), fn)
        try:
            native.GuardTree([arg(0, (native.C_TENSOR, torch.zeros(2)), (native.C_TYPE, 3))])
        except TypeError:
            pass

    def run(n):
        for _ in range(n):
            once()
        gc.collect()

    def growth(n):
        objects, memory, blocks = len(gc.get_objects()), _resident(), sys.getallocatedblocks()
        run(n)
        return len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks, _resident() - memory

    run(500)
    rounds = [growth(3000) for _ in range(3)]  # a leak shows in every round; the allocator's own growth does not
    assert (
        min(r[0] for r in rounds) < 50 and min(r[1] for r in rounds) < 500 and min(r[2] for r in rounds) < 3_000_000
    ), rounds
