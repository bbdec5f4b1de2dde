"""A signal that comes while an instruction is carried out between graphs is handled in the try and with blocks that the
program is in by then.

CPython looks for signals where functions begin, after most calls and at jumps back, so that other instructions leave
them to the next of these.
"""

import _thread
import signal

import pytest
import torch

from support import ANY, check


class Interrupting:
    """All in C, so that nothing looks for signals before the instruction has ended."""

    __enter__ = staticmethod(_thread.interrupt_main)
    __add__ = __getitem__ = staticmethod(_thread.interrupt_main)

    def __init__(self):
        self.log = []

    def __exit__(self, cls, error, traceback):
        self.log.append(cls)


class Suppressing(Interrupting):
    def __exit__(self, cls, error, traceback):
        super().__exit__(cls, error, traceback)
        return True


class Entered(Interrupting):
    def __enter__(self):
        return len(self.log)


def look():
    """Nothing: a signal that waits is handled where it begins."""


def enters(manager, x):
    x = x + 1
    try:
        with manager:
            look()
    except KeyboardInterrupt:
        return "interrupted", manager.log, x * 2
    return manager.log, x


def enters_beside_others(manager, x):
    x = x + 1
    other = Entered()
    try:
        with other as n, manager:
            look()
    except KeyboardInterrupt:
        return "interrupted", n, other.log, manager.log, x * 2
    return other.log, manager.log, x


def adds(manager, x):
    x = x + 1
    try:
        manager + signal.SIGINT
        look()
    except KeyboardInterrupt:
        return "interrupted", manager.log, x * 2
    return manager.log, x


def adds_in_a_handler(manager, x):
    x = x + 1
    try:
        try:
            raise ValueError(int(x.sum()))
        except ValueError:
            manager + signal.SIGINT
            look()
    except KeyboardInterrupt as e:
        return "interrupted", type(e.__context__), x * 2
    return x


def adds_above_a_finally(manager, x):
    x = x + 1
    try:
        try:
            manager + signal.SIGINT
            look()
        finally:
            manager.log.append("finally")
    except KeyboardInterrupt:
        return "interrupted", manager.log, x * 2
    return x


def gets_in_a_call(manager, x):
    x = x + 1
    try:
        with Entered() as n:
            below(manager, n)
    except KeyboardInterrupt:
        return "interrupted", manager.log, x * 2
    return manager.log, x


def below(manager, n):
    manager[signal.SIGINT]
    look()


def gets_in_a_loop(manager, x):
    for i in range(3):
        try:
            x = x + i
            manager[signal.SIGINT]
            look()
            manager.log.append("behind")
        except KeyboardInterrupt:
            manager.log.append(i)
    return manager.log, x


@pytest.mark.parametrize("manager", [Interrupting, Suppressing])
@pytest.mark.parametrize(
    "function",
    [enters, enters_beside_others, adds, adds_in_a_handler, adds_above_a_finally, gets_in_a_call, gets_in_a_loop],
)
def test_an_interrupt_that_waits(function, manager):
    try:
        pair = check(function, manager(), torch.ones(2), graphs=ANY, breaks=ANY)
    except KeyboardInterrupt:  # which would end all tests
        pytest.fail("the interrupt was raised outside of the block")
    assert "interrupt_main" in pair.breaks[-1][-1]
