"""Guard trees that remember a short proof: whatever changes at once, while it is made, or in other threads."""

from __future__ import annotations

import collections
import random
import threading

from memo_support import A, C, Part, agree, attribute_tree, key, served

from native_support import arg, node, tree


def test_python_in_a_guard_may_change_everything():
    obj = Part(x=1, child=Part())

    def hostile(value):
        obj.__dict__.pop("child", None)
        obj.__dict__["child"] = Part()
        for _ in range(3):
            inner.check((obj,), None)
        return True

    below = key("child", (C.C_TYPE, Part), (C.C_PY, hostile), children=[node(A.A_CALL, str, (C.C_TYPE, str))])
    built = inner = attribute_tree(key("x", (C.C_EQUALS, 1)), below, checks=[(C.C_TYPE, Part)])
    hostile_tree, inner = built, attribute_tree(key("x", (C.C_EQUALS, 1)), checks=[(C.C_TYPE, Part)])
    for _ in range(50):
        assert hostile_tree.check((obj,), None)
    depth = 0

    def recursive(value):
        nonlocal depth
        if depth < 3:
            depth += 1
            obj.x = 1
            assert again.check((obj,), None)
            depth -= 1
        return True

    again = attribute_tree(key("x", (C.C_EQUALS, 1), (C.C_PY, recursive)), checks=[(C.C_TYPE, Part)])
    for _ in range(30):
        assert again.check((obj,), None)


def test_threads_share_a_tree():
    objs = [Part(x=1, child=Part(y=2)) for _ in range(3)]
    below = [node(A.A_DICT, None, children=[key("y", (C.C_EQUALS, 2))])]
    built = attribute_tree(
        key("x", (C.C_EQUALS, 1), (C.C_PY, lambda v: v == 1)),
        key("child", (C.C_TYPE, Part), children=below),
        checks=[(C.C_TYPE, Part)],
    )
    failures = []

    def work(obj):
        for i in range(300):
            obj.child = Part(y=2)
            if not (built.check((obj,), None) and built.check((obj,), None)):
                failures.append(i)
            obj.child.y = 3
            if built.check((obj,), None):
                failures.append(-i)

    threads = [threading.Thread(target=work, args=(obj,)) for obj in objs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_random_changes():
    """A graph of objects, changed at random: the memory never changes an answer."""
    chance = random.Random(5)

    def fresh(depth=0):
        obj = Part(flag=True, n=1, items=[1, 2], table={"k": 1}, hooks=collections.OrderedDict())
        if depth < 3:
            obj.left, obj.right = fresh(depth + 1), fresh(depth + 1)
        return obj

    def guards(depth=0):
        children = [
            key("flag", (C.C_ID, True)),
            key("n", (C.C_EQUALS, 1)),
            key(
                "items", (C.C_TYPE, list), (C.C_LEN, 2),
                children=[node(A.A_INDEX, 0, (C.C_EQUALS, 1)), node(A.A_INDEX, 1, (C.C_EQUALS, 2))],
            ),
            key("table", (C.C_TYPE, dict), (C.C_KEYS, ("k",)), children=[key("k", (C.C_EQUALS, 1))]),
            key("hooks", (C.C_LEN, 0)),
        ]
        if depth < 3:
            children += [key(side, (C.C_TYPE, Part), children=guards(depth + 1)) for side in ("left", "right")]
        return [node(A.A_DICT, None, (C.C_NO_KEY, "extra"), children=children)]

    def setter(name, value):
        return lambda o: setattr(o, name, value())

    def twice(change, back):
        return lambda o: (change(o), back(o))

    changes = [
        setter("flag", lambda: False), setter("n", lambda: 2), setter("items", lambda: [1, 3]),
        setter("extra", lambda: 1),
        lambda o: o.items.append(3), lambda o: o.table.update(j=1), lambda o: o.hooks.update(a=1),
        lambda o: o.__dict__.pop("n", None),
        lambda o: setattr(o, "__class__", Derived), setter("left", lambda: fresh(2)), lambda o: o.__dict__.clear(),
    ]
    harmless = [
        setter("unrelated", lambda: 1), setter("items", lambda: [1, 2]), setter("table", lambda: {"k": 1}),
        setter("hooks", collections.OrderedDict),
        twice(lambda o: o.items.append(1), lambda o: o.items.pop()),
        twice(lambda o: o.table.pop("k"), lambda o: o.table.update(k=1)),
        lambda o: setattr(o, "__dict__", dict(o.__dict__)), setter("n", lambda: 2 - len("a")),
    ]

    class Derived(Part):
        pass

    built = tree(arg(0, (C.C_TYPE, Part), children=guards()))
    outcomes: collections.Counter[str] = collections.Counter()
    for _ in range(60):
        obj = fresh()
        for _ in range(12):
            spot = obj
            for _ in range(chance.randrange(4)):
                spot = getattr(spot, chance.choice(["left", "right"]), spot)
            try:
                chance.choice(harmless if chance.random() < 0.8 else changes)(spot)
            except (AttributeError, KeyError, IndexError):
                pass
            passed = agree(built, (obj,))
            outcomes["passed" if passed else "failed"] += 1
            outcomes["served"] += served(built) > 0
            if not passed:
                break
    assert outcomes["passed"] > 50 and outcomes["failed"] > 10 and outcomes["served"] > 20
