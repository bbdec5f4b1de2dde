"""Steps that ask for gradients themselves, as whole functions: framejit, eager and torch.compile in turns.

    python benchmarks/gradients_inside.py [--device cpu] [--only step,equation] [--rounds 60] [--compile] [--json FILE]

Milliseconds a call, the least of the rounds, in processor time on one thread (on a GPU until the device is done);
`first` is the first call, in seconds. framejit has to make one graph of each (`fullgraph=True`). All sides begin with
equal parameters and get equal batches; how far apart framejit's results, and at last its parameters, are from eager's
is printed. With `--compile` torch.compile by default settings is a side.
"""
from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import use_empty_caches
from torch import nn

Step = Callable[..., torch.Tensor]


def perceptron(width: int, layers: int, inputs: int, outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(inputs, width), activation()]
    for _ in range(layers - 1):
        parts += [nn.Linear(width, width), activation()]
    return nn.Sequential(*parts, nn.Linear(width, outputs))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    """A step of AdamW with clipping."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), x.argmax(-1) % 10)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def accumulation(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    """Gradients of four small batches, added up."""
    optimizer.zero_grad()
    total = torch.zeros((), device=x.device)
    for part in x.chunk(4):
        loss = F.cross_entropy(model(part), part.argmax(-1) % 10) / 4
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


def equation(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    """Burgers' equation by a network, whose second derivatives are in the loss."""
    optimizer.zero_grad()
    x = x.detach().requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (second,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    loss = (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * second[:, 0]).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def penalty(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    """A critic whose gradients are held near 1."""
    optimizer.zero_grad()
    x = x.detach().requires_grad_()
    judged = model(x)
    (gradient,) = torch.autograd.grad(judged.sum(), x, create_graph=True)
    loss = judged.mean() + 10 * (gradient.norm(2, dim=1) - 1).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def attack(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    """Three steps uphill from an input; the model stays as it is."""
    moved = x
    for _ in range(3):
        moved = moved.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved), x.argmax(-1) % 10), moved)
        moved = x + (moved + 0.1 * gradient.sign() - x).clamp(-0.3, 0.3)
    return moved.detach()


CASES: dict[str, tuple[Step, Callable[[], nn.Module], tuple[int, int]]] = {
    "step": (step, lambda: perceptron(64, 8, 32, 10, nn.GELU), (64, 32)),
    "accumulation": (accumulation, lambda: perceptron(64, 4, 32, 10, nn.GELU), (64, 32)),
    "equation": (equation, lambda: perceptron(64, 3, 2, 1, nn.Tanh), (256, 2)),
    "penalty": (penalty, lambda: perceptron(128, 3, 32, 1, nn.Softplus), (128, 32)),
    "attack": (attack, lambda: perceptron(128, 3, 32, 10, nn.GELU), (128, 32)),
}


class Side:
    """One way to run a case."""

    def __init__(self, run: Step, model: nn.Module, device: str) -> None:
        self.run, self.model, self.device = run, copy.deepcopy(model).to(device), device
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.times: list[float] = []

    def call(self, x: torch.Tensor) -> torch.Tensor:
        on_gpu = self.device != "cpu"
        clock = time.perf_counter if on_gpu else time.process_time
        start = clock()
        result = self.run(self.model, self.optimizer, x)
        if on_gpu:
            torch.cuda.synchronize()
        self.times.append(clock() - start)
        return result

    def parameters(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten().cpu() for parameter in self.model.parameters()])


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import framejit

    run, make, sizes = CASES[name]
    torch.manual_seed(0)
    model = make()
    ours = framejit.optimize(run, fullgraph=True)
    sides = {"framejit": Side(ours, model, options.device), "eager": Side(run, model, options.device)}
    if options.compile:
        sides["torch.compile"] = Side(torch.compile(run), model, options.device)
    apart = 0.0
    for _ in range(options.rounds):
        x = torch.randn(sizes, device=options.device)
        results = {each: side.call(x) for each, side in sides.items()}
        apart = max(apart, (results["framejit"] - results["eager"]).abs().max().item())
    apart = max(apart, (sides["framejit"].parameters() - sides["eager"].parameters()).abs().max().item())
    row: dict[str, Any] = {"case": name, "apart": apart}
    for side_name, side in sides.items():
        row[side_name] = {"ms": min(side.times[5:]) * 1e3, "first_s": side.times[0]}
    framejit.reset()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_empty_caches()
    torch.set_num_threads(1)
    rows = []
    print(f"{'':14} {'framejit ms':>11} {'first s':>8} | {'of eager':>8} {'of compile':>10} | apart")
    for name in options.only.split(","):
        row = measured(name, options)
        rows.append(row)
        own = row["framejit"]
        ratios = [f"{own['ms'] / row[side]['ms']:.2f}" if side in row else "-" for side in ("eager", "torch.compile")]
        print(
            f"{name:14} {own['ms']:11.3f} {own['first_s']:8.2f} | {ratios[0]:>8} {ratios[1]:>10} | "
            f"{row['apart']:.1e}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
