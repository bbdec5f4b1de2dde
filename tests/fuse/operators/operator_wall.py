"""The wall: operators compiled and compared with eager in values, dtypes, strides, aliases, writes into arguments, and
exceptions.

    python tests/fuse/operators/operator_wall.py [--json FILE] [--shard I/N] [OPERATOR ...]

prints how many cases are fused (kernels and views only), need ATen for something (extern), or run as ATen as a whole
(refused).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

import framejit
from framejit.backends.fuse.account.compiled_graph import recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.config import config
from tests.fuse.operators.operator_cases import Case, cases, operators

FUSED, EXTERN, REFUSED, WRONG = "fused", "extern", "refused", "wrong"
RAISES: Final = "raises an exception, as eager does"
HELPERS: Final = frozenset(("_increment_version", "count_exactly", "detach"))
"""Calls in a plan that compute nothing."""
SEED: Final = 7
"""Of the random numbers of a case."""
ULPS: Final = 4
"""Where results differ by more than the tolerance, a compiled one may be off the exact one by this many times eager's
error."""
OF_POWERS: Final = frozenset(("svd_lowrank", "pca_lowrank"))
"""Operators that multiply with one matrix and its transpose again and again: what another order of a sum changes in
the first product grows with the ratio of the largest singular value to the others."""
POWERS: Final = 4
"""By how much more their results may be off: the ratio is 10 in the samples."""


@dataclass
class Report:
    """What became of the cases."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Per dtype; cases that are meant to raise an exception are counted for themselves."""
    operators: dict[str, str] = field(default_factory=dict)
    """Per operator the worst that became of its cases that raise no exception."""
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, case: Case, verdict: str, detail: str) -> None:
        """Note a case."""
        kind = "errors" if detail == RAISES else str(case.dtype).removeprefix("torch.")
        self.counts.setdefault(kind, Counter())[verdict] += 1
        order = (FUSED, EXTERN, REFUSED, WRONG)
        if detail != RAISES:
            self.operators[case.operator] = max(self.operators.get(case.operator, FUSED), verdict, key=order.index)
        if verdict == REFUSED and detail != RAISES:
            self.reasons[f"{case.operator}: {detail}"] += 1
        if verdict == WRONG:
            self.failures.append(f"{case}: {detail}")

    def merge(self, other: Report) -> None:
        """Add another report's cases."""
        for kind, counts in other.counts.items():
            self.counts.setdefault(kind, Counter()).update(counts)
        self.operators.update(other.operators)
        self.reasons.update(other.reasons)
        self.failures += other.failures

    def __str__(self) -> str:
        lines = [f"{'':12}{FUSED:>8}{EXTERN:>8}{REFUSED:>8}{WRONG:>8}"]
        for kind, counts in (*self.counts.items(), ("operators", Counter(self.operators.values()))):
            lines.append(f"{kind:12}" + "".join(f"{counts[verdict]:8}" for verdict in (FUSED, EXTERN, REFUSED, WRONG)))
        return "\n".join(lines + self.failures)

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        return {
            "torch": torch.__version__,
            "cases": {kind: dict(counts) for kind, counts in self.counts.items()},
            "operators": dict(sorted(self.operators.items())),
            "reasons": dict(self.reasons.most_common()),
            "failures": self.failures,
        }


class Differs(AssertionError):
    """What was compiled does not do as eager does."""


def judged(check: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """What a check says became of a case, and why. That it fails, or raises anything else, is what became of the
    case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return check()
        except Differs as e:
            return WRONG, str(e)
        except Exception:
            return WRONG, f"crashed: {traceback.format_exc(limit=-4)}"


def check_operator(name: str, report: Report) -> None:
    """Compare all cases of an operator."""
    # it tells of every error that a sample is meant to make
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    for case in cases(name):
        report.add(case, *judged(partial(check_case, case)))


def check_case(case: Case) -> tuple[str, str]:
    """Compile a case, run what was compiled (never the original instead), and compare. What became of it, and why if it
    was refused."""
    mine, theirs = copies(case.tensors), copies(case.tensors)
    expected, error = attempt(case.function, theirs)
    gm = graph_of(case.function, case.tensors, 1 if expected is None else len(expected))
    compiled = fuse_graph(gm, mine)
    account = recall(compiled)
    assert account is not None
    run = getattr(compiled, "compiled", compiled)
    result, own_error = attempt(run, mine)
    if type(error) is not type(own_error) or _message(error) != _message(own_error):
        raise Differs(f"raises {own_error!r} where eager raises {error!r}")
    if error is None:
        compare(case, list(result), expected, mine, theirs)
    verdict = REFUSED if account.reason else FUSED if HELPERS.issuperset(account.externs) else EXTERN
    return verdict, RAISES if error is not None else account.reason


def _message(error: Exception | None) -> str:
    """What an exception says, without where in torch it was raised."""
    return str(error).split("\nException raised from")[0]


def graph_of(
    function: Callable[..., list[Any]], tensors: Sequence[torch.Tensor], n_results: int
) -> torch.fx.GraphModule:
    """A graph that calls the function on its inputs, with fakes of the tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_fallback_kernels=False)
    return graph_of_fakes(function, [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors], n_results)


def graph_of_fakes(
    function: Callable[..., list[Any]], fakes: Sequence[torch.Tensor], n_results: int
) -> torch.fx.GraphModule:
    """A graph that calls the function on inputs that these are the fakes of."""
    graph = torch.fx.Graph()
    inputs = []
    for position, fake in enumerate(fakes):
        node = graph.placeholder(f"x{position}")
        node.meta["val"] = fake
        inputs.append(node)
    called = graph.call_function(function, tuple(inputs))
    graph.output(tuple(graph.call_function(_item, (called, position)) for position in range(n_results)))
    return _LazyGraphModule(torch.nn.Module(), graph)  # its Python is made where it runs, and few run


def _item(results: list[Any], position: int) -> Any:
    return results[position]


def copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the same values and layout; those that are the same object, or share memory, do so again."""
    memory: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in memory:
            memory[storage._cdata] = storage.clone()
        if id(tensor) not in made:
            copy = torch.empty(0, dtype=tensor.dtype).set_(
                memory[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
            )
            if tensor.is_conj():
                copy = copy.conj()
            made[id(tensor)] = torch._neg_view(copy) if tensor.is_neg() else copy
    return [made[id(tensor)] for tensor in tensors]


def attempt(function: Callable[..., Any], args: Sequence[torch.Tensor]) -> tuple[Any, Exception | None]:
    """What a function returns, or raises, with the random numbers of a fixed seed."""
    torch.default_generator.manual_seed(SEED)
    try:
        with torch.no_grad():
            return function(*args), None
    except Exception as e:
        return None, e


def compare(
    case: Case, got: list[Any], expected: list[Any], mine: list[torch.Tensor], theirs: list[torch.Tensor]
) -> None:
    """Results and what is left in the arguments. Raises Differs."""
    if len(got) != len(expected):
        raise Differs(f"{len(got)} results for {len(expected)}")
    for what, ours, others in (("result", got, expected), ("argument", mine, theirs)):
        for position, (one, other) in enumerate(zip(ours, others)):
            _compare_one(
                case, f"{what} {position}", one, other, position + (len(expected) if what == "argument" else 0)
            )
    for one, other in zip(mine, theirs):
        if bool(one._version) != bool(other._version):
            raise Differs(f"an argument's version is {one._version} for {other._version}")
    _compare_aliases([*got, *mine], [*expected, *theirs])


def _compare_one(case: Case, what: str, one: Any, other: Any, position: int) -> None:
    if type(one) is not type(other):
        raise Differs(f"{what} is a {type(one).__name__} for a {type(other).__name__}")
    if not isinstance(other, torch.Tensor):
        if one != other and one == one:
            raise Differs(f"{what} is {one!r} for {other!r}")
        return
    if (one.dtype, one.shape, one.layout, one.is_conj(), one.is_neg(), one.requires_grad) != (
        other.dtype, other.shape, other.layout, other.is_conj(), other.is_neg(), other.requires_grad,
    ):
        raise Differs(
            f"{what} is {one.dtype}{list(one.shape)} for {other.dtype}{list(other.shape)}, or of another kind"
        )
    if other.layout == torch.strided and other.numel() and _steps(one) != _steps(other):
        raise Differs(f"{what} has strides {one.stride()} for {other.stride()}, sizes {list(one.shape)}")
    if case.defined:
        try:
            torch.testing.assert_close(one, other, equal_nan=True)
        except AssertionError as e:
            if not _as_exact(case, position, one, other):
                raise Differs(f"{what}: {' '.join(str(e).split())}; {_shown(one)} for {_shown(other)}") from None


def _steps(tensor: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size != 1]


def _shown(tensor: torch.Tensor) -> str:
    return str(tensor.flatten()[:6].tolist())


def _as_exact(case: Case, position: int, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one is about as near as the other to what double precision gives."""
    wide = {
        torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
        torch.complex64: torch.complex128,
    }
    arguments = [tensor.to(wide.get(tensor.dtype, tensor.dtype)) for tensor in copies(case.tensors)]
    exact, error = attempt(case.function, arguments)
    if error is not None or other.dtype not in wide:
        return False
    reference = [*exact, *arguments][position]
    if reference.shape != other.shape or not (torch.isfinite(one) == torch.isfinite(other)).all():
        return False
    finite = torch.isfinite(other) & torch.isfinite(reference)
    mine, theirs = ((tensor[finite].to(reference.dtype) - reference[finite]).abs() for tensor in (one, other))
    ulps = POWERS * ULPS if case.operator in OF_POWERS else ULPS
    allowed = ulps * theirs.max() + torch.finfo(other.dtype).eps * reference[finite].abs()
    return bool((mine <= allowed).all()) and bool(torch.equal(one[~finite].isnan(), other[~finite].isnan()))


def _compare_aliases(mine: list[Any], theirs: list[Any]) -> None:
    for i, (a, b) in enumerate(zip(mine, theirs)):
        for j in range(i):
            c, d = mine[j], theirs[j]
            if not isinstance(b, torch.Tensor) or not isinstance(d, torch.Tensor):
                continue
            if (a is c) != (b is d):
                raise Differs("results and arguments are other objects than with eager, or the same ones")
            if b.layout == d.layout == torch.strided and b.numel() and d.numel():
                if (_memory(a) == _memory(c)) != (_memory(b) == _memory(d)):
                    raise Differs("results and arguments share memory otherwise than with eager")
                if _memory(b) == _memory(d) and a.data_ptr() - c.data_ptr() != b.data_ptr() - d.data_ptr():
                    raise Differs("a view begins at another place")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def check_optimized(case: Case) -> None:
    """Check a case the way that users come: by `framejit.optimize`."""
    mine, theirs = copies(case.tensors), copies(case.tensors)
    expected, error = attempt(case.function, theirs)
    result, own_error = attempt(framejit.optimize(case.function), mine)
    if type(error) is not type(own_error):
        raise Differs(f"raises {own_error!r} where eager raises {error!r}")
    if error is None:
        compare(case, result, expected, mine, theirs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names as in op_db (default: all)")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--shard", default="1/1", help="which part of the operators, as I/N")
    options = parser.parse_args(arguments)
    part, parts = map(int, options.shard.split("/"))
    report = Report()
    torch.set_num_threads(1)
    with config.patch(debug=True):
        for name in (options.operators or list(operators()))[part - 1 :: parts]:
            check_operator(name, report)
    print(report)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
