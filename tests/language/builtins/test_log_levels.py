"""Messages of levels that a logger does not take are no reason to break a graph; those that it takes are written where
the program says, by the line that says so."""
import itertools
import logging

import pytest
import torch

import framejit

from comparison import assert_same
from support import CountingBackend, check

X = torch.ones(3)
names = (f"tests.log_levels.{n}" for n in itertools.count())


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append((record.levelname, record.funcName, record.lineno, record.getMessage()))


def made():
    logger = logging.getLogger(next(names))
    logger.propagate = False
    logger.addHandler(Kept())
    return logger, logger.handlers[0].records


def test_messages_that_are_not_taken():
    logger, records = made()
    child = logger.getChild("child")

    def fn(x):
        logger.debug("x is %s", x)
        y = x * 2
        child.info("%s of %s", 1, 2, extra={"key": y})
        if logger.isEnabledFor(logging.INFO):
            y = y + 100
        return y, child.getEffectiveLevel(), logger.isEnabledFor(logging.ERROR)

    check(fn, X, calls=1)
    assert records == []


def test_levels_that_change():
    loggers = made(), made()

    def function(logger):
        def fn(x):
            y = x * 2
            logger.debug("debug")
            logger.info("info %d", len(x))
            y = y + logger.isEnabledFor(logging.INFO)
            logger.warning("warning")
            logger.error("error")
            return y, logger.getEffectiveLevel()

        return fn

    (plain, expected), (logger, records) = loggers
    backend = CountingBackend()
    eager, fast = function(plain), framejit.optimize(function(logger), backend=backend)
    steps = [
        lambda log: log.setLevel(logging.ERROR),
        lambda log: setattr(log, "level", logging.DEBUG),  # which the cache of answers does not notice
        lambda log: log.setLevel(logging.DEBUG),
        lambda log: logging.disable(logging.WARNING),
        lambda log: logging.disable(logging.NOTSET),
        lambda log: setattr(log, "disabled", True),
    ]
    for step in [lambda log: None, *steps]:
        for log in (plain, logger):
            step(log)
        for _ in range(3):
            for a, b in zip(eager(X), fast(X), strict=True):
                assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        assert records == expected
    assert backend.runs


def test_a_logger_of_the_program():
    class Picky(logging.Logger):
        def isEnabledFor(self, level):
            return level == logging.DEBUG

    logger, kept = Picky("picky"), Kept()
    logger.addHandler(kept)

    def fn(x):
        logger.info("not taken")
        y = x * 2
        logger.debug("taken")
        return y + 1

    fast = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(fast(X), X * 2 + 1)
    assert [message for *_, message in kept.records] == ["taken", "taken"]


def test_a_message_is_missing():
    logger, _ = made()
    fast = framejit.optimize(lambda x: (x + 1, logger.debug()), backend="eager")
    with pytest.raises(TypeError, match=r"Logger.debug\(\) missing 1 required positional argument: 'msg'"):
        fast(X)


def test_loggers_that_are_asked_for():
    known = next(names)
    logging.getLogger(f"{known}.child")  # of its parent there is a placeholder

    def fn(x, name):
        logger = logging.getLogger(name)
        logger.debug("x is %s", x)
        return x + len(logger.name), logger is logging.getLogger(name=name)

    def agree(name, **options):
        compiled = framejit.optimize(fn, backend="eager", **options)
        for _ in range(3):
            assert_same(compiled(X, name), fn(X, name))

    for name in (None, "", "root", f"{known}.child"):
        agree(name, fullgraph=True)
    assert type(logging.Logger.manager.loggerDict[known]) is logging.PlaceHolder
    for name in (known, next(names)):
        made_by_the_call = framejit.optimize(fn, backend="eager")(X, name)
        assert made_by_the_call[1] is True and type(logging.Logger.manager.loggerDict[name]) is logging.Logger
        agree(name, fullgraph=True)
    check(lambda x: logging.getLogger(3), X, raises=TypeError, graphs=None, breaks=None)
