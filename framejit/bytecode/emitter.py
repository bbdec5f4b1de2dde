"""Writes replacement code: version-neutral building blocks over the assembler.

Objects that are not plain constants go into slots (see framejit._native.Slot), which the entry owns, because
code objects are invisible to the garbage collector.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.bytecode.instr import CellVar, FreeVar, Instr, Label, Location
from framejit.bytecode.spellings import SUBSCRIPT

if TYPE_CHECKING:
    from framejit.guards.sources import Source

_qualified_name = vars(type)["__qualname__"].__get__
"""Reads a class's qualified name, whatever its metaclass answers."""
PY312 = sys.version_info >= (3, 12)
PY313 = sys.version_info >= (3, 13)
PY314 = sys.version_info >= (3, 14)

VALUE, TAIL = native.SLOT_VALUE, native.SLOT_TAIL  # kinds of slots

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))


_TEMPORARY = "__framejit_"


def is_temporary(name: object) -> bool:
    """Whether a variable is one that an emitter has made."""
    return isinstance(name, str) and name.startswith(_TEMPORARY)


def is_plain_constant(value: Any) -> bool:
    """True for what the compiler itself would put among a code object's constants."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(is_plain_constant, value)))


class Emitter:
    """Accumulates instructions, slots and temporary variables for one piece of code."""

    def __init__(self, line: int | None = None, load_instead: Callable[[Any], bool] | None = None) -> None:
        self._load_instead = load_instead  # pushes another object in the place of one, or says that it does not
        self.instructions: list[Any] = []
        self.slots: list[native.Slot] = []
        self._slot_of: dict[tuple[int, int], native.Slot] = {}
        self._temporaries = 0
        self.location: Location | None = Location(line) if line else None
        self._uses: dict[Source, int] = {}
        self._saved: dict[Source, str] = {}
        self.loaded: set[Source] = set()
        """All sources that something is read at."""

    # ---- places ----------------------------------------------------------------------------

    @contextmanager
    def apart(self, in_front: bool = False) -> Iterator[list[Any]]:
        """Instructions written inside go into the list that is given. `in_front`: they run before the others, so that
        no source is in a temporary yet."""
        before, saved = self.instructions, self._saved
        written: list[Any] = []
        self.instructions = written
        self._saved = {} if in_front else saved
        try:
            yield written
        finally:
            self.instructions, self._saved = before, saved

    def here(self) -> Callable[[], None]:
        """A function that takes back what is written from here on."""
        n, saved = len(self.instructions), dict(self._saved)

        def take_back() -> None:
            del self.instructions[n:]
            self._saved = saved

        return take_back

    # ---- plain instructions ---------------------------------------------------------------

    def op(self, name: str, arg: Any = None) -> None:
        self.instructions.append(Instr(name, arg, self.location))

    def place(self, label: Label) -> None:
        self.instructions.append(label)

    def new_temporary(self, hint: str = "t") -> str:
        self._temporaries += 1
        return f"{_TEMPORARY}{hint}{self._temporaries}"

    def load_fast(self, name: str) -> None:
        self.op("LOAD_FAST", name)

    def store_fast(self, name: str) -> None:
        self.op("STORE_FAST", name)

    def load_closure(self, name: str) -> None:
        self.op("LOAD_FAST" if PY313 else "LOAD_CLOSURE", FreeVar(name))

    def load_cell(self, name: str) -> None:
        """Push the cell of one of this code's own cell variables."""
        self.op("LOAD_FAST" if PY313 else "LOAD_CLOSURE", CellVar(name))

    def load_global(self, name: str) -> None:
        self.op("LOAD_GLOBAL", (False, name))

    def store_global(self, name: str) -> None:
        self.op("STORE_GLOBAL", name)

    def load_attr(self, name: str) -> None:
        self.op("LOAD_ATTR", (False, name) if PY312 else name)

    def store_attr(self, name: str) -> None:
        self.op("STORE_ATTR", name)

    def subscript(self) -> None:
        if PY314:
            self.op("BINARY_OP", SUBSCRIPT)
        else:
            self.op("BINARY_SUBSCR")

    def pop(self) -> None:
        self.op("POP_TOP")

    def copy(self, depth: int = 1) -> None:
        self.op("COPY", depth)

    def swap(self, depth: int = 2) -> None:
        self.op("SWAP", depth)

    def build(self, kind: str, n: int) -> None:
        self.op(f"BUILD_{kind}", n)

    def return_value(self) -> None:
        self.op("RETURN_VALUE")

    # ---- objects --------------------------------------------------------------------------

    def slot(self, value: Any, kind: int) -> native.Slot:
        """The slot that holds `value`; one per object and kind."""
        found = self._slot_of.get((id(value), kind))
        if found is None:
            found = self._slot_of[(id(value), kind)] = native.Slot(value, kind)
            self.slots.append(found)
        return found

    def load_object(self, value: Any) -> None:
        """Push any object: a plain constant directly, everything else through a slot the entry owns."""
        if is_plain_constant(value):
            self.op("LOAD_CONST", value)
        elif self._load_instead is None or not self._load_instead(value):
            self.op("LOAD_CONST", self.slot(value, VALUE))
            self.load_attr("target")

    def renew_slots(self) -> None:
        """Go on with slots of the same content: a slot belongs to one entry, and another is to be made of the same
        instructions."""
        renewed = {id(slot): native.Slot(slot.target, slot.kind) for slot in self.slots}
        # what was owned stays alive here, so that no id is used again
        owned, self.slots = self.slots, [*renewed.values()]
        self._slot_of = {key: renewed[id(slot)] for key, slot in self._slot_of.items()}
        for instruction in self.instructions:
            if isinstance(instruction, Instr) and id(instruction.arg) in renewed:
                instruction.arg = renewed[id(instruction.arg)]
        del owned

    # ---- calls ----------------------------------------------------------------------------

    def call(
        self, load_callable: Callable[[], Any], load_args: Callable[[], Any], n: int, keywords: tuple[str, ...] = ()
    ) -> None:
        """Call what `load_callable` pushes with the `n` arguments `load_args` pushes, the last ones by `keywords`."""
        if not PY313:
            self.op("PUSH_NULL")
        load_callable()
        if PY313:
            self.op("PUSH_NULL")
        load_args()
        if PY313 and keywords:
            self.op("LOAD_CONST", keywords)
            self.op("CALL_KW", n)
            return
        if keywords:
            self.op("KW_NAMES", keywords)
        if not PY312:
            self.op("PRECALL", n)
        self.op("CALL", n)

    def call_slot(self, target: Any, kind: int, load_args: Callable[[], Any], n: int) -> None:
        """Call `target` through a slot of `kind` (VALUE or TAIL)."""
        self.call(lambda: self.op("LOAD_CONST", self.slot(target, kind)), load_args, n)

    def load_class(self, cls: type) -> None:
        """Push a class. One that a function has made is not kept alive for that: a call that fits the entry has it, by
        what its guards compare."""
        if "<locals>" in _qualified_name(cls):
            self.call_object(weakref.ref(cls), list, 0)
        else:
            self.load_object(cls)

    def call_object(self, target: Any, load_args: Callable[[], Any], n: int = 1) -> None:
        """Call an object that framejit holds."""
        self.call_slot(target, VALUE, load_args, n)

    def call_where_shared(self, target: Any, load_tensors: Callable[[], Any], n: int) -> None:
        """Call an object with tensors if some of them share memory; else push None."""

        def load() -> None:
            self.op("LOAD_CONST", self.slot(target, VALUE))
            load_tensors()

        self.call(lambda: self.op("LOAD_CONST", native.call_where_shared), load, n + 1)

    def take_over_arguments(self) -> None:
        """Make the running frame the only holder of its arguments."""
        self.call(lambda: self.op("LOAD_CONST", native.take_over_arguments), list, 0)
        self.pop()

    def handle_signals(self) -> None:
        """Look for signals, and for what one raised while a graph ran."""
        self.call(lambda: self.op("LOAD_CONST", native.handle_signals), list, 0)
        self.pop()

    # ---- sources --------------------------------------------------------------------------

    def expect_sources(self, sources: Iterator[Source] | list[Source]) -> None:
        """Announce what will be loaded, so that prefixes used twice are kept in a temporary."""
        for source in sources:
            walk: Source | None = source
            while walk is not None:
                seen = self._uses.get(walk, 0)
                self._uses[walk] = seen + 1
                if seen:
                    break
                walk = walk.base

    def load_source(self, source: Source) -> None:
        self.loaded.add(source)
        saved = self._saved.get(source)
        if saved is not None:
            self.load_fast(saved)
            return
        source.emit(self)
        if self._uses.get(source, 0) > 1 and source.base is not None:
            self._saved[source] = name = self.new_temporary("source")
            self.copy()
            self.store_fast(name)

    @contextmanager
    def at(self, location: Location | None) -> Iterator[None]:
        """Give the instructions written inside another source position."""
        before, self.location = self.location, location or self.location
        try:
            yield
        finally:
            self.location = before
