"""Mutations of lists, dicts, sets and deques that outlive the call: contents, order, identity, aliasing."""
import collections

import pytest
import torch

import framejit

from support import check, check_state

X = torch.tensor([1.0, 2.0])


def test_list_argument():
    def fn(x, out):
        out.append(x + 1)
        out[0] = x * 2
        out.insert(1, "mid")

    check(fn, X, [None])


def test_list_of_the_closure_over_several_calls():
    def make():
        log = []

        def fn(x):
            log.append(x + len(log))
            return log[-1] * 2

        return fn, log

    check_state(make, (X,), (X,), (X,))


def test_every_list_mutation():
    def fn(x, a, b, c, d, e):
        a.extend([x + 1, 2])
        b.pop()
        c.sort(reverse=True)
        d.reverse()
        del e[1:]
        e += [5]
        return x * 2

    check(fn, X, [], [1, 2], [1, 3, 2], [1, 2], [1, 2, 3])


def test_dict_argument_keeps_insertion_order():
    def fn(x, d):
        d["z"] = x + 1
        d["a"] = d.pop("b")
        d.setdefault("new", x * 2)
        del d["c"]
        d["c"] = None

    check(fn, X, {"b": 1, "c": 2})


def test_dict_cleared_and_refilled():
    def fn(x, d):
        d.clear()
        d.update(one=x + 1)
        return d

    check(fn, X, {"b": 1})


def test_set_deque_defaultdict_ordereddict():
    def fn(x, s, q, dd, od):
        s.add(2)
        q.appendleft(x + 1)
        dd["k"].append(x * 2)
        od.move_to_end("a")
        od["c"] = 3

    check(
        fn, X, {1}, collections.deque([1], maxlen=3), collections.defaultdict(list), collections.OrderedDict(a=1, b=2)
    )


def test_nested_containers():
    def fn(x, tree):
        tree["layers"][0]["out"].append(x + 1)
        tree["layers"].append({"out": []})
        return len(tree["layers"])

    check(fn, X, {"layers": [{"out": []}]})


def test_mutation_through_an_alias_inside():
    def fn(x, d):
        inner = d["list"]
        inner.append(x + 1)
        other = d["list"]
        other.append(2)
        return inner is other, len(inner)

    check(fn, X, {"list": []})


def test_two_arguments_that_are_the_same_list():
    def fn(x, a, b):
        a.append(x + 1)
        b.append(2)
        return len(a), a is b

    shared = []
    check(fn, X, shared, shared, changed=[(X, [], [])])


def test_container_that_contains_itself():
    def fn(x, items):
        items.append(items)
        items.append(x + 1)
        return items[0] is items

    check(fn, X, [])


def test_new_container_put_into_an_old_one():
    def fn(x, d):
        fresh = [x + 1]
        d["a"] = fresh
        d["b"] = fresh
        fresh.append("later")
        return fresh

    check(fn, X, {})


def test_mutation_then_read_gives_the_new_value():
    def fn(x, d):
        d["n"] += 1
        x = x + d["n"]
        d["n"] *= 10
        return x * d["n"]

    check(fn, X, {"n": 1})


def test_effects_before_an_exception_stay():
    def fn(x, log):
        log.append(x + 1)
        log.append("before")
        raise ValueError("stop")

    check(fn, X, [], raises=ValueError)


def test_iterating_while_replacing_values():
    def fn(x, d):
        for k in d:
            d[k] = x * d[k]

    check(fn, X, {"a": 1, "b": 2})


def test_list_subclass_with_attribute():
    class Tagged(list):
        tag = None

    def fn(x, t):
        t.append(x + 1)
        t.tag = len(t)

    check(fn, X, Tagged())


def test_unread_container_is_left_alone():
    marker = object()
    keep = [marker]
    check_state(lambda: (lambda x: x + len(keep), None), (X,), (X,), graphs=1)
    assert keep[0] is marker


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
def test_a_key_that_goes_while_the_graph_runs(cls):
    """A thread, or the callback of a weak reference, may take a key out of a dict between the graph, before which it
    was found, and the moment at which captured code takes it out: `WeakValueDictionary.pop` relies on one step."""
    table = cls({1: 2, 3: 4})

    def backend(gm, inputs):
        def run(*args):
            table.pop(1, None)
            return gm.forward(*args)

        return run

    def fn(x):
        return x + table.pop(1, 10)

    compiled = framejit.optimize(fn, backend=backend)
    assert compiled(X).equal(X + 2)
    assert table == {3: 4}
    table[1] = 2
    assert compiled(X).equal(X + 2)
    assert table == {3: 4}
    assert compiled(X).equal(X + 10)


def test_methods_of_a_subclass_of_list_are_called_once():
    """Changes are replayed on the real list by the methods of list, whatever the class has in their place."""

    def world():
        log = []

        class Logged(list):
            def append(self, item):
                log.append(item)
                super().append(item)
                super().append(-1)

            def __setitem__(self, place, item):
                log.append(place)
                super().__setitem__(place, item)

            def pop(self, *place):
                log.append("pop")
                return super().pop(*place)

            def extend(self, items):
                log.append("extend")
                super().extend(items)

        only_appended, changed = Logged(), Logged([1, 2])

        def fn(x, n):
            only_appended.append(n)
            changed[0] = n
            changed.append(3)
            changed.extend([4])
            changed.pop()
            changed.sort()
            return x + len(changed)

        return fn, lambda: (list(only_appended), list(changed), log)

    check_state(world, *((torch.ones(2), n) for n in range(4)))
