"""What becomes of an object with a finalizer whose last reference goes; of a generator before its end: Python raises
GeneratorExit where it stands."""
from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any, Final

from framejit.bytecode.for_iterators import ITERATOR_SLOTS
from framejit.guards.sources import ArgSource, static_lookup
from framejit.signals import Raised, Unsupported
from framejit.values.inspection import is_a
from framejit.values.lazy import LazyValue
from framejit.values.objects.functions.generators import GeneratorValue
from framejit.values.objects.python_module import PythonModuleValue
from framejit.values.objects.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.capturing import Frame
    from framejit.values.base import Value

QUIET: Final = frozenset(("PUSH_EXC_INFO", "COPY", "POP_EXCEPT", "POP_TOP", "NOP", "CALL_INTRINSIC_1", "NOT_TAKEN"))
"""What handlers do that no program can see; the intrinsic function in them is the one that is for StopIteration."""
RAISE_AGAIN: Final = frozenset(("RERAISE", "CLEANUP_THROW"))
YIELDS_FROM: Final = (2, 3)
"""What RESUME is told behind a yield that hands on what another iterator yields."""
MOST_INSTRUCTIONS: Final = 200


def check_may_be_dropped(generator: GeneratorValue) -> None:
    """Break where a generator was made that runs code of the program when it is dropped: plain Python does that in its
    own time."""
    frame: Any = generator.frame
    if generator.started and not generator.finished and not (_is_left_quietly(frame) and _ends_quietly(frame)):
        frame.capture.break_at(
            generator.made_at,
            Unsupported(f"{generator.describe()} is left before its end, inside a try block", "FJ151"),
        )


def check_end(frame: Frame, value: Value | None, held: int = 1) -> None:
    """Break where captured code lets go of an argument whose end runs code of the program, and which it holds in `held`
    places only.

    Others may hold it, too; then nothing happens there.
    """
    if value is None or not isinstance(value.source, ArgSource):
        return
    obj = getattr(value, "obj", None)
    happens = _what_happens_at_end(value, obj)
    if any(_is_same(value, other) for other in frame.capture.called_back):
        happens = f"{value.describe()}, whose weak references are then called back"
    if (
        happens is not None
        and sum(other is value for each in frame.chain() for other in (*each.stack, *each.locals.values())) <= held
    ):
        raise Unsupported(f"letting go of {happens}", "FJ150")


def _is_same(value: Value, other: Value) -> bool:
    return value is other or isinstance(value, LazyValue) and value.realized is other


def _what_happens_at_end(value: Value, obj: Any) -> str | None:
    if type(obj) is types.GeneratorType:
        return "a generator, which may go on with its finally blocks"
    if static_lookup(type(obj), "__del__", None) is not None:
        return f"{value.describe()}, whose __del__ then runs"
    if type(obj).__weakrefoffset__ and any(map(_is_missed, weakref.getweakrefs(obj))):
        return f"{value.describe()}, whose weak references are then called back"
    return None


def _is_missed(ref: Any) -> bool:
    """Whether the program may see that a weak reference leads nowhere any more, without asking it. Torch's own, and
    ours, tell nobody."""
    if type(ref) in weakref.ProxyTypes:  # which answers for what it leads to
        return True
    callback = ref.__callback__
    return callback is not None and (getattr(callback, "__module__", None) or "").partition(".")[0] not in (
        "torch",
        "framejit",
    )


def _is_left_quietly(frame: Frame) -> bool:
    """Whether the iterator that a frame delegates to, if any, is closed without running code of the program. Captured
    generators are looked at themselves."""
    resumed = frame.instructions[frame.pc]
    if resumed.name != "RESUME" or resumed.arg & 3 not in YIELDS_FROM or not frame.stack:
        return True
    iterator = frame.stack[-ITERATOR_SLOTS]
    if isinstance(iterator, GeneratorValue):
        return True
    cls: Any = iterator.python_type()
    if isinstance(iterator, ObjectValue) and cls.__getattribute__ is not object.__getattribute__:
        return False
    return static_lookup(cls, "close", None) is None and static_lookup(cls, "__getattr__", None) is None


def _ends_quietly(frame: Frame) -> bool:
    """Whether GeneratorExit leaves a frame from the yield where it stands, and only looks at what except clauses name
    on its way."""
    handler = frame.instructions[frame.pc - 1].handler
    if handler is None:
        return True
    at = handler.target
    stack: list[Any] = []
    for _ in range(MOST_INSTRUCTIONS):
        ins = frame.instructions[at]
        at += 1
        if ins.name in RAISE_AGAIN or (ins.name == "RAISE_VARARGS" and ins.arg == 0):
            if ins.handler is None:
                return True
            at = ins.handler.target
        elif ins.name in ("RETURN_VALUE", "RETURN_CONST"):
            return True
        elif ins.name == "LOAD_CONST":
            stack.append(None)
        elif ins.name == "CHECK_EXC_MATCH":
            caught = _catches(stack.pop())
            if caught is None:
                return False
            stack.append(caught)
        elif (
            ins.name.startswith("POP_JUMP_")
            and ins.name.endswith("_IF_FALSE")
            and isinstance(stack[-1], bool)
            and ins.target is not None
        ):
            at = at if stack.pop() else ins.target
        elif ins.name not in QUIET:
            named = _named(frame, ins, stack)
            if named is None:
                return False
            stack.append(named)
    return False


def _catches(named: Value | tuple[Value, ...] | None) -> bool | None:
    """Whether an except clause for what it names catches GeneratorExit; None if it names anything but known classes of
    exceptions."""
    several = named if isinstance(named, tuple) else (named,)
    if not all(value is not None and value.is_constant() for value in several):
        return None
    objects = [value.constant() for value in several if value is not None]
    classes = objects[0] if not isinstance(named, tuple) and isinstance(objects[0], tuple) else objects
    if not all(is_a(cls, type) and BaseException in cls.__mro__ for cls in classes):
        return None
    return any(cls in GeneratorExit.__mro__ for cls in classes)


def _named(frame: Frame, ins: Instruction, stack: list[Any]) -> Value | tuple[Value, ...] | None:
    """What an instruction of an except clause's expression puts onto the stack; None if finding out could run code of
    the program."""
    try:
        match ins.name, ins.arg:
            case "LOAD_GLOBAL", (False, name):
                return frame.load_global(name)
            case ("LOAD_FAST" | "LOAD_DEREF"), name:
                return frame.variable(str(getattr(name, "name", name)))
            case "LOAD_ATTR", (False, name) | str(name):
                module = stack.pop()
                return (
                    module.getattr(frame, name)
                    if isinstance(module, PythonModuleValue) and name in module.module.__dict__
                    else None
                )
            case "BUILD_TUPLE", int(n) if 0 < n <= len(stack):
                made = tuple(stack[-n:])
                del stack[-n:]
                return made
    except (Raised, Unsupported):
        return None
    return None
