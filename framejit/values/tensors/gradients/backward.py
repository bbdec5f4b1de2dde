"""Gradients that captured code asks for, by `torch.autograd.grad` or `backward()`: a node of the graph.

The fakes have the history that autograd gives the tensors when the graph runs, so that they say which gradients there
are, and how these lie in memory. What autograd adds up in leaves is written down as operations on their `grad`, for
captured code goes on to read it: AccumulateGrad of torch (`torch/csrc/autograd/functions/accumulate_grad.h`) takes a
new gradient as it is where it lies as the leaf does and nobody else holds it, else a copy, and adds to an old one in
place.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import get_gradient_edge

from framejit.environment.hook_handles import remove_hook
from framejit.guards.sources import AttrSource
from framejit.signals import NeedsCuts, NeedsHistories, NeedsStandIns, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import handles
from framejit.values.tensors.gradients.hook_calls import passed, told
from framejit.values.tensors.tensor import METHODS, TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.tensors.gradients.cuts import HistoryCut

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HAS_DTYPES = hasattr(torch.Tensor, "grad_dtype")
"""Whether a leaf may say of which dtype its gradients are to be."""
_GRAD = inspect.signature(torch.autograd.grad)
_BACKWARD = inspect.signature(torch.autograd.backward)
_METHOD = inspect.signature(torch.Tensor.backward)
_BEHIND = "_post_accumulate_grad_hooks"
"""Where a leaf has the hooks that are told of it when its gradient has been added up."""
_NO_GRADIENT = "of what no gradient comes to"
_OF_BOTH_KINDS = "gradients that pass hooks of leaves beside those of what was computed"
REENTRANT = "torch.utils.checkpoint with use_reentrant=True, but for one backward() to all leaves"


@handles(torch.autograd.grad)
def _grad(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound(_GRAD, args, kwargs)
    outputs, inputs = (_tensors(frame, given[name]) for name in ("outputs", "inputs"))
    if not outputs or not inputs or _flag(given, "is_grads_batched"):
        raise Unsupported("torch.autograd.grad() of no tensors, or with batches of gradients", "FJ107")
    _check_reentrant(frame)
    flags: dict[str, Any] = {
        name: _flag(given, name)
        for name in ("retain_graph", "create_graph", "allow_unused", "materialize_grads")
        if name in given
    }
    incoming = _incoming(frame, given.get("grad_outputs"))
    stages = _stages(frame, outputs, incoming)
    for leaf in _leaves_of(stages):
        _check_leaf(frame, leaf)
    named = [leaf for leaf in _leaves_of(stages) if any(leaf is tensor for tensor in inputs)]
    passing = _hooks_of(frame, named, "_backward_hooks")
    if len(stages) == 1 and not passing or not all(tensor.fake.requires_grad for tensor in inputs):
        return TupleValue(_gradients(frame, outputs, inputs, incoming, flags))
    if flags.get("create_graph") or flags.get("materialize_grads"):
        for stage in stages[1:]:
            stage.refuse(frame, "of what torch.autograd.grad() goes through")
        raise Unsupported("gradients that pass hooks of the program", "FJ107")
    _check_stand_ins(frame, passing)
    if passing and len(stages) > 1:
        raise Unsupported(_OF_BOTH_KINDS, "FJ107")
    backward = _Backward(frame, stages, inputs, bool(flags.get("retain_graph")), in_order=bool(passing))
    found: list[Value] = []
    for number, _ in enumerate(stages):
        for tensor in backward.run(number):
            for hook in passing.get(tensor, ()):
                backward.found[tensor] = passed(frame, hook, backward.found[tensor])
    for tensor in inputs:
        gradient = backward.found.get(tensor)
        if gradient is None and not flags.get("allow_unused"):
            raise Unsupported("torch.autograd.grad() that raises", "FJ104")
        found.append(NONE if gradient is None else gradient)
    return TupleValue(found)


@handles(torch.autograd.backward)
def _backward(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound(_BACKWARD, args, kwargs)
    if "grad_variables" in given:
        raise Unsupported("torch.autograd.backward() with grad_variables", "FJ107")
    return _add_up(frame, given["tensors"], given.get("grad_tensors"), given)


def _backward_of(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = _bound(_METHOD, args, kwargs)
    return _add_up(frame, given["self"], given.get("gradient"), given)


METHODS["backward"] = _backward_of


def _add_up(frame: Frame, tensors: Value, incoming: Value | None, given: dict[str, Value]) -> Value:
    """`backward()`: the gradients of all leaves, or of those that are named, each added to what its leaf has."""
    if _flag(given, "create_graph"):
        raise Unsupported(
            "backward(create_graph=True), whose gradients have a history", "FJ107", "use torch.autograd.grad"
        )
    outputs = _tensors(frame, tensors)
    stages = _stages(frame, outputs, _incoming(frame, incoming))
    leaves = _leaves_of(stages)
    _check_no_processes(frame, leaves)
    if "inputs" in given and not is_none(realize(frame, given["inputs"])):
        named = _tensors(frame, given["inputs"])
        if not all(any(tensor is leaf for leaf in leaves) for tensor in named):
            raise Unsupported("backward(inputs=...) of tensors that are no leaves of the graph", "FJ107")
    else:
        named = leaves
    if not named:
        raise Unsupported("backward() of a tensor that no parameter leads to", "FJ107")
    for leaf in leaves:
        _check_leaf(frame, leaf)
    passing, followed = _hooks_of(frame, named, "_backward_hooks"), _hooks_of(frame, named, _BEHIND)
    _check_stand_ins(frame, passing)
    has_hooks = bool(passing or followed)
    if has_hooks or len(stages) > 1 or len(named) < len(leaves) or _flag(given, "retain_graph"):
        _check_reentrant(frame)
    if has_hooks and len(stages) > 1:
        raise Unsupported(_OF_BOTH_KINDS, "FJ107")
    kept = {leaf: _gradient_so_far(frame, leaf) for leaf in named}
    backward = _Backward(frame, stages, named, bool(_flag(given, "retain_graph")), in_order=has_hooks)
    taken: list[Value] = []
    for number, stage in enumerate(stages):
        finished = backward.run(number)
        taken += stage.incoming or ()  # a gradient that is handed on is somebody else's, too
        for leaf in finished:
            gradient = backward.found[leaf]
            for hook in passing.get(leaf, ()):
                gradient = passed(frame, hook, gradient)
            _accumulate(frame, leaf, kept[leaf], gradient, taken)
            for hook in followed.get(leaf, ()):
                told(frame, hook, leaf)
    return NONE


def _accumulate(
    frame: Frame, leaf: TensorValue, before: TensorValue | None, gradient: TensorValue, taken: list[Value]
) -> None:
    """Add a gradient to what its leaf had `before`. `taken`: new ones that leaves have taken."""
    if before is not None:
        frame.capture.graph.call("add_", [before, gradient], is_method=True)
        return
    is_free = not any(gradient is other for other in taken)
    taken.append(gradient)
    leaf.setattr(frame, "grad", _laid_out(frame, leaf, gradient, is_free))


# ---- what is asked ------------------------------------------------------------------------------


def _bound(signature: inspect.Signature, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as e:
        raise Unsupported(str(e), "FJ112") from None


def _flag(given: dict[str, Value], name: str) -> Any:
    return given[name].constant() if name in given else None


def _tensors(frame: Frame, value: Value) -> list[TensorValue]:
    """A tensor, or those of something that can be iterated."""
    value, capture = realize(frame, value), frame.capture
    found = (
        [value] if isinstance(value, TensorValue) else [realize(frame, item) for item in list(frame.iterate(value))]
    )
    if capture.transforms or capture.overrides.modes:
        raise Unsupported("gradients inside a function that torch transforms, or under a function mode", "FJ129")
    if not capture.takes_gradients:
        raise Unsupported("gradients, in a graph for a backend that is not framejit's own", "FJ107")
    for each in found:
        if not isinstance(each, TensorValue) or each.cls not in _PLAIN or each.copy_of is not None:
            raise Unsupported(f"gradients of {each.describe()}", "FJ107")
    return found  # type: ignore[return-value]


def _incoming(frame: Frame, value: Value | None) -> list[Value] | None:
    """The gradients that are given for outputs, some of which may be None."""
    value = NONE if value is None else realize(frame, value)
    if is_none(value):
        return None
    items = [value] if isinstance(value, TensorValue) else list(frame.iterate(value))
    return [item if is_none(item) else _tensors(frame, item)[0] for item in (realize(frame, i) for i in items)]


def _sum(frame: Frame, before: TensorValue, gradient: TensorValue) -> TensorValue:
    made = frame.capture.graph.call(torch.add, [before, gradient])
    assert isinstance(made, TensorValue)
    return made


# ---- stages ---------------------------------------------------------------------------------------


class _Stage:
    """A part of a backward: from its beginning, or from a tensor whose gradient passes hooks, down to leaves and to the
    next such tensors."""

    def __init__(
        self, frame: Frame, outputs: list[TensorValue], incoming: list[Value] | None, cut: HistoryCut | None = None
    ) -> None:
        self.outputs, self.incoming, self.cut = outputs, incoming, cut
        self.leaves = _leaves(frame, outputs)
        self.nodes = {*nodes_of([output.fake for output in outputs])}
        """Autograd's nodes that it goes through."""

    def refuse(self, frame: Frame, why: str) -> None:
        """Break the graph at the first hook that the stage begins with."""
        assert self.cut is not None
        self.cut.refuse(frame.capture, why)

    def overlaps(self, other: _Stage) -> bool:
        """Whether both go through the same operations."""
        mine, theirs = (
            {node for node in stage.nodes if not hasattr(node, "variable")} for stage in (self, other)
        )
        return not mine.isdisjoint(theirs)

    def reaches(self, tensor: TensorValue) -> bool:
        """Whether gradients go from here to a tensor, before they pass further hooks."""
        return tensor.fake.requires_grad and get_gradient_edge(tensor.fake).node in self.nodes


def _stages(frame: Frame, outputs: list[TensorValue], incoming: list[Value] | None) -> list[_Stage]:
    """The parts of a backward, in autograd's order: what was computed last comes first."""
    if frame.capture.graph.lacking_cuts:
        raise NeedsCuts(frozenset(frame.capture.graph.lacking_cuts))
    stages = [_Stage(frame, outputs, incoming)]
    cuts: list[HistoryCut] = []
    for stage in stages:  # which grow meanwhile
        for leaf in stage.leaves:
            if leaf.cut is not None and leaf.cut not in cuts:
                leaf.cut.check_unwritten(frame.capture)
                cuts.append(leaf.cut)
                stages.append(_Stage(frame, leaf.cut.made, None, leaf.cut))
    return [stages[0], *sorted(stages[1:], key=lambda stage: -stage.cut.order if stage.cut is not None else 0)]


def _leaves_of(stages: Iterable[_Stage]) -> list[TensorValue]:
    """The leaves that stages lead to, apart from those where others begin."""
    return [*dict.fromkeys(leaf for stage in stages for leaf in stage.leaves if leaf.cut is None)]


class _Backward:
    """The stages of one backward to certain tensors, which are run in their order."""

    def __init__(
        self, frame: Frame, stages: list[_Stage], wanted: list[TensorValue], retains: bool, in_order: bool
    ) -> None:
        self.frame, self.stages, self.retains, self.in_order = frame, stages, retains, in_order
        self.found: dict[TensorValue, TensorValue] = {}
        """The gradients so far."""
        self._wanted = [*dict.fromkeys(wanted)]
        self._goes_on: set[HistoryCut] = set()
        """The tensors with hooks whose gradients lead on to what is wanted. Autograd calls the hooks of no others but
        those of what is wanted itself."""
        self._asked: list[list[TensorValue]] = []
        """For each stage the tensors whose gradients it is asked for."""
        for stage in reversed(stages):
            asked = [tensor for tensor in self._wanted if stage.reaches(tensor)]
            for leaf in stage.leaves:
                if leaf.cut is not None and leaf.cut in self._goes_on and leaf not in asked:
                    asked.append(leaf)
            if asked and stage.cut is not None:
                self._goes_on.add(stage.cut)
            self._asked.append(asked)
        self._asked.reverse()

    def run(self, number: int) -> list[TensorValue]:
        """Run a stage: which of the tensors that are wanted have all of their gradient now, as it comes to them; those
        with hooks here have passed these."""
        stage, later, asked = self.stages[number], self.stages[number + 1 :], self._asked[number]
        if self._begins(stage) and asked:
            flags = {"retain_graph": self.retains or any(map(stage.overlaps, later)), "allow_unused": True}
            order: list[int] | None = [] if self.in_order else None
            gradients = _gradients(self.frame, stage.outputs, asked, stage.incoming, flags, order)
            if order is not None:
                asked, gradients = [asked[place] for place in order], [gradients[place] for place in order]
            for tensor, gradient in zip(asked, gradients, strict=True):
                if isinstance(gradient, TensorValue):
                    before = self.found.get(tensor)
                    self.found[tensor] = gradient if before is None else _sum(self.frame, before, gradient)
        still_asked = {tensor for others in self._asked[number + 1 :] for tensor in others}
        return [
            tensor for tensor in asked if tensor.cut is None and tensor in self.found and tensor not in still_asked
        ]

    def _begins(self, stage: _Stage) -> bool:
        """Have the gradient that earlier stages found pass the hooks; False if there is none. What is wanted is the
        gradient before the hooks where it goes on from there, else that behind them: so it is in autograd."""
        cut = stage.cut
        if cut is None:
            return True
        gradients = [self.found.get(leaf) for leaf in cut.leaves]
        if all(gradient is None for gradient in gradients):
            if any(leaf in asked for asked in self._asked for leaf in cut.leaves):
                cut.refuse(self.frame.capture, _NO_GRADIENT)
            return False
        behind = cut.passed(self.frame, gradients)
        if cut not in self._goes_on:
            self.found.update((leaf, gradient) for leaf, gradient in zip(cut.leaves, behind) if gradient is not None)
        going_on = [(made, gradient) for made, gradient in zip(cut.made, behind, strict=True) if gradient is not None]
        if len(going_on) < len(behind) and self._tells_of_lacking(cut.made, [made for made, _ in going_on]):
            cut.refuse(self.frame.capture, _NO_GRADIENT)
        stage.outputs, stage.incoming = [made for made, _ in going_on], [gradient for _, gradient in going_on]
        return bool(going_on)

    def _tells_of_lacking(self, outputs: list[TensorValue], with_gradients: list[TensorValue]) -> bool:
        """Whether somebody on the way from outputs would be told that some of them have no gradient: autograd goes that
        way all the same, hands zeros to functions of the program, and calls hooks."""
        alone = self._nodes_behind(outputs) - self._nodes_behind(with_gradients)
        leaves = [leaf for stage in self.stages if stage.cut is not None for leaf in stage.cut.leaves]
        return any(get_gradient_edge(leaf.fake).node in alone for leaf in leaves) or any(
            isinstance(node, torch._C._FunctionBase) for node in alone
        )

    def _nodes_behind(self, outputs: list[TensorValue]) -> set[Any]:
        """Autograd's nodes that outputs lead to, by way of tensors with hooks, too."""
        found = {*nodes_of([output.fake for output in outputs])}
        for stage in self.stages:
            if stage.cut is not None and any(get_gradient_edge(leaf.fake).node in found for leaf in stage.cut.leaves):
                found |= stage.nodes
        return found


# ---- leaves --------------------------------------------------------------------------------------


def _leaves(frame: Frame, outputs: Sequence[TensorValue]) -> list[TensorValue]:
    """The leaves that outputs come of. Breaks the graph where it is not known that these are all."""
    graph = frame.capture.graph
    known = {id(value.fake): value for value in (*graph.inputs, *graph.leaves)}
    found: list[TensorValue] = []
    for fake in leaf_fakes([output.fake for output in outputs]):
        leaf = known.get(id(fake))
        if leaf is None or leaf.cls not in _PLAIN or not leaf.is_leaf(frame):
            raise Unsupported("gradients that go through what was computed before, or to a leaf made here", "FJ107")
        found.append(leaf)
    return found


def leaf_fakes(outputs: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The tensors that autograd adds gradients up in, starting from outputs."""
    for node in nodes_of(outputs):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            yield variable


def nodes_of(outputs: Sequence[torch.Tensor]) -> Iterator[Any]:
    """Autograd's nodes that outputs lead to."""
    seen: set[Any] = set()
    waiting: list[Any] = []
    for output in reversed(outputs):
        if output.grad_fn is not None:
            waiting.append(output.grad_fn)
        elif output.requires_grad:
            waiting.append(get_gradient_edge(output).node)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions if following is not None]


def _check_leaf(frame: Frame, leaf: TensorValue) -> None:
    """Guards that the program has not asked for gradients of another dtype than a leaf has; and that it has no hooks on
    the leaf's node."""
    if leaf.source is None:
        return
    real = frame.capture.real_object(leaf)
    if _HAS_DTYPES:
        dtype = realize(frame, frame.wrap(real.grad_dtype, AttrSource(leaf.source, "grad_dtype")))
        if dtype.constant() is not real.dtype:
            raise Unsupported("gradients of another dtype than their leaf has", "FJ107")
    if _has_hooks_of_nodes(real):
        raise Unsupported("gradients that pass hooks of the program on nodes of autograd", "FJ107")


def _check_reentrant(frame: Frame) -> None:
    """Breaks the graph at a checkpoint that has a backward of its own inside of the backward, where that may be seen or
    is refused."""
    for made_at, _ in frame.capture.graph.reentrant:
        frame.capture.break_at(made_at, Unsupported(REENTRANT, "FJ107"))


def _hooks(frame: Frame, leaf: TensorValue, name: str) -> list[Value]:
    """The hooks that the program has put on a leaf which existed before; guarded."""
    if leaf.source is None:
        return []
    table = realize(frame, frame.wrap(getattr(frame.capture.real_object(leaf), name), AttrSource(leaf.source, name)))
    if is_none(table):
        return []
    if not isinstance(table, DictValue):
        raise Unsupported("gradients that pass hooks of the program", "FJ107")
    return [realize(frame, hook) for _, hook in table.keys_and_values()]


def _hooks_of(frame: Frame, leaves: list[TensorValue], name: str) -> dict[TensorValue, list[Value]]:
    """Those of the leaves that have hooks, with these."""
    return {leaf: hooks for leaf in leaves if (hooks := _hooks(frame, leaf, name))}


def _check_stand_ins(frame: Frame, passing: dict[TensorValue, list[Value]]) -> None:
    """Autograd would call the hooks of leaves when the graph runs, and once more they are in the graph: leaves of its
    own have to stand for those with hooks."""
    graph = frame.capture.graph
    lacking = [leaf for leaf in passing if not any(leaf is each for each in graph.stand_ins)]
    names = frozenset(leaf.source.name() for leaf in lacking if leaf.source is not None)
    if lacking and (graph.stand_ins_for is None or not names.isdisjoint(graph.stand_ins_for)):
        raise Unsupported("gradients that pass hooks of the program", "FJ107")
    if lacking:
        raise NeedsStandIns(names)


def _has_hooks_of_nodes(leaf: torch.Tensor) -> bool:
    """Whether somebody has hooked the node that adds up a leaf's gradients. It says so only to who hooks it, too. A
    parameter that is only thawed in captured code has none yet."""
    if not leaf.requires_grad:
        return False
    node = get_gradient_edge(leaf).node
    found = False
    for register in (node.register_hook, node.register_prehook):
        handle: Any = register(_nothing)
        found = found or len(handle.hooks_dict_ref()) > 1
        remove_hook(handle)
    return found


def _nothing(*gradients: Any) -> None:
    pass


def _check_no_processes(frame: Frame, leaves: Sequence[TensorValue]) -> None:
    """Modules of torch.distributed exchange gradients by hooks on the nodes of leaves, while a backward goes on. Those
    of DistributedDataParallel are written in C++, so that nobody is told of them."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    if not frame.call(from_python(distributed.is_initialized), [], {}).constant():
        return
    if any(_is_node_held(frame.capture.real_object(leaf)) for leaf in leaves if leaf.source is not None):
        raise Unsupported(
            "backward() to parameters whose nodes of autograd are held, as DistributedDataParallel does to exchange "
            "gradients",
            "FJ107", "nothing has to be done: its forward is compiled with a backward of its own",
        )


def _is_node_held(leaf: torch.Tensor) -> bool:
    """Whether somebody holds the node that adds up a leaf's gradients: who has hooks on it does, for it goes with its
    last owner, and autograd makes another."""
    if not leaf.requires_grad:
        return False
    _metadata_of_node(leaf)[_is_node_held] = True
    found: bool = _metadata_of_node(leaf).pop(_is_node_held, False)
    return found


def _metadata_of_node(leaf: torch.Tensor) -> Any:
    """What the program has noted about the node that adds up a leaf's gradients."""
    return get_gradient_edge(leaf).node.metadata


# ---- gradients -----------------------------------------------------------------------------------


def _gradients(
    frame: Frame, outputs: list[TensorValue], inputs: list[TensorValue], incoming: list[Value] | None,
    flags: dict[str, Any], order: list[int] | None = None,
) -> list[Value]:
    """The gradients of outputs for each input; None where there is none. To `order` the places of the inputs are added,
    as autograd comes to them."""
    graph = frame.capture.graph
    fakes: Any = (
        tuple(output.fake for output in outputs), tuple(tensor.fake for tensor in inputs),
        None
        if incoming is None
        else tuple(each.fake if isinstance(each, TensorValue) else None for each in incoming),
    )
    if flags.get("create_graph") and graph.has_stamped_histories:
        raise NeedsHistories
    with _ordered(fakes[1], order):
        found = graph.metadata.run(_on_fakes, False, fakes, flags)
    handed_on = {id(each.fake): each for each in incoming or () if isinstance(each, TensorValue)}
    made = [place for place, gradient in enumerate(found) if id(gradient) not in handed_on]
    results: list[Value] = [handed_on.get(id(gradient), NONE) for gradient in found]
    if made:
        nodes = tuple(
            None if group is None else tuple(each.proxy() if isinstance(each, TensorValue) else None for each in group)
            for group in (outputs, [inputs[place] for place in made], incoming)
        )
        node = graph.add_gradients(nodes, flags, tuple(found[place] for place in made))
        for place, gradient in zip(made, node.iterate(frame), strict=True):
            results[place] = gradient
    return results


@contextmanager
def _ordered(fakes: Sequence[torch.Tensor], order: list[int] | None) -> Iterator[None]:
    """To `order` the places of the tensors are added, as a backward in the block comes to them."""
    handles = []
    if order is not None:
        for place, fake in enumerate(fakes):
            handles.append(fake.register_hook(lambda _, place=place: order.append(place)))
    try:
        yield
    finally:
        for handle in reversed(handles):
            remove_hook(handle)


def _on_fakes(*args: Any, **kwargs: Any) -> Any:
    # in this thread, which is the one that makes fakes
    with torch.autograd.set_multithreading_enabled(False):
        return torch.autograd.grad(*args, **kwargs)


_on_fakes.__module__, _on_fakes.__name__ = "torch.autograd", "grad"  # as messages call it


def _gradient_so_far(frame: Frame, leaf: TensorValue) -> TensorValue | None:
    """What a leaf has for its gradient before more is added."""
    value = realize(frame, leaf.getattr(frame, "grad"))
    if is_none(value):
        return None
    if not isinstance(value, TensorValue) or value.cls is not torch.Tensor or value.fake.requires_grad:
        raise Unsupported("backward() that adds to a gradient which has a history", "FJ107")
    return value


def _laid_out(frame: Frame, leaf: TensorValue, gradient: TensorValue, is_free: bool) -> Value:
    """A new gradient as its leaf keeps it. `is_free`: no other leaf has taken it."""
    graph, mine, new = frame.capture.graph, leaf.fake, gradient.fake
    fills_memory = torch._prims_common.is_non_overlapping_and_dense_or_false(mine)
    lies_alike = (
        all(a != 0 if size == 1 else a == b for a, b, size in zip(new.stride(), mine.stride(), mine.shape))
        if fills_memory
        else new.is_contiguous()
    )
    if lies_alike and is_free:
        # a leaf keeps no view: what it keeps may be detached in place
        return graph.call("detach", [gradient], is_method=True) if new._is_view() else gradient
    if not fills_memory:
        return graph.call("clone", [gradient], {"memory_format": ConstantValue(torch.contiguous_format)}, True)
    return graph.call("copy_", [graph.call(torch.empty_like, [leaf]), gradient], is_method=True)
