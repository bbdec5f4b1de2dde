"""Every module of torch's test database, forward and backward, compiled, against eager.

    python tests/training/walls/module_wall.py [--inputs N] [--device cuda] [MODULE ...]

In double precision, in training and in evaluation. Results, the gradients of all parameters and inputs, and what the
call leaves in buffers are compared over several calls. Prints how many cases were fused and what is wrong.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

import framejit
from tests.fuse.operators.operator_cases import operators
from tests.fuse.operators.operator_wall import FUSED, REFUSED, Differs, judged
from tests.training.walls.gradient_wall import CALLS, UNCAPTURED, Report, compare_gradient, seed

Named = list[tuple[str, torch.Tensor | None]]


@dataclass
class ModuleCase:
    """A module with the arguments of a call."""

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        shapes = ", ".join(str([*t.shape]) for t in tree_leaves(self.args) if isinstance(t, torch.Tensor))
        return f"{self.name}{'' if self.module.training else ' in evaluation'}: {self.module} of {shapes}"


@cache
def modules() -> dict[str, Any]:
    """torch's descriptions of modules, by name."""
    operators()  # makes torch's tests importable
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def cases(name: str, most: int, device: str = "cpu") -> Iterator[ModuleCase]:
    """A module's cases: its first arguments, in training and in evaluation."""
    info = modules()[name]
    dtype = torch.float64 if torch.float64 in info.dtypes else info.dtypes[0]
    for training in (True, False) if info.train_and_eval_differ else (True,):
        seed(0)
        try:
            given = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
        except Exception:  # not to be had on this machine
            return
        for each in itertools.islice(given, most):
            if each.forward_input is None:
                continue
            made = info.module_cls(*each.constructor_input.args, **each.constructor_input.kwargs)
            module = made.to(device, dtype).train(training)
            yield ModuleCase(name, module, each.forward_input.args, each.forward_input.kwargs)


def check_module(case: ModuleCase) -> tuple[str, str]:
    """Compare a case. What became of it, and why if it was not fused. Raises Differs."""
    mine, theirs = copy.deepcopy(case.module), case.module
    compiled = framejit.optimize(mine, backend="fuse", options={"same_random_numbers": True})
    for number in range(CALLS):
        (expected, error), (got, own_error) = (
            _outcome(call, module, case, number) for call, module in ((theirs, theirs), (compiled, mine))
        )
        if type(error) is not type(own_error) or str(error) != str(own_error):
            raise Differs(f"call {number} raises {own_error!r} where eager raises {error!r}")
        if error is not None:
            return UNCAPTURED, f"eager raises {type(error).__name__}"
        for (what, one), (_, other) in zip(got, expected, strict=True):
            compare_gradient(f"call {number}: {what}", one, other)
    graphs = framejit.inspect(compiled).graphs
    reasons = [graph.reason for graph in graphs if graph.reason]
    return (UNCAPTURED, "no graph") if not graphs else (REFUSED, reasons[0]) if reasons else (FUSED, "")


def _outcome(
    call: Callable[..., Any], module: nn.Module, case: ModuleCase, number: int
) -> tuple[Named, Exception | None]:
    """Results, gradients and buffers after a call, and a step by the gradients."""
    seed(number)
    args, kwargs = tree_map(_copied, (case.args, case.kwargs))
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    module.zero_grad()
    try:
        results = [
            leaf for leaf in tree_leaves(call(*args, **kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        asked = [result for result in results if result.requires_grad]
        if asked:
            torch.autograd.backward(asked, [result.detach() / 8 + 0.25 for result in asked])
    except Exception as e:
        return [], e
    named: Named = [(f"result {place}", result) for place, result in enumerate(results)]
    named += [(f"gradient of input {place}", tensor.grad) for place, tensor in enumerate(inputs)]
    named += [(f"gradient of {name}", _cloned(tensor.grad)) for name, tensor in module.named_parameters()]
    named += [(f"buffer {name}", tensor.clone()) for name, tensor in module.named_buffers()]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None and not isinstance(parameter, nn.UninitializedParameter):
                parameter -= 0.01 * parameter.grad
    return named, None


def _copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _cloned(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


def check_modules(name: str, report: Report, most: int, device: str = "cpu") -> None:
    """Check the cases of a module."""
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    for case in cases(name, most, device):
        report.add(name, str(case), *judged(partial(check_module, case)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="names as in module_db, nn.Linear (default: all)")
    parser.add_argument("--inputs", type=int, default=4, help="how many calls of each module")
    parser.add_argument("--device", default="cpu", help="where the tensors lie")
    options = parser.parse_args(arguments)
    report = Report()
    torch.set_num_threads(1)
    for name in options.modules or modules():
        check_modules(name, report, options.inputs, options.device)
    print(report)
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
