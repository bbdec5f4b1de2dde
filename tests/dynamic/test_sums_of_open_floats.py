"""Sums of floats that are not assumed are what this Python's `sum` gives, which from CPython 3.12 on keeps what
rounding loses."""

from collections import deque

import pytest
import torch

import framejit

LARGE = [1.0, 1e100, 1.0, -1e100, 0.1, 0.2, 0.3, 1e16, 1.0, -1e16]


def of_attributes(state, x):
    state["a"], state["b"] = state["n"] * 0.1, state["n"] * 1e16
    return x * sum([state["a"], state["b"], 1.0, -state["b"], state["n"]])


def of_grown(state, x):
    state["losses"].append(LARGE[state["n"] % 10])
    return x * sum(state["losses"]), sum(state["losses"]) / len(state["losses"])


def of_grown_by_ints(state, x):
    state["losses"].append(LARGE[state["n"] % 10])
    state["losses"].append(state["n"])
    return x * sum(state["losses"]), sum(state["losses"])


def of_ints_that_were_read(state, x):
    state["counts"].append(int((x * state["n"]).sum().item()))
    return x * sum(state["counts"]), sum(state["counts"])


def of_a_window(state, x):
    state["window"].append(LARGE[state["n"] % 10])
    return x * sum(state["window"]), sum(state["window"]) / len(state["window"])


def of_last_ones(state, x):
    state["losses"].append(LARGE[state["n"] % 10])
    last = state["losses"][-4:]
    return x * sum(last), f"{sum(last) / len(last):.3f}", sum(last) > 1


def known_afterwards(state, x):
    total = sum([state["n"] * 0.1, state["n"] * 0.2, state["n"] * 0.3])
    return x * total, {0: "none"}.get(int(total), "some"), str(total), [0] * int(total > 2)


@pytest.mark.parametrize(
    "program",
    [of_attributes, of_grown, of_grown_by_ints, of_ints_that_were_read, of_a_window, of_last_ones, known_afterwards],
)
def test_sums(program):
    def made():
        return {"n": 0, "losses": [0.5], "counts": [3], "window": deque(maxlen=4)}

    compiled, states = framejit.optimize(program, backend="eager"), (made(), made())
    for number in range(14):
        found = []
        for fn, state in zip((program, compiled), states):
            state["n"] = number
            found.append(fn(state, torch.ones(2, dtype=torch.float64)))
        expected, got = (each if isinstance(each, tuple) else (each,) for each in found)
        torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0)
        assert repr(got[1:]) == repr(expected[1:])
    assert states[0] == states[1]
