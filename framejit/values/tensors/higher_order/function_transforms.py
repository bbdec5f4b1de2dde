"""`torch.func`'s transforms (vmap, grad, jacrev, vjp, ...) in captured code: a node transforms the function, which was
captured as a graph of its own."""
from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit.backends.opaque_call import OpaqueCall, TransformCall
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain
from framejit.values.handlers import HANDLERS
from framejit.values.tensors.higher_order.nested_graph import (
    CODE,
    Leaf,
    NestedGraph,
    filled,
    structure,
    tensors_of,
    valued,
)
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


class _FunctionValue(Value):
    """A function that is called with tensors in structures, and of which nothing else is known."""

    def python_type(self) -> type:
        return types.FunctionType

    def getattr(self, frame: Frame, name: str) -> Value:
        raise Unsupported(f"attribute {name!r} of {self.describe()}", CODE)

    def given(self, frame: Frame, args: list[Value]) -> tuple[tuple[Any, ...], list[TensorValue]]:
        """The form of a call's arguments, and the tensors in them."""
        tensors: list[TensorValue] = []
        return tuple(structure(frame, arg, tensors) for arg in args), tensors


class TransformedValue(_FunctionValue):
    """A function behind a transform of torch.func: `transform(function, **options)`."""

    mutable = True

    def __init__(self, transform: Callable[..., Any], function: Value, options: dict[str, Any]) -> None:
        self.transform, self.function, self.options = transform, function, options

    def describe(self) -> str:
        return f"torch.func.{self.transform.__name__} of {self.function.describe()}"

    def children(self) -> Iterator[Value]:
        return iter((self.function,))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        form, tensors = self.given(frame, args)
        # in the same way as in plain Python: no transform takes these apart, and those that take none refuse them
        named = {keyword: structure(frame, value, tensors) for keyword, value in kwargs.items()}
        metadata, name = frame.capture.graph.metadata, self.transform.__name__
        inner_form = form
        if self.transform is _forward_mode:
            inner_form = _primals(form)
        with metadata.faking():
            fakes = self._inner_fakes(form, tensors)
        with (
            torch.enable_grad()
            if self.transform is not torch.vmap
            else torch.set_grad_enabled(torch.is_grad_enabled()),
            frame.capture.inside_transform(),
        ):
            nested = NestedGraph(frame, self.function, inner_form, fakes, f"torch.func.{name}", named)

        # nothing of these values: the function that is transformed leads to objects of this call
        transform, options, n = self.transform, self.options, len(tensors)

        def run(*flat: Any) -> Any:
            outside = flat[n:]

            def function(*arguments: Any, **by_name: Any) -> Any:
                return nested.call(arguments, outside, by_name)

            return transform(function, **options)(*filled(form, flat.__getitem__), **filled(named, flat.__getitem__))

        nodes = (*(tensor.node for tensor in tensors), *nested.outside)
        result = _on_fakes(frame, run, nodes)
        call = _kind(nested)(
            lambda *flat: tuple(tensors_of(run(*flat))), name, f"torch.func.{name} transforms a function in it"
        )
        made = frame.capture.graph.add(call, nodes, tuple(tensors_of(result)))
        return valued(result, made.iterate(frame))

    def _inner_fakes(self, form: tuple[Any, ...], tensors: list[TensorValue]) -> list[torch.Tensor]:
        """What the arguments look like inside the function."""
        fakes = [tensor.fake for tensor in tensors]
        if self.transform is _forward_mode:
            return fakes[: len(fakes) // 2]
        if self.transform is torch.vmap:
            in_dims = self.options["in_dims"]
            if not isinstance(in_dims, (int, tuple)) or (isinstance(in_dims, tuple) and len(in_dims) != len(form)):
                raise Unsupported("torch.vmap with dimensions that do not fit the arguments", CODE)
            for part, dims in zip(form, in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(form)):
                for number, dim in _dims(part, dims):
                    if not -fakes[number].dim() <= dim < fakes[number].dim():
                        raise Unsupported("torch.vmap over a dimension that the tensor does not have", CODE)
                    fake = fakes[number]
                    # of nothing there is no first
                    fakes[number] = fake.select(dim, 0) if fake.shape[dim] else fake.sum(dim, dtype=fake.dtype)
            return fakes
        argnums = self.options.get("argnums", 0)
        wanted = argnums if isinstance(argnums, tuple) else (argnums,)
        if not all(type(n) is int and -len(form) <= n < len(form) for n in wanted):
            raise Unsupported(f"torch.func.{self.transform.__name__} of arguments that are not given", CODE)
        for n in wanted:
            for number, _ in _dims(form[n], 0):
                if fakes[number].is_floating_point() or fakes[number].is_complex():
                    fakes[number] = fakes[number].detach().requires_grad_()
        return fakes

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(functools.partial(self.transform, **self.options), lambda: cg.load(self.function), 1)


def _on_fakes(frame: Frame, run: Callable[..., Any], nodes: Sequence[fx.Node]) -> Any:
    """What a function that transforms gives for the fakes of nodes. Where it raises amid a transform, torch may leave
    the thread with the dispatch keys of that."""
    dispatch_keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(*dispatch_keys):
        return frame.capture.graph.metadata.run(run, False, tuple(node.meta["val"] for node in nodes), {})


def _kind(nested: NestedGraph) -> type[OpaqueCall]:
    """The kind of the node that transforms a graph: whether a backend may look inside. None may where the graph calls
    a function that must not run before it does."""
    targets = [node.target for node in nested.module.graph.nodes if isinstance(node.target, OpaqueCall)]
    return TransformCall if all(isinstance(target, TransformCall) for target in targets) else OpaqueCall


def _dims(form: Any, dims: Any) -> Iterator[tuple[int, int]]:
    """The number of each tensor in an argument that is taken apart, and the dimension of it."""
    if isinstance(form, Leaf):
        if dims is not None:
            if type(dims) is not int:
                raise Unsupported("torch.vmap with dimensions that do not fit the arguments", CODE)
            yield form.number, dims
    elif isinstance(form, (tuple, list, dict)):
        parts = list(form.values()) if isinstance(form, dict) else form
        if isinstance(dims, (tuple, list, dict)):
            inner = list(dims.values()) if isinstance(dims, dict) else dims
            if (
                type(dims) is not type(form)
                or len(inner) != len(parts)
                or (isinstance(dims, dict) and list(dims) != list(form))
            ):
                raise Unsupported("torch.vmap with dimensions that do not fit the arguments", CODE)
        else:
            inner = [dims] * len(parts)
        for part, dim in zip(parts, inner):
            yield from _dims(part, dim)


def _forward_mode(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """torch.func.jvp in the manner of the other transforms."""
    return lambda primals, tangents: torch.func.jvp(function, primals, tangents, **options)


_forward_mode.__name__ = "jvp"


def _primals(form: tuple[Any, ...]) -> tuple[Any, ...]:
    """The form of the primals, of that of primals and tangents. There is a tensor in each place, and a tangent for
    each: what else torch has to say comes from the real call."""
    primals, tangents = form if len(form) == 2 else ((), ())
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals or not _all_tensors(form):
        raise Unsupported("torch.func.jvp of other things than tensors", CODE)
    if filled(primals, lambda number: None) != filled(tangents, lambda number: None):
        raise Unsupported("torch.func.jvp with tangents that do not fit", CODE)
    return primals


def _all_tensors(form: Any) -> bool:
    parts = form.values() if isinstance(form, dict) else form
    return isinstance(form, Leaf) or isinstance(form, (tuple, list, dict)) and all(map(_all_tensors, parts))


def _jvp(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.func.jvp(func, primals, tangents, *, strict=False, has_aux=False)`."""
    given = dict(zip(("func", "primals", "tangents"), args)) | kwargs
    if (
        len(args) > 3
        or not {"func", "primals", "tangents"} <= set(given)
        or set(given) - {"func", "primals", "tangents", "strict", "has_aux"}
    ):
        raise Unsupported("torch.func.jvp() with other arguments", "FJ112")
    options: dict[str, Any] = {name: plain(frame, given[name]) for name in ("strict", "has_aux") if name in given}
    return TransformedValue(_forward_mode, given["func"], options).call(
        frame, [given["primals"], given["tangents"]], {}
    )


HANDLERS[torch.func.jvp] = _jvp


class PulledBackValue(_FunctionValue):
    """The function that `torch.func.vjp` gives, or `linearize`: what belongs to it is in the graph, in the node of the
    real one, and a call of it is a node that takes this.

    `made_at` is the step that made it: where the graph breaks if plain Python needs the function.
    """

    def __init__(
        self, transform: Callable[..., Any], node: fx.Node, kind: type[OpaqueCall], made_at: int
    ) -> None:
        self.transform, self.node, self.kind, self.made_at = transform, node, kind, made_at

    def describe(self) -> str:
        return f"the function that torch.func.{self.transform.__name__} gave"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs:
            raise Unsupported(f"{self.describe()} called with keyword arguments", CODE)
        form, tensors = self.given(frame, args)

        def run(real: _Real, *flat: torch.Tensor) -> Any:
            return real.function(*filled(form, flat.__getitem__))

        nodes = (self.node, *(tensor.node for tensor in tensors))
        result = _on_fakes(frame, run, nodes)
        name = f"{self.transform.__name__}_fn"
        call = self.kind(lambda *flat: tuple(tensors_of(run(*flat))), name, f"{self.describe()} is called in it")
        made = frame.capture.graph.add(call, nodes, tuple(tensors_of(result)))
        return valued(result, made.iterate(frame))

    def reconstruct(self, cg: Codegen) -> None:
        cg.capture.break_at(self.made_at, Unsupported(f"{self.describe()} leaves captured code", CODE))


class _Real:
    """The real function that a transform gives, while the graph runs or, on fakes, while it is captured."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def _with_function(transform: Callable[..., Any]) -> Any:
    """The handler of `vjp(func, *primals, has_aux=False)` and `linearize(func, *primals)`."""
    name = transform.__name__

    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) < 2 or set(kwargs) - {"has_aux"}:
            raise Unsupported(f"torch.func.{name}() with other arguments", "FJ112")
        function, *primals = args
        options: dict[str, Any] = {option: plain(frame, value) for option, value in kwargs.items()}
        tensors: list[TensorValue] = []
        form, made_at = tuple(structure(frame, primal, tensors) for primal in primals), frame.seq
        metadata = frame.capture.graph.metadata
        with metadata.faking():
            fakes = [tensor.fake for tensor in tensors]
            fakes = [f.detach().requires_grad_() if f.is_floating_point() or f.is_complex() else f for f in fakes]
        with torch.enable_grad(), frame.capture.inside_transform():
            nested = NestedGraph(frame, function, form, fakes, f"torch.func.{name}")

        def run(*flat: Any) -> tuple[Any, ...]:
            outside = flat[len(tensors) :]

            def real(*arguments: Any) -> Any:
                return nested.call(arguments, outside)

            out, made, *aux = transform(real, *filled(form, flat.__getitem__), **options)
            return out, _Real(made), *aux

        def flattened(*flat: Any) -> tuple[Any, ...]:
            out, made, *aux = run(*flat)
            return *tensors_of((out, *aux)), made

        nodes = (*(tensor.node for tensor in tensors), *nested.outside)
        out, made, *aux = _on_fakes(frame, run, nodes)
        kind = _kind(nested)
        call = kind(flattened, name, f"torch.func.{name} transforms a function in it")
        results = list(frame.capture.graph.add(call, nodes, tuple(tensors_of((out, *aux)))).iterate(frame))
        node = next(result.node for result in results if isinstance(result, TensorValue)).args[0]
        kept = frame.capture.graph.graph.call_function(operator.getitem, (node, len(results)))
        kept.meta["val"] = made
        remaining = iter(results)
        first = valued(out, remaining)
        pulled_back = PulledBackValue(transform, kept, kind, made_at)
        return TupleValue([first, pulled_back, *(valued(a, remaining) for a in aux)])

    return make


HANDLERS[torch.func.vjp] = _with_function(torch.func.vjp)
HANDLERS[torch.func.linearize] = _with_function(torch.func.linearize)


def _maker(transform: Callable[..., Any]) -> Any:
    signature = inspect.signature(transform)

    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise Unsupported(str(e), "FJ112") from None
        given = dict(bound.arguments)
        function = given.pop("func")
        options = {name: plain(frame, value) for name, value in given.items()}
        if transform is torch.vmap:
            options.setdefault("in_dims", 0)
        return TransformedValue(transform, function, options)

    return make


for _transform in (
    torch.vmap, torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian,
):
    HANDLERS[_transform] = _maker(_transform)
