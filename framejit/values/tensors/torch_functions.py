"""Calls into torch: what becomes a graph node, what is answered now, what changes torch's state."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import CallSource, Source, const_source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import is_a
from framejit.values.lazy import deep_realize
from framejit.values.tensors.conditionals import cond
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

Handler = Callable[["Frame", list[Value], dict[str, Value]], Value | None]
"""What a call gives; None to have the function inlined."""

# Python functions of these modules are nodes of the graph as they are; everything else in torch is inlined.
GRAPH_MODULES = frozenset("torch.nn.functional torch.functional torch._VF torch.special torch.linalg torch.fft".split())
# ... except those that only dispatch, and those that answer questions.
_NOT_GRAPH = frozenset(
    "handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic boolean_dispatch assert_int_or_pair".split()
)

_C = torch._C
KNOWN: dict[Any, Handler] = {}


def _known(*functions: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for f in functions:
            if f is not None:
                KNOWN[f] = handler
        return handler

    return register


def _optional(*paths: str) -> list[Any]:
    """The torch functions that exist in this version."""
    found = []
    for path in paths:
        obj: Any = torch
        for part in path.split("."):
            obj = getattr(obj, part, None)
        found.append(obj)
    return found


# ---- answered while capturing; the state guard covers what they depend on --------------------------

_QUESTIONS = _optional(
    *"is_grad_enabled is_inference_mode_enabled is_anomaly_enabled get_default_dtype is_autocast_enabled is_autocast_cpu_enabled".split(),
    *"promote_types can_cast finfo iinfo device _C._get_tracing_state _C._is_tracing jit.is_scripting jit.is_tracing _C._is_autocast_available".split(),
    *"""
        _C._len_torch_dispatch_stack _C._len_torch_function_stack _C._get_dispatch_mode _C._get_torch_dispatch_mode _is_functional_tensor
        _C._is_torch_function_mode_enabled
    """.split(),
    *"""
        _C._are_functorch_transforms_active _C._functorch.maybe_current_level _C._is_torch_function_enabled
        _C._is_torch_function_all_disabled _C._get_privateuse1_backend_name
    """.split(),
    *"""
        is_storage cuda.is_available cuda.device_count cuda.is_bf16_supported backends.mps.is_available xpu.is_available
        _utils._get_available_device_type backends.cuda.is_built accelerator.is_available accelerator.current_accelerator accelerator.device_count
    """.split(),
    *"distributed.is_available cuda.get_device_capability version.cuda".split(),
)
# ... and these are not in the state guard, so that each answer is guarded by asking again.
_CHANGING_QUESTIONS = _optional(
    *"""
        are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled get_num_threads distributed.is_initialized
        cuda.is_initialized cuda.current_device
    """.split(),
    *"is_autocast_cache_enabled get_autocast_dtype get_autocast_gpu_dtype get_autocast_cpu_dtype _C._autograd._profiler_enabled".split(),
    *"""
        _C._get_cudnn_enabled _C._get_mkldnn_enabled _C._get_flash_sdp_enabled _C._get_math_sdp_enabled _C._get_mem_efficient_sdp_enabled
        _C._get_deterministic_algorithms
    """.split(),
)


def _answer(function: Any) -> Handler:
    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if tx.capture.transforms and function in _ABOUT_TRANSFORMS:
            raise Unsupported(f"{function.__name__}() inside a function that torch transforms", "FJ129")
        return fold(tx, function, args, kwargs)

    return handler


_ABOUT_TRANSFORMS = (_C._are_functorch_transforms_active, _C._functorch.maybe_current_level)


@functools.lru_cache(256)
def _same_answer(args: tuple[Any, ...], expected: Any) -> Callable[[Any], bool]:
    """The check that a function still answers as it did; one object for one answer, so that guards deduplicate."""

    def gives_the_same_answer(function: Any) -> bool:
        return bool(function(*args) == expected)

    return gives_the_same_answer


def _guarded_answer(function: Any) -> Handler:
    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        answer = fold(tx, function, args, kwargs)
        given = (*tx.constants(args), *tx.constants(list(kwargs.values())))
        if not (tx.capture.state_changed and "autocast" in function.__name__):  # else the captured code itself may have made it so
            tx.capture.add_guard(const_source(function), native.C_PY, _same_answer(given, answer.constant()))
        return answer

    return handler


@_known(torch.broadcast_shapes)
def _broadcast_shapes(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    args = deep_realize(tx, args)
    return None if any(map(_has_open_size, args)) else fold(tx, torch.broadcast_shapes, args, kwargs)


def _has_open_size(value: Value) -> bool:
    return value.symbolic or any(map(_has_open_size, value.children()))


for _f in _QUESTIONS:
    if callable(_f):
        KNOWN[_f] = _answer(_f)
for _f in _CHANGING_QUESTIONS:
    if callable(_f):
        KNOWN[_f] = _guarded_answer(_f)


@_known(_C._get_function_stack_at)
def _function_mode(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A mode that is on while the call runs, as a default device is: it was there before, and the state guard says how many there are of which kind."""
    (position,) = tx.constants(args)
    if not 0 <= position < _C._len_torch_function_stack():
        return None
    return tx.wrap(_C._get_function_stack_at(position), CallSource(const_source(position), _C._get_function_stack_at))


@_known(*_optional("compiler.is_compiling", "compiler.is_dynamo_compiling", "_dynamo_is_compiling"))
def _is_compiling(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    # Libraries ask in order to choose code without data-dependent branches.  Torch's own code (torch.optim) chooses other
    # arithmetic, whose results differ in the last bits; it is to do what it does in plain Python.
    return ConstantValue(not tx.globals.get("__name__", "").startswith("torch."))


@_known(_C._log_api_usage_once)
def _log_usage(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Telemetry of torch's builds at Meta; does nothing elsewhere."""
    return NONE


@_known(torch.is_tensor)
def _is_tensor(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(issubclass(args[0].python_type(), torch.Tensor))


@_known(inspect.signature)
def _signature(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    from framejit.values.objects.functions import FunctionValue, MethodValue
    from framejit.values.wrap import from_python

    target, bound = args[0], 0
    while isinstance(target, MethodValue):
        target, bound = realize(tx, target.function), bound + 1
    if not isinstance(target, FunctionValue) or kwargs:
        raise Unsupported(f"inspect.signature() of {args[0].describe()}")
    signature = inspect.signature(target.fn)
    return from_python(signature.replace(parameters=list(signature.parameters.values())[bound:]))


# ---- state of the thread --------------------------------------------------------------------------


def _state_setter(setter: Any, getter: Callable[..., Any], n_keys: int = 0) -> Handler:
    """A setter that runs now, so that capture sees its effect, and again as a node when the graph runs."""

    def handler(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        values = tx.constants([*args, *kwargs.values()])
        if kwargs:
            raise Unsupported(f"{setter.__name__}() with keyword arguments")
        tx.capture.change_state(setter, getter, tuple(values), n_keys)
        return NONE

    return handler


for _setter, _getter, _n in (
    (_C._set_grad_enabled, torch.is_grad_enabled, 0),
    (_C.set_autocast_enabled, torch.is_autocast_enabled, 1),
    (_C.set_autocast_dtype, torch.get_autocast_dtype, 1),
    (_C.set_autocast_cache_enabled, torch.is_autocast_cache_enabled, 0),
):
    KNOWN[_setter] = _state_setter(_setter, _getter, _n)


KNOWN[torch.autocast_increment_nesting] = lambda tx, a, k: ConstantValue(tx.capture.nest_autocast(+1))
KNOWN[torch.autocast_decrement_nesting] = lambda tx, a, k: ConstantValue(tx.capture.nest_autocast(-1))


class InferenceModeValue(Value):
    """`torch._C._InferenceMode(mode)`, the context manager behind torch.inference_mode."""

    def __init__(self, mode: bool, made_at: int) -> None:
        self.mode, self.made_at = mode, made_at
        self.real = _C._InferenceMode(mode)
        self.node: Any = None  # the node that entered it, while it is entered

    def python_type(self) -> type:
        return _C._InferenceMode

    def getattr(self, tx: Frame, name: str) -> Value:
        from framejit.values.builtins.c_methods import NativeMethodValue

        if name not in ("__enter__", "__exit__"):
            return super().getattr(tx, name)
        return NativeMethodValue(self._enter if name == "__enter__" else self._exit, name)

    def _enter(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.real.__enter__()
        self.node = tx.capture.run_state_change(torch.autograd.grad_mode._enter_inference_mode, (self.mode,), lambda: self.real.__exit__(None, None, None))
        return self

    def _exit(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.real.__exit__(None, None, None)
        tx.capture.run_state_change(torch.autograd.grad_mode._exit_inference_mode, (self.node,), self._enter_again)
        self.node = None
        return NONE

    def _enter_again(self) -> None:
        """Undo the exit: changes inside are undone next, and what they put back is a state of the mode, which its own end then takes away."""
        self.real = _C._InferenceMode(self.mode)  # one that was left can't be entered again
        self.real.__enter__()

    def reconstruct(self, cg: Codegen) -> None:
        if self.node is not None:  # the mode ends with the graph, so a part of the program can't leave it on
            cg.capture.break_at(self.made_at, Unsupported("a graph break inside torch.inference_mode", "FJ119"))
        cg.em.call_object(_C._InferenceMode, lambda: cg.em.load_object(self.mode))


KNOWN[torch.cond] = cond


def _inference_mode(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tx.capture.keep_state(_C._set_grad_enabled, torch.is_grad_enabled)  # which the mode changes as soon as it is made
    return InferenceModeValue(args[0].constant(), tx.seq)


HANDLERS[_C._InferenceMode] = _inference_mode


@_known(torch.clear_autocast_cache)
def _clear_cache(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tx.capture.graph.state_change(torch.clear_autocast_cache, ())
    return NONE


@_known(
    torch.save,
    torch.load,
    torch.set_default_dtype,
    torch.set_default_device,
    torch.compile,
)
def _outside(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("a torch function that changes or reads state outside tensors", "FJ108")


@_known(torch._check_with)
def _check_with(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What torch._check and its like end in. Where the condition holds nothing else happens; where not, their own code says so."""
    holds = len(args) == 3 and not kwargs and args[1].python_type() is bool and tx.truth(args[1])
    return NONE if holds else None


@_known(torch.jit.annotate)
def _annotate(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return args[1] if len(args) == 2 and not kwargs else None


@_known(torch._assert)
def _assert(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if isinstance(args[0], TensorValue):
        raise Unsupported("torch._assert on a tensor", "FJ106")
    if not tx.truth(args[0]):
        raise tx.raised(AssertionError, args[1] if len(args) > 1 else kwargs["message"])
    return NONE


# ---- graph nodes ------------------------------------------------------------------------------------


def is_graph_callable(obj: Any) -> bool:
    """C functions of torch, operators of torch.ops, and the Python functions of GRAPH_MODULES."""
    if is_a(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if is_a(obj, types.BuiltinFunctionType):
        owner = getattr(obj, "__self__", None)
        home = (
            owner.__name__
            if isinstance(owner, types.ModuleType)
            else obj.__module__
            if owner is None
            else owner.__module__
            if isinstance(owner, type)
            else None
        )
        return home is not None and (home == "torch" or home.startswith("torch."))
    return False


def _is_graph_python_function(fn: types.FunctionType) -> bool:
    return fn.__module__ in GRAPH_MODULES and fn.__name__ not in _NOT_GRAPH


class TorchFunctionValue(Value):
    """A torch function written in C, or an operator of torch.ops."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        self.function, self.source = function, source

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        return f"torch function {getattr(self.function, '__name__', self.function)}"

    def constant(self) -> Any:
        return self.function

    def getattr(self, tx: Frame, name: str) -> Value:
        from framejit.values.wrap import from_python

        try:
            return from_python(getattr(self.function, name))
        except AttributeError as e:
            raise tx.raised(AttributeError, str(e)) from None

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        from framejit.values.tensors.overrides import handed_over

        args, kwargs = deep_realize(tx, args), dict(zip(kwargs, deep_realize(tx, list(kwargs.values()))))
        handed = handed_over(tx, self.function, args, kwargs)
        if handed is not None:
            return handed
        handler = KNOWN.get(self.function)
        made = handler(tx, args, kwargs) if handler is not None else None
        if made is not None:
            return made
        return tx.capture.graph.call(self.function, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.function)


_TAGGING = {"patched_init": "init", "patched_setstate": "setstate"}


def call_known_function(tx: Frame, fn: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of calling a Python function framejit treats specially; None for those to inline."""
    from framejit.values.tensors.overrides import concerned, handed_over

    if fn.__module__ == "torch._dynamo.decorators" and fn.__name__ == "graph_break":
        return NONE  # speaks to another compiler, and does nothing in plain Python
    if fn.__module__ == "torch._dynamo.mutation_guard" and fn.__name__ in _TAGGING:
        from framejit.values.wrap import from_python

        # torch.compile has put it in place of a method of Module: that method, and a note for itself
        return tx.call(from_python(inspect.getclosurevars(fn).nonlocals[_TAGGING[fn.__name__]]), args, kwargs)
    handler = KNOWN.get(fn) or HANDLERS.get(fn)
    if handler is not None:
        return handler(tx, [realize(tx, a) for a in args], {k: realize(tx, v) for k, v in kwargs.items()})
    if getattr(fn, "_framejit_constant", False):
        return fold(tx, fn, [realize(tx, a) for a in args], {k: realize(tx, v) for k, v in kwargs.items()})
    if getattr(fn, "_framejit_allow_in_graph", False) or _is_graph_python_function(fn):
        args, kwargs = deep_realize(tx, args), dict(zip(kwargs, deep_realize(tx, list(kwargs.values()))))
        if not any(_holds_tensor(v) for v in (*args, *kwargs.values())):
            return None
        if concerned(tx, [*args, *kwargs.values()]):
            return handed_over(tx, fn, args, kwargs, inline=False)
        try:
            for v in (*args, *kwargs.values()):
                v.argument_of(fn)
        except Unsupported:
            return None  # a function or object among the arguments: inline it
        return tx.capture.graph.call(fn, args, kwargs)
    return None


def _holds_tensor(value: Value) -> bool:
    return isinstance(value, TensorValue) or any(_holds_tensor(c) for c in value.children())
