"""Layers alike are captured once: the same results, graphs and guards as without, and every change in any one layer is
noticed."""
import copy

import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.capture.interpreted_layers import same_as_interpreted

from comparison import assert_same
from support import CountingBackend

DEPTH = 5
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Layer(torch.nn.Module):
    """One that takes more instructions than it has operations, as those of libraries do."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.register_buffer("shift", torch.rand(4))
        self.scale = 0.5
        self.settings = {"order": tuple(["linear", "norm"]), "bias": 1.0}  # each its own

    def forward(self, x, offset=0.0, **extra):
        total = 0
        for number in range(12):
            total += number * 2
        out = x
        for name in self.settings["order"]:
            out = getattr(self, name)(out)
        out = out * self.scale + self.shift + offset + self.settings["bias"] + total * 1e-3
        return F.dropout(out, 0.5) * 2 if self.training else out


class Other(Layer):
    def forward(self, x, offset=0.0, **extra):
        return super().forward(x, offset).sin()


class Stack(torch.nn.Module):
    def __init__(self, make=Layer):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(make() for _ in range(DEPTH))
        self.gain = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        x = x * self.gain
        for layer in self.layers:
            x = layer(x, offset=0.25)
        return x


def both(model, fast, x=X):
    """Results and gradients by Python and compiled, with the same random numbers."""
    torch.manual_seed(1)
    expected = model(x)
    torch.manual_seed(1)
    got = fast(x)
    assert_same(got, expected)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if expected.requires_grad and torch.is_grad_enabled():
        grads = [torch.autograd.grad(y.sum(), parameters, allow_unused=True) for y in (expected, got)]
        assert_same(list(grads[1]), list(grads[0]))


def compiled(model):
    backend = CountingBackend()
    return framejit.optimize(model, backend=backend), backend


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_layers_are_stamped(stamped, grad, training):
    model = Stack().train(training)
    fast, backend = compiled(model)
    with torch.set_grad_enabled(grad):
        both(model, fast)
        both(model, fast)
    assert stamped == [DEPTH - 1] and len(backend.graphs) == 1


def test_stamped_captures_are_those_of_the_interpreter(monkeypatch):
    same_as_interpreted(monkeypatch, lambda: Stack().eval(), X)


def _swap(layer):
    layer.linear.weight = torch.nn.Parameter(layer.linear.weight * 2 + 1)


def _swap_shape(layer):
    layer.linear = torch.nn.Linear(4, 4, bias=False)


def _forward_hook(layer):
    layer.register_forward_hook(lambda module, args, output: output + 1)


def _pre_hook(layer):
    layer.linear.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


def _attribute(layer):
    layer.scale = 0.75


def _attribute_type(layer):
    layer.scale = 1  # an int


def _nested(layer):
    layer.settings["bias"] = 2.0


def _order(layer):
    layer.settings = {"order": ("norm", "linear"), "bias": 1.0}


def _flag(layer):
    layer.train()


def _dtype(layer):
    layer.shift = layer.shift.half()


def _class(layer):
    layer.__class__ = Other


def _own_forward(layer):
    layer.forward = lambda x, offset=0.0: x + 1


def _module(layer):
    layer.norm = torch.nn.Identity()


def _buffer_gone(layer):
    del layer.shift
    layer.shift = 1.5


def _eps(layer):
    layer.norm.eps = 0.5


def _gradient(layer):
    layer.linear.weight.requires_grad_(False)


def _layout(layer):
    layer.linear.weight = torch.nn.Parameter(layer.linear.weight.detach().t().contiguous().t())


CHANGES = [
    _swap, _swap_shape, _forward_hook, _pre_hook, _attribute, _attribute_type, _nested, _order, _flag, _dtype, _class,
    _own_forward, _module, _buffer_gone, _eps, _gradient, _layout,
]


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_one_layer_is_noticed(stamped, change, where):
    model = Stack().eval()
    fast, _ = compiled(model)
    both(model, fast)
    assert stamped == [DEPTH - 1]
    change(model.layers[where])
    both(model, fast)


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_differs_is_captured_on_its_own(stamped, change, where):
    model = Stack().eval()
    change(model.layers[where])
    fast, _ = compiled(model)
    both(model, fast)
    assert stamped[-1] >= 1


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_another_device_is_noticed(stamped, where):
    model = Stack().eval()
    fast, _ = compiled(model)
    both(model, fast)
    model.layers[where].shift = torch.rand(4, device="meta")
    for call in (model, fast):
        with pytest.raises(RuntimeError, match="meta"):
            call(X)


def test_changes_to_all_layers_stamp_again(stamped):
    model = Stack().eval()
    fast, _ = compiled(model)
    both(model, fast)
    for layer in model.layers:
        layer.settings = {"order": ("norm", "linear", "norm"), "bias": 1.0}
    both(model, fast)
    assert stamped == [DEPTH - 1] * 2


def test_each_layer_has_its_number(stamped):
    """What differs between layers and is looked at keeps them apart."""

    class Numbered(Layer):
        def forward(self, x, offset=0.0):
            return super().forward(x, offset) + self.number

    model = Stack(Numbered).eval()
    for number, layer in enumerate(model.layers):
        layer.number = number
    fast, _ = compiled(model)
    both(model, fast)
    model.layers[3].number = 17
    both(model, fast)
    assert stamped == [0, 0]


def test_a_layer_that_looks_at_the_first(stamped):
    class ThroughParent(Layer):
        def forward(self, x, offset=0.0):
            return super().forward(x, offset) + self.parent[0].layers[0].shift

    model = Stack(ThroughParent).eval()
    for layer in model.layers:
        layer.parent = [model]
    fast, _ = compiled(model)
    both(model, fast)
    assert stamped == [0]


THE_MODEL = None


def test_a_layer_that_looks_at_the_first_through_a_global(stamped):
    class ThroughGlobal(Layer):
        def forward(self, x, offset=0.0):
            return super().forward(x, offset) + THE_MODEL.layers[0].shift

    global THE_MODEL
    THE_MODEL = Stack(ThroughGlobal).eval()

    def run(x):
        return THE_MODEL(x)

    fast, _ = compiled(run)
    both(THE_MODEL, fast)
    assert stamped == [0]
    fast, _ = compiled(THE_MODEL)
    both(THE_MODEL, fast)
    assert stamped == [0, 0]


def test_a_layer_that_looks_at_the_first_through_a_cell(stamped):
    model = None

    class ThroughCell(Layer):
        def forward(self, x, offset=0.0):
            return super().forward(x, offset) + model.layers[0].shift

    model = Stack(ThroughCell).eval()
    fast, _ = compiled(lambda x: model(x))
    both(model, fast)
    assert stamped == [0]


def test_the_model_in_a_cell(stamped):
    model = Stack().eval()
    fast, _ = compiled(lambda x: model(x))
    both(model, fast)
    assert stamped == [DEPTH - 1]


class Given(Layer):
    def forward(self, x, offset=0.0, shift=None):
        return super().forward(x, offset) + shift


class GivesFirst(Stack):
    def forward(self, x):
        x = x * self.gain
        for layer in self.layers:
            x = layer(x, shift=self.layers[0].shift)
        return x


def test_what_is_given_belongs_to_the_first(stamped):
    model = GivesFirst(Given).eval()
    fast, _ = compiled(model)
    both(model, fast)
    model.layers[0].shift = torch.rand(4)
    both(model, fast)


def test_shared_weights(stamped):
    model = Stack().eval()
    for layer in model.layers[1:]:
        layer.linear.weight = model.layers[0].linear.weight
    model.layers[3].norm = model.layers[1].norm
    fast, _ = compiled(model)
    both(model, fast)
    both(model, fast)
    model.layers[3].linear.weight = torch.nn.Parameter(torch.rand(4, 4))
    both(model, fast)
    model.layers[3].norm = torch.nn.LayerNorm(4, eps=0.5)
    both(model, fast)


class Collecting(Stack):
    """Keeps what layers gave in a list, by a hook that looks for it in an object that captured code has changed."""

    def forward(self, x):
        self.collector.found = {"all": [], "inactive": self.inactive}
        out = super().forward(x)
        found, self.collector.found = self.collector.found, None
        return out, found["all"]


class Collector:
    found = None


class Collects(Layer):
    def forward(self, x, offset=0.0):
        out = super().forward(x, offset)
        if self.collector.found is not None and not self.collector.found["inactive"]:
            self.collector.found["all"].append(out)
        return out


@pytest.mark.parametrize("inactive", [True, False])
def test_what_layers_collect(stamped, inactive):
    model = Collecting(Collects).eval()
    collector = Collector()
    for module in (model, *model.layers):
        module.collector = collector
    model.inactive = inactive
    fast, _ = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            assert_same(fast(X), model(X))
    assert stamped == [DEPTH - 1]


@pytest.mark.parametrize("place", [0, DEPTH // 2, DEPTH - 1])
def test_a_layer_that_looks_elsewhere_for_what_it_collects(place):
    model = Collecting(Collects).eval()
    collector = Collector()
    for module in (model, *model.layers):
        module.collector = collector
    model.inactive = False
    fast, _ = compiled(model)
    with torch.no_grad():
        assert_same(fast(X), model(X))
        model.layers[place].collector = Collector()
        for _ in range(2):
            assert_same(fast(X), model(X))
        assert_same(compiled(model)[0](X), model(X))


class Remembers(Layer):
    def forward(self, x, offset=0.0):
        self.calls = self.calls + 1
        return super().forward(x, offset) + self.calls

    calls = 0


def test_layers_that_change_themselves(stamped):
    model = Stack(Remembers).eval()
    twin = copy.deepcopy(model)
    fast, _ = compiled(model)
    with torch.no_grad():
        for _ in range(3):
            assert_same(fast(X), twin(X))
    assert [layer.calls for layer in model.layers] == [layer.calls for layer in twin.layers]
    assert set(stamped) == {0}


class Breaks(Layer):
    def forward(self, x, offset=0.0):
        x = super().forward(x, offset)
        if self.settings["bias"] > 5:
            print(end="")
        return x


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_a_break_in_one_layer(stamped, where):
    model = Stack(Breaks).eval()
    fast, _ = compiled(model)
    both(model, fast)
    model.layers[where].settings["bias"] = 6.0
    both(model, fast)
    both(model, fast)


class Sorts(Layer):
    """Breaks where a call can't be broken inside: the capture starts again at another place."""

    def forward(self, x, offset=0.0):
        order = sorted(self.settings["order"], key=lambda name: (self.noisy and print(end=""), name)[1])
        return super().forward(x, offset) + len(order)

    noisy = False


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_a_capture_that_starts_again(stamped, where):
    model = Stack(Sorts).eval()
    model.layers[where].noisy = True
    fast, _ = compiled(model)
    both(model, fast)
    both(model, fast)


def test_writes_into_what_layers_share(stamped):
    class Writes(Layer):
        def forward(self, x, offset=0.0):
            out = super().forward(x, offset)
            self.seen.add_(out.detach().sum())
            return out

    model = Stack(Writes).eval()
    seen = torch.zeros(())
    for layer in model.layers:
        layer.seen = seen
    fast, _ = compiled(model)
    with torch.no_grad():
        expected = model(X)
        wanted = seen.clone()
        seen.zero_()
        assert_same(fast(X), expected)
    assert_same(seen, wanted)


def test_layers_of_other_inputs(stamped):
    """The sizes of what a layer is given decide what it is like."""

    class Grows(Layer):
        def forward(self, x, offset=0.0):
            return torch.cat((super().forward(x, offset), x))

    model = Stack(Grows).eval()
    fast, _ = compiled(model)
    both(model, fast)
    assert stamped == [0]


def test_tuples_come_and_go(stamped):
    class Pairs(Layer):
        def forward(self, pair, offset=0.0):
            return super().forward(pair[0], offset), pair[1], (pair[0], None, 3)

    class Of(Stack):
        def forward(self, x):
            pair = x * 1.0, x + 1.0
            for layer in self.layers:
                *pair, kept = layer((pair[0], pair[1]))
            return pair, kept

    model = Of(Pairs).eval()
    fast, _ = compiled(model)
    with torch.no_grad():
        assert_same(fast(X), model(X))
    assert stamped == [DEPTH - 1]


def test_sizes_that_are_left_open(stamped):
    model = Stack().eval()
    fast = framejit.optimize(model, backend="eager", dynamic=True)
    for rows in (3, 4, 7):
        both(model, fast, torch.rand(rows, 4))


class Shows(Layer):
    """What it gives lies in memory of its own, of what it was given, or of its own again."""

    def forward(self, x, offset=0.0, **extra):
        out = super().forward(x, offset)
        return out.t(), x.view(-1), out[:2].unsqueeze(0)


@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_writes_into_what_layers_give(stamped, written, where):
    """Results that are views of one another, or of what a layer was given, are that after a stamped call, too."""

    class Written(Stack):
        def forward(self, x):
            x, shown = x * self.gain, []
            for layer in self.layers:
                turned, flat, part = layer(x, offset=0.25)
                shown.append((turned, flat, part))
                x = turned.t() + flat.view(3, 4)
            shown[where][written].mul_(3.0)
            return x, *(each for three in shown for each in three)

    with torch.no_grad():
        assert_same(framejit.optimize(Written(Shows), backend="eager")(X), Written(Shows)(X))
    assert stamped == [DEPTH - 1]

