"""Parameters of a program's function, and the arguments of each call: sizes, dtypes, layouts, aliases and numbers that
change."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.attack.generator.builder import BOOL, INT, STR, WORDS, Builder, Kind, Param, list_of, tensor_kind

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")
LAYOUTS = (
    "", "", ".t().contiguous().t()", "[:, ::1]", "{wide}[:, 1:]", "{tall}[::2]", "{one}.expand({rows}, {columns})",
    "{tall}[1:][:{rows}]", "{flat}[3:].view({rows}, {columns})", ".detach()", "{flat}[:-3].view({rows}, {columns})",
)


@dataclass
class Situation:
    """What a call looks like; most calls differ from the usual one in little."""

    rows: int = 3
    columns: int = 4
    dtype: str = "float32"
    layout: str = ""
    grad: bool = False
    modes: list[str] = field(default_factory=list)
    n: int = 2
    flag: bool = True
    word: str = "a"
    alias: str = ""
    defaults: bool = False
    by_name: bool = False
    length: int = 2
    base: str = "torch.randn({rows}, {columns})"

    def tensor(self, b: Builder, rank: int, plain: bool = False) -> str:
        rows, columns = self.rows, self.columns
        dtype = "float32" if plain else self.dtype
        if dtype in ("int64", "int32", "uint8", "bool"):
            made = "torch.randint(0, 4, ({0})).to(torch." + dtype + ")"
        elif dtype in ("float16", "bfloat16", "float64", "complex64"):
            made = "torch.randn({0}).to(torch." + dtype + ")"
        else:
            made = "torch.randn({0})"
        if rank == 1:
            text = made.format(f"{columns}," if "randint" in made else columns)
        elif rank == 3:
            text = made.format(f"2, {rows}, {columns}")
        elif not self.layout or plain:
            text = made.format(f"{rows}, {columns}")
        elif self.layout.startswith("{"):
            parts = {
                "wide": made.format(f"{rows}, {columns + 1}"), "tall": made.format(f"{2 * rows}, {columns}"),
                "one": made.format(f"1, {columns}"),
                "flat": made.format(f"{rows * columns + 3},".rstrip("," if "randint" not in made else "")),
            }
            text = self.layout.format(rows=rows, columns=columns, **parts)
        else:
            text = made.format(f"{rows}, {columns}") + self.layout
        if self.grad and dtype in ("float32", "float64", "float16", "bfloat16", "complex64"):
            view = "expand" in text or "[" in text
            text += b.choice(".clone()", ".detach()") * view + ".requires_grad_()"
        return text


def parameters(b: Builder) -> list[Param]:
    """One to three tensors, and some of everything else."""
    last = "4" if b.fixed else "D"
    found = [Param("x", tensor_kind("B", last), lambda s: s.tensor(b, 2))]
    if b.chance(0.75):
        found.append(Param("y", tensor_kind("B", last), lambda s: s.alias or s.tensor(b, 2)))
    if b.chance(0.3):
        found.append(
            Param(
                "z",
                *b.rng.choice([
                    (tensor_kind(last), lambda s: s.tensor(b, 1)),
                    (tensor_kind("2", "B", last), lambda s: s.tensor(b, 3)),
                    (tensor_kind(), lambda s: "torch.tensor(1.5)"),
                ]),
            )
        )
    others = [
        Param("n", INT, lambda s: str(s.n), "2"),
        Param("flag", BOOL, lambda s: str(s.flag), "True"),
        Param("mode", STR, lambda s: repr(s.word), "'a'"),
        Param(
            "items",
            list_of(tensor_kind("B", last)),
            lambda s: (
                "["
                + ", ".join(["x", s.tensor(b, 2, plain=True), "x * 2" if not s.grad else "x", "x"][: s.length])
                + "]"
            ),
        ),
        Param(
            "table",
            Kind("dict"),
            lambda s: "{" + ", ".join([f"{s.word!r}: x", f"'b': {s.n}", "'key': x", f"{s.n}: 'n'"][: s.length]) + "}",
        ),
        Param(
            "scale", Kind("float"),
            lambda s: b.rng.choice(["0.5", "0.5", "1.5", "2", "float('nan')", "-0.0", str(s.n)]), "0.5",
        ),
        Param(
            "pair",
            list_of(tensor_kind("B", last), "tuple"),
            lambda s: b.rng.choice(
                ["(x, x)", "(x, y)" if any(p.name == "y" for p in found) else "(x, x * 1)", "(x, x.detach())"]
            ),
        ),
        Param("nested", Kind("nested"), lambda s: f"[[x, {s.n}], {{'a': x}}]"),
        Param(
            "it",
            Kind("iterator"),
            lambda s: b.rng.choice([
                "iter([x, x + 1, 2])", "zip([1, 2, 3], [x, x, x])", "(x * i for i in range(3))",
                "iter({'a': x}.items())", "map(torch.sin, [x, x])", "iter(range(4))",
            ]),
        ),
        Param("numbers", list_of(INT), lambda s: b.rng.choice(["[1, 2, 3]", "[1, 2]", f"[{s.n}, 3, 1]"])),
        Param("maybe", Kind("any"), lambda s: b.rng.choice(["None", "None", "x", "1"]), "None"),
        Param("seen", Kind("set"), lambda s: b.rng.choice(["{1, 2}", "{'a', 1}", f"{{{s.n}, 'b'}}", "set()"])),
        Param(
            "queue",
            Kind("deque"),
            lambda s: b.rng.choice([
                "collections.deque([1, 2, 3], maxlen=3)",
                "collections.deque([x, 1])",
                f"collections.deque(range({s.n}))",
            ]),
        ),
    ]
    for param in b.rng.sample(others, b.rng.randint(0, 3)):
        found.append(param if param.default is None or b.chance(0.7) else replace(param, default=None))
    found.sort(key=lambda p: p.default is not None)
    return found


def situations(b: Builder, calls: int) -> list[Situation]:
    usual = Situation(
        rows=b.rng.choice([3, 3, 2, 4, 1, 8]), columns=4 if b.fixed else b.rng.choice([4, 4, 3, 2, 5, 16]),
        grad=b.uses_grad, n=b.rng.randint(0, 3), word=b.rng.choice(WORDS),
    )
    found = []
    for i in range(calls):
        s = replace(usual, modes=list(usual.modes))
        for _ in range(0 if i == 0 else b.rng.choice([0, 1, 1, 2, 3])):
            kind = b.rng.choice([
                "rows", "rows", "columns", "dtype", "layout", "grad", "mode", "n", "n", "flag", "word", "alias",
                "defaults", "by_name", "length", "both", "zero",
            ])
            if kind == "rows":
                s.rows = b.rng.choice([1, 2, 3, 5, 6, 7])
            elif kind == "columns" and not b.fixed:
                s.columns = b.rng.choice([1, 2, 3, 5, 6])
            elif kind == "dtype":
                s.dtype = b.rng.choice(DTYPES)
            elif kind == "layout":
                s.layout = b.rng.choice(LAYOUTS)
            elif kind == "grad":
                s.grad = not s.grad
            elif kind == "mode":
                s.modes = [
                    b.rng.choice([
                        "torch.no_grad()", "torch.inference_mode()",
                        "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.enable_grad()",
                        "default_dtype(torch.float64)",
                    ])
                ]
            elif kind == "n":
                s.n = b.rng.randint(0, 6)
            elif kind == "flag":
                s.flag = not s.flag
            elif kind == "word":
                s.word = b.rng.choice(WORDS)
            elif kind == "alias":
                s.alias = b.rng.choice([
                    "x", "x", "x.detach()", "x[:]", "x.view_as(x)", "x.clone()", "x.flip(0)", "x.data",
                    "x.detach()[:, :1].expand_as(x)",
                ])
            elif kind == "defaults":
                s.defaults = True
            elif kind == "by_name":
                s.by_name = True
            elif kind == "length":
                s.length = b.rng.randint(0, 4)
            elif kind == "zero":
                s.rows = b.rng.choice([0, 1])
            elif not b.fixed:
                s.rows, s.columns = b.rng.choice([(4, 3), (3, 3), (1, 1), (6, 2), (2, 6)])
        found.append(s)
        if b.chance(0.15):
            usual = s  # stays so
    return found


def call(b: Builder, i: int, s: Situation) -> str:
    """The text of one call: what changes before it, its arguments, the modes around it."""
    lines = [f"def call_{i}(invoke):"]
    if i and b.changes and b.chance(0.35):
        change = b.rng.choice(b.changes)()
        name = change.split(" ")[0]
        if name.isidentifier() and change.startswith(f"{name} = "):
            lines.append(f"    global {name}")
        lines.append(f"    {change}")
    texts = []
    modes = [f"    with {', '.join(s.modes)}:"] if s.modes else []
    indent = "        " if modes else "    "
    inside = bool(modes) and "inference" in modes[0] and b.chance(0.5)
    made = []
    for p in b.params:
        if p.kind.name == "tensor":
            made.append(f"{p.name} = {p.make(s)}")
    lines += [] if inside else [f"    {line}" for line in made]
    lines += modes + ([f"        {line}" for line in made] if inside else [])
    for p in b.params:
        if p.default is not None and s.defaults:
            continue
        value = p.name if p.kind.name == "tensor" else p.make(s)
        by_name = texts and (
            "=" in texts[-1].split("(")[0] and texts[-1].split("=")[0].isidentifier() or s.by_name and b.chance(0.6)
        )
        texts.append(f"{p.name}={value}" if by_name else value)
    lines.append(f"{indent}return invoke({', '.join(texts)})")
    return "\n".join(lines)
