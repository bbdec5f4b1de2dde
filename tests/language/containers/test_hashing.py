"""Keys and members whose hash and equality the program defines: which of its methods run, in which order, and what is
found."""
from collections import OrderedDict, defaultdict

import torch

import framejit

from support import ANY, Pair, check, check_state

X = torch.tensor([1.0, 2.0])


class Key:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Key) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __repr__(self):
        return f"Key({self.value})"


class Logged:
    def __init__(self, name, hashed, log):
        self.name, self.hashed, self.log = name, hashed, log

    def __eq__(self, other):
        self.log.append(("eq", self.name, getattr(other, "name", other)))
        return isinstance(other, Logged) and self.name == other.name

    def __hash__(self):
        self.log.append(("hash", self.name))
        return self.hashed


class Clash:
    """All are in one bucket, and none is equal to another."""

    def __hash__(self):
        return 42

    def __eq__(self, other):
        return self is other


DICT, SET = {Key(1): 5, Key(2): 6}, {Key(1), Key(3)}


def test_keys_made_here():
    def fn(x):
        d = {Key(1): x, Key(2): x + 1, Key(1): x + 2}
        d[Key(2)] = x * 3
        return len(d), d[Key(1)], d.get(Key(2)), Key(3) in d, d.pop(Key(1)), len(d)

    check(fn, X)


def test_existing_dict_and_set():
    def fn(x, k):
        return (
            x * DICT.get(Key(k), 0), Key(k) in DICT, {Key(1): 5, Key(2): 6} == DICT, len({**DICT, Key(k): 1}),
            Key(k) in SET, len(SET | {Key(k)}),
        )

    check(fn, X, 1, changed=[(X, 2), (X, 9)])


def test_keys_that_leave_captured_code():
    def fn(x):
        d = {Key(1): x + 1, Key("a"): 2}
        d[Key(3)] = 3
        s = {Key(i) for i in range(3)}
        return {k.value: v for k, v in d.items()}, d[Key(3)], len(d), sorted(k.value for k in s), d, s

    def content(x):
        values, third, n, members, d, s = fn(x)
        return values, third, n, members, [k.value for k in d], [k.value for k in s], Key(2) in s, d.get(Key("a"))

    def outside(x):
        return fn(x)[4:]

    pair = check(lambda x: content(x), X)
    d, s = pair.compiled(X)[4:6]
    assert d == ([1, "a", 3]) and sorted(s) == [0, 1, 2]
    import framejit

    d, s = framejit.optimize(outside, backend="eager")(X)
    assert d[Key("a")] == 2 and Key(1) in d and Key(2) in s and Key(9) not in s


def test_an_existing_dict_takes_a_new_key():
    def make():
        table = {Key(1): 1}

        def fn(x, k):
            table[Key(k)] = k
            table.setdefault(Key(1), 7)
            return x + len(table), table.pop(Key(k))

        return fn, lambda: [(k.value, v, Key(k.value) in table) for k, v in table.items()]

    check_state(make, (X, 5), (X, 1), (X, 6))


def test_calls_of_hash_and_eq_and_their_order():
    def make():
        log = []
        a, b, c = (Logged(n, h, log) for n, h in (("a", 1), ("b", 1), ("c", 2)))

        def fn(x):
            d = {a: 1, b: 2}
            d[c] = 3
            d.get(b)
            s = {c, a}
            found = b in s, a in d, d == {b: 2, c: 3, a: 1}
            s.discard(b)
            s |= {b}
            return x + len(d) + len(s), found, d.setdefault(a, 9), d.pop(c), frozenset([a, b]) == {b, a}

        return fn, log

    check_state(make, (X,), (X,))


def test_keys_taken_from_a_dict_or_set_are_not_asked_again():
    """dict.fromkeys of a dict or set takes the hashes over; of anything else it asks each key."""

    def world():
        log = []

        def fn(x):
            keys = [Logged("a", 1, log), Logged("b", 2, log)]
            log.append("made")
            first = dict.fromkeys(keys, x * 2)
            log.append("of tables")
            others = [
                dict.fromkeys(first), dict.fromkeys(set(first), 3), dict.fromkeys(frozenset(first)),
                OrderedDict.fromkeys(first),
            ]
            log.append("of an OrderedDict")
            others.append(dict.fromkeys(others[-1], x))
            return [[key.name for key in table] for table in others], x + 1

        return fn, log

    pair = Pair(world)
    for _ in range(2):
        pair.call(X)


def test_an_eq_that_raises_is_seen():
    class Bad:
        def __eq__(self, other):
            raise RuntimeError("no")

        def __hash__(self):
            return 1

    def fn(x, bad):
        try:
            {bad: 1} == {1: 1}  # noqa: B015  asked for its exception
        except RuntimeError as e:
            return x + 1, str(e)
        return x + 2

    check(fn, X, Bad())


def test_objects_with_one_hash():
    def fn(x):
        a, b, c = Clash(), Clash(), Clash()
        d = {a: 1, b: 2}
        return x + len({a, b, c, a}), a in d, c in d, d.get(b), len(d)

    check(fn, X)


def test_the_hash_a_table_keeps_is_the_one_of_when_the_key_came():
    def make():
        key = Key(1)
        table = {key: 1}

        def fn(x, value):
            key.value = value
            return x + len(table), key in table, Key(1) in table

        return fn, lambda: key.value

    check_state(make, (X, 1), (X, 2), (X, 1))


def test_unhashable_keys():
    class OnlyEq:
        def __eq__(self, other):
            return True

    for bad in ([], {}, set(), OnlyEq(), (1, [])):
        check(lambda x, b: (x + 1, {b: 1}), X, bad, raises=TypeError)
        check(lambda x, b: (x + 1, b in {1: 2}), X, bad, raises=TypeError)
        check(lambda x, b: (x + 1, {1}.add(b)), X, bad, raises=TypeError)


def test_a_hash_that_is_no_number():
    class Wrong:
        def __hash__(self):
            return "1"

    check(lambda x, k: (x + 1, {k: 1}), X, Wrong(), raises=TypeError)


def test_tuples_and_frozensets_of_objects_as_keys():
    def fn(x, k, o):
        d = {(Key(1), 2): x, frozenset([Key(1), k]): 4, (o, 1): 5}
        return (
            d[(Key(1), 2)] + 1, d[frozenset([k, Key(1)])], d[(o, 1)], (Key(2), 2) in d,
            hash((Key(1), 2)) == hash((Key(1), 2)),
        )

    check(fn, X, Key(9), object())


def test_members_are_compared_in_lists():
    def fn(x, k):
        items = [Key(1), k, 3]
        return x + items.index(Key(5)), items.count(Key(1)), Key(7) in items, 3 in items

    check(fn, X, Key(5))


def test_bound_methods_and_ids_as_keys():
    class Owner:
        def one(self):
            return 1

    def fn(x, o, p):
        d = {o.one: 1, id(o): 2}
        return x + len(d), o.one in d, p.one in d, d[o.one], d[id(o)], id(p) in d

    check(fn, X, Owner(), Owner())


def test_a_class_with_equality_of_its_metaclass():
    class Meta(type):
        def __eq__(cls, other):
            return isinstance(other, Meta) and cls.kind == other.kind

        def __hash__(cls):
            return hash(cls.kind)

    class A(metaclass=Meta):
        kind = "k"

    class B(metaclass=Meta):
        kind = "k"

    check(lambda x: (x + len({A, B}), {A: 1}.get(B)), X, graphs=ANY, breaks=None)


def test_several_objects_that_are_taken_out_of_a_table():
    class Key:
        pass

    def popped(x, table):
        first, second = table.popitem(), table.popitem()
        return x + first[1] + second[1], len(table)

    def deleted(x, table):
        keys = list(table)
        del table[keys[0]], table[keys[1]]
        return x + table.pop(keys[2]), len(table)

    def put_back(x, table):
        keys = list(table)
        for key in keys[:3]:
            del table[key]
        table[keys[1]] = table[keys[0]] = 7
        return x + 1, [keys.index(key) for key in table]

    for fn in (popped, deleted, put_back):
        for kind in (dict, OrderedDict, lambda items: defaultdict(int, items)):
            for _ in range(2):
                keys = [Key() for _ in range(4)]
                plain, table = (kind({key: n for n, key in enumerate(keys)}) for _ in range(2))
                expected, got = fn(X, plain), framejit.optimize(fn, backend="eager", fullgraph=True)(X, table)
                assert str(got) == str(expected) and list(table.items()) == list(plain.items())


def test_ids_among_numbers_from_outside():
    """What id() gives of something that was there before is looked for among plain numbers, also in a set, in tuples
    and by `==`."""

    def make():
        one, two = torch.nn.ReLU(), torch.nn.Tanh()
        numbers = {id(one): 3}
        pairs = {(id(one), "a"): 5}
        members = {id(two), 7}

        def fn(x, which):
            module = one if which else two
            key = id(module)
            own = {id(one): 1, 12: 2}
            found = numbers.get(key, 7) + pairs.get((key, "a"), 11) + own.get(key, 13)
            return x * found, key in numbers, key in members, id(one) == id(two), id(x) in numbers, id(None) in numbers

        return fn, lambda: (len(numbers), len(members))

    pair = Pair(make, fullgraph=True)
    for which in (True, False, True):
        pair.call(X, which)


def test_ids_of_other_objects_are_noticed():
    class Box:
        pass

    boxes = [Box(), Box(), Box()]
    numbers = {id(boxes[0]): 2.0, id(boxes[1]): 3.0}

    def fn(x, box):
        return x * numbers.get(id(box), 5.0)

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    for box in (*boxes, *boxes):
        assert torch.equal(compiled(X, box), fn(X, box))
    numbers[id(boxes[2])] = 9.0
    assert torch.equal(compiled(X, boxes[2]), X * 9)


def test_numbers_that_were_ids_are_looked_for():
    class Box:
        pass

    box, other = Box(), Box()
    box.number = id(box)
    other.number = id(box)

    def fn(x, it):
        seen = {id(it): 2}
        return x * seen.get(it.number, 7), it.number in {id(it)}

    compiled = framejit.optimize(fn, backend="eager", fullgraph=True)
    for it in (box, other, box):
        expected, got = fn(X, it), compiled(X, it)
        assert torch.equal(expected[0], got[0]) and expected[1] is got[1]


def test_ids_of_what_the_function_makes():
    def fn(x):
        made, kept = [x], {}
        kept[id(made)] = made
        kept.setdefault(id(x), x)
        return [id(made) in kept, id([x]) in kept, kept[id(made)][0] is x, len(kept)], x + 1

    check(fn, X, fullgraph=True)
