"""What follows from a count of steps, or another single number that an optimiser of torch keeps in a tensor.

RAdam corrects its rate once it has made enough steps, ASGD averages from some step on: they read a number, compute with
it, and ask about the result. The graph would break at each such question, for each parameter. But all that they
computed with is in a tensor that the call was given, so that the answer is known before the graph runs: it is found by
the same arithmetic on what is there now, and a guard asks again. Answers change once or twice in a training, so that
entries are few; of the numbers of other programs that is not known.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from framejit import _native as native
from framejit.backends.number_calls import OF_NUMBERS, answer_of_kept
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame, Graph

_OPERATORS: Final[dict[Any, str]] = {
    operator.add: "({} + {})", operator.sub: "({} - {})", operator.mul: "({} * {})", operator.truediv: "({} / {})",
    operator.pow: "({} ** {})", operator.neg: "(-{})", abs: "abs({})", operator.lt: "({} < {})",
    operator.le: "({} <= {})", operator.gt: "({} > {})", operator.ge: "({} >= {})", operator.eq: "({} == {})",
    operator.ne: "({} != {})", torch.ne: "({} != {})", torch.logical_not: "(not {})", torch.clone: "{}",
}
_FILLED: Final = {torch.ones: "1.0", torch.zeros: "0.0"}
_LONGEST: Final = 2000
"""Characters of the arithmetic behind a question, in which what is used twice stands twice."""


def answer_of_count(frame: Frame, truth: TensorValue) -> bool | None:
    """The answer to a question that code of torch's optimisers asks, where it follows from one number kept in a tensor,
    on the CPU; None where it does not."""
    if not frame.globals.get("__name__", "").startswith("torch.optim."):
        return None
    reading = _Reading(frame.capture.graph)
    text = reading.text_of(truth.node)
    if text is None or len(text) > _LONGEST:
        return None
    kept = reading.kept
    if kept is None:  # of numbers that are known
        return answer_of_kept(f"bool({text})", True)(torch.zeros(()))
    assert kept.source is not None
    example = example_of(frame.capture.graph, kept)
    for answer in (True, False):
        check = answer_of_kept(f"bool({text})", answer)
        if example is not None and check(example):
            frame.capture.add_guard(kept.source, native.C_PY, check)
            return answer
    return None


def example_of(graph: Graph, tensor: TensorValue) -> torch.Tensor | None:
    """The tensor that stands now where captured code was given this one."""
    return next((real for value, real in zip(graph.inputs, graph.examples) if value is tensor), None)


def added_to(graph: Graph, fake: torch.Tensor, node: fx.Node, until: fx.Node | None = None) -> int | None:
    """What captured code has added, up to a node, to the count that a node stands for; None where it did something else
    to it."""
    storage, added = fake.untyped_storage()._cdata, 0
    for each in graph.graph.nodes:
        if each is until:
            break
        if any(written.untyped_storage()._cdata == storage for written in each.meta.get("written", ())):
            if not _adds_one(each, node):
                return None
            added += 1
    return added


def _adds_one(node: fx.Node, step: fx.Node) -> bool:
    """Whether a node adds 1 to a count: `step += 1`, or an operation on a list of counts, by 1 or a tensor of that."""
    if node.target is not operator.iadd and node.target is not torch._foreach_add_:
        return False
    counts, added = node.args
    if isinstance(added, fx.Node):
        added = getattr(added.meta.get("val"), "constant", None)
        if added is None or added.numel() != 1:
            return False
    found = [count is step for count in counts] if isinstance(counts, (list, tuple)) else [counts is step]
    return sum(found) == 1 and bool(added == 1) and bool(node.kwargs.get("alpha", 1) == 1)


class _Reading:
    """Writes nodes on numbers as an expression of Python's, of `kept()`: what the one tensor holds that they come
    from."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.kept: TensorValue | None = None

    def text_of(self, part: Any) -> str | None:
        """None for what can't be written so, or comes from another tensor besides."""
        if isinstance(part, (int, float)):
            return f"({part!r})"
        if not isinstance(part, fx.Node):
            return None
        if part.target == "to":
            return self._cast(part)
        if part.target is torch.full_like:
            return self.text_of(part.args[1])
        if part.target is torch.where:
            return self._of("({1} if {0} else {2})", part.args)
        if part.target is OF_NUMBERS:
            text, numbers = part.args[0], part.args[1]
            assert isinstance(numbers, (list, tuple))
            names = ", ".join(f"x{place}" for place in range(len(numbers)))
            return self._of(f"(lambda {names}: {text})({', '.join(['{}'] * len(numbers))})", numbers)
        form = _OPERATORS.get(part.target)
        return None if form is None or part.kwargs else self._of(form, part.args)

    def _of(self, form: str, parts: Any) -> str | None:
        texts = [self.text_of(part) for part in parts]
        if None in texts or form.count("{") != len(texts) or sum(map(len, filter(None, texts))) > _LONGEST:
            return None
        return form.format(*texts)

    def _cast(self, node: fx.Node) -> str | None:
        source, dtype = node.args
        if not isinstance(source, fx.Node) or dtype not in (torch.float64, torch.int64):
            return None
        if not node.kwargs.get("copy"):
            given = source.meta["val"].dtype
            text = self.text_of(source)
            return text if text is None or given is dtype or dtype is torch.int64 else f"float({text})"
        fake = source.meta["val"]
        if source.op == "call_function" and source.target in _FILLED and fake.dim() == 0:
            added = added_to(self._graph, fake, source, node)
            return None if added is None else f"({_FILLED[source.target]} + {added})"
        tensor = next((value for value in self._graph.inputs if value.node is source), None)
        if tensor is None or tensor.source is None or self.kept not in (None, tensor):
            return None
        if fake.device.type != "cpu" or fake.numel() != 1 or fake.dtype not in (torch.float32, torch.float64):
            return None
        self.kept = tensor
        added = added_to(self._graph, fake, source, node)
        if added is None:
            return None
        return f"counted(kept, {added})" if added else "kept"
