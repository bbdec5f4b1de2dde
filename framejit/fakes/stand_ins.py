"""Modules that stand in for others in `sys.modules` while a thread is in `light()`: how they are put there, and step
aside.

For the threads that entered `light()` a stand-in has the few names that are needed, each equal to the real one on plain
Python values; for whatever else is asked of it, and for other threads, it imports the real module and answers from
there. After `light()` nothing is left behind in `sys.modules`, and where the real modules are there already nothing is
done. Modules loaded meanwhile see no stand-in, but for torch.distributed.tensor, which torch's C++ loads when it first
dispatches to a fake: that may keep what stays equal to the real thing, and a finder waits to give it the rest.

Parts of torch._dynamo import each other, and two threads that import two of them at once get halves from the import
system. So one thread at a time has `real` import, whole packages first, after the others have left `light()`, and no
thread enters it meanwhile.
"""
from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from time import monotonic
from types import ModuleType
from typing import Any

from framejit.environment.imports_under_way import is_being_imported

DYNAMO, SYMPY, SYMBOLS = "torch._dynamo", "sympy", "torch.fx.experimental.symbolic_shapes"
LOADED_BY_DISPATCH = "torch.distributed.tensor"
PATIENCE = 20.0
"""Seconds that a thread waits for another's imports. Those that take longer wait for this thread in their turn, or run
a program."""
GLANCE = 1.0
"""Seconds that an import which may have begun outside waits for threads in `light()`: they may need what it holds."""


class Never(RuntimeError):
    """For `except` clauses of an exception that only the real module of symbolic shapes raises."""


class StandIn(ModuleType):
    """Takes the place of a module until something is needed that it does not have."""

    def __init__(self, name: str, content: Mapping[str, Any], keepable: Collection[str] = ()) -> None:
        super().__init__(name)
        self._content = content
        self._keepable = keepable  # what modules that are loaded meanwhile may hold on to
        # a thread that looks for the module while this is put in its place loads it by this
        self.__spec__ = ModuleSpec(name, _Loaded())
        self.__path__: list[str] = []  # submodules are looked for, and `_Finder` finds them

    def __getattr__(self, name: str) -> Any:
        if name in self._content and _here.depth and (not _here.loading or name in self._keepable):
            return self._content[name]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(real(self.__name__), name)


STAND_INS: dict[str, StandIn] = {}
"""By the name of the module that each stands for; `light_torch.py` fills it."""


class _Here(threading.local):
    """For each thread, how often it has entered `light()`, whether it loads a module with the stand-ins in place, and
    how many real ones it imports."""

    depth = 0
    loading = False
    importing = 0


_here = _Here()
_changed = threading.Condition(threading.RLock())
_inside = 0  # how often all threads together have
_running = 0  # threads that have, and run torch's code with the stand-ins
_loading = 0  # stand-ins are away while anything is imported
_importer: int | None = None  # the thread that imports something that stand-ins stand for
_marked: list[Callable[..., Any]] = []  # functions that hold an answer of `_disable`


def _wait_until(ready: Callable[[], bool], seconds: float) -> None:
    """With `_changed` held: give it to other threads until something holds, or for so long."""
    end = monotonic() + seconds
    while not ready() and monotonic() < end:
        _changed.wait(0.02)  # nobody tells of imports of the program's


def _nobody_imports() -> bool:
    return _importer in (None, threading.get_ident()) and not is_being_imported(DYNAMO)


class _Light:
    def __enter__(self) -> None:
        global _inside, _running
        with _changed:
            if not _here.depth and not _here.importing:
                if not _nobody_imports():
                    _wait_until(_nobody_imports, PATIENCE)
                _running += 1
            _inside += 1
            _here.depth += 1
            if _inside == 1:
                _put()

    def __exit__(self, *exception: Any) -> None:
        global _inside, _running
        with _changed:
            _inside -= 1
            _here.depth -= 1
            if not _here.depth and not _here.importing:
                _running -= 1
                _changed.notify_all()
            if not _inside:
                _take_away()
                _unmark()


_light = _Light()


def _is_of_the_program(record: logging.LogRecord) -> bool:
    """Torch's fakes write each operation that fails to the log, with a traceback; what fails while framejit uses them
    is dealt with and no news."""
    return not _here.depth


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_is_of_the_program)


def light() -> _Light:
    """Stand-ins are in place for the duration of the block."""
    return _light


def _put() -> None:
    modules = sys.modules
    missing = [stand_in for name, stand_in in STAND_INS.items() if name not in modules]
    if missing and not _loading:
        sys.meta_path.insert(0, _finder)
        for stand_in in missing:
            modules[stand_in.__name__] = stand_in


def _take_away() -> None:
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name, stand_in in STAND_INS.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


def real(name: str) -> ModuleType:
    """The module itself, imported without stand-ins in sight."""
    there = sys.modules.get(name)
    if there is not None and not isinstance(there, StandIn) and not is_being_imported(name):
        return there
    whole = next((home for home in (DYNAMO, SYMPY) if name == home or name.startswith(f"{home}.")), None)
    if whole is None and name not in STAND_INS:
        with _stand_ins_away():
            return importlib.import_module(name)
    with _alone(), _stand_ins_away():
        importlib.import_module(whole or name)
        return importlib.import_module(name)


@contextmanager
def _stand_ins_away() -> Iterator[None]:
    global _loading
    with _changed:
        _loading += 1
        _take_away()
    try:
        yield
    finally:
        with _changed:
            _loading -= 1
            if _inside:
                _put()


@contextmanager
def _alone() -> Iterator[None]:
    """No other thread imports what stand-ins stand for, or runs torch's code that looks for it."""
    global _importer, _running
    me = threading.get_ident()
    with _changed:
        if not _here.importing:
            runs = _here.depth > 0
            _running -= runs
            _changed.notify_all()
            _wait_until(lambda: _importer in (None, me), PATIENCE)
            _importer = me
            _wait_until(lambda: _running <= 0, GLANCE)
        _here.importing += 1
    try:
        yield
    finally:
        with _changed:
            _here.importing -= 1
            if not _here.importing:
                _running += runs
                if _importer == me:
                    _importer = None
                _changed.notify_all()


def _load_beside_stand_ins(name: str) -> ModuleType:
    """Load a package that needs symbolic shapes, but only asks plain numbers of them here."""
    _here.loading = True
    try:
        return importlib.import_module(name)
    finally:
        _here.loading = False
        sys.meta_path.insert(0, _completer)


@contextmanager
def _without_lock_of(name: str) -> Iterator[None]:
    """The thread that loads a module holds the import system's lock for it. Another thread, which imports the whole
    package, needs that lock, and this thread waits for the package: so it gives the lock up meanwhile. The import
    system has no public name for the lock (`_ModuleLock` in CPython's Lib/importlib/_bootstrap.py)."""
    lock = importlib._bootstrap._get_module_lock(name)  # type: ignore[attr-defined]
    if lock.owner != threading.get_ident():  # somebody calls the loader by hand
        yield
        return
    lock.release()
    try:
        yield
    finally:
        try:
            lock.acquire()
        except importlib._bootstrap._DeadlockError:  # type: ignore[attr-defined]
            _release_nothing(lock)


def _release_nothing(lock: Any) -> None:
    """Another thread has the lock, and waits for one that this thread has: so this one goes on without it, and the
    import system, which takes it to be held, finds nothing to release."""
    passed_over = vars(lock).setdefault("_passed_over", [])
    passed_over.append(threading.get_ident())

    def release() -> None:
        here = threading.get_ident()
        if here in passed_over:
            passed_over.remove(here)
        else:
            type(lock).release(lock)

    lock.release = release


class _Loaded(Loader):
    """Hands over a module that something else loads, which keeps its own specification."""

    def load(self, name: str) -> ModuleType:
        with _without_lock_of(name):
            return real(name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = self.load(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        for_now = module.__spec__
        if for_now is not None and for_now.loader is self:  # some modules let nobody set it
            module.__spec__ = for_now.loader_state


class _Completer(_Loaded):
    """Gives the package its real exception class as soon as anything imports the module that raises it, and is gone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == SYMBOLS else None

    def load(self, name: str) -> ModuleType:
        with _changed:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
        symbols = super().load(name)
        for module in [m for n, m in sys.modules.items() if n.startswith(LOADED_BY_DISPATCH)]:
            for key, value in list(vars(module).items()):
                if value is Never:
                    setattr(module, key, symbols.GuardOnDataDependentSymNode)
        return symbols


class _Finder(_Loaded):
    """First in line while stand-ins are in place: has every import done without them, so that no module keeps one.

    The import system asks finders while it holds a lock for all imports of the process. Another thread that loads a
    module may wait for that lock, and what is imported here for that thread: so a module is looked for here, and
    imported only when it is to be loaded.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        inside = any(name.startswith(f"{stand_in}.") for stand_in in STAND_INS)
        if target is not None or (_here.loading and not inside):  # a reload; a part of what is loaded
            return None
        found = inside or name in STAND_INS or any(
            finder.find_spec(name, path) for finder in sys.meta_path if finder is not self
        )
        return ModuleSpec(name, self) if found else None

    def load(self, name: str) -> ModuleType:
        beside = name == LOADED_BY_DISPATCH and _here.depth
        return _load_beside_stand_ins(name) if beside else super().load(name)


_finder = _Finder()
_completer = _Completer()


# ---- functions that are marked ----


def disable(fn: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """Stands for `torch._dynamo.disable`. torch keeps what it returns for a function in an attribute of it; `_unmark`
    has it ask again."""
    _marked.append(fn)
    return fn


def _unmark() -> None:
    while _marked:
        fn = _marked.pop()
        if getattr(fn, "__dynamo_disable", None) is fn:
            del fn.__dynamo_disable
