"""Why an entry did not match, in words: the guard that failed, what it expected and what it met."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any, NamedTuple

import torch

from framejit import _native as native
from framejit.guards.checks import CHECKS
from framejit.guards.guard import GuardRecord
from framejit.guards.plain_text import short


class Miss(NamedTuple):
    """One failed guard. `text` is a full sentence; `expected` and `actual` are its two halves."""

    text: str
    expected: str
    actual: str
    source_name: str
    user_line: tuple[str, int] | None


def explain_miss(
    records: Sequence[GuardRecord], tree: native.GuardTree, flat_args: tuple[Any, ...], fn: FunctionType
) -> Miss | None:
    """The first guard of `tree` that these arguments fail, or None if all hold (now). `records[i]` describes guard
    i."""
    failure = tree.explain(flat_args, fn)
    if failure is None:
        return None
    guard_id, value, failed_access = failure
    record = records[guard_id]
    if failed_access:
        text, expected, actual = f"{record.source_name!r} cannot be read any more", record.text, "no such value"
    elif (explain := CHECKS[record.check].explain) is not None:
        # tensors are looked at, which is nothing to tell their __torch_function__; the state is compared as the program
        # has it
        with nullcontext() if record.check == native.C_STATE else torch._C.DisableTorchFunctionSubclass():
            text, expected, actual = explain(record, value)
    else:
        text, expected, actual = f"no longer true: {record.text}", record.text, short(value)
    return Miss(text, expected, actual, record.source_name, record.user_line)
