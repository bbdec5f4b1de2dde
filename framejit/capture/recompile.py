"""Why none of a function's entries fitted a call, what that teaches the next capture, and the limit on entries."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from framejit import _native as native
from framejit.capture.dynamic_dims import among_alike, ever_new, is_item, is_of_container, keys_of, length_of
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.weight_guards import drop_outdated
from framejit.config import config
from framejit.events import emit
from framejit.guards.diff import Miss, explain_miss
from framejit.short_lived import count_entry, never_last
from framejit.values.arrays.array_memory import tensor_over

Missed = list[tuple[native.Entry, Miss | None]]
"""Each entry of a function with the guard it missed."""


FEW: Final = 4
"""How many floats, or lengths of a list that grows, are assumed at a place until the graph breaks there instead."""
MANY: Final = 6
"""How many entries may have missed ints or bools in one list, or the sizes of an array, until the graph breaks there
instead."""


class LimitReached(Exception):
    """A function has as many entries as config.recompile_limit allows. `is_final`: its entries never last, and no call
    of it is worth another look."""

    def __init__(self, reason: str, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


def explain_recompile(compilation: FrameCompilation) -> Missed:
    """Say why no entry fits; LimitReached when there may be no further one."""
    entries = compilation.owner.entries
    made = count_entry(compilation.owner)
    if never_last(compilation.owner):
        raise LimitReached(
            f"it was compiled {made - 1} times, for objects that had ended by the next call", is_final=True
        )
    if not entries:
        return []
    missed = [
        (entry, explain_miss(entry.tag.records, entry.guards, compilation.flat_args, compilation.fn))
        for entry in entries
    ]
    misses = [(m.text, m.expected, m.actual, m.source_name, m.user_line) for _, m in missed if m is not None]
    origins = [compilation.origin(miss[3])[1] for miss in misses]
    emit("recompile", **compilation.place, failures=_in_words(compilation, misses), provenance=origins)
    compilation.weight_changes = drop_outdated(compilation.owner)
    entries = compilation.owner.entries
    if len(entries) >= config.recompile_limit:
        entries[-1].tag.full = True
        raise LimitReached(
            f"it was compiled {len(entries)} times, the recompile limit; last cause: "
            f"{misses[-1][0] if misses else 'unknown'}"
        )
    return missed


def _in_words(compilation: FrameCompilation, misses: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Misses with the names of resume functions' arguments replaced by what the program calls these values."""
    said = []
    for text, expected, actual, source_name, user_line in misses:
        name, _ = compilation.origin(source_name)
        text = text.replace(repr(source_name), repr(name))
        said.append((*map(compilation.in_program_terms, (text, expected, actual)), name, user_line))
    return said


def changing_numbers(compilation: FrameCompilation, missed: Missed) -> frozenset[str]:
    """Sources of numbers whose guards have failed before: assuming their values again would fail again. Of an entry
    these are all that differ before anything else does, or each would cost an entry of its own."""
    code, resume = compilation.fn.__code__, compilation.resume
    found = {code.co_varnames[i] for i in (resume.fresh if resume is not None else ())}
    if not compilation.options.fullgraph:
        found.update(map(ever_new, _ever_new(compilation, missed)))
    for entry, miss in missed:
        if miss is not None:
            named = [r for r in entry.tag.records if r.source_name == miss.source_name]
            found.update(
                r.source_name for r in named if r.check == native.C_EQUALS and type(r.expected) in (int, float)
            )
            found.update(length_of(r.source_name) for r in named if r.check == native.C_LEN)
            found.update(keys_of(r.source_name) for r in named if r.check == native.C_KEYS)
            # the keys of a defaultdict, too
            found.update(r.source_name for r in named if r.check == native.C_EQUALS and is_of_container(r.source_name))
        others = entry.guards.other_numbers(compilation.flat_args, compilation.fn)
        found.update(entry.tag.records[guard].source_name for guard in others)
        found |= entry.tag.changing
    compilation.points.changing.update(n for n in found if not n.startswith("__"))
    return frozenset(found)


def _ever_new(compilation: FrameCompilation, missed: Missed) -> list[str]:
    """Names of floats, of lengths of lists, of arrays and of items of lists for which so many entries have assumed
    something else each that there would be no end to it. Ints are seldom that many: a number of a layer, or of an
    epoch, may well come again."""
    assumed: dict[str, set[int | float]] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for entry, miss in missed:
        records = entry.tag.records
        failed = [r for r in records if miss is not None and r.source_name == miss.source_name]
        failed += [records[guard] for guard in entry.guards.other_numbers(compilation.flat_args, compilation.fn)]
        for record in failed:
            if record.check == native.C_EQUALS and type(record.expected) in (int, float):
                assumed.setdefault(record.source_name, set()).add(record.expected)
            elif record.check == native.C_LEN and miss is not None and miss.actual.isdecimal():
                if record.expected < int(miss.actual):  # it grows
                    assumed.setdefault(length_of(record.source_name), set()).add(float(record.expected))
            elif record.check == native.C_SIZES and " == " in record.text:
                if miss is not None and miss.text.startswith(record.text):
                    # of the length of a list, and of what is computed of several ints, there are as many as of floats
                    is_one_of_many = is_of_container(record.source_name) or record.also_names
                    mark = hash(record.text)
                    assumed.setdefault(record.source_name, set()).add(float(mark) if is_one_of_many else mark)
            elif record.check == native.C_TENSOR and record.source_name.startswith(f"{tensor_over.__name__}("):
                shapes.setdefault(record.source_name, set()).add(record.expected.shape)
    most_ints = config.recompile_limit * 3 // 4
    return [
        *(
            name
            for name, numbers in assumed.items()
            if len(numbers) >= (FEW if any(type(number) is float for number in numbers) else max(FEW, most_ints))
        ),
        *(name for name, different in shapes.items() if len(different) >= MANY),
        *(place for place, count in Counter(map(_item_missed, missed)).items() if place and count >= MANY),
    ]


def _item_missed(missed: tuple[native.Entry, Miss | None]) -> str:
    """For an entry that missed an int or bool in a list what the names of the list's items have in common; else an
    empty text."""
    entry, miss = missed
    if miss is None or not is_item(miss.source_name):
        return ""
    records = (r for r in entry.tag.records if r.source_name == miss.source_name)
    is_small = any(
        r.check in (native.C_SIZES, native.C_HOLDS)
        or r.check == native.C_EQUALS and type(r.expected) is int
        or r.check == native.C_ID and r.expected in ("True", "False")
        for r in records
    )
    return among_alike(miss.source_name) if is_small else ""
