"""Where events go: to the ledger, to a bounded memory of recent ones, to whoever listens, and as warnings to the
user."""
from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from framejit.config import config
from framejit.errors import FramejitWarning
from framejit.events.event import KINDS, Event
from framejit.events.ledger import ledger

Listener = Callable[[Event], object]

_listeners: tuple[Listener, ...] = ()
_changing = threading.Lock()
_told: set[tuple[str, object]] = set()
_recent: deque[Event] = deque(maxlen=config.ring_size)
_keeps_to_itself = False


def emit(kind: str, **fields: Any) -> None:
    """Report a decision. `kind` and the names of `fields` are those of `KINDS`."""
    assert kind in KINDS, kind
    event = Event(kind, time.time_ns(), threading.get_ident(), fields)
    ledger.note(event)
    remember(event.without_transient())
    for listener in _listeners:
        try:
            listener(event)
        except Exception as e:
            _drop(listener, e)


def remember(event: Event) -> None:
    """Keep an event among the latest `config.ring_size`."""
    global _recent
    if _recent.maxlen != config.ring_size:
        _recent = deque(_recent, maxlen=config.ring_size)
    _recent.append(event)


def listening() -> bool:
    """Whether anybody listens: fields that are costly to compute and only listeners see may be left out if not."""
    return bool(_listeners)


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener` with each event from now on. Returns a function that ends that."""
    global _listeners
    with _changing:
        _listeners = (*_listeners, listener)

    def unsubscribe() -> None:
        global _listeners
        with _changing:
            kept = list(_listeners)
            if listener in kept:
                kept.remove(listener)
            _listeners = tuple(kept)

    return unsubscribe


def events(kind: str | None = None) -> list[Event]:
    """The recent events (of one kind), oldest first, without the fields that would keep graphs and the user's objects
    alive."""
    return [event for event in list(_recent) if kind is None or event.kind == kind]


def forget() -> None:
    """Empty the memory of recent events. Listeners stay."""
    _recent.clear()


def warn(message: str, place: tuple[str, int] | None = None) -> None:
    """Warn once about `message` at `place`, a (file, line) of the user's code, through Python's `warnings` and as an
    event."""
    if (message, place) in _told:
        return
    _told.add((message, place))
    emit("warning", message=message, place=place)
    if _keeps_to_itself:
        return
    file, line = place or ("framejit", 0)
    warnings.warn_explicit(f"framejit: {message}", FramejitWarning, file, line)


def keep_to_itself() -> None:
    """In a forked process: events are remembered, but nobody hears of them, and warnings are events only."""
    global _listeners, _keeps_to_itself
    _listeners, _keeps_to_itself = (), True


def forget_warnings() -> None:
    """Warnings that were given may be given again."""
    _told.clear()


def _drop(listener: Listener, error: Exception) -> None:
    """A listener that raises must not take the user's program with it: it is told about once and not called again."""
    global _listeners
    with _changing:
        _listeners = tuple(other for other in _listeners if other is not listener)
    name = getattr(listener, "__qualname__", repr(listener))
    warn(f"the event listener {name} raised {type(error).__name__}: {error}; it is not called any more")
