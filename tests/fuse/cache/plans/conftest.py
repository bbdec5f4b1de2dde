"""A cache folder of each test's own. Captures are not kept: a kept one would find its plan without asking for it."""

import pathlib
import sys

import pytest

import framejit

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # kept_plans


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache"), keep_captures=False):
        yield tmp_path / "cache"
