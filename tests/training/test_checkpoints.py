"""What the program checkpoints is computed again inside of a fused backward: nothing of it is kept but random numbers,
and no more than one checkpoint's is in memory at a time."""

import contextlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

import framejit

from support import of_kind, peak, recorded
from twins import Twins, leaf, same

DEPTH, WIDTH = 6, 64


def kept(fn, *args, **options):
    return checkpoint(fn, *args, use_reentrant=False, **options)


def gradients(fn, *inputs):
    out = fn(*inputs)
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor) and o.requires_grad]
    found = torch.autograd.grad(sum((o * (k + 2)).sum() for k, o in enumerate(outs)), [x for x in inputs if x.is_leaf])
    return out, found, torch.rand(2)


def block(x, w):
    return x + F.gelu(x @ w) @ w.t()


def with_dropout(x, w):
    return F.dropout(torch.tanh(x @ w), 0.4) * 2


def several(x, w, factor, places):
    y = (x @ w).sigmoid() * factor
    return {"sum": y.sum(places), "rest": [y, y.exp() + w]}


def takes_several(x, w):
    made = kept(several, x, w, 3.0, (0, 1))
    return made["sum"], made["rest"][0], made["rest"][1].sin()


def given_by_name(x, w):
    def scaled(x, *, weight, factor=2.0, masks):
        return (x @ weight * masks["rows"]).sigmoid() * factor + masks["all"]

    made = kept(scaled, x.sin(), masks={"all": x.cos(), "rows": x[:, :1]}, weight=w, factor=3.0)
    return made, kept(scaled, masks={"rows": made, "all": x}, x=x, weight=w, preserve_rng_state=False)


def inside_another(x, w):
    def outer(x):
        return kept(block, kept(with_dropout, x.sin(), w), w) * 2

    return kept(outer, x)


def given_back_inside(x, w):
    """A result that the checkpoint's own gradients look at."""
    def both(x):
        y = (x @ w).sigmoid()
        return y, (y @ w).tanh()

    y, z = kept(both, x)
    return y, z, y * z


def without_gradients_inside(x, w):
    def inner(x):
        with torch.no_grad():
            y = x @ w
        return x * y + x.detach().exp()

    return kept(inner, x)


def of_a_view(x, w):
    return kept(lambda x: (x.t() @ w).relu() @ w, x[1:, :-1] if x.shape[0] > w.shape[0] else x.t())


FUNCTIONS = [
    lambda x, w: kept(block, x, w),
    lambda x, w: kept(block, kept(block, x, w), w).sum(),
    lambda x, w: kept(with_dropout, kept(with_dropout, x * 2, w), w),
    lambda x, w: kept(with_dropout, x, w, preserve_rng_state=True) @ w,
    lambda x, w: kept(block, x.exp(), w).sin().sum() + kept(block, x, w).mean(),
    lambda x, w: kept(block, x, w, determinism_check="none", debug=False, context_fn=noop_context_fn, early_stop=False),
    lambda x, w: kept(with_dropout, x * w, w, determinism_check="default", debug=False, early_stop=True).sum(),
    takes_several, given_by_name, inside_another, given_back_inside, without_gradients_inside, of_a_view,
]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_equal_to_eager(fn):
    Twins(fn, leaf(5, 5), leaf(5, 5)).both(gradients)


def test_gradients_of_gradients():
    def use(fn, x, w):
        first = torch.autograd.grad(fn(x, w).square().sum(), (x, w), create_graph=True)
        return first, torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))

    Twins(lambda x, w: kept(block, x, w), leaf(4, 4), leaf(4, 4)).both(use)


def test_twice_and_in_parts():
    def use(fn, x, w):
        y, z, _ = fn(x, w)
        once = torch.autograd.grad(y.sum(), (x, w), retain_graph=True)
        return once, torch.autograd.grad(z.sum(), x, retain_graph=True), torch.autograd.grad((y * z).sum(), (x, w))

    Twins(given_back_inside, leaf(4, 4), leaf(4, 4)).both(use)


@pytest.mark.parametrize("how", [torch.no_grad, contextlib.nullcontext, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_around(how):
    def use(fn, x, w):
        with how():
            out = fn(x, w)
        if not out.requires_grad:
            return out
        return out.dtype, [g.dtype for g in torch.autograd.grad(out.float().sum(), (x, w))]

    Twins(FUNCTIONS[0], leaf(4, 4), leaf(4, 4)).both(use)


def test_what_is_done_again_for_others_to_see_is_left_to_aten():
    """Eager moves running statistics twice, and draws other numbers where it was told not to keep the state."""
    norm = nn.BatchNorm1d(4).double()

    def moved(x):
        return kept(norm, x).sum() + norm.running_mean.detach().sum()

    def drawn(x):
        return kept(lambda x: F.dropout(x.exp(), 0.5), x, preserve_rng_state=False).sum()

    def use(fn, x):
        norm.reset_running_stats()
        torch.manual_seed(0)
        out = fn(x)
        return out, torch.autograd.grad(out, x), norm.running_mean.clone(), torch.rand(2)

    for fn in (moved, drawn):
        twins = Twins(fn, leaf(5, 4))
        twins.check_fused = lambda: None
        twins.both(use)
    assert "draws other random numbers" in framejit.inspect(twins.compiled).graphs[0].reason


class Blocks(nn.Module):
    def __init__(self, keeps):
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(DEPTH))
        self.second = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(DEPTH))
        self.keeps = keeps

    def forward(self, x):
        for first, second in zip(self.first, self.second):
            def inner(x, first=first, second=second):
                return x + second(F.gelu(first(x)))

            x = inner(x) if self.keeps else kept(inner, x)
        return x.square().mean()


def test_nothing_of_it_is_kept_and_one_is_in_memory_at_a_time():
    rows, peaks, largest = 512, {}, []
    x = torch.randn(rows, WIDTH)
    inside = rows * 4 * WIDTH * 4
    for keeps in (True, False):
        torch.manual_seed(0)
        net = Blocks(keeps)
        compiled = framejit.optimize(net)
        with recorded() as log:
            for _ in range(2):
                compiled(x).backward()
        largest.append(max(size for told in of_kind(log, "training") for _, size in told.kept))
        for parameter in net.parameters():
            parameter.grad = None
        peaks[keeps] = peak(lambda step=compiled: step(x).backward())
        same([p.grad for p in net.parameters()], eager_gradients(net, x))
    assert peaks[True] > DEPTH * inside
    # the inputs of all, what one makes, and the gradients of all weights
    assert peaks[False] < DEPTH * rows * WIDTH * 4 + 4 * inside + DEPTH * 2 * 4 * WIDTH * WIDTH * 4
    assert largest == [DEPTH * inside, inside // 4]  # by line, and by checkpoint


def test_the_text_of_the_backward_says_what_is_of_which_checkpoint():
    def f(x, w):
        return kept(block, kept(with_dropout, x.cos(), w), w).sum()

    compiled = framejit.optimize(f)
    compiled(leaf(4, WIDTH), leaf(WIDTH, WIDTH)).backward()
    _, backward = framejit.inspect(compiled).graphs
    told = set(re.findall(r"= aten\.(\w+)\..*# (.*)test_checkpoints\.py:", backward.recorded))
    assert {("cos", ""), ("sin", "backward of ")} <= told  # outside of both
    for number, function in (1, "tanh"), (2, "gelu"):
        of = f"checkpoint {number}: "
        assert {("mm", of), (function, of)} <= told  # computed again
        assert {("mm", f"backward of {of}"), (f"{function}_backward", f"backward of {of}")} <= told


def eager_gradients(net, x):
    return list(torch.autograd.grad(net(x), [*net.parameters()]))


def test_a_model_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=16, n_head=2, n_layer=3, vocab_size=40, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.randint(40, (2, 8))

    def loss(ids):
        return model(input_ids=ids, labels=ids).loss

    compiled = framejit.optimize(loss)
    for seed in range(2):
        found = []
        for fn in (loss, compiled):
            torch.manual_seed(seed)
            out = fn(ids)
            found.append((out, torch.autograd.grad(out, [*model.parameters()]), torch.rand(2)))
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    reports = framejit.inspect(compiled).graphs
    assert reports and not any(report.reason for report in reports)


@pytest.mark.parametrize("written", ["input", "result"])
def test_what_is_written_before_the_backward(written):
    """Its arguments must be what they were, as in eager; what was given need not."""

    def use(fn, x, w):
        y = x * 2
        out = fn(y, w)
        with torch.no_grad():
            {"input": y, "result": out}[written].add_(1)
        try:
            return torch.autograd.grad(out.sum(), (x, w))
        except RuntimeError as e:
            return "modified by an inplace operation" in str(e)

    Twins(lambda x, w: kept(lambda x: torch.tanh(x @ w), x), leaf(4, 4), leaf(4, 4)).both(use)
