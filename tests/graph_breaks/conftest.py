"""What is tested here are breaks: an `if` on data is one, however short it is."""
import pytest

import framejit


@pytest.fixture(autouse=True)
def no_branch_is_selected():
    with framejit.config.patch(branch_operations=0):
        yield
