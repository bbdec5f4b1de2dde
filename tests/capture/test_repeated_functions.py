"""Functions that torch calls again: checkpoints and while_loop are nodes of one graph."""
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

from support import check, check_state

X = torch.rand(2, 3)
LAYER = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh())


def checkpointed(x, scale):
    def block(y, n):
        return LAYER(y) * scale * n, y.sum()

    a, b = checkpoint(block, x * 2, 3, use_reentrant=False)
    return a.sum() + b


def test_a_checkpoint_and_its_gradients():
    scale = torch.tensor(2.0, requires_grad=True)
    pair = check(checkpointed, X, scale, fullgraph=True)
    grads = []
    for fn in (checkpointed, pair.compiled):
        torch.manual_seed(3)
        x = X.clone().requires_grad_()
        grads.append(torch.autograd.grad(fn(x, scale), (x, scale, *LAYER.parameters())))
    torch.testing.assert_close(*grads, rtol=0, atol=0)


def test_it_is_computed_again():
    fn = lambda x: checkpoint(lambda y: (y.sin() * y).exp(), x, use_reentrant=False).sum()  # noqa: E731
    pair = check(fn, X.clone().requires_grad_(), fullgraph=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.shape), t)[1], lambda t: t):
        fn(X.clone().requires_grad_())
        plain = len(kept)
        pair.compiled(X.clone().requires_grad_())
    assert len(kept) == 2 * plain


def test_a_checkpoint_without_gradients():
    with torch.no_grad():
        check(lambda x: checkpoint(lambda y, n=1: y.sin() * n, x, use_reentrant=False, n=3), X, fullgraph=True)


def test_one_that_changes_something_is_left_to_python():
    def make():
        seen = []

        def block(x):
            seen.append(len(seen))
            return x.sin()

        return lambda x: checkpoint(block, x, use_reentrant=False).sum(), seen

    check_state(make, (X,), (X.clone().requires_grad_(),), graphs=None, breaks=None)


def test_a_list_of_the_captured_code_that_it_appends_to():
    def fn(x):
        seen = []

        def block(y):
            seen.append(len(seen))
            return y.sin()

        return checkpoint(block, x, use_reentrant=False).sum(), seen

    check(fn, X.clone().requires_grad_(), graphs=None, breaks=None)


def counted(i, x):
    return while_loop(lambda i, y: (y.sum() < 100) & (i < 8), lambda i, y: (i + 1, y * LIMIT), (i, x))


LIMIT = torch.tensor(2.0)


def plain(i, x):
    while bool((x.sum() < 100) & (i < 8)):
        i, x = i + 1, x * LIMIT
    return i, x


def test_while_loop():
    import framejit

    fast = framejit.optimize(counted, backend="eager", fullgraph=True)
    for x in (X, X * 10, X * 1000):
        torch.testing.assert_close(fast(torch.tensor(0), x), plain(torch.tensor(0), x), rtol=0, atol=0)


def test_a_loop_that_never_runs_gives_copies():
    import framejit

    x = X * 1000
    _, y = framejit.optimize(counted, backend="fuse", fullgraph=True)(torch.tensor(0), x)
    assert torch.equal(x, y) and y is not x and y.data_ptr() != x.data_ptr()
