"""print, logging and warnings: the output is left out of compiled code, and stays where the function runs as it is."""
from __future__ import annotations

import ast

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site

_LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log", "warn")


@rewrites("FJ126", "FJ101", "FJ125", "FJ121", "FJ116")
def not_while_compiling(site: Site) -> list[Edit] | None:
    statement, torch_name = site.statement(), site.module_name("torch")
    if torch_name is None or not isinstance(statement, ast.Expr) or not _is_output(statement.value):
        return None
    indent = site.indent(statement)
    text = site.source(statement).replace("\n", "\n    ")
    return [site.replace(statement, f"if not {torch_name}.compiler.is_compiling():\n{indent}    {text}")]


def _is_output(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name("print")):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in _LEVELS:
            return True
    return False
