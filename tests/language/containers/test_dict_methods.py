"""Every method of dict, insertion order, views, merging."""
# ruff: noqa: B905
import torch

from support import check

X = torch.tensor([1.0, 2.0])


def test_reading():
    check(
        lambda x, d: (x + d["a"], d.get("a"), d.get("z"), d.get("z", 5), "a" in d, len(d), list(d)), X, {"a": 1, "b": 2}
    )


def test_writing_keeps_order():
    def fn(x, d):
        d["c"] = x + 1
        d["a"] = x * 2
        del d["b"]
        d["b"] = 0
        return list(d)

    check(fn, X, {"a": 1, "b": 2})


def test_setdefault_pop_popitem_update_clear():
    def fn(x, d):
        d.setdefault("list", []).append(x + 1)
        a = d.pop("a")
        z = d.pop("zz", None)
        d.update({"n": 1}, m=2)
        d.update([("o", 3)])
        last = d.popitem()
        copy = d.copy()
        d.clear()
        return a, z, last, copy

    check(fn, X, {"a": 1})


def test_views_are_live():
    def fn(x, d):
        keys, values, items = d.keys(), d.values(), d.items()
        d["new"] = x + 1
        return list(keys), list(values), list(items), len(keys), "new" in keys

    check(fn, X, {"a": 1})


def test_key_view_set_operations():
    check(
        lambda x, a, b: (x + 1, sorted(a.keys() & b.keys()), sorted(a.keys() - b.keys()), sorted(a.keys() | b)), X,
        {"p": 1, "q": 2}, {"q": 3},
    )


def test_merge_operators():
    def fn(x, a, b):
        c = a | b
        a |= {"z": x + 1}
        return c, {**a, **b}

    check(fn, X, {"k": 1, "j": 2}, {"k": 3})


def test_construction():
    check(
        lambda x: (
            dict(a=x + 1, b=2), dict([("k", 1)]), dict(zip("ab", range(2))), dict.fromkeys("ab", 0), {**{"q": 1}},
        ),
        X,
    )


def test_kinds_of_keys():
    class Key:
        pass

    key = Key()
    check(
        lambda x, d: (x + d[1], d[(1, 2)], d[None], d[torch.float32], d["s"], d[len]),
        X,
        {1: 1, (1, 2): 2, None: 3, torch.float32: 4, "s": 5, len: 6},
    )
    check(lambda x: {key: x + 1}[key], X)


def test_equal_keys_of_different_type_collapse():
    check(lambda x: (x + 1, {1: "a", 1.0: "b", True: "c"}), X)  # noqa: F601 equal on purpose


def test_missing_key_error():
    check(lambda x, d: (x + 1, d["nope"]), X, {}, raises=KeyError, calls=1)


def test_equality_and_reversed():
    check(lambda x, d: (x + 1, d == {"b": 2, "a": 1}, d != {}, list(reversed(d))), X, {"a": 1, "b": 2})


def test_nested_dicts_of_tensors():
    def fn(d):
        for layer in d.values():
            layer["out"] = layer["w"] * layer["s"]
        return {name: layer["out"].sum() for name, layer in d.items()}

    check(fn, {"one": {"w": X, "s": 2}, "two": {"w": X + 1, "s": 3}})


def test_dict_of_functions():
    check(lambda x, name: {"sin": torch.sin, "cos": torch.cos}[name](x), X, "sin", changed=[(X, "cos")])


def test_unhashable_key_error():
    check(lambda x, k: (x + 1, {k: 1}), X, (1,), changed=[(X, [1])])


def test_changed_while_iterated():
    def grown(x, d):
        for k in d:
            d[k + 10] = 1
        return x

    def same_size(x):
        d = {0: 0}
        for _ in d:
            del d[0]
            d[0] = 0
        return x + 1

    def values_only(x, d):
        for k in d:
            d[k] += 1
        return x + 1

    check(grown, X, {1: 1}, raises=RuntimeError)
    check(same_size, X, raises=RuntimeError)
    check(values_only, X, {1: 1, 2: 2})


def test_iterators_and_changes_by_the_same_call():
    def fn(x, d):
        d["new"] = x + 1
        it = iter(d.items())
        first = next(it)
        del d["a"]
        return first, d

    check(fn, X, {"a": 1, "b": 2})


def test_deleted_and_set_again_goes_to_the_end():
    def fn(x, d):
        d["a"] = x + d.pop("a")
        d["c"] = d.pop("b")
        return list(d)

    check(fn, X, {"a": 1, "b": 2, "c": 3})


def test_keyword_arguments_must_be_text():
    check(lambda x: (x + 1, dict(**{1: 2})), X, raises=TypeError)  # noqa: C408
    check(lambda x: (x + 1, (lambda **k: k)(**{1: 2})), X, raises=TypeError)


def test_what_update_takes():
    class Mapping:
        def keys(self):
            return iter("ab")

        def __getitem__(self, key):
            return key * 2

    class Rev(dict):
        def keys(self):
            return reversed(list(dict.keys(self)))

    def fn(x, d):
        d.update(Mapping(), z=1)
        d.update(([k, v] for k, v in zip("pq", "rs")))
        d |= ["uv", (1, 2)]
        return x + 1, d, dict(Rev(a=1, b=2)), {**Rev(a=1, b=2)}, {**Mapping()}, dict(Mapping())

    check(fn, X, {"a": 0})
    check(lambda x: (x + 1, dict([(1, 2, 3)])), X, raises=ValueError)
    check(lambda x: (x + 1, dict([1])), X, raises=TypeError)
    check(lambda x: (x + 1, dict(1)), X, raises=TypeError)
    check(lambda x: (x + 1, {**[1]}), X, raises=TypeError)


def test_subclasses_with_methods_of_their_own():
    class Own(dict):
        def __getitem__(self, key):
            return ("item", dict.get(self, key))

        def __setitem__(self, key, value):
            dict.__setitem__(self, key, f"set {value}")

        def __missing__(self, key):
            return "missing"

    class Missing(dict):
        def __missing__(self, key):
            self[key] = key * 2
            return "made"

    def fn(x):
        o, m = Own(a=1), Missing()
        o["b"] = 2
        o.update(c=3)
        o.setdefault("d", 4)
        return (
            x + 1, o["a"], o.get("b"), dict(o).keys(), len({**o}), o | {1: 1}, type(o | {1: 1}), type(o.copy()),
            m["q"], m["q"], m.get("r"), "r" in m,
        )

    check(fn, X)


def test_dict_names_of_an_instance_may_be_anything():
    class Obj:
        pass

    def fn(x):
        o = Obj()
        o.__dict__[1] = 1
        o.a = 2
        return x + len(o.__dict__), o.__dict__

    check(fn, X, breaks=None)


def test_views_as_sets():
    def fn(x, a, b):
        k, i = a.keys(), a.items()
        sets = k & b, k | [9], k - b.keys(), k ^ b
        return (
            x + 1, sets, "q" in k, [9] - {9: 1}.keys(), i & b.items(), i - [("p", 1)], k.isdisjoint("z"),
            ("p", 1) in i, (1,) in i,
        )

    check(fn, X, {"p": 1, "q": 2}, {"q": 3})
    check(lambda x, a: (x + 1, a.values() | [1]), X, {1: 2}, raises=TypeError)


def test_reversed_views():
    check(
        lambda x, d: (x + 1, list(reversed(d)), list(reversed(d.values())), list(reversed(d.items()))),
        X,
        {"a": 1, "b": 2},
    )


def test_fromkeys():
    class Sub(dict):
        def __setitem__(self, key, value):
            dict.__setitem__(self, key, (key, value))

    check(
        lambda x: (
            x + 1, dict.fromkeys("ab"), dict.fromkeys([1], 7), Sub.fromkeys("ab", 1), type(Sub.fromkeys("a")),
            {}.fromkeys((1,)),
        ),
        X,
    )
