"""The kinds of checks: all that Python code knows of each, in one table. What a check does stands in
native/guards/guard_eval.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards import mismatch
from framejit.guards.plain_text import class_name, short
from framejit.guards.size_program import size_text
from framejit.guards.tensor_facts import describe_tensor
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.guards.guard import GuardRecord


@dataclass(frozen=True)
class CheckKind:
    """All that Python knows of one kind of check: how it is said in words, why it failed, what it costs."""

    text: Callable[[Any, str, tuple[str, ...]], str]
    """The check in words, given its payload, the name of its source and those of further sources."""
    explain: Callable[[GuardRecord, Any], mismatch.Words] | None = None
    """Why it failed, given what was met."""
    cost: int = 2
    """Rough nanoseconds; only their order matters."""
    by_identity: bool = False
    """Two checks are the same if their payloads are the same object; else, if they are equal."""
    keeps_payload: bool = False
    """The payload is immutable and holds none of the user's objects, so that it may outlive the capture."""
    implies_type: bool = False
    """Whether the check decides the exact type as well."""
    settled: bool = False
    """Whether the outcome changes only when another object takes the value's place: the native tree skips runs of such
    leaves of one dict."""
    relates: bool = False
    """Whether the check compares several values, which are read before."""


CHECKS: Final[dict[int, CheckKind]] = {  # in the order in which the checks of one value are made
    native.C_TYPE: CheckKind(
        lambda cls, where, also: f"type of {where} is {class_name(cls)}", mismatch.explain_type,
        by_identity=True, settled=True,
    ),
    native.C_ID: CheckKind(
        lambda value, where, also: f"{where} is {short(value)}", mismatch.explain_identity, by_identity=True,
        settled=True,
    ),
    native.C_EQUALS: CheckKind(
        lambda value, where, also: f"{where} == {short(value)}", mismatch.explain_constant, keeps_payload=True,
        implies_type=True, settled=True,
    ),
    native.C_LEN: CheckKind(
        lambda length, where, also: f"len({where}) == {length}", mismatch.explain_length, keeps_payload=True
    ),
    native.C_NO_KEY: CheckKind(
        lambda key, where, also: f"{short(key)} not in {where}", mismatch.explain_key, keeps_payload=True
    ),
    native.C_LACKS: CheckKind(
        lambda name, where, also: f"class {where} lacks {name!r}", mismatch.explain_attribute, keeps_payload=True
    ),
    native.C_KEYS: CheckKind(
        lambda keys, where, also: f"keys of {where} are {short(keys)}", mismatch.explain_keys, keeps_payload=True
    ),
    native.C_STATE: CheckKind(
        lambda state, where, also: "torch state (grad mode, autocast, default dtype, modes) is unchanged",
        mismatch.explain_state, cost=8, by_identity=True, keeps_payload=True,
    ),
    native.C_TENSOR: CheckKind(
        lambda tensor, where, also: f"tensor {where}: {describe_tensor(tensor)}", mismatch.explain_tensor, cost=5,
        implies_type=True,
    ),
    native.C_VERSION: CheckKind(
        lambda place, where, also: f"nothing was written into {where} (version {place[0]})", mismatch.explain_version,
        cost=4, keeps_payload=True,
    ),
    native.C_TRUTH: CheckKind(
        lambda truth, where, also: f"bool({where}) is {truth}", mismatch.explain_truth, cost=30, keeps_payload=True
    ),
    native.C_NO_ATTR: CheckKind(
        lambda name, where, also: f"{where} has no attribute {name!r}", mismatch.explain_attribute, cost=60,
        keeps_payload=True,
    ),
    native.C_PY: CheckKind(
        lambda check, where, also: f"{getattr(check, '__name__', check)}({where})", cost=200, by_identity=True
    ),
    native.C_RECORD: CheckKind(lambda slot, where, also: f"{where} is read for what follows"),
    native.C_SAME: CheckKind(lambda _, where, also: f"{where} is {also[0]}", mismatch.explain_same, relates=True),
    native.C_DISTINCT: CheckKind(
        lambda _, where, also: f"{', '.join((where, *also))} are different objects",
        mismatch.explain_distinct,
        relates=True,
    ),
    native.C_SIZES: CheckKind(
        lambda program, where, also: size_text(program, (where, *also)), mismatch.explain_sizes, keeps_payload=True,
        relates=True,
    ),
    native.C_HOLDS: CheckKind(lambda answer, where, also: str(answer), cost=200, relates=True),
}
