"""Descriptors written in C whose methods the program calls: those of slots, of `__dict__`, of tensors' attributes."""
import pytest
import torch

from support import check, check_state

X = torch.tensor([1.0, 2.0])


class Slots:
    __slots__ = ("__weakref__", "value")


class Derived(Slots):
    def __init__(self):
        self.value = 3


class Hiding(Derived):
    value = property(lambda self: 10, lambda self, value: Slots.value.__set__(self, value))


class Asking(Derived):
    def __getattribute__(self, name):
        return 7


DICT_OF = type.__dict__["__dict__"].__get__
VALUE_OF = Slots.value.__get__


def test_reading():
    kept = Derived()

    def fn(x):
        made = Slots()
        made.value = x
        return (
            VALUE_OF(kept), Slots.value.__get__(kept), Slots.value.__get__(kept, Derived),
            Slots.value.__get__(made) + 1, Slots.value.__get__(None, Slots) is Slots.value,
            torch.Tensor.shape.__get__(x), int.real.__get__(3),
        )

    check(fn, X)


def test_the_dict_of_a_class():
    def make():
        class Settings:
            count = 1

        def fn(x):
            seen = DICT_OF(Settings)
            return x + seen["count"], "other" in seen, type(seen)

        def call(x, count):
            Settings.count = count
            return fn(x)

        return call, Settings

    check_state(make, (X, 1), (X, 2), breaks=None)


def test_writing():
    def make():
        kept = Derived()

        def fn(x):
            before = Slots.value.__get__(kept)
            Slots.value.__set__(kept, before + 1)
            made = Slots()
            Slots.value.__set__(made, x)
            had = hasattr(made, "value")
            Slots.value.__delete__(made)
            return x + kept.value, had, hasattr(made, "value"), before

        return fn, lambda: kept.value

    check_state(make, (X,), (X,))


@pytest.mark.parametrize("cls", [Hiding, Asking])
def test_where_the_class_says_otherwise(cls):
    kept = cls()
    check(lambda x: (x + 1, Slots.value.__get__(kept), kept.value), X, breaks=1)


def test_an_instance_of_another_class():
    check(lambda x: (x + 1, Slots.value.__get__(x)), X, raises=TypeError)
    check(lambda x: (x + 1, Slots.value.__get__(Slots())), X, raises=AttributeError)
    check(lambda x: (x + 1, Slots.value.__get__(None, None)), X, raises=TypeError)
