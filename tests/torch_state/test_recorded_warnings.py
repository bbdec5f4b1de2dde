"""`catch_warnings(record=True)`: what operations before a look at the list have warned of is in it."""

import warnings

import pytest
import torch

import framejit

MASK = torch.tensor([1, 0, 1, 0], dtype=torch.uint8)


def writes(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x[MASK] = torch.ones(2, 4)
        n = len(caught)
        y = x[MASK]
        return n, len(caught), [str(w.message)[:20] for w in caught], y


def empties(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = x[MASK]
        caught.clear()
        z = torch.std(x[0, :1])
        return y, z, [str(w.message)[:20] for w in caught]


def looks(caught, x):
    before = len(caught)
    y = x[MASK] * 2
    return before, len(caught), bool(caught), y


def in_another_function(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return looks(caught, x)


def looks_behind(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = x[MASK]
    return y, len(caught)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", [writes, empties, in_another_function, looks_behind])
def test_lists_that_warnings_are_put_into(fn, backend):
    optimized = framejit.optimize(fn, backend=backend)
    for n in range(3):
        x = torch.arange(16.0).view(4, 4) + n
        assert repr(fn(x.clone())) == repr(optimized(x.clone()))


def test_a_function_that_is_given_the_list():
    optimized = framejit.optimize(looks)
    for n in range(3):
        x, seen = torch.arange(16.0).view(4, 4) + n, []
        for fn in (looks, optimized):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                seen.append(repr((fn(caught, x), len(caught))))
        assert seen[0] == seen[1]
