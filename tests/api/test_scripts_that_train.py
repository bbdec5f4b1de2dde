"""Scripts that train do not wait for an import of Dynamo under `framejit run`, and their optimisers do what they do."""
from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

import forked

pytestmark = pytest.mark.process

OPTIMISERS = """
import sys
import torch

sums = {}
for name, kind in vars(torch.optim).items():
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer) or kind is torch.optim.Optimizer:
        continue
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(3, 3))
    options = {"lr": 0.01} if name != "Adafactor" else {}
    optimizer = kind([weight], **options)
    if name != "LBFGS":  # which has one
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, 2))]})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = (weight.sin() ** 2).sum()
        loss.backward()
        if name == "SparseAdam":
            weight.grad = weight.grad.to_sparse()
        return loss

    for step in range(4):
        with torch.no_grad() if step == 2 else torch.enable_grad():
            optimizer.step(lambda: torch.enable_grad()(closure)())
            assert torch.is_grad_enabled() == (step != 2)
        schedule.step()
    optimizer.load_state_dict(optimizer.state_dict())
    sums[name] = weight.detach().double().sum().item()
    try:
        optimizer.step(1, 2, 3)
    except TypeError as error:
        sums[name] = sums[name], str(error), torch.is_grad_enabled()
print(sums)
"""
RAISES = """
import torch

weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)

def closure():
    raise ValueError("not today")

optimizer.step(closure)
"""
DIFFERENTIABLE = """
import torch

weight = torch.ones(3, requires_grad=True)
copy = weight.clone()
optimizer = torch.optim.SGD([copy], lr=0.5, differentiable=True)
copy.grad = (weight ** 3)
optimizer.step()
copy.sum().backward()
print(weight.grad.tolist())
"""
LATER = """
import torch

weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([weight], lr=0.1)

def step(x):
    optimizer.zero_grad()
    loss = (weight * x).sin().sum()
    loss.backward()
    optimizer.step()
    return loss

print(step(torch.ones(3)).item())
compiled = torch.compile(step, backend="eager")
print([compiled(torch.ones(3) * n).item() for n in range(3)])
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
print(compiled(torch.ones(3)).item(), weight.tolist(), hasattr(torch.optim.Optimizer.add_param_group, "__wrapped__"))
"""


@pytest.mark.parametrize("program", [OPTIMISERS, DIFFERENTIABLE, LATER])
def test_optimisers_do_what_they_do(program: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(program)
    plain, ours = (_run([*command, str(script)]) for command in ([], ["-m", "framejit", "run"]))
    assert plain.returncode == 0 and plain.stdout, plain.stderr
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr


def test_errors_are_shown_where_they_were(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RAISES)
    plain, ours = (_run([*command, str(script)]) for command in ([], ["-m", "framejit", "run"]))
    assert plain.returncode == 1 and "not today" in plain.stderr
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize("program", [OPTIMISERS, DIFFERENTIABLE])
def test_dynamo_is_not_imported(program: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(program + "\nimport sys\nprint('torch._dynamo' in sys.modules)\n")
    done = _run(["-m", "framejit", "run", str(script)])
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return forked.run(arguments, env={**os.environ}, timeout=300)
