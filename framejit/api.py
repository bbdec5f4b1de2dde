"""The functions people call: `import framejit` offers them under its own name."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, TextIO, TypeVar, Unpack, overload

import torch

from framejit import _native
from framejit.config import config
from framejit.dispatchers import bound_call, drop_entries, make_dispatcher, settle_background
from framejit.errors import InvalidTarget
from framejit.events import Status, hub
from framejit.events.ledger import ledger
from framejit.events.log import log_writer, split_names
from framejit.optimized_module import OptimizedModule, optimize_module
from framejit.options import DEFAULTS, Choices, Options, check_names, make_options
from framejit.originals import function_behind, original_of

F = TypeVar("F", bound=Callable[..., Any])


@overload
def optimize(fn: F, /, *, disable: bool = False, **asked: Unpack[Choices]) -> F: ...
@overload
def optimize(fn: None = None, /, *, disable: bool = False, **asked: Unpack[Choices]) -> Callable[[F], F]: ...
def optimize(fn: F | None = None, /, *, disable: bool = False, **asked: Unpack[Choices]) -> Any:
    """A faster `fn` that does the same: compiled when it is first called, and again for arguments that need other code.

    Works on functions, methods, objects that can be called and `torch.nn.Module`s, directly or as a decorator
    (`@optimize`, `@optimize(fullgraph=True)`). An optimized module shares everything with the module it was made from,
    which stays as it was.

    Args:
        backend: what compiles the captured graphs: a name from `list_backends()`, or a callable that takes an
            `fx.GraphModule` and example inputs and returns a callable. By default `config.default_backend`.
        fullgraph: raise `errors.GraphBreakError` where `fn` cannot be captured as one graph.
        dynamic: which sizes of arguments, and which ints, are left open, so that one graph serves all of them: True
            for all from the start, False for none. By default those that have come in `config.dynamic_after` sizes,
            and dimensions given to `mark_dynamic`. The others are assumed to stay, and guarded.
        mode: one of torch.compile's names. `"default"`; `"reduce-overhead"`: what a graph launches on an NVIDIA GPU,
            of training forward and backward each, is captured as a CUDA graph after a few calls, and launched at once.
            Inputs are read where they are and outputs are fresh tensors, as without. `status()` names the graphs that
            can't be captured, which run as by default. `"max-autotune"`: besides, of the ways to write a kernel for a
            GPU the one is taken that measures quickest there, when it is compiled; the disk keeps which.
            `"max-autotune-no-cudagraphs"`: only that. For CPUs, and for sizes that are left open, there is one way to
            write a kernel. Other names are refused with `errors.InvalidOption`.
        options: `{"activation_memory": share}`, for training: of the bytes that are kept for the backward without it,
            about how many may be, from 0 to 1 (the default). The rest is computed again, products too, part by part
            as the backward comes to it. Inputs and parameters that this takes may not be written into before the
            backward. `{"same_random_numbers": True}`: on GPUs, too, torch draws the very numbers that eager draws. By
            default (`config.same_random_numbers`) kernels make there the numbers of dropout, `rand`, `randn`,
            `bernoulli` and the like themselves, of a key that torch's generator draws: others than eager's, equally
            distributed, the same for the same seed, and none is kept for the backward. Other names are refused with
            `errors.InvalidOption`.
        verify: also run this fraction of the calls (True: all) as plain Python on copies, and report what differs,
            with the node of the graph or the guard at fault and a script that reproduces it. By default
            `config.verify`.
        freeze: for inference: compute once what depends on parameters and buffers of modules alone, and fold batch
            norms into the weights before them. Writing into a weight, or replacing it, has the function compiled
            anew; writes through `weight.data` are not seen, nor those of numpy views and kernels that do not count
            them. Graphs that need gradients are compiled as without. By default `config.freeze`.
        background: compile beside the program: calls run as plain Python until the compiled code stands, which a copy
            of the process works on, from the call that it is for. What such a copy can't do is compiled in the call,
            as without, and an event and `status()` say why: what can't be kept on the disk (`freeze=True`, other
            backends than framejit's own, `mode="reduce-overhead"`, among others), errors under `fullgraph=True`, and
            all of it once CUDA is in use. By default `config.background`.
        disable: return `fn` unchanged.

    Tensors of all shapes, dtypes and devices may come; what a graph can't take of them breaks it.

    Raises `errors.InvalidTarget` for a class and for what can't be called, `errors.InvalidOption` for a value that an
    option does not take, `errors.UnknownBackend` for a name that no backend has, `errors.BackendError` for an installed
    backend that can't be loaded, and TypeError for another keyword. Calls raise what plain Python raises. Under
    `fullgraph=True` a call that has to be compiled and can't be raises `errors.GraphBreakError`,
    `errors.RecompileLimit`, `errors.BackendError` or `errors.InternalError`; otherwise plain Python runs, and a warning
    or an event says why.
    """
    check_names(asked)
    chosen = functools.partial(make_options, **asked)
    if fn is None:
        return lambda target: _optimize(target, chosen, disable)
    return _optimize(fn, chosen, disable)


def _signature() -> inspect.Signature:
    """The signature of `optimize`, with what it can be asked for by name."""
    plain = inspect.signature(optimize)
    fn, disable, _ = plain.parameters.values()
    types = {name: getattr(kind, "__forward_arg__", kind) for name, kind in Choices.__annotations__.items()}
    asked = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in DEFAULTS.items()
    ]
    return plain.replace(parameters=[fn, *asked, disable])


optimize.__signature__ = _signature()  # type: ignore[attr-defined]


def _optimize(target: Any, chosen: Callable[..., Options], disable: bool) -> Any:
    if disable or config.disable:
        chosen(name="")  # a misspelt option is an error on every machine
        return target
    if isinstance(target, type):
        raise InvalidTarget(
            f"optimize takes a function or an object, not the class {target.__qualname__}: optimize its methods or its "
            "instances"
        )
    if isinstance(target, OptimizedModule):
        target = original_of(target)
    if isinstance(target, torch.nn.Module):
        return optimize_module(target, chosen(name=type(target).__qualname__, **_place(type(target).forward)))
    target = function_behind(target)
    if isinstance(target, FunctionType):
        return make_dispatcher(target, chosen(name=target.__qualname__, **_place(target)))
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(_optimize(target.__func__, chosen, disable))
    if isinstance(target, functools.partial):
        return functools.partial(_optimize(target.func, chosen, disable), *target.args, **target.keywords)
    if isinstance(target, MethodType):
        return MethodType(_optimize(target.__func__, chosen, disable), target.__self__)
    if callable(target):
        call = function_behind(type(target).__call__)
        if isinstance(call, FunctionType):
            return bound_call(target, chosen(name=call.__qualname__, **_place(call)))
        return _optimize(_in_python(target), chosen, disable)
    raise InvalidTarget(
        "optimize takes a function, a method, an object that can be called or a torch.nn.Module, not "
        f"{type(target).__name__}"
    )


def _place(fn: Any) -> dict[str, Any]:
    """Where a function stands, as arguments for `make_options`."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno} if code else {}


def _in_python(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function around a callable that is written in C. With a cache, it has what asks for the cache, too."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    call.__dict__.update((name, getattr(fn, name)) for name in ("cache_info", "cache_clear") if hasattr(fn, name))
    return call


@overload
def disable(fn: F, /) -> F: ...
@overload
def disable(fn: None = None, /) -> Callable[[F], F]: ...
def disable(fn: F | None = None, /) -> Any:
    """Decorator: `fn` is never captured. Where compiled code calls it, the graph breaks and `fn` runs as it is.
    Raises InvalidTarget for what is no Python function or method."""
    if fn is None:
        return disable
    function = _python_function(fn, "disable")
    _native.skip_code(function.__code__)
    function._framejit_disable = True  # type: ignore[attr-defined]
    return function_behind(fn)


def assume_constant(fn: F) -> F:
    """Decorator: what `fn` returns while it is captured may be taken as constant for the same arguments. Raises
    InvalidTarget for what is no Python function or method."""
    _python_function(fn, "assume_constant")._framejit_constant = True  # type: ignore[attr-defined]
    return fn


def allow_in_graph(fn: F) -> F:
    """Decorator: `fn` becomes one node of the graph instead of being looked into. It must depend on its arguments
    alone. Raises InvalidTarget for what is no Python function or method."""
    _python_function(fn, "allow_in_graph")._framejit_allow_in_graph = True  # type: ignore[attr-defined]
    return fn


def _python_function(fn: Any, decorator: str) -> FunctionType:
    if isinstance(fn, (MethodType, staticmethod, classmethod)):
        fn = fn.__func__
    fn = function_behind(fn)
    if not isinstance(fn, FunctionType):
        raise InvalidTarget(f"{decorator} takes a Python function, not {type(fn).__name__}")
    return fn


def reset() -> None:
    """Forget all compiled code, all that is known about functions, and which warnings were given."""
    drop_entries()
    ledger.clear()
    hub.forget()
    hub.forget_warnings()


def status() -> Status:
    """All functions that framejit has met in this process, and what became of each: `print(framejit.status())` shows a
    table, `.functions` has the records, and a notebook shows it with pictures of the graphs."""
    from framejit.coverage import measure_coverage  # no part of `import framejit`
    from framejit.payback import measure_payback, measure_waiting

    settle_background()
    records = ledger.records()
    measure_coverage(records)
    measure_payback(records)
    measure_waiting(records)
    return Status(
        tuple(records), ledger.reverted(), ledger.unfused(), ledger.trained(), ledger.launched(), ledger.graphs()
    )


def set_logs(*names: str, stream: TextIO | None = None) -> None:
    """Choose what is written to stderr, or to `stream`; nothing by default.

    guards, recompiles, graph_breaks, bytecode, graph, fusion, training, output_code, perf, cache, background, verify,
    status, or all; `+name` is more, `-name` one line for each event; `file=FILE` appends to a file, `json` writes JSON
    lines, `help` says all this. The names may be given one by one or separated by commas, as in FRAMEJIT_LOGS. Raises
    InvalidOption for a name that there is not, and for a file that can't be written.
    """
    log_writer.set(split_names(names), stream, status)


if config.logs:
    set_logs(config.logs)
