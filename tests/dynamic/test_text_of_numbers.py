"""Text with numbers that change, or that are read from tensors, is written by replacement code: log lines assume
nothing, and break no graph."""

# ruff: noqa: UP031, UP032
import math

import pytest
import torch

from support import Pair

NUMBERS = (3.0, 2.5, 1e-9, -0.0, 12345.678, math.inf, math.nan, 0.1, 1e30)


def in_braces(log, step, loss, rate):
    log.append(f"step {step}: loss {loss:.4f} of {loss!r} ({loss:>12.2e}), rate {rate:.3g}%")


def by_percent(log, step, loss, rate):
    log.append("step %d: loss %.4f, %s" % (step, loss, "a part"))
    log.append("%5.1f%%" % (100 * rate) + " of %r" % loss)


def by_template(log, step, loss, rate):
    log.append("{}: {:.3f} {rate:>8}".format(step, loss, rate=rate))


def by_functions(log, step, loss, rate):
    log.append(str(loss) + " " + repr(rate) + " " + format(loss, ".2f") + " " + format(step, "03d") + ascii(rate))


def nested(log, step, loss, rate):
    text = f"{loss:.2f}"
    text += f" at {step}"
    log.append({"line": f"<{text!r:>30}> {text}", "parts": (text, [text])})


@pytest.mark.parametrize("write", [in_braces, by_percent, by_template, by_functions, nested])
@pytest.mark.parametrize("read", [False, True])
def test_lines_of_a_log(write, read):
    def make():
        log = []

        def step(number, x, loss, rate):
            y = x * 2
            write(log, number, y.sum().item() if read else loss, rate)
            return y + 1

        return step, log

    pair = Pair(make)
    for number, loss in enumerate(NUMBERS):
        x = torch.tensor([loss, 0.0])
        pair.call(number, x, loss, number * 0.5, captures=False if number > 3 else None)
    pair.expect(breaks=0, graphs=range(1, 5))  # which of the numbers change is seen one by one


def test_ints_and_bools_that_are_read():
    def fn(x):
        largest = x.argmax().item()
        return x * 2, f"{largest} {largest:>4} {bool(x[0] > 0)}", "%d of %s" % (largest, int(x.sum()))

    pair = Pair(lambda: fn)
    for values in ([1.0, 2.0], [3.0, -1.0], [-4.0, 5.0]):
        pair.call(torch.tensor(values))
    pair.expect(breaks=0)


def test_tensors_without_dimensions():
    def fn(x, w):
        loss = (x * w).sum()
        return x + 1, f"{loss:.3f} of {loss}, {x.argmax():>3}, {x.max() > 0}", format(loss.detach(), ".1e")

    pair = Pair(lambda: fn)
    for values in ([1.0, 2.0], [3.0, -1.0], [-4.0, math.nan]):
        pair.call(torch.tensor(values), torch.ones(2, requires_grad=True))
    pair.expect(breaks=0, graphs=1)


def test_tensors_that_torch_formats_otherwise():
    def fn(x, p):
        return x * 2, f"{x}", f"{p}", f"{x[0]!r}"

    pair = Pair(lambda: fn)
    for values in ([1.0, 2.0], [3.0, -1.0]):
        pair.call(torch.tensor(values), torch.nn.Parameter(torch.tensor(2.0)))


def test_text_that_is_asked_for():
    def fn(x, state):
        text = f"{x.sum().item():.1f}"
        state["seen"] = state.get("seen", 0) + len(text)
        if text == "3.0" or text.startswith("7"):
            return x * 2, text.split(".")
        return (x + 1, text.upper()) if text else (x, None)

    pair = Pair(lambda: fn)
    for values in ([1.0, 2.0], [1.0, 3.0], [70.0, 1.0], [1.0, 2.0], [-5.0, 5.0]):
        pair.call(torch.tensor(values), {"seen": 1})


def test_text_as_a_key():
    def fn(x, state, number):
        state[f"value {number}"] = f"{x.sum().item():.2f}"
        return x * number

    pair = Pair(lambda: fn)
    for number in (1, 2, 3, 2, 5):
        pair.call(torch.randn(3), {"value 2": "none"}, number)


def test_what_raises_in_eager():
    def fn(x, kind):
        number = x.sum().item()
        if kind == 0:
            return f"{number:d}"
        if kind == 1:
            return "%d" % number
        if kind == 2:
            return "%s %s" % number
        return "{} {}".format(*[number])

    pair = Pair(lambda: fn)
    for kind in (0, 1, 2, 3):
        for value in (1.0, math.nan, 2.0):
            pair.call(torch.tensor([value]), kind)
