"""Slots and tail calls: how replacement code calls graphs and continues in resume functions without nesting."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

import pytest

from framejit import _native as native

from native_support import arg, compile_function, entry_for, flat, never, replaced, tree

LOOP = "def loop(n, acc):\n if n == 0: return acc\n return 'NEXT'(n - 1, acc)"


def _dispatch_to(fn, source, **targets):
    """A dispatcher whose only entry is `source` with slots, given as name=(target, kind), in place of the named
    constants."""
    dispatcher = native.Dispatcher(fn, never)
    template = compile_function(source)
    slots = {
        name: native.Slot(dispatcher if target is None else target, kind) for name, (target, kind) in targets.items()
    }
    dispatcher.add_entry(entry_for(fn, template, slots=tuple(slots.values()), **slots))
    return dispatcher


def loop(n, acc):
    raise AssertionError("the original ran")


def start(n, acc):
    raise AssertionError("the original ran")


def test_a_value_slot_forwards_everything():
    seen = []

    def target(*args, **kwargs):
        seen.append((args, kwargs))
        return len(seen)

    slot = native.Slot(target, native.SLOT_VALUE)
    assert slot(1, 2, x=3) == 1 and slot() == 2 and slot.target is target and slot.kind == native.SLOT_VALUE
    assert seen == [((1, 2), {"x": 3}), ((), {})]
    assert hash(slot) == hash(slot) and slot != native.Slot(target, native.SLOT_VALUE)


def test_a_tail_slot_runs_nothing():
    ran = []
    dispatcher = native.Dispatcher(loop, lambda *a: ran.append(a))
    call = native.Slot(dispatcher, native.SLOT_TAIL)(1, 2)
    assert native.is_tailcall(call) and not native.is_tailcall(3) and ran == []
    with pytest.raises(TypeError, match="positional"):
        native.Slot(dispatcher, native.SLOT_TAIL)(1, acc=2)


def test_tail_calls_do_not_nest():
    looping = _dispatch_to(loop, LOOP, NEXT=(None, native.SLOT_TAIL))
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(n, [acc])", NEXT=(looping, native.SLOT_TAIL))
    value = object()
    before = sys.getrefcount(value)
    for n in (0, 1, 5, 50_000):
        assert starting(n, value) == [value]
    assert looping(50_000, 7) == 7
    assert sys.getrefcount(value) == before


def test_a_tail_call_that_misses_asks_its_own_dispatcher():
    asked = []

    def resume(n, acc):
        return ("eager", n, acc)

    resumer = native.Dispatcher(resume, lambda owner, fn, args: asked.append((owner, fn, args)))
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(n, acc)", NEXT=(resumer, native.SLOT_TAIL))
    assert starting(1, 2) == ("eager", 1, 2) and asked == [(resumer, resume, (1, 2))]


def test_making_a_tail_call_gives_the_final_value():
    looping = _dispatch_to(loop, LOOP, NEXT=(None, native.SLOT_TAIL))
    assert native.make_tail_call(native.tail_call(looping, 1000, 5)) == 5
    with pytest.raises(AssertionError, match="the original ran"):
        native.make_tail_call(native.tail_call(native.Dispatcher(loop, lambda *a: None), 1, 2))


class Weak:
    pass


def test_a_function_that_is_called_so_can_take_its_arguments_over():
    gone = []

    def resume(value):
        native.take_over_arguments()
        ref = weakref.ref(value)
        value = None
        gone.append(ref() is None)

    def keeps(value):
        value = weakref.ref(value)
        resumer(Weak())  # the caller's stack holds this one
        gone.append(value() is None)

    resumer, keeper = native.Dispatcher(resume, lambda *a: None), native.Dispatcher(keeps, lambda *a: None)
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(acc())", NEXT=(resumer, native.SLOT_TAIL))
    starting(1, Weak)
    assert gone == [True]
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(acc())", NEXT=(keeper, native.SLOT_TAIL))
    starting(1, Weak)
    assert gone == [True, False, False]
    native.take_over_arguments()


def test_exceptions_after_a_tail_call_show_no_extra_frames():
    def resume(n, acc):
        return None

    resumer = replaced(resume, compile_function("def resume(n, acc):\n raise KeyError(n)"))
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(n, acc)", NEXT=(resumer, native.SLOT_TAIL))
    with pytest.raises(KeyError) as caught:
        starting(1, 2)
    assert [x.name for x in traceback.extract_tb(caught.tb)][1:] == ["resume"]


def test_slots_check_their_target():
    with pytest.raises(TypeError, match="Dispatcher"):
        native.Slot(len, native.SLOT_TAIL)
    with pytest.raises(ValueError, match="kind"):
        native.Slot(len, 7)


def test_a_slot_belongs_to_one_entry():
    slot = native.Slot(len, native.SLOT_VALUE)
    entry = native.Entry(flat(start), start, tree(), (slot,))
    with pytest.raises(ValueError, match="one entry"):
        native.Entry(flat(start), start, tree(), (slot,))
    other = native.Slot(len, native.SLOT_VALUE)
    with pytest.raises(ValueError, match="one entry"):
        native.Entry(flat(start), start, tree(), (other, other))
    assert native.Entry(flat(start), start, tree(), (other,)).slots == (other,)
    assert entry.slots == (slot,)


def test_a_slot_dies_with_its_entry():
    slot = native.Slot(len, native.SLOT_VALUE)
    entry = native.Entry(flat(start), start, tree(), (slot,))
    assert slot([]) == 0
    del entry
    with pytest.raises(RuntimeError, match="outlived"):
        slot([])
    assert slot.target is None


def test_a_run_in_progress_survives_the_removal_of_its_entry():
    def fn(action):
        return None

    source = "def fn(action):\n action()\n return 'SLOT'((1, 2, 3))"
    for _ in range(20):
        dispatcher = _dispatch_to(fn, source, SLOT=(len, native.SLOT_VALUE))
        entry = weakref.ref(dispatcher)
        assert dispatcher(lambda d=dispatcher: (d.clear(), gc.collect(0))) == 3
        assert dispatcher.entries == () and entry() is dispatcher


def test_a_cycle_of_resume_functions_is_collected():
    looping = _dispatch_to(loop, LOOP, NEXT=(None, native.SLOT_TAIL))
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(n, acc)", NEXT=(looping, native.SLOT_TAIL))
    assert starting(3, 1) == 1
    gone = weakref.ref(looping), weakref.ref(starting)
    del looping, starting
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_long_chains_of_dispatchers_are_freed_without_recursion():
    last = native.Dispatcher(loop, never)
    for _ in range(20_000):
        last = _dispatch_to(loop, LOOP, NEXT=(last, native.SLOT_TAIL))
    del last
    gc.collect()


def test_guards_are_checked_at_each_step():
    def resume(n, acc):
        return ("eager", type(acc))

    resumer = native.Dispatcher(resume, lambda *a: None)
    resumer.add_entry(entry_for(resume, lambda n, acc: "int entry", arg(1, (native.C_TYPE, int))))
    starting = _dispatch_to(start, "def start(n, acc):\n return 'NEXT'(n, acc)", NEXT=(resumer, native.SLOT_TAIL))
    assert starting(0, 1) == "int entry" and starting(0, "") == ("eager", str)
