"""From a captured graph to the operations that it carries out.

The captured graph's nodes are run on fakes while a dispatch mode below autograd writes down what arrives. There,
composite operations (linear, softmax, einsum, ...) still arrive whole. They are recorded so; of those that nobody wants
whole, and of those whose parts autocast converts, what they consist of is recorded with them, as a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from framejit.backends.autocast_nesting import nesting
from framejit.backends.fuse.graph.attention_masks import Masks
from framejit.backends.fuse.graph.default_dtype import with_dtype
from framejit.backends.fuse.graph.graph import Constant, Graph, HiddenBase, HiddenView
from framejit.backends.fuse.graph.masked_writes import masked_write
from framejit.backends.fuse.graph.node import Autocast, Node, values_in, written_arguments
from framejit.backends.fuse.graph.origin import UNKNOWN, Origin, line_of
from framejit.backends.fuse.graph.transforms import transformed
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.graph.zero_tensors import ZeroTensors
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.sizes.symbolic_size import as_size, hint
from framejit.backends.fuse.thread_state import autocast_state, restored_thread_state, thread_state
from framejit.backends.graph_identity import COUNTED_WRITES, FIRST_VERSION, LAST_VERSION, has_version
from framejit.backends.opaque_call import CheckpointCall, FunctionCall, OpaqueCall, TransformCall
from framejit.environment.inference_modes import enter_inside
from framejit.fakes.arguments import tensors_in
from framejit.fakes.dropped_warnings import without_warnings
from framejit.fakes.fake_mode import Fakes
from framejit.fakes.light_torch import light
from framejit.fakes.storages import storage_of
from framejit.symbols.conditions import Conditions
from framejit.symbols.sym_node import symbolic

QUESTIONS: Final = frozenset(
    ("prim::device", "aten::detach_", "aten::sym_size.int", "aten::sym_stride.int", "aten::_has_same_storage_numel")
)
"""Questions about tensors, and what `torch.tensor` does to its fresh result."""
_ENTERING: Final = (_enter_inference_mode, enter_inside)
DROPOUTS: Final = frozenset(
    ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")
)
"""Operations on a tensor, a probability, and whether this is training."""

MISJUDGED: Final = frozenset(
    ("aten::max_unpool2d", "aten::max_unpool3d", "aten::embedding_bag.padding_idx", "aten::_embedding_bag")
)
"""Operations whose results on fakes have other sizes or strides than the real ones."""

READ_OTHERWISE: Final[dict[str, torch._ops.OpOverload]] = {
    "aten::_conj": torch.ops.aten.conj_physical.default, "aten::_neg_view": torch.ops.aten.neg.default,
}
"""Operations that give views of which only a flag says that their numbers are others, and what computes those."""

FILLING: Final = frozenset(("linspace", "logspace", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"))
"""Operations that write into their results in a way that autograd counts, unless Python's functions call them. Others
draw random numbers."""

Whole = Callable[[torch._ops.OpOverload], bool]
"""Says of a composite operation whether it is wanted whole, so that what it consists of need not be recorded."""


def record_graph(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], whole: Whole, conditions: Conditions | None = None
) -> Graph:
    """The operations of a captured graph whose placeholders have fakes in `meta["val"]` (or `meta["example_value"]`).

    Sizes may be symbols of framejit's if `conditions` is given, which takes down what is asked of them. Raises
    NotFusable where there is something in the captured graph that can't be written down as operations on tensors of
    known sizes, that autograd would have to know of, or that does not fit the example inputs.
    """
    graph = operations_of(gm, whole, conditions)
    check_inputs(graph, examples)
    return graph


def operations_of(gm: fx.GraphModule, whole: Whole, conditions: Conditions | None = None) -> Graph:
    """Record a captured graph as `record_graph` does, without comparing inputs with its fakes. Raises NotFusable."""
    run = Run(gm, whole, conditions)
    # a cast that capture had done would not be done, and seen, again
    with restored_thread_state(), without_warnings(), light():
        return run.run()


class Run:
    """Runs a captured graph on fakes while a recorder writes down the operations."""

    def __init__(self, gm: fx.GraphModule, whole: Whole, conditions: Conditions | None) -> None:
        self.gm, self.whole, self.conditions = gm, whole, conditions
        self.env: dict[fx.Node, Any] = {}
        self.hidden: dict[int, HiddenBase] = {}
        self.checkpoints = 0
        """How many of the program's checkpoints have begun."""
        self.checkpoint = 0
        """The number of the one that is being recorded; 0 outside of them."""

    def run(self) -> Graph:
        """Run the captured graph's nodes, and give the graph of what arrived. Raises NotFusable."""
        graph = self.gm.graph
        before = thread_state(), nesting()
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        fakes = [node.meta.get("val", node.meta.get("example_value")) for node in placeholders]
        if not all(isinstance(fake, torch.Tensor) for fake in fakes):
            raise NotFusable("an input is not a tensor")
        mode = next((fake.fake_mode for fake in fakes if hasattr(fake, "fake_mode")), None)
        unexpected = self.conditions is None
        if any((fake._has_symbolic_sizes_strides and unexpected) or not hasattr(fake, "fake_mode") for fake in fakes):
            raise NotFusable("an input's sizes are symbols, or it has no fake")
        if any(fake.is_conj() or fake.is_neg() for fake in fakes):
            raise NotFusable("an input is only a view as conjugate or negative")
        if mode is None:
            mode = Fakes(allow_fallback_kernels=False)
        self.mode = mode
        fakes = self.apart(fakes)
        self.graph = Graph(
            names=[node.name for node in placeholders], counted_writes=_writes(placeholders), fake_mode=mode,
            conditions=self.conditions,
        )
        self.env.update(zip(placeholders, fakes))
        self.recorder = recorder = self.make_recorder()
        self.masks = Masks(self.graph)
        self.graph.inputs = [recorder.value(fake) for fake in fakes]
        with self.recording():
            try:
                for node in graph.nodes:
                    if node.op == "output":
                        self.graph.outputs = self.outputs(node.args[0])
                    elif node.op != "placeholder":
                        self._carry_out(node)
                if (thread_state(), nesting()) != before:  # the guards of `recording` put some of it back as they end
                    raise NotFusable("it leaves a mode changed")
            finally:
                self._end_inference_modes()
        recorder.check_resolved()
        return self.graph

    def _carry_out(self, node: fx.Node) -> None:
        """Have the recorder see what a node does."""
        self.recorder.origin = Origin(line_of(node.meta.get("stack_trace")), self.checkpoint)
        self.recorder.autocast = _autocast_on()
        self.recorder.call_starts = len(self.graph.nodes)
        with without_warnings() as texts:
            self.env[node] = self._value(node)
        if node.target is getattr and node.args[1] == "data":
            self.recorder.counted_apart.add(self.recorder.value(self.env[node]))
        if texts:  # by the function that torch's Python interface has for it, which plans do without
            raise NotFusable(
                f"torch warns of {getattr(node.target, '__name__', node.target)}: {texts[0].splitlines()[0]}"
            )

    def _checkpointed(self, call: CheckpointCall, args: Any) -> Any:
        """What a checkpoint gives, its operations recorded as those of this graph. One in another is part of that."""
        around = self.checkpoint
        if not around:
            self.checkpoints += 1
            self.checkpoint = self.checkpoints
        before = len(self.graph.nodes)
        try:
            results = self.run_inside(call.module, args)
        finally:
            self.checkpoint = around
        recorded = self.graph.nodes[before:]
        if any(value.storage.first in self.graph.inputs for node in recorded for value in node.writes):
            raise NotFusable("a checkpoint writes into an input, which is done again where it is computed again")
        if not call.keeps_random_state and any(node.ordered for node in recorded):
            raise NotFusable("a checkpoint draws other random numbers where it is computed again")
        return results

    def make_recorder(self) -> Recorder:
        """The recorder that writes the graph."""
        return Recorder(self.graph, self.whole)

    def recording(self) -> AbstractContextManager[None]:
        """The state in which the captured graph's nodes are run."""
        return recording(self.recorder)

    def met_gradients(self) -> None:
        """Called where an operation needs gradients."""
        raise NeedsGradients("its results need gradients")

    def traced(self, call: FunctionCall, args: Sequence[Any]) -> Any:
        """The result on fakes of an `autograd.Function`."""
        raise NotFusable(call.why)

    def run_inside(self, module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What a graph inside of the graph gives."""
        given = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "output":
                results: tuple[Any, ...] = fx.node.map_arg(node.args[0], self.env.__getitem__)
                return results
            if node.op == "placeholder":
                self.env[node] = next(given)
            else:
                self._carry_out(node)
        raise AssertionError("graphs have outputs")

    def call(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result on fakes of the function of a node."""
        if node.target is F.scaled_dot_product_attention:
            args, kwargs = self.masks.left_out(args, kwargs, self.recorder.known)
        if isinstance(node.target, TransformCall):
            return transformed(node.target, args)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _value(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return self._constant(attribute_of(self.gm, str(node.target)))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        if torch.is_grad_enabled() and self._needs_grad(node, args, kwargs):
            self.met_gradients()
        if isinstance(node.target, CheckpointCall):
            return self._checkpointed(node.target, args)
        if isinstance(node.target, FunctionCall):
            return self.traced(node.target, args)
        if isinstance(node.target, OpaqueCall) and not isinstance(node.target, TransformCall):
            raise NotFusable(node.target.why)
        try:
            written = masked_write(node, args, kwargs)
            if written is not NotImplemented:
                return written
            if node.op == "call_function":
                return self.call(node, args, kwargs)
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            module = self.gm.get_submodule(str(node.target))
        except NotFusable:
            raise
        except Exception as e:
            name = getattr(node.target, "__name__", node.target)
            raise NotFusable(
                f"{name} on fakes raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
            ) from e
        raise NotFusable(f"it calls the module {node.target} ({type(module).__name__}) as a whole")

    def _end_inference_modes(self) -> None:
        """Leaves the inference modes that a graph had entered where it was given up. The end of a mode puts back the
        dispatch keys of its start, which are those of the modes around this trace: were it ended only when the object
        dies, the thread would go on with them."""
        ended = {node.args[0] for node in self.env if node.target is _exit_inference_mode}
        for node in reversed([node for node in self.env if node.target in _ENTERING and node not in ended]):
            self.env[node].__exit__(None, None, None)

    def apart(self, fakes: list[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs' fakes, each with a storage of its own: whether inputs share memory is no part of what a graph is
        compiled for."""
        seen: set[int] = set()
        result: list[torch.Tensor] = []
        for fake in fakes:
            storage = storage_of(fake)
            if storage in seen or self.conditions is not None:
                needs_grad = fake.requires_grad
                with self.mode, torch.inference_mode(False):
                    fake = torch.empty_strided(
                        self._sizes(fake.shape), self._sizes(fake.stride()), dtype=fake.dtype, device=fake.device
                    )
                fake.requires_grad_(needs_grad)
            seen.add(storage)
            result.append(fake)
        return result

    def _sizes(self, sizes: Sequence[Any]) -> list[Any]:
        """The sizes as symbols that note in the conditions what is asked of them."""
        if self.conditions is None:
            return list(sizes)
        return [
            symbolic(self.conditions.simplified(size.node.expression), self.conditions)
            if isinstance(size, torch.SymInt)
            else size
            for size in sizes
        ]

    def _constant(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        fake = self.mode.from_tensor(value, static_shapes=True)
        self.graph.constant(self.recorder.value(fake), Constant(value))
        return fake

    def _needs_grad(self, node: fx.Node, args: Any, kwargs: Any) -> bool:
        value = node.meta.get("val", node.meta.get("example_value"))
        known = [*tensors_in((value,))]
        written = value is None
        if known and not written:
            return any(tensor.requires_grad for tensor in known)
        return any(tensor.requires_grad for tensor in tensors_in((*args, *kwargs.values())))

    def returned(self, value: Any) -> list[Any]:
        """The fakes, or other objects, that the graph's `output` node returns, in order. Raises NotFusable where it
        returns no flat tuple."""
        if not isinstance(value, (tuple, list)):
            raise NotFusable("it returns something that is not a tuple")
        items = [self.env[item] if isinstance(item, fx.Node) else item for item in value]
        resolved = {result.storage for _, result in self.recorder.resolved}
        for node, item in zip(value, items):
            shown = _shown(node) if isinstance(node, fx.Node) else None
            if isinstance(shown, torch.Tensor):
                is_view = shown.is_conj() or shown.is_neg()
            else:  # nothing says what it is to the program
                is_view = isinstance(item, torch.Tensor) and self.recorder.value(item).storage in resolved
            if is_view:
                raise NotFusable("a result is only a view as conjugate or negative")
        if any(isinstance(item, (tuple, list, dict)) for item in items):
            raise NotFusable("it returns a nested tuple")
        return items

    def outputs(self, value: Any) -> list[Any]:
        """The graph's outputs as values, given the argument of its `output` node; notes which of them autograd has as
        views."""
        outputs = self.returned(value)
        existing = {value.storage for value in (*self.graph.inputs, *self.graph.constants)}
        self.graph.counted_apart = self._counted_apart(value, outputs, existing)
        for position, item in enumerate(value):
            shown = _shown(item) if isinstance(item, fx.Node) and item.op != "placeholder" else None
            if isinstance(shown, torch.Tensor):
                storage = self.recorder.value(outputs[position]).storage
                is_counted = storage not in existing or position in self.graph.counted_apart
                if is_counted and not shown.is_inference():
                    maker = storage.first.maker
                    # torch's functions in Python fill what they make without autograd, their operations with it
                    fills = maker is not None and storage not in existing and (
                        maker.operation._opname in FILLING or maker.ordered and not any(maker.values())
                    )
                    version = item.meta.get(LAST_VERSION, shown._version)
                    if version or fills:
                        self.graph.versions[position] = version
                if shown.requires_grad:  # what a view under no_grad() does
                    raise NeedsGradients("its results need gradients")
                if self._is_view(item, shown, [node for node in value if isinstance(node, fx.Node)]):
                    self.graph.views[position] = _creation(shown)
                elif (hidden := self._hidden_view(shown)) is not None:
                    self.graph.hidden_views[position] = hidden
        return [self.recorder.value(item) if isinstance(item, torch.Tensor) else item for item in outputs]

    def _counted_apart(
        self, value: Sequence[Any], outputs: Sequence[Any], existing: Collection[Storage]
    ) -> dict[int, int]:
        """The outputs of `Graph.counted_apart`. What the graph makes has one counter if all that it gives of it has the
        same."""
        counters = dict[int, Value | None]()
        by_storage = dict[Storage, set[Value | None]]()
        for position, (item, fake) in enumerate(zip(value, outputs)):
            shown = _shown(item) if isinstance(item, fx.Node) else None
            if isinstance(fake, torch.Tensor) and isinstance(shown, torch.Tensor) and not shown.is_inference():
                made = self.recorder.value(fake)
                counters[position] = self.recorder.counter(made)
                by_storage.setdefault(made.storage, set()).add(counters[position])
        apart = {
            position: counter
            for position, counter in counters.items()
            if counter is not None and (counter.storage in existing or len(by_storage[counter.storage]) > 1)
        }
        numbers = {counter: number for number, counter in enumerate(dict.fromkeys(apart.values()))}
        return {position: numbers[counter] for position, counter in apart.items()}

    def _is_view(self, node: fx.Node, shown: torch.Tensor, outputs: list[fx.Node]) -> bool:
        """Whether autograd has the output as a view of an input or of another output."""
        inputs = [
            fake for n in self.gm.graph.nodes if n.op == "placeholder" and isinstance(fake := _shown(n), torch.Tensor)
        ]
        if not shown.is_inference() and not torch.is_inference_mode_enabled():
            known = [*inputs, *(fake._base for fake in inputs if not fake.is_inference()), *map(_shown, outputs)]
            return shown._is_view() and any(shown._base is fake for fake in known)
        # in inference mode a view of a normal tensor is a normal tensor and a view, which its fake is not
        name = node.args[1] if node.target is getattr else getattr(node.target, "__name__", node.target)
        return any(storage_of(fake) == storage_of(shown) for fake in inputs) and name not in ("detach", "data")

    def _hidden_view(self, shown: torch.Tensor) -> HiddenView | None:
        """How autograd has the output as a view, if it has, of what is neither an input nor an output."""
        if shown.is_inference() or torch.is_inference_mode_enabled() or not shown._is_view():
            return None
        base = shown._base
        if base is None or (
            self.conditions is None and (base._has_symbolic_sizes_strides or shown._has_symbolic_sizes_strides)
        ):
            return None
        known = self.hidden.get(id(base))
        if known is None:
            known = self.hidden[id(base)] = HiddenBase(
                base.dtype, tuple(self._sizes(base.shape)), tuple(self._sizes(base.stride()))
            )
        (before,) = self._sizes([shown.storage_offset() * shown.itemsize - base.storage_offset() * base.itemsize])
        return HiddenView(known, before, _creation(shown))


def _creation(shown: torch.Tensor) -> int | None:
    """What autograd allows to be done to a view, if it has it as one, as a number of its `CreationMeta`."""
    return None if shown.is_inference() or not shown._is_view() else torch._C._autograd._get_creation_meta(shown).value


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Fakes are operated on here, and a recorder writes down what arrives."""
    graph = recorder.graph
    # below autograd, or composite operations would never arrive whole
    with (
        graph.fake_mode, enable_python_dispatcher() if graph.conditions is not None else nullcontext(),
        torch._C._AutoDispatchBelowAutograd(), recorder,
    ):
        yield


class Recorder(TorchDispatchMode):
    """Writes down the operations that arrive."""

    def __init__(self, graph: Graph, whole: Whole) -> None:
        super().__init__()
        self.graph, self.whole = graph, whole
        self.default_dtype = torch.get_default_dtype()
        """The one that plans run under, whatever captured code sets."""
        self.origin = UNKNOWN
        self.autocast: Autocast = ()
        """The autocast modes of the program that are on: while an operation is looked at here, autocast is off."""
        self._nodes = graph.nodes
        """Where nodes are added: of the graph, or of the parts of a composite operation that is being carried out."""
        self.counted_apart: set[Value] = set()
        """What `x.data` gave: autograd does not count writes to it as ones to `x`."""
        self.call_starts = 0
        """How many nodes there were when the operation of the program's began that is being recorded."""
        self.resolved: list[tuple[Value, Value]] = []
        """What was to be read as conjugate or negative, and the tensor of such numbers that stands in the place of that
        view."""
        self._replaced: list[torch.Tensor] = []
        """Fakes that others took the places of, kept so that their ids stay theirs."""
        self._zero_tensors = ZeroTensors()
        self._values: dict[int, Value] = {}
        self._storages: dict[int, Storage] = {}

    def value(self, fake: torch.Tensor, given: Sequence[Value] = ()) -> Value:
        """The value that a fake stands for; `given` are the arguments of the operation that gave it, if it is new."""
        return self._values.get(id(fake)) or self._new(fake, given)

    def known(self, fake: torch.Tensor) -> Value:
        """The value of a fake that was given or made."""
        return self.value(fake)

    def counter(self, value: Value) -> Value | None:
        """Which value's writes autograd counts together with those of this one: of what was made of `x.data` that; None
        where it is what lies first in the storage."""
        found: Value | None = value
        while found is not None and found not in self.counted_apart:
            found = found.base
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.name()
        if name == "aten::detach_" and any(args[0] is value.fake for value in self.graph.inputs):
            raise NotFusable("it detaches an input")
        if name in QUESTIONS or (name == "aten::as_strided_" and self._changes_nothing(*args, **kwargs)):
            return func(*args, **kwargs)
        if _has_kernel(name, "CompositeImplicitAutograd") and not _has_out(func):
            # what autocast knows has been converted when it arrives; of what it doesn't know, it converts the parts
            casts = tuple(mode for mode in self.autocast if not _has_kernel(name, f"Autocast{mode[0].upper()}"))
            if casts or not self.whole(func):
                return self._with_parts(func, args, kwargs, casts)
        if name == "aten::lift_fresh" and not hasattr(args[0], "fake_mode"):
            return self.lifted(args[0])
        if name == "aten::detach" and (value := self._just_made()) is not None and value.fake is args[0]:
            return self._renewed(value)
        return self.carry_out(func, args, kwargs)

    def _changes_nothing(
        self, tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> bool:
        """Whether `as_strided_` leaves a tensor as it is, and no input counts it as a write."""
        memory = storage_of(tensor)
        return _is_same_layout(tensor, size, stride, storage_offset) and all(
            storage_of(value.fake) != memory for value in self.graph.inputs
        )

    def _just_made(self) -> Value | None:
        """What the program's operation has just made of no other tensor, if that is all it has done."""
        nodes = self.graph.nodes
        if len(nodes) != self.call_starts + 1 or self._nodes is not nodes or any(nodes[-1].values()):
            return None
        result: Any = nodes[-1].result
        return result if isinstance(result, Value) else None

    def _renewed(self, value: Value) -> torch.Tensor:
        """Another fake for a value: torch's functions that make tensors detach them as a last step (`make_variable` in
        torch/csrc/autograd/variable.h), and writes are counted from then on."""
        fake: torch.Tensor = torch.ops.aten.detach.default(value.fake)
        self._replaced.append(value.fake)
        value.fake = fake
        self._values[id(fake)] = value
        return fake

    def carry_out(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have an operation done to fakes, and write it down."""
        name = func.name()
        if name == "aten::_to_copy" and not isinstance(args[0], torch.Tensor):
            # a number of the program, which torch.func converts to the dtype of what it is computed with
            return self._lifted_number(args[0], kwargs.get("dtype"))
        if name in READ_OTHERWISE:
            if isinstance(args[0], complex):  # a number of the program, of which autograd wants the conjugate
                return self._lifted_number(args[0].conjugate(), torch.complex128)
            return self._resolved(READ_OTHERWISE[name], *args)
        if torch.Tag.inplace_view in func.tags and _as_view(func) is not None and self._is_made_here(args[0]):
            return self._viewed_in_place(func, args, kwargs)
        sizes = [tensor.shape for tensor in tensors_in((*args, *kwargs.values()))] if func._schema.is_mutable else None
        if name.removesuffix("_") in DROPOUTS and not (args[1] and args[2]):
            result = args[0]  # as eager does, where a fake's dropout gives a new tensor
        else:
            result = func(*args, **kwargs)
        if name in MISJUDGED:
            raise NotFusable(f"the sizes and strides of what {name} gives are not known before it runs")
        if torch.Tag.inplace_view in func.tags or (
            sizes is not None and sizes != [tensor.shape for tensor in tensors_in((*args, *kwargs.values()))]
        ):
            raise NotFusable(f"{name} changes the sizes of a tensor in place")
        if any(
            not hasattr(tensor, "fake_mode") or tensor.is_conj() or tensor.is_neg() for tensor in tensors_in((result,))
        ):
            raise NotFusable(f"{name} gives a tensor that is not known, or only a view as conjugate or negative")
        func, args, kwargs = self._zero_tensors.instead(func, args, result) or (func, args, kwargs)
        self._write_down(func, args, kwargs, result)
        return result

    def _is_made_here(self, fake: torch.Tensor) -> bool:
        """Whether nobody but the graph knows a tensor's memory."""
        first = self.value(fake).storage.first
        return first not in self.graph.inputs and first not in self.graph.constants

    def _viewed_in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """A tensor that changes its sizes in place, as what `vector @ matrix` gives does: written down as a view of
        what it was."""
        fake: torch.Tensor = args[0]
        value = self._values.pop(id(fake))
        value.fake = torch.ops.aten.detach.default(fake)
        self._values[id(value.fake)] = value
        func(*args, **kwargs)
        self._write_down(_as_view(func), (value.fake, *args[1:]), kwargs, fake)
        return fake

    def _resolved(self, operation: Any, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers that a view shows which only says that memory is to be read otherwise: no kernel knows such a
        view. `check_resolved` looks whether the program could tell."""
        result: torch.Tensor = self.carry_out(operation, (tensor,), {})
        if result.stride() != tensor.stride():
            raise NotFusable("a view as conjugate or negative is of a tensor with gaps in its memory")
        self.resolved.append((self.value(tensor), self.value(result)))
        return result

    def check_resolved(self) -> None:
        """Raises NotFusable where a view as conjugate or negative shares memory with what is written."""
        written = self.graph.written() if self.resolved else set()
        if any(value.storage in written for pair in self.resolved for value in pair):
            raise NotFusable("what is written has a view as conjugate or negative")

    def _lifted_number(self, number: complex, dtype: torch.dtype | None) -> torch.Tensor:
        with _disable_current_modes():
            tensor = torch.tensor(number, dtype=dtype, device="cpu")
        return self.lifted(tensor)

    def lifted(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake for a tensor that the program makes from numbers, at each call a fresh one."""
        with _disable_current_modes(), self.graph.fake_mode:  # nothing of it is the graph's
            numbers, fresh = (
                torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
                for _ in range(2)
            )
        self.graph.constant(self.value(numbers), Constant(tensor, literal=True))
        self._write_down(torch.ops.aten.lift_fresh.default, (numbers,), {}, fresh)
        return fresh

    def _with_parts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], casts: Autocast) -> Any:
        """Carry out a composite operation by eager's own decomposition (`func.decompose` may have another one, in
        Python), and record what it consists of."""
        decompose = partial(func._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if torch.Tag.inplace_view in func.tags:  # what it is given stands for what it gives, once that is done
            with self:
                return decompose()
        outside, given = self._nodes, [self.value(tensor) for tensor in tensors_in((*args, *kwargs.values()))]
        parts = Graph()
        self._nodes = parts.nodes
        try:
            with self, _autocast(casts):
                result = decompose()
        finally:
            self._nodes = outside
        if parts.nodes:
            parts.outputs = [_mapped(result, self.value)]
            inside = {id(value.fake) for node in parts.nodes for value in node.results}
            for fake in tensors_in((result,)):
                if id(fake) in inside:  # from here on it is what the whole operation gives
                    self._new(fake, given)
                    inside.discard(id(fake))
            self._write_down(func, args, kwargs, result, casts, (parts,))
        return result

    def _write_down(
        self, func: Any, args: Any, kwargs: Any, result: Any, casts: Autocast = (), parts: tuple[Graph, ...] = ()
    ) -> None:
        if torch.get_default_dtype() is not self.default_dtype:
            kwargs = with_dtype(func, args, kwargs, result)
        args, kwargs = self.arguments(args, kwargs)
        written = [*written_arguments(func, args, kwargs)]
        given = [*dict.fromkeys((*written, *values_in((*args, *kwargs.values()))))]
        result = _mapped(result, lambda fake: self.value(fake, given))
        self._nodes.append(Node(func, args, kwargs, result, self.origin, autocast=casts, parts=parts))

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An operation's arguments, as nodes have them."""
        return tuple([_mapped(arg, self._argument) for arg in args]), {
            key: _mapped(arg, self._argument) for key, arg in kwargs.items()
        }

    def _argument(self, value: torch.Tensor | torch.SymFloat) -> Value | float:
        """What stands for a tensor, or for a number that was computed from sizes and is no size itself: that it is what
        it is now is a condition on those. (Operations take a torch.SymFloat for nan.)"""
        return self.value(value) if isinstance(value, torch.Tensor) else float(value)

    def _new(self, fake: torch.Tensor, given: Sequence[Value]) -> Value:
        storage = self._storages.get(storage_of(fake))
        base = None if storage is None else next((value for value in given if value.storage is storage), None)
        value = self._values[id(fake)] = Value(fake, storage, base)
        self._storages[storage_of(fake)] = value.storage
        return value


@cache
def _as_view(operation: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operation that gives as a view what this one makes of its argument; None where there is none."""
    packet = getattr(torch.ops.aten, operation._opname.removesuffix("_"), None)
    wanted = [str(argument.type) for argument in operation._schema.arguments]
    for overload in () if packet is None else [getattr(packet, name) for name in packet.overloads()]:
        alias = overload._schema.returns[0].alias_info  # none of what makes another tensor, as `resize`
        if alias is not None and not alias.is_write and [str(a.type) for a in overload._schema.arguments] == wanted:
            return overload
    return None


def check_inputs(graph: Graph, examples: Sequence[torch.Tensor]) -> None:
    """Fakes were made when capture began; what was done to an input's sizes since, or memory that inputs share, is not
    in them."""
    if len(examples) != len(graph.inputs):
        raise NotFusable("there are more or fewer example inputs than placeholders")
    if any(
        torch._C._dispatch_keys(example).has(torch._C.DispatchKey.Python)
        for example in examples
        if not isinstance(example, FakeTensor)
    ):
        raise NotFusable("an input is of a class of tensors whose operations are written in Python")
    for value, example in zip(graph.inputs, examples):
        layout = [(hint(as_size(size)), hint(as_size(stride))) for size, stride in zip(value.shape, value.strides)]
        if layout != [*zip(example.shape, example.stride())] or value.dtype != example.dtype:
            raise NotFusable("an input's sizes differ from those it was captured with")
    if not graph.written().isdisjoint(value.storage for value in graph.inputs):
        memory = [example.untyped_storage()._cdata for example in examples]
        if len(set(memory)) < len(memory):
            raise NotFusable("inputs share memory and something is written in place")


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """The structure of tuples and lists with what a function gives for its tensors and symbolic floats."""
    if isinstance(tree, (torch.Tensor, torch.SymFloat)):
        return function(tree)
    if isinstance(tree, (tuple, list)) and not isinstance(tree, torch.Size):
        return (list if isinstance(tree, list) else tuple)([_mapped(item, function) for item in tree])
    return tree


def _autocast_on() -> Autocast:
    return tuple((device, dtype) for device, (enabled, dtype) in autocast_state().items() if enabled)


def _shown(node: fx.Node) -> Any:
    """What capture has for the value of a node."""
    return node.meta.get("val", node.meta.get("example_value"))


def _writes(placeholders: list[fx.Node]) -> dict[int, int]:
    found = {}
    for position, node in enumerate(placeholders):
        fake = node.meta.get("val")
        if FIRST_VERSION in node.meta and has_version(fake):
            # Recording writes into the same fakes, and a graph may be recorded a second time, with its gradients.
            found[position] = node.meta.setdefault(COUNTED_WRITES, fake._version - node.meta[FIRST_VERSION])
    return found


def _has_out(func: torch._ops.OpOverload) -> bool:
    """Whether it has an `out` argument, which a decomposition may replace rather than write into (as
    `linalg_matrix_rank` does)."""
    return any(argument.is_out for argument in func._schema.arguments)


def _is_same_layout(
    tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> bool:
    """Whether a tensor lies so already, but for the strides of dimensions of one element, which no element's place
    depends on."""
    same = all(size == 1 or stride == new for size, stride, new in zip(tensor.shape, tensor.stride(), strides))
    return same and tuple(tensor.shape) == tuple(sizes) and offset in (None, tensor.storage_offset())


@cache
def _has_kernel(name: str, dispatch_key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key)


def attribute_of(module: Any, path: str) -> Any:
    """The object at a dotted path below a module, as a `get_attr` node names it. Raises AttributeError."""
    for part in path.split("."):
        module = getattr(module, part)
    return module


@contextmanager
def _autocast(modes: Sequence[tuple[str, torch.dtype]]) -> Iterator[None]:
    """Have autocast on for devices."""
    before = {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device, _ in modes
    }
    for device, dtype in modes:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        for device, (enabled, dtype) in before.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
