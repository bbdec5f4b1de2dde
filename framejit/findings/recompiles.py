"""Recompiles: which guards missed, with what values, and what would make the entries of a function fewer."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from framejit import _native as native
from framejit.events import Event

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
    """What would become of the entries if nothing were assumed about one value."""

    source: str
    entries: int
    remaining: int
    advice: str

    @property
    def saved(self) -> int:
        return self.entries - self.remaining

    def __str__(self) -> str:
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
            miss, others = misses[0], dict.fromkeys(other.actual for other in misses[1:] if other.actual != misses[0].actual)
            later = f", later {', '.join(list(others)[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}" if others else ""
            lines.append(f"  {miss.text}{later}" + (f" (assumed at {file}:{line})" if file else ""))
            if miss.provenance:
                lines.append(f"    {miss.provenance}")
        if self.forecast is not None:
            lines.append(f"  {self.forecast}")
        return "\n".join(lines)


_Assumption = tuple[str, int, str]  # source, check, the guard in words


class Recompiles:
    """Gathers recompiles from events."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], Recompile] = {}
        self._frames: dict[int, tuple[tuple[str, str, int], int]] = {}  # a frame's function, and the id of the very code captured
        self._entries: dict[tuple[tuple[str, str, int], int], list[frozenset[_Assumption]]] = {}

    def hear(self, event: Event) -> None:
        if event.kind == "capture_started":
            fn = event.fields.get("fn")
            self._frames[event.frame_id] = (event.function, event.file, event.line), id(getattr(fn, "__code__", None))
        elif event.kind == "guards" and event.frame_id in self._frames:
            assumed = frozenset((r.source_name, r.check, r.text) for r in event.guards)
            self._entries.setdefault(self._frames[event.frame_id], []).append(assumed)
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
            if recompile is not None and made is not None and (recompile.forecast is None or made.saved > recompile.forecast.saved):
                recompile.forecast = made
        return sorted(self._known.values(), key=lambda r: -r.count)

    def restore(self, recompiles: list[Recompile]) -> None:
        """Take over those of a report."""
        self._known = {(r.function, r.file, r.line): r for r in recompiles}


def forecast(entries: list[frozenset[_Assumption]]) -> Forecast | None:
    """The value whose assumptions set the most entries apart, if entries without them would be the same."""
    if len(entries) < MIN_ENTRIES:
        return None
    common = frozenset.intersection(*entries)
    varying = {source for entry in entries for source, _, _ in entry - common}
    best: Forecast | None = None
    for source in sorted(varying):
        remaining = len({frozenset(a for a in entry if a[0] != source) for entry in entries})
        if remaining < len(entries) and (best is None or remaining < best.remaining):
            checks = {check for entry in entries for s, check, _ in entry - common if s == source}
            best = Forecast(source, len(entries), remaining, _advice(source, checks))
    return best


def _advice(source: str, checks: set[int]) -> str:
    if native.C_TENSOR in checks:
        return f"give `{source}` one shape (pad it, or drop the last short batch with DataLoader(drop_last=True)), dtype and device"
    if native.C_ID in checks:
        return f"pass the same object as `{source}` in each call, made once outside"
    if native.C_LEN in checks or native.C_KEYS in checks:
        return f"keep the length and the keys of `{source}` the same from call to call"
    return f"pass `{source}` as a tensor, or keep it the same from call to call"
