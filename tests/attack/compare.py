"""Runs a program as plain Python and compiled, call by call, and says where they first differ."""
from __future__ import annotations

import contextlib
import gc
import io
import math
import operator
import re
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

import framejit
from framejit import events
from tests.attack import devices
from tests.attack.generator.program import Program
from tests.attack.rounding import jittered
from tests.attack.world import Observed, World, alive, quiet_collector, rest_of

from comparison import Comparison

ADDRESS = re.compile(r"0x[0-9a-f]+")
FRAMES = re.compile(r"\nframe #0: .*", re.DOTALL)
INTERNAL = ("defect in framejit", "could not be compiled and runs as ATen", "its operations don't raise")


@dataclass
class Difference:
    kind: str
    call: int
    message: str

    @property
    def signature(self) -> str:
        """What stays the same while a program is reduced."""
        text = re.sub(
            r"\(\d+, .*?\)|[-+]?\d[\d.e+-]*|'[^']*'|\"[^\"]*\"|\[.*?\]|t\d+",
            "#",
            self.message.splitlines()[0] if self.message else "",
        )
        return f"{self.kind}: {text[:90]}"


PLACE: Final = frozenset(("stride", "storage_offset", "untyped_storage().nbytes"))
FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    **{name: operator.attrgetter(name) for name in ("dtype", "shape", "requires_grad", "is_leaf", "retains_grad")},
    **{name: operator.methodcaller(name) for name in ("stride", "storage_offset", "is_inference", "is_conj", "is_neg")},
    "grad_fn is None": lambda t: t.grad_fn is None,
    "untyped_storage().nbytes": lambda t: t.untyped_storage().nbytes(),
}
OF_GRADIENTS: Final = {fact: ask for fact, ask in FACTS.items() if fact not in PLACE} | {
    "stride": lambda t: [stride for size, stride in zip(t.shape, t.stride()) if size != 1]
}
"""In which memory a gradient lies depends on what autograd found that it could take over. So gradients may be parts of
one storage, as those of what `cat` was given, if no part is of two."""
OF_EACH_MEMORY: Final = "ComplexHalf support is experimental"
"""What torch warns of whenever it makes a tensor of this dtype, those in between too, of which a graph has others."""


def answer(ask: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    """A fact of a tensor, or what asking raises: of views that were written in another mode autograd tells nothing."""
    try:
        return ask(tensor)
    except RuntimeError as e:
        return f"{type(e).__name__}: {e}"


OF_VALUES: Final = frozenset(("result", "arguments", "state", "numbers", "rest"))


WRITTEN_SINCE: Final = "needed for gradient computation has been modified by an inplace operation"


class Strict(Comparison):
    """Structural equality; numbers that differ in their last bits are suspects, to be judged by what rounding does to
    them."""

    def __init__(self, exact: bool, gradients: bool = True) -> None:
        """`gradients`: whether leaves' gradients are compared."""
        super().__init__(0.0, 0.0)
        self.exact, self.gradients = exact, gradients
        self.suspects: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def atom(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, (float, complex)) and not self.exact and (a != b or str(a) != str(b)):
            self.suspects[path] = torch.tensor(a), torch.tensor(b)
        elif isinstance(a, str):
            assert ADDRESS.sub("0x", a) == ADDRESS.sub("0x", b), f"{path}: {a!r} expected, got {b!r}"
        else:
            super().atom(a, b, path)

    def tensor(self, a: torch.Tensor, b: torch.Tensor, path: str) -> None:
        for fact, ask in (OF_GRADIENTS if path.endswith(".grad") else FACTS).items():
            one, two = answer(ask, a), answer(ask, b)
            assert one == two, f"{path}.{fact}: {one} expected, got {two}"
        assert type(a) is type(b), f"{path}: type {type(a)} expected, got {type(b)}"
        same_values(a.detach(), b.detach(), path, self)
        if not path.endswith(".grad"):
            self.seen(
                ("storage", a.untyped_storage()._cdata), ("storage", b.untyped_storage()._cdata), f"storage of {path}"
            )
        if a.data_ptr() and b.data_ptr():
            self.seen(("memory", a.data_ptr()), ("memory", b.data_ptr()), f"memory of {path}")
        assert a._is_view() == b._is_view(), f"{path}._is_view: {a._is_view()} expected, got {b._is_view()}"
        if self.gradients and answer(lambda t: t.is_leaf and t.requires_grad, a) is True:
            self.same(a.grad, b.grad, f"{path}.grad")

    def exception(self, a: BaseException, b: BaseException, path: str) -> None:
        one, two = _message(a), _message(b)
        assert one == two, f"{path}: message {one!r} expected, got {two!r}"
        for link in ("__cause__", "__context__"):
            self.same(getattr(a, link), getattr(b, link), f"{path}.{link}")
        assert a.__suppress_context__ == b.__suppress_context__, f"{path}.__suppress_context__"


def same_values(a: torch.Tensor, b: torch.Tensor, path: str, comparison: Strict) -> None:
    a, b = a.resolve_conj().resolve_neg().clone(), b.resolve_conj().resolve_neg().clone()
    inexact = a.is_floating_point() or a.is_complex()
    # for which torch has no comparison
    one, two = (t.to(torch.complex64) if t.dtype == torch.complex32 else t for t in (a, b))
    if (
        torch.equal(one, two)
        or inexact
        and torch.equal(one.isnan(), two.isnan())
        and torch.equal(one.nan_to_num(), two.nan_to_num())
    ):
        if (
            not inexact
            or a.is_complex()
            or not comparison.exact
            or torch.equal(a.signbit() | a.isnan(), b.signbit() | b.isnan())
        ):
            return
    if inexact and not comparison.exact:
        comparison.suspects[path] = a, b
        return
    raise AssertionError(f"{path}: {a.flatten()[:6].tolist()} expected, got {b.flatten()[:6].tolist()}")


class Deviation(Strict):
    """How far two worlds are apart at each place."""

    def __init__(self) -> None:
        super().__init__(exact=False)


class Watch:
    """What framejit tells of the calls since the last `clear`."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.captured = False

    def __enter__(self) -> Watch:
        self.unsubscribe = events.subscribe(self.listen)
        return self

    def __exit__(self, *error: object) -> None:
        self.unsubscribe()

    def listen(self, event: events.Event) -> None:
        if event.kind == "warning":
            self.warnings.append(event.fields["message"])
        self.captured |= event.kind == "capture_started"

    def clear(self) -> None:
        self.warnings.clear()
        self.captured = False

    def internal(self, call: int) -> Difference | None:
        found = [text for text in self.warnings if any(words in text for words in INTERNAL)]
        return Difference("internal", call, found[0]) if found else None


def optimizing(program: Program) -> Callable[[Any], Any]:
    """What compiles a function of the program."""
    options = {**(devices.options() if program.backend == "fuse" else {}), **program.options}
    return lambda fn: framejit.optimize(fn, backend=program.backend, **options)


def compare(program: Program) -> Difference | None:
    """The first difference, or None."""
    framejit.reset()
    name = f"program_{program.seed}"
    with quiet_collector(), Watch() as watch:
        eager = World(name, program.text)
        compiled = World(name, program.text, optimizing(program))
        for i in range(len(eager.calls)):
            watch.clear()
            expected, got = eager.call(i), compiled.call(i)
            difference = watch.internal(i) or difference_of(program, i, expected, got, watch.captured)
            if difference:
                return difference if difference.kind not in OF_VALUES or repeats(program, i) else None
    return None


def repeats(program: Program, i: int) -> bool:
    """Whether plain Python gives the same values twice: not if a kernel of torch's reads memory that nothing was
    written to."""
    worlds = [World(f"program_{program.seed}", program.text) for _ in range(3)]
    for j in range(i):
        for world in worlds:
            world.call(j)
    first, *others = [_values(_with_memory_full_of(number, world, i)) for number, world in enumerate(worlds)]
    return all(mismatch(Strict(exact=True), first, other, "values") is None for other in others)


def _with_memory_full_of(number: float, world: World, i: int) -> Observed:
    """A call that finds a number in whatever memory of a few hundred bytes it is given."""
    for size in range(1, 100):
        torch.full((size,), number)
    return world.call(i)


def difference_of(
    program: Program, i: int, expected: Observed, got: Observed, captured: bool, lifetimes: bool = True
) -> Difference | None:
    # a backward that raised has left gradients of the operations before that one; of those in one node it leaves none
    strict = Strict(exact=program.backend == "eager", gradients=expected.gradient_error is None)
    facts: list[tuple[str, Any, Any]] = [
        ("exception", expected.error, got.error), ("line", expected.lines, got.lines),
        ("stdout", expected.stdout, got.stdout), ("modes", expected.modes,
            got.modes),
        ("result", expected.result, got.result), ("arguments", expected.arguments, got.arguments),
        ("state", expected.state, got.state), ("gradient",
            expected.gradient_error, got.gradient_error),
        ("random", expected.random_state, got.random_state),
        ("warnings", _told(expected.warnings), _told(got.warnings)),
        ("stderr", expected.stderr, got.stderr), ("rest",
            rest_of(expected.result), rest_of(got.result)),
    ]
    for kind, a, b in facts:
        message = mismatch(strict, a, b, kind)
        if message is None:
            continue
        if kind == "stdout" and (printed_by_cycles(program, i) == got.stdout or _without_nodes(a) == _without_nodes(b)):
            continue
        if kind == "gradient" and _says_written_since(a) and _says_written_since(b):
            continue
        if kind == "exception" and (a is None or b is None):
            message = f"{describe(a)} expected, got {describe(b)}"
        if (
            not strict.exact
            and kind in ("exception", "line", "stdout", "result", "arguments", "state", "rest")
            and unstable(program, i, kind, expected, a)
        ):
            return None
        return Difference(kind, i, message)
    if strict.suspects:
        message = beyond_rounding(program, i, facts, strict)
        if message:
            return Difference("numbers", i, message)
    del facts, strict, a, b
    if not lifetimes:
        return None
    early, late = expected.watched, got.watched
    vars(expected).clear()
    vars(got).clear()
    one, two = alive(early), alive(late)
    if captured and any(two):  # what a capture leaves behind are cycles
        gc.collect()
        one, two = alive(early), alive(late)
    if any(lives and not lived for lived, lives in zip(one, two)) and not _fused_node_lives():
        return Difference("lifetime", i, f"alive {one} expected, got {two}{_holders(one, late)}")
    return None


def _holders(expected: list[bool], watched: list[weakref.ref[Any]]) -> str:
    """Who holds what should be dead: autograd, where Python knows nobody."""
    found = [ref() for ref, lives in zip(watched, expected) if not lives]
    living = [one for one in found if one is not None]
    lines = []
    for one in living:
        for holder in gc.get_referrers(one):
            if holder is not living and holder is not found:
                lines.append(f"{type(holder).__name__} {str(holder)[:200]}")
                lines += [f"  in {type(each).__name__} {str(each)[:100]}" for each in gc.get_referrers(holder)[:4]]
    return "\n".join(["", *(lines or ["held by nobody in Python"])])


def _told(warned: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The warnings, of which one that is given for each memory counts once."""
    told: list[tuple[str, str]] = []
    for warning in warned:
        if OF_EACH_MEMORY not in warning[1] or warning not in told:
            told.append(warning)
    return told


def _without_nodes(printed: str) -> str:
    """What was printed without the names of autograd's nodes: of a fused graph there is one."""
    return re.sub(r"\b[A-Z]\w*Backward\d*\b", "a node", printed)


def _says_written_since(error: BaseException | None) -> bool:
    """Whether a backward was refused because of a write. Which of the tensors that are kept it names depends on which
    are."""
    return isinstance(error, RuntimeError) and WRITTEN_SINCE in str(error)


def _fused_node_lives() -> bool:
    """Whether a tensor is about in whose history a fused graph is: what the backward of one of its results keeps lives
    as long as any of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has objects that warn when they are asked for their type
        histories = [each.grad_fn for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    seen = set()
    while histories:
        node = histories.pop()
        if type(node).__name__ == "CompiledBackward":
            return True
        if node is not None and node not in seen:
            seen.add(node)
            histories += [after for after, _ in node.next_functions]
    return False


def mismatch(comparison: Strict, a: Any, b: Any, path: str) -> str | None:
    try:
        comparison.same(a, b, path)
    except AssertionError as e:
        return str(e)
    return None


def describe(error: BaseException | None) -> str:
    return "no exception" if error is None else f"{type(error).__name__}: {str(error)[:200]}"


def again(program: Program, i: int, seed: int) -> Observed:
    """Call `i` in a world where every inexact result is moved a little."""
    world = World(f"program_{program.seed}", program.text, around=partial(jittered, seed))
    for j in range(i):
        world.call(j)
    return world.call(i)


def printed_by_cycles(program: Program, i: int) -> str:
    """What call `i` prints if it ends with a collection: what dies in a cycle, as a frame that holds an exception of
    its own, does so at no promised time."""
    world = World(f"program_{program.seed}", program.text, collects=True)
    for j in range(i):
        world.call(j)
    with contextlib.redirect_stdout(io.StringIO()):
        gc.collect()  # cycles of the calls before
    return world.call(i).stdout


def unstable(program: Program, i: int, kind: str, expected: Observed, fact: Any) -> bool:
    """Whether rounding alone changes what is no number: a branch taken, a printed digit. `fact`: what `expected` has of
    the kind."""
    first = _values(expected) if kind in ("arguments", "state") else fact
    return any(
        mismatch(Deviation(), first, _fact(again(program, i, seed), kind), kind) is not None for seed in range(12)
    )


def _message(error: BaseException) -> str:
    """What an error says, without addresses, and without the frames of C++ that some messages of torch's list: compiled
    code is called from others."""
    return ADDRESS.sub("0x", FRAMES.sub("", str(error)))


def _values(seen: Observed) -> Any:
    """All that may share tensors."""
    return seen.result, seen.arguments, seen.state


def _fact(seen: Observed, kind: str) -> Any:
    if kind == "rest":
        return rest_of(seen.result)  # which uses up the iterators, so that it can't be asked twice
    if kind in ("arguments", "state"):
        return _values(seen)
    return {"exception": seen.error, "line": seen.lines, "stdout": seen.stdout, "result": seen.result}[kind]


def beyond_rounding(program: Program, i: int, facts: list[tuple[str, Any, Any]], strict: Strict) -> str | None:
    """What differs by more than rounding moves it; None if nothing does.

    A branch on the sign of what would be 0 but for rounding goes one way in half of the worlds, so that a few of them
    may all agree: before anything is told, many are asked. Each world only adds to what is allowed, so that none is
    asked where less was enough.
    """
    allowed: dict[str, torch.Tensor] = {}
    message: str | None = None
    for seeds in (range(0), range(1), range(1, 4), range(4, 32)):
        if not _move(program, i, facts, seeds, allowed):
            return None
        message = _beyond(allowed, strict)
        if message is None:
            return None
    return message


def _move(
    program: Program, i: int, facts: list[tuple[str, Any, Any]], seeds: range, allowed: dict[str, torch.Tensor]
) -> bool:
    """Adds to `allowed` how far rounding moves each number of call `i`; False where it leads to another branch, after
    which nothing is known."""
    for seed in seeds:
        seen = again(program, i, seed)
        deviation = Deviation()
        with jittered(seed):  # iterators that came back compute now
            others = {
                "result": seen.result, "arguments": seen.arguments, "state": seen.state, "rest": rest_of(seen.result),
            }
        try:
            for kind, a, _ in facts:
                if others.get(kind) is not None:
                    deviation.same(a, others[kind], kind)
        except AssertionError:
            return False
        for path, (a, moved) in deviation.suspects.items():
            apart = (a - moved).abs().nan_to_num(math.inf, math.inf)
            allowed[path] = torch.maximum(apart, allowed.get(path, apart))
    return True


def _beyond(allowed: dict[str, torch.Tensor], strict: Strict) -> str | None:
    for path, (a, b) in strict.suspects.items():
        eps = torch.finfo(a.dtype).eps if a.dtype.is_floating_point or a.dtype.is_complex else 1e-7
        room = (
            allowed[path].max() if path in allowed and allowed[path].numel() else torch.zeros(())
        ) * 8 + 16 * eps * a.abs().nan_to_num(0, 0)
        if path.endswith(".grad"):
            # backwards begin with ones, and what should cancel need not: of a softmax's a sum of which is one
            room = room + eps
        wrong = ~((a - b).abs().nan_to_num(math.inf, math.inf) <= room) & ~(a == b) & ~(a.isnan() & b.isnan())
        if a.dtype == torch.float16:
            wrong &= ~((a.isinf() | b.isinf()) & (a.abs() > 3e4) & (b.abs() > 3e4))
        if wrong.any():
            return (
                f"{path}: {a.flatten()[:6].tolist()} expected, got {b.flatten()[:6].tolist()}, rounding moves it by "
                f"{room.flatten()[:6].tolist()}"
            )
    return None
