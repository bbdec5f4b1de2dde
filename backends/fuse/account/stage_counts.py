"""How often each stage of compilation ran in this process: what comes from the disk cache runs none."""

from __future__ import annotations

from collections import Counter

stages: Counter[str] = Counter()
"""By name: `record`, `lower`, `schedule`, and each pass."""
