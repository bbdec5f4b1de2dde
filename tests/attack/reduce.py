"""Makes a program small that differs: takes away calls, statements and parts of expressions while the difference
stays."""
from __future__ import annotations

import ast
import copy
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.attack.compare import Difference, compare
from tests.attack.generator.program import Program

Edit = Callable[[], None]


def reduced(
    program: Program, signature: str, seconds: float = 120, run: Callable[[Program], Difference | None] = compare
) -> Program:
    """A program with less text that shows the same difference (`Difference.signature`)."""

    def fails(text: str) -> bool:
        try:
            found = run(replace(program, text=text))
        except Exception:
            return False
        return found is not None and found.signature == signature

    tree = ast.parse(program.text)
    best = ast.unparse(tree)
    if not fails(best):
        return program
    changed, end = True, time.monotonic() + seconds
    while changed and time.monotonic() < end:
        changed = False
        position = 0
        while time.monotonic() < end:
            tree = ast.parse(best)
            edits = list(candidates(tree))
            if position >= len(edits):
                break
            edits[position]()
            try:
                text = ast.unparse(ast.fix_missing_locations(tree))
                compile(text, "reduced", "exec")
            except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError):
                position += 1
                continue
            if len(text) < len(best) and fails(text):
                best, changed = text, True
                if sys.stderr.isatty():
                    print(f"\r{len(best)} characters ", end="", file=sys.stderr)
            else:
                position += 1
    return replace(program, text=best)


def candidates(tree: ast.Module) -> Iterator[Edit]:
    """Changes to the tree that make it smaller, the largest first."""
    bodies = [
        (getattr(node, name), name)
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody", "handlers")
        if isinstance(getattr(node, name, None), list)
    ]
    statements = [(body, i) for body, _ in bodies for i in range(len(body))]
    halves = [
        (body, half)
        for body, name in bodies
        if len(body) > 5
        for half in (slice(0, len(body) // 2), slice(len(body) // 2, None))
    ]
    for body, half in halves:
        yield lambda body=body, half=half: body.__delitem__(half)
    for body, i in sorted(statements, key=lambda item: -len(ast.dump(item[0][item[1]]))):
        statement = body[i]
        yield lambda body=body, i=i: remove(body, i)
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and inner and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                yield lambda body=body, i=i, inner=inner: body.__setitem__(slice(i, i + 1), inner)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments) and node.args:
            for i in range(len(node.args)):
                yield lambda node=node, i=i: drop_parameter(node, i)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                for inner in ast.iter_child_nodes(value):
                    if isinstance(inner, ast.expr):
                        yield lambda node=node, name=name, inner=inner: setattr(node, name, copy.deepcopy(inner))
            elif isinstance(value, list) and value and isinstance(value[0], (ast.expr, ast.keyword)):
                for i, item in enumerate(value):
                    yield lambda value=value, i=i: value.__delitem__(i)
                    for inner in ast.iter_child_nodes(item):
                        if isinstance(inner, ast.expr):
                            yield lambda value=value, i=i, inner=inner: value.__setitem__(i, copy.deepcopy(inner))


def remove(body: list[ast.stmt], i: int) -> None:
    del body[i]
    if not body:
        body.append(ast.Pass())


def drop_parameter(node: ast.arguments, i: int) -> None:
    if len(node.args) - i <= len(node.defaults):
        del node.defaults[i - (len(node.args) - len(node.defaults))]
    del node.args[i]
