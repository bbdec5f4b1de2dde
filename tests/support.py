"""Runs a function eagerly and under framejit side by side, and fails on any difference a program could see.

`check(fn, *args)` is the usual entry; `Pair` is for tests that call several times and change the world in between.
Both count the graphs that reached the backend, so that a fallback to eager can never make a test pass.
"""
from __future__ import annotations

import contextlib
import copy
import io
import os
import random
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framejit
from framejit import events
from framejit.backends.registry import resolve

from comparison import assert_same

TEST_BACKEND = os.environ.get("FRAMEJIT_TEST_BACKEND", "eager")
ANY = range(1, 1_000_000)  # at least one graph
# tensor to Python: never part of a graph
READS = {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::item", "aten::equal"}


class AtenCounter(TorchDispatchMode):
    """Counts the tensor operations that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name not in READS
        return func(*args, **(kwargs or {}))


@dataclass
class CountingBackend:
    """Remembers graphs and runs them: as they are, or by the backend that FRAMEJIT_TEST_BACKEND names."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    runs: int = 0
    aten_ops: int = 0
    count_aten: bool = False
    symbolic_sizes = True  # as the backends that it passes graphs to

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
        self.graphs.append(gm)
        compiled = resolve(TEST_BACKEND)[0](gm, example_inputs)

        def run(*inputs: torch.Tensor) -> Any:
            self.runs += 1
            if not self.count_aten:
                return compiled(*inputs)
            with AtenCounter() as counter:
                outputs = gm.forward(*inputs)
            self.aten_ops += counter.count
            return outputs

        return run

    @property
    def ops(self) -> int:
        return sum(map(op_count, self.graphs))


def op_count(gm: torch.fx.GraphModule) -> int:
    return sum(node.op in ("call_function", "call_method", "call_module") for node in gm.graph.nodes)


@contextlib.contextmanager
def recorded() -> Iterator[list[Any]]:
    """The framejit events of the block; without the call's arguments, which would then live longer than in the
    program."""
    log: list[Any] = []
    unsubscribe = events.subscribe(
        lambda event: log.append(event.without_transient() if event.kind == "capture_started" else event)
    )
    try:
        yield log
    finally:
        unsubscribe()


def of_kind(log: Iterable[Any], kind: str) -> list[Any]:
    return [event for event in log if event.kind == kind]


def check_steps(
    outcomes: Callable[[Callable[[Any], Any]], Any], backend: str, captures: int, *, rtol: float, atol: float
) -> None:
    """What `outcomes(compile_step)` gives is as in plain Python, where steps are compiled, without a graph break and
    with so many captures at most."""
    expected = outcomes(lambda step: step)
    with recorded() as log:
        found = outcomes(lambda step: framejit.optimize(step, backend=backend))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    assert not of_kind(log, "graph_break")
    assert len(of_kind(log, "capture_started")) <= captures


@dataclass
class Outcome:
    result: Any
    error: BaseException | None
    lines: list[tuple[str, int]]
    stdout: str
    world: Any


LIBRARIES = (os.path.dirname(torch.__file__), os.path.dirname(framejit.__file__), __file__, "<")


@contextlib.contextmanager
def modes_restored() -> Iterator[Callable[[], Any]]:
    """Yields a reader of the modes that a function may leave changed; they are put back at the end."""
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield lambda: (
            torch.is_grad_enabled(), torch.get_default_dtype(), hash(torch.random.get_rng_state().numpy().tobytes()),
            random.random(), np.random.random(),
        )
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)


def peak(step: Callable[[], Any]) -> int:
    """The most bytes alive at once above what was alive before. That memory from before goes is not counted."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    assert changes
    return max(accumulate(changes, initial=0))


def seed(number: int = 0) -> None:
    """Seed random numbers. `torch.manual_seed` would, without a GPU, write down the whole stack for each kind of
    device, which takes longer than many tests."""
    if torch.cuda.is_available():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], state: Any) -> Outcome:
    seed()
    random.seed(0)
    np.random.seed(0)
    result, error, lines, stdout = None, None, [], io.StringIO()
    with modes_restored() as modes, contextlib.redirect_stdout(stdout):
        try:
            result = fn(*args, **kwargs)
        except Exception as e:
            error = e
            lines = [
                (f.name, f.lineno or 0)
                for f in traceback.extract_tb(e.__traceback__)
                if not f.filename.startswith(LIBRARIES)
            ]
        world = args, kwargs, state() if isinstance(state, types.FunctionType) else state, modes()
    return Outcome(result, error, lines, stdout.getvalue(), world)


class Copies:
    """Deep copies of the arguments for one side; modules are copied once, because they are what guards identify."""

    def __init__(self) -> None:
        self.modules: dict[int, Any] = {}
        self.originals: list[Any] = []

    def of(self, value: Any) -> Any:
        memo: dict[int, Any] = dict(self.modules)
        self.originals.append(value)
        result = copy.deepcopy(value, memo)
        self.modules.update({k: v for k, v in memo.items() if isinstance(v, torch.nn.Module)})
        return result


class Pair:
    """An eager function and its optimized twin, called in step.

    `make()` returns the function, or (function, state): it is called once for each side, so that mutated cells, globals
    and objects are never shared. `state`, or what it returns if it is a function, is compared after every call, as are
    the arguments.
    """

    def __init__(
        self, make: Callable[[], Any], *, atol: float = 0.0, rtol: float = 0.0, traceback: bool = True, **options: Any
    ) -> None:
        self.backend = CountingBackend()
        if TEST_BACKEND == "fuse":  # sums are added up in another order
            atol, rtol = max(atol, 1e-5), max(rtol, 1e-4)
        self.tolerance = {"atol": atol, "rtol": rtol}
        self.traceback = traceback
        self.eager, self.eager_state = split(make())
        original, self.state = split(make())
        self.compiled = framejit.optimize(original, backend=self.backend, **options)
        self.eager_copies, self.copies = Copies(), Copies()
        self.log: list[Any] = []
        self.raised: type[BaseException] | None = None  # by the last call

    def call(self, *args: Any, captures: bool | None = None, warns: bool = False, **kwargs: Any) -> Any:
        """Calls both sides on copies of the arguments and compares. `captures`: whether this call must (not) capture
        anew."""
        eager_args, eager_kwargs = self.eager_copies.of((args, kwargs))
        own_args, own_kwargs = self.copies.of((args, kwargs))
        expected = run(self.eager, eager_args, eager_kwargs, self.eager_state)
        before = len(self.backend.graphs)
        with recorded() as log:
            got = run(self.compiled, own_args, own_kwargs, self.state)
        self.log += log
        self.raised = type(got.error) if got.error else None
        if got.error is not None and expected.error is None:
            raise AssertionError(
                f"eager returned, compiled raised {type(got.error).__name__}: {got.error}\n{self.story()}"
            ) from got.error
        try:
            assert_same(
                (expected.error, expected.stdout, expected.result, expected.world),
                (got.error, got.stdout, got.result, got.world),
                **self.tolerance,
            )
            assert not self.traceback or expected.lines == got.lines, (
                f"traceback {expected.lines} expected, got {got.lines}"
            )
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.story()}") from got.error
        assert warns or not of_kind(log, "warning"), f"framejit warned: {[e.fields for e in of_kind(log, 'warning')]}"
        if captures is not None:
            anew = len(self.backend.graphs) > before or bool(of_kind(log, "capture_started"))
            assert anew == captures, (
                f"{'no capture' if captures else 'a capture'} happened in this call\n{self.story()}"
            )
        return got.result

    @property
    def graphs(self) -> int:
        return len(self.backend.graphs)

    @property
    def breaks(self) -> list[tuple[Any, ...]]:
        """The distinct places at which graphs broke, in order."""
        places = [(e.fields["file"], e.fields["line"], e.fields["reason"]) for e in of_kind(self.log, "graph_break")]
        return list(dict.fromkeys(places))

    def expect(
        self, *, graphs: int | range | None = None, breaks: int | range | None = None, ops: int | range | None = None
    ) -> None:
        for name, number, wanted in (
            ("graphs", self.graphs, graphs), ("breaks", len(self.breaks), breaks), ("ops", self.backend.ops, ops),
        ):
            if wanted is not None:
                assert number in wanted if isinstance(wanted, range) else number == wanted, (
                    f"{name}: {wanted} expected, got {number}\n{self.story()}"
                )

    def story(self) -> str:
        """What framejit did so far, for the message of a failed test."""
        kinds = ("graph_break", "recompile", "frame_done", "warning")
        shown = ("function", "line", "reason", "hint", "state", "n_ops", "failures", "message", "place")
        lines = [
            f"  {e.kind}: " + ", ".join(f"{k}={v}" for k, v in e.fields.items() if k in shown)
            for e in self.log
            if e.kind in kinds
        ]
        return "\n".join([f"{self.graphs} graphs, {self.backend.ops} ops, {self.backend.runs} runs", *lines])


def split(made: Any) -> tuple[Callable[..., Any], Any]:
    return made if isinstance(made, tuple) else (made, made if isinstance(made, torch.nn.Module) else None)


def check(
    fn: Callable[..., Any],
    *args: Any,
    graphs: int | range | None = 1,
    breaks: int | range | None = 0,
    ops: int | range | None = ANY,
    calls: int = 2,
    changed: Iterable[tuple[Any, ...]] = (),
    kwargs: dict[str, Any] | None = None,
    raises: type[Exception] | None = None,
    **options: Any,
) -> Pair:
    """Eager and compiled agree on `args` (`calls` times, captured only by the first) and on each of `changed`.

    `graphs`, `breaks` (places) and `ops` are those of the first call; by default one graph, no break, some operation. A
    call that ends in an exception must say so with `raises`; what it captured on the way is then up to the compiler
    unless stated.
    """
    if raises:
        graphs, breaks, ops = (
            None if given == default else given for given, default in ((graphs, 1), (breaks, 0), (ops, ANY))
        )
    make = (lambda: copy.deepcopy(fn)) if isinstance(fn, torch.nn.Module) else lambda: fn
    pair = Pair(make, **options)
    pair.call(*args, **(kwargs or {}))
    assert issubclass(pair.raised or type(None), raises or type(None)), (
        f"{raises} expected in eager too, got {pair.raised}"
    )
    pair.expect(graphs=graphs, breaks=breaks, ops=None if graphs == 0 else ops)
    may_run_none = graphs is None or graphs == 0 or (isinstance(graphs, range) and 0 in graphs)
    for _ in range(calls - 1):
        runs = pair.backend.runs
        pair.call(*args, captures=False, **(kwargs or {}))
        assert may_run_none or pair.backend.runs > runs, f"the second call ran no graph\n{pair.story()}"
    for other in changed:
        pair.call(*other, **(kwargs or {}))
    if changed:
        pair.call(*args, captures=False, **(kwargs or {}))
    return pair


def check_state(
    make: Callable[[], Any], *calls: tuple[Any, ...], graphs: int | range | None = ANY,
    breaks: int | range | None = 0, **options: Any,
) -> Pair:
    """`make()` builds a private world (function, state) for each side; every call in `calls` must leave both worlds
    alike."""
    pair = Pair(make, **options)
    for args in calls:
        pair.call(*args)
    pair.expect(graphs=graphs, breaks=breaks)
    return pair


def captured_share(make: Callable[[], Any], *args: Any, **options: Any) -> float:
    """The share of eager's tensor operations that a compiled call, once captured, runs inside graphs."""
    pair = Pair(make, **options)
    pair.call(*args)
    copies = pair.eager_copies.of(args)  # copying a tensor runs operations of its own
    with AtenCounter() as eager, contextlib.redirect_stdout(io.StringIO()):
        pair.eager(*copies)
    pair.backend.count_aten = True
    pair.call(*args, captures=False)
    return pair.backend.aten_ops / eager.count


def world(source: str, **names: Any) -> dict[str, Any]:
    """The globals of a fresh module made of `source`, for tests that change globals."""
    import linecache
    import textwrap

    text = textwrap.dedent(source)
    filename = f"world_{abs(hash(text)):x}.py"  # not <...>: tracebacks and logs show its lines
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, Any] = {"torch": torch, "__name__": "world", **names}
    exec(compile(text, filename, "exec", dont_inherit=True), namespace)
    return namespace
