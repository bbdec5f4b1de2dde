"""Programs in which Triton interprets: that is chosen before Triton is imported, and so in another process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import forked


def interpreting() -> dict[str, str]:
    """An environment in which Triton interprets its kernels."""
    return {**os.environ, "TRITON_INTERPRET": "1"}


def printed(program: Path) -> Any:
    """What a program prints as JSON, in which Triton interprets."""
    done = forked.run(["-W", "ignore", program], env=interpreting(), timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
