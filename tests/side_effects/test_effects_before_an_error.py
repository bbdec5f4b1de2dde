"""What the program did before an operation raised is done once, and nothing after it is: writes, random numbers, modes,
gradients."""
import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.autocast_nesting import nesting
from tests.side_effects.raising_calls import either_way, follow, graph_break

from support import Pair, world


class Counter:
    def __init__(self):
        self.n, self.seen = 0, {}

    def note(self, name):
        self.n += 1
        self.seen[name] = self.n


@either_way
def test_side_effects_before_are_there_and_later_ones_are_not(calls):
    def make():
        names = world(
            """
            COUNT = 0
            def fn(x, i, log, counter, table):
                global COUNT
                COUNT += 1
                log.append("a")
                counter.note("before")
                table["before"] = x
                y = x + 1
                table.setdefault("list", []).append(y)
                y = y[i]
                counter.note("after")
                log.append("b")
                COUNT += 10
                return y
            """
        )
        return names["fn"], lambda: names["COUNT"]

    follow(make, *[(*args, [], Counter(), {}) for args in calls])


@either_way
def test_in_place_writes_are_done_once(calls):
    def fn(x, i, state):
        state.mul_(2)
        state += 1
        y = x[i]
        state.sub_(0.5)
        return y + state.sum()

    follow(fn, *[(*args, torch.ones(2)) for args in calls])


@either_way
def test_writes_through_views_and_into_modules(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x, i):
            self.steps += 1
            self.seen[:2].add_(x[:2])
            self.seen.view(3)[1:] *= 2
            return x[i] + self.seen.sum()

    def make():
        net = Net()
        return net, net

    follow(make, *calls)


@either_way
def test_the_operation_that_raises_writes_itself(calls):
    def fn(x, i, y):
        y.index_add_(0, i, torch.ones(2))
        return y * 2

    follow(fn, *[(*args, torch.zeros(3)) for args in calls])


@either_way
def test_overwriting_needs_no_copy(calls):
    def fn(x, i, cache):
        cache[1:3] = x[:2]
        cache.index_copy_(0, i, x[:2] + 1)
        return cache + 1

    follow(fn, *[(*args, torch.zeros(3)) for args in calls])


@either_way
def test_overwritten_after_it_was_read(calls):
    def fn(x, i, cache):
        y = cache * 2
        cache.copy_(x)
        return y + x[i].sum()

    follow(fn, *[(*args, torch.arange(3.0)) for args in calls])


@either_way
def test_read_between_two_overwrites(calls):
    def fn(x, i, cache):
        cache[0] = 7.0
        y = cache.sum()
        cache.fill_(2.0)
        cache[1:] = y
        return x[i] + y

    follow(fn, *[(*args, torch.arange(3.0)) for args in calls])


def test_batch_statistics_before_a_loss_with_a_bad_class():
    def make():
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))

        def fn(x, target):
            return F.cross_entropy(net(x), target)

        return fn, net

    x = torch.arange(15.0).reshape(5, 3)
    good, bad = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 7, 0, 1])
    follow(make, (x, good), (x, bad), (x, bad), (x, bad), (x, good), rtol=1e-5, atol=1e-6)


@either_way
def test_versions_are_those_of_plain_python(calls):
    def fn(x, i, y):
        y.add_(1)
        return x[i] + y.sum()

    for backend_calls in (calls, calls[::-1]):
        pair = Pair(lambda: fn)
        for args in backend_calls:
            left, right = torch.ones(2), torch.ones(2)
            for side, y in ((pair.eager, left), (pair.compiled, right)):
                with contextlib.suppress(IndexError):
                    side(*args, y)
            assert left._version == right._version == 1 and left.equal(right)


@either_way
def test_random_numbers_are_drawn_once(calls):
    def fn(x, i):
        y = F.dropout(x, 0.5) + torch.rand(3)
        z = y[i]
        return z + torch.randn(2)

    follow(fn, *calls)


@either_way
def test_random_numbers_after_it_are_not_drawn(calls):
    def fn(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x[:2]
        return y + torch.rand(2)

    follow(fn, *calls)


@either_way
def test_modes_that_were_entered_are_left(calls):
    def fn(x, i, w):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = y[i]
        return z * w, torch.is_grad_enabled()

    follow(fn, *[(*args, torch.ones(2, requires_grad=True)) for args in calls])


@either_way
def test_handled_inside_of_modes(calls):
    def fn(x, i, w):
        try:
            with torch.no_grad(), torch.enable_grad():
                z = x[i] * w
        except IndexError:
            return w * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return z + w, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    follow(fn, *[(*args, torch.ones(2, requires_grad=True)) for args in calls])


@either_way
def test_autocast_is_left(calls):
    def fn(x, i, w):
        try:
            with torch.autocast("cpu", torch.bfloat16):
                y = w @ w
                y = y + x[i].sum()
        except IndexError:
            y = w @ w
        return y, (w @ w).dtype, torch.is_autocast_enabled("cpu")

    follow(fn, *[(*args, torch.eye(3)) for args in calls], rtol=1e-2)
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    assert depth == 1


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_autocast_is_left_after_an_error_that_nobody_foresaw(backend):
    norm = torch.nn.LayerNorm(4).double()  # refuses float32, as no fake does

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return norm(x)

    captured = framejit.optimize(fn, backend=backend)
    for _ in range(4):
        with pytest.raises(RuntimeError, match="mixed dtype"):
            captured(torch.randn(2, 4))
        assert nesting() == 0


@either_way
def test_inference_mode_is_left(calls):
    def fn(x, i):
        try:
            with torch.inference_mode():
                y = x[i]
        except IndexError:
            y = x * 2
        return y + 1, torch.is_inference_mode_enabled()

    follow(fn, *calls)
    assert not torch.is_inference_mode_enabled()


@either_way
def test_gradients_flow_once(calls):
    def fn(x, i, w):
        y = x * w
        try:
            y = y[i]
        except IndexError:
            y = y + w
        y.sum().backward()
        return y, w.grad

    follow(fn, *[(*args, torch.ones(3, requires_grad=True)) for args in calls])


@either_way
def test_a_write_that_autograd_records_ends_the_graph_before_what_may_raise(calls):
    def fn(x, i, w):
        y = w * 2
        return inner(y, x, i), y

    def inner(y, x, i):
        y.mul_(3)
        return y[i] + x[i]

    def outer(x, i, w):
        y = w * 2
        graph_break()
        try:
            z = inner(y, x, i)
        except IndexError:
            z = y
        z.sum().backward()
        return z, w.grad

    follow(outer, *[(*args, torch.ones(3, requires_grad=True)) for args in calls])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16])
@pytest.mark.parametrize(
    "operate",
    [
        lambda x, n: torch.add(x, x, alpha=n), lambda x, n: x.fill_(n), lambda x, n: torch.full_like(x, n),
        lambda x, n: x.masked_fill(x > 0, n), lambda x, n: x.clamp(max=n), lambda x, n: x.__setitem__(0, n),
        lambda x, n: x.addcmul(x, x, value=n), lambda x, n: x**n, lambda x, n: x.new_full((2,), n),
        lambda x, n: torch.scalar_tensor(n, dtype=x.dtype), lambda x, n: torch.where(x > 0, x, n),
    ],
)
def test_a_number_that_is_left_open_and_does_not_fit_comes_after_one_write(operate, dtype):
    def fn(x, log, n):
        log.add_(1)
        return operate(x, n)

    pair = Pair(lambda: fn)
    for n in (2, 3, 4, 5, 2**40, 6, 2**40, 7):
        pair.call(torch.arange(4).to(dtype), torch.zeros(2), n)


def test_a_number_that_was_read_and_does_not_fit_comes_after_one_write():
    def fn(x, y, log):
        n = float(y.sum())
        first = y.clamp(max=n)
        log.add_(1)
        return first, x.clamp(max=n)

    pair = Pair(lambda: fn)
    for number in (2.0, 3.0, 1e30, 4.0, 1e30):
        pair.call(torch.arange(4).half(), torch.full((2,), number), torch.zeros(2))


def test_a_trial_leaves_the_casts_of_autocast_alone():
    """Gradients of a weight add up in bfloat16 where both operations take one cast of it."""
    linear, norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)  # which writes, so that its graph is tried first

    def program(x, z):
        first = linear(z)
        framejit.graph_break()
        norm(x)
        return first.sum() + linear(z * 2).sum()

    x, z = torch.randn(3, 4), torch.randn(5, 4)
    gradients = []
    for run in (program, framejit.optimize(program, backend="eager")):
        linear.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            run(x, z).backward()
        gradients.append(linear.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
