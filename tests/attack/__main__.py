"""python -m tests.attack: random programs, compared with plain Python. See --help."""
from __future__ import annotations

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # support.py and comparison.py
os.environ.setdefault("FRAMEJIT_CACHE_SIZE", "0")

from tests.attack.command import main  # noqa: E402

sys.exit(main())
