"""Programs of launch graphs, with a driver that is made up."""

from __future__ import annotations

import pytest
from fake_cuda import fake_driver  # noqa: F401  (a fixture)
from launch_programs import GRAPHS


@pytest.fixture
def run(fake_driver):  # noqa: F811
    return lambda program: fake_driver(GRAPHS + program)
