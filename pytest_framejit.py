"""The pytest plugin of framejit.

    @pytest.mark.framejit(max_graphs=1, max_breaks=0, max_recompiles=0)   the test fails where it takes more
    pytest --framejit-lock FILE                                           marked tests fail where they differ from the
    lock
    pytest --framejit-lock FILE --framejit-update                         write the lock

It is a module of its own, because pytest imports it in every project where framejit is installed, and `import framejit`
imports torch.
"""
from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("framejit")
    group.addoption(
        "--framejit-lock", metavar="FILE", help="compare what becomes of functions in tests marked `framejit` with FILE"
    )
    group.addoption("--framejit-update", action="store_true", help="write the file of --framejit-lock instead")


def pytest_configure(config: pytest.Config) -> None:
    limits = "max_graphs=None, max_breaks=None, max_recompiles=None"
    config.addinivalue_line(
        "markers", f"framejit({limits}): fail where compiling takes more graphs, graph breaks or recompiles than that"
    )
    if config.getoption("--framejit-update") and not config.getoption("--framejit-lock"):
        raise pytest.UsageError("--framejit-update needs --framejit-lock FILE, the file to write")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    marks = list(item.iter_markers("framejit"))
    if not marks:
        return (yield)
    from framejit.lock import limits

    # the mark nearest to the test counts
    allowed = {name: limit for mark in reversed(marks) for name, limit in mark.kwargs.items()}
    if any(mark.args for mark in marks):
        raise pytest.UsageError(f"{item.nodeid}: the mark framejit takes its limits by name, as max_graphs=1")
    limits.check_names(allowed)
    with limits.watching(str(item.config.rootpath)) as seen:
        result = yield
    lines = limits.exceeded(allowed, seen) + _compare(item, seen)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
    return result


def _compare(item: pytest.Item, seen: dict[str, object]) -> list[str]:
    """What differs from the lock. In the run that writes it, nothing."""
    path = item.config.getoption("--framejit-lock")
    if not path:
        return []
    from framejit.lock import lockfile
    from framejit.lock.drift import drift

    lock = lockfile.read(path)
    if item.config.getoption("--framejit-update"):
        lock.programs[item.nodeid] = seen  # type: ignore[assignment]
        lock.write()
        return []
    if item.nodeid not in lock.programs:
        return [f"{path} knows nothing of {item.nodeid}: run pytest with --framejit-update"]
    differences = drift(lock.programs[item.nodeid], seen)  # type: ignore[arg-type]
    return [f"not as {path} says:", *(f"  {line}" for line in differences)] if differences else []
