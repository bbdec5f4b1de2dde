"""What a `__getattribute__` in Python gives is interpreted once, as long as nothing has changed that it could see."""
import sys

import pytest
import torch

import framejit

from support import Pair, check


class Settings:
    """Answers by code of its own, as configurations of models do."""

    renamed = {"width": "hidden_size"}

    def __init__(self):
        self.hidden_size, self.scale, self.parts, self.held = 4, 0.5, [1, 2], None

    def __getattribute__(self, name):
        name = super().__getattribute__("renamed").get(name, name)
        if name == "n_parts":
            return len(super().__getattribute__("parts"))
        if name == "n_held":
            return len(super().__getattribute__("held") or ())
        if name == "records":
            return torch.is_grad_enabled()
        if name == "limit":
            return LIMITS["limit"]
        if name == "asked":
            ASKED.append(name)
            return 1
        if name == "handles":
            return sys.exc_info()[0] is not None
        return super().__getattribute__(name)


LIMITS = {"limit": 3}
ASKED: list[str] = []


def attribute(settings, x):
    first = settings.width
    settings.hidden_size = 7
    return x * first + settings.width, settings.hidden_size


def table(settings, x):
    first = settings.scale
    vars(settings)["scale"] = 2.0
    return x * first * settings.scale


def existing_list(settings, x):
    first = settings.n_parts
    settings.parts.append(3)
    return x * first + settings.n_parts


def list_that_was_made(settings, x):
    made = [x]
    settings.held = made
    first = settings.n_held
    made.append(1)
    return x * first + settings.n_held


def state_of_torch(settings, x):
    first = settings.records
    with torch.no_grad():
        inside = settings.records
    return x + 1, first, inside, settings.records


def table_of_a_module(settings, x):
    first = settings.limit
    LIMITS["limit"] = 5
    second = settings.limit
    LIMITS["limit"] = 3
    return x + 1, first, second, settings.limit


def class_attribute(settings, x):
    first = settings.width
    Settings.renamed = {}
    settings.width = 9
    second = settings.width
    Settings.renamed = {"width": "hidden_size"}
    return x + 1, first, second, settings.width


def effects(settings, x):
    del ASKED[:]
    return x * settings.asked * settings.asked, [*ASKED]


def handled(settings, x):
    first = settings.handles
    try:
        raise ValueError("no")
    except ValueError:
        inside = settings.handles
    return x + 1, first, inside, settings.handles


def deleted(settings, x):
    first = settings.scale
    del settings.scale
    return x * first, getattr(settings, "scale", "gone"), hasattr(settings, "scale")


@pytest.mark.parametrize("program", [
    attribute, table, existing_list, list_that_was_made, state_of_torch, table_of_a_module, class_attribute, effects,
    handled, deleted,
])
def test_what_changes_in_between_is_seen(program):
    def make():
        settings = Settings()

        def fn(x):
            return program(settings, x)

        return fn, lambda: vars(settings)

    pair = Pair(make)
    for x in (torch.ones(2), torch.zeros(2), torch.ones(2)):
        pair.call(x)


def test_it_is_interpreted_once(monkeypatch):
    """Each time, it would be more instructions than a capture may take without an operation on tensors."""
    settings = Settings()

    def fn(x):
        total = 0
        for _ in range(200):
            total += settings.width
        return x + total

    monkeypatch.setattr(framejit.config, "capture_steps", 4000)
    check(fn, torch.ones(2), fullgraph=True)


def test_each_call_finds_what_is_there_by_then():
    def make():
        settings = Settings()

        def fn(x, change):
            if change:
                settings.hidden_size += 1
            return x * settings.width + settings.width

        return fn, lambda: vars(settings)

    pair = Pair(make)
    for change in (False, False, True, False, True, True, False):
        pair.call(torch.ones(2), change)


def scaled_twice(optimized):
    settings = Settings()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * settings.scale * settings.scale

        @staticmethod
        def backward(ctx, grad):
            return grad * settings.scale * settings.scale

    def fn(x):
        return Scaled.apply(x) * settings.scale

    run = framejit.optimize(fn) if optimized else fn
    for number in range(4):
        x = torch.ones(3, requires_grad=True)
        out = run(x)
        settings.scale += number
        out.sum().backward()
        yield out.detach(), x.grad


def test_a_backward_in_python_finds_what_is_there_by_then():
    torch.testing.assert_close([*scaled_twice(True)], [*scaled_twice(False)])


class Layer(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings, self.up = settings, torch.nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(6):
            x = x + self.settings.width * self.settings.scale
        return self.up(x) * self.settings.scale


def test_layers_with_settings_of_their_own():
    torch.manual_seed(0)
    shared = Settings()
    settings = [shared, shared, Settings(), shared, Settings()]
    settings[2].scale = 3.0
    model = torch.nn.Sequential(*map(Layer, settings)).eval()
    compiled = framejit.optimize(model)
    for number in range(4):
        torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
        settings[-number].scale += 0.25
        settings[number].hidden_size += number


def test_other_objects_of_the_class():
    one, other = Settings(), Settings()
    other.hidden_size = 5

    def fn(x):
        return x + one.width, x * other.width, x - one.width, x / other.width

    check(fn, torch.ones(2), graphs=1)
