"""Gradients of every operator of torch's test database, compiled, against eager's and against differences.

    python tests/training/walls/gradient_wall.py [--samples N] [--shard I/N] [--device cuda] [OPERATOR ...]

All in double precision. For each sample results and gradients are compared with eager's, over several calls with other
numbers and other gradients that come in; then `torch.autograd.gradcheck` and `gradgradcheck` are run on what was
compiled. Prints how many samples were fused, how many run as ATen as a whole, and what is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

import framejit
from tests.fuse.operators.operator_cases import operators
from tests.fuse.operators.operator_wall import FUSED, REFUSED, WRONG, Differs, judged

UNCAPTURED: Final = "not captured"
LOOKED_AT: Final = 40
"""Samples among which those that are tried are chosen."""
MOST_ELEMENTS: Final = 4_000
"""Larger samples are left out: differences are taken for some directions, with two calls each."""
CALLS: Final = 3
"""The first run of a graph is done by ATen."""


@dataclass
class Sample:
    """A call of an operator: `function` of the tensors alone gives the results that gradients may come to."""

    name: str
    function: Callable[..., tuple[torch.Tensor, ...]]
    tensors: list[torch.Tensor]
    operator: Any

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}{'!' * t.requires_grad}" for t in self.tensors
        )
        return f"{self.name} of {shapes}"


@dataclass
class Report:
    """What became of the samples."""

    counts: Counter[str] = field(default_factory=Counter)
    operators: dict[str, str] = field(default_factory=dict)
    """The worst that became of an operator's samples, or a module's."""
    failures: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, sample: str, verdict: str, detail: str) -> None:
        """Note a sample of what has this name."""
        order = (FUSED, UNCAPTURED, REFUSED, WRONG)
        self.counts[verdict] += 1
        self.operators[name] = max(self.operators.get(name, FUSED), verdict, key=order.index)
        if verdict == WRONG:
            self.failures.append(f"{sample}: {detail}")
        elif detail:
            self.reasons[detail] += 1

    def __str__(self) -> str:
        totals = Counter(self.operators.values())
        lines = [f"{'':14}{'samples':>9}{'of so many':>12}"]
        lines += [f"{kind:14}{self.counts[kind]:9}{totals[kind]:12}" for kind in (FUSED, REFUSED, UNCAPTURED, WRONG)]
        lines += [f"  {count:5} {reason}" for reason, count in self.reasons.most_common(12)]
        return "\n".join(lines + self.failures)


def differentiable_operators(device: str = "cpu") -> list[str]:
    """The names of operators that have gradients in double precision."""
    return [
        name
        for name, op in operators().items()
        if op.supports_autograd and torch.float64 in op.supported_dtypes(device)
    ]


def seed(number: int) -> None:
    """For the CPU, and for GPUs that were used: `torch.manual_seed` formats a stack for each kind of device that was
    not."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def samples(name: str, most: int, device: str = "cpu") -> Iterator[Sample]:
    """Evenly chosen samples of an operator, and one of what it is in place."""
    op = operators()[name]
    seed(0)
    try:
        given = list(itertools.islice(op.sample_inputs(device, torch.float64, requires_grad=True), LOOKED_AT))
    except (RuntimeError, TypeError, ValueError, ImportError, NotImplementedError):
        return  # the database has operators that do not exist on every machine
    found = [made for each in given if (made := _sample(name, op, op.op, each)) is not None]
    chosen = found if len(found) <= most else [found[k * (len(found) - 1) // max(most - 1, 1)] for k in range(most)]
    yield from chosen
    if op.inplace_variant is not None and op.supports_inplace_autograd:
        changed = (_sample(f"{name} in place", op, op.inplace_variant, each, of_copy=True) for each in given)
        yield from itertools.islice((made for made in changed if made is not None), 1)


def _sample(name: str, op: Any, function: Callable[..., Any], sample: Any, of_copy: bool = False) -> Sample | None:
    leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[place] for place in places]
    if not any(tensor.requires_grad for tensor in tensors) or any(
        tensor.layout != torch.strided or tensor.numel() > MOST_ELEMENTS or tensor.is_quantized for tensor in tensors
    ):
        return None
    if of_copy and sample.broadcasts_input:
        return None

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = list(leaves)
        for place, tensor in zip(places, given):
            own[place] = tensor
        if of_copy:
            own[0] = own[0].clone()
        args, kwargs = tree_unflatten(own, spec)
        results = sample.output_process_fn_grad(op.gradcheck_wrapper(function, *args, **kwargs))
        return tuple(
            result for result in tree_flatten(results)[0] if isinstance(result, torch.Tensor) and result.requires_grad
        )

    if of_copy and leaves[0] is not sample.input:
        return None
    return Sample(name, call, tensors, op)


def check_sample(sample: Sample) -> tuple[str, str]:
    """Compare a sample, and check its gradients. What became of it, and why if nothing was fused."""
    compiled = framejit.optimize(sample.function, backend="fuse", options={"same_random_numbers": True})
    for number in range(CALLS):
        outcomes = [_gradients(function, sample, number) for function in (sample.function, compiled)]
        (expected, error), (got, own_error) = outcomes
        if type(error) is not type(own_error) or str(error) != str(own_error):
            raise Differs(f"call {number} raises {own_error!r} where eager raises {error!r}")
        if error is not None:
            return UNCAPTURED, f"eager raises {type(error).__name__}"
        for (what, one), (_, other) in zip(got, expected, strict=True):
            compare_gradient(f"call {number}: {what}", one, other)
    graphs = framejit.inspect(compiled).graphs
    reasons = [graph.reason for graph in graphs if graph.reason]
    verdict, detail = (UNCAPTURED, "") if not graphs else (REFUSED, reasons[0]) if reasons else (FUSED, "")
    if verdict == FUSED:
        _check_differences(sample, compiled)
    return verdict, detail


def _seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: torch.Tensor) -> Any:
        seed(7)
        return function(*given)

    return call


def _given(sample: Sample, number: int) -> list[torch.Tensor]:
    """The sample's tensors, in later calls with numbers a little off where they have gradients."""
    made = []
    for tensor in sample.tensors:
        copy = tensor.detach().clone()
        if number == 1 and tensor.requires_grad:
            copy *= 1 + 1 / 64
        made.append(copy.requires_grad_(tensor.requires_grad))
    return made


def _gradients(
    function: Callable[..., Any], sample: Sample, number: int
) -> tuple[list[tuple[str, torch.Tensor | None]], Exception | None]:
    """Results and gradients. In the last call gradients come to the last result only, and lie otherwise."""
    given = _given(sample, number)
    try:
        results = _seeded(function)(*given)
        asked = results[-1:] if number == CALLS - 1 else results
        tangents = [torch.empty_like(result).fill_(0.25) + result.detach() / 8 for result in asked]
        if number == CALLS - 1:
            tangents = [torch.stack((tangent, tangent), -1)[..., 0] for tangent in tangents]
        wanted = [tensor for tensor in given if tensor.requires_grad]
        found = torch.autograd.grad(asked, wanted, tangents, allow_unused=True) if asked else ()
    except Exception as e:
        return [], e
    named = [(f"result {place}", result) for place, result in enumerate(results)]
    return named + [(f"gradient {place}", gradient) for place, gradient in enumerate(found)], None


def compare_gradient(what: str, one: torch.Tensor | None, other: torch.Tensor | None) -> None:
    """Raises Differs unless a result or gradient is eager's."""
    if one is None or other is None:
        if one is not other:
            raise Differs(f"{what} is {'missing' if one is None else 'there'}, and not so in eager")
        return
    facts = [(t.dtype, t.shape, t.requires_grad, t.layout) for t in (one, other)]
    if facts[0] != facts[1]:
        raise Differs(f"{what} is {facts[0]} for {facts[1]}")
    try:
        torch.testing.assert_close(one.detach(), other.detach(), equal_nan=True, rtol=1e-7, atol=1e-9)
    except AssertionError as e:
        raise Differs(f"{what}: {' '.join(str(e).split())}") from None


def _check_differences(sample: Sample, compiled: Callable[..., Any]) -> None:
    """Raises Differs where `gradcheck` or `gradgradcheck` fails for what was compiled, but not for eager."""
    op = sample.operator
    checks: list[Callable[..., bool]] = [torch.autograd.gradcheck]
    if op.supports_gradgrad:
        checks.append(torch.autograd.gradgradcheck)
    for check in checks:
        options: dict[str, Any] = {"fast_mode": True, "nondet_tol": op.gradcheck_nondet_tol}
        if check is torch.autograd.gradgradcheck:
            options["gen_non_contig_grad_outputs"] = True
        failed = _failure(check, compiled, sample, options)
        if failed is not None and _failure(check, sample.function, sample, options) is None:
            raise Differs(f"{check.__name__}: {failed}")


def _failure(
    check: Callable[..., bool], function: Callable[..., Any], sample: Sample, options: dict[str, Any]
) -> str | None:
    seed(11)
    try:
        check(_seeded(function), tuple(_given(sample, 0)), **options)
    except Exception as e:
        return f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
    return None


def check_operator(name: str, report: Report, most: int, device: str = "cpu") -> None:
    """Check samples of an operator."""
    for sample in samples(name, most, device):
        report.add(sample.name, str(sample), *judged(partial(check_sample, sample)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names as in op_db (default: all that have gradients)")
    parser.add_argument("--samples", type=int, default=3, help="how many of each operator")
    parser.add_argument("--shard", default="1/1", help="which part of the operators, as I/N")
    parser.add_argument("--device", default="cpu", help="where the tensors lie")
    options = parser.parse_args(arguments)
    part, parts = map(int, options.shard.split("/"))
    report = Report()
    torch.set_num_threads(1)
    for name in (options.operators or differentiable_operators(options.device))[part - 1 :: parts]:
        check_operator(name, report, options.samples, options.device)
    print(report)
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
