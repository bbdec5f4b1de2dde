"""Backends of torch.compile's contract get one graph for changing sizes, in torch's symbols; what these are asked while
they compile is guarded."""

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.registry import register_backend
from framejit.errors import FramejitWarning

from comparison import assert_same

NAMED = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
BY_NAME = pytest.mark.parametrize("backend", NAMED)


class Remembering:
    """A backend that keeps what it was given, and runs the graph."""

    def __init__(self):
        self.graphs, self.examples = [], []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        self.examples.append(example_inputs)
        return gm.forward


def compare(f, calls, backend, entries, **options):
    """`calls` make the arguments of calls; eager and compiled agree on results, gradients and the arguments after the
    call."""
    fast = framejit.optimize(f, backend=backend, **options)
    for make in calls:
        torch.manual_seed(0)
        own = make()
        torch.manual_seed(0)
        theirs = make()
        expected, got = f(*theirs), fast(*own)
        assert_same((expected, theirs), (got, own), atol=1e-5, rtol=1e-5)
        for a, b in zip(theirs, own):
            if isinstance(a, torch.Tensor) and a.requires_grad:
                expected.sum().backward()
                got.sum().backward()
                assert_same(a.grad, b.grad, atol=1e-5, rtol=1e-5)
                break
    assert len(fast.entries) == entries, [str(entry.tag.records) for entry in fast.entries]
    return fast


def rows(x, n):
    y = x.view(x.shape[0] // 2, -1) + x.shape[0]
    return torch.cat([y, y]) * n


SIZES = (4, 6, 8, 10, 200, 6)


def test_a_callable_gets_numbers_and_tensors():
    backend = Remembering()
    compare(rows, [lambda n=n: (torch.randn(n, 6), 3) for n in SIZES], backend, 2)
    first, second = backend.examples
    assert [type(example) for example in first] == [torch.Tensor]
    assert [type(example) for example in second] == [torch.SymInt, torch.Tensor]
    assert type(second[1]) is torch.Tensor and second[1].shape == (6, 6)
    size, x, *_ = backend.graphs[1].graph.nodes
    assert (
        isinstance(size.meta["example_value"], torch.SymInt)
        and x.meta["example_value"].shape[0] == size.meta["example_value"]
    )
    assert type(size.meta["val"].node).__name__ == "SymNode"
    backend.graphs[1].graph.lint()


def test_from_the_first_call_on():
    backend = Remembering()
    compare(rows, [lambda n=n: (torch.randn(n, 6), n + 1) for n in SIZES], backend, 1, dynamic=True)
    assert [type(example) for example in backend.examples[0]] == [torch.SymInt] * 3 + [torch.Tensor]


def test_never():
    compare(rows, [lambda n=n: (torch.randn(n, 6), 3) for n in SIZES], Remembering(), 5, dynamic=False)


@BY_NAME
def test_named_ones(backend):
    compare(rows, [lambda n=n: (torch.randn(n, 6), n + 1) for n in SIZES], backend, 1, dynamic=True)
    compare(rows, [lambda n=n: (torch.randn(n, 6), n + 1) for n in SIZES], backend, 2)


@BY_NAME
def test_gradients(backend):
    weight = torch.nn.Parameter(torch.randn(6, 3))

    def f(x, y):
        return F.gelu(x @ weight).softmax(0) * y.mean(0) + x.shape[0]

    compare(f, [lambda n=n: (torch.randn(n, 6, requires_grad=True), torch.randn(n + 1, 3)) for n in SIZES], backend, 2)


def wants_even(x):
    return x * 2


@register_backend("test_wants_even")
def asking(gm, example_inputs):
    """Compiles two things, by a question about a size."""
    if isinstance(example_inputs[0], torch.SymInt) and example_inputs[0] % 2 == 0:
        return lambda n, x: (x * 2 if n % 2 == 0 else None,)
    return gm.forward


def test_what_a_backend_asks_is_guarded():
    compare(wants_even, [lambda n=n: (torch.randn(n),) for n in (4, 6, 8, 7, 9, 10)], asking, 2, dynamic=True)


def test_a_backend_that_wants_the_number():
    def specializing(gm, example_inputs):
        number = int(example_inputs[0])
        return lambda n, x: (x * 2 + (n - number),)

    compare(wants_even, [lambda n=n: (torch.randn(n),) for n in (4, 6, 4)], specializing, 2, dynamic=True)


def test_a_range_that_a_backend_assumes():
    def few(gm, example_inputs):
        assert len(example_inputs) == 2
        torch._check(example_inputs[0] <= 8)
        assert example_inputs[0] < 20  # follows
        return lambda n, x: (x * 2 + (0 if n <= 8 else 1),)

    compare(wants_even, [lambda n=n: (torch.randn(n),) for n in (4, 6, 8, 2)], few, 1, dynamic=True)


def test_a_backend_that_cannot_do_without_sizes_gets_them():
    def backend(gm, example_inputs):
        if any(isinstance(example, torch.SymInt) for example in example_inputs):
            raise NotImplementedError("numbers")
        return gm.forward

    with pytest.warns(
        FramejitWarning, match="'backend' compiles rows anew for each new size: it raised NotImplementedError: numbers"
    ) as caught:
        compare(rows, [lambda n=n: (torch.randn(n, 6), 3) for n in SIZES], backend, 5)
    assert len(caught) == 1


@BY_NAME
def test_views_and_places_in_memory(backend):
    """A result that is a view of an input lies where the input does."""
    base = torch.arange(400.0)

    def f(x):
        return x[1:], x.view(-1, 2)[:, 1], x.sum()

    fast = framejit.optimize(f, backend=backend)
    for start, n in ((0, 4), (4, 6), (4, 8), (8, 10), (16, 12), (0, 14), (100, 6)):
        x = base[start : start + n]
        for a, b in zip(f(x), fast(x)):
            assert_same(a, b)
            assert a.data_ptr() == b.data_ptr() or a.dim() == 0


@BY_NAME
def test_writes(backend):
    def f(x, y):
        x.add_(y[: x.shape[0]])
        x[1:].mul_(x.shape[0])
        return y.t() if y.dim() > 1 else y * 2

    compare(f, [lambda n=n: (torch.randn(n, 3), torch.randn(n + 2, 3)) for n in SIZES], backend, 2)


@BY_NAME
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_write_that_shows_in_another_argument(backend, dynamic):
    def f(x, y):
        x.add_(1)
        return x * y

    fast = framejit.optimize(f, backend=backend, dynamic=dynamic)
    for shares in (False, True, False, True):
        results = []
        for function in (f, fast):
            one, other = torch.arange(10.0), torch.arange(10.0)
            results.append((function(one[1:], (one if shares else other)[:-1]), one, other))
        assert_same(*results)
    assert len(fast.entries) == 1


@BY_NAME
def test_places_of_known_sizes(backend):
    base = torch.arange(40.0)
    fast = framejit.optimize(lambda x: (x[1:], x.view(-1, 2)[:, 1], x.flip(0)), backend=backend, dynamic=False)
    for start in (0, 4, 8):
        x = base[start : start + 4]
        for a, b in zip((x[1:], x.view(-1, 2)[:, 1], x.flip(0)), fast(x)):
            assert_same(a, b)
            assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() or b[0] == x[-1]


@BY_NAME
def test_arguments_that_share_memory(backend):
    def f(x, y):
        x.add_(1)
        return x * y

    fast = framejit.optimize(f, backend=backend)
    with pytest.warns(FramejitWarning, match="share memory"):
        for n in SIZES:
            x, other = torch.arange(float(n)), torch.arange(float(n))
            assert_same(f(x, x[:2].sum() + x[:]), fast(other, other[:2].sum() + other[:]))
            assert_same(f(x[1:], x[:-1]), fast(other[1:], other[:-1]))


@BY_NAME
def test_sizes_that_agree_or_do_not(backend):
    def f(x, y):
        return x + y if x.shape[0] == y.shape[0] else torch.cat([x, y])

    sizes = [(4, 4), (5, 5), (6, 6), (6, 7), (8, 9), (9, 9), (2, 3)]
    compare(f, [lambda a=a, b=b: (torch.randn(a), torch.randn(b)) for a, b in sizes], backend, 3)


@BY_NAME
def test_a_module_with_changing_batches(backend):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 5),
    ).eval()
    fast = framejit.optimize(model, backend=backend)
    for n in (2, 3, 4, 5, 17, 1):
        x = torch.randn(n, 3, 8, 8)
        torch.testing.assert_close(fast(x), model(x))


def test_numbers_of_any_size():
    def f(x, n):
        return x * n + n // 3

    backend = Remembering()
    compare(f, [lambda n=n: (torch.ones(3), n) for n in (5, 7, 0, 1, 2, 100, -1, 1 << 40)], backend, 4)


@pytest.mark.parametrize("backend", NAMED)
def test_strides_that_no_size_tells(backend):
    """Windows of one size in tensors of any size."""

    def program(x):
        return (x * 2).sum(1), x.stride(0) + 1, torch.ones(2, x.stride(0))

    fast = framejit.optimize(program, backend=backend)
    for columns in (9, 11, 14, 10, 21):
        x = torch.randint(-9, 9, (4, columns)).float()[:, :6]  # a sum in any order
        assert_same(program(x), fast(x))
    assert len(fast.entries) == 2
