"""An entry as plain data: its guards, what was assumed besides, its replacement code and its graph.

`written_entry` makes the record in the process that captured. `FoundEntry` tries it on a frame of another: it finds the
objects that the record refers to, compares all that is said of them, and has the parts of the entry.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.computed_size import ComputedSize
from framejit.guards.plain_text import class_name
from framejit.guards.sources import ABSENT
from framejit.guards.type_flags import HEAP_TYPE, IMMUTABLE
from framejit.kept import plain_values
from framejit.kept.code_record import read_code, written_code
from framejit.kept.computed_size_record import read_size, written_size
from framejit.kept.description import Describer
from framejit.kept.late_records import LateRecords, written_records
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.kept.object_table import FoundObjects, WrittenObjects
from framejit.kept.surroundings import PROBE
from framejit.kept.tree_record import Binding, Node, is_same_tree, lookup, written_tree
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.guards.guard import GuardRecord
    from framejit.values.context import Assumed

_FLAGS: Final = vars(type)["__flags__"].__get__
_OWN: Final = "framejit."
GRAPH, FAILURE, KEEPER, STEP = "graph", "failure", "keeper", "step"
"""Kinds of slots that hold what is made anew in each process."""


@dataclass(frozen=True)
class Parts:
    """The parts of an entry, besides its guards, that a record is made of."""

    code: CodeType | None
    """None for the program's own."""
    slots: Sequence[native.Slot]
    kinds: dict[int, str]
    """By the id of what a slot holds its kind, if it is made anew."""
    told: dict[str, Any]
    """Plain data: the graph, how it is found again, what an error of it has to put back."""
    at_break: Callable[[Callable[[FunctionType], int]], dict[str, Any]] | None = None
    """Gives plain data about the graph break at the end, when told how functions are numbered."""


def written_entry(
    roots: list[Node], n_records: int, labels: dict[int, str], records: Sequence[GuardRecord], assumed: Any,
    parts: Parts, frame: tuple[tuple[Any, ...], FunctionType],
) -> bytes:
    """The record of an entry whose guards hold on `frame`. Raises NotKept."""
    if assumed.only_here:
        raise NotKept(assumed.only_here)
    objects = WrittenObjects(assumed.signatures)
    tree = written_tree(roots, labels, objects)
    lookups = [*_written_lookups(assumed, objects)]
    _name_inlined(assumed, objects)
    for signature, _, _ in assumed.signatures.values():
        objects.by_name(signature)
    record = {
        "tree": tree,
        "n_records": n_records,
        "lookups": lookups,
        "answers": [
            [objects.by_name(function), plain_values.written(args), _written_answer(answer)]
            for function, args, answer in assumed.answers
        ],
        "relations": [
            [objects.known(cls), objects.known(target), answer] for cls, target, answer in assumed.relations.values()
        ],
        "hashes": hash(PROBE) if assumed.order_of_hashes else None,
        "code": None if parts.code is None else written_code(parts.code, parts.slots),
        "slots": [_written_slot(slot, parts.kinds, objects) for slot in parts.slots],
        "records": written_records(records),
        "told": parts.told,
        "break": parts.at_break and parts.at_break(objects.known),
        "objects": objects.table,
    }
    data = marshal.dumps(record)
    _check(data, frame, roots)
    return data


def _check(data: bytes, frame: tuple[tuple[Any, ...], FunctionType], roots: list[Node]) -> None:
    """What was written must lead to the very same objects again."""
    try:
        found = FoundEntry(data, *frame)
    except DoesNotFit as e:
        raise NotKept(f"it does not fit the frame it was made for: {e}") from None
    if not is_same_tree(found.roots, roots):
        raise NotKept("its guards come out otherwise when they are read again")


def _written_lookups(assumed: Assumed, objects: WrittenObjects) -> Any:
    for cls, name, found in assumed.looked_up.values():  # type: ignore[attr-defined]
        flags = _FLAGS(cls)
        if flags & HEAP_TYPE and not flags & IMMUTABLE and not class_name(cls).startswith(_OWN):
            yield [objects.known(cls), name, _described(found, objects.describe)]


def _described(found: Any, describe: Describer) -> Any:
    """What is said of what a class has: if it is nothing that stays as it is, guards say the rest."""
    if found is ABSENT:
        return None
    try:
        return describe(found)
    except NotKept:
        return ("of type", class_name(type(found)))


def _name_inlined(assumed: Any, objects: WrittenObjects) -> None:
    """Every function whose code was inlined is described: by a guard, by what a class has, or by its name."""
    in_classes = {id(found) for _, _, found in assumed.looked_up.values()}
    for function in assumed.inlined.values():
        own = str(dict.get(function.__globals__, "__name__")).startswith(_OWN)
        if not (own or objects.has(function) or objects.has(function.__code__) or id(function) in in_classes):
            objects.by_name(function)


def _written_answer(answer: Any) -> Any:
    return plain_values.written(answer)


def _written_slot(slot: native.Slot, kinds: dict[int, str], objects: WrittenObjects) -> list[Any]:
    if type(slot.target) is ComputedSize:
        return [slot.kind, ["size", *written_size(slot.target)]]
    kind = kinds.get(id(slot.target))
    if kind is None and not objects.has(slot.target) and plain_values.may_be_made_anew(slot.target):
        return [slot.kind, ["constant", plain_values.written(slot.target)]]
    return [slot.kind, kind or objects.known(slot.target)]


class FoundEntry:
    """A record, tried on the frame `fn(*flat_args)`. Raises DoesNotFit where it is not for this process or frame, and
    whatever data that is none leads to."""

    def __init__(self, data: bytes, flat_args: tuple[Any, ...], fn: FunctionType) -> None:
        self._record: dict[str, Any] = marshal.loads(data)
        self._objects = FoundObjects(self._record["objects"])
        hashes = self._record["hashes"]
        if hashes is not None and hashes != hash(PROBE):
            raise DoesNotFit("it depends on hashes of text, which are others in each process")
        self.roots = Binding(self._objects, flat_args, fn).tree(self._record["tree"])
        self._check_all()
        self.told: dict[str, Any] = self._record["told"]
        self.at_break: dict[str, Any] | None = self._record["break"]

    def _check_all(self) -> None:
        for number in range(len(self._record["objects"])):
            self._objects.get(number)
        for number, name, expected in self._record["lookups"]:
            cls = self._objects.get(number)
            if _described(lookup(cls, name), self._objects.describe) != expected:
                raise DoesNotFit(f"the class {class_name(cls)} has another {name!r}")
        for number, args, answer in self._record["answers"]:
            function = self._objects.get(number)
            if not plain_values.is_same(function(*plain_values.read(args)), plain_values.read(answer)):
                raise DoesNotFit(f"{function.__name__}() has another answer")
        for one, other, answer in self._record["relations"]:
            cls, target = self._objects.get(one), self._objects.get(other)
            if issubclass(cls, target) is not answer:
                raise DoesNotFit(f"{class_name(target)} says otherwise of {class_name(cls)}")

    def object(self, number: int) -> Any:
        """The object of this process that has this number in the record."""
        return self._objects.get(number)

    def guards(self) -> native.GuardTree:
        """The native tree."""
        return native.GuardTree(self.roots, self._record["n_records"])

    def records(self, state: Any) -> LateRecords:
        """Words and facts for messages about guards that fail; `state` is torch's now."""
        return LateRecords(self._record["records"], state)

    def slots(self, made: dict[str, Any]) -> list[native.Slot]:
        """The slots, with what is made anew by kind."""
        return [native.Slot(self._target(what, made), kind) for kind, what in self._record["slots"]]

    def _target(self, what: Any, made: dict[str, Any]) -> Any:
        if type(what) is list:
            return plain_values.read(what[1]) if what[0] == "constant" else read_size(*what[1:])
        return made[what] if type(what) is str else self._objects.get(what)

    def code(self, slots: Sequence[native.Slot]) -> CodeType | None:
        """The replacement code, calling these slots; None where the program's own serves."""
        return None if self._record["code"] is None else read_code(self._record["code"], slots)
