"""Methods that a class inherits from a built-in type, and has under other names, too."""
import copy

import torch

from support import Pair, check


class Fetching(dict):
    get = dict.pop
    __call__ = dict.get
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__

    def __deepcopy__(self, memo):
        return Fetching(copy.deepcopy(dict(self), memo))


class Backwards(list):
    __iter__ = list.__reversed__
    push = list.append
    pop = list.append


class Forgetful(set):
    add = set.discard
    __sub__ = set.__or__


class ByIdentity(dict):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Popping(dict):
    take = dict.pop

    def pop(self, key):
        return "own"


class TakingFromParent(Popping):
    def take(self, key):
        return super().take(key), len(self)


def test_methods_of_built_in_types_under_other_names():
    """A class has a method under the name that another method of the built-in type has."""

    def f(x):
        table, stack, numbers = Fetching(a=x, b=2), Backwards([1, 2]), Forgetful([1, 2])
        table.c = table.a * table.b
        del table.b
        stack.push(3)
        stack.pop(4)
        numbers.add(1)
        first, second = ByIdentity(a=1), ByIdentity(a=1)
        popping, taking = Popping(a=1, b=2), TakingFromParent(a=1)
        return (
            table.get("a"), table("c"), dict(table), list(stack), [*stack], stack.push.__name__, len(stack),
            numbers - {3}, first == second, first == first, first != second, second in [first], {first: 1}[first],
            popping.take("a"), popping.pop("b"), taking.take("a"),
        )

    check(f, torch.ones(2))

    def with_existing(x, table, stack, numbers):
        table.c = table.a * table.b
        stack.pop(4)
        numbers.add(1)
        return x + table.get("a"), dict(table), list(stack), numbers

    table = Fetching(a=torch.ones(2), b=2)
    check(with_existing, torch.ones(2), table, Backwards([1, 2]), Forgetful([1, 2]))
    check(lambda table: (table.a, table.missing), table, raises=KeyError)


def test_methods_of_numbers_and_strings_under_other_names():
    class Shifted(int):
        __rshift__ = int.__lshift__
        __abs__ = int.__neg__

    class Path(str):
        __truediv__ = str.__add__
        __invert__ = str.upper

    class Counted(tuple):
        index = tuple.count

    def f(x, number, path, counted):
        return x * (number >> 1), abs(number), path / "b", ~path, counted.index(1)

    check(f, torch.ones(2), Shifted(5), Path("a"), Counted((1, 1, 2)))


def test_another_method_of_a_built_in_type_is_noticed():
    class Stack(list):
        push = list.append

    def f(x, stack):
        stack.push(2)
        return x + len(stack)

    pair = Pair(lambda: f)
    pair.call(torch.ones(2), Stack([2]))
    Stack.push = list.remove
    pair.call(torch.ones(2), Stack([2]))
    pair.call(torch.ones(2), Stack([2, 3]))
    pair.expect(breaks=0)
