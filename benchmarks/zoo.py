"""Real models and programs: how many graphs framejit makes of each, where they break, and whether results are eager's.

    python benchmarks/zoo.py [--only NAME,...] [--json FILE]

Models are built from small configurations with random weights; inputs are random. Each is called twice, without
gradients where it is a model in evaluation. `data decides` marks programs in which the numbers in tensors choose what
is done next. Wanted: at least 98 % of the others in one graph, no wrong result.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import warnings

import torch
from capture import prepare_imports
from captured import Outcome, attempt, summary

WANTED = 0.98


def measure(name: str) -> Outcome:
    from zoo_models import ZOO

    made, _, _ = ZOO[name].make()
    evaluated = isinstance(made, torch.nn.Module) and not made.training
    del made
    with torch.set_grad_enabled(not evaluated):
        return attempt(ZOO[name].make, atol=ZOO[name].tolerance, rtol=ZOO[name].tolerance)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    prepare_imports()
    from zoo_models import ZOO

    outcomes: dict[str, Outcome] = {}
    for name in filter(None, options.only.split(",")) if options.only else ZOO:
        try:
            outcomes[name] = measure(name)
        except Exception as e:  # a library has changed: the rest is worth knowing
            outcomes[name] = Outcome("no eager", 0, [f"can't be built: {type(e).__name__}: {e}"])
        outcome = outcomes[name]
        note = " (data decides)" if ZOO[name].data_decides else ""
        print(f"{name:28} {outcome.verdict:10} {outcome.graphs:3} {'; '.join(outcome.reasons)}{note}", flush=True)
    judged = {name: outcome for name, outcome in outcomes.items() if not ZOO[name].data_decides}
    one = sum(outcome.verdict == "one graph" for outcome in judged.values())
    print(f"all: {summary(outcomes)}")
    print(
        f"where no data decides: {one} of {len(judged)} in one graph ({one / max(len(judged), 1):.1%}; wanted "
        f"{WANTED:.0%})"
    )
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({name: vars(outcome) for name, outcome in outcomes.items()}, indent=1)
        )
    return 0 if one >= WANTED * len(judged) and not any(o.verdict == "wrong" for o in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
