"""Guard trees that remember a short proof: what changes and does not matter does not stop it from serving."""

from __future__ import annotations

import sys

import pytest
from memo_support import A, C, Part, agree, attribute_tree, key, padding, served, warm

from native_support import arg, node, tree


def test_a_busy_namespace_does_not_stop_the_proof():
    """A script's loop variables are globals: the namespace changes at each call, the guarded value does not."""
    namespace = {"__builtins__": __builtins__}
    exec("config, i = 1, 0\ndef fn():\n    return config", namespace)
    fn = namespace["fn"]
    built = tree(node(A.A_GLOBAL, "config", (C.C_EQUALS, 1)), padding())
    for i in range(200):
        namespace["i"] = i
        assert built.check((), fn)
    assert served(built) > 100
    namespace["config"] = 2
    assert not agree(built, (), fn)
    namespace["config"] = 1
    assert agree(built, (), fn)


def test_an_instance_that_counts_its_calls():
    obj = Part(scale=3, calls=0)
    built = attribute_tree(key("scale", (C.C_EQUALS, 3)), checks=[(C.C_TYPE, Part)])
    for _ in range(200):
        obj.calls += 1
        assert built.check((obj,), None)
    assert served(built) > 100
    obj.scale = 4
    assert not agree(built, (obj,))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="dictionaries do not share the values of instances")
def test_instances_that_keep_their_last_results():
    """More than a tree remembers to be restless: an attribute of each is written at each call, another is guarded."""

    class Layer:
        def __init__(self):
            self.scale, self.last = 3, None

    parts = [Layer() for _ in range(40)]
    scale = node(A.A_DICT, None, children=[key("scale", (C.C_EQUALS, 3))])
    built = tree(arg(0, children=[node(A.A_INDEX, i, (C.C_TYPE, Layer), children=[scale]) for i in range(40)]))
    for i in range(1000):
        for part in parts:
            part.last = i
        assert built.check((parts,), None)
    assert served(built) > 500
    parts[-1].scale = 4
    assert not agree(built, (parts,))


def test_attributes_written_by_specialised_instructions():
    """An assignment that was specialised for instances without a dictionary is noticed in one that has one."""

    class Layer:
        def __init__(self):
            self.scale = 3

    def write(part, scale):
        part.scale = scale

    def remove(part):
        del part.scale

    for part in [Layer() for _ in range(100)]:
        write(part, 1)
        remove(part)
        write(part, 2)
    obj = Layer()
    built = warm(attribute_tree(key("scale", (C.C_EQUALS, 3)), checks=[(C.C_TYPE, Layer)]), (obj,))
    write(obj, 4)
    assert not agree(built, (obj,))
    write(obj, 3)
    assert agree(built, (obj,))
    remove(obj)
    assert not agree(built, (obj,))


def test_instances_take_turns():
    objs = [Part(x=i % 2) for i in range(6)]
    built = attribute_tree(key("x", (C.C_EQUALS, 1)), checks=[(C.C_TYPE, Part)])
    for _ in range(10):
        for obj in objs:
            assert built.check((obj,), None) is (obj.x == 1)
    assert len(built.memos) == 3 and min(built.memos) >= 5
    many = [Part(x=1) for _ in range(50)]
    for _ in range(3):
        assert all(built.check((obj,), None) for obj in many)
    assert len(built.memos) <= 8
    many[7].x = 0
    assert not agree(built, (many[7],))
