"""String methods, f-strings and formatting."""
import pytest
import torch

import framejit

from support import ANY, Pair, check

X = torch.tensor([1.0, 2.0])


def test_methods():
    def fn(x, s):
        words = s.split()
        return (
            x + len(words),
            s.upper(),
            s.title(),
            "-".join(words),
            s.replace("l", "L"),
            s.strip("h"),
            s.startswith(("he", "x")),
            s.endswith("d"),
            s.find("w"),
            s.partition(" "),
            s.zfill(15),
            s.center(15, "*"),
            s.encode(),
            s[1:4],
            s[::-1],
            s.isalpha(),
            s.removeprefix("he"),
            s.rsplit("o", 1),
        )

    check(fn, X, "hello world")


def test_f_strings():
    def fn(x, n, s):
        return x + 1, f"{n:>5}|{n:03d}|{s!r:>6}|{s!s}|{n=}|{n / 3:.2f}|{'nested ' + f'{s}'}|{{}}|{n:{n}}"

    check(fn, X, 7, "ab")


def test_f_string_of_shape_dtype_and_device():
    check(lambda x: (x + 1, f"{x.shape} {x.dtype} {x.device} {x.ndim} {tuple(x.shape)}"), X)


def test_percent_and_format():
    def fn(x, n):
        by_percent = "%d %s %5.1f%%" % (n, "s", 2.25), "%(a)s" % {"a": 1}  # noqa: UP031
        return x + 1, *by_percent, "{0} {k} {0!r}".format(n, k="v"), format(n, "x")

    check(fn, X, 255)


def test_string_chooses_a_branch():
    def fn(x, activation):
        if activation.lower() == "relu":
            return x.relu()
        return getattr(torch, activation)(x)

    check(fn, X, "ReLU", changed=[(X, "sigmoid")])


def test_conversions():
    check(
        lambda x: (
            x + int("12"), float("1.5"), str(1), chr(97), ord("a"), repr("a"), hex(255), bool(""), ascii("é"), bin(5),
        ),
        X,
    )


def test_comparison_iteration_and_multiplication():
    check(lambda x, s: (x + 1, s < "b", s * 3, [c for c in s], "b" in s, sorted(s), max(s), s + "c"), X, "ab")


def test_bytes():
    check(lambda x, b: (x + b[0], b.hex(), b + b"z", b.decode(), list(b)), X, b"ab")


def test_int_and_float_methods():
    check(
        lambda x, n, f: (
            x + n, n.bit_length(), f.is_integer(), (2.5).hex(), n.to_bytes(2, "big"), f.as_integer_ratio(),
            complex(n, 1).imag,
        ),
        X,
        5,
        2.0,
    )


@pytest.mark.parametrize("text", ["abc", "", "zeta"])
def test_dispatch_by_name(text):
    check(lambda x, t: {"abc": x + 1, "": x + 2}.get(t, x + 3), X, text)


def test_formatting_a_tensor():
    check(lambda x: (f"{(x + 1).sum():.1f}", x * 2), X)
    check(lambda x: (f"{x + 1}", x * 2), X, graphs=range(1, 3), breaks=range(1, 3))


def test_methods_that_subclasses_inherit():
    class Version(str):
        def __eq__(self, other):
            return False

        __hash__ = str.__hash__

        def upper(self):
            return "own"

    class Count(int):
        pass

    def fn(x, version, count):
        parts = version.split(".")
        return (
            x * int(parts[0]) + count.bit_length(), version.upper(), version.replace(".", "-"),
            version.startswith("2"), type(version.strip()), parts,
        )

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for version, count in (
        (Version("2.1"), Count(5)), (Version("2.1"), Count(9)), (Version("3.0.1"), Count(5)),
        (Version("2.1"), Count(5)),
    ):
        assert str(compiled(x, version, count)) == str(fn(x, version, count))
    major = framejit.optimize(lambda y: y * int(torch.__version__.split(".")[0]), backend="eager", fullgraph=True)
    assert major(x).tolist() == [int(torch.__version__[0])] * 2


@pytest.mark.parametrize("text", ["%s", "%r and", b"%a"])
def test_the_text_of_one_tensor_by_percent(text):
    def fn(x):
        y = x * 2
        return text % y.sum(), text % x

    pair = Pair(lambda: fn)
    for x in (X, X, X.to(torch.int64)):
        pair.call(x)


class Text(str):
    pass


class Octets(bytes):
    pass


def test_methods_that_give_a_text_back_as_it_is():
    def fn(x, text, octets):
        found = [
            text.__mod__(()), text.format(), text.format(a=1), text.strip(), text.replace("z", "y"), text.lower(),
            text[:],
            text.partition("z")[0], text.rpartition("z")[2], text.rsplit("z")[0], text.removeprefix("z"), text.zfill(1),
            octets.__mod__(()), octets.strip(), octets.partition(b"z")[0],
        ]
        return x + 1, found, [type(one) for one in found], [one is text for one in found]

    pair = Pair(lambda: fn)
    for text in (Text("abc"), Text("abc"), Text("")):
        pair.call(X, text, Octets(b"abc"))


class Shown:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Shown<{self.value}>"

    def __str__(self):
        return f"shown {self.value}"

    def __format__(self, spec):
        return f"{spec}|{self.value}"


class Plain:
    def __repr__(self):
        return "Plain"


TEMPLATES = ("{} {!r} {!s}", "{0:zz}", "{:x} {}", "{0.value}", "{:d}", "{0[0]}")
BY_PERCENT = ("%s %r %a", "%-12s|%s%s", "%s", "abc", "%d%s%s")


def test_objects_in_text_that_is_put_together():
    def fn(x, n):
        one, other = Shown(n), Shown([Plain(), n])
        return x + n, [
            repr([one, other]), str((one,)), f"{one}", f"{one:x}", f"{Plain()}", repr({"a": one, "b": [Plain()]}),
            ascii([one]), f"{[one]!s:>20}", format(one, "w"), f"{Plain()!r:>9}", *[t.format(one, other, one) for t in
            TEMPLATES[:3]], *[t % (one, other, one) for t in BY_PERCENT[:2]],
        ]

    for n in (1, 2):
        check(fn, X, n)


def test_text_of_what_holds_itself():
    def fn(x):
        items, table = [1], {}
        items.append(items)
        table["self"] = [table]
        shown = Shown([])
        shown.value.append(shown.value)
        return x + 1, repr(items), f"{table}", BY_PERCENT[2] % (items,), str(shown)

    check(fn, X, breaks=ANY)


@pytest.mark.parametrize("template", [*TEMPLATES, *BY_PERCENT])
@pytest.mark.parametrize("of_class", [Plain, lambda: Shown(1)], ids=["plain", "shown"])
def test_what_text_of_objects_gives_or_raises(template, of_class):
    def fn(x):
        one = of_class()
        try:
            filled = template % (one, one, one) if "%" in template else template.format(one, 1, one)
            return x + 1, filled, template % one
        except (TypeError, AttributeError) as e:
            return x - 1, type(e), str(e)

    check(fn, X, graphs=None, breaks=None)


def test_translation():
    table = str.maketrans("abc", "xyz", "d")

    def world():
        own = {97: "b"}

        def fn(x, n):
            said = "aab".translate(own)
            own[98] = str(n % 2)
            made = str.maketrans({"l": "L", "h": None}), str.maketrans("ab", "cd"), str.maketrans("x", "y", "z")
            return x + 1, said, "abcd".translate(table), ["hello xyz".translate(each) for each in made], made

        return fn, own

    pair = Pair(world)
    for n in range(4):
        pair.call(X, n)
    pair.expect(breaks=0)


def test_translation_that_raises():
    class Table:
        def __getitem__(self, place):
            raise LookupError

    def fn(x, n):
        said = ["abc".translate(Table())]
        for wrong in (lambda: "a".translate({97: 1.5}), lambda: str.maketrans("ab", "c"), lambda: str.maketrans(3)):
            try:
                wrong()
            except (TypeError, ValueError) as e:
                said.append((type(e), str(e)))
        return x + 1, said

    check(fn, X, 1, graphs=None, breaks=None)
