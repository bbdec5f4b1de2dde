"""Steps that make an optimiser for weights that were written into before, as inner loops of meta-learning do."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import check_steps


def towards(module, start, tasks, rate):
    """Reptile: from the same weights each task goes its own way, and the weights go a little after all of them."""
    ends, losses = [], []
    for x, y in tasks:
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            loss = F.cross_entropy(module(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        losses.append(loss.item())
        ends.append({name: value.clone() for name, value in module.state_dict().items()})
    module.load_state_dict({name: start[name] + rate * sum(end[name] - start[name] for end in ends) for name in start})
    return losses


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_an_optimiser_for_each_task(backend):
    def outcome(compile_step):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

        def step(tasks, rate):
            return towards(module, copy.deepcopy(module.state_dict()), tasks, rate)

        run, found = compile_step(step), []
        for number in range(6):
            tasks = [(torch.randn(5, 4), torch.randint(0, 3, (5,))) for _ in range(2)]
            losses = run(tasks, 0.5 - number / 20)
            weights = [(p.detach().clone(), p.grad.clone()) for p in module.parameters()]
            found.append((losses, weights))
        return found

    check_steps(outcome, backend, 3, rtol=1e-4, atol=1e-6)
