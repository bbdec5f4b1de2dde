"""Lowering: from a list of guards to the native tree that checks them.

Guards that share a path share its steps. Among the steps that leave one value, the cheap ones go first, so that a call
that does not match is told apart early and the long walks through modules come last. A value is always checked before
anything is read from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from framejit import _native as native
from framejit.guards.checks import CHECKS
from framejit.guards.guard import Guard
from framejit.guards.size_program import native_sizes
from framejit.guards.sources import ByIdentity, Source
from framejit.late_dataclass import dataclass

_CHECK_RANK = {check: rank for rank, check in enumerate(CHECKS)}
_IMPLY_TYPE = [check for check, kind in CHECKS.items() if kind.implies_type]

# Rough nanoseconds; only their order matters.
_ACCESS_COST = {
    native.A_ATTR: 30,
    native.A_GETITEM: 60,
    native.A_BINOP: 60,
    native.A_RBINOP: 60,
    native.A_CALL: 200,
}


@dataclass(eq=False)
class _Node:
    accessor: int
    key: Any
    guard_id: int
    """The first guard that needs the value: the one to blame when it cannot be read."""
    checks: dict[int, list[tuple[Any, int]]] = field(default_factory=dict)
    children: dict[Any, _Node] = field(default_factory=dict)
    record: int | None = None
    rank: tuple[bool, int] | None = None

    def finish(self) -> tuple[int, Any, list[tuple[int, Any, int]], list[Any], int]:
        """The nested description that `GuardTree` takes."""
        checks = self._checks_in_order() if self.checks or self.record is not None else []
        return self.accessor, self.key, checks, _in_order(self.children) if self.children else [], self.guard_id

    def _checks_in_order(self) -> list[tuple[int, Any, int]]:
        if len(self.checks) == 1 and self.record is None:
            ((check, found),) = self.checks.items()
            return [(check, payload, guard_id) for payload, guard_id in found]
        checks = dict(self.checks)
        if any(check in checks for check in _IMPLY_TYPE):
            checks.pop(native.C_TYPE, None)
        if self.record is not None:
            checks[native.C_RECORD] = [(self.record, self.guard_id)]
        return [
            (check, payload, guard_id)
            for check in sorted(checks, key=_CHECK_RANK.__getitem__)
            for payload, guard_id in checks[check]
        ]

    def estimate(self) -> tuple[bool, int]:
        """Sort key among siblings: settled leaves of a dict together, then by the cost of the whole subtree."""
        if self.rank is None:
            cost = _ACCESS_COST.get(self.accessor, 3)
            settled = self.accessor == native.A_KEY and not self.children and self.record is None
            for check, found in self.checks.items():
                kind = CHECKS[check]
                cost += kind.cost * len(found)
                settled = settled and kind.settled
            for child in self.children.values():
                cost += child.estimate()[1]
            self.rank = not settled, cost
        return self.rank


def _in_order(nodes: dict[Any, _Node]) -> list[Any]:
    if len(nodes) == 1:
        return [node.finish() for node in nodes.values()]
    return [node.finish() for node in sorted(nodes.values(), key=_Node.estimate)]


class _Lowering:
    def __init__(self) -> None:
        self.roots: dict[Any, _Node] = {}
        self.relations: list[tuple[int, Any, int]] = []
        self.n_records = 0
        self._known: dict[int, tuple[Source, _Node]] = {}

    def node(self, source: Source, guard_id: int) -> _Node:
        """The node of a source, made with its whole path on first use."""
        known = self._known.get(id(source))
        if known is not None:
            return known[1]
        base = source.base
        siblings = self.roots if base is None else self.node(base, guard_id).children
        accessor, key = source.access()
        place = accessor, type(key), _hashable(accessor, key)
        node = siblings.get(place)
        if node is None:
            node = siblings[place] = _Node(accessor, key, guard_id)
        self._known[id(source)] = source, node  # the source too, so that its id is not given to another
        return node

    def record(self, source: Source, guard_id: int) -> int:
        node = self.node(source, guard_id)
        if node.record is None:
            node.record = self.n_records
            self.n_records += 1
        return node.record

    def add(self, guard: Guard, guard_id: int) -> None:
        if CHECKS[guard.check].relates:
            slots = tuple(self.record(source, guard_id) for source in (guard.source, *guard.also))
            payload: Any = slots
            if guard.check == native.C_SIZES:
                payload = native_sizes(slots, guard.payload)
            elif guard.check == native.C_HOLDS:
                payload = guard.payload, slots
            self.relations.append((guard.check, payload, guard_id))
        else:
            self.node(guard.source, guard_id).checks.setdefault(guard.check, []).append((guard.payload, guard_id))

    def finish(self) -> tuple[list[Any], int]:
        roots = _in_order(self.roots)
        if self.relations:
            # What is compared must have been read: a last root of its own, whose value nobody looks at.
            roots.append((native.A_STATE, None, self.relations, [], self.relations[0][2]))
        return roots, self.n_records


def _hashable(accessor: int, key: Any) -> Any:
    if type(key) is str:
        return key
    if accessor in (native.A_CONST, native.A_CALL):
        return ByIdentity(key)
    try:
        hash(key)
    except TypeError:
        return ByIdentity(key)
    return key


@dataclass(frozen=True)
class LoweredGuards:
    """Guards, and the tree that checks them as `GuardTree` takes it."""

    guards: Sequence[Guard]
    roots: list[Any]
    n_records: int
    """How many values guards compare with each other."""

    def tree(self) -> native.GuardTree:
        """The native tree; the guard ids that it reports are positions in `guards`."""
        return native.GuardTree(self.roots, self.n_records)


def lower(guards: Sequence[Guard]) -> native.GuardTree:
    """The native tree for guards."""
    return lowered(guards).tree()


def lowered(guards: Sequence[Guard]) -> LoweredGuards:
    """Guards with the description of their tree."""
    lowering = _Lowering()
    seen: set[Any] = set()
    for guard_id, guard in enumerate(guards):
        key = guard.key()
        if key not in seen:
            seen.add(key)
            lowering.add(guard, guard_id)
    return LoweredGuards(guards, *lowering.finish())
