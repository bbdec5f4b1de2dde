"""Which logs are wanted, how much of each, and where: what FRAMEJIT_LOGS and `set_logs` say."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum

from framejit.errors import InvalidOption
from framejit.late_dataclass import dataclass
from framejit.suggest import did_you_mean


class Level(IntEnum):
    """How much of an event is written."""

    BRIEF = -1
    NORMAL = 0
    FULL = 1


_SIGNS = {"-": Level.BRIEF, "+": Level.FULL}
FILE = "file="


@dataclass(frozen=True)
class Choice:
    """The logs that are wanted (FRAMEJIT_LOGS, `set_logs`): kinds of events with how much of each is written, and where
    to."""

    levels: dict[str, Level] = field(default_factory=dict)
    file: str | None = None
    json: bool = False
    help: bool = False


def choose(words: Iterable[str], meanings: Mapping[str, str]) -> Choice:
    """Read the words of FRAMEJIT_LOGS. A later word about a log overrides an earlier one."""
    levels: dict[str, Level] = {}
    file, json, wants_help = None, False, False
    for word in words:
        if word.startswith(FILE):
            file = word.removeprefix(FILE)
            if not file:
                raise InvalidOption("file= needs the name of a file to write the logs to")
            continue
        level = _SIGNS.get(word[:1], Level.NORMAL)
        name = word.lstrip("+-")
        if name == "all":
            levels |= dict.fromkeys(meanings, level)
        elif name in meanings:
            levels[name] = level
        elif word == "json":
            json = True
        elif word == "help":
            wants_help = True
        else:
            raise InvalidOption(f"there is no log {name!r}{did_you_mean(name, (*meanings, 'all', 'json', 'help'))}")
    return Choice(levels, file, json, wants_help)


def help_text(meanings: Mapping[str, str]) -> str:
    """The names that FRAMEJIT_LOGS takes, with their meanings, a line each."""
    rows = {
        **meanings,
        "all": "all of these",
        "+NAME": "more of it",
        "-NAME": "one line for each event",
        "file=FILE": "append to a file instead of writing to stderr",
        "json": "one JSON object on a line for each event",
        "help": "this text",
    }
    width = max(map(len, rows))
    return "\n".join(
        [
            "FRAMEJIT_LOGS and framejit.set_logs() take, separated by commas:",
            *(f"  {name:<{width}}  {text}" for name, text in rows.items()),
        ]
    )
