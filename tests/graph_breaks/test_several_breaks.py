"""Several breaks in one frame, live variables of every kind across them, deletions and reassignments."""
import torch

import framejit

from support import check, check_state

X = torch.tensor([1.0, 2.0, 3.0])


def test_three_breaks():
    def fn(x):
        a = x + 1
        framejit.graph_break()
        b = a * 2
        print(b.sum())
        c = b - a
        n = c.sum().repeat(17).tolist()[0]
        return c * n

    check(fn, X, graphs=4, breaks=3)


def test_adjacent_breaks_make_no_empty_graphs():
    def fn(x):
        y = x + 1
        framejit.graph_break()
        framejit.graph_break()
        print("a")
        return y * 2

    check(fn, X, graphs=2, breaks=range(2, 4))


def test_break_first_and_last():
    def fn(x):
        framejit.graph_break()
        y = x * 2
        framejit.graph_break()
        return y

    check(fn, X, graphs=1, breaks=2, ops=1)


def test_live_values_of_every_kind_cross_the_break():
    class Box:
        pass

    def fn(x, box):
        local, text, items, view = x + 1, "s", [x * 2, 1], x[1:]
        box.made = local
        pair = (items, {"k": items})
        inner = lambda t: t * local  # noqa: E731
        it = iter([10, 20])
        next(it)
        fresh = Box()
        fresh.t = view * 3
        framejit.graph_break()
        items.append(text)
        return inner(x) + next(it), pair, pair[1]["k"] is items, fresh, view + 1

    check(fn, X, Box(), graphs=2, breaks=1)


def test_dead_variables_are_not_kept():
    def fn(x):
        y = x + 1
        z = y * 2
        del y
        framejit.graph_break()
        try:
            return y  # noqa: F821 deleted on purpose
        except UnboundLocalError:
            return z

    check(fn, X, breaks=1, graphs=1)


def test_aliases_between_locals_survive():
    def fn(x):
        a = [x + 1]
        b = a
        y = x.clone()
        z = y[:2]
        framejit.graph_break()
        b.append(2)
        y.add_(1)
        return a, a is b, z

    check(fn, X, graphs=2, breaks=1)


def test_cells_survive():
    def fn(x):
        n = 0

        def bump():
            nonlocal n
            n += 1
            return n

        bump()
        y = x + n
        framejit.graph_break()
        bump()
        return y * n, bump

    check(fn, X, graphs=2, breaks=1)


def test_side_effects_before_the_break_are_visible_to_it():
    def make():
        log = []

        def fn(x, d):
            d["a"] = x + 1
            log.append(len(d))
            print(d["a"].sum(), log)
            d["b"] = d["a"] * 2
            log.append(len(d))
            return d

        return fn, log

    check_state(make, (X, {}), graphs=2, breaks=1).call(X, {})


def test_in_place_work_before_and_after_a_break():
    def fn(x):
        x.add_(1)
        framejit.graph_break()
        x.mul_(2)
        return x.sum()

    check(fn, X, graphs=2, breaks=1)


def test_break_with_varargs_and_kwargs_live():
    def fn(x, *args, k=1, **kw):
        y = x + args[0]
        framejit.graph_break()
        return y * k + kw["z"], args, kw

    check(fn, X, 1, 2, kwargs={"k": 3, "z": 4}, graphs=2, breaks=1)


def test_break_inside_both_branches():
    def fn(x, flag):
        y = x + 1
        if flag:
            framejit.graph_break()
            y = y * 2
        else:
            y = y - y.sum().repeat(17).tolist()[0]
        return y.sin()

    check(fn, X, True, graphs=2, breaks=1, changed=[(X, False)])


def test_grad_flows_across_breaks():
    def fn(w):
        y = w * 2
        framejit.graph_break()
        return (y * w).sum()

    pair = check(fn, X.clone().requires_grad_(), graphs=2, breaks=1)
    w = X.clone().requires_grad_()
    pair.compiled(w).backward()
    torch.testing.assert_close(w.grad, 4 * X)
