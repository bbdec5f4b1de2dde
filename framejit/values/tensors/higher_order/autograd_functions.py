"""`torch.autograd.Function.apply`.

Where no gradient is wanted, only `forward` runs, without autograd: it is inlined like any function. Where one is, the
graph has a node that makes the call for real, so that autograd records what it would have and `backward` is the user's.
`forward` is captured for its sake too, though no operation of it stays: what it looks at is guarded, what it would
change besides is found, and the shapes of its results are known. The node has the graphs of `forward` and of `backward`
(`function_backward.py`), where that can be captured, so that a backend may record operations in its place, and captured
code may ask for gradients. Where changes are kept aside that the program's functions would have to see, those graphs
run in their place.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit.backends.function_of_graphs import of_graphs
from framejit.backends.opaque_call import FunctionCall, OpaqueCall
from framejit.backends.subgraph import subgraph
from framejit.guards.sources import static_lookup
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.classes import ClassValue
from framejit.values.sym_int import SIZE
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.counted_writes import count_a_write
from framejit.values.tensors.held_numbers import HeldNumber
from framejit.values.tensors.higher_order.function_backward import (
    can_be_traced,
    captured_backward,
    is_decorated,
    kept_of,
)
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

CODE = "FJ128"
_Function: Any = torch.autograd.Function


class ContextValue(Value):
    """The `ctx` of a call: what is kept for `backward`, which here nobody will ask for."""

    mutable = True

    def __init__(self, cls: Any, needs_input_grad: list[Value]) -> None:
        self.cls = cls._backward_cls
        self.attributes: dict[str, Value] = {"needs_input_grad": TupleValue(needs_input_grad)}
        self.dirty: list[Value] = []
        self.not_differentiable: list[Value] = []
        self.saved: list[Value] = []
        self.makes_zeros = True
        """Whether `backward` is given zeros where no gradient comes."""

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Iterator[Value]:
        return iter(self.attributes.values())

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name in (
            "save_for_backward", "save_for_forward", "mark_dirty", "mark_non_differentiable", "set_materialize_grads",
        ):
            return _ContextMethodValue(self, name)
        raise Unsupported(f"attribute {name!r} of the ctx of an autograd.Function", CODE)

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if value is None or hasattr(self.cls, name):
            raise Unsupported(f"setting attribute {name!r} of the ctx of an autograd.Function", CODE)
        self.attributes[name] = value


class _ContextMethodValue(Value):
    def __init__(self, ctx: ContextValue, name: str) -> None:
        self.ctx, self.name = ctx, name

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        args = deep_realize(frame, args)
        if kwargs or (self.name == "set_materialize_grads" and len(args) != 1):
            raise Unsupported(f"ctx.{self.name}() with other arguments than it has", CODE)
        tensors_or_none = all(isinstance(a, TensorValue) or (a.is_constant() and a.constant() is None) for a in args)
        if self.name != "set_materialize_grads" and not tensors_or_none:
            raise Unsupported(f"ctx.{self.name}() of something that is no tensor", CODE)
        if self.name == "mark_dirty":
            self.ctx.dirty[:] = args
        elif self.name == "mark_non_differentiable":
            self.ctx.not_differentiable[:] = args
        elif self.name == "save_for_backward":
            self.ctx.saved[:] = args
        elif self.name == "set_materialize_grads":
            self.ctx.makes_zeros = args[0].is_constant() and args[0].constant() is True
        return NONE


def _apply(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args = deep_realize(frame, args)
    if kwargs or not args or not isinstance(args[0], ClassValue) or frame.capture.transforms:
        raise Unsupported("autograd.Function.apply() with keyword arguments, or under a function transform", CODE)
    cls, given = args[0].cls, args[1:]
    tensors = [a for a in given if isinstance(a, TensorValue)]
    call = _Call(frame, cls, args[0], given)
    if torch.is_grad_enabled() and any(t.fake.requires_grad for t in tensors):
        return call.as_node()
    return call.inlined()


class _Call:
    def __init__(self, frame: Frame, cls: Any, cls_value: Value, args: list[Value]) -> None:
        self.frame, self.cls, self.cls_value, self.args = frame, cls, cls_value, args
        self._has_setup = static_lookup(cls, "setup_context") is not static_lookup(_Function, "setup_context")
        self.handed = args  # the arguments as the graph's node is given them
        self._has_inner = False  # whether its backward calls another Function
        self.ctx = ContextValue(cls, [ConstantValue(isinstance(a, TensorValue) and a.fake.requires_grad) for a in args])

    def _forward(self) -> tuple[Value, list[Value]]:
        """Run `forward`: what it returned, and the parts of that."""
        frame, forward = self.frame, self.cls_value.getattr(self.frame, "forward")
        if not self._has_setup:
            result = frame.call(forward, [self.ctx, *self.args], {})
        else:
            result = frame.call(forward, self.args, {})
            frame.call(self.cls_value.getattr(frame, "setup_context"), [self.ctx, TupleValue(self.args), result], {})
        result = deep_realize(frame, [result])[0]
        if isinstance(result, TupleValue):
            if result.cls is not tuple:
                raise Unsupported("an autograd.Function whose forward returns a named tuple", CODE)
            return result, list(result.items)
        return result, [result]

    def inlined(self) -> Value:
        frame, enabled = self.frame, torch.is_grad_enabled()
        frame.capture.functions_inlined += 1
        if enabled:
            frame.capture.change_state(torch._C._set_grad_enabled, torch.is_grad_enabled, (False,), 0)
        try:
            result, parts = self._forward()
            self._count_dirty()
            parts = [self._outside(part) for part in parts]
        finally:
            if enabled:
                frame.capture.change_state(torch._C._set_grad_enabled, torch.is_grad_enabled, (True,), 0)
        return TupleValue(parts) if isinstance(result, TupleValue) else parts[0]

    def _count_dirty(self) -> None:
        """Autograd counts one more write of each tensor that is said to be written."""
        for tensor in self.ctx.dirty:
            if not isinstance(tensor, TensorValue):
                raise Unsupported("ctx.mark_dirty() of something that is no tensor", CODE)
            count_a_write(self.frame, tensor)

    def _outside(self, part: Value) -> Value:
        """What the caller gets for a part of the result, without a node in autograd's graph: arguments are given back
        as other tensors."""
        if not isinstance(part, TensorValue):
            return part
        is_argument = any(part is a for a in self.args)
        if part.fake.requires_grad:
            if not is_argument and not part.fake._is_view():
                raise Unsupported(
                    "an autograd.Function whose forward returns a tensor with gradients from elsewhere", CODE
                )
            return part.call_method(self.frame, "detach", [], {}) if is_argument else part
        if is_argument and not any(part is d for d in self.ctx.dirty):
            return part.call_method(self.frame, "view_as", [part], {})
        return part

    def _given_back(self, part: Value) -> Value:
        """A part of the result as autograd takes it: an argument that is given back is another tensor over its
        memory."""
        if not isinstance(part, TensorValue) or not any(part is arg for arg in self.args):
            return part
        kept = self.ctx.saved if self._has_setup else ()  # which torch refuses
        if any(part is other for other in (*self.ctx.not_differentiable, *kept)):
            raise Unsupported("an autograd.Function that gives back an argument, and marks or keeps it", CODE)
        return part.call_method(self.frame, "view_as", [part], {})

    def as_node(self) -> Value:
        frame = self.frame
        graph, effects = frame.capture.graph, frame.capture.effects
        if static_lookup(self.cls, "vjp") is not static_lookup(_Function, "vjp"):
            raise Unsupported("an autograd.Function with a `vjp`, which is another name of its backward", CODE)
        if any(map(_is_of_the_program, self.args)):
            raise Unsupported(
                "an autograd.Function given a list, dict or object, which may be changed before its backward", CODE
            )
        self.handed = [_as_tensor(arg) for arg in self.args]
        before, outside = set(graph.graph.nodes), effects.outside
        try:
            with torch.no_grad(), frame.capture.state_apart(), graph.taken_out():
                result, parts = self._forward()
                parts = [self._given_back(part) for part in parts]
        except Raised as e:
            raise Unsupported(f"the forward of an autograd.Function raises {e.value.cls.__name__}", CODE) from None
        if effects.outside != outside or self.ctx.dirty:
            raise Unsupported("an autograd.Function whose forward changes something", CODE)
        inputs = {*graph.placeholders}
        made = [
            node for node in graph.graph.nodes if node not in before and node not in inputs and SIZE not in node.meta
        ]
        tensors = [part for part in parts if isinstance(part, TensorValue)]
        if len({id(t) for t in tensors}) != len(tensors) or any(t.node not in made for t in tensors):
            raise Unsupported("an autograd.Function whose forward gives back a tensor from elsewhere", CODE)
        if not all(isinstance(part, TensorValue) or part.is_constant() for part in parts):
            raise Unsupported("an autograd.Function whose forward gives something else than tensors", CODE)
        constant = [any(t is n for n in self.ctx.not_differentiable) for t in tensors]
        form = _form(result, parts)
        target, taken = self._node(made, tensors, constant, form)
        if effects.any():
            # of another Function in the backward its graph has no more than the forward
            if not isinstance(target, FunctionCall) or is_decorated(self.cls.backward) or self._has_inner:
                raise Unsupported(
                    "an autograd.Function after changes that its forward might see too early or too late", CODE
                )
            target.function = of_graphs(self.cls.__name__, target)
        for each in reversed(made):
            graph.graph.erase_node(each)
        fakes = iter(self._recorded([t.fake for t in tensors], constant, target, taken))
        return graph.add(target, (*(a.proxy() for a in self.handed), *taken), form(fakes))

    def _node(
        self, made: list[fx.Node], results: list[TensorValue], constant: list[bool],
        form: Callable[[Iterator[Any]], Any]
    ) -> tuple[OpaqueCall, list[fx.Node]]:
        """The target of the graph's node, and what it is given behind the arguments: tensors that `forward` takes from
        elsewhere. `made`: what it consists of. `constant`: which results have no gradient. `form`: what `apply` gives,
        of its tensors."""
        name, why = self.cls.__name__, f"{self.cls.__qualname__} is an autograd.Function, and gradients are wanted"
        n_args = len(self.args)
        numbers = [place for place, arg in enumerate(self.args) if arg is not self.handed[place]]
        apply = _with_numbers(self.cls.apply, numbers) if numbers else self.cls.apply
        capture, tensors = self.frame.capture, [a for a in self.args if isinstance(a, TensorValue)]
        kept = kept_of(self.ctx.saved, self.ctx.attributes) if self.cls not in capture.whole_functions else None
        may_lack_gradients = not self.ctx.makes_zeros and constant.count(False) > 1
        others = [arg for arg in self.handed if not isinstance(arg, TensorValue)]
        if kept is None or may_lack_gradients or not can_be_traced(made, tensors, others):
            return OpaqueCall(apply, name, why), []
        ctx, inlined = ContextValue(self.cls, []), capture.functions_inlined
        found = captured_backward(
            self.frame, self.cls, self.cls_value, ctx, self.ctx.makes_zeros, kept, results, constant, self.args
        )
        self._has_inner = capture.functions_inlined != inlined
        own = [*dict.fromkeys(t.node for t in tensors)]
        used = dict.fromkeys(n for node in made for n in node.all_input_nodes) | dict.fromkeys(
            value.node for value in kept.tensors
        )
        outside = [node for node in used if node not in made and node not in own]
        forward = subgraph((*own, *outside), made, [value.node for value in (*results, *kept.tensors)])
        places = [next(p for p, a in enumerate(self.args) if isinstance(a, TensorValue) and a.node is n) for n in own]
        target = FunctionCall(
            (lambda *given: apply(*given[:n_args])) if outside else apply, name, why,
            [*places, *range(n_args, n_args + len(outside))], forward, found.module, len(kept.saved),
            [*(found.gradients[place] for place in places), *(None for _ in outside)], constant, form
        )
        return target, outside

    def _recorded(
        self, fakes: list[torch.Tensor], constant: list[bool], target: OpaqueCall, taken: list[fx.Node]
    ) -> list[torch.Tensor]:
        """The fakes of the results as autograd gives them out. `target`, `taken`: as `_node` gives them."""
        given = [*(a.fake if isinstance(a, TensorValue) else None for a in self.args), *(n.meta["val"] for n in taken)]

        class Recorded(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
                results = tuple(fake if fake._is_view() else fake.detach() for fake in fakes)
                ctx.mark_non_differentiable(*(r for r, is_constant in zip(results, constant) if is_constant))
                return results

            @staticmethod
            def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
                if not isinstance(target, FunctionCall) or torch.is_grad_enabled():
                    raise Unsupported("gradients through an autograd.Function, in captured code", CODE)
                kept = target.forward.forward(*(given[place] for place in target.tensors))[len(constant) :]
                found = target.backward.forward(*kept, *gradients)
                return tuple(None if place is None else found[place] for place in target.gradients)

        if not fakes:
            return []
        inputs = (
            [given[place] for place in target.tensors]
            if isinstance(target, FunctionCall)
            else [fake for fake in given if fake is not None]
        )
        with self.frame.capture.graph.metadata.faking():
            return list(Recorded.apply(*inputs))


def _as_tensor(number: Value) -> Value:
    """A number that is not assumed, or was read from a tensor, as a tensor that holds it exactly, from which the call
    takes it."""
    if isinstance(number, HeldNumber) and not number.is_either:
        return number.tensor
    if not isinstance(number, SymNumberValue):
        return number
    tensor = number.in_dtype(torch.float64 if number.python_type() is float else torch.int64)
    return number if tensor is None else tensor


def _with_numbers(apply: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """`apply`, with numbers in the place of the tensors that hold them."""

    def called(*given: Any) -> Any:
        return apply(*(arg.item() if place in places else arg for place, arg in enumerate(given)))

    return called


def _is_of_the_program(value: Value) -> bool:
    """Whether an argument is something that existed and can be changed, or holds such a thing."""
    if isinstance(value, TensorValue) or value.is_constant():
        return False
    if isinstance(value, TupleValue):
        return any(map(_is_of_the_program, value.items))
    return value.mutable and value.source is not None


def _form(result: Value, parts: list[Value]) -> Callable[[Iterator[Any]], Any]:
    """What makes of tensors what `apply` gives, with its constants."""
    constants = [None if isinstance(part, TensorValue) else part for part in parts]

    def form(tensors: Iterator[Any]) -> Any:
        filled = tuple([next(tensors) if part is None else part.constant() for part in constants])
        return filled if isinstance(result, TupleValue) else filled[0]

    return form


_method: Any = static_lookup(_Function, "apply")  # from torch 2.15 on written in C
HANDLERS[getattr(_method, "__func__", _method)] = _apply
