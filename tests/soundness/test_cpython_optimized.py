"""CPython's own tests end as they do without framejit when every test method is optimized."""
import importlib.util

import pytest

from cpython_modules import EXCUSED, QUICK
from optimized import differences

pytestmark = [
    pytest.mark.soundness,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("test.test_grammar") is None, reason="this Python was built without its test package"
    ),
]


@pytest.mark.parametrize("module", QUICK)
def test_same_outcomes(module):
    n, told = differences(module)
    assert n > 0
    unexcused = {name: text for name, text in told.items() if name not in EXCUSED}
    assert not unexcused, "\n\n".join(f"{name}: {text}" for name, text in unexcused.items())
