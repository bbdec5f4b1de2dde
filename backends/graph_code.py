"""The Python function of a graph, in fewer instructions than torch.fx writes.

torch.fx gives each result a variable and sets that to None after its last use. An instruction of the interpreter costs
a small graph more than it seems: after an operation of torch the processor no longer foretells where it leads. So a
result that the next statement uses, and nothing else, is computed there; a variable that ends with a statement takes
what the statement gives; and parameters, which the caller holds too, are left as they are. The operations run in the
same order, and no result lives longer than before.
"""
from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    import torch

MOST_STATEMENTS: Final = 200
"""A longer graph runs for so long that the time this takes is better saved."""
MOST_NESTED: Final = 20
"""The most results that one expression may hold: Python's own compiler is recursive."""


@dataclass
class _Statement:
    target: str | None
    """None for the return."""
    value: ast.expr
    nested: int = 1
    moved: bool = False
    """Whether the value is computed in the next statement."""


def compact(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """A function that runs the graph as `gm.forward` does, in fewer statements."""
    forward = gm.forward
    if (
        not isinstance(forward, MethodType)
        or not isinstance(forward.__func__, FunctionType)
        or len(gm.graph.nodes) > 2 * MOST_STATEMENTS
    ):
        return forward
    definition = ast.parse(gm.code).body[-1]
    if not isinstance(definition, ast.FunctionDef):
        return forward
    statements = _statements(definition)
    if statements is None or len(statements) > MOST_STATEMENTS:
        return forward
    last_use = {name: i for i, statement in enumerate(statements) for name in _names(statement.value)}
    ending: list[list[str]] = [[] for _ in statements]
    for statement in statements:
        if statement.target is not None and statement.target in last_use:
            ending[last_use[statement.target]].append(statement.target)
    _move(statements, ending)
    definition.body = [*_written(statements, ending, last_use)]
    code = compile(ast.Module([definition], []), forward.__code__.co_filename, "exec")
    function = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return MethodType(FunctionType(function, forward.__func__.__globals__), forward.__self__)


def _statements(definition: ast.FunctionDef) -> list[_Statement] | None:
    """What the function computes, without what it forgets; None if it has another form than torch.fx's."""
    found, known = list[_Statement](), {argument.arg for argument in definition.args.args}
    if definition.args.vararg or definition.args.kwarg or definition.args.kwonlyargs:
        return None
    for node in definition.body:
        match node:
            case ast.Return(ast.expr() as value):
                found.append(_Statement(None, value))
            case ast.Assign([*targets], ast.Constant(None)) if all(
                isinstance(target, ast.Name) and target.id in known for target in targets
            ):
                pass
            case ast.Assign([ast.Name(name)], value) if name not in known:
                found.append(_Statement(name, value))
                known.add(name)
            case _:
                return None
    return found if found and [statement.target is None for statement in found].index(True) == len(found) - 1 else None


def _names(value: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(value) if isinstance(node, ast.Name))


# ---- moving a result to where it is used
# ------------------------------------------------------------------------------------------------------
class _Put(ast.NodeTransformer):
    """Puts an expression in the place of a variable."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._value if node.id == self._name else node


def _move(statements: list[_Statement], ending: list[list[str]]) -> None:
    uses = Counter(name for statement in statements for name in _names(statement.value))
    for i, (statement, following) in enumerate(zip(statements, statements[1:])):
        name = statement.target
        # what ends in the statement would live until the next one is done
        if (
            name is None
            or uses[name] != 1
            or ending[i]
            or statement.nested >= MOST_NESTED
            or _comes_first(name, following.value) is not True
        ):
            continue
        following.value = _Put(name, statement.value).visit(following.value)
        following.nested += statement.nested
        statement.moved = True
        ending[i + 1].remove(name)


def _comes_first(name: str, value: ast.expr, called: bool = False) -> bool | None:
    """Whether a variable is read before anything is computed in an expression; None if neither is. `called`: it says
    what is called."""
    match value:
        case ast.Name():
            return True if value.id == name else None
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return None
        case ast.Tuple() | ast.List():
            return _first(name, value.elts, None)
        case ast.Slice():
            return _first(name, [part for part in (value.lower, value.upper, value.step) if part is not None], None)
        case ast.Attribute():
            found = _comes_first(name, value.value, called)
            return found if found or called else False
        case ast.Call():
            found = _comes_first(name, value.func, called=True)
            return (
                _first(name, [*value.args, *(keyword.value for keyword in value.keywords)], False)
                if found is None
                else found
            )
        case ast.BinOp():
            return _first(name, [value.left, value.right], False)
        case ast.Subscript():
            return _first(name, [value.value, value.slice], False)
        case _:
            return False


def _first(name: str, parts: list[ast.expr], otherwise: bool | None) -> bool | None:
    for part in parts:
        found = _comes_first(name, part)
        if found is not None:
            return found
    return otherwise


# ---- writing it down
# ----------------------------------------------------------------------------------------------------------------------
class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node


def _written(statements: list[_Statement], ending: list[list[str]], last_use: dict[str, int]) -> Iterator[ast.stmt]:
    renamed = dict[str, str]()
    for statement, ends in zip(statements, ending):
        if statement.moved:
            continue
        value: ast.expr = _Rename(renamed).visit(statement.value)
        free = [renamed.get(name, name) for name in ends]
        if statement.target is None:
            yield _at(value, ast.Return(value))
            continue
        if statement.target not in last_use:
            yield _at(value, ast.Expr(value))
        else:
            name = renamed[statement.target] = free.pop(0) if free else statement.target
            yield _at(value, ast.Assign([ast.Name(name, ast.Store())], value))
        if free:
            yield _at(value, ast.Assign([ast.Name(name, ast.Store()) for name in free], ast.Constant(None)))


def _at(place: ast.expr, statement: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(statement, place))
