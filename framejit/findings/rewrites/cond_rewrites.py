"""`if` on a tensor whose branches are more than torch.where can choose between: torch.cond runs one of two
functions."""
from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from framejit.findings.rewrites.branches import condition_in_tensors, is_within, where
from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site

_TRUE, _FALSE = "if_true", "if_false"
_ELSEWHERE = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)
"""What means something else in a function of its own."""
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass)


@rewrites("FJ101", "FJ106")
def run_one_of_two(site: Site) -> list[Edit] | None:
    """The branches become functions of the variables they assign that have a value before; what else they read they
    find in the enclosing function."""
    torch_name, function = site.module_name("torch"), site.function()
    statement = site.statement()
    if (
        torch_name is None
        or not isinstance(statement, ast.If)
        or not isinstance(function, ast.FunctionDef)
        or not is_within(site, statement.test)
    ):
        return None
    if site.source(statement).startswith("elif") or any(isinstance(node, _ELSEWHERE) for node in ast.walk(function)):
        return None
    if where(site) or {_TRUE, _FALSE} & {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}:
        return None
    test = condition_in_tensors(site, torch_name, statement.test)
    return _returning(site, torch_name, statement, test) or _assigning(site, torch_name, function, statement, test)


def _returning(site: Site, torch_name: str, statement: ast.If, test: str) -> list[Edit] | None:
    """The rewrite where both branches end in a return; the second may be what follows."""
    last = site.following(statement)
    no = statement.orelse or ([last] if isinstance(last, ast.Return) else [])
    if not _ends_in_return(statement.body) or not _ends_in_return(no):
        return None
    names = sorted((_assigned(statement.body) | _assigned(no)) & _assigned_before(site, statement))
    text = [
        *_function(site, statement, _TRUE, names, statement.body, ""),
        *_function(site, statement, _FALSE, names, no, ""),
    ]
    text.append(f"return {torch_name}.cond({test}, {_TRUE}, {_FALSE}, {_tuple(names)})")
    return [site.replace_through(statement, no[-1], _indented(site, statement, text))]


def _assigning(
    site: Site, torch_name: str, function: ast.FunctionDef, statement: ast.If, test: str
) -> list[Edit] | None:
    """The rewrite where both branches assign variables; those that are used afterwards are returned."""
    if not all(isinstance(part, _SIMPLE) for part in (*statement.body, *statement.orelse)):
        return None
    yes, no, before = _assigned(statement.body), _assigned(statement.orelse), _assigned_before(site, statement)
    used = _read_outside(function, statement)
    results, names = sorted((yes | no) & used), sorted((yes | no) & before)
    if not results or any(name not in before and not (name in yes and name in no) for name in results):
        return None
    text = []
    for name, body, assigned in ((_TRUE, statement.body, yes), (_FALSE, statement.orelse, no)):
        # torch.cond gives back no operand as it is
        values = [result if result in assigned else f"{result}.clone()" for result in results]
        text += _function(
            site, statement, name, names, body, f"return {_tuple(values) if len(values) > 1 else values[0]}"
        )
    text.append(f"{', '.join(results)} = {torch_name}.cond({test}, {_TRUE}, {_FALSE}, {_tuple(names)})")
    return [site.replace(statement, _indented(site, statement, text))]


def _function(site: Site, statement: ast.If, name: str, names: list[str], body: list[ast.stmt], end: str) -> list[str]:
    lines = [f"def {name}({', '.join(names)}):"]
    for part in body:
        if not isinstance(part, ast.Pass):
            text = textwrap.dedent(site.indent(part) + site.source(part))
            lines += [f"    {line}" if line else "" for line in text.splitlines()]
    return [*lines, *([f"    {end}"] if end else []), ""]


def _indented(site: Site, statement: ast.If, lines: list[str]) -> str:
    indent = site.indent(statement)
    return "\n".join(f"{indent}{line}" if line else "" for line in lines).lstrip()


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _ends_in_return(body: list[ast.stmt]) -> bool:
    match body:
        case [*others, ast.Return(value=ast.expr())]:
            return all(isinstance(part, _SIMPLE) for part in others)
    return False


def _assigned(body: list[ast.stmt]) -> set[str]:
    return {node.id for node in _walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _assigned_before(site: Site, statement: ast.If) -> set[str]:
    """Parameters, and what statements above assign."""
    function = site.function()
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    found = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return found | {
        n.id
        for n in _walk(function.body)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.lineno < statement.lineno
    }


def _read_outside(function: ast.FunctionDef, statement: ast.If) -> set[str]:
    """The variables that the function reads anywhere but in the statement."""
    inside = set(ast.walk(statement))
    return {
        node.id
        for node in _walk(function.body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside
    }


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for part in body:
        yield from ast.walk(part)
