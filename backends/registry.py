"""Backends by name, and the one place where a backend is called."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from framejit.backends import torch_backends
from framejit.backends.eager import eager
from framejit.backends.fuse import fuse, fuse_from_kept_form, fuse_kept_form, fuse_part_modules
from framejit.backends.graph_identity import ACTIVATION_MEMORY, AUTOTUNE, LAUNCH_GRAPHS, SAME_RANDOM_NUMBERS
from framejit.backends.shared_memory import copied, for_this_sharing, writes_into_inputs
from framejit.backends.symbolic_sizes import NeedsKnownSizes, is_symbolic, takes_symbolic_sizes
from framejit.config import config
from framejit.environment.imports_under_way import met_half_a_module
from framejit.errors import BackendError, InvalidOption, UnknownBackend
from framejit.events import emit
from framejit.suggest import did_you_mean

if TYPE_CHECKING:
    import torch

    from framejit.options import Options

    Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]

B = TypeVar("B", bound="Backend")

ENTRY_POINTS = "framejit.backends"

_built_in: dict[str, Backend] = {"eager": eager, "fuse": fuse}
_registered: dict[str, Backend] = {}


@overload
def register_backend(backend: str, /) -> Callable[[B], B]: ...
@overload
def register_backend(backend: B, /, *, name: str | None = None) -> B: ...
@overload
def register_backend(backend: str, function: B, /) -> B: ...
def register_backend(
    backend: str | B, function: B | None = None, /, *, name: str | None = None
) -> B | Callable[[B], B]:
    """Give a backend a name that `optimize(backend=...)` takes.

    A backend takes an `fx.GraphModule` and example inputs and returns something to call with the inputs: the contract
    of torch.compile. Use it as `@register_backend`, `@register_backend("name")` or
    `register_backend("name", function)`; without a name it has the function's. It returns what it was given. Raises
    InvalidOption for what can't be called, an empty name, and a name of framejit's own backends. A name that was
    registered before means the new backend from now on.
    """
    if isinstance(backend, str):
        if function is None:
            return lambda made: register_backend(backend, made)
        return _register(backend, function)
    return _register(name or str(getattr(backend, "__name__", "")), backend)


def _register(name: str, backend: B) -> B:
    if not callable(backend):
        raise InvalidOption(f"a backend must be callable, but {name!r} is of type {type(backend).__name__}")
    if not name or name in _built_in:
        raise InvalidOption(
            f"the name {name!r} cannot be given to a backend: "
            f"{'framejit has its own of that name' if name else 'it is empty'}"
        )
    _registered[name] = backend
    return backend


def list_backends() -> list[str]:
    """The names `optimize(backend=...)` takes: framejit's own, registered and installed ones, and torch.compile's."""
    return sorted({*_built_in, *_registered, *_installed(), *torch_backends.names()})


def resolve(backend: str | Backend | None) -> tuple[Backend, str]:
    """The backend that is meant, and what to call it in messages."""
    if backend is None:
        backend = config.default_backend
    if callable(backend):
        return backend, getattr(backend, "__name__", None) or type(backend).__name__
    if not isinstance(backend, str):
        raise InvalidOption(f"backend must be a name or a callable, not {type(backend).__name__}")
    found = _registered.get(backend) or _built_in.get(backend)
    if found is not None:
        return found, backend
    installed = _installed().get(backend)
    if installed is not None:
        return _load(installed), backend
    if torch_backends.has(backend):
        return torch_backends.adapter(backend), backend
    raise UnknownBackend(f"there is no backend {backend!r}{did_you_mean(backend, list_backends())}")


def is_registered(name: str, backend: Backend) -> bool:
    """Whether `backend` is what everybody gets who asks for `name`."""
    try:
        return resolve(name)[0] is backend
    except UnknownBackend:
        return False


def is_built_in(backend: Backend) -> bool:
    """Whether it is one of framejit's own."""
    return backend in _built_in.values()


def can_be_kept(backend: Backend) -> bool:
    """Whether what a backend compiles can be found again by another process."""
    return backend is eager or backend is fuse


def kept_form(backend: Backend, compiled: Callable[..., Any]) -> str:
    """The text by which another process finds a compiled graph on the disk. Raises an exception that says why there is
    none."""
    return fuse_kept_form(compiled) if backend is fuse else ""


def part_modules(backend: Backend, compiled: Callable[..., Any]) -> list[torch.fx.GraphModule]:
    """The graphs that a compiled graph consists of, if it was compiled in parts."""
    return fuse_part_modules(compiled) if backend is fuse else []


def from_kept_form(
    options: Options, form: str, module: Any, graph_id: int, frame_id: int, give_up: Callable[[], None]
) -> Callable[..., Any]:
    """The compiled graph again; `module` has the graph's own operations as `forward`, `meta`, and as `parts` the same
    of each of its `part_modules`. `give_up` is called where it turns out later that the graph itself is wanted. Raises
    an exception that says why it can't be found."""
    start = perf_counter()
    found: Callable[..., Any] = (
        fuse_from_kept_form(form, module, graph_id, give_up) if options.backend is fuse else module.forward
    )
    emit("backend", frame_id=frame_id, name=options.backend_name, seconds=perf_counter() - start)
    return found


def compile_with_backend(
    options: Options, gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], frame_id: int = 0
) -> Callable[..., Any]:
    """Compile a graph by the backend of these options. Raises BackendError where the backend raises, or returns
    something that can't be called, and NeedsKnownSizes where it can't do with symbolic sizes."""
    start = perf_counter()
    plain = copied(gm) if not is_built_in(options.backend) and writes_into_inputs(gm) else None
    compile = options.backend
    if options.activation_memory < 1:
        gm.meta[ACTIVATION_MEMORY] = options.activation_memory
    if options.launches_at_once:
        gm.meta[LAUNCH_GRAPHS] = True
    if options.autotunes:
        gm.meta[AUTOTUNE] = True
    if options.draws_as_eager:
        gm.meta[SAME_RANDOM_NUMBERS] = True
    if not takes_symbolic_sizes(compile) and is_symbolic(gm):
        from framejit.backends.torch_sizes import compile_symbolic  # imports sympy

        compile = partial(compile_symbolic, compile)
    try:
        compiled = compile(gm, example_inputs)
    except NeedsKnownSizes:
        raise
    except Exception as e:
        if met_half_a_module(e):
            raise
        raise BackendError(f"the backend {options.backend_name!r} raised {type(e).__name__}: {e}") from e
    if not callable(compiled):
        raise BackendError(
            f"the backend {options.backend_name!r} must return something that can be called, not "
            f"{type(compiled).__name__}"
        )
    emit("backend", frame_id=frame_id, name=options.backend_name, seconds=perf_counter() - start)
    return compiled if plain is None else for_this_sharing(compiled, plain, example_inputs)


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> Backend:
    try:
        backend = point.load()
    except Exception as e:
        raise BackendError(
            f"the installed backend {point.name!r} ({point.value}) cannot be loaded: {type(e).__name__}: {e}"
        ) from e
    if not callable(backend):
        raise BackendError(f"the installed backend {point.name!r} ({point.value}) is not callable")
    return backend
