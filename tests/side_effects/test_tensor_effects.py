"""In-place writes to inputs, aliases among inputs and outputs, objects created inside and returned."""
import torch
from torch import nn

from support import check, check_state

X = torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_write_to_an_input_and_return_a_view_of_it():
    check(lambda x: (x.mul_(2), x[1:3], x.view(2, 2)), X)


def test_write_to_a_view_input_changes_the_base():
    base = X.clone()
    check(lambda view, whole: (view.add_(1), whole * 2), base[1:], base)


def test_output_aliases_input():
    check(lambda x: x, X, graphs=0)
    check(lambda x: (x + 1, x), X)
    check(lambda x: x.view(2, 2), X)


def test_two_outputs_share_a_storage():
    def fn(x):
        y = x + 1
        return y, y[:2], y.t() if y.dim() > 1 else y, y

    check(fn, X)


def test_order_of_in_place_writes_and_python_effects():
    def fn(x, log):
        log.append(x.clone())
        x.add_(1)
        log.append(x.clone())
        log.append(x)
        x.mul_(10)

    check(fn, X, [])


def test_tensor_stored_then_written_in_place():
    def fn(x, d):
        y = x + 1
        d["y"] = y
        y.mul_(2)
        return d["y"] is y

    check(fn, X, {})


def test_input_replaced_in_a_container():
    def fn(items):
        items[0] = items[0] + 1
        items[1].add_(items[0])

    check(fn, [X, X.clone()])


def test_swapping_tensors_between_attributes():
    class Pair:
        def __init__(self):
            self.a, self.b = X.clone(), X * 2

    def fn(p):
        p.a, p.b = p.b, p.a
        p.a.add_(1)
        return p.a - p.b

    check(fn, Pair())


def test_objects_created_inside_and_returned_twice():
    class Node:
        def __init__(self, t):
            self.t = t
            self.next = None

    def fn(x):
        a, b = Node(x + 1), Node(x * 2)
        a.next, b.next = b, a
        return [a, b, a], {"a": a}

    check(fn, X)


def test_fresh_results_on_every_call():
    def fn(x):
        return [x + 1], {"k": []}, torch.zeros(2)

    pair = check(fn, X)
    (one, d1, z1), (two, d2, z2) = pair.compiled(X), pair.compiled(X)
    assert one is not two and one[0] is not two[0] and d1["k"] is not d2["k"] and z1 is not z2
    z1.add_(1)
    assert z2.sum() == 0 and pair.compiled(X)[2].sum() == 0


def test_parameter_update_under_no_grad():
    def fn(p, x):
        with torch.no_grad():
            p.sub_(0.1 * x)
        return (p * x).sum()

    check(fn, nn.Parameter(X.clone()), X)


def test_kv_cache_growth_by_cat():
    def make():
        cache = {"k": None}

        def fn(x):
            cache["k"] = x if cache["k"] is None else torch.cat([cache["k"], x])
            return cache["k"].sum()

        return fn, cache

    check_state(make, (X,), (X,), (X,))


def test_kv_cache_written_at_a_position():
    def fn(cache, x, pos):
        cache[pos : pos + x.shape[0]] = x
        return cache[: pos + x.shape[0]].mean()

    check(fn, torch.zeros(12), X, 0, changed=[(torch.zeros(12), X, 4)])


def test_out_of_scope_tensor_is_written_through_a_closure():
    def make():
        buffer = torch.zeros(4)

        def fn(x):
            buffer.add_(x)
            return buffer * 2

        return fn, buffer

    check_state(make, (X,), (X,), graphs=1)


def test_detached_alias_sees_the_write():
    def fn(x):
        y = x * 1
        d = y.detach()
        y.add_(1)
        return d, y

    check(fn, X)


def test_expanded_and_strided_results():
    check(lambda x: (x.expand(3, 4), x[::2], x.view(2, 2).t(), x.as_strided((2,), (2,))), X)


def test_grad_accumulates_as_in_eager():
    def fn(w, x):
        return (w * x).sum()

    pair = check(fn, X.clone().requires_grad_(), X)
    w = X.clone().requires_grad_()
    pair.compiled(w, X).backward()
    pair.compiled(w, X).backward()
    torch.testing.assert_close(w.grad, 2 * X)
