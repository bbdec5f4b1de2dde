"""From a captured graph to the ATen operations that it carries out.

The graph's nodes are run on fakes while a dispatch mode below autograd writes down what arrives. There, composite operations (linear, softmax,
cross entropy, ...) still arrive whole; whoever calls `trace` says which of them it has a use for, and the rest are decomposed on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from framejit.backends.fuse.errors import NeedsGradients, NotFusable
from framejit.backends.fuse.preferences import Preferences
from framejit.backends.fuse.thread_state import autocast_state, restored_thread_state, thread_state
from framejit.backends.graph_identity import FIRST_VERSION
from framejit.backends.opaque_call import OpaqueCall
from framejit.capture.light_torch import light
from framejit.symbols.conditions import Conditions
from framejit.symbols.node import symbolic

IGNORED: Final = frozenset(("prim::device", "aten::detach_", "aten::sym_size.int"))
"""Questions about tensors, and what `torch.tensor` does to its fresh result."""
DROPOUTS: Final = frozenset(("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"))
"""Operations on a tensor, a probability, and whether this is training."""

MISJUDGED: Final = frozenset(("aten::max_unpool2d", "aten::max_unpool3d", "aten::embedding_bag.padding_idx", "aten::_embedding_bag"))
"""Operations whose results on fakes have other sizes or strides than the real ones."""


@dataclass(eq=False)
class Call:
    """One ATen operation: what it was called with, and the fakes that came back."""

    func: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    origin: str
    """The line of the user's program, as `file.py:12 in f: code`."""

    @property
    def name(self) -> str:
        return self.func._opname

    def tensors(self) -> Iterator[torch.Tensor]:
        """The tensors among its arguments, those in lists too."""
        return tensors_in((*self.args, *self.kwargs.values()))

    def results(self) -> Iterator[torch.Tensor]:
        """The tensors that it returns."""
        return tensors_in((self.result,))


@dataclass(eq=False)
class Trace:
    """The operations of a graph in order, the fakes of its inputs, and what it returns."""

    inputs: list[torch.Tensor]
    names: list[str]
    """The names of the inputs in the graph."""
    constants: dict[int, torch.Tensor]
    """For the id of a fake the real tensor that is known already: an attribute of the graph module, or numbers that the program turned into a tensor."""
    literals: dict[int, torch.Tensor] = field(default_factory=dict)
    """Those of them that are numbers of the program, and never change."""
    calls: list[Call] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    views: set[int] = field(default_factory=set)
    """For autograd these outputs, by their position, are views of what they share memory with: in-place writes to one are written to the other."""
    writes: dict[int, int] = field(default_factory=dict)
    """How often, for autograd, each input (by its position) is written into, where that is known: a write to `x.data` is none to `x`."""
    folded: list[torch.Tensor] = field(default_factory=list)
    """Fakes of those constants that were computed from frozen weights (lowering/frozen.py); each owns its storage."""
    folded_norms: int = 0
    """Batch norms that went into the weights before them."""


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in tuples and lists."""
    for value in tree:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)


def written_arguments(call: Call) -> Sequence[torch.Tensor]:
    """The fakes that an operation writes into, by its schema."""
    written: list[torch.Tensor] = []
    for position, argument in enumerate(call.func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = call.args[position] if position < len(call.args) else call.kwargs.get(argument.name)
            written += [item for item in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(item, torch.Tensor)]
    return written


def storage_of(fake: torch.Tensor) -> int:
    """What tells the fake's storage from others."""
    return fake.untyped_storage()._cdata


def trace(gm: fx.GraphModule, keeps: Callable[[torch._ops.OpOverload], bool], prefer: bool = True, conditions: Conditions | None = None) -> Trace:
    """The ATen operations of a graph whose placeholders have fakes in `meta["val"]` (or `meta["example_value"]`).

    `keeps` says of a composite operation that it is wanted whole. With `prefer`, operations on a GPU are given what they prefer (preferences.py).
    Sizes may be symbols of framejit's if `conditions` is given, which takes down what is asked of them.
    Raises NotFusable where there is something in the graph that can't be written down as a list of operations on tensors of known sizes, or that
    autograd would have to know of.
    """
    interpreter = _Run(gm, keeps, prefer, conditions)
    before = thread_state()
    with restored_thread_state(), light():  # a cast that capture had done would not be done, and seen, again
        result = interpreter.run()
    if interpreter.left_state != before:
        raise NotFusable("it leaves the grad or autocast mode changed")
    return result


class _Run:
    def __init__(self, gm: fx.GraphModule, keeps: Callable[[torch._ops.OpOverload], bool], prefer: bool, conditions: Conditions | None) -> None:
        self.gm, self.keeps, self.prefer, self.conditions = gm, keeps, prefer, conditions
        self.env: dict[fx.Node, Any] = {}

    def run(self) -> Trace:
        graph = self.gm.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        fakes = [node.meta.get("val", node.meta.get("example_value")) for node in placeholders]
        if not all(isinstance(fake, torch.Tensor) for fake in fakes):
            raise NotFusable("an input is not a tensor")
        mode = next((fake.fake_mode for fake in fakes if hasattr(fake, "fake_mode")), None)
        is_open = self.conditions is not None
        if any((fake._has_symbolic_sizes_strides and not is_open) or not hasattr(fake, "fake_mode") for fake in fakes):
            raise NotFusable("an input's sizes are symbols, or it has no fake")
        if any(fake.is_conj() or fake.is_neg() for fake in fakes):
            raise NotFusable("an input is only a view as conjugate or negative")
        if mode is None:
            from framejit.capture.fakes import Fakes

            mode = Fakes(allow_fallback_kernels=False)
        self.mode = mode
        fakes = self._apart(fakes)
        self.trace = Trace(fakes, [node.name for node in placeholders], {}, writes=_writes(placeholders))
        self.env.update(zip(placeholders, fakes))
        self.prefer = self.prefer and any(fake.device.type == "cuda" for fake in fakes)
        recorder = _Recorder(self.trace, self.keeps, mode, self.prefer)
        # below autograd, or composite operations would never arrive whole
        with mode, enable_python_dispatcher() if is_open else nullcontext(), torch._C._AutoDispatchBelowAutograd(), recorder:
            try:
                for node in graph.nodes:
                    if node.op == "output":
                        self.trace.outputs = self._outputs(node.args[0])
                    elif node.op != "placeholder":
                        recorder.origin, recorder.autocast = _origin(node.meta.get("stack_trace")), autocast_state()
                        self.env[node] = self._value(node)
                self.left_state = thread_state()  # the guards above put some of it back when they end
            finally:
                self._end_inference_modes()
        return self.trace

    def _value(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return self._constant(attribute_of(self.gm, str(node.target)))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.env.__getitem__)
        if torch.is_grad_enabled() and self._needs_grad(node, args, kwargs):
            raise NeedsGradients("its results need gradients")
        if isinstance(node.target, OpaqueCall):
            raise NotFusable(node.target.why)
        try:
            if node.op == "call_function":
                return node.target(*args, **kwargs)  # type: ignore[operator]
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            module = self.gm.get_submodule(str(node.target))
        except NotFusable:
            raise
        except Exception as e:
            name = getattr(node.target, "__name__", node.target)
            raise NotFusable(f"{name} on fakes raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
        raise NotFusable(f"it calls the module {node.target} ({type(module).__name__}) as a whole")

    def _end_inference_modes(self) -> None:
        """Those of a graph that was given up inside one. Its end puts back the dispatch keys of its start, which are those of the modes around this trace:
        were it ended only when the object dies, the thread would go on with them."""
        ended = {node.args[0] for node in self.env if node.target is _exit_inference_mode}
        for node in reversed([node for node in self.env if node.target is _enter_inference_mode and node not in ended]):
            self.env[node].__exit__(None, None, None)

    def _apart(self, fakes: list[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs' fakes, each with a storage of its own: whether inputs share memory is no part of what a graph is compiled for."""
        seen: set[int] = set()
        result: list[torch.Tensor] = []
        for fake in fakes:
            storage = storage_of(fake)
            if storage in seen or self.conditions is not None:
                needs_grad = fake.requires_grad
                with self.mode, torch.inference_mode(False):
                    fake = torch.empty_strided(self._sizes(fake.shape), self._sizes(fake.stride()), dtype=fake.dtype, device=fake.device)
                fake.requires_grad_(needs_grad)
            seen.add(storage)
            result.append(fake)
        return result

    def _sizes(self, sizes: Sequence[Any]) -> list[Any]:
        """The same sizes, what is asked of which goes to the conditions."""
        if self.conditions is None:
            return list(sizes)
        return [symbolic(self.conditions.simplified(size.node.expression), self.conditions) if isinstance(size, torch.SymInt) else size for size in sizes]

    def _constant(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        fake = self.mode.from_tensor(value, static_shapes=True)
        self.trace.constants[id(fake)] = value
        return fake

    def _needs_grad(self, node: fx.Node, args: Any, kwargs: Any) -> bool:
        value = node.meta.get("val", node.meta.get("example_value"))
        known = [*tensors_in((value,))]
        written = value is None
        if known and not written:
            return any(tensor.requires_grad for tensor in known)
        return any(tensor.requires_grad for tensor in tensors_in((*args, *kwargs.values())))

    def _outputs(self, value: Any) -> list[Any]:
        if not isinstance(value, (tuple, list)):
            raise NotFusable("it returns something that is not a tuple")
        outputs = [self._laid_out(self.env[item], item) if isinstance(item, fx.Node) else item for item in value]
        if any(isinstance(item, (tuple, list, dict)) for item in outputs):
            raise NotFusable("it returns a nested tuple")
        for position, item in enumerate(value):
            shown = _shown(item) if isinstance(item, fx.Node) and item.op != "placeholder" else None
            if isinstance(shown, torch.Tensor):
                if shown.requires_grad:  # what a view under no_grad() does
                    raise NeedsGradients("its results need gradients")
                if self._is_view(item, shown, [node for node in value if isinstance(node, fx.Node)]):
                    self.trace.views.add(position)
        return outputs

    def _is_view(self, node: fx.Node, shown: torch.Tensor, outputs: list[fx.Node]) -> bool:
        """Whether autograd has the output as a view of an input or of another output."""
        inputs = [fake for n in self.gm.graph.nodes if n.op == "placeholder" and isinstance(fake := _shown(n), torch.Tensor)]
        if not shown.is_inference() and not torch.is_inference_mode_enabled():
            known = [*inputs, *(fake._base for fake in inputs if not fake.is_inference()), *map(_shown, outputs)]
            return shown._is_view() and any(shown._base is fake for fake in known)
        # in inference mode a view of a normal tensor is a normal tensor and a view, which its fake is not
        name = node.args[1] if node.target is getattr else getattr(node.target, "__name__", node.target)
        return any(storage_of(fake) == storage_of(shown) for fake in inputs) and name not in ("detach", "data")

    def _laid_out(self, value: Any, node: fx.Node) -> Any:
        """An output with the strides that eager gives it, where a preference has led to others."""
        expected = node.meta.get("val", node.meta.get("example_value"))
        if not self.prefer or not isinstance(value, torch.Tensor) or not isinstance(expected, torch.Tensor):
            return value
        strides = tuple(self._sizes(expected.stride()))
        if value.stride() == strides:
            return value
        for memory_format in (torch.contiguous_format, torch.channels_last):
            laid_out = value.clone(memory_format=memory_format) if memory_format is torch.contiguous_format or value.dim() == 4 else value
            if laid_out.stride() == strides:
                return laid_out
        raise NotFusable("a preferred memory layout would show in the result")


class _Recorder(TorchDispatchMode):
    """Writes down the operations that arrive."""

    def __init__(self, trace: Trace, keeps: Callable[[torch._ops.OpOverload], bool], mode: Any, prefer: bool) -> None:
        super().__init__()
        self.trace, self.keeps, self.mode = trace, keeps, mode
        self.preferences = Preferences(self._recorded) if prefer else None
        self.origin = ""
        self.autocast: dict[str, tuple[bool, torch.dtype]] = {}
        """The autocast mode of the program: while an operation is looked at here, autocast is off."""

    def _recorded(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        with self:
            return function()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.name()
        if name not in IGNORED and _has_kernel(name, "CompositeImplicitAutograd") and not _has_out(func):
            # what autocast knows has been converted when it arrives; of what it doesn't know, it converts the parts
            casts = [(device, dtype) for device, (enabled, dtype) in self.autocast.items() if enabled and not _has_kernel(name, f"Autocast{device.upper()}")]
            if casts or not self.keeps(func):
                with self, _autocast(casts):  # by eager's own decomposition; `func.decompose` may have another one, in Python
                    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        if name.removesuffix("_") in DROPOUTS and not (args[1] and args[2]):
            return args[0]  # as eager does, where a fake's dropout gives a new tensor
        sizes = [tensor.shape for tensor in tensors_in((*args, *kwargs.values()))] if func._schema.is_mutable else None
        if name == "aten::as_strided_" and _is_same_layout(args[0], *args[1:4]):
            return func(*args, **kwargs)
        if name == "aten::detach_" and any(args[0] is fake for fake in self.trace.inputs):
            raise NotFusable("it detaches an input")
        if name == "aten::lift_fresh" and not hasattr(args[0], "fake_mode"):
            return self._lifted(args[0])
        if self.preferences is not None:
            if func._schema.is_mutable:
                self.preferences.forget()
            args, kwargs = self.preferences.arguments(name, args, kwargs)
            instead = self.preferences.instead(name, args, kwargs)
            if instead is not None:
                return instead
        result = func(*args, **kwargs)
        if name in IGNORED:
            return result
        call = Call(func, args, kwargs, result, self.origin)
        if name in MISJUDGED:
            raise NotFusable(f"the sizes and strides of what {name} gives are not known before it runs")
        if torch.Tag.inplace_view in func.tags or (sizes is not None and sizes != [tensor.shape for tensor in call.tensors()]):
            raise NotFusable(f"{name} changes the sizes of a tensor in place")
        if any(not hasattr(tensor, "fake_mode") or tensor.is_conj() or tensor.is_neg() for tensor in call.results()):
            raise NotFusable(f"{name} gives a tensor that is not known, or only a view as conjugate or negative")
        self.trace.calls.append(call)
        return result

    def _lifted(self, value: torch.Tensor) -> torch.Tensor:
        """A fake for a tensor that the program makes from numbers, at each call a fresh one."""
        func: Any = torch.ops.aten.scalar_tensor.default
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if value.dim():
            fake = self.mode.from_tensor(value, static_shapes=True)
            self.trace.constants[id(fake)] = self.trace.literals[id(fake)] = value
            func, args = torch.ops.aten.clone.default, (fake,)
        else:
            with _disable_current_modes():
                number = value.item()
            args, kwargs = (number,), {"dtype": value.dtype, "device": value.device}
        with self.mode:
            fresh: torch.Tensor = func(*args, **kwargs)
        self.trace.calls.append(Call(func, args, kwargs, fresh, self.origin))
        return fresh


def _shown(node: fx.Node) -> Any:
    """What capture has for the value of a node."""
    return node.meta.get("val", node.meta.get("example_value"))


def _writes(placeholders: list[fx.Node]) -> dict[int, int]:
    found = {}
    for position, node in enumerate(placeholders):
        fake = node.meta.get("val")
        if FIRST_VERSION in node.meta and isinstance(fake, torch.Tensor) and not fake.is_inference():
            found[position] = fake._version - node.meta[FIRST_VERSION]
    return found


def _has_out(func: torch._ops.OpOverload) -> bool:
    """Whether it has an `out` argument, which a decomposition may replace rather than write into (as `linalg_matrix_rank` does)."""
    return any(argument.is_out for argument in func._schema.arguments)


def _is_same_layout(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None) -> bool:
    """Whether a tensor lies so already, but for the strides of dimensions of one element, which no element's place depends on."""
    same = all(size == 1 or stride == new for size, stride, new in zip(tensor.shape, tensor.stride(), strides))
    return same and tuple(tensor.shape) == tuple(sizes) and offset in (None, tensor.storage_offset())


@cache
def _has_kernel(name: str, dispatch_key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key)


def attribute_of(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _origin(stack: str | None) -> str:
    """`file.py:12 in f: code` from the innermost frame of a stack in a traceback's format."""
    lines = [line for line in (stack or "").splitlines() if line.strip()]
    place = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].lstrip().startswith("File ")), None)
    if place is None:
        return ""
    file, _, rest = lines[place].strip().removeprefix('File "').partition('", line ')
    line, _, function = rest.partition(", in ")
    code = lines[place + 1].strip() if place + 1 < len(lines) else ""
    return f"{file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line} in {function}: {code}"


@contextmanager
def _autocast(modes: Sequence[tuple[str, torch.dtype]]) -> Iterator[None]:
    """Have autocast on for devices."""
    before = {device: torch.is_autocast_enabled(device) for device, _ in modes}
    for device, dtype in modes:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        for device, enabled in before.items():
            torch.set_autocast_enabled(device, enabled)
