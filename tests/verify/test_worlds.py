"""The plain run happens on copies: the program sees one call's effects, and correct code is found correct whatever it
changes."""
import copy
import random
import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch

import framejit
from framejit.errors import FramejitWarning

from shadows import outcomes

calls: list[int] = []
total = 0


def same(fn, *args, **kwargs):
    """`fn` optimized gives what it should, verified without a difference; returns the result."""
    with outcomes() as seen:
        result = framejit.optimize(fn, backend="eager", verify=True)(*args, **kwargs)
    assert [(event.outcome, event.reason) for event in seen] == [("same", "")]
    return result


def counts(x):
    global total
    calls.append(1)
    total += 1
    return x + total


def test_globals_change_once():
    before = total
    calls.clear()
    assert torch.equal(same(counts, torch.zeros(2)), torch.full((2,), before + 1.0))
    assert total == before + 1 and calls == [1]


def test_variables_of_enclosing_functions_change_once():
    def make():
        n, seen = 0, []

        def f(x):
            nonlocal n
            n += 1
            seen.append(x)
            return x * n

        return f, lambda: (n, len(seen))

    f, state = make()
    same(f, torch.ones(2))
    assert state() == (1, 1)


def test_arguments_change_once():
    x, items, table = torch.zeros(3), [], {}

    def f(x, items, table):
        x.add_(1)
        items.append(x)
        table["k"] = items
        return x

    assert same(f, x, items, table) is x
    assert x.tolist() == [1.0] * 3 and len(items) == 1 and table["k"] is items


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.n = 0

    def forward(self, x):
        self.n += 1
        calls.append(self.n)
        return self.norm(x)


def test_a_module_changes_once():
    calls.clear()
    model = Counting()
    same(model, torch.randn(4, 3))
    assert (model.n, int(model.norm.num_batches_tracked)) == (1, 1)
    assert calls == [1]  # a global that only the method names


class MadeWhenAskedFor(OrderedDict):
    """As transformers has one of its activations."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


table = MadeWhenAskedFor(relu=torch.nn.ReLU, tanh=torch.nn.Tanh)


class FromTable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = table["relu"]

    def forward(self, x):
        table.move_to_end("relu")
        return self.act(x) if "tanh" in table else table["tanh"](x)


def test_containers_with_methods_of_their_own_are_put_back_as_they_were():
    same(FromTable(), torch.randn(4, 3))
    assert [*OrderedDict.items(table)] == [("tanh", torch.nn.Tanh), ("relu", torch.nn.ReLU)]


def test_a_module_that_is_optimized_stays_what_it_is(tmp_path):
    import copy

    fast = framejit.optimize(Counting(), verify=True)
    assert isinstance(fast, Counting)
    assert isinstance(copy.deepcopy(fast), Counting)
    assert list(fast.state_dict()) == list(Counting().state_dict())


def test_gradients_are_accumulated_once():
    w = torch.ones(3, requires_grad=True)

    def step(w, x):
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    same(step, w, torch.full((3,), 2.0))
    assert w.grad.tolist() == [2.0] * 3


def test_the_history_of_a_result_stays_whole():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    same(lambda y: y * y, y).sum().backward()
    assert w.grad.tolist() == [8.0] * 3


def test_an_in_place_write_to_a_result_with_history():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    same(lambda y: y.mul_(3), y)
    assert y.tolist() == [6.0] * 3


def seed():
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def test_both_draw_the_same_numbers():
    def f(x):
        return x + torch.rand(3) * random.random() + float(np.random.rand())

    seed()
    expected = [f(torch.ones(3)) for _ in range(2)]
    seed()
    got = [same(f, torch.ones(3)) for _ in range(2)]
    assert all(map(torch.equal, expected, got))


def test_modes_stay_as_the_call_left_them():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    try:
        same(f, torch.ones(2, requires_grad=True))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_it_prints_once(capsys):
    def f(x):
        print("here")
        return x + 1

    same(f, torch.ones(2))
    assert capsys.readouterr().out == "here\n"


def test_it_warns_once():
    def f(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        with warnings.catch_warnings(record=True) as inner:
            warnings.simplefilter("always")
            warnings.warn("inside", UserWarning, stacklevel=1)
        return x + len(inner)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert torch.equal(same(f, torch.ones(2)), torch.full((2,), 2.0))
    assert [str(w.message) for w in seen] == ["careful"]


def test_what_is_held_weakly_changes_once():
    """A scheduler of learning rates puts a function in the place of the optimizer's `step` that has the optimizer by a
    weak reference in a variable."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    x, before = torch.ones(4, 3), copy.deepcopy(model)

    def step(model, x, optimizer, scheduler):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(step, model, x, optimizer, scheduler)
    parameters = list(before.parameters())
    gradients = torch.autograd.grad(before(x).square().mean(), parameters)
    for now, was, gradient in zip(model.parameters(), parameters, gradients, strict=True):
        torch.testing.assert_close(now, was - 0.1 * gradient)
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_attributes_of_functions_change_once():
    def f(x):
        f.calls += 1
        f.seen.append(x)
        return x * f.calls

    f.calls, f.seen = 0, []
    fast = framejit.optimize(f, backend="eager", verify=True)

    @framejit.optimize(backend="eager", verify=True)
    def counted(x):
        counted.calls += 1
        return x * counted.calls

    counted.calls = 0
    with outcomes() as seen:
        assert fast(torch.ones(2)).tolist() == [1, 1] and fast(torch.ones(2)).tolist() == [2, 2]
        assert counted(torch.ones(2)).tolist() == [1, 1] and counted(torch.ones(2)).tolist() == [2, 2]
    assert [event.outcome for event in seen] == ["same"] * 4
    assert f.calls == len(f.seen) == counted.calls == 2


def test_nan_is_nan_and_infinity_infinity():
    same(lambda x: (x / x.sum(), float("nan"), [x.sum().item() * 0]), torch.tensor([0.0, float("inf")]))


def test_exceptions_are_raised_once_and_compared():
    def f(x):
        x.add_(1)
        raise ValueError(f"no {x.shape}")

    x = torch.zeros(2)
    with outcomes() as seen, pytest.raises(ValueError, match="no torch.Size"):
        framejit.optimize(f, verify=True)(x)
    assert [event.outcome for event in seen] == ["same"] and x.tolist() == [1.0, 1.0]


def test_exiting_is_left_to_the_program():
    def f(x):
        raise SystemExit(int(x.sum()))

    with outcomes() as seen, pytest.raises(SystemExit, match="2"):
        framejit.optimize(f, verify=True)(torch.ones(2))
    assert [event.outcome for event in seen] == ["same"]


def test_what_cannot_be_copied_is_said_and_runs():
    def f(x, items):
        return x + next(items)

    with (
        outcomes() as seen,
        pytest.warns(FramejitWarning, match="f can't be verified: TypeError: cannot pickle 'generator' object"),
    ):
        result = framejit.optimize(f, verify=True)(torch.ones(2), (i for i in (5, 6)))
    assert [event.outcome for event in seen] == ["skipped"] and result.tolist() == [6.0, 6.0]


def test_optimized_functions_inside_run_plainly_in_the_plain_run():
    inner = framejit.optimize(lambda x: x * 2, verify=True)
    assert same(lambda x: inner(x) + 1, torch.ones(2)).tolist() == [3.0, 3.0]


def test_a_shared_list_stays_shared():
    shared = [torch.ones(2)]

    def f(a, b):
        a.append(b[0] + 1)
        return len(b), b

    assert same(f, shared, shared)[0] == 2


def test_programs_of_the_language():
    def f(x, **options):
        rows = {name: x * value for name, value in options.items()}
        return sorted(rows), [row.sum().item() for row in rows.values()], (x.tolist(), {1, 2})

    same(f, torch.ones(2), a=1, b=2)


def test_gradients_and_attributes_that_pickles_leave_out_are_copied():
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(model, optimizer, x):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast, module = (framejit.optimize(target, backend="eager", verify=True) for target in (train, model))
    with outcomes() as seen:
        for _ in range(2):
            fast(model, optimizer, torch.randn(2, 3, 8))
            module(torch.randn(2, 3, 8)).sum().backward()
    assert [(event.outcome, event.reason) for event in seen] == [("same", "")] * 4


def test_attributes_that_pickles_have_as_other_values_are_copied():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(x):
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    fast = framejit.optimize(train, backend="eager", verify=True)
    with outcomes() as seen:
        for _ in range(3):
            fast(torch.ones(2, 3))
    assert [(event.outcome, event.reason) for event in seen] == [("same", "")] * 3
    assert scaler._get_growth_tracker() == 3


class Asks(torch.Tensor):
    """Whose every attribute is asked of a `__torch_function__` that has no end."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) if func in (torch.add, torch.Tensor.add) else Asks.__torch_function__(func)


def test_comparing_asks_no_code_of_the_program():
    assert type(same(lambda x: (x + 1).as_subclass(Asks), torch.ones(2))) is Asks


def test_what_cannot_be_compared_is_said_and_runs():
    rows = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(1, 2)], layout=torch.jagged)
    with outcomes() as seen, pytest.warns(FramejitWarning, match="can't be verified: comparing raised TypeError"):
        result = framejit.optimize(lambda x: x * 2, backend="eager", verify=True)(rows)
    assert [event.outcome for event in seen] == ["skipped"] and result.values().tolist() == [[2.0, 2.0]] * 4
