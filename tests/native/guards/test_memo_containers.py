"""Guard trees that remember a short proof: changes of attributes, dicts, lists and their keys are noticed."""

from __future__ import annotations

import collections
import types

import pytest
from memo_support import A, C, Part, Slotted, agree, attribute_tree, key, padding, warm

from native_support import arg, node, tree


def test_an_attribute_is_replaced_and_put_back():
    obj, first, second = Part(), Part(), Part()
    obj.child = first
    built = warm(attribute_tree(key("child", (C.C_ID, first)), checks=[(C.C_TYPE, Part)]), (obj,))
    obj.child = second
    assert not agree(built, (obj,))
    obj.child = first
    assert agree(built, (obj,))
    del obj.child
    assert not agree(built, (obj,))


def test_a_deep_flag_changes():
    obj = Part(a=Part(b=Part(training=True)))
    below = [node(A.A_DICT, None, children=[key("training", (C.C_ID, True))])]
    below = [node(A.A_DICT, None, children=[key("b", (C.C_TYPE, Part), children=below)])]
    built = warm(attribute_tree(key("a", (C.C_TYPE, Part), children=below), checks=[(C.C_TYPE, Part)]), (obj,))
    obj.a.b.training = False
    assert not agree(built, (obj,))
    obj.a.b = Part(training=True)
    assert agree(built, (obj,))
    obj.a.b.__class__ = type("Other", (Part,), {})
    assert not agree(built, (obj,))


def test_the_dict_of_an_instance_is_replaced():
    obj = Part(x=1)
    built = warm(attribute_tree(key("x", (C.C_EQUALS, 1)), checks=[(C.C_TYPE, Part)]), (obj,))
    obj.__dict__ = {"x": 2}
    assert not agree(built, (obj,))
    obj.__dict__ = {"x": 1}
    assert agree(built, (obj,))


def test_a_key_appears():
    obj = Part(x=1)
    guards = node(A.A_DICT, None, (C.C_NO_KEY, "forward"), children=[node(A.A_KEY, "x", (C.C_EQUALS, 1))])
    built = warm(tree(arg(0, (C.C_TYPE, Part), children=[guards]), padding()), (obj,))
    Part().forward = 1  # another instance: the class's shared keys grow
    assert agree(built, (obj,))
    obj.forward = 2
    assert not agree(built, (obj,))
    del obj.forward
    assert agree(built, (obj,))
    del obj.x
    assert not agree(built, (obj,))


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_a_hook_is_added(kind):
    obj = Part(hooks=kind())
    built = warm(attribute_tree(key("hooks", (C.C_LEN, 0)), checks=[(C.C_TYPE, Part)]), (obj,))
    obj.hooks[1] = print
    assert not agree(built, (obj,))
    obj.hooks.clear()
    assert agree(built, (obj,))
    obj.hooks = kind(a=1)
    assert not agree(built, (obj,))


class OwnDict(dict):
    pass


class OtherDict(dict):
    pass


LENGTHS_CHANGE = {
    "assigned": lambda d: d.__setitem__("b", 2), "deleted": lambda d: d.__delitem__("a"),
    "cleared": lambda d: d.clear(), "popped": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(), "setdefault": lambda d: d.setdefault("b", 1), "updated": lambda d: d.update(b=1),
    "merged": lambda d: d.__ior__({"b": 1}),
    "init": lambda d: d.__init__(b=1), "dict_assigned": lambda d: dict.__setitem__(d, "b", 2),
    "dict_cleared": lambda d: dict.clear(d),
    "dict_popped": lambda d: dict.pop(d, "a"), "dict_popitem": lambda d: dict.popitem(d),
    "dict_updated": lambda d: dict.update(d, b=1),
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (kind, change)
        for kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter, OwnDict)
        for change in LENGTHS_CHANGE
        # an ordered dict that is changed behind its back is broken
        if kind is not collections.OrderedDict or not change.startswith("dict_")
    ],
)
def test_each_way_to_change_a_length(kind, change):
    """Only the length is guarded: the version of the dictionary has to tell of each change."""

    def fresh():
        return kind(int, {"a": 1}) if kind is collections.defaultdict else kind({"a": 1})

    obj = Part(table=fresh())
    built = warm(attribute_tree(key("table", (C.C_TYPE, kind), (C.C_LEN, 1)), checks=[(C.C_TYPE, Part)]), (obj,))
    LENGTHS_CHANGE[change](obj.table)
    assert len(obj.table) != 1 and not agree(built, (obj,))
    obj.table = fresh()
    assert agree(built, (obj,))
    obj.table["a"] = 2
    assert agree(built, (obj,))
    for other in ([1], 1, "a", {"a": 1} if kind is not dict else OwnDict(a=1)):
        obj.table = other
        assert not agree(built, (obj,))
        obj.table = fresh()
        assert agree(built, (obj,))
    if kind is OwnDict:
        obj.table.__class__ = OtherDict
        assert not agree(built, (obj,))


def test_dicts_that_are_freed_and_made_again():
    """Others come to lie where they lay."""
    obj = Part(table={})
    built = warm(attribute_tree(key("table", (C.C_TYPE, dict), (C.C_LEN, 0)), checks=[(C.C_TYPE, Part)]), (obj,))
    for i in range(300):
        obj.table = None
        obj.table = [{}, {1: i}, [], {2: 1, 3: 2}, collections.OrderedDict()][i % 5]
        for _ in range(i % 4):
            assert (built.explain((obj,), None) is None) is built.check((obj,), None) is (i % 5 == 0)


def test_keys_and_their_order():
    table = {"a": 1, "b": 2}
    built = warm(
        tree(arg(0, (C.C_TYPE, dict), (C.C_KEYS, ("a", "b"))), arg(0, children=[key("a", (C.C_EQUALS, 1))]), padding()),
        (table,),
    )
    table["a"] = 1
    assert agree(built, (table,))
    del table["a"]
    assert not agree(built, (table,))
    table["a"] = 1
    assert not agree(built, (table,))


def test_keys_of_an_ordered_dict_are_in_its_own_order():
    table = collections.OrderedDict(a=1, b=2)
    built = tree(
        arg(0, (C.C_TYPE, collections.OrderedDict), (C.C_KEYS, ("a", "b")), children=[key("a", (C.C_EQUALS, 1))]),
        padding(),
    )
    assert agree(built, (table,))
    table.move_to_end("a")
    assert not agree(built, (table,))


def test_items_of_a_list():
    items = [Part(), 1000, "text" * 3]
    children = [
        node(A.A_INDEX, 0, (C.C_ID, items[0])),
        node(A.A_INDEX, 1, (C.C_EQUALS, 1000)),
        node(A.A_INDEX, -1, (C.C_EQUALS, "texttexttext")),
    ]
    built = warm(tree(arg(0, (C.C_TYPE, list), (C.C_LEN, 3), children=children), padding()), (items,))
    for value in (1001, 10**30, 1000, True):
        items[1] = value
        assert agree(built, (items,)) is (value == 1000)
    items[1] = 999 + len(items) - 2
    assert agree(built, (items,))
    items.append(4)
    assert not agree(built, (items,))
    items.pop()
    items[:] = list(items)
    assert agree(built, (items,))
    items.clear()
    assert not agree(built, (items,))


def test_slots_modules_and_properties():
    obj, module = Slotted(), types.ModuleType("m")
    obj.x, module.flag = 1, True
    prop = property(len)
    roots = [
        arg(0, (C.C_TYPE, Slotted), children=[node(A.A_ATTR, "x", (C.C_EQUALS, 1))]),
        node(A.A_CONST, module, children=[node(A.A_ATTR, "flag", (C.C_ID, True))]),
        node(A.A_CONST, prop, children=[node(A.A_ATTR, "fget", (C.C_ID, len))]),
    ]
    built = warm(tree(*roots, padding()), (obj,))
    obj.x = 2
    assert not agree(built, (obj,))
    obj.x = 1
    assert agree(built, (obj,))
    module.flag = False
    assert not agree(built, (obj,))
    module.flag = True
    assert agree(built, (obj,))
    descriptor = Slotted.x
    try:
        Slotted.x = 5
        assert not agree(built, (obj,))
    finally:
        Slotted.x = descriptor
    assert agree(built, (obj,))
    del obj.x
    assert not agree(built, (obj,))
