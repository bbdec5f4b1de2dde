"""Layers that change lists and objects which captured code has made are stamped out: these hold what eager's hold, and
whatever makes one layer go another way is noticed."""

import pytest
import torch

import framejit
from tests.capture.interpreted_layers import same_as_interpreted

from comparison import assert_same
from support import CountingBackend

DEPTH = 5
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Slot:
    """What a layer keeps."""

    def __init__(self):
        self.keys, self.filled = None, False

    def update(self, keys):
        if not self.filled:
            self.keys, self.filled, self.shape = torch.zeros(0, 4), True, keys.shape
        self.keys = torch.cat((self.keys, keys))
        return self.keys


class Wide(Slot):
    def update(self, keys):
        return super().update(keys * 2)


class Cache:
    def __init__(self, slots=()):
        self.slots = list(slots)
        self.calls = 0

    def update(self, keys, index):
        return self.slots[index].update(keys)


class GrowingCache(Cache):
    def update(self, keys, index):
        while len(self.slots) <= index:
            self.slots.append(Slot())
        return super().update(keys, index)


class Record:
    def __init__(self, value, number):
        self.value, self.parts = value, [number, {"shape": value.shape}]


class Layer(torch.nn.Module):
    """One that takes more instructions than it has operations, as those of libraries do."""

    def __init__(self, number):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale, self.number = 0.5, number

    def work(self, x):
        total = 0
        for number in range(12):
            total += number * 2
        return self.linear(x) * self.scale + total * 1e-3

    def forward(self, x, state, **extra):
        out = self.work(x)
        return out + state.update(out, self.number).sum()


class Stack(torch.nn.Module):
    def __init__(self, make=Layer, state=None):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(make(number) for number in range(DEPTH))
        self.state = state

    def forward(self, x):
        x, state = x * 1.0, self.state()
        for layer in self.layers:
            x = layer(x, state)
        return x, state


def slots():
    return Cache([Slot(), Slot(), Slot(), Slot(), Slot()])


def plain(value, seen=None):
    """A value with its objects as tuples, in which one that was met before is its number."""
    seen = {} if seen is None else seen
    if isinstance(value, (list, dict)) or type(value).__module__ == __name__:
        if id(value) in seen:
            return seen[id(value)]
        seen[id(value)] = len(seen)
        if isinstance(value, list):
            return ["list", *(plain(item, seen) for item in value)]
        held = value if isinstance(value, dict) else vars(value)
        return [type(value).__name__, *((str(name), plain(item, seen)) for name, item in held.items())]
    if isinstance(value, tuple):
        return tuple(plain(item, seen) for item in value)
    return value


def both(model, fast, *args):
    """What Python and compiled code give, and leave behind."""
    args = args or (X,)
    assert_same(plain(fast(*args)), plain(model(*args)))


def check(stamped, model, expected=DEPTH - 1, calls=2, **options):
    backend = CountingBackend()
    fast = framejit.optimize(model, backend=backend, **options)
    for _ in range(calls):
        both(model, fast)
    assert stamped[:1] == [expected] and len(backend.graphs) == 1
    return fast


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("state", [slots, GrowingCache])
def test_caches(stamped, state, grad):
    with torch.set_grad_enabled(grad):
        check(stamped, Stack(state=state), DEPTH - 2 if grad else DEPTH - 1)  # the first one's input needs none


def test_gradients_through_caches():
    model = Stack(state=slots)
    fast = framejit.optimize(model)
    for call in (model, fast):
        out, cache = call(X)
        grads = torch.autograd.grad(out.sum() + sum(s.keys.sum() for s in cache.slots), list(model.parameters()))
        if call is model:
            expected = grads
    torch.testing.assert_close(grads, expected)


def test_stamped_captures_are_those_of_the_interpreter(monkeypatch):
    with torch.no_grad():
        same_as_interpreted(monkeypatch, lambda: Stack(state=GrowingCache).eval(), X)


def _number(layer):
    layer.number = 1


def _last(layer):
    layer.number = -1


def _bool(layer):
    layer.number = True


def _out_of_range(layer):
    layer.number = 17


def _scale(layer):
    layer.scale = 2.0


def _weight(layer):
    layer.linear = torch.nn.Linear(4, 4, bias=False)


def _hook(layer):
    layer.register_forward_hook(lambda module, args, output: output + 1)


def _class(layer):
    layer.__class__ = Twice


class Twice(Layer):
    def forward(self, x, state, **extra):
        return super().forward(super().forward(x, state), state)


CHANGES = [_number, _last, _bool, _scale, _weight, _hook, _class]


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", [slots, GrowingCache])
def test_a_change_in_one_layer_is_noticed(stamped, change, where, state):
    if state is GrowingCache and change is _last and where == 0:
        pytest.skip("there is no last slot then")
    model = Stack(state=state)
    with torch.no_grad():
        fast = check(stamped, model)
        change(model.layers[where])
        both(model, fast)
        both(model, fast)


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_differs_is_captured_on_its_own(stamped, change, where):
    model = Stack(state=slots)
    change(model.layers[where])
    fast = framejit.optimize(model, backend="eager")
    with torch.no_grad():
        both(model, fast)


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_a_number_out_of_range_is_noticed(stamped, where):
    model = Stack(state=slots)
    with torch.no_grad():
        fast = check(stamped, model)
        model.layers[where].number = 17
        for call in (model, fast):
            with pytest.raises(IndexError, match="list index out of range"):
                call(X)


def _another_class(made):
    return Wide()


def _filled(made):
    made.update(torch.ones(2, 4))
    return made


def _more_attributes(made):
    made.extra = 1
    return made


def _other_constant(made):
    made.filled = 0
    return made


def _none(made):
    return None


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
@pytest.mark.parametrize("change", [_another_class, _filled, _more_attributes, _other_constant])
def test_a_slot_that_differs(stamped, change, where):
    """The slots are made in the call: what differs in one is seen while capturing."""

    def state():
        cache = slots()
        cache.slots[where] = change(cache.slots[where])
        return cache

    with torch.no_grad():
        fast = framejit.optimize(Stack(state=state), backend="eager")
        for _ in range(2):
            both(Stack(state=state), fast)
    assert stamped[0] >= (DEPTH - 1 if change is _more_attributes else DEPTH - 3)


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_one_slot_for_two_layers(stamped, where):
    def state():
        cache = slots()
        cache.slots[where] = cache.slots[where - 1]
        return cache

    with torch.no_grad():
        fast = framejit.optimize(Stack(state=state), backend="eager")
        both(Stack(state=state), fast)


class Appends(Layer):
    """Appends what it computed, and an object that holds it."""

    def forward(self, x, state, **extra):
        out = self.work(x)
        state.slots.append(Record(out, self.number))
        state.slots.append((out.sum(), "loss"))
        return out


class Extends(Layer):
    def forward(self, x, state, **extra):
        out = self.work(x)
        state.slots += [out.sum()]
        return out


def test_what_layers_append(stamped):
    with torch.no_grad():
        check(stamped, Stack(Appends, Cache))
    model = Stack(Appends, Cache)
    for number, layer in enumerate(model.layers):
        layer.number = number * 10
    with torch.no_grad():
        both(model, framejit.optimize(model, backend="eager"))


class Counts(Layer):
    def forward(self, x, state, **extra):
        state.calls += 1
        return self.work(x)


def test_counters(stamped):
    with torch.no_grad():
        check(stamped, Stack(Counts, Cache))


class CountsAndLooks(Layer):
    def forward(self, x, state, **extra):
        state.calls += 1
        return self.work(x) * state.calls


class LooksAtNumber(Layer):
    def forward(self, x, state, **extra):
        return super().forward(x, state) * self.number


class LooksAtOthers(Layer):
    """What it does depends on what earlier layers left."""

    def forward(self, x, state, **extra):
        return super().forward(x, state) + sum(slot.keys.sum() for slot in state.slots if slot.filled)


class LooksAtLength(Layer):
    def forward(self, x, state, **extra):
        state.slots.append(self.work(x))
        return x * len(state.slots)


class LooksBack(Layer):
    def forward(self, x, state, **extra):
        before = state.slots[self.number - 1]
        out = super().forward(x, state)
        return out + before.keys.sum() if self.number else out


class KeepsItself(Layer):
    def forward(self, x, state, **extra):
        state.slots[self.number].owner = self.linear
        return super().forward(x, state)


class Removes(Layer):
    def forward(self, x, state, **extra):
        out = super().forward(x, state)
        del state.slots[self.number].shape
        state.slots.insert(self.number, state.slots.pop(self.number))
        return out


class ThroughText(Layer):
    def forward(self, x, state, **extra):
        setattr(state, f"of_{self.number}", self.work(x))
        return x + 1


class InDict(Layer):
    def forward(self, x, state, **extra):
        out = self.work(x)
        state.slots[0][self.number] = out
        return out + len(state.slots[0])


class ReadsTwice(Layer):
    """Looks at its number after it has named a slot by it."""

    def forward(self, x, state, **extra):
        out = super().forward(x, state)
        return out * 2 if self.number == 2 else out


@pytest.mark.parametrize(
    ("make", "state", "expected"),
    [
        (CountsAndLooks, Cache, 0), (LooksAtNumber, slots, 0), (LooksAtOthers, slots, 0), (LooksAtLength, Cache, 0),
        (LooksBack, slots, None), (KeepsItself, slots, 0), (Removes, slots, 0), (ThroughText, Cache, 0),
        (Extends, Cache, 0), (InDict, lambda: Cache([{}]), 0), (ReadsTwice, slots, DEPTH - 2),
    ],
)
def test_what_differs_is_captured(stamped, make, state, expected):
    model = Stack(make, state)
    with torch.no_grad():
        fast = framejit.optimize(model, backend="eager")
        for _ in range(2):
            out, kept = fast(X)
            wanted, held = model(X)
            assert_same(out, wanted)
            if make is KeepsItself:
                assert all(slot.owner is layer.linear for slot, layer in zip(kept.slots, model.layers))
            else:
                assert_same(plain(kept), plain(held))
    assert expected is None or stamped[0] == expected


class Numbered(Stack):
    """Tells each layer its number."""

    def forward(self, x):
        x, state = x * 1.0, self.state()
        for number, layer in enumerate(self.layers):
            x = layer(x, state, number)
        return x, state


class Told(Layer):
    def forward(self, x, state, number):
        out = self.work(x)
        return out + state.update(out, number).sum()


class ToldAndLooks(Layer):
    def forward(self, x, state, number):
        out = self.work(x)
        return out + state.update(out, number).sum() + number


@pytest.mark.parametrize(("make", "expected"), [(Told, DEPTH - 1), (ToldAndLooks, 0)])
def test_numbers_that_are_given(stamped, make, expected):
    with torch.no_grad():
        check(stamped, Numbered(make, GrowingCache), expected)


class Inner(Layer):
    """Calls a module that goes with the number, but leads to nothing that can be changed."""

    def __init__(self, number):
        super().__init__(number)
        self.inner = Scales()

    def forward(self, x, state, **extra):
        for _ in range(2):
            x = self.inner(x, self.number)
        return super().forward(x, state)


class Scales(torch.nn.Module):
    def forward(self, x, number):
        total = 0
        for i in range(20):
            total += i * 2
        return x * (number + 1) + total


def test_numbers_given_to_modules_inside(stamped):
    with torch.no_grad():
        model = Stack(Inner, slots)
        fast = framejit.optimize(model, backend="eager")
        both(model, fast)
        both(model, fast)


class Nested(torch.nn.Module):
    """A stack that is called with a cache, and so is followed itself."""

    def __init__(self, number=0):
        super().__init__()
        self.stack = torch.nn.ModuleList(Layer(number * DEPTH + i) for i in range(DEPTH))

    def forward(self, x, state, **extra):
        for layer in self.stack:
            x = layer(x, state)
        return x


def test_stacks_of_stacks(stamped):
    with torch.no_grad():
        # the layers of the first one, and the other ones as a whole
        check(stamped, Stack(Nested, GrowingCache), 2 * (DEPTH - 1))


class Shared:
    def __init__(self, number):
        self.number = number


class ReadsShared(Layer):
    """Reads a number beside itself, and gives it."""

    def __init__(self, shared):
        super().__init__(0)
        self.shared = shared

    def forward(self, x, state, **extra):
        return x + state.update(self.work(x), self.shared.number).sum(), self.shared.number


class Sharing(torch.nn.Module):
    """Calls layers that read one number of it."""

    def __init__(self, number):
        super().__init__()
        self.shared = Shared(number)
        self.inner = torch.nn.ModuleList(ReadsShared(self.shared) for _ in range(3))

    def forward(self, x, state, **extra):
        for inner in self.inner:
            x, number = inner(x, state)
            state.calls += number
        return x


def test_numbers_that_inner_layers_share():
    with torch.no_grad():
        model = Stack(Sharing, slots)
        fast = framejit.optimize(model, backend="eager")
        for where, number in ((0, 0), (3, 1), (1, 4), (4, 0)):
            model.layers[where].shared.number = number
            both(model, fast)
            both(model, framejit.optimize(model, backend="eager"))


class Raises(Layer):
    def forward(self, x, state, **extra):
        out = super().forward(x, state)
        if self.scale > 1:
            raise ValueError(self.number)
        return out


class Catches(Stack):
    def forward(self, x):
        x, state = x * 1.0, self.state()
        try:
            for layer in self.layers:
                x = layer(x, state)
        except ValueError as e:
            return x, state, e.args
        return x, state


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_a_layer_that_raises(stamped, where):
    model = Catches(Raises, GrowingCache)
    with torch.no_grad():
        fast = check(stamped, model)
        model.layers[where].scale = 2.0
        both(model, fast)
        both(model, fast)


class LeavesBehind(Stack):
    """What was put into an existing object by the time that a layer raised is there."""

    def forward(self, x):
        x, state = x * 1.0, self.state()
        self.box.state = state
        for layer in self.layers:
            x = layer(x, state)
        return x


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_what_is_left_when_a_layer_raises(where):
    model = LeavesBehind(Raises, GrowingCache)
    model.box = Cache()
    fast = framejit.optimize(model, backend="eager")
    with torch.no_grad():
        left = []
        for scale in (0.5, 2.0):
            model.layers[where].scale = scale
            for call in (model, fast):
                model.box.state = None
                try:
                    left.append(plain(call(X)))
                except ValueError as e:
                    left.append(e.args)
                left.append(plain(model.box.state))
    assert_same(left[2:4], left[0:2])
    assert_same(left[6:8], left[4:6])


# ---- lists behind existing objects that captured code has changed ----


class Collector:
    """What layers put things into without being given it, as hooks of libraries do."""

    held = None


COLLECTOR = Collector()


class Collects(Layer):
    def forward(self, x):
        out = self.work(x) + x
        if COLLECTOR.held is not None and "states" in COLLECTOR.held:
            states = COLLECTOR.held["states"]
            if len(states) == 0:
                states.append(x)
            states.append(out)
        return out


class CollectsAndLooks(Collects):
    def forward(self, x):
        out = super().forward(x)
        return out + COLLECTOR.held["states"][0].sum()


class CollectsByLength(Collects):
    def forward(self, x):
        return super().forward(x) * len(COLLECTOR.held["states"])


class CollectsAtLast(Collects):
    def forward(self, x):
        return super().forward(x) + COLLECTOR.held["states"][-2].cos()


class Collecting(Stack):
    def forward(self, x):
        COLLECTOR.held = {"states": [], "others": []}
        for layer in self.layers:
            x = layer(x)
        found, COLLECTOR.held = COLLECTOR.held, None
        return x, found["states"], found["others"]


class Keeping(Stack):
    """One that keeps what is behind each layer in an attribute of its own."""

    def forward(self, x):
        self.states = []
        for layer in self.layers:
            x = layer(x)
            self.states.append(x)
        return x, self.states


class Plain(Layer):
    def forward(self, x):
        return self.work(x) + x


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "kind, make, expected",
    [
        (Collecting, Collects, DEPTH - 2),  # the first one puts in what it is given, too
        (Collecting, CollectsAndLooks, DEPTH - 2),
        (Collecting, CollectsByLength, 0),
        (Collecting, CollectsAtLast, DEPTH - 2),
        (Keeping, Plain, DEPTH - 2),
    ],
)
def test_lists_behind_existing_objects(stamped, kind, make, expected, grad):
    model = kind(make)
    fast = framejit.optimize(model, backend=CountingBackend())
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            wanted = [*model(X)]
            wanted[1:] = [list(part) for part in wanted[1:]]
            assert_same(list(fast(X)), wanted)
            assert COLLECTOR.held is None
    assert stamped[0] == expected


@pytest.mark.parametrize("kind, make", [(Collecting, Collects), (Collecting, CollectsAtLast), (Keeping, Plain)])
def test_they_are_those_of_the_interpreter(monkeypatch, kind, make):
    same_as_interpreted(monkeypatch, lambda: kind(make).eval(), X)


@pytest.mark.parametrize("where", [0, DEPTH // 2, DEPTH - 1])
@pytest.mark.parametrize("kind, make", [(Collecting, Collects), (Keeping, Plain)])
def test_a_change_of_a_layer_before_such_a_list_is_noticed(kind, make, where):
    model = kind(make)
    fast = framejit.optimize(model, backend=CountingBackend())
    for change in (lambda layer: None, lambda layer: setattr(layer, "scale", 0.75)):
        change(model.layers[where])
        wanted = model(X)
        wanted = [wanted[0], list(wanted[1])]
        found = fast(X)
        assert_same([found[0], list(found[1])], wanted)
