"""Where gradients meet in eager they meet in compiled graphs: at results that others are made of, and nowhere between
results that have nothing in common."""

import pytest
import torch
from torch import nn

import framejit
from framejit.backends.fuse.autograd_nodes.segments import MOST, check_apart, needed_segments, segments_of
from framejit.backends.fuse.not_fusable import NeedsGradients
from framejit.backends.fuse.training.recorder import is_without_gradient

from twins import Twins, leaf


def features_and_loss(x, w):
    h = torch.tanh(x @ w)
    return h, (h.exp() * 2).sum()


def apart(x, w):
    return (x @ w).sin(), (x @ w).cos()


def common_beginning(x, w):
    t = (x @ w).exp()
    return t.sin(), t.cos() @ w


def nothing_kept(x, w):
    t = x + w.sum()
    return t.sin(), t.cos()


def chain(x, w):
    first = (x @ w).relu()
    second = (first @ w).sin()
    return first, second, (second * first + x).sigmoid()


def parts(x, w):
    a, b, c = (x @ w).exp().split(1, dim=1)
    return a * 2, (a + b).sin(), (b * c).cos()


def one_of_several(x, w):
    """One of several views is given, and others lead to other results."""
    a, b, c = (x @ w).exp().unbind()
    return a, b.sin(), (b * c).sum()


def tied(x, w):
    """Behind the border of the last part lies a weight that it takes, too, by way of operations that eager's autograd
    goes through without a gradient."""
    h = (x @ w).view(1, 1, 3, 3)
    logits = torch.nn.functional.scaled_dot_product_attention(h, h, h).view(3, 3) @ w
    return logits, (logits @ w).exp().sum()


FUNCTIONS = [features_and_loss, apart, common_beginning, nothing_kept, chain, parts, one_of_several, tied]


def outcome(of, *args):
    try:
        return of(*args)
    except RuntimeError as e:
        return str(e)


def of_results(fn, x, w):
    """Gradients of each result for each other one."""
    results = fn(x, w)
    return [
        torch.autograd.grad(
            last.sum(), [*(r for r in results if r is not last), x, w], allow_unused=True, retain_graph=True
        )
        for last in results
    ]


def one_after_the_other(fn, x, w):
    for result in fn(x, w):
        result.sum().backward()
    return x.grad, w.grad


def with_hooks(fn, x, w):
    seen = []
    results = fn(x, w)
    for number, result in enumerate(results):
        result.register_hook(lambda gradient, number=number: seen.append((number, gradient)) or gradient * (number + 2))
    sum((r * r).sum() for r in results).backward()
    return x.grad, w.grad, [gradient for _, gradient in sorted(seen, key=lambda pair: pair[0])]


def retained(fn, x, w):
    results = fn(x, w)
    for result in results:
        result.retain_grad()
    sum((r * r).sum() for r in results).backward()
    return x.grad, w.grad, [r.grad for r in results]


def of_gradients(fn, x, w):
    results = fn(x, w)
    found = torch.autograd.grad(sum((r * r).sum() for r in results), [x, w, results[0]], create_graph=True)
    again = torch.autograd.grad(sum(g.square().sum() for g in found), [x, w])
    return found, [g.contiguous() for g in again]  # they are sums of other parts than eager's, and may lie otherwise


def only_some_inputs(fn, x, w):
    results = fn(x, w)
    sum((r * r).sum() for r in results).backward(inputs=[w])
    return x.grad, w.grad


USES = [of_results, one_after_the_other, with_hooks, retained, of_gradients, only_some_inputs]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_gradients_meet_where_they_do_in_eager(fn, use):
    Twins(fn, leaf(3, 3), leaf(3, 3)).both(lambda fn, *inputs: outcome(use, fn, *inputs), calls=3)


def test_a_backward_leaves_what_it_does_not_lead_through():
    def fn(x, state):
        state["seen"] = x * 2 if "seen" not in state else state["seen"] + x.sum()
        return x.exp() + 1

    def several(fn, x):
        state = {}
        for _ in range(3):
            fn(x, state).sum().backward()
        return x.grad

    compiled = framejit.optimize(fn, backend="fuse")
    one = leaf(4)
    torch.testing.assert_close(several(fn, one), several(compiled, one.detach().clone().requires_grad_()))


def test_a_model_that_gives_logits_and_loss():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 5)

        def forward(self, x, target):
            features = self.body(x).relu()
            logits = self.head(features)
            return {"features": features, "logits": logits, "loss": nn.functional.cross_entropy(logits, target)}

    torch.manual_seed(0)
    plain = Classifier()
    compiled = Classifier()
    compiled.load_state_dict(plain.state_dict())
    compiled = framejit.optimize(compiled, backend="fuse", fullgraph=True)
    x, target = torch.randn(7, 6), torch.randint(0, 5, (7,))
    for _ in range(2):
        found = []
        for model in (plain, compiled):
            out = model(x, target)
            out["features"].retain_grad()
            out["logits"].register_hook(lambda gradient: gradient.clamp(min=0))
            model.zero_grad()
            out["loss"].backward()
            found.append([out["features"].grad, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(*found)
    assert {graph.reason for graph in framejit.inspect(compiled).graphs} == {""}


def test_parts_of_a_forward():
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    counts = [(len(fn(x, w)), len(segments_of(fn(x, w)))) for fn in FUNCTIONS]
    assert counts == [(2, 2), (2, 2), (2, 3), (2, 3), (3, 3), (3, 4), (3, 3), (2, 2)]
    results = [x]
    for _ in range(MOST + 1):
        results.append(results[-1].sin())
    with pytest.raises(NeedsGradients, match="meet at 33 places"):
        check_apart(needed_segments(results[1:], []))


def test_gradients_that_lie_otherwise_where_that_would_need_what_is_not_kept():
    norm = nn.BatchNorm1d(4).double()

    def fn(x, w):
        h = norm(x @ w)
        return h.sin(), h * h.amax(-1, keepdim=True), norm(h)

    def use(fn, x, w):
        norm.reset_running_stats()
        a, b, c = fn(x, w)
        if norm.num_batches_tracked % 3 == 0:
            loss = a.sum() + b.sum()
        else:
            loss = (a * b).t().exp().sum() + c.t().contiguous().sum()
        return torch.autograd.grad(loss, [x, w, norm.weight])

    def all_uses(fn, x, w):
        first = use(fn, x, w)
        a, b, c = fn(x, w)
        mixed = torch.autograd.grad(torch.einsum("ij,kj->ik", b, b).sum() + a.sum(), [x, w, norm.weight])
        only = torch.autograd.grad(c.t().exp().sum(), [x, w])
        return [gradient.contiguous() for gradient in (*first, *mixed, *only)]

    Twins(fn, leaf(5, 4), leaf(4, 4)).both(all_uses)


@pytest.mark.parametrize(
    "operation, gradients, absent",
    [
        (torch.ops.aten._scaled_dot_product_flash_attention_backward.default, {0}, {6, 7}),
        (torch.ops.aten._scaled_dot_product_efficient_attention_backward.default, {0}, {4}),
        (torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default, {0}, {8, 9, 10}),
        (torch.ops.aten.cudnn_batch_norm_backward.default, {1}, set()),
        (torch.ops.aten.convolution_backward.default, {0}, set()),
    ],
)
def test_only_a_gradient_that_is_missing_ends_a_backward(operation, gradients, absent):
    """On GPUs attention has no lengths of sequences where they are all alike, which its schema does not say."""
    tensors = [i for i, each in enumerate(operation._schema.arguments) if isinstance(each.type, torch.TensorType)]
    assert {*tensors} >= gradients | absent
    for missing in (*gradients, *absent):
        args = tuple(None if i == missing else torch.ones(1) for i in range(len(operation._schema.arguments)))
        assert is_without_gradient(operation, args) == (missing in gradients)
