"""Captures that draw numbers of Python's and numpy's modules, or read clocks, are kept for other processes."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from kept.processes import PROGRAM, Run, loaded, one_folder

import framejit
from framejit import events


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


HEAD = """
import random, time
import numpy as np
import torch
torch.manual_seed(1)
net = torch.nn.Linear(3, 3)
args = (torch.ones(4, 3),)
"""
KEPT = {
    "numbers": """
def target(x):
    random.seed(5)
    return net(x) * random.random() + random.randint(1, 9), random.choice([2, 3, 4]), random.gauss(0, 1)
""",
    "several": """
def target(x):
    random.seed(6)
    return net(x) + torch.tensor(random.sample(range(9), 3)), random.choices([1, 2, 3], k=2)
""",
    "numpy": """
def target(x):
    np.random.seed(7)
    return net(x) * np.random.rand() + torch.tensor(np.random.permutation(3)), np.random.randint(0, 5, 2)
""",
    "clocks": """
def target(x):
    begin, at = time.perf_counter(), time.time_ns()
    y = net(x)
    return y, time.perf_counter() - begin >= 0, time.time_ns() >= at > 10**18
""",
    "a step": """
optimizer = torch.optim.SGD(net.parameters(), 0.0)
def target(x):
    random.seed(8)
    begin = time.monotonic()
    optimizer.zero_grad()
    loss = (net(x) * random.uniform(1, 2)).sum() * np.float64(2)
    loss.backward()
    optimizer.step()
    return loss.detach(), net.weight.grad.clone(), time.monotonic() >= begin
""",
    "with a break": """
def target(x):
    random.seed(9)
    y = net(x) * random.random()
    print(end="")
    return y.relu() + random.random()
""",
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", KEPT)
def test_a_second_process_captures_nothing(name, backend):
    assert Run(HEAD + KEPT[name], backend=backend).captured
    second = Run(HEAD + KEPT[name], backend=backend)
    assert not second.captured, second.said


RAISES = HEAD + """
def target(x, at):
    y = net(x) * random.random() + np.random.rand()
    return y.index_select(0, at) + random.random()
"""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_where_the_graph_raises(backend):
    """Numbers are drawn once more from where they were."""

    def outcome(optimize, places):
        target = optimize(loaded(PROGRAM, RAISES, "/nowhere/kept_program.py").target)
        random.seed(1)
        np.random.seed(1)
        results, states, captured = [], [], []
        for at in places:
            seen: list[events.Event] = []
            unsubscribe = events.subscribe(seen.append)
            try:
                results.append(target(torch.ones(4, 3), torch.tensor([at])))
            except IndexError:
                results.append(torch.tensor([]))
            finally:
                unsubscribe()
            states.append((random.getstate()[1][-1], int(np.random.get_state()[2])))
            captured.append(any(event.kind == "capture_started" for event in seen))
        return results, states, captured

    def optimize(fn):
        return framejit.optimize(fn, backend=backend)

    outcome(optimize, (0, 1, 2))  # an entry whose graph has raised is kept no longer
    found, expected = outcome(optimize, (0, 9, 2)), outcome(lambda fn: fn, (0, 9, 2))
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1] and not len(found[0][1])
    assert not found[2][0]


NOT_KEPT = {
    "generator": "own = random.Random(3)\ndef target(x):\n    return net(x) * own.random()\n",
    "of numpy": "own = np.random.default_rng(3)\ndef target(x):\n    return net(x) * own.random()\n",
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_generators_of_the_program_are_of_this_process(name):
    """Their numbers are. Each process captures anew, and draws from its own."""
    for _ in range(2):
        target = loaded(PROGRAM, HEAD + NOT_KEPT[name], "/nowhere/kept_program.py").target
        plain = loaded(PROGRAM, HEAD + NOT_KEPT[name], "/nowhere/kept_program.py").target
        fast = framejit.optimize(target, backend="eager")
        for _ in range(3):
            torch.testing.assert_close(fast(torch.ones(4, 3)), plain(torch.ones(4, 3)))
