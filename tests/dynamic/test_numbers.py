"""Ints that change from call to call become sizes that are left open."""

from __future__ import annotations

import collections
import enum
import operator

import pytest
import torch

import framejit

from comparison import assert_same

BACKENDS = pytest.mark.parametrize("backend", ["eager", "fuse"])


def compare(function, calls, backend, entries):
    fast = framejit.optimize(function, backend=backend)
    with framejit.config.patch(debug=True):
        for make in calls:
            args = [*make()]
            copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
            assert_same(function(*args), fast(*copies), atol=1e-5, rtol=1e-4)
            assert_same(args, copies, atol=1e-5, rtol=1e-4)
    assert len(fast.entries) == entries


@BACKENDS
def test_a_slice_and_a_factor(backend):
    def f(x, n):
        return x[:n] * n, x[n:], n + 1

    compare(f, [lambda n=n: (torch.randn(12, 3), n) for n in (2, 3, 4, 5, 9, 4)], backend, 2)


@BACKENDS
def test_decoding_into_a_cache(backend):
    def decode(x, cache, position):
        cache[:, position] = x
        return (cache[:, : position + 1] * 2).sum(1), cache[0, position], cache[:, position, None]

    cache = torch.zeros(2, 50, 4)
    compare(
        decode, [lambda p=p: (torch.randn(2, 4), cache.clone(), p) for p in (3, 4, 5, 6, 7, 30, 31, 48)], backend, 2
    )


@BACKENDS
def test_a_cache_that_grows(backend):
    def grow(cache, x):
        cache = torch.cat([cache, x], 1)
        return torch.softmax(cache.sum(-1), -1), cache

    compare(
        grow, [lambda n=n: (torch.randn(2, n, 4), torch.randn(2, 1, 4)) for n in range(3, 40)], backend,
        framejit.config.dynamic_after,
    )


@BACKENDS
def test_a_mask_made_of_positions_alone(backend):
    def attend(x, keys, position):
        asked = (torch.arange(1) + position)[:, None]
        there = torch.arange(16) + (position - 9)
        mask = (there > asked - 5) & (there <= asked)
        return torch.nn.functional.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)

    compare(
        attend, [lambda p=p: (torch.randn(1, 2, 1, 8), torch.randn(1, 2, 16, 8), p) for p in (24, 25, 26, 30, 7)],
        backend, 2
    )


@BACKENDS
def test_new_tensors_of_a_size(backend):
    def f(x, n):
        return torch.arange(n) + x.sum(), torch.zeros(n, 2), x.expand(n, -1), x.repeat(n)

    compare(f, [lambda n=n: (torch.randn(3), n) for n in (2, 3, 7, 64, 100)], backend, 2)


@pytest.mark.parametrize("number", [-1, 1 << 62, (1 << 62) + 1, 1 << 70, True])
def test_numbers_that_cannot_be_open(number):
    def f(x, n):
        return x * 2 if n > 5 else x[: n * 1]

    compare(f, [lambda n=n: (torch.randn(9), n) for n in (2, 3, number, 4, number)], "eager", 3)


def test_an_index_out_of_range_is_an_error_as_in_eager():
    def f(x, n):
        return x[n] + 1

    fast = framejit.optimize(f, backend="eager")
    for n in (0, 1, 2):
        assert fast(torch.arange(3.0), n) == n + 1
    with pytest.raises(IndexError) as expected:
        f(torch.arange(3.0), 3)
    with pytest.raises(IndexError) as got:
        fast(torch.arange(3.0), 3)
    assert str(got.value) == str(expected.value)


@BACKENDS
def test_indices_beside_slices_and_none(backend):
    def f(x, i, j):
        return x[i], x[:, i], x[None, i, :, j], x[1:, i, None], x[i, 0], x[i][j], x[-1, i]

    compare(
        f, [lambda i=i, j=j: (torch.randn(6, 7, 5), i, j) for i, j in ((1, 2), (2, 3), (3, 4), (4, 1), (5, 2))],
        backend, 2,
    )


def test_a_number_beside_a_tensor_of_indices():
    def f(x, i):
        return x[torch.tensor([0, 1]), i], x[i, [1, 2]], x[..., i]

    compare(f, [lambda i=i: (torch.randn(6, 7), i) for i in (1, 2, 3)], "eager", 3)


def test_the_value_can_be_known_where_it_must():
    def f(x, n):
        return [x + i for i in range(n)]

    compare(f, [lambda n=n: (torch.randn(3), n) for n in (1, 2, 3, 2)], "eager", 3)


SMALL_INTS = {
    "index by a bool modulo": (lambda x, n: x[n % x.shape[0]], (True, False, 1, 2)),
    "bool arithmetic": (lambda x, n: x * (n + x.shape[0]) + (x.shape[0] - n) + (n * x.shape[0]), (True, False)),
    "bool floor division": (
        lambda x, n: (x.shape[0] // (n + 1), n // x.shape[0], x.shape[0] == n, n < x.shape[0]),
        (True, False),
    ),
    "least and greatest": (lambda x, n: (min(n, x.shape[0]) + 0, max(n, x.shape[0]) + 0), (True, 9)),
    "bytes": (lambda x, n: (x.nbytes, x.nbytes // n, x.itemsize * x.numel()), (1, 2, 3)),
    "divmod": (lambda x, n: divmod(x.shape[0], n), (True, 2, 3)),
}


@pytest.mark.parametrize("dynamic", (True, None))
@pytest.mark.parametrize("name", SMALL_INTS)
def test_bools_and_bytes_beside_symbolic_sizes(name, dynamic):
    function, numbers = SMALL_INTS[name]
    fast = framejit.optimize(function, dynamic=dynamic, fullgraph=name != "divmod")
    for length in (3, 4, 5):
        for n in numbers:
            expected = function(torch.arange(float(length)), n)
            assert_same(expected, fast(torch.arange(float(length)), n))
            assert type(expected) is not tuple or [type(e) for e in expected] == [
                type(e) for e in fast(torch.arange(float(length)), n)
            ]


@pytest.mark.parametrize("symbol", ("%", "//"))
@pytest.mark.parametrize("dynamic", (True, None))
def test_division_by_a_size_that_is_zero(symbol, dynamic):
    def f(x, n):
        try:
            return x + (n % x.shape[0] if symbol == "%" else n // x.shape[0])
        except ZeroDivisionError as e:
            return str(e)

    def g(x, n):
        return x[n % x.shape[0]] if symbol == "%" else x[n // x.shape[0]]

    for lengths in ((3, 0, 4, 0), (0, 0, 3, 5, 0)):
        fast, faster = framejit.optimize(f, dynamic=dynamic), framejit.optimize(g, dynamic=dynamic)
        for n, length in enumerate(lengths):
            x = torch.ones(length)
            assert_same(f(x, n), fast(x, n))
            for function in (g, faster):
                if length:
                    assert_same(function(x, n), g(x, n))
                else:
                    with pytest.raises(ZeroDivisionError, match="(integer (division or )?modulo|division) by zero"):
                        function(x, n)
            assert not length or torch.equal(faster(x, n), g(x, n))


def test_an_attribute_that_tensors_do_not_have():
    for name in ("names", "nbytes", "output_nr", "is_xla"):

        def f(x, name=name):
            try:
                return getattr(x, name)
            except AttributeError as e:
                return str(e)

        assert framejit.optimize(f, fullgraph=True)(torch.ones(3)) == f(torch.ones(3))


@BACKENDS
def test_unary_plus(backend):
    def f(x, k):
        n = x.shape[0]
        return x * +n, +k + 1, operator.pos(n)

    compare(f, [lambda n=n: (torch.ones(n), n + 2) for n in (5, 7, 9, 4)], backend, 2)


@BACKENDS
def test_a_number_that_is_looked_for_in_a_table(backend):
    """One entry for all that is in none of them, and one for each number that is."""
    counted, table, words = collections.Counter([3, 6]), {8: 2.0, "8": 3.0, 7.0: 4.0}, {None: 1, (5,): 2}

    def f(x, n):
        if n in counted:
            x = x + counted[n]
        if n not in {1, 40}:
            x = x * table.get(n, 1.5)
        return x - n, counted[n], n in words, n in table.keys(), len(counted)

    numbers = (10, 11, 12, 3, 6, 8, 7, 13, 14, 40, 3, 15, 8, 1, 50)
    compare(f, [lambda n=n: (torch.ones(3), n) for n in numbers], backend, 8)


@BACKENDS
def test_a_number_that_is_looked_for_among_keys_with_an_equality_of_their_own(backend):
    class Five(enum.IntEnum):
        FIVE = 5

    class Anything:
        def __hash__(self):
            return 6

        def __eq__(self, other):
            return other == 6

    members, objects = {Five.FIVE, 9}, {Anything(): 1}

    def f(x, n):
        try:
            found = objects[n]
        except KeyError as e:
            found = e.args
        return x * n, n in members, n in objects, found

    compare(f, [lambda n=n: (torch.ones(3), n) for n in (3, 4, 5, 6, 7, 9)], backend, 6)


def test_a_table_whose_keys_change_is_asked_again():
    known = {3}

    def f(x, n):
        return x + 1 if n in known else x - n

    fast = framejit.optimize(f)
    for n in (5, 6, 7):
        assert torch.equal(fast(torch.ones(2), n), f(torch.ones(2), n))
    known.add(9)
    for n in (8, 9, 3, 10):
        assert torch.equal(fast(torch.ones(2), n), f(torch.ones(2), n))
