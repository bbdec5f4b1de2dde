"""Effects of different kinds happen in the order of the program, also around breaks and exceptions."""
import io
import logging

import torch

import framejit

from support import check, check_state

X = torch.tensor([1.0, 2.0])


def test_prints_keep_their_order_and_text():
    def fn(x, n):
        print("start", n)
        y = x + n
        print("sum", y.sum())
        for i in range(n):
            print(i, end=" ")
        print()
        return y * 2

    check(fn, X, 3, graphs=range(1, 8), breaks=range(0, 8))


def test_print_to_a_file_argument():
    def fn(x, out):
        print("a", file=out)
        y = x + 1
        out.write("b\n")
        return y * 2, out.getvalue()

    check(fn, X, io.StringIO(), graphs=range(1, 6), breaks=range(0, 5))


def test_callback_sees_earlier_effects():
    def make():
        log = []

        @framejit.disable
        def snapshot(items):
            log.append(list(items))

        def fn(x):
            items = [1]
            items.append(x + 1)
            snapshot(items)
            items.append(x * 2)
            snapshot(items)
            return items

        return fn, log

    check_state(make, (X,), (X,), breaks=range(1, 3))


def test_callback_mutates_what_compiled_code_reads_next():
    def make():
        @framejit.disable
        def poke(d):
            d["k"] = d["k"] + 10

        def fn(x, d):
            y = x * d["k"]
            poke(d)
            return y + d["k"]

        return fn, None

    check_state(make, (X, {"k": 1}), (X, {"k": 1}), graphs=2, breaks=1)


def test_callback_mutates_a_tensor_in_place():
    def make():
        @framejit.disable
        def poke(t):
            t.fill_(7)

        def fn(x):
            y = x + 1
            z = y * 2
            poke(y)
            return y + z

        return fn, None

    check_state(make, (X,), (X,), graphs=2, breaks=1)


def test_logging_records_keep_their_order():
    def make():
        records = []

        class Keep(logging.Handler):
            def emit(self, record):
                records.append(record.getMessage())

        logger = logging.Logger("private")
        logger.addHandler(Keep())

        def fn(x):
            logger.warning("first %d", 1)
            y = x + 1
            logger.warning("second")
            return y * 2

        return fn, records

    check_state(make, (X,), (X,), breaks=range(0, 4))


def test_effects_until_the_exception_and_none_after():
    def fn(x, log, values):
        for v in values:
            log.append(v)
            x.add_(1)
            log.append(10 // v)
        return x

    check(fn, X, [], [1, 2], changed=[(X, [], [1, 0, 2])])


def test_finally_runs_after_body_effects():
    def fn(x, log):
        try:
            log.append("body")
            x.add_(1)
            raise KeyError("k")
        finally:
            log.append(float(x.shape[0]))
            x.mul_(2)

    check(fn, X, [], raises=KeyError)


def test_destructor_order_is_not_earlier_than_in_eager():
    def make():
        log = []

        class Noisy:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                log.append(self.name)

        def fn(x, keep):
            keep["noisy"] = Noisy("kept")
            y = x + 1
            return y * 2

        return fn, log

    check_state(make, (X, {}), (X, {}), graphs=None, breaks=range(0, 3))


def test_random_streams_interleave_as_in_eager():
    import random

    def fn(x):
        a = torch.rand(2)
        b = random.random()
        c = torch.randn(2)
        return x + a * b + c, random.randint(0, 9), torch.rand(1)

    check(fn, X, graphs=range(1, 5), breaks=range(0, 4))
