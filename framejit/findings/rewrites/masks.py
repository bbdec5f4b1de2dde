"""`x[mask].sum()`: the shape of a selection depends on the data, that of torch.where does not."""
from __future__ import annotations

import ast

from framejit.findings.rewrites.rule import rewrites
from framejit.findings.rewrites.site import Edit, Site


@rewrites("FJ102")
def sum_of_a_selection(site: Site) -> list[Edit] | None:
    torch_name = site.module_name("torch")
    if torch_name is None or site.node is None:
        return None
    for node in site.ancestors(site.node):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript(value=tensor, slice=mask) as selection, attr="sum"),
                args=[],
                keywords=[],
            ):
                return [site.replace(selection, f"{torch_name}.where({site.source(mask)}, {site.source(tensor)}, 0)")]
    return None
