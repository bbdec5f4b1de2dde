"""Batches that a program draws of what it has kept: floats, ints and bools in them are others in each call, in more
combinations than there may be entries."""

import random
from collections import deque, namedtuple

import pytest
import torch

import framejit

from support import of_kind, recorded

Transition = namedtuple("Transition", "state action reward done")
CALLS = 100


def sampled(buffer, transition, x):
    buffer.append(transition)
    if len(buffer) < 4:
        return None
    batch = Transition(*zip(*random.sample(buffer, 4)))
    actions, rewards = torch.tensor(batch.action).unsqueeze(1), torch.tensor(batch.reward)
    ends = torch.tensor(batch.done, dtype=torch.float32)
    return (torch.stack(batch.state) * actions + (rewards * (1 - ends))[:, None]).sum() + x


def latest(buffer, transition, x):
    buffer.append(transition)
    last = [buffer[-1 - place] for place in range(min(3, len(buffer)))]
    ended = sum(each.done for each in last)
    return x * ended + sum(each.action for each in last) + sum(each.state * each.reward for each in last)


@pytest.mark.parametrize("make", [list, lambda: deque(maxlen=8), lambda: deque(maxlen=1000)])
@pytest.mark.parametrize("step", [sampled, latest])
def test_steps_of_agents(step, make):
    buffers, compiled = (make(), make()), framejit.optimize(step, backend="eager")
    captures = []
    for number in range(CALLS):
        rng, found = random.Random(number), []
        with recorded() as events:
            for fn, buffer in zip((step, compiled), buffers):
                state = torch.full((2,), number / 7)
                random.seed(number)
                transition = Transition(state, rng.randrange(3), rng.random(), rng.random() < 0.3)
                rng.seed(number)
                found.append((fn(buffer, transition, torch.ones(1)), random.random()))
        captures += [number] * len(of_kind(events, "capture_started"))
        if found[0][0] is None:
            assert found[0] == found[1]
        else:
            torch.testing.assert_close(found[1], found[0])
        left = [event.fields["reason"] for event in of_kind(events, "frame_done") if event.fields["state"] == "skipped"]
        assert not left
    assert max(captures) < CALLS * 9 // 10, captures  # each place learns for itself


def test_what_is_asked_of_items():
    """Whatever asks for an int or bool is answered by Python, with what it is in each call."""

    def step(x, items):
        first, second, third = items[0], items[1], items[2]
        told = [first is True, second == 1, {0: "no", 1: "yes"}[int(third)], bool(second), f"{first}{third}"]
        told.append(third in (1, 2))
        return x * (2 if first else 3) + second, told, (1 if second else 2, isinstance(third, bool), type(second))

    compiled = framejit.optimize(step, backend="eager")
    for number in range(64):
        rng = random.Random(number)
        items = [rng.random() < 0.5, rng.randrange(4), rng.random() < 0.5] if number % 2 else [
            rng.random() < 0.5, rng.random() < 0.5, rng.randrange(2)
        ]
        (expected, *more), (got, *others) = step(torch.ones(2), items), compiled(torch.ones(2), items)
        torch.testing.assert_close(got, expected)
        assert more == others
