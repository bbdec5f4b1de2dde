"""A node of a graph that runs graphs in turn for as long as data say so: what a captured `while` on data becomes.

What runs it is written as Python of its own: a loop over small graphs takes as long as what stands between their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import fx

from framejit.backends.opaque_call import OpaqueCall
from framejit.late_dataclass import dataclass

Run = Callable[..., Any]


@dataclass(frozen=True)
class Decision:
    """A place of a loop where it is left or goes on, with the tensors that it carries by then."""

    stays: bool | None
    """The truth of the condition for which the loop goes on; None where turns are counted."""
    carried: int
    """How many tensors it carries."""
    leaves: tuple[int, ...]
    """Which of these are the loop's results if it ends here."""
    module: fx.GraphModule | None
    """What is computed until the next decision; None for nothing."""
    results: int
    """How many tensors that gives."""
    outside: tuple[int, ...]
    """The positions of the tensors from around the loop that are used until then."""
    takes: tuple[int, ...]
    """The positions of the module's inputs among the carried tensors and those from outside."""
    gives: tuple[int, ...]
    """The positions of what is carried on among the carried tensors, those from outside, and the results; before them
    that of the next decision's condition, if it has one."""
    next: int
    """The next decision: the one behind, or for the last one an earlier one."""


class DataLoop(OpaqueCall):
    """The target of a graph's node: `loop(condition, *carried, *outside)` gives the tensors that the loop leaves. One
    that no turn has changed is the very tensor that was given."""

    def __init__(self, decisions: Sequence[Decision], n_outside: int, turns: int, operation: str | None) -> None:
        self.decisions, self.n_outside, self.turns = tuple(decisions), n_outside, turns
        plain = self.over(lambda module, use: module.forward)
        super().__init__(plain, "loop", "data decides how often a part of it runs", operation)

    def over(self, run: Callable[[fx.GraphModule, Callable[[Run], None]], Run]) -> Run:
        """The loop, as a function, over what `run` makes of each of its graphs; that is also given a function that puts
        something else in the place of what it made."""
        namespace: dict[str, Any] = {}
        for number, decision in enumerate(self.decisions):
            name = f"graph_{number}"
            if decision.module is not None:
                namespace[name] = run(decision.module, partial(namespace.__setitem__, name))
        exec(compile("\n".join(self._lines()), "<a loop on data>", "exec"), namespace)
        made: Run = namespace["loop"]
        return made

    def _lines(self) -> Iterator[str]:
        first = self.decisions[-1].next
        given = ["condition", *_names("x", range(self.decisions[0].carried)), *_names("given", range(self.n_outside))]
        yield f"def loop({', '.join(given)}):"
        yield f"    left = {self.turns}"
        for number, decision in enumerate(self.decisions):
            if number == first:
                yield "    while True:"
            indent = "        " if number >= first else "    "
            for line in self._decision_lines(number, decision):
                yield indent + line

    def _decision_lines(self, number: int, decision: Decision) -> Iterator[str]:
        leave = f"return {_tuple(_names('x', decision.leaves))}"
        if decision.stays is None:
            yield f"if not left: {leave}"
            yield "left -= 1"
        else:
            yield f"if {'not ' if decision.stays else ''}condition: {leave}"
        known = [*_names("x", range(decision.carried)), *_names("given", decision.outside)]
        results = _names("result", range(decision.results))
        following = self.decisions[decision.next]
        carried = [*(["condition"] if following.stays is not None else []), *_names("x", range(following.carried))]
        taken = [(known + results)[i] for i in decision.gives]
        if decision.module is not None:
            call = f"graph_{number}({', '.join(known[i] for i in decision.takes)})"
            kept = [name for name, value in zip(carried, taken) if name == value]
            changed = [name for name in carried if name not in kept]
            if [value for value in taken if value not in kept] == results:
                yield f"{_tuple(changed)} = {call}"
                return
            yield f"{_tuple(results)} = {call}"
        pairs = [(name, value) for name, value in zip(carried, taken) if name != value]
        if pairs:
            yield f"{_tuple(name for name, _ in pairs)} = {_tuple(value for _, value in pairs)}"
        if decision.module is not None:
            yield f"del {', '.join(results)}"


def _names(stem: str, numbers: Sequence[int]) -> list[str]:
    return [f"{stem}_{number}" for number in numbers]


def _tuple(names: Sequence[str] | Iterator[str]) -> str:
    return "(" + "".join(f"{name}, " for name in names) + ")"
