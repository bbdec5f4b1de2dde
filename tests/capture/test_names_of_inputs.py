"""Each input of a graph has a name of its own, whatever the program calls things."""

from types import SimpleNamespace

import torch

from support import check


def test_an_attribute_and_a_variable_whose_names_are_alike():
    def fn(m, m_w, input_):
        return m.w * 2 + m_w + m.w_ - input_ + m.d["w"] * m.d["_w"]

    ones = torch.ones(3)
    check(fn, SimpleNamespace(w=ones, w_=ones * 2, d={"w": ones * 3, "_w": ones * 4}), ones * 5, ones * 6, graphs=1)
