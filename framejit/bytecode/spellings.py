"""Instructions that are other ones written differently: read as the plain ones, so that the interpreter has one handler
for each meaning.

Some do the work of two and are taken apart, so that a graph can break between the halves. 3.13 joins neighbouring loads
and stores of variables, and gives COMPARE_OP a flag that converts its result to bool: the comparison of tensors belongs
into the graph, its truth value does not. From 3.14 on there are loads that borrow a reference and loads of constants
that stand in no table, and a with block is entered by six instructions in a row, where a graph can break before or
behind them all, but not between: what they leave half way may be a NULL, or not.
"""

from __future__ import annotations

from typing import Any

from framejit.bytecode.instr import Compare, Instr, Item, Joined

# Joined instruction -> what it does to its first variable, then to its second.
JOINED = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST_BORROW", "LOAD_FAST_BORROW"),
}
SAME_AS = {"LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_SMALL_INT": "LOAD_CONST", "LOAD_COMMON_CONSTANT": "LOAD_CONST"}
SUBSCRIPT = 26  # the operator of BINARY_OP that is none: container[key]
ENTER_WITH = "ENTER_WITH"
_ENTERING = (
    ("COPY", 1), ("LOAD_SPECIAL", "__exit__"), ("SWAP", 2), ("SWAP", 3), ("LOAD_SPECIAL", "__enter__"), ("CALL", 0),
)
_CAST = "_CAST"


def take_apart(item: Instr) -> list[Instr]:
    """The instructions that together do what `item` does."""
    if item.name in JOINED:
        return [Instr(name, variable, item.location) for name, variable in zip(JOINED[item.name], item.arg)]
    if item.name == "COMPARE_OP" and item.arg.name.endswith(_CAST):
        return [
            Instr("COMPARE_OP", Compare[item.arg.name.removesuffix(_CAST)], item.location),
            Instr("TO_BOOL", None, item.location),
        ]
    return [item]


def plain(item: Instr) -> tuple[str, Any]:
    """Name and argument of the instruction that the interpreter reads `item` as."""
    name, arg = item.name, item.arg
    if name == "IMPORT_NAME" and isinstance(arg, tuple):  # in a function no import is lazy, whatever its flags
        return name, arg[-1]
    return SAME_AS.get(name, name), arg


def join(listing: list[Item]) -> list[Item]:
    """The listing with the instructions that enter with blocks as one each; `expand` is the inverse."""
    if not any(isinstance(item, Instr) and item.name == "LOAD_SPECIAL" for item in listing):
        return listing
    joined: list[Item] = []
    for item in listing:
        joined.append(item)
        last = joined[-len(_ENTERING) :]
        if tuple((i.name, i.arg) for i in last if isinstance(i, Instr)) == _ENTERING:
            joined[-len(_ENTERING) :] = [Joined(ENTER_WITH, [i for i in last if isinstance(i, Instr)])]
    return joined


def expand(listing: list[Item]) -> list[Item]:
    """The listing with nothing joined in it."""
    return [part for item in listing for part in (item.parts if isinstance(item, Joined) else [item])]
