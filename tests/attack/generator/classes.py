"""Classes of the program: attributes, properties, operators, slots, inheritance, finalizers; objects that calls
share."""
from __future__ import annotations

from tests.attack.generator.builder import Builder, Kind, tensor_kind

PLAIN = """
class Box{base}:
    scale = 2
    made = []

    def __init__(self, value, factor=1):
        self.value = value
        self.factor = factor

    def apply(self, x):
        return x * self.factor + self.scale

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, new):
        self.value = new / 2

    @classmethod
    def of(cls, value):
        return cls(value, cls.scale)

    @staticmethod
    def plus(x, n=1):
        return x + n

    def __call__(self, x):
        self.factor += 1
        return self.apply(x)

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return self.value[i]

    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.factor)

    def __radd__(self, other):
        return self + other

    def __contains__(self, item):
        return item == self.factor
"""
EQUAL = "    def __eq__(self, other):\n        return isinstance(other, Box) and self.factor == other.factor\n"
EXTRAS = (
    EQUAL,
    EQUAL + "\n    def __hash__(self):\n        return hash(self.factor)\n",
    "    def __bool__(self):\n        return self.factor > 1\n",
    "    def __getattr__(self, name):\n        if name.startswith('late'):\n            return self.factor\n"
    "        raise AttributeError(name)\n",
    "    def __setattr__(self, name, new):\n        object.__setattr__(self, name, new)\n"
    "        Box.made.append(name)\n        del Box.made[:-3]\n",
    "    def __iter__(self):\n        yield self.value\n        yield self.factor\n",
    "    def __repr__(self):\n        return f'Box({self.factor})'\n",
    "    def __enter__(self):\n        self.factor += 1\n        return self\n\n"
    "    def __exit__(self, *error):\n        self.factor -= 1\n        return False\n",
    "    def __iadd__(self, other):\n        self.factor += 1\n        return self\n",
    "    def __del__(self):\n        print('dropped')\n",
    "    def __lt__(self, other):\n        return self.factor < other.factor\n",
    "    def __format__(self, spec):\n        return spec + str(self.factor)\n",
    "    def __index__(self):\n        return 1\n",
    "    def __new__(cls, *args, **kwargs):\n        return super().__new__(cls)\n",
    "    def __getattribute__(self, name):\n        return object.__getattribute__(self, name)\n",
)
SUBCLASS = """
class Crate(Box):
    scale = 3

    def __init__(self, value, factor=2):
        super().__init__(value, factor)
        self.extra = [factor]

    def apply(self, x):
        self.extra.append(len(self.extra))
        return super().apply(x) - 1
"""
SLOTTED = """
class Pair:
    __slots__ = ('left', 'right')

    def __init__(self, left, right=None):
        self.left, self.right = left, right

    def swap(self):
        self.left, self.right = self.right, self.left
        return self
"""


def has(b: Builder, name: str) -> bool:
    return any(name in text for text in b.definitions)


def classes(b: Builder) -> None:
    if has(b, "class Box"):
        return
    text = PLAIN.format(base=b.choice("", "", "(object)")) + "".join(
        "\n" + extra for extra in b.rng.sample(EXTRAS, b.rng.randint(0, 3))
    )
    b.define(text)
    b.define(SUBCLASS)
    b.define(SLOTTED)
    b.changes += [
        lambda: f"Box.scale = {b.rng.randint(1, 4)}",
        lambda: f"Crate.apply = lambda self, x: x - {b.rng.randint(1, 3)}",
        lambda: "Box.plus = staticmethod(lambda x, n=2: x * n)",
    ]
    b.changes += [lambda: f"Crate.scale = {b.rng.choice(['5', '1.5', 'torch.tensor(2.0)'])}", lambda: "Crate.late = 3"]


def new(b: Builder) -> None:
    classes(b)
    x = b.tensor(1)
    o = b.fresh("box")
    made = b.choice(
        "Box({x})", "Box({x} * 2, {n})", "Crate({x})", "Box.of({x})", "Crate.of(value={x})", "Box({x}, factor={n})"
    )
    b.emit(f"{o} = {made.format(x=x.name, n=b.integer())}")
    b.know(o, Kind("box"))


def use(b: Builder) -> None:
    o, x = b.pick("box"), b.tensor(1)
    text = b.choice(
        f"{o.name}.apply({x.name})", f"{o.name}({x.name})", f"{o.name}.doubled", f"{o.name}.plus({x.name})",
        f"Box.apply({o.name}, {x.name})", f"{o.name}.value + {o.name}.factor", f"type({o.name}).plus({x.name}, n=3)",
        f"{o.name}[0]", f"({o.name} + 1).value", f"getattr({o.name}, 'value')", f"({x.name} * {o.name}.scale)",
        f"{o.name}.__class__.scale * {x.name}", f"super(type({o.name}), {o.name}).__init__ and {x.name}",
    )
    b.let(
        text,
        tensor_kind(b.fresh("?")) if "value" in text or "doubled" in text or "[0]" in text or "+ 1" in text else x.kind,
    )


def change(b: Builder) -> None:
    o, x = b.pick("box"), b.tensor(1)
    b.emit(
        b.choice(
            f"{o.name}.factor += 1", f"{o.name}.value = {x.name}", f"{o.name}.doubled = {x.name}",
            f"setattr({o.name}, 'fresh', {b.integer()})",
            f"{o.name}.scale = {b.integer()}", f"del {o.name}.factor; {o.name}.factor = 2",
            f"{o.name}.value = {o.name}.value + 1", f"{o.name}.__dict__['factor'] = 3",
            f"{o.name} += 1" if b.chance(0.2) else f"{o.name}.factor = {b.integer()}",
            f"{o.name}.note = [{x.name}, {o.name}.factor]",
            f"vars({o.name}).update(tag='t')", f"Box.scale = {b.integer()}",
            f"{o.name}.self_ = {o.name}" if b.chance(0.2) else f"{o.name}.other = None",
            f"{o.name}.value.add_(1)" if not b.uses_grad else f"{o.name}.factor = 1",
        )
    )


def ask(b: Builder) -> None:
    o = b.pick("box")
    b.let(
        b.choice(
            f"len({o.name})", f"isinstance({o.name}, Crate)", f"hasattr({o.name}, 'late')", f"{o.name} == {o.name}",
            f"sorted(vars({o.name}))",
            f"type({o.name}).__name__", f"{o.name}.scale", f"2 in {o.name}", f"getattr({o.name}, 'missing', 7)",
            f"bool({o.name})", f"callable({o.name})", "Box.made[-1:]", f"issubclass(type({o.name}), Box)",
            f"{o.name} is {o.name}",
            f"[type(v).__name__ for v in vars({o.name}).values()]", f"hasattr({o.name}, '__iter__')",
            f"type({o.name}).__mro__[1].__name__", f"'factor' in {o.name}.__dict__", f"{o.name} != 3",
            f"f'{{{o.name}.factor:>3}}'", f"dir({o.name})[-1]",
            f"{o.name}.apply.__name__", f"{o.name}.apply.__self__ is {o.name}",
        ),
        Kind("any"),
    )


def slotted(b: Builder) -> None:
    classes(b)
    x, p = b.tensor(1), b.fresh("pair")
    b.emit(f"{p} = Pair({x.name}{b.choice('', f', {b.integer()}', f', {b.tensor(1).name}')})")
    b.emit(
        b.choice(
            f"{p}.swap()", f"{p}.left = {x.name} + 1", f"{p}.right = [{p}.left]", f"{p} = {p}.swap().swap()",
            f"{p}.left, {p}.right = 1, {x.name}",
        )
    )
    b.know(p, Kind("slotted"))


def local_class(b: Builder) -> None:
    x, c = b.tensor(1), b.fresh("Local")
    with b.block(f"class {c}:"):
        b.emit(f"weight = {b.number()}")
        with b.block("def __call__(self, x):"):
            b.emit("return x * self.weight")
    b.let(f"{c}()({x.name})", x.kind)


def several(b: Builder) -> None:
    classes(b)
    x = b.tensor(1)
    b.let(f"[{b.choice('Box', 'Crate')}({x.name} + i, i) for i in range({b.integer()})]", Kind("boxes"))
    v = b.pick("boxes")
    b.let(
        b.choice(
            f"sum(o.value.sum() for o in {v.name})", f"sum(o.factor for o in {v.name})",
            f"[o.apply({x.name}) for o in {v.name}]", f"sum({v.name}, 1)" if b.chance(0.2) else f"len({v.name})",
        ),
        Kind("any"),
    )


STATEMENTS = [new, new, use, use, use, change, change, ask, slotted, local_class, several]
