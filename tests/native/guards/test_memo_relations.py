"""Guard trees that remember a short proof: tensors, relations between values, and one object on two levels."""

from __future__ import annotations

import torch
from memo_support import A, C, Part, agree, attribute_tree, key, padding, warm

from native_support import arg, node, tree


def test_tensors():
    obj = Part(weight=torch.zeros(2, 3), table={"p": torch.nn.Parameter(torch.zeros(2))})
    table = key("table", (C.C_TYPE, dict), children=[key("p", (C.C_TENSOR, obj.table["p"]))])
    built = warm(attribute_tree(key("weight", (C.C_TENSOR, obj.weight)), table, checks=[(C.C_TYPE, Part)]), (obj,))
    obj.weight.resize_(3, 2)
    assert not agree(built, (obj,))
    obj.weight = torch.ones(2, 3)
    assert agree(built, (obj,))
    obj.table["p"].requires_grad_(False)
    assert not agree(built, (obj,))
    obj.table["p"].requires_grad_(True)
    assert agree(built, (obj,))
    obj.table["p"].data = torch.zeros(2, dtype=torch.float64)
    assert not agree(built, (obj,))
    obj.table["p"] = torch.nn.Parameter(torch.ones(2))
    assert agree(built, (obj,))
    obj.table["p"] = torch.ones(2, requires_grad=True)
    assert not agree(built, (obj,))


def test_relations_between_values():
    one, two = Part(), Part()
    obj = Part(a=one, b=two, c=one)
    children = [key(n, (C.C_RECORD, i)) for i, n in enumerate("abc")]
    relations = node(A.A_STATE, None, (C.C_DISTINCT, (0, 1)), (C.C_SAME, (0, 2)))
    built = tree(
        arg(0, (C.C_TYPE, Part), children=[node(A.A_DICT, None, children=children)]), padding(), relations, n_records=3
    )
    warm(built, (obj,))
    obj.b = one
    assert not agree(built, (obj,))
    obj.b = two
    assert agree(built, (obj,))
    obj.c = two
    assert not agree(built, (obj,))


def test_questions_about_several_values():
    obj = Part(a=1.0, b=2.0)
    children = [key(n, (C.C_TYPE, float), (C.C_RECORD, i)) for i, n in enumerate("ab")]
    question = node(A.A_STATE, None, (C.C_HOLDS, (lambda a, b: a < b, (0, 1))))
    built = tree(
        arg(0, (C.C_TYPE, Part), children=[node(A.A_DICT, None, children=children)]), padding(), question, n_records=2
    )
    warm(built, (obj,))
    for a, b in ((3.0, 2.0), (1.0, 2.0), (1.5, 2.5), (1.5, 1.0), (1, 2.0), (0.0, 0.5)):
        obj.a, obj.b = a, b
        assert agree(built, (obj,)) == (type(a) is float and a < b)


def test_relations_with_an_argument():
    x, y = torch.zeros(2), torch.zeros(2)
    obj = Part(a=x)
    roots = [
        arg(1, (C.C_TENSOR, x), (C.C_RECORD, 0)),
        arg(
            0, (C.C_TYPE, Part), children=[node(A.A_DICT, None, children=[key("a", (C.C_TENSOR, x), (C.C_RECORD, 1))])]
        ),
        padding(),
        node(A.A_STATE, None, (C.C_DISTINCT, (0, 1))),
    ]
    built = warm(tree(*roots, n_records=2), (obj, y))
    assert (
        agree(built, (obj, torch.zeros(2))) and not agree(built, (obj, x)) and not agree(built, (obj, torch.zeros(3)))
    )


def test_one_object_on_two_levels():
    """What is left to evaluate below an object, and below its own parent, which is the same object: each is read on its
    level."""
    items = [*range(10)]
    items[0] = items
    within = node(A.A_INDEX, 0, children=[node(A.A_CALL, len, (C.C_EQUALS, 10))])
    plain = [node(A.A_INDEX, i, (C.C_ID, i)) for i in range(1, 10)]
    built = tree(arg(0, children=[*plain, within, node(A.A_CALL, len, (C.C_EQUALS, 10))]))
    agree(built, (items,))
    assert built.memos
    items.append(10)
    agree(built, (items,))
    items.pop()
    agree(built, (items,))
