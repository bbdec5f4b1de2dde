"""`globals()`: the namespace of the function that calls it, read, written and passed on."""

import builtins
import types

import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state

X = torch.ones(2)
SOURCE = """
import pytest
import torch
SCALE, HOOK = 3, None

def read(x):
    known = "SCALE" in globals(), "MISSING" in globals(), len(globals()) > 3
    return x * globals()["SCALE"], globals().get("SCALE"), globals().get("MISSING"), *known

def written(x):
    globals()["COUNT"] = globals().get("COUNT", 0) + 1
    globals()["LAST"] = x + COUNT
    return LAST * 2, "LAST" in globals()

def deleted(x):
    globals()["GONE"] = 1
    y = x + GONE
    del globals()["GONE"]
    try:
        return y + GONE
    except NameError as e:
        return y, str(e)

def mixed(x):
    global SCALE
    before = globals()["SCALE"]
    globals()["SCALE"] += 1
    SCALE += 1
    return x * before, SCALE, globals()["SCALE"]

def written_first(x):
    global SCALE
    SCALE += 1
    return x * globals()["SCALE"]

def names(x):
    return x + 1, [n for n in globals() if n.isupper()]

def dispatched(x):
    return globals()["helper_" + "double"](x), globals()["read"] is read

def helper_double(x):
    return x * 2

def updated(x):
    globals().update(SCALE=7, OTHER=x)
    return x * SCALE + OTHER

def missing(x):
    try:
        return globals()["NOWHERE"]
    except KeyError as e:
        return x + 1, repr(e), isinstance(globals(), dict), globals() is globals()

def misused(x):
    try:
        return globals(1)
    except TypeError as e:
        return x + 1, str(e)
"""


def program(name):
    module = types.ModuleType("program")
    exec(SOURCE, vars(module))
    return vars(module)[name], lambda: {k: v for k, v in vars(module).items() if k.isupper()}


def same(name, **expected):
    check_state(lambda: program(name), (X,), (X,), (X,), **expected)


def test_reading():
    same("read", graphs=1)
    same("names", graphs=1)
    same("dispatched", graphs=1)
    same("missing", graphs=1)


def test_writing():
    same("written")
    same("deleted", graphs=1)
    same("mixed")
    same("updated")


def test_what_is_not_captured():
    same("written_first", breaks=None)
    same("misused", breaks=None)


def test_the_function_of_another_module():
    def make():
        function, state = program("written")

        def fn(x):
            return function(x), "written" in globals(), "SOURCE" in globals()

        return fn, state

    check_state(make, (X,), (X,))


def test_changes_between_calls():
    modules = []

    def make():
        function, state = program("read")
        modules.append(function.__globals__)
        return function, state

    pair = Pair(make)
    pair.call(X)
    for change in ({"SCALE": 5}, {"MISSING": 1}, {"NEW": torch.ones(3)}):
        for namespace in modules:
            namespace.update(change)
        pair.call(X)
        pair.call(X)
    pair.expect(graphs=ANY, breaks=0)


def test_the_namespace_itself_is_returned():
    namespace = vars(types.ModuleType("program"))
    exec("def fn(x):\n    return globals(), x + 1\n", namespace)
    optimized = framejit.optimize(namespace["fn"], backend="eager", fullgraph=True)
    assert optimized(X)[0] is namespace and optimized(X)[0] is namespace


def test_builtins_are_not_in_it():
    def fn(x):
        return x + 1, "len" in globals(), globals().get("len"), builtins.len is len

    assert framejit.optimize(fn, backend="eager", fullgraph=True)(X)[1:] == fn(X)[1:]


class Guessing(dict):
    def __missing__(self, name):
        return f"<{name}>"


def test_globals_of_a_class_that_makes_them_up():
    def names(x):
        return x + 1, nothing_of_the_kind, int  # noqa: F821

    fn = types.FunctionType(names.__code__, Guessing(__builtins__=builtins))

    def program(x):
        return fn(x * 2)

    check(program, X, breaks=None, graphs=None)
    check(fn, X, breaks=None, graphs=None)


DELETED_SOURCE = """
def just_written(x):
    global NEW
    NEW = 2
    y = x * NEW
    del NEW
    return y

def there(x):
    global SCALE
    y = x * SCALE
    del SCALE
    try:
        SCALE
    except NameError as e:
        print(e)
    SCALE = 4
    return y

def overwritten(x):
    global HOOK
    HOOK = 1
    del HOOK
    HOOK = 5
    return x * HOOK

def twice(x):
    global NEW
    NEW = 1
    del NEW
    try:
        del NEW
    except NameError as e:
        print(e)
    return x + 1

def had_hidden_a_builtin(x):
    global len
    len = lambda v: 5
    y = x * len(x)
    del len
    return y * len(x)

def handed_on_at_a_break(x):
    global len
    len = abs
    print(end="")
    del len
    y = x + 1
    length = len
    print(end="")
    return y * length(x)

def builtin_which_is_none(x):
    global len
    try:
        del len
    except NameError as e:
        print(e)
    return x * len(x)

def write():
    global WRITTEN
    WRITTEN = 7

def erase():
    global WRITTEN
    del WRITTEN

def written_elsewhere(x):
    write()
    y = x * WRITTEN
    erase()
    return y

def perhaps_left_by_a_call(x):
    global LEFT
    LEFT = x.ndim
    if KEEP:
        return x
    del LEFT
    return x + 1
"""
DELETED = """
    just_written there overwritten twice had_hidden_a_builtin
    handed_on_at_a_break builtin_which_is_none written_elsewhere perhaps_left_by_a_call
""".split()


@pytest.mark.parametrize("what", DELETED)
def test_deleted_names(what):
    modules = []

    def make():
        namespace = {"SCALE": 3, "HOOK": None, "KEEP": False, "__name__": "program"}
        exec(DELETED_SOURCE, namespace)
        modules.append(namespace)
        return namespace[what], lambda: {k: v for k, v in namespace.items() if k.isupper() or k == "len"}

    pair = Pair(make)
    for keep in (False, True, False, False):
        for namespace in modules:
            namespace["KEEP"] = keep
        pair.call(X)
    assert not pair.breaks or what in ("there", "twice", "builtin_which_is_none", "handed_on_at_a_break")  # which print


SEEN_AS_A_DICT = """
def deleted_behind(x):
    global NEW
    NEW = 1
    seen = globals()["NEW"]
    del NEW
    try:
        NEW
    except NameError as e:
        return x + seen, str(e), "NEW" in globals()

def deleted_twice(x):
    global NEW
    NEW = 1
    seen = globals().pop("NEW")
    try:
        del NEW
    except NameError as e:
        return x + seen, str(e)

def deleted_and_set_again(x):
    global NEW
    NEW = x
    names = globals()
    del NEW
    NEW = 2
    return x * NEW, names["NEW"], list(names)[-1]

def called_behind(x):
    global NEW
    NEW = 3
    del globals()["NEW"]
    return reads(x * 2)

def reads(x):
    return x * NEW
"""


@pytest.mark.parametrize("name", ["deleted_behind", "deleted_twice", "deleted_and_set_again", "called_behind"])
def test_names_deleted_where_globals_were_seen(name):
    def make():
        namespace = {"__name__": "program"}
        exec(SEEN_AS_A_DICT, namespace)
        return namespace[name], lambda: namespace.get("NEW")

    check_state(make, (X,), (X,), (torch.ones(3),), (X,), breaks=None)
