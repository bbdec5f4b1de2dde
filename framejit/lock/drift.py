"""What differs between a lock and a run, in words."""
from __future__ import annotations

from framejit.lock.summary import FunctionSummary, Summary


def drift(locked: Summary, now: Summary) -> list[str]:
    """A line for each function that differs, with indented lines for what does; nothing where all is as it was."""
    lines: list[str] = []
    for name in sorted({*locked, *now}):
        if name not in now:
            lines.append(f"{name}: was {_described(locked[name])}, is not seen any more")
        elif name not in locked:
            lines.append(f"{name}: new, {_described(now[name])}")
            lines += [f"  + graph break {b}" for b in now[name].breaks]
        else:
            changes = _changes(locked[name], now[name])
            lines += [name, *(f"  {change}" for change in changes)] if changes else []
    return lines


def _described(function: FunctionSummary) -> str:
    graphs = f"{function.graphs} graph{'' if function.graphs == 1 else 's'}"
    return f"{function.state}, {graphs}"


def _changes(locked: FunctionSummary, now: FunctionSummary) -> list[str]:
    found = [f"{what}: {old} in the lock, now {new}" for what, old, new in _numbers(locked, now) if old != new]
    found += [f"- graph break {b}" for b in locked.breaks if b not in now.breaks]
    return found + [f"+ graph break {b}" for b in now.breaks if b not in locked.breaks]


def _numbers(locked: FunctionSummary, now: FunctionSummary) -> list[tuple[str, object, object]]:
    return [(what, getattr(locked, what), getattr(now, what)) for what in ("state", "graphs", "recompiles")]
