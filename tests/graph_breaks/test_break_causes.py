"""What breaks a graph: each cause breaks exactly where it stands, and the work around it stays captured."""
import numpy as np
import torch

import framejit

from support import check

X = torch.tensor([1.0, 2.0, 3.0])


def test_print():
    def fn(x):
        y = x + 1
        print("shape", tuple(y.shape), y)
        return y * 2

    check(fn, X, graphs=2, breaks=1, ops=2)


def test_print_of_constants_keeps_order_with_other_output():
    def fn(x):
        print("one")
        y = x + 1
        print("two", y.sum())
        print("three", end="!\n")
        return y * 2

    check(fn, X, graphs=range(1, 4), breaks=range(0, 4))


def test_item():
    def fn(x):
        n = (x * 2).sum().item()
        return x + n, n, len(f"{n:.1f}")

    check(fn, X, graphs=range(1, 3), breaks=1, changed=[(X * 3,)])


def test_tolist():
    def fn(x):
        values = (x + 1).repeat(17).tolist()
        return x * sum(values), values

    check(fn, X, graphs=2, breaks=1, changed=[(X - 5,)])


def test_int_float_bool_index_of_a_tensor():
    def fn(x):
        y = x * 2
        return x + int(y[0]), float(y[1]), bool(y.any()), [10, 20, 30][(y[0] - 1).long()]

    check(fn, X, graphs=range(1, 7), breaks=range(1, 6))


def test_if_on_a_tensor_compiles_both_sides():
    def fn(x):
        y = x + 1
        if y.sum() > 0:
            return y * 2
        return y - 5

    pair = check(fn, X, graphs=2, breaks=1)
    pair.call(-X * 9, captures=True)
    pair.expect(graphs=3)
    pair.call(X, captures=False)
    pair.call(-X * 9, captures=False)


def test_if_on_a_tensor_rejoins():
    def fn(x):
        y = x.sin()
        if y.sum() > 0:
            z = y * 2
        else:
            z = y - 5
        return z.cos() + y

    check(fn, X, graphs=2, breaks=1, changed=[(-X,)])


def test_while_on_a_tensor():
    def fn(x):
        n = 0
        while x.sum() < 100:
            x = x * 2
            n += 1
        return x + 1, n

    pair = check(fn, X, graphs=range(2, 6), breaks=range(1, 3))
    pair.call(X / 1000)
    graphs = pair.graphs
    pair.call(X / 1e9)
    assert pair.graphs == graphs, "more iterations must not mean more graphs"


def test_and_or_not_on_tensors():
    def fn(x):
        y = x + 1
        if y.sum() > 0 and not (y.max() > 100) or y.min() > 50:
            return y * 2
        return y - 1

    check(fn, X, graphs=range(2, 6), breaks=range(1, 5), changed=[(-X * 5,), (X * 1000,)])


def test_conditional_expression_on_a_tensor():
    check(lambda x: x * 2 if (x + 1).sum() > 0 else x - 1, X, graphs=2, breaks=1, changed=[(-X * 5,)])


def test_numpy_round_trip():
    def fn(x):
        a = (x + 1).numpy()
        b = np.sqrt(a) + a.shape[0]
        return torch.from_numpy(b) * 2

    check(fn, X, graphs=range(1, 5), breaks=range(0, 7))


def test_numpy_scalar_from_python_values():
    check(lambda x: x * float(np.sqrt(x.shape[0] + 1)), X, graphs=range(1, 4), breaks=range(0, 3))


def test_unsupported_c_function():
    import json

    def fn(x, text):
        y = x + 1
        scale = json.loads(text)["scale"]
        return y * scale

    check(fn, X, '{"scale": 3}', graphs=range(1, 4), breaks=range(0, 5))


def test_file_and_os_access():
    import os

    def fn(x):
        y = x + 1
        here = os.path.exists(os.getcwd())
        return y * 2 if here else y

    check(fn, X, graphs=range(1, 4), breaks=range(0, 5))


def test_explicit_graph_break():
    def fn(x):
        y = x + 1
        framejit.graph_break()
        return y * 2

    pair = check(fn, X, graphs=2, breaks=1, ops=2)
    assert pair.breaks[0][1] == fn.__code__.co_firstlineno + 2


def test_disabled_callee_runs_eagerly():
    seen = []

    @framejit.disable
    def outside(x):
        seen.append(framejit.is_compiling())
        return x.exp()

    check(lambda x: outside(x + 1) * 2, X, graphs=2, breaks=1, ops=2)
    assert not any(seen) and len(seen) == 4


def test_nonzero_and_unique_have_data_dependent_shapes():
    check(lambda x: ((x > 1).nonzero() + 1, (x * 2).unique()), X, graphs=range(1, 5), breaks=range(0, 4))


def test_user_subclass_with_torch_function():
    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

        def __deepcopy__(self, memo):
            return self.as_subclass(torch.Tensor).clone().as_subclass(Named)

    check(lambda t: (t + 1) * 2, X.as_subclass(Named), graphs=range(0, 10), breaks=range(0, 20), ops=None)


def test_timing_and_logging_calls():
    import logging
    import time

    logger = logging.getLogger("test")

    def fn(x):
        start = time.perf_counter()
        y = x + 1
        logger.debug("took %s", time.perf_counter() - start)
        return y * 2

    pair = check(fn, X, graphs=range(1, 5), breaks=range(0, 6), calls=1)
    for captures in (None, None, False):  # a clock never gives the same number twice
        pair.call(X, captures=captures)


def test_an_exception_class_with_tensor_message():
    def fn(x):
        y = x + 1
        if y.min() < 0:
            raise ValueError(f"negative: {y.min().tolist()}")
        return y.sqrt()

    check(fn, X, graphs=1, breaks=0, changed=[(X - 10,)])
