"""Builtin functions, constructors and methods take the arguments the C functions take, and say what they say about
others."""
import collections
import dis
import functools
import inspect
import itertools

import pytest
import torch

from framejit.values import kinds  # noqa: F401  every handler is registered
from framejit.values.handlers import HANDLERS
from framejit.values.objects.functions.signatures import signature_of

from support import check

X = torch.ones(2)


CALLS = {
    "len": lambda: len([1], invalid=True),
    "len of nothing": lambda: len(),
    "isinstance": lambda: isinstance(1, int, cls=True),
    "hasattr": lambda: hasattr(1, "real", 1),
    "callable": lambda: callable(len, y=1),
    "tuple": lambda: tuple(sequence=(1, 2)),
    "list": lambda: list([1], [2]),
    "append": lambda: [].append(1, 2),
    "append by class": lambda: list.append([]),
    "sort by position": lambda: [2, 1].sort(len),
    "sort with another keyword": lambda: [2, 1].sort(keys=len),
    "dict.get": lambda: {}.get("a", default=1),
    "rotate": lambda: collections.deque([1]).rotate(1, 2),
    "appendleft": lambda: collections.deque([1]).appendleft(),
    "reduce": lambda: functools.reduce(max),
    "zip": lambda: zip([1], strikt=True),
    "count": lambda: itertools.count(1, 2, 3),
    "enumerate": lambda: enumerate([1], begin=1),
    "max": lambda: max(),
    "set.add": lambda: {1}.add(),
    "range": lambda: range(1, 2, 3, 4),
    "bool": lambda: bool(x=1),
    "int": lambda: int(x=1),
    "str.find": lambda: "a".find(),
    "getattr": lambda: getattr(1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_does_not_fit_is_refused_with_the_words_of_the_running_version(call):
    def handled(x):
        try:
            call()
        except TypeError as e:
            return x + 1, str(e), e.__context__
        return x + 2

    def unhandled(x):
        y = x + 1
        call()
        return y

    check(handled, X)
    check(unhandled, X, raises=TypeError)


def test_arguments_by_name_and_by_position_are_the_same():
    def fn(x):
        pairs = list(enumerate(iterable="ab", start=3))
        more = list(enumerate("ab", start=x.dim()))
        numbers = [
            round(number=2.567, ndigits=1), pow(base=2, exp=5), pow(2, exp=5, mod=3), sum([1, 2], start=3),
            int("11", base=2),
        ]
        bounded = collections.deque(iterable=[1, 2, 3], maxlen=2)
        keys = [(k, list(g)) for k, g in itertools.groupby(iterable=[1, 1, 2], key=lambda v: v)]
        return (
            x + 1, pairs, more, numbers, bounded, keys, list(itertools.accumulate([1, 2], func=max)),
            list(itertools.islice(itertools.count(step=2), 3)),
        )

    check(fn, X)


def test_an_argument_by_name_behind_one_that_is_left_out():
    def fn(x):
        last, empty = collections.deque(maxlen=2), collections.deque(maxlen=0)
        for k in range(4):
            x = x / 2
            last.append(x)
            empty.appendleft(k)
        return last, last.maxlen, empty, x

    def bad(x):
        y = x + 1
        return y, collections.deque(maxlen=-1)

    def type_with_keywords(x):
        y = x + 1
        return y, type(y, metaclass=type)

    check(fn, X, breaks=0)
    check(bad, X, raises=ValueError)
    check(type_with_keywords, X, raises=TypeError)


def _may_leave_names(function):
    """Whether an argument can come to the handler of a function in C by its name (`checked` of `signatures.py`)."""
    parameters = list(signature_of(function).parameters.values()) if signature_of(function) is not None else []
    optional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty]
    return any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters) or len(optional) > 1


def _reads(handler):
    code = handler.__code__
    names = [ins.argval for ins in dis.get_instructions(code) if ins.opname.startswith("LOAD_FAST")]
    read = {name for each in names for name in (each if isinstance(each, tuple) else [each])}
    args, kwargs = code.co_varnames[1:3]
    return args in read or args in code.co_cellvars, kwargs in read or kwargs in code.co_cellvars


HANDLED = [
    function for function, handler in HANDLERS.items()
    if inspect.isfunction(handler) and (inspect.isbuiltin(function) or inspect.isclass(function))
    and _may_leave_names(function)
]


@pytest.mark.parametrize("function", HANDLED, ids=repr)
def test_handlers_read_arguments_by_name(function):
    """A handler that looks at its arguments looks at those, too, that come by name."""
    reads_args, reads_kwargs = _reads(HANDLERS[function])
    assert reads_kwargs or not reads_args
