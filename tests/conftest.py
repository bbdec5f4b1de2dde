"""Markers, a clean framejit before and after each test, and fixed seeds."""
from __future__ import annotations

import os
import pathlib
import random
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # `from support import check` works from every folder of tests

MARKERS = {
    "soundness": "CPython's own test modules run under `framejit run`",
    "slow": "takes more than a few seconds",
    "model": "builds a real model of another library",
}


def pytest_configure(config: pytest.Config) -> None:
    if "FRAMEJIT_CACHE_DIR" not in os.environ:  # the user's own cache is neither read nor filled
        kept = tempfile.TemporaryDirectory(prefix="framejit-tests-")
        config.add_cleanup(kept.cleanup)
        os.environ["FRAMEJIT_CACHE_DIR"] = kept.name
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.fixture(autouse=True)
def clean_slate():
    import torch

    import framejit
    from framejit.backends.fuse.graph.passes import pipeline

    pipeline.always_checked = True
    framejit.reset()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    yield
    framejit.reset()
