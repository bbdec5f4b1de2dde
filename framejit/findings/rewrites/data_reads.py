"""`.item()`, `.tolist()`, `float()` and `int()` of a tensor: the number stays in the tensor."""
from __future__ import annotations

import ast

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site


@rewrites("FJ101")
def gather_appended_numbers(site: Site) -> list[Edit] | None:
    """`numbers.append(x.item())` in a loop: the tensors are gathered, and read once where the list is returned."""
    read, torch_name = _read(site), site.module_name("torch")
    if read is None or torch_name is None:
        return None
    call = site.parent(read)
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(name), attr="append"), args=[argument]) if argument is read:
            pass
        case _:
            return None
    function, tensor = site.function(), _tensor_of(read)
    if (
        function is None
        or tensor is None
        or not any(isinstance(node, (ast.For, ast.While)) for node in site.ancestors(call))
    ):
        return None
    uses = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    returned = [use for use in uses if any(isinstance(node, ast.Return) for node in site.ancestors(use))]
    if len(uses) != len(returned) + 1:  # the append itself, and nothing else that looks at the numbers
        return None
    return [
        site.replace(read, site.source(tensor)),
        *(site.replace(use, f"{torch_name}.stack({name}).tolist()") for use in returned),
    ]


@rewrites("FJ101")
def keep_the_tensor(site: Site) -> list[Edit] | None:
    read = _read(site)
    tensor = _tensor_of(read) if read is not None else None
    if read is None or tensor is None:
        return None
    text = site.source(tensor)
    alone = isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) or isinstance(
        site.parent(read), (ast.Call, ast.Assign, ast.Return)
    )
    return [site.replace(read, text if alone else f"({text})")]


def _read(site: Site) -> ast.Call | None:
    """The call that reads the data: the node of the finding, or what it is the function of."""
    assert site.node is not None
    for node in site.ancestors(site.node):
        if isinstance(node, ast.Call):
            return node
    return None


def _tensor_of(read: ast.Call) -> ast.expr | None:
    match read:
        case ast.Call(func=ast.Attribute(value=tensor, attr="item" | "tolist"), args=[]):
            return tensor
        case ast.Call(func=ast.Name("float" | "int"), args=[tensor]):
            return tensor
    return None
