"""Which operations may raise for the numbers in their tensors, and which draw random numbers."""
import itertools
import operator
import warnings

import pytest
import torch
import torch.nn.functional as F

from framejit.backends import may_raise as known
from framejit.backends.may_raise import draws_numbers, may_raise, may_warn, operation_name
from framejit.environment import inference_modes

X, INTS, MASK = torch.ones(3), torch.tensor([1, 2, 0]), torch.tensor([True, False, True])
ATEN = torch.ops.aten


def test_every_name_is_an_operation_of_this_torch():
    namespaces = (
        torch, torch.nn.functional, torch.Tensor, torch._C, operator, torch.autograd.grad_mode, torch.special,
        torch.linalg, torch.fft, inference_modes,
    )
    names = {name.strip("_") for namespace in namespaces for name in dir(namespace)}
    names |= {
        name.removeprefix("aten::").split(".")[0].strip("_")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    listed = [known.QUIET, known.RANDOM, known.CHECKED, known.CHECKED_ON_CPU, known.SUBSCRIPTS, known.DIVISIONS]
    assert not {name for group in listed for name in group if name.strip("_") not in names}
    assert sum(map(len, listed)) == len(frozenset().union(*listed)), "a name stands in two groups"


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        (operator.getitem, (X, INTS), {}),
        (operator.setitem, (X, (INTS,), 1.0), {}),
        (operator.setitem, (X, MASK, torch.ones(2)), {}),
        (torch.gather, (X, 0, INTS), {}),
        ("index_add_", (X, 0, INTS, X), {}),
        (F.embedding, (INTS, torch.ones(2, 2)), {}),
        (F.cross_entropy, (torch.ones(3, 2), INTS), {}),
        (F.binary_cross_entropy, (X, X), {}),
        (F.one_hot, (INTS, 2), {}),
        (torch.linalg.inv, (torch.zeros(2, 2),), {}),
        (torch.norm, (torch.ones(2, 2), "nuc"), {}),
        (operator.floordiv, (INTS, INTS), {}),
        (operator.imod, (INTS, 0), {}),
        (torch.div, (INTS, INTS), {"rounding_mode": "floor"}),
        (ATEN.index.Tensor, (X, [INTS]), {}),
        (ATEN._linalg_check_errors.default, (INTS, "inv"), {"is_matrix": True}),
        (torch._assert_async, (X,), {}),
        (lambda x: x, (X,), {}),
    ],
)
def test_what_may_raise(target, args, kwargs):
    assert may_raise(target, args, kwargs)


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        (operator.getitem, (X, (slice(0, 2),)), {}),
        (operator.getitem, (X, 1), {}),
        (operator.setitem, (X, MASK, 0.0), {}),
        (operator.iadd, (X, X), {}),
        ("add_", (X, X), {}),
        ("__rsub__", (X, 1), {}),
        (F.gelu, (X,), {}),
        (F.layer_norm, (X, (3,)), {}),
        (torch.linalg.vector_norm, (X,), {}),
        (operator.floordiv, (X, X), {}),
        (operator.mod, (INTS, 2), {}),
        (torch.div, (INTS, INTS), {}),
        (ATEN._foreach_add_.List, ([X], [X]), {}),
        (F.dropout, (X, 0.5), {}),
        (torch.gather, (X.to("meta"), 0, INTS.to("meta")), {}),
    ],
)
def test_what_may_not(target, args, kwargs):
    assert not may_raise(target, args, kwargs)


def test_random_numbers():
    assert (
        draws_numbers(F.dropout, (X, 0.5), {})
        and draws_numbers("normal_", (X,), {})
        and draws_numbers(torch.rand_like, (X,), {})
    )
    assert draws_numbers(F.scaled_dot_product_attention, (X, X, X), {"dropout_p": 0.1}) and draws_numbers(
        torch.multinomial, (X, 1), {}
    )
    assert not draws_numbers(F.dropout, (X, 0.5, False), {}) and not draws_numbers(
        F.scaled_dot_product_attention, (X, X, X), {}
    )
    assert not draws_numbers(torch.gather, (X, 0, INTS), {}) and not draws_numbers(operator.getitem, (X, INTS), {})
    assert draws_numbers(lambda x: x, (X,), {}) and draws_numbers(F.fractional_max_pool2d, (X, 2), {})
    assert not draws_numbers("unflatten", (X, 0, (1, 3)), {}) and not draws_numbers(torch.linalg.qr, (X,), {})


def test_what_is_said_to_draw_no_numbers_does_not():
    """Operations that torch itself says to draw numbers; attention does so with dropout only."""
    names = {name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    seeded = {
        name for name in names for form in [getattr(ATEN, name, None)]
        if form is not None and any(
            torch.Tag.nondeterministic_seeded in getattr(form, overload).tags for overload in form.overloads()
        )
    }
    assert len(seeded) > 40
    known = {name for name in seeded if operation_name(getattr(ATEN, name)) is not None}
    quiet = {name for name in known if not draws_numbers(getattr(ATEN, name), (X,), {})}
    assert quiet <= {"scaled_dot_product_attention"}


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "warns"),
    [
        (ATEN.var.correction, (torch.ones(1, 3), [0]), {}, True),
        (ATEN.var.correction, (torch.ones(2, 3), [0]), {}, False),
        (ATEN.std_mean.correction, (torch.ones(2, 3), [0]), {"correction": 2}, True),
        (ATEN.var.dim, (torch.ones(2, 3), [0], False), {}, False),
        (ATEN._to_copy.default, (torch.ones(2, dtype=torch.complex64),), {"dtype": torch.float16}, True),
        (ATEN._to_copy.default, (X,), {"dtype": torch.complex64}, False),
        (ATEN.copy_.default, (X, torch.ones(3, dtype=torch.complex64)), {}, True),
        (ATEN.where.self, (MASK.to(torch.uint8), X, X), {}, True),
        (ATEN.where.self, (MASK, X, X), {}, False),
        (ATEN.add.Tensor, (X, X), {}, False),
    ],
)
def test_what_may_warn(target, args, kwargs, warns):
    assert may_warn(target, args, kwargs) is warns


SPREADS = [
    (), (0,), ([0],), ([0, 1],), ([-1],), (1, False), ([1], True), (True,), (False,), (None,), ([0, 2], False),
]


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 3), (3, 1), (2, 3, 1), (0, 3), (2, 0, 4), (1, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("function", [torch.var, torch.std, torch.var_mean, torch.std_mean])
def test_spreads_warn_of_too_few_elements_where_aten_does(function, shape):
    x = torch.zeros(shape)
    options = [
        {}, {"unbiased": False}, {"correction": 0}, {"correction": 2}, {"correction": 2.5, "dim": 0}, {"axis": 0},
    ]
    tried = 0
    for args, kwargs in itertools.product(SPREADS, options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                function(x, *args, **kwargs)
            except (TypeError, IndexError, RuntimeError):
                continue
        tried += 1
        assert may_warn(function, (x, *args), kwargs) == bool(caught), (args, kwargs)
    assert tried > 5
