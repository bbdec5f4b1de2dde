"""Ten programs in which data decides: an `if`, a `while`, a number that is read, an index. Those of the README are
among them. `graphs_of` counts the graphs that a compiler makes of one, over all of its calls.

`python tests/programs/branches.py` prints, side by side, framejit's numbers and torch.compile's.
"""
import contextlib
import importlib.util
import io
from pathlib import Path

import torch

import framejit

ROOT = Path(__file__).parents[2]


def readme_example(x):
    y = torch.relu(x) * 2
    if y.sum() > 10:
        print("large")
    return y + 1


def _detection():
    path = ROOT / "tests/explain/programs/detection.py"
    spec = importlib.util.spec_from_file_location("detection", path)
    module = importlib.util.module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    return module


def _boxes():
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(40, 2, generator=generator) * 80
    anchors = torch.cat([corners, corners + 20], 1)
    return anchors, torch.randn(40, 4, generator=generator) * 0.1, torch.randn(40, generator=generator)


def clipped_step(x, w):
    loss = (x @ w).square().mean()
    if loss > 2:
        loss = loss * 0.5
    loss.backward()
    return loss.detach(), w.grad


def without_nans(x):
    total = x.sum()
    if torch.isnan(total) or torch.isinf(total):
        x = torch.zeros_like(x)
    return torch.softmax(x / 3, -1)


def adaptive_rate(x, target):
    error = (x - target).square().mean()
    rate = 0.2 if error > 1 else 0.05
    x = x - rate * (x - target)
    return x, rate


def best_row(x, scores):
    best = scores.argmax()
    row, top = x[best] * 2, scores[best] + 0
    if top > 1:
        row = row / top
    return row + x.mean(0), best.item()


def converging(x):
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


def noisy(x):
    noise = torch.rand_like(x)
    y = x + noise
    if y.mean() > 0.5:
        y = y - 1
    else:
        y = y + 1
    return y * torch.rand(())


def early_return(x):
    y = torch.tanh(x)
    if y.sum() > 0:
        return y * 2, y.sum()
    return y / 2, y.mean()


def running_statistics(x, statistics):
    mean = x.mean().item()
    statistics["mean"] = 0.9 * statistics["mean"] + 0.1 * mean
    statistics["above"] = int((x > mean).sum())
    return (x - mean) / (x.std().item() + 1e-6)


def _inputs(*shape):
    """Tensors whose data lead every way."""
    base = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)
    return base + 2, base - 2, base * 8, base + 0.25


def calls(name):
    """The arguments of each call of a program, made anew."""
    if name == "detection":
        return [_boxes()]
    if name == "clipped_step":
        return [(x, torch.ones(4, 2).requires_grad_()) for x in _inputs(3, 4)]
    if name == "without_nans":
        return [(x,) for x in (*_inputs(3, 4), torch.full((3, 4), float("nan")))]
    if name == "adaptive_rate":
        return [(x, torch.zeros(3, 4)) for x in _inputs(3, 4)]
    if name == "best_row":
        return [(x, x[:, 0] * factor) for x in _inputs(3, 4) for factor in (1, -1)]
    if name == "running_statistics":
        return [(x, {"mean": 0.5}) for x in _inputs(3, 4)]
    return [(x,) for x in _inputs(3, 4)]


PROGRAMS = {
    "readme_example": readme_example,
    "detection": _detection().postprocess,
    **{
        program.__name__: program
        for program in (
            clipped_step, without_nans, adaptive_rate, best_row, converging, noisy, early_return, running_statistics,
        )
    },
}


class Counting:
    """A backend that counts the graphs it is given, and runs them as they are."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, module, example_inputs):
        self.graphs += 1
        return module.forward


def results_of(program, name):
    """What each call of a program gives, prints and leaves, and the random numbers that come behind it."""
    found = []
    for arguments in calls(name):
        torch.manual_seed(5)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = program(*arguments)
        found.append((result, printed.getvalue(), arguments, torch.rand(2)))
    return found


def graphs_of(compiler, name):
    """How many graphs a compiler makes of a program, over all of its calls; and the results."""
    backend = Counting()
    results = results_of(compiler(PROGRAMS[name], backend=backend), name)
    return backend.graphs, results


if __name__ == "__main__":
    print(f"{'program':20}{'framejit':>10}{'torch.compile':>15}")
    for program_name in PROGRAMS:
        torch._dynamo.reset()
        ours, theirs = graphs_of(framejit.optimize, program_name)[0], graphs_of(torch.compile, program_name)[0]
        print(f"{program_name:20}{ours:>10}{theirs:>15}")
