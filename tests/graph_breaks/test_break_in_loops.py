"""A break in a loop body keeps the body compiled: the loop stays in Python and graphs do not grow with iterations."""
# ruff: noqa: B905, B007
import torch

import framejit

from support import Pair, captured_share, check

X = torch.tensor([1.0, 2.0, 3.0])


def printed_loop(x, n):
    for i in range(n):
        x = x.sin() + i
        print(i)
        x = x.cos() * 2
    return x + 1


def data_dependent_loop(x, limit):
    n = 0
    while x.abs().sum() < limit:
        x = x * 1.5 + 0.1
        n += 1
    return x - 1, n


def test_for_loop_graphs_do_not_grow_with_iterations():
    few, many = Pair(lambda: printed_loop), Pair(lambda: printed_loop)
    few.call(X, 12)
    many.call(X, 40)
    assert many.graphs == few.graphs, f"12 iterations {few.graphs}, 40 iterations {many.graphs}\n{many.story()}"
    many.call(X, 40, captures=False)


def test_while_loop_graphs_do_not_grow_with_iterations():
    pair = Pair(lambda: data_dependent_loop)
    pair.call(X, 50.0)
    pair.call(X, 50.0, captures=False)
    for limit in (1e5, 1e9):
        pair.call(X, limit)
    pair.call(X, 1e12, captures=False)
    assert pair.graphs <= 8


def test_all_tensor_work_of_a_breaking_loop_is_in_graphs():
    assert captured_share(lambda: printed_loop, X, 5) == 1.0
    assert captured_share(lambda: data_dependent_loop, X, 1e4) >= 0.99


def test_long_loop_does_not_nest_frames():
    def fn(x):
        for _ in range(3000):
            x = x + 1
            framejit.graph_break()
        return x

    pair = Pair(lambda: fn)
    pair.call(X)
    assert pair.graphs <= 6


def test_loop_over_a_list_of_tensors():
    def fn(xs):
        out = []
        for x in xs:
            y = x * 2
            out.append(y.sum().repeat(17).tolist()[0])
        return out, xs[0] + 1

    check(fn, [X, X + 1, X + 2, X + 3], graphs=range(2, 8), breaks=1)


def test_nested_loops():
    def fn(x):
        for i in range(3):
            x = x + i
            for j in range(3):
                x = x * 2
                if x.sum() > 1e6:
                    x = x / 1e6
        return x

    pair = check(fn, X, graphs=range(2, 14), breaks=range(1, 3))
    assert pair.backend.ops >= 4


def test_loop_with_state_in_containers():
    def fn(x):
        history, best = [], {"score": -1.0}
        for i in range(5):
            y = (x * i).sin()
            score = y.sum().repeat(17).tolist()[0]
            history.append(score)
            if score > best["score"]:
                best = {"score": score, "y": y + 0}
        return best, history

    check(fn, X, graphs=range(2, 14), breaks=range(1, 3))


def test_iterator_state_survives_the_break():
    def fn(x):
        it = iter([1, 2, 3, 4, 5])
        for k in it:
            x = x + k
            framejit.graph_break()
            x = x * next(it, 10)
        return x

    check(fn, X, graphs=range(2, 12), breaks=1)


def test_zip_enumerate_dict_items_survive_the_break():
    def fn(x, d):
        for i, ((k, v), w) in enumerate(zip(d.items(), [5, 6])):
            x = x * v + w
            framejit.graph_break()
            x = x + i + len(k)
        return x

    check(fn, X, {"a": 1, "bb": 2}, graphs=range(2, 10), breaks=1)


def test_generator_driving_the_loop_survives_the_break():
    def pairs(n):
        for i in range(n):
            yield i, i * 2

    def fn(x):
        for a, b in pairs(3):
            x = x + a
            framejit.graph_break()
            x = x * (b + 1)
        return x

    check(fn, X, graphs=range(1, 10), breaks=range(1, 4))


def test_return_from_inside_a_broken_loop():
    def fn(x):
        for i in range(50):
            x = x * 2
            if x.sum() > 100:
                return x - 1, i
        return x, None

    check(fn, X, graphs=range(2, 8), breaks=1, changed=[(X * 0,)])


def test_break_before_and_after_a_clean_loop():
    def fn(x):
        x = x + 1
        framejit.graph_break()
        for i in range(4):
            x = x * 2 + i
        framejit.graph_break()
        return x - 1

    check(fn, X, graphs=3, breaks=2, ops=10)
