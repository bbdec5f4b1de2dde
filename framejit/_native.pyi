"""The native core: dispatch, guards, tensor access, the frame hook and the plans of compiled graphs."""

from collections.abc import Callable, Iterable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, Literal, TypeAlias, final

from torch import Tensor
from torch import device as Device

_Policy: TypeAlias = Callable[[CodeType, dict[str, Any]], bool | None]
_OnMiss: TypeAlias = Callable[[EntryCache, FunctionType, tuple[Any, ...]], Entry | None]

# How a guard node reads its value.
A_ARG: int
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
A_TYPE_LOOKUP: int
A_CELL: int
A_BINOP: int
A_RBINOP: int
A_CALL: int
A_DICT_KEY_AT: int
A_DICT_VALUE_AT: int
A_STATE: int

# What a guard checks of it.
C_TYPE: int
C_ID: int
C_EQUALS: int
C_LEN: int
C_KEYS: int
C_NO_KEY: int
C_NO_ATTR: int
C_LACKS: int
C_TENSOR: int
C_RECORD: int
C_SAME: int
C_DISTINCT: int
C_STATE: int
C_PY: int
C_TRUTH: int
C_SIZES: int
C_VERSION: int
C_HOLDS: int

# Operations of size programs.
S_SIZE: int
S_STRIDE: int
S_CONST: int
S_ADD: int
S_MUL: int
S_FLOORDIV: int
S_MOD: int
S_MIN: int
S_MAX: int
S_EQ: int
S_LT: int
S_NOT: int

SLOT_VALUE: int
SLOT_TAIL: int
RUNS_USER_CODE: int

_reduce_hook: Callable[[Dispatcher], Any]
"""Set by Python code: gives what `Dispatcher.__reduce__` returns."""

@final
class GuardTree:
    """Assumptions about a frame, evaluated natively.

    A node is (accessor, key, checks, children, guard_id), a check (check, payload, guard_id). C_SIZES takes (record
    slots, size program): the program, postfix code as a tuple of ints (S_SIZE, tensor, dim, S_CONST, 2, S_LT, ...),
    must give another number than 0; a tensor is a position among the slots. C_VERSION takes (version, address of the
    data) of a tensor, C_HOLDS (function, record slots): what the function gives for the values must be true.
    """

    def __new__(cls, roots: list[Any], n_records: int = 0) -> GuardTree: ...
    def check(self, flat_args: tuple[Any, ...], fn: FunctionType | None, /) -> bool: ...
    def explain(self, flat_args: tuple[Any, ...], fn: FunctionType | None, /) -> tuple[int, Any, bool] | None:
        """(guard_id, value or None, failed_access) of the first guard that does not hold; None if all do. C_SIZES: the
        value is a tuple of the tensors."""
    def other_numbers(self, flat_args: tuple[Any, ...], fn: FunctionType | None, /) -> list[int]:
        """The ids of the guards that compare a number with another one now, of those before the first of any other
        kind that does not hold."""
    @property
    def size(self) -> int: ...
    @property
    def memos(self) -> tuple[int, ...]:
        """How often each of the short proofs that the tree remembers has served; one for each set of objects its guards
        lately held for."""
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
        cls, code: CodeType, fn: FunctionType, guards: GuardTree, slots: tuple[Slot, ...], flags: int = 0,
        tag: Any = None
    ) -> Entry: ...
    valid: bool
    @property
    def code(self) -> CodeType: ...
    @property
    def function(self) -> FunctionType | None: ...
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
    raising: Any
    resume_points: Any
    skip: bool
    @property
    def entries(self) -> tuple[Entry, ...]: ...
    @property
    def code(self) -> CodeType: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def python_ns(self) -> int: ...
    def add_entry(self, entry: Entry, /) -> None: ...
    def remove_entry(self, entry: Entry, /) -> None: ...
    def clear(self) -> None: ...

@final
class Dispatcher(EntryCache):
    """The callable that stands for an optimised function, or with `of` for an object of that class, of which `fn` is
    the `__call__`; `follow(cls)` gives the callable where a class has another one."""

    def __new__(
        cls,
        fn: FunctionType,
        on_miss: _OnMiss,
        options: Any = None,
        of: type = ...,
        follow: Callable[[type], Any] = ...,
    ) -> Dispatcher: ...
    __name__: str
    __qualname__: str
    __wrapped__: Any  # what the function says that it wraps; else the function
    @property
    def function(self) -> FunctionType: ...
    @property
    def on_miss(self) -> _OnMiss: ...
    @property
    def follow(self) -> Callable[[type], Any] | None: ...
    def lookup(self, flat_args: tuple[Any, ...], /) -> Entry | None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, obj: Any, cls: type | None = None, /) -> Any: ...

def is_tailcall(obj: Any, /) -> bool: ...
def show_warnings_again(shown: Callable[[Any], Any], /) -> None: ...
def without_warnings(callable: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...
def tail_call(dispatcher: Dispatcher, /, *args: Any) -> Any: ...
def function_with_builtins(
    code: CodeType, globals: dict[str, Any], builtins: dict[str, Any], closure: tuple[CellType, ...] = (), /
) -> FunctionType: ...
def make_tail_call(call: Any, /) -> Any: ...
def keep_variables(*objects: Any) -> None: ...
def is_in_traceback() -> bool: ...
def keep_for_traceback(call: Any, kept: list[Any], /) -> None: ...
def call_where_shared(f: Callable[..., Any], /, *tensors: Any) -> Any: ...
def take_over_arguments() -> None: ...
def handle_signals() -> None: ...
def runs_compiled_code() -> bool: ...
def keep_signals() -> None: ...
def raise_later(error: BaseException, /) -> bool: ...

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
    describe: Callable[..., dict[str, Any]], mode_at: Callable[[int], Any], device_mode: type, offset: int, mask: int,
    known: bool, ignored: int, /
) -> tuple[str, ...]: ...

def setup_process_state(tensor_class: type, parameter_class: type, levels: dict[str, Any], /) -> None: ...
def tensor_methods() -> int: ...

# Symbols of torch.
def torch_symbols() -> dict[str, tuple[bool, str]]: ...
def withhold_symbols(names: Iterable[str], /) -> None: ...

# Tensor access.
def setup(tensor_type: type, dispatch_keys: Callable[[Any], Any], probes: tuple[Any, ...], /) -> dict[str, Any]: ...
# Processes.
def fork() -> int: ...
def fork_again() -> int: ...
# Where CPython keeps what.
def check_dict(d: dict[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...], shares: bool, /) -> bool: ...
def check_instance(obj: Any, /) -> bool: ...
def check_set(s: set[Any] | frozenset[Any], /) -> bool: ...
def check_frames(fn: FunctionType, code: CodeType, /) -> bool: ...
def check_code(code: CodeType, /) -> bool: ...
def type_version(cls: type, /) -> int: ...
def set_cpython_layout(part: str, holds: bool, /) -> None: ...
def cpython_layout() -> dict[str, bool]: ...
def check_attribute_watch(dict: dict[str, Any], changes: tuple[Callable[[], object], ...], /) -> bool: ...
def dict_access() -> Literal["versions", "watcher", "comparison"]: ...
def setup_versions(probes: tuple[Any, ...], /) -> bool: ...
def tensor_version(tensor: Any, /) -> int | None: ...
def setup_owners(probes: tuple[Any, ...], storages: tuple[int, ...], /) -> bool: ...
def owners(tensor: Any, /) -> int: ...
def node_memory(tensor: Any, /) -> bytes | None: ...
def setup_nodes(outer: Any, inner: Any, fields: tuple[int, ...], /) -> bool: ...

class NodeWatch:
    def __new__(cls, tensors: list[Any], views: list[Any]) -> NodeWatch: ...
    def unchanged(self) -> bool: ...

def tensor_access() -> str: ...
def force_tensor_access(name: str, /) -> None: ...
def tensor_matches(example: Any, value: Any, /) -> tuple[bool, bool]: ...

# What hash tables keep and Python does not show.
SetLayout = tuple[int, tuple[int, ...], tuple[int, ...], int, tuple[Any, ...]]

def stored_hashes(table: Any, /) -> tuple[int, ...]: ...
def set_layout(table: Any, /) -> SetLayout: ...
def set_of_layout(
    cls: type, slots: int, taken: tuple[int, ...], left: tuple[int, ...], finger: int, members: tuple[Any, ...],
    hashes: tuple[int | None, ...], /
) -> Any: ...
def dict_set_known_hash(table: dict[Any, Any], key: Any, hash: int, value: Any, /) -> None: ...

# The caches of functools.lru_cache.
def lru_cache_settings(cached: Any, /) -> tuple[Any, bool, object, int, int]: ...
def lru_cache_result(key: Any, cached: Any, /) -> Any: ...
def lru_cache_exchange(cached: Any, function: Any, /) -> Any: ...
def lru_cache_admits(key: Any, constant: Any, more: int, cached: Any, /) -> bool: ...

# What classes have in C and Python does not show.
def type_name(cls: type, /) -> str: ...
def has_sequence_slots(cls: type, /) -> bool: ...
def is_buffer_type(cls: type, /) -> bool: ...

# The frame hook.
def install_hook_policy(
    policy: _Policy | None, on_miss: _OnMiss | None, /
) -> tuple[_Policy | None, _OnMiss | None]: ...
def code_cache(code: CodeType, /) -> EntryCache | None: ...
def skip_code(code: CodeType, /) -> None: ...
def reset_code(code: CodeType, /) -> None: ...
def reset_all_codes() -> None: ...
def ask_other_compiler(ask: Callable[[], Any], /) -> None: ...
def intercept_all(flag: bool, /) -> None: ...
def hook_active() -> bool: ...

# Plans.
class PlanUnsupported(RuntimeError):
    """This torch lacks a function that plans are run with, or there is no CUDA driver where a step needs one."""

@final
class Value:
    """The value in a slot of a plan, in the arguments of a "call" step (also inside a tuple or list there) and among
    the outputs."""

    def __new__(cls, index: int) -> Value: ...
    @property
    def index(self) -> int: ...

@final
class CudaGraph:
    """Captures what this thread launches on a stream, a CUstream, from now on. RuntimeError where the driver refuses
    that, PlanUnsupported without a driver that has what this takes. What was captured goes with this object."""

    def __new__(cls, stream: int, device_index: int) -> CudaGraph: ...
    def end(self) -> None:
        """Stop capturing, in the thread that began, and make it a graph that can be launched. RuntimeError where
        something was done meanwhile that can't be captured."""

    def abandon(self) -> None:
        """Stop capturing, in the thread that began, if that is under way; there is no graph then."""

@final
class LaunchGraph:
    """A graph that is launched on torch's current stream. `nodes` are those that are given addresses: (node, function,
    (grid x, y, z), threads, shared_bytes, args), each argument as of a "cuda_kernel" step, but for ("p", address).
    ValueError for a graph that is not whole.

    Launch graphs of one device share their memory: those on different streams run one behind the other.
    """

    def __new__(
        cls, graph: CudaGraph, nodes: tuple[tuple[Any, ...], ...], keeps: bool = False
    ) -> LaunchGraph:
        """`keeps`: what it gives lies in memory of its own ("place" steps), so that it is launched on one stream only:
        what reads that there has ended when it is written again."""

    @property
    def error(self) -> str | None:
        """Why it can't be launched any more."""

    @property
    def launches(self) -> int:
        """How often it was launched."""

@final
class Plan:
    """A compiled graph: steps that run in order, without Python between them. Called with `n_inputs` tensors it gives
    the tuple of its outputs.

    Values live in `n_values` slots, of which the first `n_inputs` are the inputs. A slot is written once, and read only
    while it holds a value; a description that does otherwise is refused with ValueError. Steps are tuples:

    - ("empty", slot, sizes, strides, dtype, device): a fresh tensor; sizes and strides in elements. If memory runs out,
      torch's own error.
    - ("reinterpret", slot, base_slot, sizes, strides, offset, dtype): a new tensor over the storage of another, that
      begins `offset` elements after where the other begins. The dtype may differ if its size is the same.
    - ("inherit", slot, input_slot, sizes, strides, dtype, device, bytes): like "reinterpret" of the input, from its
      beginning, if nobody else holds that any more and its memory has so many bytes; else like "empty".
    - ("place", slot, sizes, strides, tensor): a new tensor over the memory of that tensor, from its beginning. While
      anybody else holds that memory, which an earlier call gave out, the fallback runs instead.
    - ("cpu_kernel", address, tensor_slots, ints, total, grain): the C function `void (char *const *pointers, const
      int64_t *ints, int64_t begin, int64_t end)` for the range [0, total), split evenly among at most
      `torch.get_num_threads()` threads so that none gets less than `grain`. It runs without the interpreter's lock from
      2 * grain on. pointers[i] is the data pointer of tensor_slots[i].
    - ("cuda_kernel", function, (grid x, y, z), threads, shared_bytes, args, device_index, waits): a launch on torch's
      current stream. Each argument is ("p", slot), ("i32", n), ("i64", n), ("f32", x), ("f64", x) or ("null",). A
      kernel that `waits` itself for the launch before it, by griddepcontrol.wait, may begin before that has ended (CUDA
      Programming Guide, programmatic dependent launch); drivers that can't do so make it wait.
    - ("ready", launch_graph): where it can't be launched (the program captures a graph itself, the driver refused
      an address before, or it keeps results and torch's current stream is another) the fallback runs instead.
    - ("graph", launch_graph, pointers, copies_in, copies_out, device): a launch of a captured graph. Of each pointer
      (slot, node, argument, offset): an argument of one of the nodes that the launch graph knows becomes the address of
      the data of the slot's value and so many bytes behind it. Copies are (slot, address, bytes), from the value's data
      to that place before the launch, or back from there behind it. Where a value that is to be copied lies on a device
      of another type, or the driver refuses an address, the fallback runs instead.
    - ("call", callable, args, kwargs, results): args a tuple, kwargs a dict or None, results a slot, None (ignored), or
      a tuple of those for the items of a tuple or list.
    - ("expect", slot, sizes, strides, repair): a result that is not of that shape is replaced by `repair(tensor)`,
      which must be.
    - ("constant", slot, object)
    - ("free", slot): the value is needed no more. All others are dropped at the end. What `consume` was called with
      is the plan's own as other values are.

    An output that is no Value is a constant. An output that is an input is that very object. `fallback(*inputs)` stands
    in for a call with an input among `aligned` (slots) whose memory does not begin at a multiple of 16 bytes (unless it
    is among `copied`, too: then the plan runs with what `aligned_copy(tensor)` gives for it), or with
    one among `alone` (slots of inputs that are written) that shares memory with another input; `spans` has the bytes
    that each input extends over; or with one among `fixed` (slots and addresses) whose data is not there. Any thread
    may call a plan at any time.

    Raises PlanUnsupported at construction (also if `framejit.guards.tensor_layout` was never imported, which measures
    where tensors keep their memory); TypeError for a call with anything but `n_inputs` tensors; what a "call" step
    raises, as it is.
    """

    def __new__(
        cls,
        n_inputs: int,
        n_values: int,
        steps: Sequence[tuple[Any, ...]],
        outputs: Sequence[Any],
        *,
        fallback: Callable[..., Any],
        aligned: Sequence[int] = (),
        alone: Sequence[int] = (),
        spans: Sequence[int] = (),
        name: str = "",
        fixed: Sequence[tuple[int, int]] = (),
        copied: Sequence[int] = (),
        aligned_copy: Callable[[Tensor], Tensor] | None = None,
    ) -> Plan: ...
    def __call__(self, *inputs: Tensor) -> Any: ...
    def traced(
        self, inputs: tuple[Tensor, ...], wanted: frozenset[int], device: Device, /
    ) -> tuple[list[tuple[int, int, tuple[int, ...]]], dict[int, Tensor]] | None:
        """A call while a CUDA graph is captured on torch's current stream. Of each launch of a kernel the number of its
        step, the node that it became, and the addresses among its arguments (0 for others); and the tensors that the
        wanted slots held. None if the plan can't run with these inputs. RuntimeError if a call gives something that
        is not on the device."""
    def consume(self, inputs: list[Tensor], /) -> Any: ...
    def for_sizes(
        self,
        changes: Sequence[tuple[int, tuple[Any, ...]]],
        outputs: Sequence[Any],
        spans: Sequence[int],
        fallback: Callable[..., Any],
    ) -> Plan:
        """A plan that shares all with this one but what is given: other descriptions for the steps of these numbers,
        outputs, spans and what runs the calls that it cannot run. ValueError for steps, or outputs, that use other
        slots than those in whose place they stand."""

    @property
    def name(self) -> str: ...
    @property
    def fallback(self) -> Callable[..., Any]: ...
    @property
    def n_inputs(self) -> int: ...
    @property
    def n_steps(self) -> int: ...

def processor_features() -> bytes | None:
    """The same bytes on processors, under systems, that run the same machine code; None where the processor does not
    say."""

def cuda_load_module(cubin: bytes, name: str, shared_bytes: int, device_index: int, /) -> tuple[int, int, int, int]:
    """(module, function, registers, local bytes a thread) of the kernel `name`, ready to be launched with
    `shared_bytes` of dynamic shared memory.

    Raises RuntimeError with the name of CUDA's error, PlanUnsupported if there is no driver.
    """

def cuda_unload_module(module: int, device_index: int, /) -> None: ...
def cuda_new_stream(device_index: int, /) -> int:
    """A CUstream that nobody else has, and that does not wait for the default stream. It is there for good."""


@final
class SizeSwitch:
    """Calls what was compiled for the sizes of its arguments.

    `places`: (position of an argument, dimension) of the sizes that matter, at most 12; with True behind, of strides.
    `miss(*arguments)` gives for sizes that were not met lately what to call, and whether that is for good.
    """

    def __new__(
        cls,
        places: tuple[tuple[int, int] | tuple[int, int, bool], ...],
        miss: Callable[..., tuple[Callable[..., Any], bool]],
    ) -> SizeSwitch: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @property
    def miss(self) -> Callable[..., tuple[Callable[..., Any], bool]]: ...

@final
class Selector:
    """Calls `compiled` or `eager`, whichever is quicker, once a few calls have shown which that is.

    The first call runs `compiled` unmeasured. If running twice is harmless (`pure`), each of the next `samples` calls
    runs `eager` aside and then `compiled`, whose result it gives; otherwise the next 2 * samples calls take turns.
    `eager` wins if its best time is below `margin` times that of `compiled` by more than noise: 30 ns and 5 % under 20
    microseconds, 3 % above. With `cuda`, a run takes as long as the host or the stream took, whichever is longer, and
    the decision waits, without blocking, until the device is done. An exception in an aside run of `eager` settles on
    `compiled`. Where one run of `compiled` takes less than `least_eager_ns`, which `eager` takes at least, that is not
    run at all; nor is it before runs of `compiled` have taken the host `wait_ns`. `on_decision(selector)` is called
    once; what it raises is reported as unraisable.
    """

    def __new__(
        cls,
        compiled: Callable[..., Any],
        eager: Callable[..., Any],
        *,
        pure: bool,
        cuda: bool,
        samples: int = 3,
        margin: float = 1.0,
        on_decision: Callable[[Selector], Any] | None = None,
        least_eager_ns: int = 0,
        wait_ns: int = 0,
    ) -> Selector: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @property
    def state(self) -> Literal["measuring", "compiled", "eager"]: ...
    @property
    def compiled_ns(self) -> int | None: ...
    @property
    def eager_ns(self) -> int | None: ...
    @property
    def eager_is_least(self) -> bool: ...
    @property
    def compiled(self) -> Callable[..., Any]: ...
    @property
    def eager(self) -> Callable[..., Any]: ...
