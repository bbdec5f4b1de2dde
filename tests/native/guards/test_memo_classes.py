"""Guard trees that remember a short proof: changes of classes, functions, globals and closures are noticed."""

from __future__ import annotations

from memo_support import A, C, agree, padding, warm

from native_support import node, tree


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    pass


def test_the_attributes_of_a_class():
    class Base:
        def forward(self):
            return 1

    class Derived(Base):
        pass

    original = Base.forward
    lookup = node(A.A_TYPE_LOOKUP, "forward", (C.C_ID, original))
    built = warm(tree(node(A.A_CONST, Derived, (C.C_NO_ATTR, "extra"), children=[lookup]), padding()), ())
    Base.extra = 1
    assert not agree(built, ())
    del Base.extra
    assert agree(built, ())
    Derived.forward = lambda self: 2
    assert not agree(built, ())
    del Derived.forward
    assert agree(built, ())
    Base.forward = lambda self: 3
    assert not agree(built, ())
    Base.forward = original
    assert agree(built, ())
    Derived.__bases__ = (type("Empty", (), {"extra": 1}),)
    assert not agree(built, ())


def test_what_a_class_lacks_and_the_order_of_its_bases():
    class Base:
        pass

    class Derived(Base):
        pass

    order = node(A.A_ATTR, "__mro__", (C.C_LEN, 3), children=[node(A.A_INDEX, 1, (C.C_ID, Base))])
    built = warm(tree(node(A.A_CONST, Derived, (C.C_LACKS, "extra"), children=[order]), padding()), ())
    Base.extra = 1
    assert not agree(built, ())
    del Base.extra
    assert agree(built, ())
    Derived.extra = 1
    assert not agree(built, ())
    del Derived.extra
    assert agree(built, ())
    Derived.__bases__ = (type("Base", (), {}),)
    assert not agree(built, ())


def test_the_metaclass_of_a_class():
    built = warm(tree(node(A.A_CONST, WithMeta, (C.C_NO_ATTR, "extra")), padding()), ())
    Meta.extra = 1
    assert not agree(built, ())
    del Meta.extra
    assert agree(built, ())


def test_parts_of_functions():
    def make(y):
        def inner(a, b=2):
            return a + y

        return inner

    fn = make(1)
    contents = node(A.A_INDEX, 0, children=[node(A.A_CELL, None, (C.C_EQUALS, 1))])
    children = [
        node(A.A_ATTR, "__code__", (C.C_ID, fn.__code__), children=[node(A.A_ATTR, "co_varnames", (C.C_LEN, 2))]),
        node(A.A_ATTR, "__defaults__", (C.C_LEN, 1), children=[node(A.A_INDEX, 0, (C.C_EQUALS, 2))]),
        node(A.A_ATTR, "__closure__", children=[contents]),
    ]
    built = warm(tree(node(A.A_CONST, fn, children=children), padding()), ())
    fn.__closure__[0].cell_contents = 7
    assert not agree(built, ())
    fn.__closure__[0].cell_contents = 1
    assert agree(built, ())
    fn.__defaults__ = (3,)
    assert not agree(built, ())
    fn.__defaults__ = (2,)
    assert agree(built, ())
    code = fn.__code__
    fn.__code__ = code.replace(co_name="other")
    assert not agree(built, ())
    fn.__code__ = code
    assert agree(built, ())
    fn.__defaults__ = None
    assert not agree(built, ())


def test_names_of_functions_and_classes():
    def fn():
        pass

    class Named:
        pass

    class Nameless(metaclass=Meta):
        pass

    objects = fn, Named, Nameless
    names = [(kind, attr) for kind in objects for attr in ("__name__", "__qualname__")]
    nodes = [
        node(A.A_CONST, kind, children=[node(A.A_ATTR, attr, (C.C_EQUALS, getattr(kind, attr)))])
        for kind, attr in names
    ]
    built = warm(tree(*nodes, padding()), ())
    for kind, attr in names:
        before = getattr(kind, attr)
        setattr(kind, attr, "other")
        assert not agree(built, ())
        setattr(kind, attr, "".join(before))  # equal, and mostly another object
        assert agree(built, ())
        setattr(kind, attr, before)
        assert agree(built, ())
    Meta.__name__ = "Other"
    assert agree(built, ())
    Meta.__name__ = "Meta"


def test_globals_and_closures_of_the_frame():
    namespace = {"config": 1, "other": 0, "__builtins__": __builtins__}
    exec(
        "def outer():\n    free = 1\n    def fn():\n        return free, config, len\n    return fn\nfn = outer()",
        namespace,
    )
    fn = namespace["fn"]
    roots = [
        node(A.A_GLOBAL, "config", (C.C_EQUALS, 1)),
        node(A.A_BUILTIN, "len", (C.C_ID, len)),
        node(A.A_CLOSURE_CELL, 0, children=[node(A.A_CELL, None, (C.C_EQUALS, 1))]),
        node(A.A_CONST, namespace, (C.C_NO_KEY, "len")),
    ]
    built = warm(tree(*roots, padding()), (), fn)
    fn.__closure__[0].cell_contents = 2
    assert not agree(built, (), fn)
    fn.__closure__[0].cell_contents = 1
    assert agree(built, (), fn)
    namespace["config"] = 2
    assert not agree(built, (), fn)
    namespace["config"] = 1
    assert agree(built, (), fn)
    namespace["len"] = len
    assert not agree(built, (), fn)
    del namespace["len"], namespace["config"]
    assert not agree(built, (), fn)
