"""Guard trees that remember a short proof: objects may die, and others come to lie where they lay."""

from __future__ import annotations

import gc
import weakref

from memo_support import A, C, Part, agree, attribute_tree, key, padding, warm

from native_support import arg, node, tree


def test_an_address_used_again_does_not_pass_for_the_old_object():
    """Objects made and freed in turn get the same address; only what they hold tells them apart."""
    obj = Part(cell=[Part(x=1)])
    guards = node(A.A_INDEX, 0, (C.C_TYPE, Part), children=[node(A.A_DICT, None, children=[key("x", (C.C_EQUALS, 1))])])
    built = warm(attribute_tree(key("cell", (C.C_TYPE, list), children=[guards]), checks=[(C.C_TYPE, Part)]), (obj,))
    for i in range(200):
        obj.cell[0] = None
        obj.cell[0] = Part(x=i % 2)
        assert (built.explain((obj,), None) is None) is built.check((obj,), None) is (i % 2 == 1)
    numbers = [10**20]
    built = warm(
        tree(arg(0, (C.C_TYPE, list), children=[node(A.A_INDEX, 0, (C.C_EQUALS, int("1" + "0" * 20)))]), padding()),
        (numbers,),
    )
    for i in range(200):
        numbers[0] = None
        numbers[0] = 10**20 + i % 2
        assert built.check((numbers,), None) is (i % 2 == 0)


def test_an_argument_that_died_and_came_back():
    built = attribute_tree(key("x", (C.C_EQUALS, 1)), checks=[(C.C_TYPE, Part)])
    for i in range(100):
        obj = Part(x=i % 2)
        assert built.check((obj,), None) is (i % 2 == 1)
        assert built.check((obj,), None) is (i % 2 == 1)
        del obj


def test_an_object_compared_by_identity_dies():
    obj, target = Part(), Part()
    obj.child = target
    built = warm(attribute_tree(key("child", (C.C_ID, target)), checks=[(C.C_TYPE, Part)]), (obj,))
    del target
    obj.child = None
    gc.collect()
    for _ in range(50):
        obj.child = None
        obj.child = Part()
        assert not built.check((obj,), None)
    assert built.expired


def test_nothing_is_kept_alive():
    obj = Part(child=Part(x=1), items=[Part()])
    below = [node(A.A_DICT, None, children=[key("x", (C.C_EQUALS, 1))])]
    built = warm(
        attribute_tree(
            key("child", (C.C_TYPE, Part), children=below), key("items", (C.C_LEN, 1)), checks=[(C.C_TYPE, Part)]
        ),
        (obj,),
    )
    refs = [weakref.ref(o) for o in (obj, obj.child, obj.items[0])]
    del obj
    assert [r() for r in refs] == [None] * 3
    assert not built.check((Part(),), None) and agree(built, (Part(child=Part(x=1), items=[0]),))
