"""Buffers of numpy that are filled one by one, at a place that moves on: few calls are captured."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import Pair, check_steps


class Replay:
    def __init__(self, size):
        self.states = np.zeros((size, 4), np.float32)
        self.actions = np.zeros(size, np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.place, self.size = 0, size

    def add(self, state, action, reward):
        self.states[self.place] = state
        self.actions[self.place] = action
        self.rewards[self.place] = reward
        self.place = (self.place + 1) % self.size

    def sample(self, count):
        chosen = np.random.randint(0, self.size, size=count)
        return torch.from_numpy(self.states[chosen]), torch.from_numpy(self.actions[chosen]), torch.from_numpy(
            self.rewards[chosen]
        )


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_replay_buffer(backend):
    def outcomes(compile_step):
        torch.manual_seed(0)
        np.random.seed(0)
        module, buffer = nn.Linear(4, 2), Replay(7)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)

        def step(state, action, reward):
            buffer.add(state, action, reward)
            states, actions, rewards = buffer.sample(4)
            loss = F.mse_loss(module(states).gather(1, actions[:, None]).squeeze(1), rewards)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss.item()

        run, found = compile_step(step), []
        for number in range(16):
            loss = run(np.random.randn(4).astype(np.float32), number % 2, number * 0.3 - 1)
            found.append((loss, buffer.states.copy(), buffer.actions.copy(), buffer.rewards.copy(), buffer.place))
        return found, [p.detach() for p in module.parameters()]

    check_steps(outcomes, backend, 6, rtol=1e-5, atol=1e-6)


def row(array, place, number, x):
    array[place] = x.numpy()
    return x + 1


def element(array, place, number, x):
    array[place, 1] = number
    array[0, place] = number
    return x + array.sum()


def of_data(array, place, number, x):
    array[place, 0] = x.sum().item()
    return x * 2


@pytest.mark.parametrize("program", [row, element, of_data])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_places_and_numbers_that_change(program, dtype):
    pair = Pair(lambda: program)
    for n in range(1, 7):
        x = torch.arange(3.0, dtype=torch.from_numpy(np.zeros((), dtype)).dtype) + n
        pair.call(np.zeros((6, 3), dtype), n % 3, n * 1.37, x, captures=None if n < 4 else False)
    assert not pair.breaks
    x = torch.arange(3.0, dtype=x.dtype)
    for place, number in ((2, 1e300), (7, 1.5), (-1, 2.5), (1, float("nan")), (0, float("inf")), (1, 3), (2, -(2**70))):
        pair.call(np.zeros((6, 3), dtype), place, number, x)


def test_whole_numbers_that_change():
    def program(array, place, number, x):
        array[place] = number
        return x + 1

    pair = Pair(lambda: program)
    for n in range(1, 7):
        pair.call(np.zeros(6, np.int64), n % 3 + 1, n * 5, torch.ones(2), captures=None if n < 4 else False)
    assert not pair.breaks
    for number in (2**53 + 1, 2**63 - 1, 2**63, -7, 2.5, True):
        pair.call(np.zeros(6, np.int64), 1, number, torch.ones(2))
    for dtype in (np.int32, np.uint8, np.float16, np.bool_):
        pair = Pair(lambda: program)
        for number in (3, 4, 5, 300):
            pair.call(np.zeros(6, dtype), 1, number, torch.ones(2))
