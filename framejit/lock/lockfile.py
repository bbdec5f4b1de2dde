"""`framejit.lock`: the summaries of programs and tests, by their names."""
from __future__ import annotations

import json
import os
from dataclasses import field

from framejit.errors import FramejitError
from framejit.late_dataclass import dataclass
from framejit.lock.summary import FunctionSummary, Summary

VERSION = 1
NAME = "framejit.lock"


class NotALock(FramejitError, ValueError):
    """The file is no lock, or one of another version of framejit."""


@dataclass
class Lock:
    """The summaries in a file."""

    path: str
    programs: dict[str, Summary] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The project's folder: the one the lock lies in."""
        return os.path.dirname(os.path.abspath(self.path))

    def write(self) -> None:
        """Write the file anew, in an order that does not depend on the run."""
        programs = {
            name: {key: f.to_dict() for key, f in sorted(summary.items())}
            for name, summary in sorted(self.programs.items())
        }
        text = json.dumps({"version": VERSION, "programs": programs}, indent=1, ensure_ascii=False) + "\n"
        partial = f"{self.path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(partial, self.path)  # a run that is interrupted leaves the lock as it was


def read(path: str) -> Lock:
    """The lock in a file; an empty one where there is none yet. Raises NotALock."""
    try:
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
        if data["version"] != VERSION:
            raise NotALock(
                f"{path} is of version {data['version']}, and this framejit reads version {VERSION}: write it anew "
                "with --update"
            )
        programs = {
            name: {key: FunctionSummary.from_dict(value) for key, value in summary.items()}
            for name, summary in data["programs"].items()
        }
    except FileNotFoundError:
        return Lock(path)
    except NotALock:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise NotALock(f"{path} is no lock of framejit ({type(e).__name__}: {e})") from e
    return Lock(path, programs)
