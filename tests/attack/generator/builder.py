"""Writes a program down statement by statement, and knows which variables stand there and what they hold."""
from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace


class NoFit(Exception):
    """A statement has no use for the variables there are; another is tried."""


@dataclass(frozen=True)
class Kind:
    """What a variable holds, as far as a statement must know to make sense most of the time."""

    name: str
    shape: tuple[str, ...] = ()  # names of sizes; equal names are equal sizes, whatever they are in a call
    dtype: str = "f"  # f, i, b, c: any float, integer, bool or complex type
    of: Kind | None = None  # what a container holds
    cls: str = ""  # class of an object
    fresh: bool = False  # made inside: writing into it disturbs nobody
    dense: bool = True  # no two elements share memory


INT, FLOAT, BOOL, STR = Kind("int"), Kind("float"), Kind("bool"), Kind("str")
SCALAR = Kind("tensor", ())


def tensor_kind(*shape: str, dtype: str = "f") -> Kind:
    return Kind("tensor", shape, dtype)


def list_of(kind: Kind, name: str = "list") -> Kind:
    return Kind(name, of=kind)


@dataclass
class Var:
    name: str
    kind: Kind


@dataclass
class Param:
    """A parameter of the program's function: `make(situation)` writes the argument of a call."""

    name: str
    kind: Kind
    make: Callable[..., str]
    default: str | None = None


@dataclass
class Builder:
    rng: random.Random
    families: dict[str, list[Callable[[Builder], None]]]
    definitions: list[str] = field(default_factory=list)  # text of the module above the function
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    variables: list[Var] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    changes: list[Callable[[], str]] = field(default_factory=list)  # statements that a call may be preceded by
    numbers: dict[str, int] = field(default_factory=dict)
    loops: int = 0
    budget: int = 20
    fixed: bool = False  # sizes that a module's weights need
    uses_grad: bool = False
    in_function: str = "fn"

    # ---- chance ----
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choice(self, *options: str) -> str:
        return self.rng.choice(options)

    def fresh(self, prefix: str) -> str:
        self.numbers[prefix] = number = self.numbers.get(prefix, 0) + 1
        return f"{prefix}{number}"

    # ---- text ----
    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def define(self, text: str) -> None:
        self.definitions.append(text.strip("\n"))

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; what it defines is unknown after it, since it may not have run."""
        self.emit(header)
        known, start = list(self.variables), len(self.lines)
        self.depth += 1
        yield
        if len(self.lines) == start:
            self.emit("pass")
        self.depth -= 1
        self.variables[:] = known

    def let(self, expression: str, kind: Kind, prefix: str = "", again: float = 0.15) -> Var:
        """Assigns to a new name; sometimes to one that held the same kind."""
        old = [v for v in self.variables if v.kind == kind and v.name not in {p.name for p in self.params}]
        name = (
            self.rng.choice(old).name
            if old and not prefix and self.chance(again)
            else self.fresh(prefix or PREFIXES.get(kind.name, "v"))
        )
        self.emit(f"{name} = {expression}")
        var = Var(name, kind)
        self.variables = [v for v in self.variables if v.name != name] + [var]
        return var

    def know(self, name: str, kind: Kind) -> Var:
        var = Var(name, kind)
        self.variables.append(var)
        return var

    def forget(self, name: str) -> None:
        self.variables = [v for v in self.variables if v.name != name]

    # ---- variables ----
    def all(self, name: str) -> list[Var]:
        return [v for v in self.variables if v.kind.name == name]

    def pick(self, name: str) -> Var:
        return self.one(self.all(name))

    def one(self, found: list[Var]) -> Var:
        """One of these, more often a late one."""
        if not found:
            raise NoFit
        return self.rng.choice(found[-4:] if self.chance(0.6) else found)

    def tensor(self, rank: int = 0, dtypes: str = "f", like: Var | None = None) -> Var:
        """A tensor of at least this rank; with `like`, of the same shape."""
        found = [v for v in self.all("tensor") if len(v.kind.shape) >= rank and v.kind.dtype in dtypes]
        if like is not None:
            found = [v for v in found if v.kind.shape == like.kind.shape]
        return self.one(found)

    def other(self, like: Var) -> str:
        """Something that can be computed with elementwise: a tensor of the shape, a scalar of torch or a number."""
        kinds = [
            v
            for v in self.all("tensor")
            if v.kind.dtype in "fi" and v.kind.shape in (like.kind.shape, like.kind.shape[-1:], ())
        ]
        return self.one(kinds).name if kinds and self.chance(0.65) else self.number()

    def number(self) -> str:
        """A number: a literal, an int, a size, a property of a tensor."""
        options = [self.rng.choice(["2", "0.5", "-1", "3", "1.5", "0.25", "-2.0"])]
        for v in self.variables:
            if v.kind.name in ("int", "float"):
                options.append(v.name)
        sized = [v for v in self.all("tensor") if v.kind.shape]
        if sized:
            v = self.rng.choice(sized)
            options.append(
                self.rng.choice([
                    f"{v.name}.shape[{self.rng.randrange(len(v.kind.shape))}]", f"{v.name}.dim()",
                    f"len({v.name})", f"{v.name}.size(-1)",
                ])
            )
        return self.rng.choice(options)

    def integer(self) -> str:
        ints = [v.name for v in self.all("int")]
        return self.rng.choice(ints) if ints and self.chance(0.6) else str(self.rng.randint(0, 3))

    def condition(self) -> str:
        """A truth value, of data, sizes, ints, strings, types or identities."""
        r, options = self.rng, ["True"]
        tensors = self.all("tensor")
        if tensors:
            v, w = r.choice(tensors), r.choice(tensors)
            options += [
                f"{v.name}.dim() > {r.randint(0, 2)}", f"{v.name} is {w.name}", f"{v.name}.dtype == torch.float32",
                f"{v.name}.requires_grad",
            ]
            options += [
                f"{v.name}.is_contiguous()", f"{v.name}.shape == {w.name}.shape",
                f"{v.name}.numel() > {r.randint(1, 12)}", "torch.is_grad_enabled()",
            ]
            if v.kind.dtype in "fi" and r.random() < 0.4:  # on data: a graph break
                options += [
                    f"{v.name}.sum() > 0",
                    f"bool(({v.name} > 0).any())",
                    f"{v.name}.sum().item() > {r.randint(-1, 2)}",
                ]
        for v in self.all("int"):
            options += [f"{v.name} > {r.randint(0, 4)}", f"{v.name} % 2 == 0", f"{v.name} == {r.randint(0, 4)}"]
        for v in self.all("bool"):
            options += [v.name, f"not {v.name}"]
        for v in self.all("str"):
            options += [f"{v.name} == {r.choice(WORDS)!r}", f"len({v.name}) > 2", f"{v.name}.startswith('a')"]
        for v in self.all("list") + self.all("tuple") + self.all("dict"):
            options += [f"{v.name}", f"len({v.name}) > {r.randint(0, 3)}"]
        return r.choice(options)

    # ---- statements ----
    def statement(self) -> None:
        """One statement of some family that finds what it needs."""
        for _ in range(12):
            self.budget -= 1
            family = self.rng.choice(list(self.families))
            text, lines, variables, depth, loops, function = (
                self.lines, len(self.lines), list(self.variables), self.depth, self.loops, self.in_function,
            )
            try:
                self.rng.choice(self.families[family])(self)
                return
            except NoFit:
                del text[lines:]
                self.lines, self.variables, self.depth, self.loops, self.in_function = (
                    text, variables, depth, loops, function,
                )

    def statements(self, most: int) -> None:
        for _ in range(self.rng.randint(1, max(1, most))):
            if self.budget > 0:
                self.statement()

    @contextlib.contextmanager
    def function(self, header: str, inner: bool) -> Iterator[list[str]]:
        """The body of another function; an inner one sees the variables, one of the module does not. Yields its
        lines."""
        lines, depth, variables, loops = self.lines, self.depth, self.variables, self.loops
        self.lines, self.variables, self.loops = [], list(variables) if inner else [], 0
        self.depth = depth if inner else 0
        self.emit(header)
        self.depth += 1
        yield self.lines
        text, self.lines, self.depth, self.variables, self.loops = self.lines, lines, depth, variables, loops
        if inner:
            self.lines += text
        else:
            self.define("\n".join(text))

    def renamed(self, kind: Kind, **changes: object) -> Kind:
        return replace(kind, **changes)  # type: ignore[arg-type]


PREFIXES = {
    "tensor": "t", "int": "n", "float": "f", "bool": "flag", "str": "s", "list": "items", "tuple": "pair",
    "dict": "table", "set": "seen",
}
WORDS = ["a", "b", "add", "mul", "relu", "key"]
