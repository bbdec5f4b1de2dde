"""Counts that data adds to, as of right answers, beside ints that are left open: a count from earlier calls, sizes of
batches. Nothing breaks, and no call but the first few is captured."""
import pytest
import torch

import framejit

from support import Pair, of_kind, recorded

SIZES = [8, 8, 3, 8, 5, 7, 8, 3, 2, 8]


def batch(size):
    return torch.randn(size, 4), torch.randint(0, 4, (size,))


def of_a_dict():
    state = {"correct": 0, "total": 0}

    def step(x, y):
        state["correct"] += (x.argmax(1) == y).sum().item()
        state["total"] += y.size(0)
        return state["correct"] / state["total"], 100.0 * state["correct"] / state["total"]

    return step, state


class Accuracy:
    def __init__(self):
        self.right = self.seen = 0

    def __call__(self, x, y):
        self.right += int((x.argmax(1) == y).sum())
        self.seen += len(y)
        return self.seen - self.right, self.right / max(self.seen, 1), self.right * 2 == self.seen


def of_an_object():
    accuracy = Accuracy()
    return accuracy.__call__, accuracy


@pytest.mark.parametrize("make", [of_a_dict, of_an_object])
@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_counts_go_on(make, backend):
    torch.manual_seed(0)
    batches = [batch(size) for size in SIZES]
    plain, state = make()
    expected = [plain(*given) for given in batches]
    fast, own = make()
    fast = framejit.optimize(fast, backend=backend)
    with recorded() as log:
        found = [fast(*given) for given in batches]
    assert found == expected and [map(type, f) for f in found]
    assert repr(vars(own) if isinstance(own, Accuracy) else own) == repr(
        vars(state) if isinstance(state, Accuracy) else state
    )
    assert not of_kind(log, "graph_break")
    assert len(of_kind(log, "capture_started")) <= 3


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_an_epoch_of_batches(backend):
    def evaluate(batches):
        right = total = 0
        loss = 0.0
        with torch.no_grad():
            for x, y in batches:
                guess = x.argmax(1, keepdim=True)
                loss += x.square().sum().item()
                right += guess.eq(y.view_as(guess)).sum().item()
                total += y.size(0)
        return loss / total, right / total, 100.0 * right / total, right

    torch.manual_seed(0)
    fast = framejit.optimize(evaluate, backend=backend)
    with recorded() as log:
        for n in range(9):
            batches = [batch(size) for size in ([8, 8, 3], [8, 5], [4, 4, 4])[n % 3]]
            assert fast(batches) == pytest.approx(evaluate(batches), rel=1e-6)
    assert not of_kind(log, "graph_break")
    assert len(of_kind(log, "capture_started")) <= 3


OPERATIONS = {
    "sums": lambda r, n: (r + n, n + r, r - n, n - r), "products": lambda r, n: (r * n, n * r),
    "quotients": lambda r, n: (r / n, n / (r + 1)), "comparisons": lambda r, n: (r < n, r >= n, n != r, n > r),
    "choices": lambda r, n: (max(r, n), min(n, r)), "floats": lambda r, n: (r * 0.5 + n, (r + 0.5) / n, r * 0.5 < n),
}


@pytest.mark.parametrize("fn", OPERATIONS.values(), ids=list(OPERATIONS))
def test_a_count_and_an_open_int(fn):
    def program(x, n):
        return fn((x > 0).sum().item(), n), x * 2

    pair = Pair(lambda: program)
    for n in range(1, 9):
        pair.call(torch.randn(6), n, captures=None if n < 4 else False)
    assert not pair.breaks
    for n in (2**31, 2**53 + 1, 2**60, 2**62 + 5, 2**63, -3):
        pair.call(torch.randn(6), n)
    pair.call(torch.randn(6), 5)


def test_division_by_an_open_int_that_is_zero():
    def program(x, n):
        return (x > 0).sum().item() / n, x * 2

    pair = Pair(lambda: program)
    for n in (3, 4, 5, 6, 0, 7):
        pair.call(torch.randn(6), n)
        assert pair.raised is (None if n else ZeroDivisionError)
