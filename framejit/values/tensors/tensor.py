"""Tensors: a graph node, the fake that carries its metadata, and maybe a source."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from framejit import _native as native
from framejit.fakes.metadata import can_be_symbolic, has_fakes, has_names
from framejit.guards.plain_text import module_of
from framejit.guards.sources import AttrSource, CallSource, DictSource, key_source, static_lookup
from framejit.signals import NotYet, Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue, SliceValue, is_none
from framejit.values.containers.iterator_values import IteratorValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import Handler
from framejit.values.inspection import instance_dict, is_a, is_of_torch
from framejit.values.lazy import LazyValue, OpaqueValue, wrap_attribute
from framejit.values.objects.classes import ClassValue, is_finalized
from framejit.values.objects.functions.bound_descriptor import BoundDescriptor
from framejit.values.objects.user_object import bind_attribute, is_data_descriptor
from framejit.values.tensors.gradients.shared_histories import check_late_view
from framejit.values.tensors.override_state import Method, ReadPlainly, has_override
from framejit.values.tensors.size_index import selected
from framejit.values.tensors.tensor_classes import dispatches_as_torch_does, own_attribute, own_description
from framejit.values.wrap import from_python, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame
    from framejit.values.tensors.copies import Copy
    from framejit.values.tensors.gradients.cuts import HistoryCut
    from framejit.values.tensors.gradients.requires_grad import Toggled

# Attributes that metadata answers; anything else that is no method is read in the graph.
KNOWN_FROM_METADATA = frozenset(
    """
    shape dtype device layout ndim requires_grad itemsize nbytes is_cuda is_cpu is_mps is_xpu is_meta is_sparse
    is_sparse_csr is_quantized is_nested is_mkldnn is_leaf names is_mtia is_ipu is_xla is_maia is_vulkan output_nr
""".split()
)
READ_IN_GRAPH = frozenset("T mT H mH real imag data".split())

# Methods that need the data, with the finding and the advice.
NEEDS_DATA = {
    "item": ("FJ101", "keep the number as a tensor, or compute it outside the compiled function"),
    "tolist": ("FJ101", "work on the tensor itself, or call .tolist() outside the compiled function"),
    "numpy": ("FJ105", "use torch operations in place of numpy's"),
    "__bool__": ("FJ106", "use torch.where, or torch.cond for larger branches"),
    "__int__": ("FJ101", "keep the number as a tensor"),
    "__float__": ("FJ101", "keep the number as a tensor"),
    "__index__": ("FJ101", "index with the tensor itself"),
    "__complex__": ("FJ101", "keep the number as a tensor"),
    "__array__": ("FJ105", "use torch operations in place of numpy's"),
    "__contains__": ("FJ106", "use (tensor == value).any() and torch.where"),
}
_GUARDED_DIMENSIONS: Final = 64
"""No guard compares more sizes (native/torch/tensor_spec.c)."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_OF_CONTENT = frozenset(("item", "tolist", "__bool__", "__int__", "__float__", "__index__"))
OUTSIDE_GRAPHS = frozenset(
    """
    backward register_hook register_post_accumulate_grad_hook retain_grad data_ptr untyped_storage storage
    share_memory_ __reduce_ex__ __deepcopy__ set_ resize_ resize_as_ __cuda_array_interface__ pin_memory
    _backward_hooks grad_fn __hash__ __repr__ __str__ __format__ __reduce__ __setstate__ __dlpack__ __dlpack_device__
    share_memory as_subclass is_shared is_pinned _is_view _typed_storage storage_type module_load
""".split()
)

TRUE = ConstantValue(True)
_ABSENT = object()

METHODS: dict[str, Handler] = {}
"""Methods that give something else than tensors, which registers itself here; None where the arguments are such that
they don't."""


class TensorValue(Value):
    """A tensor: an input of the graph or the result of a node, with the fake that has its metadata. `cls` is its class
    in the program."""

    mutable = True

    def __init__(self, node: fx.Node, fake: torch.Tensor, cls: type, source: Source | None = None) -> None:
        self.node, self.fake, self.cls, self.source = node, fake, cls, source
        self.attrs: dict[str, Value] = {}
        """What the captured code hung on it."""
        self.made_as: tuple[int, int] | None = None
        """For a tensor of a program's class that captured code made: the step that did, and the version it had."""
        self.gave_up_gradient: int | None = None
        """The step of the capture at which captured code has let go of the gradient that it had before."""
        self.copy_of: Copy | None = None
        """For what stands for other memory: what it is a copy of."""
        self.toggled: Toggled | None = None
        """For what existed before, and captured code has frozen or thawed: what stands for it in either state."""
        self.cut: HistoryCut | None = None
        """Where hooks of its gradients have cut off its history."""

    def identity(self) -> torch.Tensor:
        self._check_no_copy("the identity of a tensor")
        return self.fake if self.cut is None else self.cut.made[0].fake

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        where = f" {self.source.name()!r}" if self.source is not None else ""
        return f"tensor{where} ({str(self.fake.dtype).removeprefix('torch.')}{list(self.fake.shape)})"

    def proxy(self) -> Any:
        self._check_alive()
        return self.node

    def _check_no_copy(self, what: str) -> None:
        """Break where something is asked for that is not the same for a copy."""
        if self.copy_of is not None:
            raise Unsupported(f"{what}, which the graph has a copy of", "FJ107")

    def _check_alive(self) -> None:
        if self.node._erased:  # it was made in a nested graph, by a function that hid it somewhere
            raise Unsupported("a tensor from inside a function that torch transforms, or calls later", "FJ129")

    # ---- attributes -----------------------------------------------------------------------

    def getattr(self, frame: Frame, name: str) -> Value:
        own = own_attribute(self.cls, name)
        hung = None if is_of_torch(module_of(self.cls)) else self._hung(frame, name)
        if hung is not None:
            return hung
        if own is not None:
            return bind_attribute(frame, own, self, self.cls, name)
        if name in self.attrs:
            return self.attrs[name]
        found = frame.attribute_of_override(self, name)
        return self.torch_getattr(frame, name) if found is None else found

    def _stays_leaf(self, real: torch.Tensor) -> bool:
        """Whether an input is a leaf and stays one whatever was written into it: without gradients every tensor is, and
        into a leaf that wants some nothing is written that has a history. Of a view torch may refuse to say it."""
        if real._is_view() or not real.is_leaf:
            return False
        return not self.fake.requires_grad or real.requires_grad and self.fake.is_leaf

    def torch_getattr(self, frame: Frame, name: str) -> Value:
        """The attribute that torch has under this name, whatever the class of the tensor has."""
        if name in ("is_leaf", "output_nr", "grad", "grad_fn") and self.fake.requires_grad:
            self._check_no_copy(f"attribute {name!r} of a tensor")
            if self.cut is not None:
                return self._of_cut(self.cut, name)
        if name in KNOWN_FROM_METADATA:
            if name in ("is_leaf", "output_nr") and self.source is not None:
                real = frame.capture.real_object(self)
                is_written = id(self) in frame.capture.effects.written_tensors
                if is_written and not (name == "is_leaf" and self._stays_leaf(real)):
                    raise Unsupported(f"attribute {name!r} of a tensor that was written into", "FJ107")
                return frame.wrap(getattr(real, name), self._attribute_source(self.source, name))
            return self._metadata(frame, name)
        if name in READ_IN_GRAPH:
            return frame.capture.graph.call(getattr, [self, from_python(name)])
        if name == "__class__":
            return from_python(self.cls)
        if name == "grad" and self._keeps_gradient(frame):
            if self.source is None:
                return NONE  # nobody has given it one
            return LazyValue(frame.capture.real_object(self).grad, self._attribute_source(self.source, "grad"))
        needs_no_gradient = not self.fake.requires_grad
        if name == "grad_fn" and (needs_no_gradient or id(self) not in frame.capture.effects.written_tensors):
            known = self.source is None or needs_no_gradient
            if self._told("is_leaf") if known else self.torch_getattr(frame, "is_leaf").constant():
                return NONE
        if name in OUTSIDE_GRAPHS:
            if callable(getattr(torch.Tensor, name, None)):
                return TensorMethodValue(self, name)
            raise Unsupported(f"attribute {name!r} of a tensor", "FJ107")
        attribute = static_lookup(self.cls, name, _ABSENT)
        if attribute is None:
            return NONE
        if attribute is not _ABSENT:  # else it may yet be one of the metaclass
            attribute = getattr(self.cls, name, None)
        if callable(attribute):
            return TensorMethodValue(self, name)
        if attribute is not _ABSENT:
            raise Unsupported(f"attribute {name!r} of a tensor", "FJ107")
        if self.copy_of is not None and not self.lacks(frame, name):
            self._check_no_copy(f"attribute {name!r} of a tensor")
        if self.source is not None:  # an attribute someone hung on this very tensor
            real = frame.capture.real_object(self)
            if name in getattr(real, "__dict__", {}):
                return wrap_attribute(real.__dict__[name], self.source, name)
            frame.capture.guard_no_attribute(self.source, name)
        fallback = own_attribute(self.cls, "__getattr__")
        if fallback is not None:
            return bind_attribute(frame, fallback, self, self.cls, "__getattr__").call(frame, [ConstantValue(name)], {})
        raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")

    def _of_cut(self, cut: HistoryCut, name: str) -> Value:
        """What torch has under this name, where another leaf stands for this tensor."""
        if name == "is_leaf":
            return ConstantValue(False)
        if name == "grad" and cut.keeps_gradient:
            return cut.gradient
        raise Unsupported(f"attribute {name!r} of a tensor that is no leaf", "FJ107")

    def _hung(self, frame: Frame, name: str) -> Value | None:
        """What somebody hung on this very tensor in the place of what its class has; None where nobody did, or where
        the class's comes first."""
        static = static_lookup(self.cls, name, None)
        if static is None or is_data_descriptor(static):
            return None
        if name in self.attrs:
            return self.attrs[name]
        candidates = [self] if self.copy_of is None else self.copy_of.candidates or []
        for tensor in candidates:
            if tensor.source is None:
                continue
            held, where = instance_dict(frame.capture.real_object(tensor)), DictSource(tensor.source)
            if held is not None and name in held:
                self._check_no_copy(f"attribute {name!r} of a tensor")
                return LazyValue(held[name], key_source(where, name))
            frame.capture.add_guard(where, native.C_NO_KEY, name)
        return None

    def lacks(self, frame: Frame, name: str) -> bool:
        """Whether nobody has hung an attribute on this very tensor; guarded. Of a copy, on any that it may stand
        for."""
        if name in self.attrs:
            return False
        if self.copy_of is not None:
            candidates = self.copy_of.candidates
            return candidates is not None and all(tensor.lacks(frame, name) for tensor in candidates)
        if self.source is not None:
            if name in getattr(frame.capture.real_object(self), "__dict__", {}):
                return False
            frame.capture.guard_no_attribute(self.source, name)
        return True

    def is_leaf(self, frame: Frame) -> bool:
        """Whether autograd has it as a leaf, where gradients end."""
        # parameters are leaves
        if self.source is not None and self.fake.requires_grad and not issubclass(self.cls, torch.nn.Parameter):
            real = frame.capture.real_object(self)
            if not frame.wrap(real.is_leaf, self._attribute_source(self.source, "is_leaf")).constant():
                return False
        return bool(self._told("is_leaf"))

    def _keeps_gradient(self, frame: Frame) -> bool:
        """Whether gradients are kept for it; where they are not, torch warns of asking for one, at the program's own
        line."""
        if not self.is_leaf(frame):
            raise Unsupported("attribute 'grad' of a tensor that is no leaf", "FJ107")
        return self.source is not None or self.cls in (torch.Tensor, torch.nn.Parameter) and self.copy_of is None

    def gradient_source(self) -> Source | None:
        """Where its gradient is read again."""
        return None if self.source is None else self._attribute_source(self.source, "grad")

    def _attribute_source(self, source: Source, name: str) -> Source:
        """Where an attribute that torch keeps is read again: without the program's code, which a guard must not run."""
        return CallSource(source, ReadPlainly(name)) if has_override(self.cls) else AttrSource(source, name)

    def _metadata(self, frame: Frame, name: str) -> Value:
        if name == "nbytes":  # which torch does not compute with symbols
            return from_python(self.fake.numel() * self.fake.itemsize)
        if not hasattr(self.cls, name):  # as of versions of torch that have it no more
            raise frame.raised(AttributeError, f"{native.type_name(self.cls)!r} object has no attribute {name!r}")
        if name == "names":  # what has any is no value of this kind, and fakes do not tell
            return from_python((None,) * self.fake.dim())
        return from_python(self._told(name))

    def _told(self, name: str) -> Any:
        """What torch tells of the fake; it refuses to look for the history of a view that was made without gradients,
        once that is written."""
        try:
            return getattr(self.fake, name)
        except RuntimeError as e:
            raise Unsupported(
                f"attribute {name!r} of a tensor, which raises {str(e).partition('.')[0]!r}", "FJ107"
            ) from None

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if frame.capture.overrides.modes:
            raise Unsupported(f"setting attribute {name!r} of a tensor under a function mode", "FJ141")
        self._check_no_copy(f"setting attribute {name!r} of a tensor")
        if name == "requires_grad" and value is not None and value.is_constant():
            self.call_method(frame, "requires_grad_", [value], {})
            return
        if name == "grad" and value is not None and self._takes_gradient(realize(frame, value)):
            frame.capture.effects.changed(self)
            self.attrs[name] = realize(frame, value)
            if self.source is not None and is_none(self.attrs[name]) and self.gave_up_gradient is None:
                self.gave_up_gradient = frame.capture.seq
            return
        if name == "data" and value is not None and own_attribute(self.cls, name) is None:
            self._set_data(frame, realize(frame, value))
            return
        if value is None or name in self.attrs and self.attrs[name] is value:
            raise Unsupported(f"deleting attribute {name!r} of a tensor", "FJ107")
        custom = (
            own_attribute(self.cls, name) is not None
            or static_lookup(self.cls, "__setattr__") is not object.__setattr__
        )
        if (
            custom
            or hasattr(torch.Tensor, name)
            or name.startswith("__")
            or self.cls is not torch.Tensor
            and not self.cls.__dictoffset__
        ):
            raise Unsupported(f"setting attribute {name!r} of a tensor", "FJ107")
        frame.capture.effects.changed(self)
        self.attrs[name] = value

    def _takes_gradient(self, value: Value) -> bool:
        """Whether this surely takes `value` for its gradient; torch has a say in all else."""
        is_known = self.source is not None or self.fake.is_leaf and self.cut is None
        if not is_known or self.cls not in (torch.Tensor, torch.nn.Parameter) or value is self:
            return False
        if is_none(value):
            return True
        if (
            not isinstance(value, TensorValue)
            or value.cls is not torch.Tensor
            or value.fake.is_inference()
            or self.fake.is_inference()
        ):
            return False
        mine, given = self.fake, value.fake
        alike = (mine.dtype, mine.device, mine.layout) == (given.dtype, given.device, given.layout)
        return alike and mine.dim() == given.dim() and mine.shape == given.shape

    def _set_data(self, frame: Frame, data: Value) -> None:
        """`self.data = data`, which is done when the graph runs; left to Python where torch may refuse it."""
        plain = (torch.Tensor, torch.nn.Parameter)
        if (
            not isinstance(data, TensorValue)
            or self.cls not in plain
            or data.cls not in plain
            or self.fake.is_inference()
            or data.fake.is_inference()
        ):
            raise Unsupported("setting attribute 'data' of a tensor", "FJ107")
        if data is self:
            return
        mine, given = ((t.dtype, t.device, t.layout) for t in (self.fake, data.fake))
        memory = self.fake.untyped_storage()._cdata
        is_inputs = any(memory == known.fake.untyped_storage()._cdata for known in frame.capture.graph.inputs)
        if (
            mine != given
            or self.fake.layout is not torch.strided
            or is_inputs
            and (self.fake._has_symbolic_sizes_strides or data.fake._has_symbolic_sizes_strides)
        ):
            raise Unsupported(
                "setting attribute 'data' of a tensor to one of another kind, or of sizes that are not assumed", "FJ107"
            )
        frame.capture.graph.replace_data(self, data)

    def children(self) -> Iterator[Value]:
        held = iter(self.attrs.values())
        return held if self.cut is None else chain(held, self.cut.children())

    def replay(self, cg: Codegen) -> None:
        if self.toggled is not None:
            self.toggled.check(cg)
        for name, value in self.attrs.items():
            cg.load(value)
            cg.load(self)
            cg.em.op("STORE_ATTR", name)

    @property
    def is_plain(self) -> bool:
        """Whether it is an output of the graph as it is."""
        is_as_made = not self.attrs and self.copy_of is None and self.cut is None
        return is_as_made and (self.source is not None or is_of_torch(module_of(self.cls)))

    # ---- methods ----------------------------------------------------------------------------

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        own = own_attribute(self.cls, name)
        if own is not None:
            return bind_attribute(frame, own, self, self.cls, name).call(frame, args, kwargs)
        return self.torch_method(frame, name, args, kwargs)

    def known_result(self, frame: Frame) -> torch.Tensor | None:
        """What it holds, where that follows from constants alone."""
        if self.cls is not torch.Tensor or self.copy_of is not None or frame.capture.transforms:
            return None
        return frame.capture.graph.known_result(self)

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return (
            super().c_method(frame, name, static, args, kwargs)
            if static is None
            else self.torch_method(frame, name, args, kwargs)
        )

    def torch_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call the method that torch has under this name, whatever the class of the tensor has."""
        if name == "as_subclass" and len(args) == 1 and not kwargs and isinstance(args[0], ClassValue):
            return as_subclass(frame, self, args[0].cls)
        made = frame.handed_over(Method(name), [self, *args], kwargs)
        if made is not None:
            return made
        if name in _OF_CONTENT and not args and not kwargs:
            known = self.known_result(frame)
            if known is not None and (name == "tolist" or known.numel() == 1):
                try:
                    return from_python(getattr(known, name)())
                except (TypeError, ValueError, OverflowError) as e:  # an int of what is none
                    raise frame.raised_from(e) from None
        special = METHODS.get(name)
        found = special(frame, [self, *args], kwargs) if special is not None else None
        if found is not None:
            return found
        if name in NEEDS_DATA and not _folds(self, name):
            code, hint = NEEDS_DATA[name]
            label = {"__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__contains__": "'in'"}.get(
                name, f".{name}()"
            )
            raise Unsupported(f"{label} of a tensor needs its data", code, hint)
        if name in OUTSIDE_GRAPHS:
            raise Unsupported(f"Tensor.{name}() runs outside graphs", "FJ107")
        if name == "is_inference" and not args and not kwargs:
            return ConstantValue(frame.capture.graph.is_inference(self))
        if name == "__len__":
            if self.fake.dim() == 0:
                raise frame.raised(TypeError, "len() of a 0-d tensor")
            return from_python(self.fake.shape[0])
        if name == "__iter__" and not args and not kwargs:
            return super().iterator(frame)
        args = deep_realize(frame, args)
        if name == "new" and len(args) == 1 and args[0].python_type() is torch.Size:
            # nodes know no torch.Size, and of a tuple new() would take the numbers as data
            name, args = "new_empty", [TupleValue(list(frame.iterate(args[0])))]
        if name in ("__getitem__", "__setitem__"):
            args[0] = self._integer_index(_with_known_bounds(frame, args[0]))
            part = selected(frame, self, args[0]) if args[0].symbolic else None
            if part is not None and name == "__getitem__":
                return part
            if part is not None:
                frame.capture.graph.call(operator.setitem, [part, ConstantValue(Ellipsis), *args[1:]])
                return NONE
        if name == "__setitem__":
            frame.capture.graph.call(operator.setitem, [self, *args])
            return NONE
        if name == "__getitem__":
            return frame.capture.graph.call(operator.getitem, [self, *args])
        if own_attribute(self.cls, name) is not None:  # asked for through super()
            return frame.torch_call(getattr(torch.Tensor, name), [self, *args], kwargs)
        return frame.torch_call(name, [self, *args], kwargs, is_method=True)

    def _integer_index(self, key: Value) -> Value:
        """A list of bools as the list of the positions it selects, so that the shape of the result is known."""
        if (
            not isinstance(key, ListValue)
            or not key.items
            or not all(isinstance(i, ConstantValue) and type(i.value) is bool for i in key.items)
            or self.fake.dim() == 0
            or len(key.items) != self.fake.shape[0]
        ):
            return key
        return ListValue([ConstantValue(n) for n, item in enumerate(key.items) if item.constant()])

    def truth(self, frame: Frame) -> bool:
        return bool(self.call_method(frame, "__bool__", [], {}).constant())

    def iterate(self, frame: Frame) -> Iterator[Value]:
        if own_attribute(self.cls, "__iter__") is not None:
            return frame.drain(frame.get_iter(self))
        if frame.capture.overrides.modes or has_override(self.cls) and frame.capture.overrides.enabled:
            # which is asked for its length, too, or not
            raise Unsupported("all items of a tensor whose class has a __torch_function__", "FJ141")
        if self.fake.dim() == 0:
            raise frame.raised(TypeError, "iteration over a 0-d tensor")
        return frame.capture.graph.call("unbind", [self], is_method=True).iterate(frame)

    def iterator(self, frame: Frame) -> Value:
        if own_attribute(self.cls, "__iter__") is not None:
            own = self.call_method(frame, "__iter__", [], {})
            if not isinstance(own, IteratorValue) and static_lookup(own.python_type(), "__next__", None) is None:
                raise Unsupported(f"iter() of {self.describe()} gives {own.describe()}, which is no iterator")
            return own
        made = frame.handed_over(Method("__iter__"), [self], {})
        return super().iterator(frame) if made is None else frame.get_iter(made)

    def reconstruct(self, cg: Codegen) -> None:
        self._check_alive()
        if self.copy_of is not None:
            self.copy_of.hand_out(cg, self)
            return
        if self.cut is not None:
            self.cut.hand_out(cg)
            return
        if is_of_torch(module_of(self.cls)):
            cg.load_graph_output(self)
        else:
            if self.made_as is not None and self.fake.requires_grad and self.fake._version != self.made_as[1]:
                cg.capture.break_at(
                    self.made_as[0],
                    Unsupported(
                        "a tensor of a program's class that was written into, which gradients go through", "FJ141"
                    ),
                )
            cg.em.call_object(partial(of_class, self.cls), lambda: cg.load_graph_output(self))


def as_subclass(frame: Frame, tensor: TensorValue, cls: type) -> TensorValue:
    """`tensor.as_subclass(cls)`: another tensor over the same memory."""
    if (
        not issubclass(cls, torch.Tensor)
        or not dispatches_as_torch_does(cls)
        or is_finalized(cls)
        or (is_of_torch(module_of(cls)) and cls is not torch.Tensor)
    ):
        raise Unsupported(f"as_subclass({cls.__qualname__})", "FJ141")
    if has_override(cls):
        frame.capture.overrides.meet()
    with frame.capture.overrides.off():
        made = frame.capture.graph.call(torch.ops.aten.alias.default, [tensor])
    assert isinstance(made, TensorValue)
    made.cls, made.made_as = cls, (frame.seq, 0 if made.fake.is_inference() else made.fake._version)
    return made


def of_class(cls: type, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as one of a program's class."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(cls)


def _with_known_bounds(frame: Frame, key: Value) -> Value:
    """An index in which numbers stand for bounds of slices that are tensors of known content."""
    if isinstance(key, TupleValue) and any(isinstance(part, SliceValue) for part in key.items):
        return TupleValue([_with_known_bounds(frame, part) for part in key.items], key.cls)
    if not isinstance(key, SliceValue) or not any(isinstance(part, TensorValue) for part in key.parts):
        return key
    return SliceValue([_known_bound(frame, part) for part in key.parts])


def _known_bound(frame: Frame, bound: Value) -> Value:
    known = bound.known_result(frame) if isinstance(bound, TensorValue) else None
    if known is None or known.numel() != 1 or known.dtype not in _WHOLE:  # which torch says no to
        return bound
    return ConstantValue(int(known))


def _folds(value: TensorValue, name: str) -> bool:
    """A fake made from a Python constant carries its data, so the answer is known."""
    return getattr(value.fake, "constant", None) is not None and name in (
        "item", "__bool__", "__int__", "__float__", "__index__", "tolist",
    )


class TensorMethodValue(BoundDescriptor):
    """A method bound to a tensor."""

    owner: TensorValue

    def describe(self) -> str:
        return f"Tensor.{self.name}"


@wraps(torch.Tensor, subclasses=True, first=True)
def _existing_tensor(capture: Capture, obj: torch.Tensor, source: Source) -> Value:
    cls = type(obj)
    if cls in (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer):
        raise NotYet("a lazy module, whose parameters are made by its first call", "FJ212")
    if not dispatches_as_torch_does(cls):
        raise Unsupported(f"tensor subclass {cls.__qualname__}, whose __torch_dispatch__ is the program's own", "FJ141")
    own = own_description(cls)
    if own is not None:
        raise Unsupported(f"tensor subclass {cls.__qualname__}, whose {own} is its own", "FJ141")
    if not has_fakes(obj):
        capture.add_guard(source, native.C_TYPE, cls)
        kind = "nested" if obj.is_nested else "named" if has_names(obj) else obj.layout
        return OpaqueValue(cls, source, Unsupported(f"a {kind} tensor", "FJ140"))
    with torch._C.DisableTorchFunctionSubclass():
        n_dimensions = obj.dim()
    if n_dimensions > _GUARDED_DIMENSIONS:
        raise Unsupported(f"a tensor of more than {_GUARDED_DIMENSIONS} dimensions", "FJ140")
    if has_override(cls):
        if not is_a(static_lookup(cls, "__torch_function__"), (classmethod, staticmethod)):
            raise Unsupported(
                f"tensor subclass {cls.__qualname__}, whose __torch_function__ is no classmethod", "FJ141"
            )
        if static_lookup(cls, "__getattribute__") is not static_lookup(torch.Tensor, "__getattribute__"):
            raise Unsupported(f"tensor subclass {cls.__qualname__}, whose __getattribute__ is its own", "FJ141")
        capture.overrides.meet()
    check_late_view(capture, obj)
    dims, changed = capture.dynamic.of(obj, source), capture.dynamic.strides_changed(obj, source)
    layout = capture.sizes.open(obj, source, dims, changed) if (dims or changed) and can_be_symbolic(obj) else None
    if layout is None or not (layout.free_sizes or layout.free_strides):
        capture.add_guard(source, native.C_TENSOR, obj)
        return capture.graph.add_input(obj, source)
    capture.add_guard(source, native.C_TENSOR, (obj, layout.free_sizes, layout.free_strides))
    return capture.graph.add_input(obj, source, layout)
