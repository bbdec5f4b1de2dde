"""Every method of list and tuple, on lists made inside and on arguments."""
import pytest
import torch

from support import ANY, Pair, check

X = torch.tensor([1.0, 2.0])


def test_growing():
    def fn(x, items):
        items.append(x + 1)
        items.extend([x, 2])
        items.insert(0, "first")
        items += (3,)
        items *= 2
        return items + [9], [0] * 3, 2 * [1]

    check(fn, X, [1])


def test_shrinking():
    def fn(x, items):
        a = items.pop()
        b = items.pop(0)
        items.remove(3)
        del items[0]
        c = items[:]
        items.clear()
        return x + a * b, c

    check(fn, X, [1, 2, 3, 4, 5])


def test_searching():
    check(lambda x, s: (x + s.index(2), s.count(2), 2 in s, len(s), s.index(2, 2), min(s), max(s)), X, [1, 2, 2])


def test_reordering():
    def fn(x, s):
        s.reverse()
        t = sorted(s, key=lambda v: -v)
        s.sort()
        u = list(s)
        u.sort(key=lambda v: v % 3, reverse=True)
        return x + s[0], s, t, u

    check(fn, X, [3, 1, 2, 5])


def test_slices_and_slice_assignment():
    def fn(x, s):
        s[1:3] = [x * 2]
        s[:0] = [7, 8]
        s[::2] = [0] * len(s[::2])
        del s[-1:]
        return s[1:], s[::-1], s[-2:]

    check(fn, X, [1, 2, 3, 4])


def test_copies_are_shallow():
    def fn(x, s):
        t, u, v = s.copy(), list(s), s[:]
        t[0].append(x + 1)
        return t is s, t[0] is s[0], u == v

    check(fn, X, [[1]])


def test_comparison():
    check(lambda x, a, b: (x + 1, a == b, a < b, a != b, [1, 2] >= [1]), X, [1, 2], [1, 3])


def test_nested_lists_mutate_through_aliases():
    def fn(x):
        grid = [[0] * 2] * 2
        grid[0][1] = x + 1
        return grid, grid[0] is grid[1]

    check(fn, X)


def test_tuple_methods_and_concatenation():
    check(lambda x, t: (x + t.count(1), t.index(2), t + (3,), t * 2, t[::-1], hash(t), t < (5,), t[-1]), X, (1, 2, 1))


def test_list_of_tensors_through_cat_and_stack():
    check(lambda xs: (torch.cat(xs), torch.stack(xs[::-1]), sum(xs)), [X, X + 1, X * 2])


def test_index_errors():
    check(lambda x, s, i: (x + 1, s[i]), X, [1], 0, changed=[(X, [1], 5)])
    check(lambda x, s: (x + 1, s.remove(9)), X, [1], raises=ValueError, calls=1)


def test_list_constructor_variants():
    check(
        lambda x: (x + 1, list("ab"), list(range(3)), list({"k": 1}), list((x,)), tuple([1]), list(map(str, [1, 2]))), X
    )


class Plain(list):
    pass


class IteratedAnew(list):
    def __iter__(self):
        return iter([7])


class Counted(list):
    asked = 0

    def __len__(self):
        Counted.asked += 1
        return super().__len__()


GROWTH = {
    "extend": lambda a: a.extend(a),
    "list.extend": lambda a: list.extend(a, a),
    "+=": lambda a: a.__iadd__(a) is a,
    "slice": lambda a: a.__setitem__(slice(None), a),
    "slice inside": lambda a: a.__setitem__(slice(1, 2), a),
    "reversed": lambda a: a.extend(list(reversed(a))),
}


@pytest.mark.parametrize("how", ["extend", "list.extend", "+="])
def test_how_often_a_list_that_grows_by_itself_is_asked_for_its_length(how):
    def fn(x):
        a = Counted([1, 2])
        Counted.asked = 0
        grown = GROWTH[how](a)
        return grown, Counted.asked, x + 1

    check(fn, X)


@pytest.mark.parametrize("cls", [list, Plain, IteratedAnew])
@pytest.mark.parametrize("how", GROWTH)
def test_a_list_that_grows_by_itself(cls, how):
    grow = GROWTH[how]

    def made(x):
        a = cls([1, x, 3])
        return grow(a), a, x + 1

    def given(x, a):
        return grow(a), len(a), x + 1

    check(made, X)
    pair = Pair(lambda: given)
    for items in ([1, 2], [1, 2], []):
        a, b = cls(items), cls(items)
        assert pair.eager(X, a)[:2] == pair.compiled(X, b)[:2]
        assert list.__eq__(a, b)
    pair.expect(graphs=ANY)
