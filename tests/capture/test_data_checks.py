"""Operations that look at data only to refuse what is wrong are nodes of the graph, and refuse it."""
import pytest
import torch
import torch.nn.functional as F

from support import check

X = torch.rand(3, 5) + 0.1


def nll(x, var):
    return F.gaussian_nll_loss(x, x * 2, var) + 1


def ctc(x, lengths):
    probabilities = x.log_softmax(-1)
    targets = torch.ones(2, 3, dtype=torch.long)
    target_lengths = torch.tensor([2, 3])
    return F.ctc_loss(probabilities, targets, lengths, target_lengths), F.ctc_loss(
        probabilities, targets, lengths, target_lengths, reduction="none"
    )


def test_gaussian_nll_loss():
    check(nll, X, X, fullgraph=True, changed=[(X, X * 2)])


def test_it_still_raises():
    check(nll, X, -X, raises=ValueError, traceback=False)


def test_ctc_loss():
    check(ctc, torch.randn(6, 2, 4), torch.tensor([6, 5]), fullgraph=True)
    check(
        lambda x, n: ctc(x, n)[1].sum(), torch.randn(6, 2, 4, requires_grad=True), torch.tensor([6, 5]), fullgraph=True
    )


@pytest.mark.parametrize("fn", [lambda x, w: torch.cov(x, aweights=w), lambda x, w: torch.corrcoef(x)])
def test_covariances(fn):
    check(fn, X, torch.rand(5), fullgraph=True)
