"""The FX graph under construction: inputs by source, nodes with metadata, outputs."""

from __future__ import annotations

import contextlib
import keyword
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import fx

from framejit.backends.graph_identity import RESIZED, VERSIONS, Layer, note_layers, note_result
from framejit.backends.late_python import graph_module
from framejit.backends.may_raise import operation_name
from framejit.backends.opaque_call import BETWEEN_PARTS, OpaqueCall
from framejit.capture.graph.equal_masks import first_alike
from framejit.capture.graph.graph_writes import GraphWrites
from framejit.capture.graph.known_results import CONSTANT, known_result
from framejit.capture.graph.written_tensors import EXCHANGED, written_by
from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_sizes import check_question
from framejit.fakes.metadata import Metadata, label, version_of
from framejit.fakes.operation_kinds import LAYS_OUT_ANEW, LOOKS_AT_PLACE, is_answered_by_fakes, is_operation, name_of
from framejit.fakes.size_keys import size_keys
from framejit.fakes.storages import storage_of
from framejit.guards.plain_text import module_of
from framejit.guards.sources import const_source
from framejit.signals import ResultPlace, Unsupported
from framejit.values.arrays.ndarray import NumberValue
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.inspection import is_of_torch
from framejit.values.runtime_numbers.number_arguments import by_arithmetic
from framejit.values.runtime_numbers.number_sizes import with_sizes
from framejit.values.tensors.gradients.cuts import cut_early
from framejit.values.tensors.gradients.requires_grad import Toggled, as_it_was
from framejit.values.tensors.gradients.shared_histories import check_written_views
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.capture.alike.stamped_history import StampedHistory
    from framejit.events.place import Place
    from framejit.fakes.metadata import SymbolicLayout
    from framejit.guards.sources import Source
    from framejit.values.tensors.copies import Copy
    from framejit.values.tensors.gradients.cuts import HistoryCut

# Methods that give the very tensor back when there is nothing to do; such a call leaves no node.
_MAY_RETURN_SELF = frozenset(
    (
        "contiguous", "to", "type", "float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda",
        "expand_as", "requires_grad_", "type_as",
    )
)


class Origin(NamedTuple):
    """The instruction that led to a node: the step of the capture that executed it, its code and its position there."""

    seq: int
    code: CodeType
    position: int


class Program(Protocol):
    """The captured program, as far as its graph has to do with it."""

    def user_stack_text(self) -> str: ...
    def user_place(self) -> Place | None: ...
    def user_origin(self) -> Origin | None: ...
    def hands_over(self, tensors: Iterable[TensorValue]) -> bool: ...
    def tensor_written(self, tensor: TensorValue) -> None: ...
    def guard_place(self, tensor: TensorValue) -> None: ...
    def plain_number(self, number: NumberValue) -> Value: ...


class GraphBuilder:
    """The torch.fx graph of a capture while it is written: its inputs with their examples, the nodes of tensor
    operations, and the fakes that say what each gives."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = fx.Graph()
        self.metadata = Metadata()
        self.inputs: list[TensorValue] = []  # in order of their placeholders
        self.placeholders: list[fx.Node] = []
        """Those of the inputs; another node may stand for an input later on."""
        self.examples: list[torch.Tensor] = []
        self._places: dict[fx.Node | int, int] = {}
        """By placeholders, and by the ids of their values, which inputs they are."""
        self._last_placeholder: fx.Node | None = None
        self.n_ops = 0
        # by storage: of a normal tensor views are normal, also in inference mode, where those of fakes are not
        self._made_in_inference: dict[int, bool] = {}
        self.origins: dict[fx.Node, Origin] = {}
        # for a result the nodes that assert that it has no inf or nan, last one first
        self.finite_checks: dict[fx.Node, tuple[fx.Node, ...]] = {}
        self.copies: list[Copy] = []
        self.leaves: list[TensorValue] = []
        """The tensors made here that captured code wants gradients for."""
        self.cuts: list[HistoryCut] = []
        """The histories that were cut off."""
        self.cuts_for: frozenset[ResultPlace] | None = frozenset()
        """The results whose histories are to be cut off when they are made; None where none may be."""
        self.lacking_cuts: set[ResultPlace] = set()
        """Those whose histories should have been."""
        self.stand_ins_for: frozenset[str] | None = frozenset()
        """Names of the sources of tensors that leaves of the graph are to stand for; None where there may be none."""
        self.stand_ins: list[TensorValue] = []
        """The inputs that leaves of the graph stand for."""
        self.reentrant: list[tuple[int, list[torch.Tensor]]] = []
        """Checkpoints with `use_reentrant=True`: at which steps of the capture, with what results."""
        self._n_taken_out = 0
        self.writes = GraphWrites(self.graph)
        self.wants_gradients = False
        """Whether an input requires gradients."""
        self.needs_histories = False
        """Whether captured code asks for gradients of gradients, so that all fakes need histories of their own."""
        self.has_stamped_histories = False
        """Whether there are fakes without."""
        self.n_known = 0
        """How often a content was known. A layer that asks is none to stamp out: others may be given other tensors."""
        self.layers: list[Layer] = []
        """The nodes of modules that were stamped out, and of those that they were stamped out like."""

    # ---- inputs ---------------------------------------------------------------------------

    def add_input(self, tensor: torch.Tensor, source: Source, layout: SymbolicLayout | None = None) -> TensorValue:
        fake = self.metadata.fake_of(tensor, layout)
        where = (
            self.graph.inserting_after(self._last_placeholder)
            if self._last_placeholder
            else self.graph.inserting_before(next(iter(self.graph.nodes), None))
        )
        with where:
            node = self.graph.placeholder(_identifier(source.name()))
        node.target = node.name  # the parameter's name: `m.w` and `m_w` are two
        self._last_placeholder = node
        self._note_result(node, fake)
        node.meta["source"] = source.name()
        value = TensorValue(node, fake, type(tensor), source)
        self._made_in_inference.setdefault(fake.untyped_storage()._cdata, tensor.is_inference())
        self.inputs.append(value)
        self.placeholders.append(node)
        self.examples.append(tensor)
        self._places[node] = self._places[id(value)] = len(self.inputs) - 1
        self.wants_gradients = self.wants_gradients or fake.requires_grad
        if self.stand_ins_for and source.name() in self.stand_ins_for:
            self._put_stand_in(value)
        return value

    def _put_stand_in(self, value: TensorValue) -> None:
        """Have a leaf over its memory stand for an input that requires gradients, where that can be."""
        fake = value.fake
        is_plain = fake.requires_grad and not fake._has_symbolic_sizes_strides
        if not is_plain or self._n_taken_out or torch.is_inference_mode_enabled():
            return
        leaf = self.call("detach", [value], is_method=True)
        assert isinstance(leaf, TensorValue)
        self.make_leaf(leaf)
        value.node, value.fake = leaf.node, leaf.fake
        value.toggled = Toggled(leaf=(leaf.node, leaf.fake))
        self.stand_ins.append(value)

    def add_constant(self, tensor: torch.Tensor, name: str) -> TensorValue:
        """An input that is the same tensor in each call, which nobody but the graph has, nor writes into."""
        value = self.add_input(tensor, const_source(tensor, name))
        value.node.meta[CONSTANT] = tensor
        return value

    def is_inference(self, value: TensorValue) -> bool:
        """Whether the real tensor is one of inference mode."""
        return self._made_in_inference.get(value.fake.untyped_storage()._cdata, value.fake.is_inference())

    def example_of(self, value: TensorValue) -> torch.Tensor | None:
        """The real tensor behind an input; None for what was made in the graph."""
        place = self._places.get(id(value))
        return None if place is None else self.examples[place]

    def known_result(self, value: TensorValue) -> torch.Tensor | None:
        """What a tensor holds that was made here, in each call alike; None where that is not known."""
        if value.source is not None or getattr(value.fake, "constant", None) is not None:  # which fakes answer
            return None
        found = known_result(value.node, self.writes)
        self.n_known += found is not None
        return found

    def input_at(self, source: Source) -> TensorValue:
        """The input that was read at a source. Raises StopIteration where there is none."""
        return next(value for value in self.inputs if value.source == source)

    # ---- nodes ----------------------------------------------------------------------------

    def call(
        self, target: Any, args: tuple[Value, ...] | list[Value], kwargs: dict[str, Value] | None = None,
        is_method: bool = False,
    ) -> Value:
        """Add a node that calls `target` (a function, or a method name when `is_method`), and return its value.

        A call whose result is a plain Python value known from metadata alone leaves no node.
        """
        if not is_method and not is_operation(target):
            raise Unsupported(f"{label(target)} is none framejit knows to be safe to call while capturing", "FJ109")
        args = [*map(self._as_taken, args)]
        kwargs = {name: self._as_taken(value) for name, value in (kwargs or {}).items()}
        arithmetic = by_arithmetic(self, target, args, kwargs)
        if arithmetic is not None:
            return arithmetic
        args = [*with_sizes(self, target, args, kwargs)]
        node_args = tuple(a.argument_of(target) for a in args)
        node_kwargs = {k: v.argument_of(target) for k, v in kwargs.items()}
        tensors = {id(t.fake): t for t in _tensors_in((*args, *kwargs.values()))}
        if self.program.hands_over(tensors.values()):
            raise Unsupported(f"{label(target)} of a tensor whose class has a __torch_function__", "FJ141")
        self._look(name_of(target), tensors)
        self._check_copies(tensors.values(), name_of(target) in LOOKS_AT_PLACE)
        check_question(name_of(target), (t.fake for t in tensors.values()), node_args, "out" in node_kwargs)
        fakes = fx.node.map_arg((node_args, node_kwargs), lambda n: n.meta["val"])
        versions = {key: version_of(t.fake) for key, t in tensors.items()}
        uncounted = any(version < 0 for version in versions.values())
        # a backend may divide the graph here
        before = self.writes.versions() if self._may_end_a_part(target) else None
        self._look_at_masks(tensors)
        out = [(fake, size_keys(fake.shape)) for fake in tensors_in((fakes[1].get("out"),))]
        as_new = self._check_out(target, fakes, [fake for fake, _ in out])
        result = self.metadata.run(target, is_method, *fakes, note_writes=uncounted)
        if as_new is not None and as_new != [fake.stride() for fake, _ in out]:
            raise Unsupported(f"{label(target)} lays out what it is given by out= in an order that is not known")
        if result is NotImplemented:
            raise Unsupported(f"{target} is not implemented for these operands")
        strange = next((type(t) for t in _tensors_of(result) if not is_of_torch(module_of(type(t)))), None)
        if strange is not None:
            raise Unsupported(f"{label(target)} gives a tensor of the class {strange.__qualname__}", "FJ141")
        written = [t for key, t in tensors.items() if version_of(t.fake) != versions[key]]
        if uncounted:
            written += [
                t
                for key, t in tensors.items()
                if versions[key] < 0 and t.fake.untyped_storage()._cdata in self.metadata.written
            ]
        if not written:
            if not _has_tensor(result) and not (result is None and tensors):
                gave_no_tensors = type(result) in (tuple, list) and not result  # parts of a dimension of size 0
                if gave_no_tensors or is_answered_by_fakes(target, bool(tensors)):
                    return _plain(result)
                raise Unsupported(f"{label(target)} is none framejit knows to be safe to ask while capturing", "FJ109")
            if isinstance(result, torch.Tensor) and id(result) in tensors and target in _MAY_RETURN_SELF:
                return tensors[id(result)]
        if not torch.is_inference_mode_enabled() and uncounted:
            if written:
                raise Unsupported(f"{label(target)} writes into an inference tensor outside of inference mode")
            for made in _tensors_of(result):
                if not made.is_inference() and any(
                    t.fake.is_inference() and _shares(t.fake, made) for t in tensors.values()
                ):
                    raise Unsupported(f"{label(target)} gives a view of an inference tensor outside of inference mode")
        if written:
            storages = {t.fake.untyped_storage()._cdata for t in written}
            self._check_written(written, storages)
            check_written_views(self, written)
            for tensor in [*written, *self._inputs_in(storages, written)]:
                self.program.tensor_written(tensor)
        node = self._create_node(
            target, is_method, *fx.node.map_aggregate((node_args, node_kwargs), _as_graph_argument)
        )
        if before is not None or self._may_end_a_part(target):  # it finds the first size that data decides
            node.meta[VERSIONS] = self.writes.versions() if before is None else before
        self._note_writes(node, [t.fake for t in written])
        if name_of(target) in LAYS_OUT_ANEW:
            self.writes.tensor_moved()
        if any(size_keys(fake.shape) != sizes for fake, sizes in out):
            node.meta[RESIZED] = True
        return self._added(node, result, tensors)

    def _as_taken(self, value: Value) -> Value:
        """What torch takes an argument for: these numbers of numpy's are Python's own to it."""
        if isinstance(value, NumberValue) and value.python_type() in (np.float64, np.int64):
            return self.program.plain_number(value)
        return value

    def _inputs_in(self, storages: set[int], but: list[TensorValue]) -> list[TensorValue]:
        """The inputs whose memory is among these, in their order, apart from some."""
        nodes = {node for storage in storages for node in self.writes.results_in(storage) if node.op == "placeholder"}
        own = {*map(id, but)}
        found = [self.inputs[place] for place in sorted(self._places[node] for node in nodes)]
        return [tensor for tensor in found if id(tensor) not in own]

    def _may_end_a_part(self, target: Any) -> bool:
        return self.metadata.decided_by_data() or operation_name(target) in BETWEEN_PARTS

    def _create_node(self, target: Any, is_method: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        # `x.uniform_(**{"from": 0.0})`, which the code of a graph module can't write
        if any(keyword.iskeyword(name) for name in kwargs):
            name = target if is_method else getattr(target, "__name__", "")
            if not is_method and getattr(torch.Tensor, name, None) is not target:
                raise Unsupported(f"{label(target)} is called with a keyword that is one of Python's own", "FJ120")
            return self.graph.call_function(call_method_with, (name, args, kwargs))
        return self.graph.create_node("call_method" if is_method else "call_function", target, args, kwargs)

    def _look(self, name: str, tensors: dict[int, TensorValue]) -> None:
        """Before an operation: what it is going to know or do of its tensors beyond their fakes."""
        if name in LAYS_OUT_ANEW and any(
            t.source is not None and t.fake._has_symbolic_sizes_strides for t in tensors.values()
        ):
            # symbolic sizes are read from the inputs, wherever they are needed
            raise Unsupported(f"Tensor.{name}() of an input whose sizes are not assumed")
        if name == "detach_":  # a change that is counted nowhere
            for tensor in tensors.values():
                if tensor.source is not None and not tensor.fake.requires_grad:
                    # a view raises; which of those without a history are views is not guarded
                    raise Unsupported(f"detach_() of {tensor.describe()}, which may be a view")
                self.program.tensor_written(tensor)
        if name in LOOKS_AT_PLACE:
            storages = {t.fake.untyped_storage()._cdata for t in tensors.values()}
            for known, example in zip(self.inputs, self.examples):
                if known.fake.untyped_storage()._cdata in storages:
                    if known.fake.storage_offset() != example.storage_offset():
                        raise Unsupported(
                            f"{name}() of {known.describe()}, which does not begin where its storage does"
                        )
                    self.program.guard_place(known)

    def _look_at_masks(self, tensors: dict[int, TensorValue]) -> None:
        """Before an operation that may find sizes in masks: which of these select the same places."""
        sizes = self.metadata.data_sizes
        if sizes is None or not self.metadata.finds_sizes():
            return
        for tensor in tensors.values():
            if tensor.fake.dtype is torch.bool:
                first = first_alike(tensor.node, self.writes)
                sizes.stands_for(tensor.fake, None if first is None else first.meta["val"])

    def _check_out(
        self, target: Any, fakes: tuple[tuple[Any, ...], dict[str, Any]], out: list[torch.Tensor]
    ) -> list[tuple[Any, ...]] | None:
        """Before an operation with `out=`: that it does not have to change the shape of what it reads. Most operations
        refuse that, but only once they have done it, and fakes don't. Of what has no elements yet the strides that its
        new ones are to have: those of new results, which fakes don't know of all operations."""
        args, kwargs = fakes[0], {name: value for name, value in fakes[1].items() if name != "out"}
        read = {storage_of(fake) for fake in tensors_in((*args, *kwargs.values()))}
        is_read, is_empty = any(storage_of(fake) in read for fake in out), any(fake.numel() == 0 for fake in out)
        if not is_read and not is_empty:
            return None
        made = [*tensors_in((self.metadata.run(target, False, args, kwargs),))]
        if [size_keys(fake.shape) for fake in made] == [size_keys(fake.shape) for fake in out]:
            return None
        if is_read:
            raise Unsupported(f"{label(target)} gives what it reads another shape, by out=")
        return [fake.stride() for fake in made]

    def _check_copies(self, tensors: Iterable[TensorValue], looks_at_place: bool) -> None:
        """Before an operation: whether copies among its tensors still are what the program has."""
        for tensor in tensors:
            if tensor.copy_of is not None and (tensor.copy_of.is_stale or looks_at_place):
                tensor.copy_of.refuse()

    def _check_written(self, written: list[TensorValue], storages: set[int]) -> None:
        for tensor in written:
            if tensor.copy_of is not None:
                tensor.copy_of.refuse()
        for copy in self.copies:
            copy.note_written(storages)

    def add(self, target: Any, args: tuple[fx.Node, ...], result: Any) -> Value:
        """Add a node whose result on fakes is known, tensors that are none of its arguments."""
        node = self.graph.call_function(target, args)
        if isinstance(target, OpaqueCall):
            self._note_versions(node)
        return self._added(node, result, {})

    def add_gradients(self, args: tuple[Any, ...], options: dict[str, Any], result: tuple[Any, ...]) -> Value:
        """Add a node for a call of `torch.autograd.grad`, whose result on fakes is known."""
        node = self.graph.call_function(torch.autograd.grad, args, options)
        self._note_versions(node)
        return self._added(node, result, {})

    def _note_versions(self, node: fx.Node) -> None:
        """Note which versions tensors have before a node that a graph may be divided at. What is not in it is as when
        it was made."""
        node.meta[VERSIONS] = self.writes.versions()

    def _note_result(self, node: fx.Node, result: Any) -> None:
        note_result(node, result)
        self.writes.add_result(node)

    def _note_writes(self, node: fx.Node, written: list[torch.Tensor]) -> None:
        node.meta["written"] = written
        self.writes.add_write(node, written_by(node))

    def _added(self, node: fx.Node, result: Any, tensors: dict[int, TensorValue]) -> Value:
        node.meta["stack_trace"] = self.program.user_stack_text()
        node.meta["place"] = self.program.user_place()
        origin = self.program.user_origin()
        if origin is not None:
            self.origins[node] = origin
        self.n_ops += 1
        value = self._wrap(result, node, tensors)
        if self.cuts_for and not self.is_apart:
            cut_early(self, node, value)
        return value

    @contextlib.contextmanager
    def taken_out(self) -> Iterator[None]:
        """The nodes made in the block are going to be taken out of the graph, and may not run at all: what they check
        is not checked by them."""
        checks, self.finite_checks = self.finite_checks, {}
        self._n_taken_out += 1
        try:
            yield
        finally:
            self.finite_checks = checks
            self._n_taken_out -= 1

    def step_of(self, node: fx.Node) -> int | None:
        """The step of the capture that made a node."""
        origin = self.origins.get(node)
        return None if origin is None else origin.seq

    @property
    def is_apart(self) -> bool:
        """Whether the nodes that are made are going to be taken out of the graph."""
        return self._n_taken_out > 0

    # ---- nodes once more ------------------------------------------------------------------

    def last_node(self) -> fx.Node:
        """The node that the next one will come behind."""
        return self.graph._root._prev

    def nodes_behind(self, node: fx.Node) -> list[fx.Node]:
        """The nodes behind one, without inputs."""
        found: list[fx.Node] = []
        while (node := node._next) is not self.graph._root:
            if node.op != "placeholder":
                found.append(node)
        return found

    def stamp(
        self, nodes: list[fx.Node], taken: dict[fx.Node, fx.Node], given: set[fx.Node], later: int,
        history: StampedHistory,
    ) -> dict[fx.Node, fx.Node] | None:
        """Add nodes once more, with others in the place of some that they take, `later` steps behind the first; by the
        old nodes the new ones. `given`: those of them that something else may come to see. `history`: that of these
        nodes. None, and nothing is added, if their results come out otherwise."""
        fakes = {old: new.meta["val"] for old, new in taken.items()}
        again = _worked_out_again(nodes, {old for old, new in taken.items() if old is not new}, given)
        if self.wants_gradients:
            ends = None if self.needs_histories else history.ends(again, given)
            made_ends = None if ends is None else history.made(ends, fakes, self.metadata.mode)
            if ends is None or made_ends is None:
                again = {*nodes}
            else:
                self.has_stamped_histories = self.has_stamped_histories or bool(made_ends)
                fakes.update(zip(ends.nodes, made_ends))
        for node in nodes:
            if node not in fakes:
                fakes[node] = self._result_again(node, fakes) if node in again else node.meta["val"]
            if node in again and not _is_same_kind(fakes[node], node.meta["val"]):
                return None
        made: dict[fx.Node, fx.Node] = {}

        def new(node: fx.Node) -> fx.Node:
            return made.get(node) or taken.get(node, node)

        for node in nodes:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), new)
            added = made[node] = self.graph.create_node(node.op, node.target, args, kwargs)
            added.meta = dict(node.meta)
            origin = self.origins.get(node)
            if origin is not None:
                self.origins[added] = Origin(origin.seq + later, origin.code, origin.position)
            if node in again:
                self._note_result(added, fakes[node])
                for fake in _tensors_of(fakes[node]):
                    self._made_in_inference.setdefault(fake.untyped_storage()._cdata, fake.is_inference())
            else:
                self.writes.add_result(added)
        self.layers.append(Layer(nodes, list(made.values())))
        return made

    def _result_again(self, node: fx.Node, fakes: dict[fx.Node, Any]) -> Any:
        args: Any
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: fakes[n] if n in fakes else n.meta["val"])
        if node.target is operator.getitem and not isinstance(args[0], torch.Tensor):
            return args[0][args[1]]
        return self.metadata.run(node.target, node.op == "call_method", args, kwargs)

    def make_leaf(self, tensor: TensorValue) -> None:
        """A node for `tensor.requires_grad_()`, of a tensor that was made here: what knows it so far knows it without
        gradients."""
        with self.metadata.faking(), torch.no_grad():
            before = as_it_was(tensor.fake)
        try:
            tensor.fake.requires_grad_()
        except RuntimeError as e:
            raise Unsupported(f"Tensor.requires_grad_() raises {str(e).splitlines()[0]}", "FJ104") from None
        tensor.node.meta["val"] = tensor.node.meta["example_value"] = before
        node = self.graph.call_method("requires_grad_", (tensor.proxy(),))
        node.meta["written"] = list[torch.Tensor]()
        self._note_versions(node)
        self._note_result(node, tensor.fake)
        self._added(node, None, {})
        tensor.node = node

    def replace_data(self, tensor: TensorValue, data: TensorValue) -> None:
        """A node for `tensor.data = data`: from here on the tensor is another view of the memory of `data`."""
        memory = tensor.fake.untyped_storage(), data.fake.untyped_storage()
        with self.metadata.faking():
            torch.Tensor.data.__set__(tensor.fake, data.fake)  # type: ignore[attr-defined]
        self.program.tensor_written(tensor)
        call = OpaqueCall(_set_data, "set_data", "it gives a tensor the memory of another", "set_data")
        node = self.graph.call_function(call, (tensor.proxy(), data.proxy()))
        node.meta[EXCHANGED] = memory
        self._note_versions(node)
        self._note_writes(node, [tensor.fake])
        self.writes.tensor_moved()
        self._added(node, None, {})

    def number_in(self, tensor: TensorValue, stand_in: float | torch.SymInt) -> fx.Node:
        """A node that reads the number in a tensor; fakes are given `stand_in`."""
        node = self.graph.call_method("item", (tensor.proxy(),))
        node.meta["val"] = stand_in
        return node

    def size_in(self, tensor: TensorValue, size: torch.SymInt) -> fx.Node:
        """A node that reads a size from a tensor; the graph raises for a number that is none, and plain Python goes
        on."""
        is_size = self.call(torch.ge, [tensor, ConstantValue(0)])
        self.call(torch._assert_async, [is_size, ConstantValue("a number that data decides is negative")])
        return self.number_in(tensor, size)

    def state_change(self, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """A node that changes the thread's torch state (grad mode, autocast) when the graph runs."""
        self.metadata.forget_results()
        node = self.graph.call_function(target, args)
        node.meta["stack_trace"] = self.program.user_stack_text()
        if self.wants_gradients or self.metadata.finds_sizes() or self.metadata.decided_by_data():
            self._note_versions(node)
        return node

    def _wrap(self, result: Any, node: fx.Node, tensors: dict[int, TensorValue]) -> Value:
        if isinstance(result, torch.Tensor):
            self._note_result(node, result)
            known = tensors.get(id(result))
            if known is not None:  # in-place: the result is the argument itself
                return known
            value = TensorValue(node, result, torch.Tensor if type(result).__name__ == "FakeTensor" else type(result))
            value.copy_of = next(
                (t.copy_of for t in tensors.values() if t.copy_of is not None and _shares(t.fake, result)), None
            )
            if self.metadata.data_sizes is not None:
                self.metadata.data_sizes.found_in(result, value)
            tensors[id(result)] = value
            if result.requires_grad and result.is_leaf:
                self.leaves.append(value)
            self._made_in_inference.setdefault(result.untyped_storage()._cdata, result.is_inference())
            return value
        if isinstance(result, (tuple, list)):
            items: list[Value] = []
            for i, part in enumerate(result):
                if isinstance(part, torch.Tensor) and id(part) in tensors:
                    items.append(tensors[id(part)])
                elif isinstance(part, (torch.Tensor, tuple, list)):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["stack_trace"], item.meta["place"] = node.meta.get("stack_trace"), node.meta.get("place")
                    items.append(self._wrap(part, item, tensors))
                else:
                    items.append(_plain(part))
            node.meta["val"] = node.meta["example_value"] = result
            return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
        return _plain(result)

    # ---- state for restarts and breaks -----------------------------------------------------

    def close(self) -> None:
        """Let go of the program's tensors, and of what only a capture asks."""
        self.examples.clear()
        self._places.clear()
        self.writes.close()

    def finish(self, outputs: list[TensorValue]) -> tuple[fx.GraphModule, list[TensorValue], list[torch.Tensor]]:
        """Close the graph: its module, the inputs that are used, and example inputs in that order."""
        self.graph.output(tuple(o.node for o in outputs))
        _drop_dead_views(self.graph)
        used, examples = [], []
        for value, node, example in zip(self.inputs, self.placeholders, self.examples):
            if node.users:
                used.append(value)
                examples.append(example)
            else:
                self.graph.erase_node(node)
        note_layers(self.graph, self.layers)
        return graph_module(self.graph), used, examples


def _drop_dead_views(graph: fx.Graph) -> None:
    """Remove unused item reads of multi-output nodes; operations stay, for they may draw random numbers or write."""
    for node in reversed(list(graph.nodes)):
        if (
            node.op == "call_function"
            and not node.users
            and node.target is operator.getitem
            and not isinstance(node.args[1], fx.Node)
            and isinstance(node.args[0], fx.Node)
            and isinstance(node.args[0].meta.get("val"), (tuple, list))
        ):
            graph.erase_node(node)


# What torch takes a Python type for where it wants a dtype. The code of a graph module can't name a type.
_DTYPE_OF_TYPE = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


_PLAIN_ARGUMENTS = (
    fx.Node, str, int, float, complex, bytes, range, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.qscheme, torch.SymInt,
)

_EXACT: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__, float: float.__pos__, complex: complex.__pos__, str: str.__str__,
}
"""What makes a plain one of an instance of a subclass, whose `repr` may be no literal (a flag of an enum)."""


def _as_graph_argument(argument: Any) -> Any:
    """The argument in a form that the code of a graph module can write down."""
    if isinstance(argument, type) and argument in _DTYPE_OF_TYPE:
        return _DTYPE_OF_TYPE[argument]
    if type(argument) is type(torch.FloatTensor):
        return f"{argument.__module__}.{argument.__name__}"
    if isinstance(argument, complex) and not math.isfinite(argument.imag):
        raise Unsupported(f"{argument} as an argument of a tensor operation: Python has no literal for it", "FJ120")
    for cls, exact in _EXACT.items():
        if isinstance(argument, cls) and type(argument) not in (cls, bool):
            return exact(argument)
    if argument is None or argument is ... or isinstance(argument, _PLAIN_ARGUMENTS):
        return argument
    raise Unsupported(f"an object of type {type(argument).__name__} as an argument of a tensor operation", "FJ120")


def _set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.data = data


def call_method_with(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call of a method of tensors with keywords that are Python's own."""
    return getattr(args[0], name)(*args[1:], **kwargs)


def _plain(obj: Any) -> Value:
    if isinstance(obj, str) and "FakeTensor" in obj:
        raise Unsupported("the text of a tensor", "FJ101")
    return from_python(obj)


def _worked_out_again(nodes: list[fx.Node], replaced: set[fx.Node], given: set[fx.Node]) -> set[fx.Node]:
    """Which nodes need results of their own when they are stamped out: those that lie in one memory with what others
    take the place of, or with what is given on. The rest is seen by these nodes alone, and the first one's fakes say of
    it what there is to say."""
    seen = {
        fake.untyped_storage()._cdata for node in (*replaced, *given) for fake in _tensors_of(node.meta["val"])
    }
    return {
        node
        for node in nodes
        if any(fake.untyped_storage()._cdata in seen for fake in _tensors_of(node.meta["val"]))
    }


def _is_same_kind(a: Any, b: Any) -> bool:
    """Whether two results on fakes are of the same sizes, strides and dtypes."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and (a.dtype, a.shape, a.stride(), a.requires_grad) == (b.dtype, b.shape, b.stride(), b.requires_grad)
        )
    return type(a) is type(b) and isinstance(a, (tuple, list)) and len(a) == len(b) and all(map(_is_same_kind, a, b))


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from _tensors_of(part)


def _has_tensor(tree: Any) -> bool:
    return next(_tensors_of(tree), None) is not None


def _tensors_in(values: tuple[Value, ...]) -> list[TensorValue]:
    found: list[TensorValue] = []
    for v in values:
        if isinstance(v, TensorValue):
            found.append(v)
        else:
            found.extend(_tensors_in(tuple(v.children())))
    return found


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    # the first parameter of a graph's code is its module, under this name
    return text if text and not text[0].isdigit() and text != "self" else f"input_{text}"
