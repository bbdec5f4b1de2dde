"""How many of torch's operators and modules framejit captures as one graph, with torch's own samples of their
arguments, and whether results are eager's.

    python benchmarks/operators.py [--what operators,methods,inplace,modules] [--only NAME,...] [--samples 2]
        [--json FILE]

The samples are those of `torch.testing` (`op_db`, `module_db`; it needs `pip install expecttest`): the first ones of
each operator, float32 where the operator takes it. Each sample is called by a function made for it, twice. Wanted of
operators: at least 650 in one graph, no wrong one; of modules: all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from captured import Outcome, attempt, by_reason, summary

WANTED = {"operators": 650, "modules": 228}
UNINITIALIZED = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"))
"""Operators whose results hold whatever was in memory: they are filled before they are compared."""
Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def operator_samples(kind: str, n: int) -> Iterator[tuple[str, list[Callable[[], Program]]]]:
    """Name of an operator, and makers of its programs. `kind` says in which of its forms it is called."""
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        form = {"operators": operator, "methods": operator.method_variant, "inplace": operator.inplace_variant}[kind]
        types = operator.supported_dtypes("cpu")
        if form is None or not types or operator.name.startswith("jiterator"):  # jiterator: GPUs only
            continue
        dtype = torch.float32 if torch.float32 in types else sorted(types, key=str)[0]
        samples = itertools.islice(_drawn(operator, dtype), n)
        yield (
            operator.formatted_name,
            [_operator_program(form, sample, operator.name in UNINITIALIZED) for sample in samples],
        )


def _drawn(operator: Any, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    return operator.sample_inputs("cpu", dtype, requires_grad=False)


def _operator_program(form: Callable[..., Any], sample: Any, uninitialized: bool) -> Callable[[], Program]:
    def program(*args: Any, **kwargs: Any) -> Any:
        return form(*args, **kwargs)

    def filled(*args: Any, **kwargs: Any) -> Any:
        return form(*args, **kwargs).fill_(1)

    if uninitialized:
        program = filled
    return lambda: (program, (sample.input, *sample.args), sample.kwargs)


def module_samples(n: int) -> Iterator[tuple[str, list[Callable[[], Program]]]]:
    """Every module class of `module_db`, in training and in evaluation."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (True, False):
            dtype = torch.float32 if torch.float32 in info.dtypes else info.dtypes[0]

            def samples(info: Any = info, training: bool = training, dtype: torch.dtype = dtype) -> list[Any]:
                torch.manual_seed(0)
                drawn = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
                return [sample for sample in drawn if sample.forward_input is not None][:n]

            def program(
                i: int, info: Any = info, training: bool = training, dtype: torch.dtype = dtype, samples: Any = samples
            ) -> Program:
                sample = samples()[i]
                given, call = sample.constructor_input, sample.forward_input
                module = info.module_cls(*given.args, **given.kwargs)
                return module.to(dtype).train(training), tuple(call.args), dict(call.kwargs)

            programs = [lambda i=i, program=program: program(i) for i in range(len(samples()))]
            yield f"{info.name}{'' if training else ' (eval)'}", programs  # type: ignore[misc]


def measure(kind: str, n: int, only: set[str]) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    every = module_samples(n) if kind == "modules" else operator_samples(kind, n)
    for name, programs in every:
        if only and name not in only:
            continue
        worst = Outcome("one graph")
        for make in programs:
            worst = worst.worse(attempt(make))
        outcomes[name] = worst
        if only:
            print(name, worst, flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--what",
        default="operators,modules",
        help="comma-separated, of operators, methods, inplace, modules (default: operators,modules)",
    )
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    written, met = {}, True
    for kind in options.what.split(","):
        outcomes = measure(kind, options.samples, set(filter(None, options.only.split(","))))
        met &= not any(o.verdict == "wrong" for o in outcomes.values())
        if not options.only and kind in WANTED:
            met &= sum(o.verdict == "one graph" for o in outcomes.values()) >= WANTED[kind]
        print(f"{kind}: {summary(outcomes)}\n{by_reason(outcomes)}", flush=True)
        written[kind] = {name: vars(outcome) for name, outcome in outcomes.items()}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(written, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
