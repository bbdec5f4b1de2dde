"""Objects end when plain Python lets go of them, also behind graph breaks: not when their variable is read for the last
time."""
import gc
import weakref

import torch

import framejit

from support import ANY, check, check_state

X = torch.arange(4.0)


class Thing:
    def __init__(self, *parts):
        self.parts = parts


class Finalized:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


@framejit.disable
def thing(*parts):
    return Thing(*parts)


@framejit.disable
def watched(thing):
    return weakref.ref(thing)


@framejit.disable
def tell(*refs):
    print([ref() is None for ref in refs])


def test_a_variable_that_nothing_reads_again():
    def fn(x):
        held = thing()
        ref = watched(held)
        y = x + 1
        tell(ref)
        z = y * 2
        tell(ref)
        held = None
        tell(ref)
        return z + 1

    check(fn, X, graphs=3, breaks=5)


def test_an_argument():
    def inner(held, x):
        ref = watched(held)
        y = x + 1
        tell(ref)
        return y * 2, ref

    def fn(x):
        y, ref = inner(thing(), x)
        tell(ref)
        return y

    check(fn, X, graphs=2, breaks=4)


def test_a_container_made_by_captured_code():
    def fn(x):
        held = {"deep": [thing(1)], "number": 3}
        ref = watched(held["deep"][0])
        y = x + 1
        tell(ref)
        y = y + 1
        tell(ref)
        del held
        tell(ref)
        return y

    check(fn, X, graphs=2, breaks=5)


def test_what_captured_code_put_into_an_object():
    def fn(x, owner):
        owner.parts = [thing()]
        part = owner.parts[0]
        ref = watched(part)
        x = x + 1
        owner.parts = None
        tell(ref)
        x = x + 1
        tell(ref)
        part = None
        tell(ref)
        return x

    check(fn, X, Thing(), graphs=2, breaks=5)


def test_a_closure_and_what_is_in_its_cell():
    def fn(x):
        held = thing()
        ref = watched(held)

        def inner():
            return held

        x = x + len(inner().parts)
        tell(ref)
        x = x + 1
        tell(ref)
        x = x + 1
        held = None
        tell(ref)
        return x

    check(fn, X, graphs=3, breaks=5)


def test_variables_of_callers():
    def inner(x, ref):
        y = x + 1
        tell(ref)
        return y * 2

    def fn(x):
        held = thing()
        ref = watched(held)
        y = inner(x + 1, ref)
        tell(ref)
        return y

    check(fn, X, graphs=2, breaks=4)


def test_variables_of_callers_inside_a_block():
    def inner(x, outer):
        held = thing()
        ref = watched(held)
        tell(ref, outer)
        return x * 2, ref

    def fn(x):
        held = thing()
        outer = watched(held)
        try:
            x, ref = inner(x + 1, outer)
            tell(ref, outer)
        finally:
            tell(outer)
        return x + 1

    check(fn, X, graphs=range(2, 4), breaks=7)


def test_a_tensor_that_others_know():
    def fn(x):
        held = x + 1
        ref = watched(held)
        tell(ref)
        y = x * 2
        tell(ref)
        held = 3
        tell(ref)
        return y

    check(fn, X, graphs=2, breaks=4)


def test_a_tensor_that_only_the_graph_knows_stays_inside():
    def fn(x):
        inside = x + 1
        y = inside * 2
        print("break")
        return y + 1

    pair = check(fn, X, graphs=2, breaks=1)
    output = next(node for node in pair.backend.graphs[0].graph.nodes if node.op == "output")
    assert len(output.args[0]) == 1


def test_a_loop_is_captured_once_though_its_variables_hold_something_from_the_second_turn_on():
    def fn(x, n):
        for _ in range(n):
            held = thing()
            tell(watched(held))
            x = x + 1
            tell(watched(thing()))
        return x

    few, many = check(fn, X, 2, graphs=range(1, 3), breaks=6), check(fn, X, 6, graphs=range(1, 3), breaks=6)
    assert few.graphs == many.graphs


def test_a_class_made_by_the_function():
    def fn(x):
        class Local:
            pass

        ref = watched(Local)
        x = x + 1
        gc.collect()
        tell(ref)
        return x

    check(fn, X, graphs=1, breaks=4)


def finalized_things():
    log = []

    @framejit.disable
    def finalized():
        return Finalized(log)

    @framejit.disable
    def note(what):
        log.append(what)

    return log, finalized, note


def test_finalizers_run_where_the_variable_is_overwritten():
    def make():
        log, finalized, note = finalized_things()

        def fn(x):
            held = finalized()  # noqa: F841  what it held is let go of
            note("made")
            y = x + 1
            note("held")
            held = None  # noqa: F841  what it held is let go of
            note("overwritten")
            return y

        return fn, log

    check_state(make, (X,), (X,), breaks=4)


def test_finalizers_run_where_the_function_returns():
    def make():
        log, finalized, note = finalized_things()

        def inner(x):
            held = finalized()  # noqa: F841  what it held is let go of
            note("made")
            return x + 1

        def fn(x):
            y = inner(x)
            note("returned")
            return y

        return fn, log

    check_state(make, (X,), (X,), breaks=3)


def test_what_the_instruction_itself_lets_go_of():
    def make():
        log, finalized, note = finalized_things()

        @framejit.disable
        def empty(things):
            things.clear()
            note("cleared")

        def fn(x):
            things = [finalized()]
            y = x + 1
            empty(things)
            note("after")
            return y

        return fn, log

    check_state(make, (X,), (X,), breaks=3)


def test_a_frame_that_goes_on_as_plain_python_lets_go_as_well():
    def fn(x):
        held, log = thing(), []
        ref = weakref.ref(held)
        x = x + 1
        print("break")
        Finalized(log)  # leaves the rest to plain Python
        before = ref() is None
        held = None
        return x, before, ref() is None

    check(fn, X, graphs=1, breaks=2)


def test_a_call_inside_a_block_lets_go_as_well():
    def inner(x):
        held, log = thing(), []
        ref = weakref.ref(held)
        print("break")
        Finalized(log)
        before = ref() is None
        held = None
        return x * 2, before, ref() is None

    def fn(x):
        try:
            return inner(x + 1)
        finally:
            print("done")

    check(fn, X, graphs=ANY, breaks=ANY)
