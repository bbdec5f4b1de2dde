"""The table of opcodes is complete: each one of the running interpreter is captured, taken apart, or a graph break with
a reason."""
import dis
import sys

import pytest

import framejit
from framejit.bytecode.decode import decode
from framejit.bytecode.spellings import ENTER_WITH, JOINED, SAME_AS
from framejit.capture import miss  # noqa: F401  registers the handlers
from framejit.interpreter.opcodes import BREAKS, HANDLERS, opcode

FIRST_PSEUDO = 256  # opcodes of the compiler only; they are in no code object
PLAIN = sorted(
    name for name, number in dis.opmap.items() if number < FIRST_PSEUDO and not name.startswith("INSTRUMENTED_")
)


@pytest.mark.parametrize("name", PLAIN)
def test_has_one_meaning(name):
    tables = [table for table in (HANDLERS, BREAKS, JOINED, SAME_AS) if name in table]
    assert len(tables) == 1, f"{name} is in {len(tables)} tables"


def test_breaks_say_why():
    assert all(isinstance(reason, str) and reason.strip() for reason in BREAKS.values())


def test_handlers_are_for_opcodes_that_exist():
    assert not (HANDLERS.keys() | BREAKS.keys()) - dis.opmap.keys() - {ENTER_WITH}


def test_an_opcode_of_no_version_is_refused():
    with pytest.raises(AssertionError, match="no opcode"):
        opcode("LOAD_NOTHING")(lambda frame, ins: None)


def test_an_opcode_is_handled_once():
    with pytest.raises(AssertionError, match="two handlers"):
        opcode("POP_TOP")(lambda frame, ins: None)


def test_an_opcode_of_other_versions_is_not_registered():
    @opcode("LOAD_NOTHING", since=(3, 99), until=(3, 99))
    def handler(frame, ins):
        pass

    assert "LOAD_NOTHING" not in HANDLERS


def test_joined_instructions_are_taken_apart():
    def fn(a, b):
        x, y = b, a
        while a < b:
            x = y
            a = x + a
        return x, y, not (a < b)

    joined = {ins.opname for ins in dis.get_instructions(fn)} & JOINED.keys()
    assert bool(joined) == (sys.version_info >= (3, 13))
    decoded = decode(fn.__code__).instructions
    assert not {ins.name for ins in decoded} & (JOINED.keys() | SAME_AS.keys())
    assert not [ins for ins in decoded if ins.name == "COMPARE_OP" and ins.arg.name.endswith("_CAST")]
    assert framejit.optimize(fn, backend="eager")(1, 3) == fn(1, 3)
