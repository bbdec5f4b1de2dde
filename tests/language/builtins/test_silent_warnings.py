"""`warnings.warn` is in the graph where nobody is shown anything, and is told where and as often as in plain Python."""
import contextlib
import io
import sys
import warnings

import pytest
import torch

import framejit

from support import of_kind, recorded, world

X = torch.ones(3)
SOURCE = """
import warnings

class Own(UserWarning):
    pass

def of_the_caller(x, level=2):
    warnings.warn("of the caller", DeprecationWarning, stacklevel=level)
    return x * 2

def deeper(x):
    return (lambda: of_the_caller(x, 3))() + (lambda: [of_the_caller(x, level) for level in (1, 2)])()[0]

def generated(x):
    warnings.warn("generated")
    yield x + 1

def plain(x):
    y = x + 1
    warnings.warn("plain")
    return y * 2

def several(x):
    y = of_the_caller(x)
    for i in range(2):
        warnings.warn(f"number {i}", category=Own)
        y = y + 1
    warnings.warn(
        "of two lines",
        RuntimeWarning,
    )
    return deeper(y) + next(generated(y))

def printed(x):
    print("before", file=OUT)
    y = plain(x)
    print("after", file=OUT)
    warnings.warn("last", ImportWarning)
    return y

def raises_behind(x):
    y = plain(x)
    raise ValueError(of_the_caller(y).sum().item())

def graph_raises(x):
    return x[plain(INDEX) // 2 - 1]

def caught(x):
    try:
        return plain(x), None
    except UserWarning as e:
        return x, str(e)

def counted(x):
    COUNT.append(x)
    return plain(x)

def forgotten(x):
    with warnings.catch_warnings():
        y = x + 1
    return plain(y)

def quiet_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = plain(x)
    return y + 1

def refused(x):
    try:
        warnings.warn("text", 3)
    except TypeError as e:
        return x + 1, str(e)

def outside(x):
    warnings.warn("outside", stacklevel=2)
    return x + 1

def instance(x):
    warnings.warn(Own("instance"))
    return x + 1
"""
NAMES = [line[4 : line.index("(")] for line in SOURCE.splitlines() if line.startswith("def ")]
NAMES.remove("generated")  # which gives a generator


def filters(*given):
    def setup():
        warnings.resetwarnings()
        for action, *rest in given:
            warnings.filterwarnings(action, *rest)

    return setup


SETUPS = {
    "default": filters(("default",)),
    "ignored": filters(("ignore",)),
    "once": filters(("once",)),
    "module": filters(("module",)),
    "always": filters(("always",)),
    "error": filters(("error",)),
    "some": filters(("default",), ("ignore", "", DeprecationWarning), ("ignore", "plain", UserWarning, "wor")),
    "as Python": lambda: None,
}


def write(message):
    sys.stderr.write(warnings.formatwarning(message.message, message.category, message.filename, message.lineno))


write.__module__ = "warnings"  # as what Python writes with, whose place pytest takes


def story(namespace, function, setup, change, calls=5):
    """All that is seen of some calls, during which filters change."""
    seen = io.StringIO()
    namespace["OUT"] = seen
    with warnings.catch_warnings(), contextlib.redirect_stderr(seen):
        warnings._showwarnmsg_impl = write
        warnings.onceregistry.clear()
        setup()
        for call in range(calls):
            print("call", call, file=seen)
            try:
                result = function(X * call)
                print(result, file=seen)
            except Exception as e:
                print(repr(e), file=seen)
            if call == 2:
                change(namespace)
    registry = namespace.get("__warningregistry__", {})
    return seen.getvalue().splitlines(), [str(key) for key in registry if key != "version"], len(namespace["COUNT"])


def forget(namespace):
    with warnings.catch_warnings():
        pass


def break_index(namespace):
    warnings.simplefilter("always")
    namespace["INDEX"].fill_(7)


CHANGES = {
    "nothing": lambda namespace: None,
    "forgotten": forget,
    "error": lambda namespace: warnings.simplefilter("error"),
    "shown": lambda namespace: warnings.simplefilter("always"),
    "ignored": lambda namespace: warnings.filterwarnings("ignore", "of|plain"),
    "cleared": lambda namespace: namespace.pop("__warningregistry__", None),
    "moved": lambda namespace: namespace.update(__name__="elsewhere"),
    "raises": break_index,
}


def made():
    return world(SOURCE, OUT=None, COUNT=[], INDEX=torch.ones(1, dtype=torch.int64))


def compared(name, setup, change, calls=5):
    plain, fast = made(), made()
    function = fast[name]
    expected = story(plain, plain[name], setup, change, calls)
    with recorded() as log:
        found = story(fast, framejit.optimize(function, backend="eager"), setup, change, calls)
    assert found == expected
    assert not of_kind(log, "warning")
    return of_kind(log, "graph_break"), log


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setup", SETUPS)
def test_what_is_seen_of_calls(name, setup):
    compared(name, SETUPS[setup], CHANGES["nothing"])


@pytest.mark.parametrize("name", ["several", "printed", "graph_raises", "forgotten"])
@pytest.mark.parametrize("setup", ["default", "ignored"])
@pytest.mark.parametrize("change", CHANGES)
def test_filters_change_between_calls(name, setup, change):
    compared(name, SETUPS[setup], CHANGES[change])


@pytest.mark.parametrize("name", ["plain", "several", "counted"])
def test_what_is_ignored_breaks_no_graph(name):
    breaks, _ = compared(name, SETUPS["ignored"], CHANGES["nothing"])
    assert not breaks


@pytest.mark.parametrize("name, places", [("plain", 1), ("several", 9), ("counted", 1)])
def test_what_was_shown_breaks_no_graph_any_more(name, places):
    breaks, log = compared(name, SETUPS["default"], CHANGES["nothing"])
    assert 0 < len(breaks) <= places
    later, _ = compared(name, SETUPS["default"], CHANGES["nothing"], calls=1)
    assert len(later) == len(breaks)  # all in the first call


def test_what_is_recorded_is_in_its_order():
    namespace = made()
    fast = framejit.optimize(namespace["plain"], backend="eager")
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            fast(X)
            fast(X)
        line = namespace["plain"].__code__.co_firstlineno + 2
        assert [(str(w.message), w.category, w.lineno) for w in seen] == [("plain", UserWarning, line)]


def test_a_function_of_the_program_that_shows_warnings(monkeypatch):
    namespace, told = made(), []
    fast = framejit.optimize(namespace["counted"], backend="eager")
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "_showwarnmsg_impl", write)
        warnings.simplefilter("default")
        with contextlib.redirect_stderr(io.StringIO()):
            fast(X)
            fast(X)
        monkeypatch.setattr(warnings, "showwarning", lambda *told_of: told.append(len(namespace["COUNT"])))
        fast(X)
        warnings.simplefilter("default")  # Python forgets
        fast(X)
    assert told == [4]
