"""Numbers that are others in each call, and lists that are longer in each, where their values have to be known: after a
few entries the graph breaks there, and the call is not captured again."""

import statistics
from collections import deque

import numpy as np
import pytest
import torch

import framejit

from support import of_kind, recorded

CALLS = 28


def mean_of_all(log, x):
    log.append((x * x).sum().item())
    return x + 1, np.mean(log)


def mean_of_the_last(log, x):
    log.append((x * x).sum().item())
    return x + 1, np.mean(log[-5:])


def spread_of_the_last(log, x):
    log.append((x * x).sum().item())
    last = log[-5:]
    return x + 1, sum(last) / len(last), max(last)


def the_last(log, x):
    log.append((x * x).sum().item())
    return x + 1, log[-1], log[-3:]


def tensors(log, x):
    log.append((x * x).sum().detach())
    return x + 1, torch.stack([*log]).mean()


def tuples(log, x):
    log.append((x.sum().item(), 1.5, float(len(log))))
    return x + 1, np.mean(log, axis=0).tolist()


def window(log, x):
    log.append((x * x).sum().item())
    return x + 1, sum(log) / len(log)


def mean_of_a_window(log, x):
    log.append((x * x).sum().item())
    return x + 1, float(np.mean(log))


def statistics_of_all(log, x):
    log.append((x * x).sum().item())
    return x + 1, statistics.mean(log)


def middle(log, x):
    log.append((x * x).sum().item())
    return x + 1, sorted(log)[len(log) // 2]


def smoothed(log, x):
    log.append((x * x).sum().item())
    return x + 1, np.convolve(log, np.ones(3) / 3, mode="same")[-1]


def array(log, x):
    log.append(x.argmax().item())
    return x + 1, np.array(log).mean()


LISTS = (
    mean_of_all, mean_of_the_last, spread_of_the_last, the_last, tensors, tuples, statistics_of_all, middle, smoothed,
    array,
)


def short():
    return deque(maxlen=9)


@pytest.mark.parametrize(
    "step, make",
    [*((step, list) for step in LISTS), (window, short), (tensors, short), (mean_of_a_window, short), (window, deque)],
)
def test_a_log_of_a_step(step, make):
    logs, compiled = (make(), make()), framejit.optimize(step, backend="eager")
    places = []
    for number in range(CALLS):
        x = torch.arange(3.0) + number % 7 * 0.37
        expected = step(logs[0], x)
        with recorded() as events:
            got = compiled(logs[1], x)
        places += [number] * len(of_kind(events, "capture_started"))
        assert list(map(type, got)) == list(map(type, expected))
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close([*logs[1]], [*logs[0]])
        assert type(logs[1]) is type(logs[0])
        assert not any(event.fields["state"] in ("eager", "skipped") for event in of_kind(events, "frame_done"))
    assert max(places) < CALLS - 8, places


def test_numbers_in_a_list_that_numpy_is_given():
    def step(x, numbers):
        return x + 1, np.mean(numbers), float(np.std([number for number in numbers if number > 0]))

    compiled = framejit.optimize(step, backend="eager")
    with recorded() as events:
        for number in range(12):
            x, numbers = torch.ones(3), [number * 0.3 + place for place in range(4)]
            torch.testing.assert_close(compiled(x, numbers), step(x, numbers))
    assert len(of_kind(events, "capture_started")) <= 8


def test_what_is_computed_of_several_ints():
    """As the box that is cut out of an image: there are more of them than entries."""
    def step(x, place, size):
        low, high = np.clip(place - size // 2, 0, 8), np.clip(place + size // 2, 0, 8)
        x = x * 2
        x[low:high] = 0
        return x, int(high - low)

    compiled = framejit.optimize(step, backend="eager")
    places = []
    for number in range(40):
        place, size = number * 7 % 9, number * 5 % 8
        with recorded() as events:
            got = compiled(torch.ones(8), place, size)
        places += [number] * len(of_kind(events, "capture_started"))
        torch.testing.assert_close(got, step(torch.ones(8), place, size))
    assert max(places) < 28, places


def test_ints_and_few_lengths_are_assumed_still():
    """A number of a layer comes again, and a list that is as long as before."""
    def step(x, layer, given):
        return sum(given) * 2 if layer % 2 else [x + layer, *range(layer % 3)]

    compiled = framejit.optimize(step, backend="eager")
    with recorded() as events:
        for number in range(20):
            given = [torch.ones(2) * n for n in range(number % 3 + 1)]
            arguments = torch.ones(2), number % 6, given
            torch.testing.assert_close(compiled(*arguments), step(*arguments))
    assert not of_kind(events, "graph_break")


def test_one_graph_that_is_asked_for_is_captured_anew():
    log = [0.5]

    def step(x):
        log.append(x.sum().item())
        return x * sum(log[-2:])

    compiled = framejit.optimize(step, backend="eager", fullgraph=True)
    with recorded() as events:
        for number in range(7):
            compiled(torch.ones(3) * number)
    assert not of_kind(events, "graph_break")
    assert log[-1] == 18.0
