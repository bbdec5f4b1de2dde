"""A guard: one assumption about one source, and the user's line that made it."""
from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

from framejit import _native as native
from framejit.guards.checks import CHECKS
from framejit.guards.plain_text import short
from framejit.guards.sources import ByIdentity, Source
from framejit.guards.tensor_facts import TensorFacts, split_tensor_payload
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class Guard:
    """`check` is a native `C_*` constant, a key of `CHECKS`; `payload` what it compares with (see
    framejit._native.GuardTree).

    `also` are further sources for checks that relate several: C_SAME and C_DISTINCT, whose payload is None, C_SIZES,
    whose payload is a size program (native/guards/size_program.h) in which tensor 0 is that of `source` and the others
    those of `also`, and C_HOLDS, whose payload is called with the values of all. C_VERSION takes the version of a
    tensor and the address of its data. `user_line` is the (file, line) of the code that made the assumption; it does
    not take part in equality.
    """

    source: Source
    check: int
    payload: Any = None
    also: tuple[Source, ...] = ()
    user_line: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The guard in words, as `FRAMEJIT_LOGS=guards` prints it."""
        return CHECKS[self.check].text(self.payload, self.source.name(), tuple(s.name() for s in self.also))

    def on(self, source: Source, also: tuple[Source, ...]) -> Guard:
        """The same check of other sources; quicker than the constructor."""
        made: Guard = object.__new__(Guard)
        vars(made).update(
            source=source, check=self.check, payload=self.payload, also=also, user_line=self.user_line
        )
        return made

    def key(self) -> tuple[Any, ...]:
        """Hashable identity of the assumption, for deduplication."""
        return self._key

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        payload: Any
        if self.check == native.C_TENSOR:
            tensor, *free = split_tensor_payload(self.payload)
            payload = (ByIdentity(tensor), *free)
        else:
            payload = ByIdentity(self.payload) if CHECKS[self.check].by_identity else _frozen(self.payload)
        return (self.source, self.check, payload, self.also)


def _frozen(payload: Any) -> Any:
    """A hashable stand-in that keeps 1, 1.0 and True apart, and nan equal to itself."""
    if isinstance(payload, tuple):
        return tuple(map(_frozen, payload))
    try:
        hash(payload)
    except TypeError:
        return ByIdentity(payload)
    return (type(payload), repr(payload) if isinstance(payload, (float, complex)) else payload)


class GuardRecord(NamedTuple):
    """The part of a guard that an entry keeps once it is lowered: words and immutable facts, never the user's
    objects."""

    check: int
    source_name: str
    text: str
    # TensorFacts for C_TENSOR, the constant for C_EQUALS/C_LEN/C_KEYS/..., what C_SIZES and C_VERSION take, else its
    # short text
    expected: Any
    user_line: tuple[str, int] | None
    also_names: tuple[str, ...] = ()


def record(guard: Guard) -> GuardRecord:
    """The part of a guard that an entry keeps."""
    if guard.check == native.C_TENSOR:
        expected: Any = TensorFacts.of(guard.payload)
    else:
        expected = guard.payload if CHECKS[guard.check].keeps_payload else short(guard.payload)
    return GuardRecord(
        guard.check, guard.source.name(), guard.text, expected, guard.user_line, tuple(s.name() for s in guard.also)
    )
