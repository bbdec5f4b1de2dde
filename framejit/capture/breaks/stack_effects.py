"""Where a broken instruction leads, and what the stack holds there."""

from __future__ import annotations

import sys

from framejit.bytecode.decode import Instruction
from framejit.bytecode.for_iterators import CLEARS_AWAY, HAS_NULL, ITERATOR_SLOTS
from framejit.bytecode.resume_code import StackKinds, StackSlot
from framejit.bytecode.spellings import ENTER_WITH
from framejit.late_dataclass import dataclass
from framejit.signals import SkipFrame

NULL_FIRST = sys.version_info < (3, 13)
NULL, RESULT = StackSlot.NULL, StackSlot.RESULT

# How many operands each instruction takes off the stack and how many results it pushes, for those a graph can
# break at.  Operands left in place (LIST_EXTEND's list, FOR_ITER's iterator) are not counted.
_FIXED: dict[str, tuple[int, int]] = {
    "BINARY_OP": (2, 1),
    "BINARY_SUBSCR": (2, 1),
    "BINARY_SLICE": (3, 1),
    "STORE_SUBSCR": (3, 0),
    "STORE_SLICE": (4, 0),
    "DELETE_SUBSCR": (2, 0),
    "COMPARE_OP": (2, 1),
    "CONTAINS_OP": (2, 1),
    "IS_OP": (2, 1),
    "UNARY_NEGATIVE": (1, 1),
    "UNARY_POSITIVE": (1, 1),
    "UNARY_NOT": (1, 1),
    "UNARY_INVERT": (1, 1),
    "TO_BOOL": (1, 1),
    "POP_TOP": (1, 0),
    "STORE_FAST": (1, 0),
    "GET_ITER": (1, 1),
    "POP_ITER": (ITERATOR_SLOTS, 0),
    "BUILD_TEMPLATE": (2, 1),
    "GET_LEN": (0, 1),
    "GET_YIELD_FROM_ITER": (1, 1),
    "LIST_TO_TUPLE": (1, 1),
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (0, 1),
    "STORE_ATTR": (2, 0),
    "DELETE_ATTR": (1, 0),
    "STORE_GLOBAL": (1, 0),
    "DELETE_GLOBAL": (0, 0),
    "LOAD_DEREF": (0, 1),
    "LOAD_FAST": (0, 1),
    "LOAD_FAST_CHECK": (0, 1),
    "LOAD_CLASSDEREF": (0, 1),
    "STORE_DEREF": (1, 0),
    "DELETE_FAST": (0, 0),
    "DELETE_DEREF": (0, 0),
    "LOAD_BUILD_CLASS": (0, 1),
    "BEFORE_WITH": (1, 2),
    "WITH_EXCEPT_START": (0, 1),
    "CHECK_EXC_MATCH": (1, 1),
    "LIST_EXTEND": (1, 0),
    "SET_UPDATE": (1, 0),
    "DICT_UPDATE": (1, 0),
    "DICT_MERGE": (1, 0),
    "LIST_APPEND": (1, 0),
    "SET_ADD": (1, 0),
    "MAP_ADD": (2, 0),
    "FORMAT_SIMPLE": (1, 1),
    "FORMAT_WITH_SPEC": (2, 1),
    "CONVERT_VALUE": (1, 1),
    "MATCH_CLASS": (3, 1),
    "MATCH_KEYS": (0, 1),
    "MATCH_SEQUENCE": (0, 1),
    "MATCH_MAPPING": (0, 1),
    "CALL_INTRINSIC_1": (1, 1),
    "CALL_INTRINSIC_2": (2, 1),
    "LOAD_NAME": (0, 1),
    "LOAD_CONST": (0, 1),
    "PRINT_EXPR": (1, 0),
    "BUILD_CONST_KEY_MAP": (0, 0),
    "CHECK_EG_MATCH": (2, 2),
    "PREP_RERAISE_STAR": (2, 1),
    "SET_FUNCTION_ATTRIBUTE": (2, 1),
    "END_SEND": (2, 1),
}
_NO_EXIT = ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST")


@dataclass(frozen=True)
class Exit:
    """A place control may go to after an instruction, and the kinds of stack slots there."""

    index: int
    stack: StackKinds
    is_jump: bool


def _operands(ins: Instruction) -> tuple[int, int]:
    name, arg = ins.name, ins.arg
    match name:
        case "CALL":
            return arg + 2, 1
        case "CALL_KW":
            return arg + 3, 1
        case "CALL_FUNCTION_EX":
            return (3 + (int(arg) & 1) if arg is not None else 4), 1  # from 3.14 on without flags
        case "BUILD_SET" | "BUILD_STRING" | "BUILD_TUPLE" | "BUILD_LIST" | "BUILD_SLICE":
            return int(arg), 1
        case "BUILD_MAP":
            return 2 * arg, 1
        case "BUILD_CONST_KEY_MAP":
            return arg + 1, 1
        case "UNPACK_SEQUENCE":
            return 1, arg
        case "UNPACK_EX":
            return 1, (int(arg) & 0xFF) + (int(arg) >> 8) + 1
        case "MAKE_FUNCTION":  # from 3.13 on without flags
            return 1 + (arg.bit_count() if isinstance(arg, int) else 0), 1
        case "BUILD_INTERPOLATION":
            return 2 + (int(arg) & 1), 1
        case "FORMAT_VALUE":
            return 1 + bool(int(arg) & 4), 1
    if name in _FIXED:
        return _FIXED[name]
    raise SkipFrame(f"a graph break at {name}", "FJ204")


def branch_after(ins: Instruction, code: list[Instruction]) -> Instruction | None:
    """The jump on what TO_BOOL leaves, which is carried out with it, so that its truth is no value of its own."""
    following = code[ins.index + 1] if ins.name == "TO_BOOL" else None
    return following if following is not None and following.name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE") else None


def exits(ins: Instruction, stack: StackKinds, code: list[Instruction]) -> list[Exit]:
    """The exits of `ins` in `code`; jumps come last.  Raises SkipFrame where framejit can't break."""
    return [
        Exit(_landing(out.index, code), out.stack, out.is_jump) for out in _exits(branch_after(ins, code) or ins, stack)
    ]


def _landing(index: int, code: list[Instruction]) -> int:
    """Where plain jumps from `index` lead: from 3.12 on loops end in a jump forward over a jump back to their start."""
    seen = set()
    while code[index].name in ("JUMP_FORWARD", "JUMP_BACKWARD") and index not in seen:
        seen.add(index)
        target = code[index].target
        assert target is not None
        index = target
    return index


def _exits(ins: Instruction, stack: StackKinds) -> list[Exit]:
    after = ins.index + 1
    name = ins.name
    if name in _NO_EXIT:
        return []
    if name in ("LOAD_METHOD", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR"):
        with_null = name == "LOAD_METHOD" or isinstance(ins.arg, tuple) and ins.arg[0]
        taken = {"LOAD_GLOBAL": 0, "LOAD_SUPER_ATTR": 3}.get(name, 1)
        rest = stack[: len(stack) - taken]
        return [
            Exit(
                after,
                rest + ((NULL, RESULT) if with_null and NULL_FIRST else (RESULT, NULL) if with_null else (RESULT,)),
                False,
            )
        ]
    if name == ENTER_WITH:
        return [Exit(after, stack[:-1] + (RESULT, NULL, RESULT), False)]
    if name == "GET_ITER" and HAS_NULL:
        return [Exit(after, stack[:-1] + (RESULT, NULL), False)]
    if ins.target is not None:
        return _jump_exits(ins, stack, after)
    taken, pushed = _operands(ins)
    return [Exit(after, stack[: len(stack) - taken] + (RESULT,) * pushed, False)]


def _jump_exits(ins: Instruction, stack: StackKinds, after: int) -> list[Exit]:
    assert ins.target is not None
    if ins.name == "FOR_ITER":
        return [
            Exit(after, stack + (RESULT,), False),
            Exit(ins.target + len(CLEARS_AWAY), stack[:-ITERATOR_SLOTS], True),
        ]
    if ins.name.startswith("POP_JUMP"):
        return [Exit(after, stack[:-1], False), Exit(ins.target, stack[:-1], True)]
    if ins.name in ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):
        return [Exit(after, stack[:-1], False), Exit(ins.target, stack, True)]
    raise SkipFrame(f"a graph break at {ins.name}", "FJ204")
