"""Recompiles: which guards missed, with what values, and what would make the entries of a function fewer."""
from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field
from typing import Any

from framejit import _native as native
from framejit.events import Event
from framejit.guards.guard import GuardRecord
from framejit.guards.tensor_facts import TensorFacts
from framejit.late_dataclass import dataclass

_SHOWN = 4  # of more values than this that a guard missed, the rest is left out
MIN_ENTRIES = 3
"""From so many entries on, a forecast is worth making."""


@dataclass
class Miss:
    """A guard that did not hold when no entry fitted."""

    source: str
    text: str
    expected: str
    actual: str
    provenance: str
    file: str = ""
    line: int = 0
    """The line that made the assumption."""


@dataclass
class Forecast:
    """How many of a function's entries would remain if nothing were assumed about one value, or about the sizes of some
    tensors."""

    source: str
    entries: int
    remaining: int
    advice: str
    merged: int = 0
    """How many of the entries would become one, where it is sizes that differ."""
    calls: list[str] = field(default_factory=list)
    """The calls that leave these sizes open."""

    @property
    def saved(self) -> int:
        return self.entries - self.remaining

    def __str__(self) -> str:
        if self.calls:
            return f"leave {self.source} open, and {self.merged} of {self.entries} entries become one: {self.advice}"
        return f"if `{self.source}` did not change, {self.entries} entries would be {self.remaining}: {self.advice}"


@dataclass
class Recompile:
    """A function that was compiled again."""

    function: str
    file: str
    line: int
    count: int = 0
    misses: list[Miss] = field(default_factory=list)
    forecast: Forecast | None = None

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Recompile:
        forecast = Forecast(**data["forecast"]) if data["forecast"] else None
        return Recompile(**{**data, "misses": [Miss(**miss) for miss in data["misses"]], "forecast": forecast})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.function} ({self.file}:{self.line}) was compiled {self.count + 1} times, because"]
        alike: dict[tuple[str, str, int], list[Miss]] = {}
        for miss in self.misses:
            alike.setdefault((miss.source, miss.file, miss.line), []).append(miss)
        for (_, file, line), misses in alike.items():
            miss, others = (
                misses[0],
                dict.fromkeys(other.actual for other in misses[1:] if other.actual != misses[0].actual),
            )
            later = (
                f", later {', '.join(list(others)[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}" if others else ""
            )
            lines.append(f"  {miss.text}{later}" + (f" (assumed at {file}:{line})" if file else ""))
            if miss.provenance:
                lines.append(f"    {miss.provenance}")
        if self.forecast is not None:
            lines.append(f"  {self.forecast}")
        return "\n".join(lines)


_Assumption = tuple[str, int, str]  # source, check, the guard in words


@dataclass(frozen=True)
class _Entry:
    """What one entry assumes."""

    assumptions: frozenset[_Assumption]
    tensors: dict[str, TensorFacts]

    @staticmethod
    def of(records: list[GuardRecord]) -> _Entry:
        tensors = {r.source_name: r.expected for r in records if isinstance(r.expected, TensorFacts)}
        return _Entry(frozenset((r.source_name, r.check, r.text) for r in records), tensors)


class Recompiles:
    """Gathers recompiles from events."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], Recompile] = {}
        # a frame's function, and the id of the very code captured
        self._frames: dict[int, tuple[tuple[str, str, int], int]] = {}
        self._entries: dict[tuple[tuple[str, str, int], int], list[_Entry]] = {}

    def hear(self, event: Event) -> None:
        if event.kind == "capture_started":
            fn = event.fields.get("fn")
            self._frames[event.frame_id] = (event.function, event.file, event.line), id(getattr(fn, "__code__", None))
        elif event.kind == "guards" and event.frame_id in self._frames:
            self._entries.setdefault(self._frames[event.frame_id], []).append(_Entry.of(event.guards))
        elif event.kind == "recompile":
            self._recompile(event)

    def _recompile(self, event: Event) -> None:
        key = (event.function, event.file, event.line)
        known = self._known.setdefault(key, Recompile(*key))
        known.count += 1
        origins = event.fields.get("provenance") or [""] * len(event.failures)
        for (text, expected, actual, source, user_line), origin in zip(event.failures, origins):
            known.misses.append(Miss(source, text, expected, actual, origin, *(user_line or ())))

    def all(self) -> list[Recompile]:
        """The functions that were compiled again, those with the most recompiles first."""
        for (key, _), entries in self._entries.items():
            recompile, made = self._known.get(key), forecast(entries)
            if (
                recompile is not None
                and made is not None
                and (recompile.forecast is None or made.saved > recompile.forecast.saved)
            ):
                recompile.forecast = made
        return sorted(self._known.values(), key=lambda r: -r.count)

    def restore(self, recompiles: list[Recompile]) -> None:
        """Take over those of a report."""
        self._known = {(r.function, r.file, r.line): r for r in recompiles}


def forecast(entries: list[_Entry]) -> Forecast | None:
    """The change of assumptions that would leave the fewest entries: sizes that are left open, or one value that is not
    assumed. None if nothing would help."""
    if len(entries) < MIN_ENTRIES:
        return None
    best = _widened(entries)
    assumed = [entry.assumptions for entry in entries]
    common = frozenset.intersection(*assumed)
    for source in sorted({source for entry in assumed for source, _, _ in entry - common}):
        remaining = len({frozenset(a for a in entry if a[0] != source) for entry in assumed})
        if remaining < len(entries) and (best is None or remaining < best.remaining):
            checks = {check for entry in assumed for s, check, _ in entry - common if s == source}
            best = Forecast(source, len(entries), remaining, _advice(source, checks))
    return best


def _widened(entries: list[_Entry]) -> Forecast | None:
    """What would become of the entries if no size were assumed that differs between them."""
    dims = _differing(entries)
    if not dims:
        return None
    kinds = Counter(_without_sizes(entry, dims) for entry in entries)
    if len(kinds) == len(entries):
        return None
    places = [f"size {dim} of `{source}`" for source, found in sorted(dims.items()) for dim in sorted(found)]
    calls = [
        f"framejit.mark_dynamic({source}, {', '.join(map(str, found)) if len(found) == 1 else tuple(found)})"
        for source, found in _sorted(dims)
    ]
    named = not any(source.startswith("__") for source in dims)  # what has no name in the program can't be marked
    said = (
        f"call {' and '.join(calls)} before it, or optimize it with dynamic=True"
        if named
        else "optimize it with dynamic=True"
    )
    return Forecast(
        " and ".join(places), len(entries), len(kinds), said, max(kinds.values()),
        calls if named else ["optimize(..., dynamic=True)"],
    )


def _sorted(dims: dict[str, set[int]]) -> list[tuple[str, list[int]]]:
    return [(source, sorted(dims[source])) for source in sorted(dims)]


def _differing(entries: list[_Entry]) -> dict[str, set[int]]:
    """By source the dimensions of tensors, alike otherwise, that have other sizes in other entries; sizes of 0 and 1
    cannot be left open."""
    seen: dict[tuple[str, int, int], set[int]] = {}
    for entry in entries:
        for source, facts in entry.tensors.items():
            for dim, size in enumerate(facts.shape):
                if size > 1 and not facts.free_sizes >> dim & 1:
                    seen.setdefault((source, len(facts.shape), dim), set()).add(size)
    found: dict[str, set[int]] = {}
    for (source, _, dim), sizes in seen.items():
        if len(sizes) > 1:
            found.setdefault(source, set()).add(dim)
    return found


def _without_sizes(entry: _Entry, dims: dict[str, set[int]]) -> tuple[Any, ...]:
    """What the entry assumes apart from these sizes, from strides, which follow from sizes, and from relations between
    sizes."""
    alike = []
    for source, facts in sorted(entry.tensors.items()):
        symbolic_dims = dims.get(source, set())
        shape = tuple("*" if dim in symbolic_dims and size > 1 else size for dim, size in enumerate(facts.shape))
        alike.append(
            (
                source, facts.cls, facts.dtype, facts.device, shape, facts.requires_grad,
                () if symbolic_dims else facts.strides,
            )
        )
    others = frozenset(a for a in entry.assumptions if a[1] not in (native.C_TENSOR, native.C_SIZES))
    return tuple(alike), others


def _advice(source: str, checks: set[int]) -> str:
    if native.C_TENSOR in checks:
        return (
            f"give `{source}` one shape (pad it, or drop the last short batch with DataLoader(drop_last=True)), dtype "
            "and device"
        )
    if native.C_SIZES in checks:
        return (
            f"the program needs a size of `{source}` as a number (range(), float(), formatting), or branches on it: "
            "compute with the tensor instead"
        )
    if native.C_ID in checks:
        return f"pass the same object as `{source}` in each call, made once outside"
    if native.C_LEN in checks or native.C_KEYS in checks:
        return f"keep the length and the keys of `{source}` the same from call to call"
    return f"pass `{source}` as a tensor, or keep it the same from call to call"
