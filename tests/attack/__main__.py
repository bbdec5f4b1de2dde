"""python -m tests.attack: random programs, compared with plain Python. See --help."""
from __future__ import annotations

import os
import sys

from tests.attack.checkout import make_importable

make_importable()
os.environ.setdefault("FRAMEJIT_CACHE_SIZE", "0")

from tests.attack.command import main  # noqa: E402

sys.exit(main())
