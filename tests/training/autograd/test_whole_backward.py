"""A loss given along with what it is made of: one backward for all, and gradients wherever they are asked for."""

import copy
import gc
import re
import threading

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

import framejit
from framejit.backends.fuse.autograd_nodes import node_watch
from framejit.backends.fuse.autograd_nodes.second_run import SecondRun

from support import of_kind, recorded
from twins import Twins, leaf, same


class Decoder(nn.Module):
    """Gives a loss, logits, keys and values that are views, and the hidden states between layers."""

    def __init__(self, layers=3, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.mixed = nn.ModuleList([nn.Linear(8, 24) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(8, 8) for _ in range(layers)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        hidden, caches, states = self.words(ids), [], []
        halves = hidden.chunk(2, -1)
        hidden = hidden + torch.cat((halves[1], halves[0].tanh()), -1)
        for mixed, out in zip(self.mixed, self.out):
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in mixed(hidden).split(8, -1))
            caches += [k, v]
            weights = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1)
            hidden = hidden + self.dropout(out((weights @ v).transpose(1, 2).flatten(2)))
            states.append(hidden)
        states.append(halves[0])
        logits = nn.functional.linear(hidden, self.words.weight)  # tied to what the first layer takes
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        return {"loss": loss, "logits": logits, "caches": caches, "states": states}


def pair(**settings):
    torch.manual_seed(0)
    plain = Decoder(**settings).double()
    other = copy.deepcopy(plain)
    return plain, other, framejit.optimize(other, backend="fuse", fullgraph=True)


def compare(use, calls=3, before=0, **settings):
    """What `use(module, result)` gives, and the gradients that it leaves, several times over, after some steps of the
    usual kind."""
    plain, other, compiled = pair(**settings)
    for number in range(before + calls):
        ids = torch.randint(0, 11, (2, 5))
        outcomes = []
        for module, called in ((plain, plain), (other, compiled)):
            torch.manual_seed(number)
            module.zero_grad()
            given = called(ids)
            try:
                found = [given["loss"].backward()] if number < before else [use(module, given)]
            except RuntimeError as e:
                found = [str(e).split(":")[0]]
            outcomes.append(found + [None if p.grad is None else p.grad.clone() for p in module.parameters()])
            del given
        same(*outcomes)
    return compiled


def names(compiled):
    return [re.sub(r"^graph_\d+", "graph", graph.name) for graph in framejit.inspect(compiled).graphs]


def backward(module, given):
    given["loss"].backward()


def seen(*tensors):
    """Puts a hook on each that doubles its gradient; gives what they saw, by the tensor's place."""
    found = {}
    for number, tensor in enumerate(tensors):
        tensor.register_hook(lambda gradient, number=number: found.setdefault(number, gradient) * 2)
    return found


def ordered(found):
    return [found[number].contiguous() for number in sorted(found)]


def hooks_on_all(module, given):
    found = seen(given["logits"], *given["caches"], *given["states"])
    given["loss"].backward()
    return ordered(found)


def hook_on_one_that_is_dropped(module, given):
    loss, found = given["loss"], seen(given["caches"][2])
    given.clear()
    gc.collect()
    loss.backward()
    return ordered(found)


def hook_on_the_base_of_a_view(module, given):
    found = seen(given["caches"][1]._base)
    given["loss"].backward()
    return ordered(found)


def hook_on_the_loss(module, given):
    found = seen(given["loss"])
    given["loss"].backward()
    return ordered(found)


def retained(module, given):
    for tensor in (given["logits"], given["caches"][0], given["states"][1]):
        tensor.retain_grad()
    given["loss"].backward()
    return [t.grad.contiguous() for t in (given["logits"], given["caches"][0], given["states"][1])]


def hook_before_a_node(module, given):
    found = []
    given["states"][0].grad_fn.register_prehook(lambda gradients: found.extend(gradients))
    given["loss"].backward()
    return len(found)


def hook_behind_a_view(module, given):
    """On a node between a view and what it is a view of, which only those find who walk through autograd's graph."""
    found = []
    node = given["caches"][3].grad_fn.next_functions[0][0]
    node.register_hook(lambda made, gradients: found.extend(g.contiguous() for g in gradients if g is not None))
    del node
    given["loss"].backward()
    return found


def several_hooks(module, given):
    found = []
    torch.autograd.graph.register_multi_grad_hook(
        [given["caches"][0], given["logits"]], lambda gradients: found.extend(g.contiguous() for g in gradients)
    )
    given["loss"].backward()
    return found


def asked_for(module, given):
    wanted = [given["caches"][1], given["states"][0], module.words.weight, module.out[0].bias]
    return [g.contiguous() for g in torch.autograd.grad(given["loss"], wanted)]


def asked_for_alone(module, given):
    return torch.autograd.grad(given["loss"], given["states"][1])


def asked_for_by_edge(module, given):
    edge = get_gradient_edge(given["caches"][4])
    loss = given["loss"]
    given.clear()
    return torch.autograd.grad(loss, edge)[0].contiguous()


def only_some_inputs(module, given):
    given["loss"].backward(inputs=[module.mixed[1].weight, module.words.weight])


def added_to(module, given):
    (given["loss"] + given["caches"][0].square().sum() + given["states"][1].sum()).backward()


def added_to_and_dropped(module, given):
    total = given["loss"] * 2 + given["states"][0].exp().mean()
    given.clear()
    total.backward()


def one_after_the_other(module, given):
    given["loss"].backward(retain_graph=True)
    given["caches"][2].sum().backward(retain_graph=True)
    given["logits"].square().sum().backward()


def others_first(module, given):
    given["logits"].square().sum().backward(retain_graph=True)
    given["loss"].backward()


def without_the_loss(module, given):
    given["states"][1].square().sum().backward()


def twice(module, given):
    given["loss"].backward(retain_graph=True)
    given["loss"].backward()


def twice_without_retaining(module, given):
    given["loss"].backward()
    given["loss"].backward()


def logits_behind_the_loss(module, given):
    given["loss"].backward()
    given["logits"].sum().backward()


def gradients_of_gradients(module, given):
    found = torch.autograd.grad(given["loss"], [*module.parameters()], create_graph=True)
    sum(g.square().sum() for g in found).backward()


def batches_of_gradients(module, given):
    return torch.autograd.grad(
        given["loss"], [module.out[1].weight, given["states"][0]], torch.tensor([1.0, 3.0], dtype=torch.float64),
        is_grads_batched=True
    )


def written_in_between(module, given):
    with torch.no_grad():
        given["caches"][0].mul_(2)
    given["loss"].backward()


def weight_written_in_between(module, given):
    with torch.no_grad():
        module.out[2].weight.mul_(1.5)
    given["loss"].backward()


def written_by_autograd(module, given):
    given["states"][0].detach_()
    given["loss"].backward()


def on_leaves(module, given):
    """Hooks on parameters are hooks on no result."""
    found = []
    handles = [
        module.out[0].weight.register_hook(lambda g: g * 3),
        module.words.weight.register_post_accumulate_grad_hook(lambda p: found.append(p.grad.clone())),
    ]
    given["loss"].backward()
    for handle in handles:
        handle.remove()
    return found


def anomaly(module, given):
    with torch.autograd.detect_anomaly(check_nan=True):
        given["loss"].backward()


def in_a_thread(module, given):
    thread = threading.Thread(target=given["loss"].backward)
    thread.start()
    thread.join()


def scaled(module, given):
    (given["loss"] * 1024).backward()


ASKING = [
    hooks_on_all, hook_on_one_that_is_dropped, hook_on_the_base_of_a_view, retained, hook_before_a_node, several_hooks,
    hook_behind_a_view, asked_for, asked_for_alone, asked_for_by_edge, only_some_inputs, added_to, added_to_and_dropped,
    one_after_the_other, others_first, without_the_loss, logits_behind_the_loss, batches_of_gradients,
]
NOT_ASKING = [
    backward, hook_on_the_loss, twice, twice_without_retaining, written_in_between, weight_written_in_between,
    written_by_autograd, on_leaves, anomaly, in_a_thread, scaled,
]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("use", [*ASKING, *NOT_ASKING, gradients_of_gradients])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_as_in_eager(use, before):
    compare(use, before=before)


@pytest.mark.parametrize("use", NOT_ASKING)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_one_backward_where_nobody_asks(use):
    """All results are alive while the backward runs."""
    assert names(compare(use)) == ["graph", "graph_backward"]


def test_a_backward_for_each_where_somebody_asks():
    with recorded() as log:
        compiled = compare(hooks_on_all, before=1)
    assert names(compiled)[:2] == ["graph_divided", "graph_divided_backward"] and len(names(compiled)) > 8
    assert [e.text for e in of_kind(log, "fusion") if "gradients are asked for" in e.text] == [
        "gradients are asked for at results that lead to the loss: each has a backward of its own from now on"
    ]
    assert "gradients are asked for at results that lead to the loss" in [e.apart for e in of_kind(log, "training")]
    assert not [e.reason for e in of_kind(log, "fusion") if e.reason]  # nothing runs as ATen


@pytest.mark.parametrize("use", [backward, hooks_on_all, added_to])
def test_random_numbers(use):
    compare(use, before=1, dropout=0.3)


@pytest.mark.parametrize("use", [backward, hooks_on_all, added_to, without_the_loss])
def test_sizes_that_are_left_open(use):
    torch.manual_seed(0)
    plain = Decoder().double()
    other = copy.deepcopy(plain)
    compiled = framejit.optimize(other, backend="fuse", fullgraph=True, dynamic=True)
    for number in range(6):
        ids = torch.randint(0, 11, (2 + number % 3, 5 + number))
        outcomes = []
        for module, called in ((plain, plain), (other, compiled)):
            module.zero_grad()
            given = called(ids)
            found = use(module, given) if number > 1 else backward(module, given)
            outcomes.append([found, *(None if p.grad is None else p.grad.clone() for p in module.parameters())])
        same(*outcomes)


def loss_and_classes(x, w):
    h = (x @ w).tanh()
    return (h.exp() * x).sum(), h, h.softmax(-1), h.cos()[1:], x.detach() * 2


def loss_and_part_of_another(x, w):
    """A part of a loss; the other part is made of what does not lead to it."""
    h = (x @ w).tanh()
    return (h - h.detach().round()).square().mean(), h @ w


@pytest.mark.parametrize("fn", [loss_and_classes, loss_and_part_of_another])
def test_results_beside_the_loss(fn):
    """They are nodes of autograd, but have no backward until somebody asks."""

    def of_the_loss(fn, x, w):
        x.grad = w.grad = None
        given = fn(x, w)
        given[0].backward()
        return x.grad, w.grad, given

    def of_all(fn, x, w):
        x.grad = w.grad = None
        given = [r for r in fn(x, w) if r.requires_grad]
        sum((r * (number + 1)).square().sum() for number, r in enumerate(given)).backward()
        return x.grad, w.grad, given

    def of_another(fn, x, w):
        x.grad = w.grad = None
        given = [r for r in fn(x, w) if r.requires_grad]
        given[-1].sin().sum().backward()
        return x.grad, w.grad

    twins = Twins(fn, leaf(3, 3), leaf(3, 3))
    twins.both(of_the_loss)
    assert names(twins.compiled) == ["graph", "graph_backward"]
    twins.both(of_all)
    assert names(twins.compiled)[:2] == ["graph_divided", "graph_divided_backward"]
    assert len(names(twins.compiled)) > 3
    for first in (of_another, of_all):
        twins = Twins(fn, leaf(3, 3), leaf(3, 3))
        twins.both(first)
        twins.both(of_the_loss)


def that_the_loss_looks_at(x, w):
    """The last result does not lead to the loss, whose backward takes it nevertheless."""
    h, factor = (x @ w).tanh(), x.exp()
    return (h * factor.detach()).sum(), h, factor


def test_a_backward_for_each_where_the_one_from_the_loss_looks_behind_it():
    """The node of the loss would keep what a node behind it gives."""

    def of_the_loss(fn, x, w):
        x.grad = w.grad = None
        given = fn(x, w)
        given[0].backward()
        return x.grad, w.grad, given

    def of_all(fn, x, w):
        x.grad = w.grad = None
        given = fn(x, w)
        found = seen(*given)
        sum((r * (number + 1)).square().sum() for number, r in enumerate(given)).backward()
        return x.grad, w.grad, ordered(found)

    def written_in_between(fn, x, w):
        loss, _, factor = fn(x, w)
        with torch.no_grad():
            factor.add_(1)
        try:
            loss.backward()
        except RuntimeError as e:
            return "modified by an inplace operation" in str(e)

    with recorded() as log:
        twins = Twins(that_the_loss_looks_at, leaf(3, 3), leaf(3, 3))
        for use in (of_the_loss, of_all, written_in_between, of_the_loss):
            twins.both(use)
    assert names(twins.compiled) == ["graph", *(f"graph_backward{number}" for number in ("", 2, 3))]
    (told,) = of_kind(log, "training")
    assert told.apart == "its backward looks at a result that others lead to"
    twins = Twins(loss_and_classes, leaf(3, 3), leaf(3, 3))
    with recorded() as log:
        twins.both(of_the_loss)
    assert [told.apart for told in of_kind(log, "training")] == [""]


def test_a_loss_alone_that_looks_at_a_result_behind_it():
    """It is made of no other result, so that its node comes first in any order: the graph is ATen's."""

    def behind(x):
        factor = x.exp()
        return (x * factor.detach()).sum(), factor

    def step(fn, x):
        x.grad = None
        loss, factor = fn(x)
        (loss + factor.cos().sum()).backward()
        return x.grad, loss, factor

    with recorded() as log:
        Twins(behind, leaf(3, 3), fused=False).both(step)
    assert [e.reason for e in of_kind(log, "fusion") if e.reason] == [
        "its backward looks at a result that others lead to"
    ]


def test_a_graph_is_run_again_once_for_all_nodes_of_a_backward(monkeypatch):
    runs = []
    outputs = SecondRun.outputs
    monkeypatch.setattr(SecondRun, "outputs", lambda *args: runs.append(1) or outputs(*args))
    _, module, compiled = pair()
    hooks_on_all(module, compiled(torch.randint(0, 11, (2, 5))))
    assert len(runs) == 1


def test_what_keeps_gradients_apart():
    """Two losses; results that do not lead to the loss and come before it; inputs that are written: each part has a
    backward."""

    def two(x, w):
        h = (x @ w).tanh()
        return h.sum(), h.exp().mean()

    def aside(x, w):
        h = (x @ w).tanh()
        return h, h.cos(), h.exp().sum()

    def view_of_input(x, w):
        part = x[1:]
        return part, (part @ w).sin().sum()

    def not_a_number(x, w):
        h = (x @ w).tanh()
        return h, h @ w

    def all_of(fn, x, w):
        results = fn(x, w)
        sum(r.square().sum() for r in results).backward()
        return x.grad, w.grad

    for fn in (two, aside, view_of_input, not_a_number):
        Twins(fn, leaf(3, 3), leaf(3, 3)).both(all_of)


def test_a_hook_that_raises_leaves_nothing_behind():
    _, module, compiled = pair()
    ids = torch.randint(0, 11, (2, 5))

    def refuse(gradient):
        raise RuntimeError("refused by the program")

    def step():
        module.zero_grad()
        compiled(ids)["loss"].backward()
        return [p.grad.clone() for p in module.parameters()]

    expected = step()
    for parameter in (module.mixed[0].weight, module.out[2].bias):
        handle = parameter.register_hook(refuse)
        with pytest.raises(RuntimeError, match="refused by the program"):
            step()
        handle.remove()
        same(expected, step())
    assert names(compiled) == ["graph", "graph_backward"]


def nodes():
    return [o for o in gc.get_objects() if type(o).__name__ == "CompiledBackward"]


@pytest.mark.parametrize("runs", [False, True])
def test_nodes_go_with_the_results(runs):
    _, module, compiled = pair()
    ids = torch.randint(0, 11, (2, 5))
    for _ in range(3):
        compiled(ids)["loss"].backward()
    gc.collect()
    gc.disable()
    try:
        before = len(nodes())
        given = compiled(ids)
        kept, count = given["states"][0], len(nodes())
        if runs:
            given["loss"].backward()
        del given
        assert before < len(nodes()) < count  # those that lead to what is kept
        del kept
        assert len(nodes()) == before
    finally:
        gc.enable()


def test_hooks_can_be_seen_here():
    assert node_watch.can_watch()


def test_how_hooks_are_seen_is_found_out_once_more_where_something_was_in_the_way(monkeypatch):
    outcomes = [False, True]
    monkeypatch.setattr(node_watch, "_looks", [])
    monkeypatch.setattr(node_watch, "_set_up", lambda: outcomes.pop(0))
    assert [node_watch.can_watch() for _ in range(4)] == [False, True, True, True] and not outcomes
    monkeypatch.setattr(node_watch, "_looks", [])
    outcomes += [False] * 4
    assert [node_watch.can_watch() for _ in range(5)] == [False] * 5 and len(outcomes) == 1


def test_an_input_that_a_later_graph_writes():
    """Plain operations save nothing of what is written here, and take gradients."""
    def fn(x, y):
        summed = kept = y.sum(0)
        turns = 0
        while float(summed.max()) > 0:
            turns += 1
            if turns > 3:
                break
            summed = summed + torch.rand_like(summed)
        kept.mul_(2)
        return summed, x - 2, summed.flatten()[0].item()

    compiled, found = framejit.optimize(fn), []
    compiled(torch.ones(5, 4), torch.ones(5, 4))
    for run in (fn, compiled):
        x, y = torch.ones(5, 4, requires_grad=True), torch.ones(5, 4, requires_grad=True)
        first, second, _ = run(x, y)
        (first.sum() + second.sum()).backward()
        found.append((x.grad, y.grad))
    torch.testing.assert_close(*found)


def test_an_input_that_eager_does_not_keep_is_written():
    """Until a backward has come from the loss alone, the graph may have to be run again."""
    def model(mask, w):
        hidden = (w @ w).tanh() + mask
        return hidden.square().sum(), hidden

    def asked(fn, mask, w):
        w.grad = None
        loss, hidden = fn(mask, w)
        mask.add_(1)
        (loss + hidden.sum()).backward()
        return w.grad, mask

    Twins(model, torch.rand(3, 3), leaf(3, 3)).both(asked)
