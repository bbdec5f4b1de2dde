"""`optimizer.step()` is one graph, which serves all steps whatever the learning rate is, and does what eager does."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim

import framejit

from support import of_kind, recorded, seed

FEW = 3
"""Entries: before there is state, with state, and with a learning rate that changes."""

STEADY = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd, fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adam, amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adamw, foreach": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "adamw, fused": lambda p: optim.AdamW(p, lr=0.01, fused=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "adagrad, fused": lambda p: optim.Adagrad(p, lr=0.01, fused=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}
OTHERS = {
    "adam, capturable": lambda p: optim.Adam(p, lr=torch.tensor(0.01)),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
}


def model(dtype):
    seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.LayerNorm(7), nn.Linear(7, 3)).to(dtype)


def tensors_of(module, optimiser):
    return [*module.parameters(), *(v for s in optimiser.state.values() for v in s.values() if torch.is_tensor(v))]


def decaying(optimiser):
    return optim.lr_scheduler.ExponentialLR(optimiser, 0.9)


def both(make, step, dtype=torch.float32, steps=8, tolerance=1e-5, scheduled=decaying):
    """`step(optimiser)` as it is and compiled, with a schedule; gives the compiled function."""
    compiled = framejit.optimize(step, backend="fuse")
    known = []
    for fn in (step, compiled):
        module = model(dtype)
        optimiser = make(module.parameters())
        schedule = scheduled(optimiser)
        found = []
        for number in range(steps):
            seed(number)
            for parameter in module.parameters():
                parameter.grad = torch.randn_like(parameter)
            versions = [p._version for p in module.parameters()]
            fn(optimiser)
            found.append([t.detach().clone() for t in tensors_of(module, optimiser)])
            found.append([torch.tensor(p._version > v) for p, v in zip(module.parameters(), versions)])
            schedule.step()
        known.append(found)
    for one, other in zip(*known):
        assert len(one) == len(other)
        for expected, got in zip(one, other):
            assert expected.dtype == got.dtype
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    return compiled


def step(optimiser):
    optimiser.step()


@pytest.mark.parametrize("name", STEADY)
def test_a_step_is_one_graph_for_all_learning_rates(name):
    compiled = both(STEADY[name], step)
    graphs = framejit.inspect(compiled).graphs
    assert len(graphs) <= FEW and not any(graph.reason for graph in graphs), graphs


OF_MOMENTA = {
    "adam": lambda p: optim.Adam(p, lr=0.01, fused=True, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, fused=True, maximize=True),
    "adamw, without decay": lambda p: optim.AdamW(p, lr=0.01, fused=True, weight_decay=0, amsgrad=True),
    "sgd": lambda p: optim.SGD(p, lr=0.01, fused=True, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, with dampening": lambda p: optim.SGD(p, lr=0.01, fused=True, momentum=0.9, dampening=0.1, maximize=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OF_MOMENTA)
def test_fused_steps_whose_momenta_change(name, dtype):
    def one_cycle(optimiser):
        return optim.lr_scheduler.OneCycleLR(optimiser, 0.05, total_steps=24)

    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    compiled = both(OF_MOMENTA[name], step, dtype, steps=20, tolerance=tolerance, scheduled=one_cycle)
    graphs = framejit.inspect(compiled).graphs
    assert len(graphs) <= FEW + 1 and not any(graph.reason for graph in graphs), graphs


QUESTIONS = {
    "radam": lambda p: optim.RAdam(p, lr=0.01, weight_decay=0.1),
    "radam, foreach": lambda p: optim.RAdam(p, lr=0.01, foreach=True),
    "asgd": lambda p: optim.ASGD(p, lr=0.01, t0=3),
    "asgd, of double precision": lambda p: optim.ASGD([each.data.double().requires_grad_() for each in p], t0=3),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_about_counts_have_an_entry_for_each_answer(name):
    """Of the graph, for whether enough steps were made follows from what the tensors hold before it runs: also where
    somebody has set them."""

    def outcome(compile_step):
        module = model(torch.float32)
        optimiser = QUESTIONS[name](list(module.parameters()))
        run, found = compile_step(step), []
        for number in range(24):
            seed(number)
            for parameter in optimiser.param_groups[0]["params"]:
                parameter.grad = torch.randn_like(parameter)
            if number == 12:
                state = copy.deepcopy(optimiser.state_dict())
            if number == 14:  # some parameters have made fewer steps
                list(optimiser.state.values())[1]["step"].fill_(1.0)
            if number == 16:
                optimiser.load_state_dict(state)
            run(optimiser)
            parameters = optimiser.param_groups[0]["params"]
            tensors = [v for s in optimiser.state.values() for v in s.values() if torch.is_tensor(v)]
            found.append([t.detach().clone() for t in (*parameters, *tensors)])
        return run, found

    _, expected = outcome(lambda step: step)
    with recorded() as log:
        compiled, found = outcome(lambda step: framejit.optimize(step, backend="fuse"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not of_kind(log, "graph_break")
    assert len(of_kind(log, "capture_started")) <= 6


def test_a_step_that_adds_halves_to_parameters():
    def make(parameters):
        return optim.Muon([each for each in parameters if each.ndim == 2], lr=0.01)

    compiled = both(make, step, tolerance=1e-2)  # it multiplies matrices in bfloat16
    assert len(framejit.inspect(compiled).graphs) <= FEW


@pytest.mark.filterwarnings("error:.*could not capture")
@pytest.mark.parametrize("name", OTHERS)
def test_other_optimisers_do_what_eager_does(name):
    both(OTHERS[name], step)


@pytest.mark.parametrize("name", ["momentum", "adamw", "adamw, foreach"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_parameters_of_other_dtypes(name, dtype):
    compiled = both(STEADY[name], step, dtype, tolerance=1e-12 if dtype is torch.float64 else 2e-2)
    assert len(framejit.inspect(compiled).graphs) <= FEW


def test_groups_with_learning_rates_of_their_own():
    def make(parameters):
        first, *rest = parameters
        return optim.AdamW([{"params": [first], "lr": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.01)

    # one learning rate is seen to change, then another
    assert len(framejit.inspect(both(make, step)).graphs) <= FEW + 1


def outcome(fn, optimiser):
    try:
        fn(optimiser)
    except Exception as e:
        return type(e), str(e)
    return None


def test_a_count_of_steps_that_is_none_raises_as_in_eager():
    outcomes, parameters = [], []
    for fn in (step, framejit.optimize(step, backend="fuse")):
        module = model(torch.float32)
        optimiser = optim.Adam(module.parameters(), lr=0.01)
        for count in (None, None, None, -1.0, 3.0):
            for parameter in module.parameters():
                parameter.grad = torch.ones_like(parameter)
            if count is not None:
                for state in optimiser.state.values():
                    state["step"].fill_(count)
            outcomes.append(outcome(fn, optimiser))
            parameters.append([p.detach().clone() for p in module.parameters()])
    assert outcomes[:5] == outcomes[5:] and outcomes[3][0] is ZeroDivisionError
    for one, other in zip(parameters[:5], parameters[5:]):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_gradients_that_come_and_go():
    known = []
    compiled = framejit.optimize(step, backend="fuse")
    for fn in (step, compiled):
        module = model(torch.float32)
        optimiser = optim.AdamW(module.parameters(), lr=0.01)
        for number in range(6):
            seed(number)
            for place, parameter in enumerate(module.parameters()):
                parameter.grad = None if place == number % 2 else torch.randn_like(parameter)
            fn(optimiser)
        known.append([t.detach() for t in tensors_of(module, optimiser)])
    torch.testing.assert_close(*known, rtol=1e-5, atol=1e-6)


def whole(module, optimiser, x, y):
    loss = F.cross_entropy(module(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad()
    return loss.detach(), norm


@pytest.mark.parametrize("name", ["momentum", "adamw", "adamw, foreach", "adamw, fused"])
def test_a_whole_step_is_two_graphs(name):
    known = []
    compiled = framejit.optimize(whole, backend="fuse")
    for fn in (whole, compiled):
        module = model(torch.float32)
        optimiser = STEADY[name](module.parameters())
        schedule = optim.lr_scheduler.CosineAnnealingLR(optimiser, 20)
        found = []
        for number in range(10):
            seed(number)
            found.append(fn(module, optimiser, torch.randn(8, 5), torch.randint(0, 3, (8,))))
            assert all(p.grad is None for p in module.parameters())
            schedule.step()
        known.append([found, [t.detach() for t in tensors_of(module, optimiser)]])
    torch.testing.assert_close(*known, rtol=1e-4, atol=1e-5)
    names = {graph.name for graph in framejit.inspect(compiled).graphs if "backward" not in graph.name}
    assert len(names) <= 1 + FEW, names


CALLS = {
    "alpha": lambda x, y, z, n: x.add_(y, alpha=n),
    "alpha of sub": lambda x, y, z, n: torch.sub(x, y, alpha=-n),
    "methods": lambda x, y, z, n: x.mul(n).add(n).div(n).sub(n),
    "in place": lambda x, y, z, n: x.mul_(1 - n * 0.5).div_(n),
    "value": lambda x, y, z, n: x.addcmul_(y, z, value=n).addcdiv(y, z, value=n),
    "lists": lambda x, y, z, n: (torch._foreach_add_([x, y], [y, z], alpha=n), torch._foreach_mul([x, y], n), x, y),
    "a type is asked for": lambda x, y, z, n: x * n if isinstance(n, torch.Tensor) else x.add(y, alpha=n),
}


CYCLES = {
    "one": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "many": lambda o: optim.lr_scheduler.CyclicLR(o, 0.001, 0.1, step_size_up=3, step_size_down=4),
}
MOVING = {
    **{name: STEADY[name] for name in ("momentum", "adam", "adam, amsgrad", "adamw", "adamw, foreach")},
    "adam, foreach": lambda p: optim.Adam(p, lr=0.01, foreach=True, weight_decay=0.1),
    "adamax": OTHERS["adamax"], "nadam": OTHERS["nadam"],
}


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("name", MOVING)
def test_schedules_that_change_momentum_and_betas(name, cycle):
    compiled = both(MOVING[name], step, torch.float64, steps=16, tolerance=1e-10, scheduled=CYCLES[cycle])
    graphs = framejit.inspect(compiled).graphs
    assert len(graphs) <= FEW + 1 and not any(graph.reason for graph in graphs), graphs


LERPS = {
    "method": lambda x, y, n: x.lerp(y, n),
    "in place": lambda x, y, n: x.lerp_(y, 1 - n),
    "function": lambda x, y, n: torch.lerp(x, y, weight=n * 0.5),
    "lists": lambda x, y, n: (torch._foreach_lerp_([x, y], [y, x * 2], 1 - n), x, y)[1:],
    "bounds of lists": lambda x, y, n: (
        torch._foreach_clamp_min_([x, y], n - 0.5), torch._foreach_clamp_max([x, y], n), x, y
    )[1:],
    "the greater ones of lists": lambda x, y, n: (
        torch._foreach_minimum_([x, y], n), torch._foreach_maximum([x, y], n / 2), x, y
    )[1:],
    "powers of lists": lambda x, y, n: torch._foreach_pow([x.abs() + 1, y.abs() + 1], n + 1),
    "power": lambda x, y, n: x * (1 - n ** y.abs().sum().item()),
    "power of a number": lambda x, y, n: x * (1 - n ** (n * 10)) / (1 - 0.9 ** (n + 1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LERPS)
def test_rates_that_change_are_no_reason_to_compile_again(name, dtype):
    fn = LERPS[name]
    compiled = framejit.optimize(fn, backend="fuse")
    for rate in (0.1, 0.15, 0.2, 0.12, 0.17, 0.8, 0.7, 0.0):
        seed(1)
        given = [torch.randn(3, 4).to(dtype) for _ in range(2)]
        again = copy.deepcopy(given)
        expected, got = fn(*given, rate), compiled(*again, rate)
        close = 1e-12 if dtype is torch.float64 else 1e-5
        torch.testing.assert_close([got, again], [expected, given], rtol=close, atol=close)
    assert len(framejit.inspect(compiled).graphs) <= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_change_are_no_reason_to_compile_again(name, dtype):
    fn = CALLS[name]
    compiled = framejit.optimize(fn, backend="fuse")
    for number in (0.5, 0.25, -1.5, 3.0, 0.1, 7.0):
        seed(1)
        given = [torch.randn(3, 4).to(dtype) + 3 for _ in range(3)]
        again = copy.deepcopy(given)
        expected, got = fn(*given, number), compiled(*again, number)
        same = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 5e-2)  # a kernel keeps digits of halves
        torch.testing.assert_close([got, again], [expected, given], rtol=same, atol=same)
    assert len(framejit.inspect(compiled).graphs) <= 2


@pytest.mark.filterwarnings("error:.*could not capture")
@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad, optim.NAdam, optim.Adadelta])
def test_a_step_that_may_be_differentiated_raises_for_leaves_as_in_eager(kind):
    def outcomes(compile_step):
        module = model(torch.float32)
        optimiser = kind(module.parameters(), lr=0.01, differentiable=True)

        @compile_step
        def whole(x):
            module(x).square().sum().backward()
            optimiser.step()

        for _ in range(2):
            with pytest.raises(RuntimeError) as raised:
                whole(torch.ones(2, 5))
            yield str(raised.value), [t.detach().clone() for t in tensors_of(module, optimiser)]

    compiled = outcomes(lambda step: framejit.optimize(step, backend="eager"))
    for (message, tensors), (got_message, got) in zip(outcomes(lambda step: step), compiled, strict=True):
        assert got_message == message
        torch.testing.assert_close(got, tensors, rtol=1e-5, atol=1e-6)
