"""Instructions that do the work of two, taken apart, so that a graph can break between the halves.

3.13 joins neighbouring loads and stores of variables, and gives COMPARE_OP a flag that converts its result to bool:
the comparison of tensors belongs into the graph, its truth value does not.
"""
from __future__ import annotations

from bytecode import Compare, Instr

# Joined instruction -> what it does to its first variable, then to its second.
JOINED = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_CAST = "_CAST"


def take_apart(item: Instr) -> list[Instr]:
    """The instructions that together do what `item` does."""
    if item.name in JOINED:
        return [Instr(name, variable, location=item.location) for name, variable in zip(JOINED[item.name], item.arg)]  # type: ignore[arg-type]
    if item.name == "COMPARE_OP" and isinstance(item.arg, Compare) and item.arg.name.endswith(_CAST):
        return [Instr("COMPARE_OP", Compare[item.arg.name.removesuffix(_CAST)], location=item.location), Instr("TO_BOOL", location=item.location)]
    return [item]
