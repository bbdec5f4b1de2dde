"""Which operations raise for their numbers, and with what message."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.side_effects.raising_calls import BAD, GOOD, TABLE, X, either_way, follow

from support import Pair

SQUARES = torch.tensor([[2.0, 0.0], [0.0, 3.0]])


@pytest.mark.parametrize(
    ("operation", "good", "bad"),
    [
        (lambda x, i: torch.gather(x, 0, i), (X, GOOD), (X, BAD)),
        (lambda x, i: x.scatter(0, i, 1.0), (X, GOOD), (X, BAD)),
        (lambda x, i: x.index_select(0, i), (X, GOOD), (X, BAD)),
        (lambda x, i: x.take(i), (X, GOOD), (X, BAD)),
        (lambda x, _: x[[0, 7]], (torch.ones(9), 0), (X, 0)),
        (lambda x, _: x[0, [0, -7]], (torch.ones(1, 9), 0), (torch.ones(1, 2), 0)),
        (lambda x, i: x.index_put((i,), torch.tensor(1.0)), (X, GOOD), (X, BAD)),
        (lambda w, i: F.embedding(i, w), (TABLE, GOOD), (TABLE, BAD)),
        (lambda x, t: F.nll_loss(x, t), (torch.ones(2, 3), GOOD), (torch.ones(2, 3), BAD)),
        (lambda x, t: F.binary_cross_entropy(x, t), (X / 9, X / 9), (X, X)),
        (lambda a, b: a // b, (torch.tensor([4]), torch.tensor([2])), (torch.tensor([4]), torch.tensor([0]))),
        (lambda a, b: a % b, (torch.tensor([4]), torch.tensor([2])), (torch.tensor([4]), torch.tensor([0]))),
        (lambda a, _: torch.linalg.cholesky(a), (SQUARES, 0), (-SQUARES, 0)),
        (lambda a, _: torch.linalg.inv(a), (SQUARES, 0), (SQUARES * 0, 0)),
        (lambda a, _: torch.linalg.solve(a, torch.ones(2)), (SQUARES, 0), (SQUARES * 0, 0)),
        (lambda p, _: torch.multinomial(p, 2), (X, 0), (-X, 0)),
        (lambda p, _: torch.bernoulli(p), (X / 9, 0), (X, 0)),
    ],
)
def test_operations(operation, good, bad):
    def fn(log, *args):
        log.append("begun")
        try:
            result = operation(*args) + 0
        except RuntimeError as e:
            log.append((type(e), str(e)))
            return args[0] * 1
        except IndexError as e:
            log.append(str(e))
            return args[0] * 2
        log.append("done")
        return result

    follow(fn, ([], *good), ([], *bad), ([], *bad), ([], *bad), ([], *good), rtol=1e-6)


def test_what_always_raises_though_fakes_let_it_pass():
    def fn(x, y):
        y.add_(1)
        try:
            return x ^ x
        except NotImplementedError as e:
            return str(e)

    pair = Pair(lambda: fn)
    for _ in range(4):
        pair.call(X, torch.ones(2))


@pytest.mark.parametrize("write", [lambda y: y.add_(1), lambda y: y.t_(), lambda y: y.unsqueeze_(0)])
def test_a_write_before_what_always_raises(write):
    def fn(x, y):
        write(y)
        return x ^ x

    pair = Pair(lambda: fn)
    for _ in range(4):
        pair.call(X, torch.ones(2, 3))


def _forked(y):
    with torch.random.fork_rng():
        y.add_(1)


def _by_an_allowed_function(y):
    y.add_(_noted(y).sum())


@framejit.allow_in_graph
def _noted(y):
    return y * 0 + 1


@pytest.mark.parametrize("write", [_forked, _by_an_allowed_function])
@pytest.mark.parametrize("fails", [lambda x: x ^ x, lambda x: F.linear(x.int(), torch.ones(3, 3))])
def test_a_write_before_what_always_raises_in_a_graph_that_cannot_be_tried(write, fails):
    """Such a graph calls more than operations of torch: to run it on copies could show."""

    def world():
        y = torch.zeros(2, 3)

        def fn(x):
            write(y)
            fails(x)

        return fn, y

    pair = Pair(world)
    for _ in range(4):
        pair.call(X)


@pytest.mark.parametrize(
    "operation", [lambda i: F.one_hot(i, 3), lambda i: torch.ones(3)[[0, 1]] @ torch.ones(3)[[int(i.ndim) + 7, 1]]]
)
@pytest.mark.parametrize("is_used", [True, False])
def test_what_raises_for_numbers_under_autocast(operation, is_used):
    def fn(log, i):
        with torch.autocast("cpu", torch.bfloat16):
            try:
                result = operation(i)
            except (RuntimeError, IndexError) as e:
                log.append(str(e))
                return torch.zeros(1)
        return result * 1 if is_used else torch.ones(1)

    follow(fn, ([], torch.tensor(1)), ([], torch.tensor(5)), ([], torch.tensor(5)), ([], torch.tensor(2)))


@pytest.mark.parametrize(
    "operation", [torch.max, torch.argmin, torch.aminmax, lambda x: x.max(0), torch.median, lambda x: x.cummax(0)]
)
@pytest.mark.parametrize("tracked", [False, True])
def test_a_write_before_what_takes_no_empty_tensor(operation, tracked):
    def fn(x, y):
        y.add_(1)
        operation(x)

    pair = Pair(lambda: fn)
    for _ in range(4):
        pair.call(torch.randn(0, requires_grad=tracked), torch.ones(2))


@either_way
@pytest.mark.parametrize("write", [lambda y: y.t_(), lambda y: y.unsqueeze_(0)])
def test_a_change_of_layout_before_what_may_raise(calls, write):
    def fn(x, i, y):
        write(y)
        return x[i] + y.sum()

    follow(fn, *[(*args, torch.ones(2, 3)) for args in calls])


def test_what_fakes_refuse_raises_eagers_own_message():
    def fn(x, w, log):
        y = x * 2
        log.append("before")
        try:
            return y @ w
        except RuntimeError as e:
            log.append((type(e), str(e)))
            return y

    follow(fn, (torch.ones(2, 2), torch.ones(97, 3), []), (torch.ones(2, 97), torch.ones(97, 3), []))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x @ torch.ones(97, 3),
        lambda x: x + torch.ones(7, 5),
        lambda x: x.view(7),
        lambda x: torch.cat([x, torch.ones(2)]),
        lambda x: F.linear(x, torch.ones(4, 9)),
        lambda x: F.conv2d(x, torch.ones(1, 1, 3, 3)),
        lambda x: x.reshape(3, 3),
        lambda x: x[5],
        lambda x: x.sum(4),
        lambda x: x.permute(0, 0),
        lambda x: F.softmax(x, 3),
        lambda x: x.expand(3, 3),
        lambda x: torch.stack([x, x[0]]),
        lambda x: x.squeeze(9),
        lambda x: x.index_select(0, torch.tensor([[1]])),
        lambda x: x.gather(0, torch.tensor([1])),
        lambda x: x.to(torch.int64) + "a",
        lambda x: F.layer_norm(x, (9,)),
        lambda x: x.masked_fill(torch.ones(9, dtype=torch.bool), 1.0),
        lambda x: torch.einsum("ij,jk->ik", x, torch.ones(5, 5)),
        lambda x: F.cross_entropy(x, torch.zeros(9, dtype=torch.int64)),
    ],
)
def test_messages_of_errors_known_while_capturing(operation, capfd):
    def fn(x):
        y = x * 1
        try:
            return operation(y)
        except Exception as e:
            return type(e), str(e)

    pair = Pair(lambda: fn)
    for _ in range(2):
        pair.call(torch.ones(2, 2))
    assert "fake" not in capfd.readouterr().err
