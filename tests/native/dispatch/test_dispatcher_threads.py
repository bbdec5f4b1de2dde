"""Threads call, compile, forget and collect at once, and nothing is lost."""

from __future__ import annotations

import gc
import sys
import threading
import traceback

import pytest
import torch

import framejit.guards.tensor_layout  # noqa: F401
from framejit import _native as native

from native_support import Hooked, arg, compile_function, entry_for, node


@pytest.fixture(autouse=True)
def switch_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def run_threads(*works):
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_calling_compiling_and_forgetting():
    def f(a, b):
        return None

    template = compile_function("def f(a, b):\n return 'GRAPH'(a, b)")

    def on_miss(owner, fn, args):
        slot = native.Slot(lambda a, b: (type(a), b), native.SLOT_VALUE)
        guards = [arg(0, (native.C_TYPE, type(args[0])), (native.C_PY, lambda v: [v] and True))]
        made = entry_for(fn, template, *guards, slots=(slot,), GRAPH=slot)
        owner.add_entry(made)
        return made

    dispatcher = native.Dispatcher(f, on_miss)
    done = threading.Event()
    values = [1, "", 2.5, (), [], {}, None, True]

    def call(k):
        for i in range(1500):
            value = values[(i + k) % len(values)]
            assert dispatcher(value, b=i) == (type(value), i)

    def forget():
        while not done.is_set():
            dispatcher.clear()
            for entry in dispatcher.entries:
                try:
                    dispatcher.remove_entry(entry)
                except ValueError:
                    pass
            gc.collect(0)

    def callers():
        try:
            run_threads(*(lambda k=k: call(k) for k in range(8)))
        finally:
            done.set()

    run_threads(callers, forget)
    assert dispatcher.hits + dispatcher.misses == 8 * 1500


def test_the_busy_flag_is_of_one_thread():
    def f(a):
        return "original"

    entered, leave = threading.Event(), threading.Event()

    def on_miss(owner, fn, args):
        if args[0] == "slow":
            entered.set()
            assert leave.wait(20)
        return entry_for(fn, lambda a: "made")

    dispatcher = native.Dispatcher(f, on_miss)

    def slow():
        assert dispatcher("slow") == "made"

    def other():
        assert entered.wait(20)
        assert not native.busy() and dispatcher(1) == "made"
        leave.set()

    run_threads(slow, other)


def test_the_scope_of_the_hook_is_of_one_thread():
    def user(a):
        return "original"

    def outer(go):
        return None

    inside, checked = threading.Event(), threading.Event()
    native.install_hook_policy(
        lambda code, ns: code is user.__code__, lambda cache, fn, args: entry_for(fn, lambda a: "captured")
    )

    def wait():
        inside.set()
        assert checked.wait(20)

    template = compile_function("def outer(go):\n go()\n return user(1)", user=user)
    outer = type(outer)(outer.__code__, template.__globals__)
    dispatcher = native.Dispatcher(outer, lambda *a: None)
    dispatcher.add_entry(entry_for(outer, template, flags=native.RUNS_USER_CODE))

    def first():
        assert dispatcher(wait) == "captured"

    def second():
        assert inside.wait(20)
        assert native.hook_active() and user(1) == "original"
        checked.set()

    run_threads(first, second)
    native.install_hook_policy(None, None)
    assert not native.hook_active()


def test_the_hook_under_many_threads():
    def shared(a, b):
        return None

    def shared_template(a, b):
        return ("S", a, b)

    with Hooked() as hook:
        hook.replace(shared, shared_template)
        stop = threading.Event()

        def work(k):
            for i in range(60):
                f = compile_function("def f(a, b):\n return a")
                g = compile_function(f"def g(a, b):\n c = d = (a, b)\n return (a, b, {i})")
                hook.replace(f, g)
                for j in range(50):
                    assert f(j, k) == (j, k, i) and shared(j, k) == ("S", j, k)

        def upset():
            while not stop.is_set():
                native.reset_all_codes()
                native.reset_code(shared.__code__)
                gc.collect(0)

        def workers():
            try:
                run_threads(*(lambda k=k: work(k) for k in range(6)))
            finally:
                stop.set()

        run_threads(workers, upset)


def test_guards_on_modules_that_others_change():
    module = torch.nn.Linear(2, 2)

    def f(module):
        return module.training

    guards = lambda training: [  # noqa: E731
        arg(
            0,
            children=[
                node(
                    native.A_DICT,
                    None,
                    children=[
                        node(native.A_KEY, "training", (native.C_EQUALS, training)),
                        node(
                            native.A_KEY, "_parameters", (native.C_LEN, 2),
                            children=[node(native.A_KEY, "weight", (native.C_TENSOR, module.weight))],
                        ),
                    ],
                )
            ],
        )
    ]
    dispatcher = native.Dispatcher(f, lambda *a: None)
    for training in (True, False):
        dispatcher.add_entry(entry_for(f, lambda module: "ANSWER", *guards(training), ANSWER=training))
    stop = threading.Event()

    def call():
        while not stop.is_set():
            assert dispatcher(module) in (True, False)

    def change():
        for i in range(3000):
            module.train(i % 2 == 0)
            module.weight = torch.nn.Parameter(torch.zeros(2, 2 + i % 3))
            module.note = i
        stop.set()

    run_threads(call, call, change)
    module.weight = torch.nn.Parameter(torch.zeros(2, 2))
    for training in (True, False, True):
        module.train(training)
        assert dispatcher(module) is training
