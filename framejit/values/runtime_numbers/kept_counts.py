"""What follows from a count of steps, or another single number that an optimiser of torch keeps in a tensor.

RAdam corrects its rate once it has made enough steps, ASGD averages from some step on, an AveragedModel copies at its
first update: they read a number, compute with it, and ask about the result. The graph would break at each such
question, for each parameter. But all that they computed with is in a tensor that the call was given, so that the answer
is known before the graph runs: it is found by the same arithmetic on what is there now, and a guard asks again. Answers
change once or twice in a training, so that entries are few; of the numbers of other programs that is not known.
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
_EXACT: Final = (torch.bool, torch.int64, torch.float64)
_FILLED: Final[dict[Any, str]] = {torch.ones: "1.0", torch.zeros: "0.0"}
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
    kept, example = reading.kept, None
    if kept is not None:
        example = frame.capture.graph.example_of(kept)
        if example is None:
            return None
    for answer in (True, False):
        check = answer_of_kept(f"bool({text})", answer)
        if check(torch.zeros(()) if example is None else example):
            if kept is not None:
                assert kept.source is not None
                frame.capture.add_guard(kept.source, native.C_PY, check)
            return answer
    return None


def added_to(graph: Graph, fake: torch.Tensor, node: fx.Node, until: fx.Node | None = None) -> int | None:
    """What captured code has added, up to a node, to the count that a node stands for; None where it did something else
    to it."""
    writers = [each for each in graph.writes.into(fake) if until is None or each < until]
    return len(writers) if all(_adds_one(each, node) for each in writers) else None


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
    """Writes nodes on numbers as an expression of Python, of `kept`: what the one tensor holds that they come from."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.kept: TensorValue | None = None

    def text_of(self, part: Any, reader: fx.Node | None = None) -> str | None:
        """None for what can't be written so, or comes from another tensor besides. `reader`: the node that looks at
        it."""
        if isinstance(part, (int, float)):
            return f"({part!r})"
        if not isinstance(part, fx.Node):
            return None
        fake = part.meta.get("val")
        if not isinstance(fake, torch.Tensor) or fake.device.type != "cpu" or fake.numel() != 1:
            return None
        if part.op == "placeholder" or part.target in _FILLED:
            return self._held(part, fake, reader)
        if part.target == "to":
            return self._cast(part, fake.dtype)
        if fake.dtype not in _EXACT:
            return None
        if part.target is torch.full_like:
            return self.text_of(part.args[1], part)
        if part.target is torch.where:
            return self._of("({1} if {0} else {2})", part.args, part)
        if part.target is OF_NUMBERS:
            text, numbers = part.args[0], part.args[1]
            assert isinstance(numbers, (list, tuple))
            names = ", ".join(f"x{place}" for place in range(len(numbers)))
            return self._of(f"(lambda {names}: {text})({', '.join(['{}'] * len(numbers))})", numbers, part)
        form = _OPERATORS.get(part.target)
        return None if form is None or part.kwargs else self._of(form, part.args, part)

    def _of(self, form: str, parts: Any, reader: fx.Node) -> str | None:
        if not all(_is_exact(part) for part in parts):
            return None
        texts = [self.text_of(part, reader) for part in parts]
        if None in texts or form.count("{") != len(texts) or sum(map(len, filter(None, texts))) > _LONGEST:
            return None
        return form.format(*texts)

    def _cast(self, node: fx.Node, dtype: torch.dtype) -> str | None:
        """A number in a dtype that holds it as it is."""
        source = node.args[0]
        assert isinstance(source, fx.Node)
        given = source.meta["val"].dtype
        text = self.text_of(source, node)
        if text is None or given is dtype:
            return text
        if dtype is torch.float64 and (given in _EXACT or given is torch.float32):
            return f"float({text})"
        return text if dtype is torch.int64 and given is torch.bool else None

    def _held(self, node: fx.Node, fake: torch.Tensor, reader: fx.Node | None) -> str | None:
        """What a tensor holds that was given, or filled with a number, when a node looks at it."""
        added = added_to(self._graph, fake, node, reader)
        if added is None:
            return None
        if node.op != "placeholder":
            return f"({_FILLED[node.target]} + {added})"
        tensor = next((value for value in self._graph.inputs if value.node is node), None)
        if tensor is None or tensor.source is None or self.kept not in (None, tensor):
            return None
        if fake.dtype not in (torch.int64, torch.float32, torch.float64):
            return None
        self.kept = tensor
        return f"counted(kept, {added})" if added else "kept"


def _is_exact(part: Any) -> bool:
    """Whether Python computes with a number as torch does with what stands for it in a tensor."""
    return not isinstance(part, fx.Node) or getattr(part.meta.get("val"), "dtype", None) in _EXACT
