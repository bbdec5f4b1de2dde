"""How the benchmarks of capture try a program: eager beside framejit with the eager backend, and what came of it."""

from __future__ import annotations

import contextlib
import copy
import pathlib
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import framejit
from framejit import events

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from comparison import assert_same  # noqa: E402

VERDICTS = ("one graph", "several", "none", "wrong", "no eager")
"""`several`: more than one graph, or a part outside of graphs. `none`: nothing was captured. `no eager`: plain Python
raises as well."""


@dataclass
class Outcome:
    """What became of a program, and why."""

    verdict: str
    graphs: int = 0
    reasons: list[str] = field(default_factory=list)

    def worse(self, other: Outcome) -> Outcome:
        order = ("one graph", "no eager", "several", "none", "wrong")
        return max(self, other, key=lambda outcome: order.index(outcome.verdict))


@contextlib.contextmanager
def recorded() -> Iterator[list[Any]]:
    log: list[Any] = []
    unsubscribe = events.subscribe(lambda event: log.append(event.without_transient()))
    try:
        yield log
    finally:
        unsubscribe()


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, BaseException | None]:
    torch.manual_seed(0)
    random.seed(0)
    try:
        return fn(*args, **kwargs), None
    except Exception as e:
        return None, e


def attempt(
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]], calls: int = 2, atol: float = 0.0,
    rtol: float = 0.0,
) -> Outcome:
    """Call what `make` returns (a program, arguments) in plain Python and optimized, from the same random numbers, and
    compare results and arguments.

    The program is made once for each side, so that no side sees what the other changed. Each call gets copies of the
    arguments.
    """
    torch.manual_seed(1)
    eager, *eager_given = make()
    torch.manual_seed(1)
    program, *given = make()
    fast = framejit.optimize(program, backend="eager")
    outcome = Outcome("one graph")
    with recorded() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(calls):
            (expected_args, expected_kwargs), (args, kwargs) = copied(eager_given), copied(given)
            expected, raised = _run(eager, expected_args, expected_kwargs)
            got, error = _run(fast, args, kwargs)
            if raised is not None and type(raised) is type(error):
                outcome = Outcome("no eager", 0, [f"eager raises {type(raised).__name__}: {_first_line(raised)}"])
                break
            try:
                if error is not None or raised is not None:
                    raise AssertionError(f"{_told(raised)} expected, got {_told(error)}") from error
                assert_same((expected, expected_args, expected_kwargs), (got, args, kwargs), atol=atol, rtol=rtol)
            except AssertionError as e:
                outcome = Outcome("wrong", 0, [f"call differs: {_first_line(e)}"])
                break
    return _judged(outcome, log)


def copied(value: Any) -> Any:
    """A copy to write into; sparse tensors have no storage to copy, and are cloned."""
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(part) for key, part in value.items()}
    return copy.deepcopy(value)


def _told(error: BaseException | None) -> str:
    return "a result" if error is None else f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _judged(outcome: Outcome, log: list[Any]) -> Outcome:
    outcome.graphs = sum(event.kind == "graph" for event in log)
    breaks = [event.fields["reason"] for event in log if event.kind == "graph_break"]
    # a lazy module's first call
    done = [event.fields for event in log if event.kind == "frame_done" and event.fields["code"] != "FJ212"]
    left = [fields["reason"] for fields in done if fields["state"] in ("skipped", "eager")]
    warned = [f"warning: {event.fields['message']}" for event in log if event.kind == "warning"]
    # the program's own state has changed, as that of a cache that was filled
    anew = sum(event.kind == "recompile" for event in log)
    if outcome.verdict == "one graph" and (outcome.graphs != 1 + anew or breaks or left):
        outcome.verdict = "several" if outcome.graphs else "none"
    outcome.reasons += [reason for reason in dict.fromkeys((*breaks, *left, *warned)) if reason]
    return outcome


def summary(outcomes: dict[str, Outcome]) -> str:
    counts = Counter(outcome.verdict for outcome in outcomes.values())
    return f"{counts['one graph']} of {len(outcomes)} in one graph; " + ", ".join(
        f"{counts[v]} {v}" for v in VERDICTS[1:]
    )


def by_reason(outcomes: dict[str, Outcome]) -> str:
    """Reasons, the most frequent first, with the programs they concern."""
    concerned: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        if outcome.verdict != "one graph":
            concerned.setdefault(outcome.reasons[0] if outcome.reasons else "nothing to capture", []).append(name)
    lines = [
        f"{len(names):4} {reason}: {', '.join(names)}"
        for reason, names in sorted(concerned.items(), key=lambda item: -len(item[1]))
    ]
    return "\n".join(lines)
