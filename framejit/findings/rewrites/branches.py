"""`if` on a tensor: both branches are computed, and torch.where chooses."""
from __future__ import annotations

import ast

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site

_READS = ("item", "tolist")
_CONVERSIONS = ("bool", "float", "int")


class _TensorCondition(ast.NodeTransformer):
    """A condition in tensor operations: no reads of the data, and logical functions in place of `and`, `or` and
    `not`."""

    def __init__(self, torch_name: str) -> None:
        self.torch_name = torch_name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS and not node.args:
            return node.func.value
        if isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS and len(node.args) == 1:
            return node.args[0]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        result, name = node.values[0], "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        for value in node.values[1:]:
            result = self._call(name, result, value)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("logical_not", node.operand) if isinstance(node.op, ast.Not) else node

    def _call(self, name: str, *args: ast.expr) -> ast.expr:
        return ast.Call(ast.Attribute(ast.Name(self.torch_name, ast.Load()), name, ast.Load()), list(args), [])


@rewrites("FJ101", "FJ106")
def where(site: Site) -> list[Edit] | None:
    torch_name = site.module_name("torch")
    if torch_name is None or site.node is None:
        return None
    for node in site.ancestors(site.node):
        if isinstance(node, ast.IfExp) and is_within(site, node.test):
            return [site.replace_by_call(node, _choice(site, torch_name, node.test, node.body, node.orelse))]
        if isinstance(node, ast.If) and is_within(site, node.test):
            return _statement(site, torch_name, node)
        if isinstance(node, ast.stmt):
            return None
    return None


def condition_in_tensors(site: Site, torch_name: str, test: ast.expr) -> str:
    """The condition as an expression whose value is a tensor."""
    return ast.unparse(_TensorCondition(torch_name).visit(ast.parse(site.source(test), mode="eval").body))


def is_within(site: Site, test: ast.expr) -> bool:
    """Whether the broken expression is a part of the condition."""
    return site.node is not None and any(node is site.node for node in ast.walk(test))


def _choice(site: Site, torch_name: str, test: ast.expr, yes: ast.expr, no: ast.expr) -> str:
    if isinstance(yes, ast.Tuple) and isinstance(no, ast.Tuple) and len(yes.elts) == len(no.elts):
        return ", ".join(_choice(site, torch_name, test, a, b) for a, b in zip(yes.elts, no.elts))
    return (
        f"{torch_name}.where({condition_in_tensors(site, torch_name, test)}, {_in_source(site, yes)}, "
        f"{_in_source(site, no)})"
    )


def _in_source(site: Site, node: ast.expr) -> str:
    return site.source(node) if hasattr(node, "lineno") else ast.unparse(node)


def _statement(site: Site, torch_name: str, node: ast.If) -> list[Edit] | None:
    after = site.following(node)
    if len(node.body) == 1 and isinstance(node.body[0], ast.Return):
        other = node.orelse[0] if len(node.orelse) == 1 else after if not node.orelse else None
        yes = node.body[0].value
        if not isinstance(other, ast.Return) or yes is None or other.value is None:
            return None
        return [site.replace_through(node, other, f"return {_choice(site, torch_name, node.test, yes, other.value)}")]
    yes_values, no_values = _assignments(node.body), _assignments(node.orelse)
    if yes_values is None or no_values is None or not yes_values:
        return None
    lines = []
    for name in dict.fromkeys((*yes_values, *no_values)):
        before = ast.Name(name, ast.Load())
        lines.append(
            f"{name} = "
            f"{_choice(site, torch_name, node.test, yes_values.get(name, before), no_values.get(name, before))}"
        )
    return [site.replace(node, f"\n{site.indent(node)}".join(lines))]


def _assignments(body: list[ast.stmt]) -> dict[str, ast.expr] | None:
    """What a branch assigns to which variables; None if it does anything else, or if one assignment needs another."""
    values: dict[str, ast.expr] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                pass
            case ast.AugAssign(target=ast.Name(name), op=op, value=value):
                value = ast.BinOp(ast.Name(name, ast.Load()), op, value)
            case ast.Pass():
                continue
            case _:
                return None
        if name in values or any(isinstance(part, ast.Name) and part.id in values for part in ast.walk(value)):
            return None
        values[name] = value
    return values
