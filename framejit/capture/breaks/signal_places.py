"""Where what a handler of a signal raises may come in a function: where plain Python would look for signals, or as if.

CPython looks where functions begin, behind most calls and at jumps back. So the end of a with block calls `__exit__`
whatever signals come: between the block's last call and that one nobody looks. An exception that comes there instead
would leave a lock locked.
"""

from __future__ import annotations

from typing import Final

from framejit.bytecode.decode import Decoded

_LOOKS: Final = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"))
_IN_EXCEPT: Final = "CHECK_EXC_MATCH"
"""Only an except clause has it, which leaves no block."""


def may_look_before(decoded: Decoded, index: int) -> bool:
    """Whether no block was left since the last place before instruction `index` where Python looks for signals."""
    instructions, around, handler = decoded.instructions, set[int](), decoded.instructions[index].handler
    while handler is not None and handler.target not in around:
        around.add(handler.target)
        handler = instructions[handler.target].handler
    for i in range(index - 1, -1, -1):
        left = instructions[i].handler
        name = instructions[i].name
        if left is not None and left.target not in around or name == "PUSH_EXC_INFO":
            return False
        if name in _LOOKS or name == _IN_EXCEPT:
            return True
    return True


def next_look(decoded: Decoded, index: int) -> int:
    """The first instruction from `index` on before which an exception may come."""
    for i in range(index, len(decoded.instructions)):
        if may_look_before(decoded, i) and (i == index or decoded.instructions[i - 1].name in _LOOKS):
            return i
    return index
