"""numpy on tensors: torch's own functions of the same meaning, on the tensors themselves."""
from __future__ import annotations

import ast
import copy

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site

_SAME = frozenset(
    """
    abs sqrt exp log log2 log10 log1p expm1 sin cos tan tanh sinh cosh floor ceil sign square maximum minimum where
    sum mean prod cumsum clip stack argmax argmin matmul dot outer zeros_like ones_like
""".split()
)
_OTHER_NAME = {
    "concatenate": "cat", "power": "pow", "absolute": "abs", "arctan": "atan", "arcsin": "asin", "arccos": "acos",
}
_TO_ARRAY = ("array", "asarray", "ascontiguousarray")
_TO_TENSOR = ("from_numpy", "as_tensor", "tensor")


class _InTorch(ast.NodeTransformer):
    """numpy's functions as torch's, and no more conversions between the two."""

    def __init__(self, numpy_name: str, torch_name: str) -> None:
        self.numpy_name, self.torch_name = numpy_name, torch_name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=tensor, attr="numpy"), args=[]):
                return tensor
            case ast.Call(func=ast.Attribute(value=ast.Name(module), attr=name), args=[array]) if (
                module == self.numpy_name and name in _TO_ARRAY
            ):
                return array
            case ast.Call(func=ast.Attribute(value=ast.Name(module), attr=name), args=[array]) if (
                module == self.torch_name and name in _TO_TENSOR
            ):
                return array
            case ast.Call(func=ast.Attribute(value=ast.Name(module), attr=name)) if module == self.numpy_name:
                name = _OTHER_NAME.get(name, name if name in _SAME else "")
                if name:
                    node.func = ast.Attribute(ast.Name(self.torch_name, ast.Load()), name, ast.Load())
        return node


@rewrites("FJ105", "FJ120")
def in_torch(site: Site) -> list[Edit] | None:
    numpy_name, torch_name, function = site.module_name("numpy") or "", site.module_name("torch"), site.function()
    if torch_name is None or not isinstance(function, ast.FunctionDef):
        return None
    edits = []
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            changed = ast.unparse(_InTorch(numpy_name, torch_name).visit(copy.deepcopy(node)))
            if changed != ast.unparse(node):
                edits.append(site.replace(node, changed))
    return edits or None
