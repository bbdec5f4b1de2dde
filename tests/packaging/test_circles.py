"""Files that import each other in a loop, also by imports inside of functions: none but those that are declared here,
each for a reason."""
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

DECLARED = [
    # a kernel's script for one who looks into it runs the backend anew
    {
        "framejit.backends.fuse.account.artifacts",
        "framejit.backends.fuse.account.graph_script",
        "framejit.backends.fuse.backend", "framejit.backends.fuse.selecting",
    },
    # a backend for torch.compile looks up by name which one of ours it is to be
    {"framejit.backends.registry", "framejit.backends.torch_backends"},
]


def modules() -> dict[str, Path]:
    found = {}
    for folder in ("framejit", "guards", "backends"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if folder == "framejit" else ("framejit", *parts)).removesuffix(".__init__")
            found[name] = path
    return {**found, "framejit._native": None}


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """What a file imports when it runs: not what only type checkers read."""

    def look(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    yield whole if whole in known else str(child.module)
            elif isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            yield from look(child)

    return (target for target in look(ast.parse(path.read_text())) if target in known and target != name)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of more than one file each of which leads to every other."""

    def reach(start: str, arrows: dict[str, set[str]]) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for target in arrows[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    backwards: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backwards[target].add(name)
    found, done = [], set()
    for name in graph:
        if name not in done:
            circle = (reach(name, graph) & reach(name, backwards)) | {name}
            done |= circle
            if len(circle) > 1:
                found.append(circle)
    return found


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_found():
    known = modules()
    found = set(imports("framejit.dispatchers", known["framejit.dispatchers"], known))
    # the last one stands inside of a function
    assert found >= {"framejit.options", "framejit._native", "framejit.capture.miss"}
    assert "framejit.values.context" not in set(imports("framejit.values.base", known["framejit.values.base"], known))


def test_no_circle_is_undeclared():
    known = modules()
    graph = {name: set() if path is None else set(imports(name, path, known)) for name, path in known.items()}
    for circle in circles(graph):
        assert any(
            all(name in allowed or any(name.startswith(f"{room}.") for room in allowed) for name in circle)
            for allowed in DECLARED
        ), sorted(circle)
