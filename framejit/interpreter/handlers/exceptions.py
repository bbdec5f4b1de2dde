"""Raising and handling exceptions, and with blocks."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.bytecode.spellings import ENTER_WITH
from framejit.guards.sources import static_lookup
from framejit.interpreter.opcodes import VERSION, breaks, opcode
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.inspection import is_a
from framejit.values.objects.exception_values import ExceptionValue, PreviousException
from framejit.values.objects.user_object import ObjectValue, class_attribute
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


@opcode("RAISE_VARARGS")
def raise_varargs(frame: Frame, ins: Instruction) -> None:
    if ins.arg == 0:
        current = frame.handled[-1] if frame.hidden and frame.handled else frame.current_exception()
        if not isinstance(current, ExceptionValue):
            raise frame.raised(RuntimeError, "No active exception to reraise")
        _check_may_leave(current, ins)
        raise Raised(current)
    cause = frame.pop() if ins.arg == 2 else None
    exc = frame.exception_from(frame.pop())
    if exc.source is not None:
        raise Unsupported("raising an existing exception, which changes its traceback and context", "FJ161")
    if cause is not None:
        exc.cause = frame.exception_from(cause) if not (cause.is_constant() and cause.constant() is None) else cause
        exc.suppress_context = True
    frame.chain_context(exc)
    raise Raised(exc)


@opcode("RERAISE")
def reraise(frame: Frame, ins: Instruction) -> None:
    exc = frame.pop()
    if not isinstance(exc, ExceptionValue):
        raise Unsupported("re-raising an unknown exception")
    _check_may_leave(exc, ins)
    raise Raised(exc)


def _check_may_leave(exc: ExceptionValue, ins: Instruction) -> None:
    """An exception that was really raised grows its traceback with each frame it leaves, so it has to leave for
    real."""
    if exc.source is not None and ins.handler is None:
        raise Unsupported("an existing exception leaves a function, which adds to its traceback", "FJ161")


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, ins: Instruction) -> None:
    frame.enter_handler(frame.pop())


@opcode("POP_EXCEPT")
def pop_except(frame: Frame, ins: Instruction) -> None:
    previous = frame.pop()
    assert isinstance(previous, PreviousException)
    # Cleanup code pops a copy: what stays on the stack is a dead value from here on, and a break must not enter a
    # handler for it.
    frame.stack[:] = [NONE if value is previous else value for value in frame.stack]
    if frame.handled:
        frame.handled.pop()


def _matches(frame: Frame, exc: Value, target: Value) -> bool:
    classes = deep_realize(frame, [target])[0].constant()
    if not isinstance(exc, ExceptionValue):
        raise Unsupported("matching an unknown exception")
    several = classes if isinstance(classes, tuple) else (classes,)
    for cls in several:
        if not is_a(cls, type) or BaseException not in cls.__mro__:
            raise frame.raised(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    if exc.cls not in several:
        frame.capture.guard_bases(exc.cls)
    return any(cls in exc.cls.__mro__ for cls in several)  # a metaclass is not asked


@opcode("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, ins: Instruction) -> None:
    target = frame.pop()
    frame.push(ConstantValue(_matches(frame, frame.peek(1), target)))


def stop_iteration_error(frame: Frame) -> None:
    """A StopIteration that leaves a generator's body becomes a RuntimeError (PEP 479)."""
    exc = frame.pop()
    assert isinstance(exc, ExceptionValue)
    if issubclass(exc.cls, StopIteration):
        wrapped = frame.make_exception(RuntimeError, [ConstantValue("generator raised StopIteration")])
        wrapped.cause = wrapped.context = exc
        wrapped.suppress_context = True
        exc = wrapped
    frame.push(exc)


# ---- with -----------------------------------------------------------------------------------------


EXIT_HAS_NULL = VERSION >= (3, 14)  # a with block keeps its exit method in two slots, like any callable


@opcode("BEFORE_WITH", until=(3, 13))
@opcode(ENTER_WITH, since=(3, 14))
def before_with(frame: Frame, ins: Instruction) -> None:
    manager = frame.pop()
    if manager.enters_natively:
        exit_method = manager.getattr(frame, "__exit__")
        result = frame.call(manager.getattr(frame, "__enter__"), [], {})
    elif not isinstance(manager, ObjectValue) or any(
        static_lookup(manager.cls, n, None) is None for n in ("__enter__", "__exit__")
    ):
        raise Unsupported(f"entering {manager.describe()}", "FJ119")
    else:
        exit_method = class_attribute(frame, manager, manager.cls, "__exit__")
        result = frame.call(class_attribute(frame, manager, manager.cls, "__enter__"), [], {})
    frame.push(exit_method)
    if EXIT_HAS_NULL:
        frame.push_null()
    frame.push(result)


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, ins: Instruction) -> None:
    exc, exit_method = frame.peek(1), frame.peek(4 + EXIT_HAS_NULL)
    assert isinstance(exc, ExceptionValue)
    frame.push(frame.call(exit_method, [from_python(exc.cls), exc, exc.getattr(frame, "__traceback__")], {}))


breaks("an except* block", "PREP_RERAISE_STAR", "CHECK_EG_MATCH")
