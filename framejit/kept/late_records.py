"""What a kept entry has of its guards in words: read when somebody asks, which is where one does not hold."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from framejit import _native as native
from framejit.kept import plain_values
from framejit.kept.not_kept import NotKept

if TYPE_CHECKING:
    from framejit.guards.guard import GuardRecord


def written_records(records: Sequence[GuardRecord]) -> list[Any]:
    """Plain data: how many there are, and all of them in one piece."""
    return [len(records), marshal.dumps([*map(_written, records)])]


def _written(guard: GuardRecord) -> list[Any]:
    from framejit.guards.tensor_facts import TensorFacts  # processes that find entries need none

    facts = guard.expected
    expected: Any
    if isinstance(facts, TensorFacts):
        expected = ["facts", *vars(facts).values()]
    else:
        try:
            expected = ["plain", plain_values.written(facts)]
        except NotKept:
            expected = ["state"] if guard.check == native.C_STATE else ["text", str(facts)]
    return [guard.check, guard.source_name, guard.text, expected, guard.user_line, guard.also_names]


class LateRecords(Sequence["GuardRecord"]):
    """The records that `written_records` wrote; `state` is torch's as it was when the entry was found."""

    def __init__(self, written: list[Any], state: Any) -> None:
        self._length, self._state = int(written[0]), state
        self._held: bytes | list[GuardRecord] = written[1]
        """As they were written, or as they were read."""

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> GuardRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[GuardRecord]: ...
    def __getitem__(self, place: int | slice) -> GuardRecord | list[GuardRecord]:
        return self._all()[place]

    def __iter__(self) -> Iterator[GuardRecord]:
        return iter(self._all())

    def _all(self) -> list[GuardRecord]:
        held = self._held
        if type(held) is not list:
            held = self._held = [*self._read(held)]
        return held

    def _read(self, data: Any) -> Iterable[GuardRecord]:
        from framejit.guards.guard import GuardRecord
        from framejit.guards.tensor_facts import TensorFacts

        for check, name, text, (kind, *rest), line, others in marshal.loads(data):
            expected: Any = self._state
            if kind == "facts":
                expected = TensorFacts(*rest)
            elif kind == "plain":
                expected = plain_values.read(rest[0])
            elif kind == "text":
                expected = rest[0]
            yield GuardRecord(check, name, text, expected, line, others)
