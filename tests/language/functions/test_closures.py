"""Closures, nonlocal, cells shared between functions, global statements."""
import torch

from support import check, check_state, world

X = torch.tensor([1.0, 2.0])


def test_reads_captured_tensor_and_number():
    w, k = torch.tensor([3.0, 4.0]), 2
    check(lambda x: x * w + k, X)


def test_nonlocal_inside():
    def fn(x):
        total = x

        def add(v):
            nonlocal total
            total = total + v

        for i in range(3):
            add(i)
        return total

    check(fn, X)


def test_two_closures_share_a_cell():
    def fn(x):
        state = x

        def bump():
            nonlocal state
            state = state * 2

        def read():
            return state

        bump()
        first = read()
        bump()
        return first, read()

    check(fn, X)


def test_returned_closure_sees_tensors_made_inside():
    def fn(x):
        y = x + 1

        def later(z):
            return y * z

        return later, later(2)

    pair = check(fn, X)
    later, _ = pair.call(X)
    assert torch.equal(later(3), (X + 1) * 3)


def test_writes_a_cell_of_the_enclosing_scope():
    def make():
        count, last = 0, None

        def fn(x):
            nonlocal count, last
            count += 1
            last = x * count
            return last + 1

        return fn, lambda: (count, last)

    check_state(make, (X,), (X,), (X,))


def test_cell_rebound_after_capture_is_seen():
    def fn(x):
        def inner():
            return y + 1

        y = x * 2
        first = inner()
        y = x * 3
        return first, inner()

    check(fn, X)


def test_unbound_cell_raises_the_same_error():
    def fn(x):
        def inner():
            return late + 1

        y = x + 1
        if x.shape[0] == 99:
            late = y
        return inner()

    check(fn, X, raises=NameError, calls=1)


def test_default_argument_freezes_the_loop_variable():
    check(lambda x: [f(x) for f in [lambda t, i=i: t + i for i in range(3)]], X)


def test_deep_nesting():
    def fn(x):
        a = x

        def one():
            b = a + 1

            def two():
                nonlocal a
                a = b * 2
                return a + b

            return two()

        return one(), a

    check(fn, X)


def test_deleted_variable_raises_unboundlocalerror():
    def fn(x):
        y = x + 1
        del y
        return y  # noqa: F821 deleted on purpose

    check(fn, X, raises=UnboundLocalError, calls=1)


def test_global_statement_writes_the_module():
    def make():
        ns = world("""
            seen = 0
            def fn(x):
                global seen, made
                seen += 1
                made = x * 2
                return made + seen
        """)
        return ns["fn"], lambda: (ns["seen"], ns["made"])

    check_state(make, (X,), (X,))
