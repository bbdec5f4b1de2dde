"""What operations warn of is heard once for each run of the program's, also where a graph is tried before its first run."""
from __future__ import annotations

import threading
import warnings

import pytest
import torch

import framejit
from framejit.capture.unheard_warnings import unheard_warnings


@pytest.mark.parametrize("always", [True, False])
def test_a_graph_that_writes_and_warns(always):
    def fn(x, counts):
        counts.add_(1)
        counts.bitwise_and_(7)  # may have no kernel: the graph is tried first
        return x.to(torch.float32) + counts

    before = torch.is_warn_always_enabled()
    compiled = framejit.optimize(fn, backend="eager")
    torch.set_warn_always(always)
    try:
        for i in range(3):
            found = []
            for run in (fn, compiled):
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    run(torch.ones(3, dtype=torch.complex64), torch.zeros(3, dtype=torch.int64))
                found.append([str(warning.message) for warning in heard])
            assert always is False or found[0] == found[1] != [], i
            assert len(found[1]) <= 1
        assert torch.is_warn_always_enabled() is always
    finally:
        torch.set_warn_always(before)


def test_other_threads_are_heard_and_filters_stay():
    filters = list(warnings.filters)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with unheard_warnings():
            warnings.warn("here", stacklevel=1)
            other = threading.Thread(target=lambda: warnings.warn("there", stacklevel=1))
            other.start()
            other.join()
        warnings.warn("after", stacklevel=1)
    assert [str(warning.message) for warning in heard] == ["there", "after"]
    assert list(warnings.filters) == filters


def test_what_was_warned_of_is_not_forgotten():
    def once():
        warnings.warn("only once", stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        for _ in range(3):
            once()
            with unheard_warnings():
                once()
    assert len(heard) == 1
