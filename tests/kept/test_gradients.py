"""Captures with gradients are kept: a second process records, parts and lowers nothing, and its gradients are eager's,
whatever is done with them."""

from __future__ import annotations

import marshal
import shutil
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from kept.processes import Run, one_folder
from kept.test_noticed import BASE, CHANGES, LIBRARY

from framejit import events
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.autograd_nodes.half import Half
from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_entry import seal
from framejit.backends.fuse.training.kept_training import KIND, LEARNT

from comparison import assert_same
from support import of_kind, recorded


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield tmp_path / "cache"


def backward(results):
    sum(result.square().sum() for result in results if result.requires_grad).backward()


def nothing(results):
    return None


def retained(results):
    total = sum(result.square().sum() for result in results)
    total.backward(retain_graph=True)
    total.backward()


def twice(results):
    total = sum(result.square().sum() for result in results)
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


def first_only(results):
    results[0].square().sum().backward()


def last_only(results):
    results[-1].square().sum().backward()


def permuted(results):
    sum(result.t().contiguous().sin().sum() for result in results if result.dim() == 2).backward()


def hooked(results):
    seen = []
    for result in results:
        result.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
        result.grad_fn.register_prehook(lambda gradients: seen.extend(g for g in gradients if g is not None))
    backward(results)
    return seen


def gradients_of_gradients(results):
    leaf = next(leaf for leaf in leaves_of(results[0]) if leaf.dim() == 2)
    (first,) = torch.autograd.grad(results[0].sum(), leaf, create_graph=True)
    first.square().sum().backward()
    return first.detach()


def leaves_of(tensor):
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [before for before, _ in node.next_functions if before is not None]


class Training(Run):
    """A run whose results are used, by the program and by what was compiled of it; all is compared."""

    close = {"atol": 1e-2, "rtol": 1e-2}

    def __init__(self, program, use=backward, library="", **options):
        before = Counter(stages)
        super().__init__(program, library, backend="fuse", **options)
        self.captured_later = False
        for _ in range(2):
            self.compare(use)
        self.stages = Counter(stages) - before

    def compare(self, use):
        def run(fn):
            for leaf in self.module.leaves:
                leaf.grad = None
            results = self.seeded(fn)
            seen = use(results if isinstance(results, tuple) else (results,))
            return seen, [leaf.grad for leaf in self.module.leaves], [*map(torch.clone, self.module.buffers)]

        found = []
        unsubscribe = events.subscribe(found.append)
        try:
            got = run(self.optimized)
        finally:
            unsubscribe()
        self.captured_later |= any(event.kind == "capture_started" for event in found)
        expected = run(self.module.target)
        assert_same(got, expected, **self.close)


HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
net, buffers = nn.Linear(4, 4), []
x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
"""
TAIL = """
args = (x,)
leaves = [*net.parameters(), w]
before = [buffer.clone() for buffer in buffers]
"""


def program(body, head=HEAD):
    return head + body + TAIL


LAYERS = program("""
def target(x):
    return F.layer_norm(F.gelu(net(x)) + x, (4,)) * w
""")
PAIR = program("""
def target(x):
    return torch.std_mean(net(x) * w, 1)
""")
PROGRAMS = {
    "layers": LAYERS,
    "results of one operation": PAIR,
    "results of each other": program("""
def target(x):
    h = torch.tanh(net(x))
    return h, (h * w).exp()
"""),
    "results with nothing in common": program("""
def target(x):
    return torch.tanh(net(x)), w.exp() * x
"""),
    "dropout": program("""
def target(x):
    return F.dropout(net(x), 0.5) * w
"""),
    "batch norm": program("""
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
buffers = [*net.buffers()]
def target(x):
    return net(x) * w
"""),
    "views": program("""
def target(x):
    h = net(x) * w
    return h.t(), h.t()[1:], h.detach()
"""),
    "a view of a parameter": program("""
def target(x):
    return net.weight.view(2, 8), net(x)
"""),
    "an input that is written": program("""
def target(x):
    y = x * w
    return net(y.mul_(2.0))
"""),
    "attention": program("""
x = torch.randn(2, 3, 8, 4)
def target(x):
    q, k = net(x), x * w
    return F.scaled_dot_product_attention(q, k, q + k, is_causal=True)
"""),
    "a convolution": program("""
net = nn.Conv2d(2, 3, 3, padding=1)
x = torch.randn(2, 2, 5, 4)
def target(x):
    return F.max_pool2d(F.relu(net(x) * w), 2)
"""),
    "autocast": program("""
def target(x):
    with torch.autocast("cpu", torch.bfloat16):
        return F.mse_loss(net(x) * w, x)
"""),
    "a loss": program("""
y = torch.tensor([1, 0, 3])
def target(x):
    logits = net(x * w)
    return F.cross_entropy(logits, y), logits
"""),
    "a loss with all that it is made of": program("""
y = torch.tensor([1, 0, 3])
def target(x):
    h = torch.tanh(net(x)).view(3, 2, 2).transpose(1, 2)
    logits = net(h.flatten(1) * w)
    return F.cross_entropy(logits, y), logits, h
"""),
    "a loss that looks at a result behind it": program("""
def target(x):
    h = torch.tanh(net(x))
    factor = (x * w).exp()
    return (h * factor.detach()).sum(), h, factor
"""),
    "numbers of the program": program("""
def target(x):
    return net(x) * w * torch.tensor([1.0, 2.0, 3.0, 4.0])
"""),
    "no gradients inside": program("""
def target(x):
    with torch.no_grad():
        scale = net(x).mean()
    return net(x) * w * scale
"""),
    "an embedding": program("""
net = nn.Embedding(5, 4)
x = torch.tensor([[1, 2, 2], [0, 4, 1]])
def target(x):
    return net(x) * w
"""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_records_nothing(name):
    first = Training(PROGRAMS[name])
    assert first.captured and not any(first.said), first.said
    assert first.stages["record"] > 1
    for _ in range(2):
        second = Training(PROGRAMS[name])
        assert not second.captured and not second.captured_later, second.said
        assert not second.stages
        # of the other losses, too, the first process has found that gradients are asked for elsewhere
        assert apart(second) == [name.startswith("a loss")]
    assert apart(first) == [name == "a loss that looks at a result behind it"]


def apart(run):
    """Whether each graph is told to have a backward for each of its results."""
    return [event.apart != "" for event in run.events if event.kind == "training"]


@pytest.mark.parametrize("use", [nothing, retained, twice, first_only, last_only, hooked, gradients_of_gradients])
@pytest.mark.parametrize("name", ["results of each other", "results with nothing in common"])
def test_gradients_are_used_in_every_way(name, use):
    Training(PROGRAMS[name])
    second = Training(PROGRAMS[name], use)
    assert not second.captured and not second.captured_later and not second.stages


def test_hooks_on_saved_tensors():
    Training(LAYERS)
    seen = []
    run = Training(LAYERS, nothing)

    def pack(tensor):
        seen.append(tensor.shape)
        return tensor

    counts = []
    for fn in (run.module.target, run.optimized):
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
            fn(*run.module.args).sum().backward()
        counts.append([*seen])
    assert counts[0] and counts[0] == counts[1]


def test_parameters_that_were_changed_since():
    Training(LAYERS)
    run = Training(LAYERS)
    for _ in range(3):
        with torch.no_grad():
            for leaf in run.module.leaves:
                leaf.sub_(leaf.grad, alpha=0.01)
        run.compare(backward)
    assert not run.captured and not run.captured_later and not run.stages


def test_what_was_written_since_raises_as_in_eager():
    Training(LAYERS)
    run = Training(LAYERS)
    for fn in (run.module.target, run.optimized):
        result = fn(*run.module.args)
        with torch.no_grad():
            run.module.w.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_backward_that_no_process_has_run_is_tried_by_the_first_that_does(monkeypatch):
    tried = []
    own = Half.try_out
    monkeypatch.setattr(Half, "try_out", lambda self, inputs: tried.append(self) or own(self, inputs))
    Training(LAYERS, nothing)
    assert len(tried) == 1
    assert not Training(LAYERS).captured
    assert len(tried) == 2
    assert not Training(LAYERS).captured
    assert len(tried) == 2


@pytest.mark.parametrize("use", [first_only, last_only, permuted])
def test_gradients_that_come_otherwise_than_usual(use):
    body = LAYERS if use is permuted else PAIR
    Training(body)
    second = Training(body, use)  # which no process has met
    assert not second.captured and second.captured_later
    third = Training(body, use)
    assert not third.captured and not third.captured_later and not third.stages
    assert not Training(body).captured


def test_gradients_that_come_otherwise_where_inputs_were_written_since():
    """The graph can't be run again then: the backward for all gradients serves, with zeros."""
    body = program("""
scale = torch.full((4,), 2.0)
def target(x):
    return torch.std_mean((net(x) + w) + scale, 1)
""")
    Training(body)
    run = Training(body, nothing)
    for fn in (run.module.target, run.optimized):
        for leaf in run.module.leaves:
            leaf.grad = None
        result = fn(*run.module.args)[1]
        run.module.scale.add_(1.0)
        result.sum().backward()
        gradients = [leaf.grad for leaf in run.module.leaves]
        run.module.scale.sub_(1.0)
        if fn is run.module.target:
            expected = gradients
    assert_same(gradients, expected, atol=1e-6, rtol=1e-5)


def test_results_of_operations_that_differ_from_their_fakes_are_noticed_once(monkeypatch):
    own = Half.try_out

    def odd(self, inputs):
        results = own(self, inputs)
        self.trial.differences.append("an operation gives other results than on fakes")
        self.trial.tell()
        return results

    with monkeypatch.context() as patch:
        patch.setattr(Half, "try_out", odd)
        Training(LAYERS)
    second = Training(LAYERS)
    assert not second.captured
    (account, *_) = [graph.graphs() for graph in compiled_of(second)]
    assert {each.state for each in account} == {"eager"}


def compiled_of(run):
    from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable

    targets = [slot.target for entry in run.optimized.entries for slot in entry.slots]
    return [target for target in targets if isinstance(target, Differentiable)]


def files(folder, kind=KIND):
    return [path for path in folder.iterdir() if path.name.startswith(f"{kind}-")]


@pytest.mark.parametrize("length", [0, 10, 60, 500, -1])
def test_a_file_that_is_cut_is_ignored(folder, length):
    Training(LAYERS)
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:length])
    second = Training(LAYERS)
    assert second.captured and len([reason for reason in second.said if reason]) == 1
    assert not Training(LAYERS).captured


def test_a_file_that_is_gone_is_missed(folder):
    Training(LAYERS)
    (path,) = files(folder)
    path.unlink()
    assert Training(LAYERS).captured
    assert not Training(LAYERS).captured


@pytest.mark.parametrize("forged", [b"", b"nothing", marshal.dumps(None), marshal.dumps({}), marshal.dumps([1, 2])])
def test_a_sealed_file_of_something_else_is_ignored(folder, forged):
    Training(LAYERS)
    (path,) = files(folder)
    path.write_bytes(seal(KIND, path.name.partition("-")[2], forged))
    assert Training(LAYERS).captured
    assert not Training(LAYERS).captured


@pytest.mark.parametrize("put_instead", [None, [], [[]], "text", 7, [[True, "no"]], [[1, [], "key", [True, []]]]])
@pytest.mark.parametrize("part", [0, 1])
def test_what_was_learnt_may_be_anything(folder, part, put_instead):
    Training(PAIR, first_only)
    (path,) = files(folder, LEARNT)
    key = path.name.partition("-")[2]
    known = marshal.loads(disk_cache.get(LEARNT, key))
    known[part] = put_instead
    disk_cache.put(LEARNT, key, marshal.dumps(known))
    Training(PAIR, first_only)  # compares
    Training(PAIR, first_only)
    disk_cache.put(LEARNT, key, marshal.dumps(put_instead))
    Training(PAIR, first_only)


@pytest.mark.parametrize("forged", [None, marshal.dumps([1, 2])])
def test_a_backward_that_can_t_be_used_is_told_of(folder, forged):
    """One for gradients that come otherwise than usual: the graph is run again in its place, and captured anew."""
    Training(PAIR, first_only)
    (learnt,) = files(folder, LEARNT)
    ((_, _, key, _),) = marshal.loads(disk_cache.get(LEARNT, learnt.name.partition("-")[2]))[1]
    (path,) = [path for path in files(folder) if path.name == f"{KIND}-{key}"]
    path.unlink()
    if forged is not None:
        disk_cache.put(KIND, key, forged)
    with recorded() as log:
        second = Training(PAIR, first_only)
    assert second.captured_later and not second.captured
    (told,) = [event for event in of_kind(log, "cache") if event.key == key and "can't be used" in event.reason]
    assert told.what == KIND
    assert not Training(PAIR, first_only).captured


def test_a_plan_that_is_gone_is_missed(folder):
    Training(LAYERS)
    for path in files(folder, "plan"):
        path.unlink()
        assert Training(LAYERS).captured
    assert not Training(LAYERS).captured


def test_gradients_that_are_asked_for_at_what_a_loss_is_made_of():
    """The backward from the loss is kept, and from when on somebody asks for more, those of each result."""
    loss = PROGRAMS["a loss with all that it is made of"]
    assert Training(loss, first_only).captured
    second = Training(loss, first_only)
    assert not second.captured and not second.stages
    asking = Training(loss, hooked)
    assert not asking.captured
    for _ in range(3):
        asking.compare(hooked)
    assert asking.captured_later
    for use in (hooked, first_only, backward, last_only):
        run = Training(loss, use)
        assert not run.captured and not run.captured_later and not run.stages


def test_two_processes_that_keep_the_same_graph_learn_from_each_other(folder):
    Training(PAIR, first_only)
    for capture in files(folder, "capture"):
        capture.unlink()
    assert Training(PAIR, last_only).captured
    assert len(files(folder, LEARNT)) == 1
    for use in (first_only, last_only, backward):
        run = Training(PAIR, use)
        assert not run.captured and not run.captured_later and not run.stages


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu"), nullcontext])
def test_modes_of_torch_are_noticed(mode):
    Training(LAYERS)
    with mode():
        second = Training(LAYERS, nothing)
    assert second.captured == (mode is not nullcontext)


def test_what_needs_gradients_is_noticed():
    Training(LAYERS)
    for old, new in (
        ("torch.randn(4, requires_grad=True)", "torch.randn(4)"),
        ("args = (x,)", "args = (x.requires_grad_(),)"),
        ("args = (x,)", "net.bias.requires_grad_(False); args = (x,)"),
    ):
        assert old in LAYERS
        assert Training(LAYERS.replace(old, new)).captured
    assert not Training(LAYERS).captured


def test_other_classes_and_sizes_of_what_is_trained_are_noticed():
    Training(LAYERS)
    for old, new in (
        ("args = (x,)", "x = torch.randn(5, 4); args = (x,)"),
        ("args = (x,)", "net.register_forward_hook(lambda m, a, out: out * 2); args = (x,)"),
        ("args = (x,)", "net.weight.register_hook(lambda g: g * 2); net.bias = None; args = (x,)"),
        ("F.gelu(net(x))", "F.gelu(net(x), approximate='tanh')"),
    ):
        assert old in LAYERS
        assert Training(LAYERS.replace(old, new)).captured
    assert not Training(LAYERS).captured


WITH_GRADIENTS = BASE.replace("    with torch.no_grad():\n        return net(x)", "    return net(x)") + """
leaves, buffers, before = [*net.parameters()], [], []
"""


@pytest.fixture(scope="module")
def folder_of_first(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "cache"


@pytest.fixture
def first_is_kept(folder, folder_of_first):
    """`WITH_GRADIENTS` has been compiled, once for all tests."""
    if not folder_of_first.exists():
        first = Training(WITH_GRADIENTS, library=LIBRARY)
        assert first.captured and not any(first.said), first.said
        shutil.copytree(folder, folder_of_first)
    else:
        shutil.copytree(folder_of_first, folder)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("first_is_kept")
def test_a_change_of_the_program_is_noticed(change):
    old, new = CHANGES[change]
    changed = WITH_GRADIENTS.replace(old, new)
    assert changed != WITH_GRADIENTS
    unmoved = WITH_GRADIENTS
    if "\n" in new:
        unmoved = WITH_GRADIENTS.replace(old, "\n" * new.count("\n") + old) if "\n" + old in WITH_GRADIENTS else unmoved
        Training(unmoved, library=LIBRARY)
    assert Training(changed, library=LIBRARY).captured  # compares values and gradients
    assert not Training(unmoved, library=LIBRARY).captured
