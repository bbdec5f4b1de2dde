"""Random guard trees over random objects, evaluated natively and by the reference while the objects change.

In a hostile round the objects' own methods change the world in the middle of an evaluation: then nothing is compared,
but all must survive.
"""
from __future__ import annotations

import contextlib
import gc
import random
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.fuse.thread_state import default_dtype
from tests.attack.fuzz import guard_reference as reference
from tests.attack.fuzz.guard_reference import Check, Failed, Node
from tests.attack.fuzz.guard_world import NAMES, Plain, Sized, World, collect, put_classes_back

CHANGES = 25  # of each tree
FAILING = 0.004  # how many of the checks fail from the first
MODES: tuple[Callable[[], Any], ...] = (
    contextlib.nullcontext,
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.device("cpu"),
    lambda: default_dtype(torch.float64),
)


def always(_: Any) -> bool:
    return True


def is_plain(value: Any) -> bool:
    return isinstance(value, (int, str, Plain))


class Builder:
    """A tree over what a world holds: most of its checks hold at first."""

    def __init__(self, rng: random.Random, world: World, most: int) -> None:
        self.rng, self.world = rng, world
        self.left = most
        self.n_guards = 0
        self.recorded: list[Any] = []
        self.frame = tuple(world.args), world.fn

    def guard_id(self) -> int:
        self.n_guards += 1
        return self.n_guards

    def roots(self) -> list[Node]:
        rng = self.rng
        places: list[tuple[int, Any]] = [(native.A_ARG, i) for i in range(len(self.world.args)) if rng.random() < 0.9]
        if self.world.fn is not None:
            places.append((native.A_FUNC, None))
            places += [
                (native.A_GLOBAL, name) for name in NAMES if name in self.world.fn.__globals__ and rng.random() < 0.7
            ]
            places += [(native.A_CLOSURE_CELL, i) for i in range(len(self.world.fn.__closure__ or ()))]
            places.append((native.A_BUILTIN, rng.choice(("len", "print", "__name__", "nothing"))))
        holders = self.world.holders()
        if rng.random() < 0.5 and holders:
            places.append((native.A_CONST, rng.choice(holders)))
        rng.shuffle(places)
        found = [node for accessor, key in places for node in self.root(accessor, key)]
        if self.recorded:
            relations = Node(native.A_STATE, None, reference.reader(native.A_STATE, None), guard_id=self.guard_id())
            relations.checks = [self.numbered(self.relation()) for _ in range(rng.randint(1, 4))]
            found.append(relations)
        if rng.random() < 0.5:
            found.append(
                Node(
                    native.A_STATE, None, reference.reader(native.A_STATE, None), [self.numbered(reference.state())],
                    guard_id=self.guard_id(),
                )
            )
        return found

    def root(self, accessor: int, key: Any) -> list[Node]:
        made = self.node(accessor, key, None, 0)
        return [made] if made else []

    def node(self, accessor: int, key: Any, parent: Any, depth: int) -> Node | None:
        rng = self.rng
        self.left -= 1
        made = Node(accessor, key, reference.reader(accessor, key), guard_id=self.guard_id())
        try:
            value = made.read(parent, self.frame)
        except Exception:
            value = Failed
            if rng.random() > FAILING:
                return None
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            with contextlib.suppress(Exception):  # a check that is not for this value
                check = self.check(value)
                if rng.random() < FAILING or check.holds(value, {}):
                    made.checks.append(self.numbered(check))
        if rng.random() < 0.3 and value is not Failed:
            made.checks.append(self.numbered(reference.record(len(self.recorded))))
            self.recorded.append(value)
        if depth < 6 and value is not Failed:
            for accessor, key in self.steps(value):
                child = self.node(accessor, key, value, depth + 1) if self.left > 0 else None
                made.children += [child] if child else []
        return made

    def numbered(self, check: Check) -> Check:
        check.guard_id = self.guard_id()
        return check

    def steps(self, value: Any) -> list[tuple[int, Any]]:
        rng = self.rng
        found: list[tuple[int, Any]] = []
        if isinstance(value, dict):
            found += [
                (rng.choice((native.A_KEY,) * 6 + (native.A_GETITEM,)), key)
                for key in dict.keys(value)
                if rng.random() < 0.8
            ]
            found.append((rng.choice((native.A_DICT_KEY_AT, native.A_DICT_VALUE_AT)), rng.randrange(4)))
        elif isinstance(value, (list, tuple, Sized)):
            found += [
                (rng.choice((native.A_INDEX,) * 5 + (native.A_GETITEM,)), rng.choice((i, i, i - len(value))))
                for i in range(len(value))
            ]
        elif isinstance(value, types.CellType):
            found.append((native.A_CELL, None))
        elif isinstance(value, type):
            found += [
                (rng.choice((native.A_TYPE_LOOKUP, native.A_ATTR)), name)
                for name in (*NAMES, "shared", "__init__")
                if rng.random() < 0.4
            ]
        elif isinstance(value, types.FunctionType):
            parts = ("__globals__", "__code__", "__closure__", "__defaults__", "__kwdefaults__", "a", "__name__")
            found += [(native.A_ATTR, name) for name in parts if rng.random() < 0.4]
        elif isinstance(value, types.CodeType):
            found += [(native.A_ATTR, name) for name in ("co_consts", "co_names", "co_name") if rng.random() < 0.6]
        elif isinstance(value, torch.Tensor):
            found += [
                (native.A_ATTR, name) for name in ("requires_grad", "grad", "dtype", "shape") if rng.random() < 0.2
            ]
        elif isinstance(value, (int, float)):
            found += rng.sample([(native.A_BINOP, ("add", 1)), (native.A_RBINOP, ("sub", 7)), (native.A_CALL, type),
                (native.A_BINOP, ("floordiv", 0))], 1)
        else:
            if hasattr(value, "__dict__"):
                found.append((native.A_DICT, None))
            found += [(native.A_ATTR, name) for name in (*NAMES, "raising", "fresh") if rng.random() < 0.4]
        others = (native.A_CALL, len), (native.A_ATTR, "a"), (native.A_INDEX, 0), (native.A_CELL, None)
        return found if rng.random() < 0.9 else [*found[:1], rng.choice(others)]

    def check(self, value: Any) -> Check:
        """One that holds for a value, most of the time."""
        rng = self.rng
        if value is Failed or rng.random() < 0.05:
            return rng.choice(
                (
                    reference.type_is(int), reference.equals(1), reference.length(2), reference.keys(("a",)),
                    reference.truth(True),
                )
            )
        if isinstance(value, torch.Tensor) and rng.random() < 0.7:
            if rng.random() < 0.1:
                return reference.version(value)
            free = rng.choice((0, 0, 0, 1, 2, 3, 255))
            return reference.tensor(value, free, rng.choice((0, free)))
        if isinstance(value, dict) and rng.random() < 0.6:
            absent = [
                reference.key_absent(key) for key in ("a", "nothing", 1, Sized(2)) if not dict.__contains__(value, key)
            ]
            return rng.choice((reference.keys(tuple(value)), reference.length(len(value)), *absent))
        if isinstance(value, (list, tuple, set, frozenset)) and rng.random() < 0.5:
            return reference.length(len(value))
        if isinstance(value, type) and rng.random() < 0.3:
            lacking = [name for name in (*NAMES, "nothing") if not any(name in vars(c) for c in value.__mro__)]
            return reference.class_lacks(rng.choice(lacking))
        kind = rng.randrange(9)
        if kind < 2:
            return reference.type_is(type(value))
        if kind < 4:
            return reference.identity(value)
        if kind == 4:
            name = rng.choice((*NAMES, "__len__", "nothing", "__getattr__"))
            return reference.attribute_absent("nothing" if hasattr(value, name) else name)
        if kind == 5:
            return reference.truth(bool(value))
        if kind == 6:
            return reference.python(is_plain if is_plain(value) else always)
        return (
            reference.equals(value)
            if not isinstance(value, (torch.Tensor, torch.nn.Module, types.FunctionType))
            else reference.identity(value)
        )

    def relation(self) -> Check:
        """A check that compares recorded values."""
        rng, known = self.rng, self.recorded
        slots = [*range(len(known))]
        tensors = [
            slot
            for slot in slots
            if isinstance(known[slot], torch.Tensor) and known[slot].dim() and known[slot].layout is torch.strided
        ]
        numbers = [slot for slot in slots if type(known[slot]) is int and abs(known[slot]) < 2**63]
        kind = rng.randrange(4)
        if kind == 0 and tensors:
            return self.size_relation(tensors, numbers)
        if kind == 1:
            pairs = [(a, b) for a in slots for b in slots if known[a] is known[b]]
            return reference.same(*rng.choice(pairs))
        if kind == 2:
            chosen = tuple(rng.sample(slots, rng.randint(1, min(len(slots), 3))))
            classes = [type(known[slot]) for slot in chosen]
            return reference.of_several(lambda *values: [*map(type, values)] == classes, chosen)
        firsts: dict[int, int] = {}
        for slot in rng.sample(slots, rng.randint(1, len(slots))):
            firsts.setdefault(id(known[slot]), slot)
        return reference.distinct(tuple(firsts.values()))

    def size_relation(self, tensors: list[int], numbers: list[int]) -> Check:
        rng, known = self.rng, self.recorded
        slots = tuple(rng.sample(tensors, min(len(tensors), rng.randint(1, 3)))) + tuple(~slot for slot in numbers[:1])

        def term(depth: int) -> tuple[int, ...]:
            if depth == 0 or rng.random() < 0.4:
                i = rng.randrange(len(slots))
                if rng.random() < 0.3:
                    return native.S_CONST, rng.choice((0, 1, 2, 3, -1, 2**62))
                return (
                    (native.S_SIZE, i, 0)
                    if slots[i] < 0
                    else (rng.choice((native.S_SIZE, native.S_STRIDE)), i, rng.randrange(known[slots[i]].dim()))
                )
            operation = rng.choice(
                (native.S_ADD, native.S_MUL, native.S_FLOORDIV, native.S_MOD, native.S_MIN, native.S_MAX)
            )
            return (*term(depth - 1), *term(depth - 1), operation)

        left, right = term(2), term(2)
        records = dict(enumerate(known))
        compare = [(native.S_EQ,), (native.S_EQ, native.S_NOT), (native.S_LT,), (native.S_LT, native.S_NOT)]
        rng.shuffle(compare)
        for operations in compare:
            made = reference.sizes(slots, (*left, *right, *operations))
            with contextlib.suppress(Failed, ZeroDivisionError):
                if made.holds(None, records):
                    return made
        return made


def one_tree(seed: int) -> str | None:
    """Builds a tree and changes the world under it; gives the first difference in words."""
    rng = random.Random(seed)
    world = World(rng)
    builder = Builder(rng, world, rng.choice((3, 12, 25, 60)))
    roots = builder.roots()
    try:
        tree = native.GuardTree([root.described() for root in roots], len(builder.recorded))
    except (TypeError, ValueError, RuntimeError) as e:
        return f"seed {seed}: the tree is refused: {e!r}"
    builder.recorded.clear()
    builder.frame = (), None
    try:
        for change in range(CHANGES):
            for _ in range(rng.randint(1, 3)):
                text = differs(tree, roots, world)
                if text:
                    return f"seed {seed}, change {change}: {text}"
            with rng.choice(MODES)() if rng.random() < 0.1 else contextlib.nullcontext():
                undo = world.change()
                collect(rng)
                text = differs(tree, roots, world)
            if text:
                return f"seed {seed}, after change {change}: {text}"
            if rng.random() < 0.85:
                with contextlib.suppress(Exception):
                    undo()
            del undo
    finally:
        put_classes_back()
    return None


def differs(tree: native.GuardTree, roots: list[Node], world: World) -> str | None:
    args, fn = tuple(world.args), world.fn
    quick = tree.check(args, fn)
    blamed = tree.explain(args, fn)
    expected = reference.verdict(roots, (args, fn))
    found = None if blamed is None else (blamed[0], blamed[2])
    again = tree.check(args, fn)
    if not (quick is again is (expected is None)) or found != expected:
        return f"check {quick}, again {again}, explain {found}; expected {expected}"
    return None


# ---- hostile rounds ----
def nothing() -> None:
    pass


ACT: list[Callable[[], None]] = [nothing]
"""What hostile objects do."""


class Hostile:
    """Does something to the world whenever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__"):
            return object.__getattribute__(self, name)
        ACT[0]()
        return name

    def __eq__(self, other: object) -> bool:
        ACT[0]()
        return True

    def __hash__(self) -> int:
        ACT[0]()
        return 5

    def __len__(self) -> int:
        ACT[0]()
        return 1

    def __bool__(self) -> bool:
        ACT[0]()
        return True

    def __getitem__(self, i: Any) -> Any:
        ACT[0]()
        return [i]

    def __add__(self, other: Any) -> Any:
        ACT[0]()
        return Plain(a=other)


class HostileString(str):
    """A key that compares in Python."""

    def __eq__(self, other: object) -> bool:
        ACT[0]()
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


def one_hostile_tree(seed: int) -> None:
    """Builds a tree over objects that change the world while they are looked at; there is nothing to compare, but it
    must come to an end."""
    rng = random.Random(seed)
    world = World(rng)
    trees: list[tuple[native.GuardTree, list[Node]]] = []
    depth = 0

    def act() -> None:
        nonlocal depth
        if depth > 2 or not trees or rng.random() < 0.3:
            return
        depth += 1
        try:
            world.change()
            if rng.random() < 0.3:
                gc.collect(1)
            if rng.random() < 0.3:
                trees[0][0].check(tuple(world.args), world.fn)
            if rng.random() < 0.1:
                world.args.clear()
                world.args.append(1)
        finally:
            depth -= 1

    ACT[0] = act
    for holder in world.holders():
        if isinstance(holder, list):
            holder.append(Hostile())
        elif isinstance(holder, dict):
            holder[rng.choice(("a", HostileString("a"), Hostile()))] = Hostile()
        elif isinstance(holder, Plain):
            holder.a = Hostile()
    world.args.append(Hostile())
    with contextlib.suppress(Exception):
        builder = Builder(rng, world, 60)
        roots = builder.roots()
        trees.append((native.GuardTree([root.described() for root in roots], len(builder.recorded)), roots))
    try:
        for _ in range(CHANGES if trees else 0):
            trees[0][0].check(tuple(world.args), world.fn)
            trees[0][0].explain(tuple(world.args), world.fn)
            with contextlib.suppress(Exception):  # what changes the world is disturbed by what it changes as well
                undo = world.change()
                trees[0][0].check(tuple(world.args), world.fn)
                undo()
    finally:
        ACT[0] = nothing
        put_classes_back()


def fuzz(seeds: Iterator[int] | range, seconds: float = float("inf")) -> tuple[int, list[str]]:
    """How many trees were tried, and the differences."""
    end, n, found = time.monotonic() + seconds, 0, []
    before = gc.get_freeze_count()
    if not before:
        gc.freeze()  # torch's hundred thousand objects need not be looked through at each collection
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            if time.monotonic() > end:
                break
            if seed % 4 == 3:
                one_hostile_tree(seed)
            else:
                text = one_tree(seed)
                found += [text] if text else []
            n += 1
    if not before:
        gc.unfreeze()
    return n, found
