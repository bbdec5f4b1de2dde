"""Programs in which data decides equal eager in results, gradients, what they print and the random numbers behind them;
and their graphs are counted, beside torch.compile's."""
import pytest
import torch
from programs.branches import PROGRAMS, graphs_of, results_of

import framejit

from comparison import assert_same

GRAPHS = {
    "readme_example": (3, 3), "detection": (7, 7), "clipped_step": (2, 3), "without_nans": (1, 4),
    "adaptive_rate": (1, 3), "best_row": (1, 5), "converging": (1, 3), "noisy": (1, 3), "early_return": (1, 3),
    "running_statistics": (1, 7),
}
"""Of framejit and of torch.compile, as `python tests/programs/branches.py` prints them with torch 2.13 on CPython 3.11.
Programs that print or go by sizes that data decides have as many as torch.compile's."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_equal_eager(name):
    expected = results_of(PROGRAMS[name], name)
    graphs, found = graphs_of(framejit.optimize, name)
    assert_same(expected, found)
    ours, theirs = GRAPHS[name]
    assert graphs == ours <= theirs
    assert_same(*([_gradients(call) for call in calls] for calls in (expected, found)))


def _gradients(call):
    return [argument.grad for argument in call[2] if isinstance(argument, torch.Tensor)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fusing_backend(name):
    assert_same(
        results_of(PROGRAMS[name], name), results_of(framejit.optimize(PROGRAMS[name]), name), rtol=1e-5, atol=1e-6
    )
