"""hasattr() of objects of all kinds, and what kind of object a method is."""
import pytest
import torch

from support import ANY, check

NAMES = (
    "__call__", "__len__", "__iter__", "__getitem__", "__setitem__", "__hash__", "__index__", "__complex__", "__eq__",
    "__doc__", "__array__", "__name__", "mro", "dot", "items", "append", "shape", "detach", "split", "tolist", "keys",
)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x, lambda x: x * 2, lambda x: x.shape, lambda x: x.numpy(), lambda x: x.numpy().sum(),
        lambda x: x.numpy().argmax(), lambda x: [x], lambda x: {"a": x}, lambda x: {1}, lambda x: (x,), lambda x: 2.5,
        lambda x: "a", lambda x: iter([x]), lambda x: {"a": x}.keys(), lambda x: x.split, lambda x: [x].append,
        lambda x: torch.Tensor, lambda x: torch.relu,
    ],
)
def test_attributes(make):
    def f(x):
        made = make(x)
        return x + 1, [(name, hasattr(made, name), callable(getattr(made, name, None))) for name in NAMES]

    check(f, torch.ones(2), graphs=ANY, breaks=None)


def test_classes_of_methods():
    def f(x):
        methods = x.split, x.add, x.__add__, x.__len__, [x].append, [x].__len__, "a".join, {}.__getitem__, (2).__add__
        return x + 1, [type(method) for method in methods], [x].__hash__

    check(f, torch.ones(2))


def test_a_method_of_another_class():
    class Holder:
        square = torch.Tensor.square
        size = list.__len__

    def f(x, name):
        try:
            return getattr(Holder(), name)(x)
        except TypeError:
            return x - 1

    check(f, torch.ones(2), "square", graphs=None, breaks=None)
    check(f, torch.ones(2), "size", graphs=None, breaks=None)
