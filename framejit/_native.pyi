"""The native core: dispatch, guards, tensor access and the frame hook."""

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeAlias, final

_Policy: TypeAlias = Callable[[CodeType, dict[str, Any]], bool]
_OnMiss: TypeAlias = Callable[[EntryCache, FunctionType, tuple[Any, ...]], Entry | None]

# How a guard node reads its value.
A_ARG: int
A_CLOSURE: int
A_CLOSURE_CELL: int
A_GLOBAL: int
A_BUILTIN: int
A_FUNC: int
A_CONST: int
A_ATTR: int
A_DICT: int
A_KEY: int
A_INDEX: int
A_GETITEM: int
A_TYPE: int
A_TYPE_LOOKUP: int
A_CELL: int
A_BINOP: int
A_RBINOP: int
A_UNOP: int
A_CALL: int
A_DICT_KEY_AT: int
A_STATE: int

# What a guard checks of it.
C_TYPE: int
C_ID: int
C_EQUALS: int
C_LEN: int
C_KEYS: int
C_HAS_KEY: int
C_NO_KEY: int
C_HAS_ATTR: int
C_NO_ATTR: int
C_TENSOR: int
C_RECORD: int
C_SAME: int
C_DISTINCT: int
C_STATE: int
C_PY: int
C_TRUTH: int

SLOT_VALUE: int
SLOT_CALL: int
SLOT_TAIL: int
RUNS_USER_CODE: int

_reduce_hook: Callable[[Dispatcher], Any]
"""Set by Python code: gives what `Dispatcher.__reduce__` returns."""

@final
class GuardTree:
    """Assumptions about a frame, evaluated natively.

    A node is (accessor, key, checks, children, guard_id), a check (check, payload, guard_id).
    """

    def __new__(cls, roots: list[Any], n_records: int = 0) -> GuardTree: ...
    def check(self, flat_args: tuple[Any, ...], fn: FunctionType | None, /) -> bool: ...
    def explain(self, flat_args: tuple[Any, ...], fn: FunctionType | None, /) -> tuple[int, Any, bool] | None:
        """(guard_id, value or None, failed_access) of the first guard that does not hold; None if all do."""
    @property
    def size(self) -> int: ...
    @property
    def memos(self) -> tuple[int, ...]:
        """How often each of the short proofs that the tree remembers has served; one for each set of objects its guards lately held for."""
    @property
    def expired(self) -> bool:
        """Whether an object that a guard compares with no longer exists, so that the tree can never pass again."""

@final
class State:
    """The torch modes of a thread at one moment."""

    @property
    def described(self) -> dict[str, Any]: ...
    def diff(self, other: State, /) -> list[tuple[str, Any, Any]]: ...
    __hash__: None  # type: ignore[assignment]

@final
class Slot:
    """A callable constant of replacement code."""

    def __new__(cls, target: Any, kind: int) -> Slot: ...
    @property
    def target(self) -> Any: ...
    @property
    def kind(self) -> int: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class Entry:
    """Replacement code for the frames whose guards hold. It owns its slots."""

    def __new__(
        cls, code: CodeType, fn: FunctionType, guards: GuardTree, slots: tuple[Slot, ...], flags: int = 0, tag: Any = None
    ) -> Entry: ...
    valid: bool
    @property
    def code(self) -> CodeType: ...
    @property
    def function(self) -> FunctionType: ...
    @property
    def guards(self) -> GuardTree: ...
    @property
    def slots(self) -> tuple[Slot, ...]: ...
    @property
    def tag(self) -> Any: ...
    @property
    def flags(self) -> int: ...
    @property
    def hits(self) -> int: ...

class EntryCache:
    """The entries known for one code object."""

    options: Any
    skip: bool
    @property
    def entries(self) -> tuple[Entry, ...]: ...
    @property
    def code(self) -> CodeType: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    def add_entry(self, entry: Entry, /) -> None: ...
    def remove_entry(self, entry: Entry, /) -> None: ...
    def clear(self) -> None: ...

@final
class Dispatcher(EntryCache):
    """The callable that stands for an optimised function."""

    def __new__(cls, fn: FunctionType, on_miss: _OnMiss, options: Any = None) -> Dispatcher: ...
    __name__: str
    __qualname__: str
    @property
    def __wrapped__(self) -> FunctionType: ...
    @property
    def on_miss(self) -> _OnMiss: ...
    def lookup(self, flat_args: tuple[Any, ...], /) -> Entry | None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, obj: Any, cls: type | None = None, /) -> Any: ...

def is_tailcall(obj: Any, /) -> bool: ...

# Switches.
def set_disabled(flag: bool, /) -> None: ...
def disabled() -> bool: ...
def busy() -> bool: ...
def enter_busy() -> None: ...
def leave_busy() -> None: ...

# Thread state.
def snapshot_state() -> State: ...
def state_matches(state: State, /) -> bool: ...
def autograd_flags() -> bytes | None: ...
def function_flags() -> tuple[int, int] | None: ...
def setup_state(
    describe: Callable[[], dict[str, Any]], mode_at: Callable[[int], Any], device_mode: type, offset: int, mask: int, known: bool, /
) -> bool: ...

# Tensor access.
def setup(tensor_type: type, dispatch_keys: Callable[[Any], Any], probes: tuple[Any, ...], /) -> dict[str, Any]: ...
def tensor_access() -> str: ...
def force_tensor_access(name: str, /) -> None: ...
def tensor_matches(example: Any, value: Any, /) -> tuple[bool, bool]: ...

# The frame hook.
def install_hook_policy(policy: _Policy | None, on_miss: _OnMiss | None, /) -> tuple[_Policy | None, _OnMiss | None]: ...
def code_cache(code: CodeType, /) -> EntryCache | None: ...
def skip_code(code: CodeType, /) -> None: ...
def reset_code(code: CodeType, /) -> None: ...
def reset_all_codes() -> None: ...
def intercept_all(flag: bool, /) -> None: ...
def hook_active() -> bool: ...
