"""Warnings: once for each message and place, as an event and through Python's `warnings`."""
import warnings

import pytest

import framejit
from framejit.events import events, warn


def test_once_for_each_place():
    with pytest.warns(framejit.FramejitWarning) as caught:
        for place in (("a.py", 3), ("a.py", 3), ("a.py", 4), None, None):
            warn("careful", place)
    assert [(w.filename, w.lineno) for w in caught] == [("a.py", 3), ("a.py", 4), ("framejit", 0)]
    assert all(str(w.message) == "framejit: careful" for w in caught)
    assert [event.place for event in events("warning")] == [("a.py", 3), ("a.py", 4), None]


def test_python_s_filters_apply():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", framejit.FramejitWarning)
        warn("quietly")
    with warnings.catch_warnings():
        warnings.simplefilter("error", framejit.FramejitWarning)
        with pytest.raises(framejit.FramejitWarning, match="loudly"):
            warn("loudly")
