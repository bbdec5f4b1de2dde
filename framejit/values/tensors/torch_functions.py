"""Calls into torch: what becomes a graph node, what is answered now, what changes torch's state."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.fakes.operation_kinds import is_operation
from framejit.guards.answers import same_answer
from framejit.guards.sources import CallSource, Source, const_source
from framejit.signals import AsksForNumber, Raised, Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, Handler, handles, looks_up_handler
from framejit.values.inspection import BUILTIN_TYPES, is_a
from framejit.values.objects.functions.c_function import CFunctionValue
from framejit.values.objects.functions.function_values import FunctionValue, MethodValue
from framejit.values.sym_int import SizeQuestion
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.asserted_truth import assert_truth, can_be_asserted
from framejit.values.tensors.higher_order.conditionals import cond
from framejit.values.tensors.numbers_in_tensors import called
from framejit.values.tensors.override_state import ABOUT_MODES, OverrideState
from framejit.values.tensors.overrides import concerned, handed_over
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

# Python functions of these modules are nodes of the graph as they are; everything else in torch is inlined.
GRAPH_MODULES = frozenset("torch.nn.functional torch.functional torch._VF torch.special torch.linalg torch.fft".split())
# ... except those that only dispatch, and those that answer questions.
_NOT_GRAPH = frozenset(
    """
    handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic boolean_dispatch
    assert_int_or_pair
""".split()
)

_C = torch._C


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
    *"""
        is_grad_enabled is_inference_mode_enabled is_anomaly_enabled get_default_dtype is_autocast_enabled
        is_autocast_cpu_enabled
    """.split(),
    *"""
        promote_types can_cast _C._get_tracing_state _C._is_tracing jit.is_scripting jit.is_tracing
        _C._is_autocast_available
    """.split(),
    *"""
        _C._len_torch_dispatch_stack _C._len_torch_function_stack _C._get_dispatch_mode _C._get_torch_dispatch_mode
        _is_functional_tensor _C._is_torch_function_mode_enabled
    """.split(),
    *"""
        _C._are_functorch_transforms_active _C._functorch.maybe_current_level _C._is_torch_function_all_disabled
        _C._get_privateuse1_backend_name is_storage
    """.split(),
)
# ... they depend on the machine and on torch's build alone, which stay as they are while the process runs
_MACHINE_QUESTIONS = _optional(
    *"""
        cuda.is_available cuda.device_count cuda.is_bf16_supported backends.mps.is_available
        xpu.is_available _utils._get_available_device_type backends.cuda.is_built accelerator.is_available
        accelerator.current_accelerator accelerator.device_count
    """.split(),
    *"distributed.is_available cuda.get_device_capability version.cuda".split(),
)
# ... and these are not in the state guard, so that each answer is guarded by asking again.
_CHANGING_QUESTIONS = _optional(
    *"""
        are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled get_num_threads
        distributed.is_initialized distributed.get_rank distributed.get_world_size cuda.is_initialized
        cuda.current_device
    """.split(),
    *"""
        is_autocast_cache_enabled get_autocast_dtype get_autocast_gpu_dtype get_autocast_cpu_dtype
        _C._autograd._profiler_enabled
    """.split(),
    *"""
        _C._get_cudnn_enabled _C._get_mkldnn_enabled _C._get_flash_sdp_enabled _C._get_math_sdp_enabled
        _C._get_mem_efficient_sdp_enabled _C._get_cudnn_sdp_enabled _C._get_overrideable_sdp_enabled
        _C._get_deterministic_algorithms
    """.split(),
    *"""
        _C._get_deterministic_fill_uninitialized_memory _C._get_warnAlways _C._is_view_replay_enabled
        _C._is_multithreading_enabled get_num_interop_threads _C._get_float32_matmul_precision
        _C._get_fp32_precision_getter _C._get_cublas_allow_tf32 _C._get_cublas_allow_fp16_reduced_precision_reduction
        _C._get_cublas_allow_bf16_reduced_precision_reduction _C._get_cublas_allow_fp16_accumulation
    """.split(),
    *"""
        _C._get_cudnn_allow_tf32 _C._get_cudnn_benchmark _C._get_cudnn_deterministic _C._get_mkldnn_deterministic
        _C._get_onednn_allow_tf32 _C._get_nnpack_enabled _C._get_math_sdp_allow_fp16_bf16_reduction
    """.split(),
)


def _answer(function: Any) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if frame.capture.transforms and function in _ABOUT_TRANSFORMS:
            raise Unsupported(f"{function.__name__}() inside a function that torch transforms", "FJ129")
        return fold(frame, function, args, kwargs)

    handler.only_answers = True  # type: ignore[attr-defined]
    return handler


def _answer_of_machine(function: Any) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        answer = fold(frame, function, args, kwargs)
        given = tuple(frame.constants(args))
        if kwargs:
            named = dict(zip(kwargs, frame.constants(list(kwargs.values()))))
            try:
                given = inspect.signature(function).bind(*given, **named).args
            except ValueError:  # functions written in C may have none
                frame.capture.assumed.holds_only_here(f"{function.__name__}() is asked with keywords")
                return answer
        frame.capture.assumed.asked(function, given, answer.constant())
        return answer

    handler.only_answers = True  # type: ignore[attr-defined]
    return handler


_ABOUT_TRANSFORMS = (_C._are_functorch_transforms_active, _C._functorch.maybe_current_level)


def _guarded_answer(function: Any) -> Handler:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            answer = fold(frame, function, args, kwargs)
        except Raised as e:  # which no guard asks for
            raise Unsupported(f"{function.__name__}() raises {e.value.cls.__name__}", "FJ104") from None
        given = (*frame.constants(args), *frame.constants(list(kwargs.values())))
        asked = (function, given) in frame.capture.set_here
        # else the captured code itself may have made it so
        if not asked and not (frame.capture.state_changed and "autocast" in function.__name__):
            frame.capture.add_guard(const_source(function), native.C_PY, same_answer(given, answer.constant()))
        return answer

    return handler


for _f in _QUESTIONS:
    if callable(_f):
        HANDLERS[_f] = _answer(_f)
for _f in _MACHINE_QUESTIONS:
    if callable(_f):
        HANDLERS[_f] = _answer_of_machine(_f)
for _f in _CHANGING_QUESTIONS:
    if callable(_f):
        HANDLERS[_f] = _guarded_answer(_f)


@handles(torch.result_type)
def _result_type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Of numbers alone it is a question about the default dtype; with a tensor it is asked of fakes."""
    if any(isinstance(value, TensorValue) for value in deep_realize(frame, [*args, *kwargs.values()])):
        return None
    return fold(frame, torch.result_type, args, kwargs)


@handles(_C._get_function_stack_at)
def _function_mode(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A mode that is on while the call runs, as a default device is: it was there before, and the state guard says how
    many there are of which kind."""
    (position,) = frame.constants(args)
    if not 0 <= position < _C._len_torch_function_stack():
        return None
    return frame.wrap(
        _C._get_function_stack_at(position), CallSource(const_source(position), _C._get_function_stack_at)
    )


@handles(*_optional("compiler.is_compiling", "compiler.is_dynamo_compiling", "_dynamo_is_compiling"))
def _is_compiling(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    # Libraries ask in order to choose code without data-dependent branches. Torch's own code (torch.optim) chooses
    # other arithmetic, whose results differ in the last bits; it is to do what it does in plain Python.
    # But for flex_attention: it would have Dynamo compile what it calls, and warn that nobody has.
    asking = frame.globals.get("__name__", "")
    if asking == "torch.nn.attention.flex_attention":
        return ConstantValue(True)
    if asking.startswith("torch.") or not frame.capture.says_compiling:
        return ConstantValue(False)
    frame.capture.said_compiling = True
    return ConstantValue(True)


@handles(torch.nn.functional.one_hot)
def _one_hot(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Torch's rule for fakes compares, and lays the result out as the classes lie; the kernel fills rows."""
    classes = args[0] if args else None
    if not isinstance(classes, TensorValue) or classes.cls is not torch.Tensor or classes.fake.is_contiguous():
        return None
    graph = frame.capture.graph
    rows = graph.call("contiguous", [classes], is_method=True)
    return graph.call(torch.nn.functional.one_hot, [rows, *args[1:]], kwargs)


@handles(_C._log_api_usage_once)
def _log_usage(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Telemetry of torch's builds at Meta; does nothing elsewhere."""
    return NONE


def _tensor_of(dtype: torch.dtype | None) -> Handler:
    """`torch.Tensor(data)` of numbers in lists and tuples, in the default dtype where there is none given;
    `torch.Tensor(*sizes)`, which nobody has written."""

    def make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        graph, first = frame.capture.graph, args[0] if args else None
        kind = frame.call(from_python(torch.get_default_dtype), [], {}) if dtype is None else ConstantValue(dtype)
        if (
            len(args) == 1
            and isinstance(first, (ListValue, TupleValue))
            and first.python_type() in (list, tuple)
            and _holds_numbers(frame, first)
        ):
            return graph.call(torch.tensor, [first], {"dtype": kind})
        is_size = first is not None and len(args) == 1 and first.python_type() is torch.Size
        sizes = list(frame.iterate(first)) if first is not None and is_size else args
        if kwargs or not all(size.python_type() is int for size in sizes):
            raise Unsupported(
                "making a tensor by its class of something else than numbers or sizes", "FJ113", "use torch.tensor"
            )
        # of no numbers a tensor without elements, of a size without numbers one without dimensions
        return graph.call(torch.empty, [TupleValue(sizes if sizes or is_size else [ConstantValue(0)])], {"dtype": kind})

    return make


def _holds_numbers(frame: Frame, value: Value) -> bool:
    parts = [realize(frame, item) for item in value.iterate(frame)]
    return all(
        _holds_numbers(frame, part) if part.python_type() in (list, tuple) else part.python_type() in (bool, int, float)
        for part in parts
    )


CLASSES: dict[Any, torch.dtype | None] = {
    torch.Tensor: None, torch.FloatTensor: torch.float32, torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16, torch.LongTensor: torch.int64, torch.IntTensor: torch.int32,
}
"""Classes that tensors are made by, with their dtypes; None stands for the default one."""
for _class, _dtype in CLASSES.items():
    HANDLERS[_class] = _tensor_of(_dtype)


@handles(torch.is_tensor)
def _is_tensor(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(issubclass(args[0].python_type(), torch.Tensor))


@handles(inspect.signature)
def _signature(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target, bound = args[0], 0
    while isinstance(target, MethodValue):
        target, bound = realize(frame, target.function), bound + 1
    if not isinstance(target, FunctionValue) or kwargs:
        raise Unsupported(f"inspect.signature() of {args[0].describe()}")
    signature = inspect.signature(target.fn)
    made = signature.replace(parameters=list(signature.parameters.values())[bound:])
    frame.capture.assumed.made_signature(made, target.fn, bound)
    return from_python(made)


# ---- what functions modes and the protocol of torch functions say ----------------------------------


def _with_modes(function: Any, answer: Callable[[Frame, list[Value], list[Value]], Value | None]) -> None:
    """What a question about the stack of modes is answered with while captured code has entered some."""
    plain: Any = HANDLERS[function]

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        modes = frame.capture.overrides.modes
        found = answer(frame, modes, args) if modes else None
        return plain(frame, args, kwargs) if found is None else found

    HANDLERS[function] = handler


def _mode_at(frame: Frame, modes: list[Value], args: list[Value]) -> Value | None:
    place = args[0].constant() - _C._len_torch_function_stack()
    return modes[place] if 0 <= place < len(modes) else None


_with_modes(
    _C._len_torch_function_stack, lambda frame, modes, args: ConstantValue(len(modes) + _C._len_torch_function_stack())
)
_with_modes(_C._is_torch_function_mode_enabled, lambda frame, modes, args: ConstantValue(True))
_with_modes(_C._get_function_stack_at, _mode_at)


def _of_protocol(function: Any, answer: Callable[[OverrideState], bool]) -> None:
    """What a question about the protocol is answered with: captured code turns it off in the capture's notes alone, and
    the capture itself in the thread."""

    @handles(function)
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            return fold(frame, function, args, kwargs)  # which Python refuses
        return ConstantValue(answer(frame.capture.overrides))


_of_protocol(_C._is_torch_function_enabled, lambda state: state.enabled)
_of_protocol(_C._is_torch_function_all_disabled, lambda state: state.all_disabled)


# ---- state of the thread --------------------------------------------------------------------------


def _state_setter(setter: Any, getter: Callable[..., Any], n_keys: int = 0) -> Handler:
    """A setter that runs now, so that capture sees its effect, and again as a node when the graph runs."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        values = frame.constants([*args, *kwargs.values()])
        if kwargs:
            raise Unsupported(f"{setter.__name__}() with keyword arguments")
        try:
            frame.capture.change_state(setter, getter, tuple(values), n_keys)
        except (TypeError, ValueError, RuntimeError) as e:  # of values that torch refuses
            raise Unsupported(f"{setter.__name__}() raises {type(e).__name__}", "FJ161") from None
        return NONE

    return handler


_ATTENTION = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
for _setter, _getter, _n in (
    (_C._set_grad_enabled, torch.is_grad_enabled, 0),
    (_C.set_autocast_enabled, torch.is_autocast_enabled, 1),
    (_C.set_autocast_dtype, torch.get_autocast_dtype, 1),
    (_C.set_autocast_cache_enabled, torch.is_autocast_cache_enabled, 0),
    (_C._set_default_dtype, torch.get_default_dtype, 0),
    *(
        (getattr(_C, f"_set_sdp_use_{kind}"), getattr(_C, f"_get_{kind}_sdp_enabled"), 0)
        for kind in _ATTENTION
        if hasattr(_C, f"_set_sdp_use_{kind}")
    ),
):
    HANDLERS[_setter] = _state_setter(_setter, _getter, _n)


HANDLERS[torch.autocast_increment_nesting] = lambda frame, a, k: ConstantValue(frame.capture.nest_autocast(+1))
HANDLERS[torch.autocast_decrement_nesting] = lambda frame, a, k: ConstantValue(frame.capture.nest_autocast(-1))


HANDLERS[torch.cond] = cond


@handles(torch.clear_autocast_cache)
def _clear_cache(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.capture.graph.state_change(torch.clear_autocast_cache, ())
    torch.clear_autocast_cache()  # of the casts of fakes: the next block may cast to another dtype
    return NONE


@handles(
    torch.save,
    torch.load,
    torch.set_default_device,
    torch.compile,
)
def _outside(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("a torch function that changes or reads state outside tensors", "FJ108")


@handles(torch._check_with)
def _check_with(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What torch._check and its like end in. Where the condition holds nothing else happens; where not, their own code
    says so."""
    if len(args) == 3 and isinstance(args[1], SizeQuestion) and can_be_asserted(args[1]):
        assert_truth(frame, args[1], True)
        return NONE
    holds = len(args) == 3 and not kwargs and args[1].python_type() is bool and frame.truth(args[1])
    return NONE if holds else None


@handles(torch.jit.annotate)
def _annotate(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return args[1] if len(args) == 2 and not kwargs else None


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


class TorchFunctionValue(CFunctionValue):
    """A torch function written in C, or an operator of torch.ops."""

    def describe(self) -> str:
        return f"torch function {getattr(self.function, '__name__', self.function)}"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        args, kwargs = deep_realize(frame, args), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
        handler = HANDLERS.get(self.function)
        if self.function not in ABOUT_MODES:
            if (
                frame.capture.overrides.modes
                and not is_operation(self.function)
                and not getattr(handler, "only_answers", False)
            ):
                raise Unsupported(f"{self.describe()} under a function mode", "FJ141")
            handed = handed_over(frame, self.function, args, kwargs)
            if handed is not None:
                return handed
        made = handler(frame, args, kwargs) if handler is not None else None
        if made is not None:
            return made
        return called(frame, self.function, args, kwargs)


_TAGGING = {"patched_init": "init", "patched_setstate": "setstate"}


@looks_up_handler
def _of_another_compiler(fn: types.FunctionType) -> Handler | None:
    """What speaks to Dynamo, and does nothing in plain Python."""
    if fn.__module__ == "torch._dynamo.decorators" and fn.__name__ in ("graph_break", "mark_static"):
        return lambda frame, args, kwargs: NONE
    if fn.__module__ == "torch._dynamo.mutation_guard" and fn.__name__ in _TAGGING:
        # torch.compile has put it in place of a method of Module: that method, and a note for itself
        method = from_python(inspect.getclosurevars(fn).nonlocals[_TAGGING[fn.__name__]])
        return lambda frame, args, kwargs: frame.call(method, args, kwargs)
    if fn.__module__ == "torch._dynamo.external_utils" and fn.__name__ == "is_compiling":
        return _is_compiling
    # the program's own sizes are numbers
    if fn.__module__ == "torch.fx.experimental.symbolic_shapes":
        return _OF_SYMBOLS.get(fn.__name__)
    return None


_OF_SYMBOLS: dict[str, Handler] = {
    "has_free_unbacked_symbols": lambda frame, args, kwargs: ConstantValue(False),
    "_advise_is_size": lambda frame, args, kwargs: NONE,
    "_advise_is_bounded": lambda frame, args, kwargs: NONE,
}


@looks_up_handler
def _constant_function(fn: types.FunctionType) -> Handler | None:
    return partial(_folded, fn) if getattr(fn, "_framejit_constant", False) else None


def _folded(fn: types.FunctionType, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame.capture.assumed.holds_only_here(f"{fn.__qualname__}() is marked @framejit.assume_constant")
    return fold(frame, fn, args, kwargs)


@looks_up_handler
def _graph_function(fn: types.FunctionType) -> Handler | None:
    return (
        partial(_node_of, fn)
        if getattr(fn, "_framejit_allow_in_graph", False) or _is_graph_python_function(fn)
        else None
    )


def _node_of(fn: types.FunctionType, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A Python function as a node of the graph, where it is given tensors and nothing that can't be an argument of a
    node."""
    args, kwargs = deep_realize(frame, args), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
    if not any(_holds_tensor(v) for v in (*args, *kwargs.values())):
        return None
    if concerned(frame, [*args, *kwargs.values()]):
        return handed_over(frame, fn, args, kwargs, inline=False)
    if fn.__module__ == "torch.nn.functional" and any(isinstance(v, SymNumberValue) for v in (*args, *kwargs.values())):
        return None  # what the function is made of may compute with a number that is no argument of a node
    try:
        for v in (*args, *kwargs.values()):
            v.argument_of(fn)
    except Unsupported:
        return None  # a function or object among the arguments
    if fn.__module__ != "torch.nn.functional":
        return called(frame, fn, args, kwargs)
    try:
        return frame.capture.graph.call(fn, args, kwargs)
    except AsksForNumber:
        return None  # what it is made of may be called with the number


def _holds_tensor(value: Value) -> bool:
    return isinstance(value, TensorValue) or any(_holds_tensor(c) for c in value.children())


_CALLABLE_TYPES = (*BUILTIN_TYPES, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@wraps(*_CALLABLE_TYPES, subclasses=True, first=True)
def _existing_torch_function(capture: Capture, obj: Any, source: Source) -> Value | None:
    if not is_graph_callable(obj):
        return None
    capture.add_guard(source, native.C_ID, obj)
    return TorchFunctionValue(obj, source)


@wraps(types.FunctionType, first=True)
def _existing_known_function(capture: Capture, obj: types.FunctionType, source: Source) -> Value | None:
    if obj not in HANDLERS:
        return None
    capture.add_guard(source, native.C_ID, obj)
    return FunctionValue(obj, source)


@makes(*_CALLABLE_TYPES, subclasses=True, first=True)
def _made_torch_function(obj: Any) -> Value | None:
    return TorchFunctionValue(obj) if is_graph_callable(obj) else None
