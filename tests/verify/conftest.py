"""Reproductions go to the test's own folder."""
from __future__ import annotations

import pathlib
import sys

import pytest

import framejit

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # shadows


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(verify_folder=str(tmp_path / "verify")):
        yield tmp_path / "verify"
