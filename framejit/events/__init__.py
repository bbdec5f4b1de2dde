"""The structured trace: one event for each decision of the compiler. Logs, status, explanations and tests read nothing
else."""
from framejit.events.event import KINDS, Event
from framejit.events.hub import emit, events, listening, subscribe, warn
from framejit.events.ledger import Break, FunctionRecord, Payback, Status, Waiting

__all__ = [
    "KINDS", "Break", "Event", "FunctionRecord", "Payback", "Status", "Waiting", "emit", "events", "listening",
    "subscribe", "warn",
]
