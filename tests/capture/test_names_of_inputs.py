"""Each input of a graph has a name of its own, whatever the program calls things."""

from types import SimpleNamespace

import torch

from support import check


def test_an_attribute_and_a_variable_whose_names_are_alike():
    def fn(m, m_w, input_):
        return m.w * 2 + m_w + m.w_ - input_ + m.d["w"] * m.d["_w"]

    ones = torch.ones(3)
    check(fn, SimpleNamespace(w=ones, w_=ones * 2, d={"w": ones * 3, "_w": ones * 4}), ones * 5, ones * 6, graphs=1)


def test_a_tensor_called_self():
    """The first parameter of a graph's code has this name, too."""
    x, y = torch.ones(3), torch.ones(3) * 2
    for fn in (lambda self, y: self * 2 + y, lambda y, self: y * 2 + self, lambda self: self.sin() + 1):
        check(fn, *(x, y)[: fn.__code__.co_argcount], graphs=1)
