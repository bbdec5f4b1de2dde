"""Every method of dict, insertion order, views, merging."""
# ruff: noqa: B905
import torch

from support import check

X = torch.tensor([1.0, 2.0])


def test_reading():
    check(lambda x, d: (x + d["a"], d.get("a"), d.get("z"), d.get("z", 5), "a" in d, len(d), list(d)), X, {"a": 1, "b": 2})


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
    check(lambda x, a, b: (x + 1, sorted(a.keys() & b.keys()), sorted(a.keys() - b.keys()), sorted(a.keys() | b)), X, {"p": 1, "q": 2}, {"q": 3})


def test_merge_operators():
    def fn(x, a, b):
        c = a | b
        a |= {"z": x + 1}
        return c, {**a, **b}

    check(fn, X, {"k": 1, "j": 2}, {"k": 3})


def test_construction():
    check(lambda x: (dict(a=x + 1, b=2), dict([("k", 1)]), dict(zip("ab", range(2))), dict.fromkeys("ab", 0), {**{"q": 1}}), X)


def test_kinds_of_keys():
    class Key:
        pass

    key = Key()
    check(lambda x, d: (x + d[1], d[(1, 2)], d[None], d[torch.float32], d["s"], d[len]), X, {1: 1, (1, 2): 2, None: 3, torch.float32: 4, "s": 5, len: 6})
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
