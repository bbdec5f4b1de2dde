"""What CPython 3.14 and 3.15 added to the language. The sources are strings, which other versions need not parse."""
import sys
import types
import warnings

import pytest
import torch

import framejit

from support import check, world

X = torch.arange(6.0)
since_314 = pytest.mark.skipif(sys.version_info < (3, 14), reason="the syntax is new in 3.14")
since_315 = pytest.mark.skipif(sys.version_info < (3, 15), reason="the syntax is new in 3.15")


def module_of(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # for a return in a finally block
        return types.SimpleNamespace(**world(source))


def fn_of(source):
    return module_of(source).fn


# ---- template strings (PEP 750) -----------------------------------------------------------------------

TEMPLATES = {
    "parts": """
        def fn(x):
            n = 3
            template = t"a{n}b{x.sum()!r:>{n}}"
            value = template.interpolations[1].value
            fields = [(i.expression, i.conversion, i.format_spec) for i in template.interpolations]
            return value * n, template.strings, fields, template.values[0]
    """,
    "iteration": """
        def fn(x):
            total, seen = x, []
            for part in t"{1}{x} and {2:.2f}":
                if isinstance(part, str):
                    seen.append(part)
                else:
                    total = total + part.value
                    seen.append(part.expression)
            return total, seen
    """,
    "concatenation": """
        def fn(x):
            made = t"a{x}" + t"b{2}c"
            return made.strings, made.values[0] * made.values[1]
    """,
    "empty": """
        def fn(x):
            made = t""
            return x + len(made.strings), made.strings, made.interpolations, list(made), made.values
    """,
    "matching": """
        def fn(x):
            from string.templatelib import Interpolation
            found = []
            for part in t"{x + 1!s} {2:>{3}}":
                match part:
                    case Interpolation(value, "x + 1", "s", ""):
                        found.append(value * 2)
                    case Interpolation(value, expression, None, spec):
                        found.append((value, expression, spec))
                    case str() as text:
                        found.append(text)
            return found
    """,
    "in a nested function": """
        def fn(x):
            def html(template):
                return [p if isinstance(p, str) else p.value for p in template]
            return html(t"<{x * 2}>{t'{x}'.values[0] + 1}")
    """,
    "identity": """
        def fn(x):
            template = t"{x}{x}"
            one, other = template.interpolations
            same = one is template.interpolations[0], one is other, one.value is other.value, template is template
            return x + 1, *same, bool(template)
    """,
}


@since_314
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name):
    check(fn_of(TEMPLATES[name]), X, breaks=0)


@since_314
def test_a_template_leaves_the_graph_and_comes_back():
    module = module_of("""
        def described(template):
            parts = [p if isinstance(p, str) else (p.expression, p.conversion, p.format_spec) for p in template]
            return parts, template.strings

        def make(x, n):
            return t"n is {n}, x is {x * 2!r:.3f}!"

        def fn(x, n):
            template = make(x, n)
            y = x + 1
            if y.sum() > 0:
                y = y * template.interpolations[0].value
            return y, described(template), template.values[1] + y
    """)
    check(module.fn, X, 3, breaks=None, graphs=None)

    def values(x, n):
        made = module.make(x, n)
        return (
            type(made).__name__,
            made.strings,
            [(i.value, i.expression, i.conversion, i.format_spec) for i in made.interpolations],
        )

    check(values, X, 3, breaks=0)
    import framejit

    real = framejit.optimize(module.make, backend="eager")(X, 4)
    assert type(real) is type(module.make(X, 4)) and module.described(real) == module.described(module.make(X, 4))
    assert torch.equal(real.values[1], X * 2)


@since_314
def test_a_template_of_outside():
    module = module_of("""
        def fn(x, template):
            scaled = x * template.values[0] + template.interpolations[0].value
            return scaled, template.strings, [type(p).__name__ for p in template]

        def make(n):
            return t"a{n}b"
    """)
    check(module.fn, X, module.make(2), changed=[(X, module.make(3))], breaks=None, graphs=None)


@since_314
def test_what_a_template_refuses():
    fn = fn_of("""
        def fn(x):
            try:
                return t"a{x}" + "b"
            except TypeError as e:
                return x + 1, str(e)
    """)
    check(fn, X, breaks=None, graphs=None)
    fn = fn_of("""
        def fn(x):
            y = x + 1
            t"{y:>{missing}}"
    """)
    check(fn, X, raises=NameError, breaks=None, graphs=None)


# ---- except without parentheses (PEP 758), return in finally (PEP 765) ---------------------------------

EXCEPTIONS = {
    "several without parentheses": """
        def fn(x):
            try:
                y = x + 1
                {}["a"]
            except ValueError, KeyError:
                y = y * 2
            return y
    """,
    "a break inside": """
        def fn(x):
            try:
                y = x + 1
                if y.sum() > 0:
                    raise KeyError(y.sum().item())
            except ValueError, KeyError:
                y = y * 2
            return y
    """,
    "return in finally": """
        def fn(x):
            try:
                y = x + 1
                raise ValueError
            finally:
                return y * 2
    """,
    "break in finally": """
        def fn(x):
            for i in range(3):
                try:
                    x = x + i
                    [][i]
                finally:
                    if i == 1:
                        break
                    continue
            return x
    """,
    "return in finally behind a break": """
        def fn(x):
            try:
                y = x + 1
                if y.sum() > 0:
                    raise ValueError(y.sum().item())
                return x
            finally:
                return y * 2
    """,
}


@since_314
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions(name):
    check(fn_of(EXCEPTIONS[name]), X, breaks=None, graphs=None)


# ---- annotations evaluated when asked for (PEP 649) ----------------------------------------------------


@since_314
def test_annotations_that_can_not_be_evaluated():
    fn = fn_of("""
        def fn(x: Nowhere) -> Missing:
            def inner(a: Nowhere, b: Missing = 2) -> Neither:
                local: Nowhere = a
                return local * b
            return inner(x) + 1
    """)
    check(fn, X, breaks=0)


@since_314
def test_annotations_of_a_function_of_outside_that_can_not_be_evaluated():
    f = fn_of("def fn(x: range[1]): pass")

    def fn(x):
        y = x + 1
        try:
            return f.__annotations__
        except TypeError as e:
            return y, str(e)

    check(fn, X, breaks=None, graphs=None)


@since_314
def test_functions_with_annotations_leave_the_graph():
    module = module_of("""
        def make(x, kind):
            y = x * 2
            def inner(a: kind, b: list[kind] = 1) -> y:
                return a * b + y
            return y, inner

        def fn(x):
            y, inner = make(x, int)
            return y, inner(x), inner.__annotate__ is None

        def annotated(x, kind):
            y, inner = make(x, kind)
            return y, sorted(inner.__annotations__), inner.__annotations__["a"], inner.__annotations__["return"] is y
    """)
    check(module.fn, X, breaks=0)
    check(module.annotated, X, int, breaks=None, graphs=None)
    import framejit

    y, inner = framejit.optimize(module.make, backend="eager")(X, int)
    assert (
        inner.__annotations__["a"] is int
        and inner.__annotations__["b"] == list[int]
        and inner.__annotations__["return"] is y
    )
    assert torch.equal(inner(X), X + y)


@since_314
def test_annotations_of_functions_of_outside():
    module = module_of("""
        def annotated(a: int, b: "str") -> torch.Tensor: ...

        def fn(x):
            same = annotated.__annotations__ is annotated.__annotations__
            return x + len(annotated.__annotations__), annotated.__annotations__["a"], same
    """)
    check(module.fn, X, breaks=None, graphs=None)


@since_314
def test_wraps_takes_the_annotations_along():
    fn = fn_of("""
        import functools

        def outer(a: int) -> str: "text"

        def fn(x):
            @functools.wraps(outer)
            def inner(*args):
                return args[0] + 1
            return inner(x), inner.__name__, inner.__doc__
    """)
    check(fn, X, breaks=None, graphs=None)


# ---- 3.15 -----------------------------------------------------------------------------------------------

UNPACKING = {
    "a list": "def fn(x):\n    return x + 1, [*a for a in ([1, 2], (x,), 'ab')]",
    "a set": "def fn(x):\n    return x + 1, {*a for a in ([1, 2], (2, 3))}",
    "a dict": "def fn(x):\n    return x + 1, {**d for d in ({'a': x}, {'b': 2, 'a': 3})}",
    "a generator": "def fn(x):\n    return x + sum((*a for a in ([1, 2], (3,))))",
    "a break inside": "def fn(x):\n    return x, [*a for a in ([1, 2], [x.sum().item()])]",
}


@since_315
@pytest.mark.parametrize("name", UNPACKING)
def test_unpacking_in_comprehensions(name):
    check(fn_of(UNPACKING[name]), X, breaks=None, graphs=None)


@since_315
def test_lazy_imports():
    module = module_of("""
        lazy import xml.dom.minidom as first
        lazy from xml.sax.saxutils import escape

        def fn(x):
            return x + first.Node.ELEMENT_NODE, escape("<")
    """)
    check(module.fn, X, breaks=None, graphs=None)
    check(module.fn, X, breaks=None, graphs=None)


@since_315
@pytest.mark.parametrize(
    "use", ["escape(text)", "saxutils.escape(text)", "escape(text) + escape(text)", "(lambda t: escape(t))(text)"]
)
@pytest.mark.parametrize("place", ["inlined", "attribute"])
def test_lazy_imports_of_other_modules(use, place):
    def calls(run):
        sys.modules.pop("xml.sax.saxutils", None)
        library = types.ModuleType("library")
        imports = "lazy from xml.sax.saxutils import escape\nlazy import xml.sax.saxutils as saxutils\n"
        exec(imports + "def use(text):\n    return " + use, vars(library))

        def fn(x):
            if place == "inlined":
                return x + 1, library.use("<"), library.use(">")
            return x + 1, library.escape("<"), library.saxutils.escape(">")

        fn = run(fn)
        return [(str(fn(X)), "xml.sax.saxutils" in sys.modules) for _ in range(3)]

    assert calls(lambda fn: framejit.optimize(fn, backend="eager")) == calls(lambda fn: fn)


# ---- both, and older: what their bytecode does otherwise ------------------------------------------------


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self.log

    def __exit__(self, kind, error, traceback):
        self.log.append(kind and kind.__name__)
        return self.swallow


def test_with_blocks():
    def fn(x):
        log = []
        with Manager(log) as held, Manager(log, True):
            x = x + len(held)
            if x.sum() > 0:
                x = x * 2
            raise ValueError
        for _ in range(2):
            with Manager(log):
                if len(log) > 6:
                    break
                continue
        return x, log

    check(fn, X, breaks=None, graphs=None)


def test_with_blocks_of_managers_written_in_c():
    import threading

    lock = threading.Lock()

    def fn(x):
        y = x + 1
        with lock:
            y = y * 2
            held = lock.locked()
        try:
            with lock:
                raise KeyError(y.shape[0])
        except KeyError as e:
            return y, held, lock.locked(), e.args

    check(fn, X, breaks=None, graphs=None)


class NoExit:
    __enter__ = None


@pytest.mark.parametrize("manager", [3, NoExit(), object()])
def test_with_blocks_of_what_is_no_manager(manager):
    def fn(x):
        y = x + 1
        with manager:
            y = y * 2
        return y

    check(fn, X, raises=(TypeError, AttributeError), breaks=None, graphs=None)


def test_loops_that_break_the_graph():
    def fn(x, items, more):
        seen = []
        for item in items:
            for other in more:
                x = x + item
                if x.sum() > other:
                    seen.append((item, other))
                    continue
                if len(seen) > 3:
                    break
            else:
                x = x * 2
        for key, value in {"a": x, "b": 1}.items():
            seen.append((key, float(torch.as_tensor(value).sum())))
        return x, seen

    check(fn, X, [1, 2, 3], (0, 50), breaks=None, graphs=None)
    check(fn, X, [], (0, 50), breaks=None, graphs=None)
    check(fn, X, iter([1, 2]), range(3), breaks=None, graphs=None)


def test_what_can_not_be_iterated():
    def fn(x, n):
        y = x + 1
        for _ in n:
            y = y * 2
        return y

    check(fn, X, 3, raises=TypeError, breaks=None, graphs=None)

    def inside(x, n):
        y = x + 1
        return sum(i for i in n), y

    check(inside, X, 3, raises=TypeError, breaks=None, graphs=None)


class Iterable:
    def __iter__(self):
        print("iter")
        yield from (1, 2, 3)


def test_iterating_over_a_programs_own_class():
    def fn(x, own):
        for i in own:
            x = x * i
            if x.sum() < 0:
                return x
        return x, [i for i in own], list(i + 1 for i in own)

    check(fn, X, Iterable(), breaks=None, graphs=None)


def test_generators_that_hand_on():
    def inner(x):
        got = yield x
        yield x * got
        return 7

    def outer(x):
        last = yield from inner(x)
        yield from (x + last, 1)
        yield from [x]

    def fn(x):
        g = outer(x)
        first = next(g)
        second = g.send(3)
        return first, second, list(g)

    check(fn, X, breaks=0)

    def thrown(x):
        def handler():
            try:
                yield from inner(x)
            except ValueError:
                yield x - 1

        g = handler()
        next(g)
        return g.throw(ValueError("a")), list(g)

    check(thrown, X, breaks=0)


def test_calls_with_unpacked_arguments():
    def callee(*args, **kwargs):
        return args, kwargs

    def fn(x):
        a, k = [x, 2], {"c": x + 1}
        first = callee(*a), callee(*a, **k), callee(1, *a, d=3, **k), callee(**k)
        return (
            first, dict(*[[("a", x)]], **k), max(*a[1:], 3), torch.add(*[x, 1], **{"alpha": 2}),
            print(*[1, 2], **{"sep": "-"}), x.sum().item(),
        )

    check(fn, X, breaks=None, graphs=None)


def test_builtins_called_over_generators():
    """From 3.14 on the compiler writes all, any and tuple over a generator as a loop."""

    def fn(x, items):
        return (
            all(i > 0 for i in items), any(i > 2 for i in items), tuple(x + i for i in items),
            list(x * i for i in items), set(i % 2 for i in items),
        )

    check(fn, X, [1, 2, 3], breaks=0)

    def with_break(x, items):
        return (
            all((x + i).sum() > 0 for i in items),
            any((x * i).sum() > 2 for i in items),
            tuple((x + i).sum().item() for i in items),
        )

    check(with_break, X, [1, 2, 3], breaks=None, graphs=None, ops=None)


def test_constants():
    def fn(x, y):
        assert y > 0
        return (
            x[1:3] + 1, x[..., 1:-1], x[:, None], -1, None, True, "", 255, 256, (1, (2, -3)), 1 < 2 < y, {1, 2},
            [1, 2, 3], {"a": 1, "b": x},
        )

    check(fn, X, 3, breaks=0)
    check(fn, X, -1, raises=AssertionError, breaks=None, graphs=None)
