"""Writing LLVM instructions as text: values, basic blocks, and the module they belong to."""
from __future__ import annotations

from dataclasses import dataclass, field

from framejit.backends.fuse.llvm.size_parameters import register_of
from framejit.backends.fuse.llvm.types import BITS, float_text
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize


@dataclass(frozen=True, slots=True)
class Value:
    """A register or literal: a scalar if `lanes` is 1, else a vector of so many of `type`."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full_type(self) -> str:
        return vector_type(self.type, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.type in ("float", "double", "half")

    @property
    def bits(self) -> int:
        return BITS[self.type]

    def __str__(self) -> str:
        return f"{self.full_type} {self.text}"


def vector_type(type: str, lanes: int) -> str:
    """The type of `lanes` values."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def suffix(type: str, lanes: int) -> str:
    """How the names of intrinsics spell a type."""
    name = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(type, type)
    return name if lanes == 1 else f"v{lanes}{name}"


def integer(value: int, type: str = "i64", lanes: int = 1) -> Value:
    """An integer literal, in every lane; for a size that is not known, the register that has it."""
    if isinstance(value, SymbolicSize):
        return Value(register_of(value, type, lanes), type, lanes)
    return Value(str(value) if lanes == 1 else f"splat ({type} {value})", type, lanes)


def floating(value: float, type: str, lanes: int = 1) -> Value:
    """A literal of `float` or `double`, in every lane."""
    text = float_text(value, type)
    return Value(text if lanes == 1 else f"splat ({type} {text})", type, lanes)


def truth(value: bool, lanes: int = 1) -> Value:
    """A literal of type i1, in every lane."""
    return Value(
        ("true" if value else "false") if lanes == 1 else f"splat (i1 {'true' if value else 'false'})", "i1", lanes
    )


def like(value: Value, number: float) -> Value:
    """A literal of a value's type."""
    if value.type == "i1":
        return truth(bool(number), value.lanes)
    return (
        floating(number, value.type, value.lanes) if value.is_float else integer(int(number), value.type, value.lanes)
    )


@dataclass
class Module:
    """The module that a kernel's LLVM function stands in: the functions it declares, and the names given away so
    far."""

    declarations: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def fresh(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def declare(self, name: str, result: str, parameters: list[str], attributes: str = "") -> None:
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)}){attributes}"


@dataclass
class Block:
    """A basic block: its phis are known only when the code that jumps back to it has been written."""

    label: str
    phis: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join([f"{self.label}:", *(f"  {line}" for line in (*self.phis, *self.lines))])


class Assembler:
    """Appends instructions to a block, which moves on as loops are written."""

    def __init__(self, module: Module, block: Block) -> None:
        self.module, self.block = module, block

    def put(self, instruction: str, type: str, lanes: int = 1) -> Value:
        name = f"%t{self.module.count}"
        self.module.count += 1
        self.block.lines.append(f"{name} = {instruction}")
        return Value(name, type, lanes)

    def do(self, instruction: str) -> None:
        self.block.lines.append(instruction)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        return self.put(f"{name} {a.full_type} {a.text}, {b.text}", a.type, a.lanes)

    def compare(self, condition: str, a: Value, b: Value) -> Value:
        kind = "fcmp" if a.is_float else "icmp"
        return self.put(f"{kind} {condition} {a.full_type} {a.text}, {b.text}", "i1", a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.put(f"select {condition}, {a}, {b}", a.type, a.lanes)

    def convert(self, name: str, a: Value, type: str) -> Value:
        if a.type == type:
            return a
        return self.put(f"{name} {a} to {vector_type(type, a.lanes)}", type, a.lanes)

    def call(
        self, name: str, result: str, lanes: int, *arguments: Value, attributes: str = "", flags: str = ""
    ) -> Value:
        full = vector_type(result, lanes)
        self.module.declare(name, full, [argument.full_type for argument in arguments], attributes)
        return self.put(f"call {flags}{full} @{name}({', '.join(map(str, arguments))})", result, lanes)

    def intrinsic(self, name: str, *arguments: Value, flags: str = "") -> Value:
        """A call of an intrinsic that is overloaded on its first argument, whose type the result has."""
        first = arguments[0]
        return self.call(
            f"llvm.{name}.{suffix(first.type, first.lanes)}", first.type, first.lanes, *arguments, flags=flags
        )

    def splat(self, a: Value, lanes: int) -> Value:
        if a.lanes == lanes:
            return a
        if not a.text.startswith("%"):
            return Value(f"splat ({a.type} {a.text})", a.type, lanes)
        full = vector_type(a.type, lanes)
        one = self.put(f"insertelement {full} poison, {a}, i64 0", a.type, lanes)
        return self.put(f"shufflevector {one}, {full} poison, <{lanes} x i32> zeroinitializer", a.type, lanes)

    def extract(self, a: Value, lane: int) -> Value:
        return self.put(f"extractelement {a}, i64 {lane}", a.type)

    def insert(self, a: Value, element: Value, lane: int) -> Value:
        return self.put(f"insertelement {a}, {element}, i64 {lane}", a.type, a.lanes)

    def shuffle(self, a: Value, b: Value | None, lanes: list[int]) -> Value:
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        second = str(b) if b is not None else f"{a.full_type} poison"
        return self.put(f"shufflevector {a}, {second}, <{len(lanes)} x i32> <{mask}>", a.type, len(lanes))
