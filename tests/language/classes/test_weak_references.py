"""`weakref.ref`, weak dictionaries and sets: what they lead to, when it is gone, and what they leave behind."""

import functools
import gc
import weakref

import pytest
import torch

import framejit

from support import ANY, Pair, check, check_state, world

X = torch.tensor([1.0, 2.0])


class Node:
    def __init__(self, t=None, parent=None):
        self.t = t
        self.parent = None if parent is None else weakref.ref(parent)

    def root(self):
        above = None if self.parent is None else self.parent()
        return self if above is None else above.root()


class Equal(Node):
    __hash__ = object.__hash__

    def __eq__(self, other):
        return isinstance(other, Equal)


def test_a_reference_to_an_argument():
    def fn(x, node):
        ref = weakref.ref(node)
        again = weakref.ref(node)
        return (
            x + ref().t, ref is again, ref == again, ref() is node, isinstance(ref, weakref.ReferenceType), bool(ref),
            type(ref) is weakref.ref,
        )

    check(fn, X, Node(X * 2))


def test_references_that_leave():
    def fn(x, node):
        node.ref = weakref.ref(node)
        return weakref.ref(node), weakref.ref(x), x + 1

    node = Node(X)
    for optimized in (fn, framejit.optimize(fn, backend="eager", fullgraph=True)):
        for _ in range(2):
            first, second, _ = optimized(X, node)
            assert first is weakref.ref(node) is node.ref and second is weakref.ref(X)


def test_objects_made_inside():
    def fn(x):
        root = Node(x + 1)
        leaf = Node(x * 2, root)
        held = [Node(x * 3)]
        ref = weakref.ref(held[0])
        return leaf.root().t + leaf.t + ref().t, leaf.root() is root, ref() is held[0]

    check(fn, X)


def test_tensors_made_inside():
    def fn(x):
        y = x + 1
        ref = weakref.ref(y)
        return ref() * 2, ref() is y

    check(fn, X)


def test_what_is_let_go_of():
    def deleted(x):
        node = Node(x + 1)
        ref = weakref.ref(node)
        del node
        return x * 2, ref() is None

    def out_of_its_function(x):
        def made():
            node = Node(x + 1)
            return weakref.ref(node)

        return x * 2, made()()

    def at_once(x):
        return x * 2, weakref.ref(Node(x))()

    def overwritten(x):
        box = [Node(x)]
        ref = weakref.ref(box[0])
        before = ref() is None
        box[0] = Node(x + 1)
        return x * 2, before, ref() is None, ref() is box[0]

    for fn in (deleted, out_of_its_function, at_once, overwritten):
        check(fn, X, graphs=ANY, breaks=None)


def test_returned_references_are_dead_when_their_object_is():
    def fn(x):
        node, y = Node(x), x + 1
        return weakref.ref(node), weakref.ref(y), y * 2

    for optimized in (fn, framejit.optimize(fn, backend="eager", fullgraph=True)):
        node, tensor, _ = optimized(X)
        gc.collect()
        assert node() is None and tensor() is None


def test_an_object_outside_that_goes():
    def make():
        box = {"node": Node(torch.ones(2))}
        ref = weakref.ref(box["node"])

        def fn(x):
            y = x + ref().t
            del box["node"]
            return y, ref() is None

        return fn, lambda: sorted(box)

    check_state(make, (X,), breaks=None)


HELD_BY = {
    "a global": "held",
    "an attribute": "owner.held",
    "the __dict__": "vars(owner)['held']",
    "an item": "owner.items[0]",
    "a value": "owner.table['held']",
    "a list in a list": "owner.nested[0][0]",
}


def _worlds(body, holder):
    """A function with `body`, and a weak reference to what only `holder` holds, in a module of its own."""

    def make():
        names = world(
            f"""
            class Owner: pass
            class Node:
                def __init__(self, t): self.t = t

            owner = Owner()
            owner.items, owner.table, owner.nested, count = [None], dict(held=None), [[None]], 0
            {holder} = Node(torch.ones(2))
            ref = weakref.ref({holder})

            def fn(x):
                global count, held
                before = {holder}.t
                {body}
                return x + before, ref() is None
            """,
            weakref=weakref, torch=torch, gc=gc,
        )
        return names["fn"], lambda: (names["count"], names["ref"]() is None)

    return make


@pytest.mark.parametrize("holder", HELD_BY.values(), ids=HELD_BY)
def test_what_the_program_holds_while_captured_code_changes_something_else(holder):
    """A weak reference is followed in one graph."""
    body = "count += 1; owner.other = count; owner.steps = [count]" if holder == "held" else "count += 1"
    check_state(_worlds(body, holder), (X,), (X,))


@pytest.mark.parametrize(("holder", "body"), [
    ("held", "held = None"),
    ("held", "del held"),
    ("held", "globals().pop('held')"),
    ("owner.held", "owner.held = None"),
    ("owner.held", "del owner.held"),
    ("owner.held", "vars(owner).clear()"),
    ("owner.held", "object.__setattr__(owner, 'held', None)"),
    ("owner.held", "globals()['owner'] = None"),
    ("vars(owner)['held']", "owner.held = 1"),
    ("owner.items[0]", "owner.items[0] = None"),
    ("owner.items[0]", "owner.items.clear()"),
    ("owner.items[0]", "owner.items = []"),
    ("owner.table['held']", "owner.table.pop('held')"),
    ("owner.table['held']", "other = owner.table; other['held'] = 3; del other"),
    ("owner.nested[0][0]", "owner.nested[0] = []"),
    ("owner.nested[0][0]", "inner = owner.nested[0]; inner[0] = None; del inner"),
])
def test_what_the_program_holds_no_more(holder, body):
    check_state(_worlds(body, holder), (X,), breaks=None)


def test_the_holder_was_the_last_argument():
    """An argument that captured code has let go of holds nothing, though its caller may hold it still."""

    class Owner:
        def __init__(self):
            self.held = Node(torch.ones(2))

    def fn(x, owners):
        owner = owners.pop()
        ref = weakref.ref(owner.held)
        before = owner.held.t + x
        del owner
        return before, ref() is None

    check(fn, X, [Owner()], graphs=ANY, breaks=None)


def test_calls_when_it_goes():
    log = []

    def fn(x, node):
        node.ref = weakref.ref(node, lambda ref: log.append((ref() is None, ref is kept[-1])))
        kept.append(node.ref)
        return x + 1

    kept = []
    for optimized in (fn, framejit.optimize(fn, backend="eager", fullgraph=True)):
        node = Node()
        optimized(X, node)
        assert node.ref() is node and node.ref is not weakref.ref(node)
        del node
        gc.collect()
    assert log == [(True, True)] * 2


def test_calls_when_something_made_inside_goes():
    def fn(x):
        log = []
        node = Node(x)
        ref = weakref.ref(node, lambda _: log.append("gone"))
        log.append("before")
        del node
        return x + 1, log, ref() is None

    check(fn, X, graphs=ANY, breaks=None)


def test_dictionaries_with_weak_keys():
    def make():
        nodes, table = [Node() for _ in range(3)], weakref.WeakKeyDictionary()
        table[nodes[0]] = torch.ones(2)

        def fn(x):
            y = x + table[nodes[0]]
            table[nodes[0]] = y
            table[nodes[1]] = x * 3
            return y + table.get(nodes[1]), nodes[1] in table, table.get(nodes[2]), nodes[2] in table, len(table)

        return fn, lambda: (sorted(map(nodes.index, table)), [table.get(node) for node in nodes])

    check_state(make, (X,), (X,), (X,), breaks=None)


def test_dictionaries_with_weak_keys_in_one_graph():
    def make():
        nodes, table = [Node() for _ in range(2)], weakref.WeakKeyDictionary()
        table[nodes[0]] = torch.ones(2)

        def fn(x):
            return x + table[nodes[0]], nodes[1] in table, table.get(nodes[1], 5), len(table)

        return fn, None

    check_state(make, (X,), (X,), graphs=1)


def test_keys_of_weak_dictionaries_die_and_change():
    table, nodes = weakref.WeakKeyDictionary(), [Node(), Node()]
    table[nodes[0]], table[nodes[1]] = 1, 2
    fn = framejit.optimize(lambda x, node: x + table.get(node, 10) + len(table) * 100, backend="eager", fullgraph=True)
    assert fn(X, nodes[0]).tolist() == (X + 201).tolist()
    assert fn(X, nodes[1]).tolist() == (X + 202).tolist()
    del nodes[1]
    gc.collect()
    assert fn(X, nodes[0]).tolist() == (X + 101).tolist()
    assert fn(X, Node()).tolist() == (X + 110).tolist()
    table[nodes[0]] = 3
    assert fn(X, nodes[0]).tolist() == (X + 103).tolist()


def test_sets_of_weak_references():
    def make():
        nodes = [Node(), Node()]
        members = weakref.WeakSet(nodes[:1])

        def fn(x, n):
            return x + (nodes[n] in members), len(members), "text" in members

        return fn, lambda: len(members)

    check_state(make, (X, 0), (X, 1), (X, 0))


def test_objects_that_are_equal():
    def make():
        nodes, table = [Equal(), Equal()], weakref.WeakKeyDictionary()
        table[nodes[0]] = 5

        def fn(x):
            a, b = weakref.ref(nodes[0]), weakref.ref(nodes[1])
            return x + 1, a == b, a != b, a is b

        return fn, None

    check_state(make, (X,), (X,))


def test_misused_references():
    def fn(x, node):
        log = []
        for attempt in (
            lambda: weakref.ref(), lambda: weakref.ref(3), lambda: weakref.ref([]), lambda: weakref.ref(node, None, 3),
            lambda: weakref.ref(node)(1),
            lambda: weakref.ref(node, None)(), lambda: weakref.ref(node).t, lambda: weakref.ref(node, callback=None),
            lambda: {weakref.ref(node): 1}[3],
        ):
            try:
                log.append(attempt() is node)
            except (TypeError, AttributeError, KeyError) as e:
                log.append((type(e), str(e).split(" at 0x")[0].split("<")[0]))
        return x + 1, log

    check(fn, X, Node(), graphs=ANY, breaks=None)


@pytest.mark.parametrize("kind", [int, torch.Tensor, list, float])
def test_functions_by_the_class_of_their_argument(kind):
    @functools.singledispatch
    def doubled(value):
        return "anything"

    @doubled.register
    def _(value: torch.Tensor):
        return value * 2

    @doubled.register
    def _(value: int):
        return value + 1

    value = {int: 3, torch.Tensor: X, list: [1], float: 1.0}[kind]
    check(lambda x, v: (x + 1, doubled(v), doubled(x)), X, value)


class Thing:
    pass


GONE = {
    "a callback": lambda: ([], lambda log, thing: log.append(weakref.ref(thing, log.append))),
    "a set of references": lambda: (set(), lambda refs, thing: refs.add(weakref.ref(thing, refs.discard))),
    "a weak set": lambda: (weakref.WeakSet(), lambda things, thing: things.add(thing)),
    "weak values": lambda: (weakref.WeakValueDictionary(), lambda things, thing: things.update(one=thing)),
    "weak keys": lambda: (weakref.WeakKeyDictionary(), lambda things, thing: things.setdefault(thing, 1)),
    "a finalizer": lambda: ([], lambda log, thing: weakref.finalize(thing, log.append, 1)),
}


@pytest.mark.parametrize("kind", GONE)
@pytest.mark.parametrize("end", ["deleted", "replaced", "left by a function", "never named"])
def test_what_is_called_back_when_something_made_inside_goes(kind, end):
    """The program sees at once what its last reference's end changes."""

    def world():
        kept, refer = GONE[kind]()

        def made():
            thing = Thing()
            refer(kept, thing)
            return len(kept)

        def fn(x):
            thing = None
            if end == "never named":
                refer(kept, Thing())
                before = None
            elif end == "left by a function":
                before = made()
            else:
                thing = Thing()
                refer(kept, thing)
                before = len(kept)
            if end == "deleted":
                del thing
            else:
                thing = None
            return before, len(kept), x * 2

        return fn

    pair = Pair(world)
    for _ in range(3):
        pair.call(torch.ones(2))


@pytest.mark.parametrize("end", ["deleted", "replaced", "left by a function"])
def test_what_is_called_back_when_something_made_by_a_broken_call_goes(end):
    """The part of the function that refers to it was given it, and is the only one to hold it."""

    @framejit.disable
    def make():
        return Thing()

    def referred(log, references):
        thing = make()
        references.append(weakref.ref(thing, lambda gone: log.append("gone")))
        return references[0]() is thing

    def fn(x):
        log, references = [], []
        if end == "left by a function":
            return x + 1, referred(log, references), list(log), references[0]() is None
        thing = make()
        reference = weakref.ref(thing, lambda gone: log.append("gone"))
        same = reference() is thing
        if end == "deleted":
            del thing
        else:
            thing = None
        return x + 1, same, list(log), reference() is None

    pair = Pair(lambda: fn)
    for _ in range(3):
        pair.call(torch.ones(2))


@pytest.mark.parametrize("made", [dict, functools.partial(dict, a=1), list])
def test_a_class_made_inside_goes_with_the_program(made):
    """Compiled code that reads its attributes, or refers to it, does not keep it."""

    def fn(x, log):
        class Local:
            table = made()

        if isinstance(Local.table, dict):
            Local.table[Local] = None
        else:
            Local.table.append(Local)
        ref = weakref.ref(Local)
        y = x * len(Local.table)
        del Local
        gc.collect()
        log.append(ref() is None)
        return y

    pair = Pair(lambda: fn)
    for _ in range(3):
        pair.call(X, [])


def test_a_proxy_of_what_goes():
    def fn(x):
        thing = Thing()
        thing.value = 3
        proxy = weakref.proxy(thing)
        y = x * proxy.value
        del thing
        try:
            return y, proxy.value
        except ReferenceError as e:
            return y, str(e)

    check(fn, X, graphs=None, breaks=None)


def test_a_finalizer_is_looked_at_and_taken_away():
    """It is in a dict of the class, from which it is deleted before the function goes on."""

    def world():
        log = []

        def fn(x):
            thing = Thing()
            finalizer = weakref.finalize(thing, log.append, 67)
            peeked, detached = finalizer.peek(), finalizer.detach()
            return peeked[0] is detached[0] is thing, peeked[2:], detached[2:], finalizer.alive, x * 2

        return fn, log

    pair = Pair(world)
    for _ in range(3):
        pair.call(X)


@pytest.mark.parametrize("asked", [True, False])
def test_what_is_gone_keeps_the_hash_that_was_asked_for(asked):
    def fn(x, references):
        framejit.graph_break()
        try:
            return hash(references[0]), references[0] in {references[0]: 1}, x + 1
        except TypeError as e:
            return str(e), x + 1

    def dead():
        node = Node()
        reference = weakref.ref(node)
        if asked:
            hash(reference)
        return [reference]

    references = dead()
    compiled = framejit.optimize(fn)
    for _ in range(2):
        assert str(compiled(X, references)) == str(fn(X, references))


def test_dictionaries_with_weak_values():
    """In one graph; what goes, comes anew or is replaced is noticed."""
    class Thing:
        def __init__(self, number):
            self.number = number

    def make():
        things = {"a": Thing(2), "b": Thing(3)}
        weak = weakref.WeakValueDictionary(things)

        def fn(x, name):
            found = weak.get(name)
            if found is None:
                return x - 1, name in weak
            return x * weak[name].number + found.number, name in weak, weak[name] is things[name]

        return fn, things, weak

    sides = [make(), make()]
    compiled = framejit.optimize(sides[1][0], backend="eager", fullgraph=True)

    def compare(name):
        expected, got = sides[0][0](torch.ones(2), name), compiled(torch.ones(2), name)
        assert torch.equal(expected[0], got[0]) and expected[1:] == got[1:]

    for name in ("a", "a", "b", "c", "a"):
        compare(name)
    for _, things, weak in sides:
        del things["a"]
        things["b"] = weak["b"] = Thing(7)
        things["c"] = weak["c"] = Thing(5)
    for name in ("a", "b", "c", "a"):
        compare(name)
