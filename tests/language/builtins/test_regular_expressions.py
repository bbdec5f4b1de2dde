"""Patterns and matches: what they say is folded for known objects and guarded for given ones."""
import re
import warnings

import pytest
import torch

import framejit

from support import Pair, check

X = torch.ones(2)
PAIR = re.compile(r"(?P<key>\w+)=(?P<value>\d+)?")


def test_matches_made_inside():
    def fn(x, text):
        m = PAIR.match(text)
        if m is None:
            return x
        return x + 1, m.group("key"), m["value"], m.groups(), m.groupdict(), m.span(), m.start(1), m.end(), m.string

    check(fn, X, "a=1", changed=[(X, "b="), (X, "zz")])


def test_given_matches():
    def fn(x, n):
        m = matches[n]
        return x + (1 if m.group("value") is None else 2), m.span(), m[0], m.re.pattern, m.lastgroup, bool(m)

    matches = [PAIR.match(t) for t in ("a=1", "b=", "a=1", "long=22")]
    check(fn, X, 0, changed=[(X, 1), (X, 2), (X, 3)])

    def given(x, m):
        return x + (1 if m.group("value") is None else 2), m.span()

    compiled = framejit.optimize(given, backend="eager")
    for m in matches:
        assert str(compiled(X, m)) == str(given(X, m))


def test_given_patterns():
    def fn(x, p):
        return x + (1 if p.match("abc") else 2), p.findall("abcabc")

    compiled = framejit.optimize(fn, backend="eager")
    for p in (re.compile("a"), re.compile("z"), re.compile("A", re.I), re.compile("A")):
        assert str(compiled(X, p)) == str(fn(X, p))


def test_finditer():
    def fn(x, text):
        found = PAIR.finditer(text)
        first = next(found)
        for m in PAIR.finditer(text):
            if m.group("value") is None:
                return x + 1, first.group(), [m.group() for m in found]
        return x + 2, first.group(), [m.group() for m in found], type(found)

    check(fn, X, "a=1 b=2", changed=[(X, "a=1 b=")])
    left = framejit.optimize(lambda x: (x + 1, PAIR.finditer("a=1 b=2 c=3")), backend="eager")(X)[1]
    assert [m.group() for m in left] == ["a=1", "b=2", "c=3"]


def test_substitution_by_a_function_is_not_run_while_capturing():
    def fn(x, text):
        calls = []

        def upper(m):
            calls.append(m.group())
            return m.group("key").upper()

        return x + 1, PAIR.sub(upper, text), calls, PAIR.sub("q", text), re.sub("a", "b", text)

    check(fn, X, "a=1 b=2")


def test_groups_that_are_missing():
    def fn(x):
        try:
            return PAIR.match("a=1").group("nope")
        except IndexError as e:
            return x + 1, str(e)

    check(fn, X)


def uses_module_functions(x, text):
    match = re.match(r"(\w+)-(\d+)[abc]{2,3}(?:x|y)*", text)
    return (
        x * int(match.group(2)), re.sub("a+", "b", text), re.split(r"\s*-\s*", text),
        re.findall(rb"[0-9]+", text.encode()), re.compile("q|r", re.I).flags,
    )


def test_patterns_are_compiled_while_capturing():
    re.purge()
    pair = check(uses_module_functions, torch.ones(2), "foo-3aa", graphs=1, breaks=0)
    re.compile("something else that fills the cache")
    pair.call(torch.ones(2), "foo-3aa", captures=False)
    re.purge()
    pair.call(torch.ones(2), "foo-3aa", captures=False)
    pair.call(torch.ones(2), "foo-4bb")


@pytest.mark.parametrize("pattern", ["(", "a**", r"\q", "(?P<n>a)(?P<n>b)", "[", 5, None])
def test_patterns_that_are_wrong(pattern):
    def program(x):
        y = x + 1
        try:
            return y, re.search(pattern, "abc")
        except (re.error, TypeError) as e:
            return y, type(e), str(e), getattr(e, "pos", None)

    Pair(lambda: program).call(torch.ones(2))


def test_patterns_that_warn():
    def program(x):
        return x + 1, re.match("[[a-z]", "abc") is None

    for fn in (program, framejit.optimize(program, backend="eager")):
        re.purge()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fn(torch.ones(2))
        assert [w.category for w in told if "nested set" in str(w.message)] == [FutureWarning]


def test_the_same_pattern_is_one_object():
    def program(x):
        pattern = re.compile("a(b)c")
        return x + 1, pattern is re.compile("a(b)c"), pattern

    check(program, torch.ones(2))


TEMPLATE = r"\g< 1 >"


def test_templates_that_warn():
    def program(x):
        return x + 1, re.sub("(?P<a1>x)", TEMPLATE, "y")

    stories = []
    for fn in (program, framejit.optimize(program, backend="eager")):
        re.purge()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                fn(torch.ones(2))
            except re.error as e:
                told.append(e)
        stories.append(
            [(type(w), str(w)) if isinstance(w, re.error) else (w.category, w.filename, w.lineno) for w in told]
        )
    assert stories[0] == stories[1] and stories[0]


def test_a_function_for_the_replacement():
    def program(x, text, most):
        told = [
            re.sub("[a-z]+", lambda m: m.group().title(), text), re.subn("[0-9]", lambda m: None, text, count=most),
            re.sub("b*", lambda m: f"<{m.group()}>", text), re.sub("", lambda m: ".", text, count=most),
            re.compile("(?P<k>b)").sub(lambda m: m["k"] * 2, text, count=-1), re.sub("nothing", str.upper, text),
        ]
        for replaced in (lambda m: 1, lambda m: 1 // 0):
            try:
                told.append(re.sub("a", replaced, text))
            except (TypeError, ZeroDivisionError) as e:
                told.append(str(e))
        seen = []
        re.sub(".", seen.append, text)
        return x + len(seen), told, [m.span() for m in seen]

    for text in ("ab-12 abbc", "", "bb"):
        for most in (0, 1):
            check(program, torch.ones(2), text, most, breaks=0)
