"""The switch that calls what was compiled for the sizes of its arguments."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

from framejit._native import SizeSwitch
from framejit.guards import tensor_layout  # noqa: F401  measures where tensors keep their sizes


def switch(places=((0, 0), (1, 1)), keep=True):
    asked = []

    def miss(*tensors):
        sizes = tuple(tensors[argument].size(dim) for argument, dim in places)
        asked.append(sizes)
        return (lambda *inputs: (sizes, *inputs)), keep

    return SizeSwitch(places, miss), asked


def test_each_size_is_asked_for_once():
    call, asked = switch()
    for _ in range(3):
        for n in (2, 3):
            x, y = torch.ones(n), torch.ones(1, n + 1)
            sizes, *inputs = call(x, y)
            assert sizes == (n, n + 1) and inputs[0] is x and inputs[1] is y
    assert asked == [(2, 3), (3, 4)]


def test_what_is_not_for_good_is_asked_again():
    call, asked = switch(keep=False)
    for _ in range(3):
        assert call(torch.ones(2), torch.ones(1, 3))[0] == (2, 3)
    assert len(asked) == 3


def test_more_sizes_than_it_has_room_for():
    call, asked = switch(((0, 0),))
    for _ in range(2):
        for n in range(500):
            assert call(torch.empty(n))[0] == (n,)
    assert 500 < len(asked) <= 1000


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize("x", [torch.ones(4).as_subclass(Sub), torch.nn.Parameter(torch.ones(4))])
def test_other_tensors_are_asked_about_at_each_call(x):
    call, asked = switch(((0, 0),))
    for _ in range(2):
        assert call(x)[0] == (4,)
    assert len(asked) == 2


def test_a_dimension_or_argument_that_is_not_there():
    call, _ = switch(((0, 3),))
    with pytest.raises(IndexError):
        call(torch.ones(2))
    call, _ = switch(((2, 0),))
    with pytest.raises(IndexError):
        call(torch.ones(2))


def test_exceptions_pass_through():
    def fails(*tensors):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        SizeSwitch(((0, 0),), fails)(torch.ones(2))
    with pytest.raises(RuntimeError, match="no"):
        SizeSwitch(((0, 0),), lambda x: (fails, True))(torch.ones(2))
    with pytest.raises(TypeError, match="pair"):
        SizeSwitch(((0, 0),), lambda x: 3)(torch.ones(2))


@pytest.mark.parametrize("places", [((0,),), (("a", 0),), ((-1, 0),), ((0, -1),), tuple((0, d) for d in range(13))])
def test_bad_places(places):
    with pytest.raises((TypeError, ValueError)):
        SizeSwitch(places, print)


def test_nothing_is_kept_alive_by_a_cycle():
    class Owner:
        def miss(self, x):
            return self.run, True

        def run(self, x):
            return x

    owner = Owner()
    owner.switch = SizeSwitch(((0, 0),), owner.miss)
    owner.switch(torch.ones(2))
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_threads():
    call, _ = switch(((0, 0),))
    wrong = []

    def work():
        for n in [*range(2, 200)] * 5:
            if call(torch.empty(n))[0] != (n,):
                wrong.append(n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
