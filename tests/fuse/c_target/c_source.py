"""A kernel of the loop IR as plain C: one turn of the parallel loops after the other, the passes over the reduction
loops in order, nothing clever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.facts import KernelFacts
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Quotient, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel, Store
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize

FUNCTION: Final = "framejit_kernel"

TYPES: Final = {
    torch.float32: "float", torch.float64: "double", torch.float16: "_Float16", torch.bfloat16: "bfloat",
    torch.bool: "uint8_t", torch.uint8: "uint8_t",
    torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t",
}

HEAD: Final = """\
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint16_t bits; } bfloat;

static inline float from_bfloat(bfloat x) {
    uint32_t bits = (uint32_t)x.bits << 16; float result; memcpy(&result, &bits, 4);
    return result;
}
static inline bfloat to_bfloat(float x) {
    uint32_t bits; memcpy(&bits, &x, 4);
    return (bfloat){x != x ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16};
}
static inline int64_t index_quotient(int64_t a, int64_t b) { int64_t q = a / b; return q - (a % b < 0); }
static inline int64_t index_remainder(int64_t a, int64_t b) { int64_t r = a % b; return r < 0 ? r + b : r; }
static inline int64_t floor_quotient(int64_t a, int64_t b) {
    int64_t q = a / b, r = a % b;
    return q - (r && (r < 0) != (b < 0));
}
static inline int64_t floor_remainder(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}
static inline double float_remainder(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double float_quotient(double a, double b) {
    if (b == 0) return a / b;
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
    double whole = floor(quotient);
    if (quotient - whole > 0.5) whole += 1;
    return quotient == 0 ? copysign(0, a / b) : whole;
}
"""

INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "bitand": "&", "bitor": "|", "bitxor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}
CALLED: Final = frozenset(
    """sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
    lgamma floor ceil trunc fmax fmin pow atan2 copysign hypot isnan isinf""".split()
)
"""Functions of C's library of the same name. They are called with doubles: a float32 result is then as exact as it can
be."""
ON_BOOLS: Final = frozenset(
    ("mul", "bitand", "bitor", "bitxor", "bitnot", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "where")
)
ON_FLOATS: Final = frozenset((*CALLED, "div", "rsqrt", "reciprocal", "sigmoid", "round", "signbit", "nextafter"))
ON_INTEGERS: Final = frozenset(("bitand", "bitor", "bitxor", "bitnot", "shl", "shr"))
ON_ANY: Final = frozenset(
    ("add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "sign", "where")
)
DIVISIONS: Final = frozenset(("floordiv", "truncdiv", "mod", "fmod"))
HALVES: Final = (torch.float16, torch.bfloat16)
START: Final = {"sum": "0", "prod": "1", "any": "0", "all": "1", "xor": "0", "argmax": "0", "argmin": "0"}


def supports(operation: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
    """What `c_source` can do. There are no scans."""
    kind = operation.removeprefix("reduce_")
    if dtype not in TYPES or operation.startswith("scan_"):
        return False
    if operation in ("load", "const", "index", "cast", "bitcast", "masked", "reduce"):
        return True
    if dtype in HALVES:
        return False
    if kind != operation:
        return (
            dtype == torch.bool
            if kind in ("any", "all")
            else dtype != torch.bool and (kind != "xor" or not dtype.is_floating_point)
        )
    if dtype == torch.bool:
        return operation in ON_BOOLS
    if operation in DIVISIONS:
        return dtype.is_floating_point or (divisor is not None and divisor.op == "const" and divisor.attr != 0)
    return operation in ON_ANY or operation in (ON_FLOATS if dtype.is_floating_point else ON_INTEGERS)


class CSource:
    """The text of one kernel. `total` is the size of its loop over `begin` to `end`, the parallel loops counted as
    one."""

    def __init__(self, kernel: Kernel) -> None:
        if any(isinstance(var.size, SymbolicSize) for var in (*kernel.parallel, *kernel.reduction)):
            raise NotImplementedError("sizes that are not known")
        self.kernel, self.facts = kernel, KernelFacts(kernel)
        self.total = math.prod(var.size for var in kernel.parallel)
        self.buffers = tuple(kernel.buffers)
        self._names = {var: f"i{number}" for number, var in enumerate((*kernel.parallel, *kernel.reduction))}
        self._lines: list[str] = []
        self._scopes: list[dict[Expr, str]] = [{}]
        self._count = 0

    def text(self) -> str:
        """The module."""
        kernel = self.kernel
        self._line(f"void {FUNCTION}(char *const *pointers, const int64_t *sizes, int64_t begin, int64_t end) {{")
        for number, buffer in enumerate(kernel.buffers.values()):
            type = TYPES[buffer.dtype]
            self._line(f"{type} *const p{number} = ({type} *)pointers[{number}];")
        with self._block("for (int64_t turn = begin; turn < end; turn++)"):
            rest = "turn"
            for var in reversed(kernel.parallel):
                self._line(f"const int64_t {self._names[var]} = {rest} % {max(var.size, 1)};")
                rest = self._fresh("rest")
                previous = "turn" if var is kernel.parallel[-1] else f"rest{self._count - 1}"
                self._line(f"const int64_t {rest} = {previous} / {max(var.size, 1)};")
            self._turn()
        self._line("}")
        return HEAD + "\n".join(self._lines) + "\n"

    def _turn(self) -> None:
        """Passes that end in reductions; what is stored once, computed before anything is stored; the pass that stores;
        what is stored once, stored."""
        reductions = [node for node in self.facts.order if node.op == "reduce"]
        for depth in sorted({self.facts.depth[node] for node in reductions}):
            self._reduce([node for node in reductions if self.facts.depth[node] == depth])
        reduction = [store for store in self.kernel.stores if store.in_reduction and self.kernel.reduction]
        final = [store for store in self.kernel.stores if store not in reduction]
        once = [self._prepared(store) for store in final]
        if reduction:
            with self._reduction_loops():
                for line in [self._prepared(store) for store in reduction]:
                    self._line(line)
        for line in once:
            self._line(line)

    def _prepared(self, store: Store) -> str:
        """The assignment of a store, whose value and place have names by now: loads see memory as it was before the
        turn."""
        value, place = self._value(store.value), self._fresh("place")
        self._line(f"const int64_t {place} = {self._index(store.index)};")
        return f"p{self.buffers.index(store.buffer)}[{place}] = {value};"

    def _reduce(self, nodes: list[Expr]) -> None:
        """One pass: the reductions that need no others than those of passes before it."""
        for node in nodes:
            name = self._fresh("r")
            self._line(f"{self._accumulator(node)} {name} = {self._start(node)};")
            if node.attr in ("argmax", "argmin"):
                self._line(f"{TYPES[node.args[0].dtype]} {name}_best = 0;")
            self._scopes[0][node] = name
        with self._reduction_loops():
            for node in nodes:
                self._step(self._scopes[0][node], node.attr, self._value(node.args[0]))
        for node in nodes:
            name = self._scopes[0][node]
            if self._accumulator(node) != TYPES[node.dtype]:
                self._scopes[0][node] = f"(({TYPES[node.dtype]}){name})"

    def _accumulator(self, node: Expr) -> str:
        return "double" if node.dtype == torch.float32 and node.attr in ("sum", "prod") else TYPES[node.dtype]

    def _start(self, node: Expr) -> str:
        if node.attr in START:
            return START[node.attr]
        if node.dtype.is_floating_point:
            return "-INFINITY" if node.attr == "max" else "INFINITY"
        least, most = (0, 1) if node.dtype == torch.bool else (torch.iinfo(node.dtype).min, torch.iinfo(node.dtype).max)
        return _integer(least if node.attr == "max" else most)

    def _step(self, name: str, kind: str, x: str) -> None:
        if kind in ("argmax", "argmin"):
            sign = ">" if kind == "argmax" else "<"
            best = f"{name}_best"
            with self._block(f"if (position == 0 || {x} {sign} {best} || ({x} != {x} && {best} == {best}))"):
                self._line(f"{best} = {x};")
                self._line(f"{name} = position;")
            return
        steps = {
            "sum": f"{name} + {x}", "prod": f"{name} * {x}", "any": f"{name} | {x}", "all": f"{name} & {x}",
            "xor": f"{name} ^ {x}",
            "max": f"{name} >= {x} || {name} != {name} ? {name} : {x}",
            "min": f"{name} <= {x} || {name} != {name} ? {name} : {x}",
        }
        self._line(f"{name} = {steps[kind]};")

    @contextmanager
    def _reduction_loops(self) -> Iterator[None]:
        position = self._fresh("position")
        with self._block(""):
            self._line(f"int64_t {position} = -1;")
            heads = [
                f"for (int64_t {self._names[var]} = 0; {self._names[var]} < {var.size}; {self._names[var]}++)"
                for var in self.kernel.reduction
            ]
            with self._block(" ".join(heads)):
                self._line(f"{position}++;")
                self._line(f"const int64_t position = {position}; (void)position;")
                yield

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """A block of C, and the names that hold in it only."""
        self._line(f"{head} {{")
        self._scopes.append({})
        yield
        self._scopes.pop()
        self._line("}")

    def _line(self, text: str) -> None:
        self._lines.append(text)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _known(self, node: Expr) -> str | None:
        return next((scope[node] for scope in self._scopes if node in scope), None)

    def _value(self, root: Expr) -> str:
        """A name for a value, of which all that can be is computed now; what is masked is, where the mask lets it."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if self._known(node) is not None:
                continue
            if not ready:
                operands = (node.args[0], node.args[2]) if node.op == "masked" else node.operands()
                stack += [(node, True), *((operand, False) for operand in operands)]
            elif node.op == "masked":
                self._masked(node)
            else:
                name = self._fresh("v")
                self._line(f"const {TYPES[node.dtype]} {name} = {self._expression(node)};")
                self._scopes[-1][node] = name
        name = self._known(root)
        assert name is not None
        return name

    def _masked(self, node: Expr) -> None:
        name = self._fresh("v")
        self._line(f"{TYPES[node.dtype]} {name} = {self._known(node.args[2])};")
        with self._block(f"if ({self._known(node.args[0])})"):
            self._line(f"{name} = {self._value(node.args[1])};")
        self._scopes[-1][node] = name

    def _index(self, index: Index) -> str:
        for atom in index.indirects:
            self._value(atom.value)
        return self._spelt(index)

    def _spelt(self, index: Index) -> str:
        if isinstance(index.const, SymbolicSize):
            raise NotImplementedError("sizes that are not known")
        return " + ".join([
            _integer(index.const),
            *(f"{_integer(coefficient)} * {self._atom(atom)}" for atom, coefficient in index.terms.items()),
        ])

    def _atom(self, atom: Var | Indirect | Quotient | object) -> str:
        if isinstance(atom, Var):
            return self._names[atom]
        if isinstance(atom, Indirect):
            return f"(int64_t){self._known(atom.value)}"
        function = "index_quotient" if isinstance(atom, Quotient) else "index_remainder"
        return f"{function}({self._spelt(atom.index)}, {_integer(atom.divisor)})"  # type: ignore[attr-defined]

    def _expression(self, node: Expr) -> str:
        if node.op == "load":
            buffer, index = node.attr
            return f"p{self.buffers.index(buffer)}[{self._index(index)}]"
        if node.op == "index":
            return self._index(node.attr)
        if node.op == "const":
            return _number(node.attr, node.dtype)
        operands = [str(self._known(operand)) for operand in node.args]
        type = TYPES[node.dtype]
        if node.op == "cast":
            return _converted(operands[0], node.args[0].dtype, node.dtype)
        if node.op == "bitcast":
            return f"({{ {type} bits; memcpy(&bits, &{operands[0]}, sizeof bits); bits; }})"
        return f"({type})({_computed(node.op, operands, node.args[-1].dtype)})"


def _computed(name: str, operands: list[str], dtype: torch.dtype) -> str:
    """What an operation of OPERATIONS is in C, of operands of a dtype."""
    is_float = dtype.is_floating_point
    a, b = operands[0], operands[-1]
    if name in INFIX:
        return f"{a} {INFIX[name]} {b}"
    if name in CALLED:
        return f"{name}({', '.join(f'(double){operand}' for operand in operands)})"
    bits = 8 * dtype.itemsize
    inside = f"{b} >= 0 && {b} < {bits}"
    special = {
        "where": f"{a} ? {operands[len(operands) // 2]} : {b}",
        "maximum": f"{a} >= {b} || {a} != {a} ? {a} : {b}",
        "minimum": f"{a} <= {b} || {a} != {a} ? {a} : {b}",
        "floordiv": f"{'float' if is_float else 'floor'}_quotient({a}, {b})",
        "mod": f"{'float' if is_float else 'floor'}_remainder({a}, {b})",
        "truncdiv": f"trunc({a} / {b})" if is_float else f"(int64_t){a} / (int64_t){b}",
        "fmod": f"fmod({a}, {b})" if is_float else f"(int64_t){a} % (int64_t){b}",
        "shl": f"{inside} ? (uint64_t){a} << {b} : 0",
        "shr": f"{inside} ? {a} >> {b} : {a} >> {bits - 1}" if dtype.is_signed else f"{inside} ? {a} >> {b} : 0",
        "neg": f"-{a}",
        "abs": f"fabs({a})" if is_float else f"{a} < 0 ? -{a} : {a}",
        "sign": f"{a} != {a} ? {a} : ({a} > 0) - ({a} < 0)",
        "bitnot": f"!{a}" if dtype == torch.bool else f"~{a}",
        "rsqrt": f"1 / sqrt((double){a})",
        "reciprocal": f"1 / (double){a}",
        "sigmoid": f"1 / (1 + exp(-(double){a}))",
        "round": f"nearbyint({a})",
        "signbit": f"signbit({a}) != 0",
        "nextafter": f"nextafter{'f' if dtype == torch.float32 else ''}({a}, {b})",
    }
    return special[name]


def _converted(value: str, source: torch.dtype, target: torch.dtype) -> str:
    if source == torch.bfloat16:
        value = f"from_bfloat({value})"
    if target == torch.bool:
        return f"{value} != 0"
    if target == torch.bfloat16:
        return f"to_bfloat((float){value})"
    return f"({TYPES[target]}){value}"


def _number(value: bool | int | float, dtype: torch.dtype) -> str:
    if not dtype.is_floating_point:
        return _integer(int(value))
    text = (
        "NAN"
        if math.isnan(value)
        else f"{'-' if value < 0 else ''}INFINITY"
        if math.isinf(value)
        else float(value).hex()
    )
    return _converted(text, torch.float64, dtype)


def _integer(value: int) -> str:
    return "(-INT64_MAX - 1)" if value == -(1 << 63) else f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
