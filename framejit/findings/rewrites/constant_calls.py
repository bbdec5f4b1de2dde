"""Calls that give the same for the same arguments (parsing a text, looking at a path): declared as constant, they run
once, while compiling."""
from __future__ import annotations

import ast

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site

# What differs from call to call, or is called for its effect.
_NOT_CONSTANT = frozenset(
    (
        "time", "random", "secrets", "uuid", "datetime", "logging", "warnings", "socket", "subprocess", "shutil",
        "sys", "gc", "threading",
    )
)


@rewrites("FJ110", "FJ111", "FJ116", "FJ121", "FJ118")
def assume_constant(site: Site) -> list[Edit] | None:
    assert site.node is not None
    call = next((node for node in site.ancestors(site.node) if isinstance(node, ast.Call)), None)
    top = site.top_level()
    if call is None or top is None or not isinstance(call.func, ast.Attribute):
        return None
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in _NOT_CONSTANT or site.module_name(root.id) is None:
        return None
    called = site.source(call.func)
    name = "_" + called.replace(".", "_")
    helper = f"@framejit.assume_constant\ndef {name}(*args, **kwargs):\n    return {called}(*args, **kwargs)\n\n\n"
    if site.module_name("framejit") is None:
        helper = f"import framejit\n\n\n{helper}"
    return [site.insert_before(top, helper), site.replace(call.func, name)]
