"""One side of a comparison: a module made of the program's text, and what a call of its function leaves behind."""
from __future__ import annotations

import contextlib
import gc
import io
import itertools
import linecache
import logging
import random
import sys
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from framejit.backends.autocast_nesting import nest, nesting
from framejit.errors import FramejitWarning


@dataclass
class Observed:
    """Everything a program could see of one call."""

    result: Any = None
    error: BaseException | None = None
    lines: list[tuple[str, int]] = field(default_factory=list)
    arguments: Any = ()
    stdout: str = ""
    stderr: str = ""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    own_warnings: list[str] = field(default_factory=list)  # framejit's
    modes: Any = ()
    random_state: Any = ()
    gradient_error: BaseException | None = None
    state: dict[str, Any] = field(default_factory=dict)
    watched: list[weakref.ref[Any]] = field(default_factory=list)
    called: bool = False


class Records(logging.Handler):
    """What torch logs, wherever its own handlers write it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage().splitlines()[0])

    def __enter__(self) -> Records:
        logging.getLogger("torch").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("torch").removeHandler(self)


class World:
    """`optimize` stands between the program and its function on one side and is absent on the other."""

    def __init__(
        self, name: str, text: str, optimize: Callable[[Any], Any] | None = None,
        around: Callable[[], Any] = contextlib.nullcontext, collects: bool = False,
    ) -> None:
        self.file = f"{name}.py"
        linecache.cache[self.file] = (len(text), None, text.splitlines(True), self.file)
        self.around, self.collects = around, collects
        module = types.ModuleType(name)
        self.globals: dict[str, Any] = vars(module)
        seed(0)
        sys.modules[name] = module  # dataclasses ask for it
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, self.file, "exec"), self.globals)
        finally:
            del sys.modules[name]
        self.calls = [value for name, value in self.globals.items() if name.startswith("call_")]
        self.hidden = set(self.globals) - {name for name, value in self.globals.items() if is_state(value)} | {"fn"}
        fn = self.globals["fn"]
        self.fn = optimize(fn) if optimize else fn

    def call(self, i: int, change: Callable[..., Any] | None = None) -> Observed:
        """Runs call `i`; `change(world, args, kwargs)` may change the world and gives other arguments."""
        seen = Observed()

        def invoke(*args: Any, **kwargs: Any) -> Any:
            if change is not None:
                args, kwargs = change(self, args, kwargs)
            seen.arguments = args, kwargs
            seen.watched = [weakref.ref(one) for one in reachable((args, kwargs))]
            seed(1)
            seen.called = True
            return self.fn(*args, **kwargs)

        seed(i)
        stdout, stderr = io.StringIO(), io.StringIO()
        printed, complained = contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr)
        with (
            Records() as logged, modes_restored() as modes, warnings.catch_warnings(record=True) as warned, printed,
            complained,
        ):
            warnings.simplefilter("always")
            torch.random._fork_rng_warned_already = False  # in the other world, where there are several GPUs
            try:
                with self.around():
                    seen.result = self.calls[i](invoke)
            except Exception as e:
                seen.error = e
                seen.lines = [
                    (f.name, f.lineno or 0) for f in traceback.extract_tb(e.__traceback__) if f.filename == self.file
                ]
            if self.collects:
                gc.collect()
            seen.modes = modes()
            seen.random_state = hash(torch.random.get_rng_state().numpy().tobytes()), random.random()
            with torch.enable_grad(), torch.inference_mode(False), self.around():
                seen.gradient_error = differentiate(seen.result)
        for w in warned:
            if issubclass(w.category, FramejitWarning):
                seen.own_warnings.append(str(w.message))
            else:
                seen.warnings.append((w.category.__name__, str(w.message)))
        seen.stdout, seen.stderr = stdout.getvalue(), stderr.getvalue() + "\n".join(logged.texts)
        seen.state = {
            name: value for name, value in self.globals.items() if name not in self.hidden and not name.startswith("__")
        }
        for name, value in list(seen.state.items()):
            if isinstance(value, type):
                seen.state[name] = {
                    k: v for k, v in vars(value).items() if not k.startswith("__") and not isinstance(v, OPAQUE)
                }
        seen.watched += [weakref.ref(one) for one in reachable(seen.result)]
        return seen


def seed(number: int) -> None:
    """For devices that are used: `torch.manual_seed` formats a stack for each kind that was not used yet."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)
    random.seed(number)


OPAQUE = (types.MemberDescriptorType, types.GetSetDescriptorType, property, classmethod, staticmethod)


def is_state(value: Any) -> bool:
    return not isinstance(value, types.ModuleType) and not getattr(value, "__name__", "").startswith("call_")


def alive(watched: list[weakref.ref[Any]]) -> list[bool]:
    """Which arguments and results still live, which nobody outside holds."""
    # torch keeps the graph of a gradient that raised until the next one is computed
    torch.zeros((), requires_grad=True).clone().backward()
    return [ref() is not None for ref in watched]


def rest_of(value: Any) -> list[Any]:
    """What is left in iterators that a call returned."""
    found = [one for one in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(one, Iterator)]
    left: list[Any] = []
    for one in found[:3]:
        try:
            left.append(list(itertools.islice(one, 10)))
        except Exception as e:
            left.append(e)
    return left


def reachable(value: Any, depth: int = 3) -> list[Any]:
    """Tensors and objects in containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth and isinstance(value, (list, tuple)):
        return [one for item in value for one in reachable(item, depth - 1)]
    if depth and isinstance(value, dict):
        return [one for item in value.values() for one in reachable(item, depth - 1)]
    if type(value).__module__.startswith("program") and hasattr(value, "__weakref__"):
        return [value]
    return []


def differentiate(result: Any) -> BaseException | None:
    """Sends gradients through what came back, as a user who trains would. A backward that raises leaves no gradients:
    how many there are depends on how many operations one node holds, and the next call would add to them."""
    try:
        outputs = [t for t in reachable(result) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    except RuntimeError as e:  # a view made without gradients, and written since: torch refuses to look
        return e
    if not outputs:
        return None
    leaves = _leaves([t.grad_fn for t in outputs])
    try:
        torch.autograd.backward([t.abs().sum() if t.is_complex() else t.sum() for t in outputs])
    except Exception as e:
        for leaf in leaves:
            leaf.grad = None
        return e
    return None


def _leaves(nodes: list[Any]) -> list[torch.Tensor]:
    """The tensors whose gradients a backward from these nodes adds to."""
    seen: set[Any] = set()
    leaves: list[torch.Tensor] = []
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes.extend(before for before, _ in node.next_functions)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
    return leaves


@contextlib.contextmanager
def modes_restored() -> Iterator[Callable[[], Any]]:
    """Yields a reader of the modes a function may leave changed; they are put back at the end."""
    grad, dtype, depth = torch.is_grad_enabled(), torch.get_default_dtype(), nesting()
    try:
        yield lambda: (
            torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"), nesting(), sys.exc_info()[0],
        )
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        nest(depth)


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """No garbage collection: what dies does so because nobody holds it, on both sides at the same time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
