"""Lists, tuples, deques, named tuples, dataclasses, and containers in containers; shared and changed."""
from __future__ import annotations

from tests.attack.generator.builder import INT, STR, WORDS, Builder, Kind, list_of, tensor_kind

RECORD = """
@dataclasses.dataclass({options})
class Record:
    first: object
    second: int = 2
    third: list = dataclasses.field(default_factory=list)
"""
ANY_TENSOR = tensor_kind("?any")


def element(b: Builder) -> tuple[str, Kind]:
    """Something to put in: mostly a tensor."""
    if b.chance(0.65):
        x = b.tensor(1)
        return b.choice(x.name, f"{x.name} + 1", x.name), x.kind
    if b.chance(0.6):
        return b.integer(), INT
    return repr(b.rng.choice(WORDS)), STR


def new_list(b: Builder) -> None:
    x = b.tensor(1)
    y = b.tensor(1)
    kind = x.kind if x.kind.shape == y.kind.shape else ANY_TENSOR
    b.let(
        b.choice(
            f"[{x.name}, {y.name}]", f"[{x.name} + i for i in range({b.integer()})]", f"list({x.name}.unbind(0))",
            f"[{x.name}] * 2", f"[{x.name}, {x.name}.sum(), {y.name}]",
        ),
        list_of(kind),
    )


def new_numbers(b: Builder) -> None:
    b.let(
        b.choice(
            f"[{b.integer()}, {b.integer()}, 2]", "list(range(4))", f"[i * i for i in range({b.integer()})]",
            f"sorted([3, 1, {b.integer()}])",
        ),
        list_of(INT),
    )


def new_tuple(b: Builder) -> None:
    (one, _), (two, _) = element(b), element(b)
    b.let(
        b.choice(f"({one}, {two})", f"({one}, ({two}, {one}))", f"tuple([{one}, {two}])", f"({one},) * 2"),
        Kind("tuple"),
    )


def change_list(b: Builder) -> None:
    v = b.pick("list")
    item = b.tensor(1).name if not (v.kind.of and v.kind.of.name == "int") else b.integer()
    b.emit(
        b.choice(
            f"{v.name}.append({item})", f"{v.name}.insert(0, {item})", f"{v.name}.extend([{item}, {item}])",
            f"{v.name} += [{item}]", f"{v.name}.reverse()", f"{v.name}[:1] = []",
            f"{v.name}[0:0] = ({item},)", f"{v.name}.extend(x for x in {v.name}[:2])", f"{v.name}.extend({v.name})",
            f"if {v.name}: {v.name}.pop()", f"if {v.name}: {v.name}[0] = {item}",
            f"if {v.name}: del {v.name}[-1]", f"{v.name}.clear()", f"{v.name} = {v.name}[::-1]",
            f"{v.name} = {v.name} * 2", f"{v.name} = {v.name}.copy()", f"{v.name}[len({v.name}):] = [{item}]",
            f"{v.name}[::2] = {v.name}[::2]", f"if {v.name}: {v.name}.pop(0)",
        )
    )


def from_list(b: Builder) -> None:
    v = b.pick("list")
    if v.kind.of is None or v.kind.of.name != "tensor":
        b.let(
            b.choice(
                f"sum({v.name})", f"len({v.name})", f"{v.name}.index({v.name}[-1]) if {v.name} else 0",
                f"max({v.name}, default=0)", f"{v.name}.count(1)", f"sum(i for i in {v.name} if i > 1)",
            ),
            INT,
        )
        return
    text = b.choice(
        f"sum({v.name})", f"{v.name}[0]", f"{v.name}[-1] * 2", f"torch.stack([t.sum() for t in {v.name}])",
        f"sum(t.sum() for t in {v.name})", f"next(iter({v.name}))",
        f"max({v.name}, key=lambda t: t.dim())", f"[t * 2 for t in {v.name}][0]", f"list(map(torch.sin, {v.name}))[-1]",
        f"[*{v.name}, {v.name}[0]][-1]",
    )
    b.let(text, v.kind.of if "[0]" in text and "sum" not in text else tensor_kind(b.fresh("?")))


def sorted_list(b: Builder) -> None:
    v = b.pick("list")
    if v.kind.of and v.kind.of.name == "tensor":
        b.let(
            f"sorted({v.name}, key=lambda t: {b.choice('t.numel()', 'float(t.sum())', 't.dim()', '-t.numel()')})",
            list_of(ANY_TENSOR),
        )
    else:
        b.emit(
            b.choice(
                f"{v.name}.sort()", f"{v.name}.sort(reverse=True)", f"{v.name} = sorted({v.name}, key=lambda i: -i)"
            )
        )


def membership(b: Builder) -> None:
    v = b.pick("list")
    item = b.tensor(1).name if v.kind.of and v.kind.of.name == "tensor" else b.integer()
    b.let(
        b.choice(
            f"any(t is {item} for t in {v.name})", f"{item} in {v.name}",
            f"[i for i, t in enumerate({v.name}) if t is {item}]", f"{v.name} == {v.name}[:]",
        ),
        Kind("fact"),
    )


def unpacked(b: Builder) -> None:
    v = b.one(b.all("list") + b.all("tuple"))
    head, rest = b.fresh("v"), b.fresh("items")
    with b.block(f"if len({v.name}) > 1:"):
        b.emit(
            b.choice(f"{head}, *{rest} = {v.name}", f"*{rest}, {head} = {v.name}", f"{head}, _, *{rest} = *{v.name}, 1")
        )
        b.emit(f"print(type({head}).__name__, len({rest}))")
    b.emit(f"{v.name} = {v.name} + {v.name}[:0]")


def nested(b: Builder) -> None:
    x, v = b.tensor(1), b.fresh("v")
    b.emit(
        b.choice(
            f"{v} = [[{x.name}], {{'a': {x.name}}}, ({x.name}, 1)]",
            f"{v} = [[], {{}}, ({b.tensor(1).name}, [1])]",
            f"{v} = [[{x.name}] * 2, dict(a=1), (2, 3)]",
        )
    )
    b.know(v, Kind("nested"))
    b.emit(
        b.choice(
            f"{v}[0].append({x.name} * 2)", f"{v}[1]['b'] = {v}[0]", f"{v}.append({v}[0])",
            f"{v}[1].update(c={x.name}.sum())", f"{v}[0] = {v}[1]", f"{v}[0].append({v}[2])",
        )
    )


def shared(b: Builder) -> None:
    v = b.one(b.all("list") + b.all("dict") + b.all("nested"))
    b.let(b.choice(f"{v.name}", f"({v.name}, {v.name})", f"[{v.name}, list({v.name})]"), Kind("nested"))


def deque(b: Builder) -> None:
    x, d = b.tensor(1), b.fresh("queue")
    content = b.choice("[]", "[1, 2, 3]", f"[{x.name}, {x.name} + 1]", f"range({b.integer()})")
    b.emit(f"{d} = collections.deque({content}{b.choice('', ', maxlen=2', ', 3')})")
    b.know(d, Kind("deque"))


def change_deque(b: Builder) -> None:
    d, x = b.pick("deque"), b.tensor(1)
    b.emit(
        b.choice(
            f"{d.name}.append({x.name})", f"{d.name}.appendleft({b.integer()})",
            f"{d.name}.rotate({b.rng.randint(-2, 2)})",
            f"{d.name}.extend([{x.name}, 1])", f"if {d.name}: {d.name}.popleft()",
            f"{d.name}.extendleft((1, {x.name}))", f"{d.name} += [1]", f"{d.name}.reverse()",
            f"if {d.name}: {d.name}[0] = {x.name}", f"print(len({d.name}), {d.name}.maxlen)", f"{d.name}.clear()",
            f"{d.name} = {d.name}.copy()", f"{d.name}.insert(0, 5)",
        )
    )


def named_tuple(b: Builder) -> None:
    if "Point" not in "".join(b.definitions):
        b.define("Point = collections.namedtuple('Point', 'left right', defaults=[0])")
    x, p = b.tensor(1), b.fresh("point")
    b.emit(f"{p} = {b.choice(f'Point({x.name}, {b.integer()})', f'Point({x.name})', f'Point(right={x.name}, left=1)')}")
    b.know(p, Kind("point"))
    b.let(
        b.choice(
            f"{p}.left * 2", f"{p}._replace(left=3)", f"{p}[0]", f"sum(1 for _ in {p})", f"{p}._asdict()",
            f"{p}._fields", f"{p} + ({x.name},)", f"Point._make([1, {x.name}])", f"{p}[::-1]",
        ),
        Kind("any"),
    )


def record(b: Builder) -> None:
    if "class Record" not in "".join(b.definitions):
        frozen, slots = b.choice("", "frozen=True"), b.choice("", "slots=True")
        b.define(RECORD.format(options=", ".join(filter(None, (frozen, slots)))))
    x, o = b.tensor(1), b.fresh("record")
    made = b.choice(
        "Record({x})", "Record({x} * 2, {n})", "Record(first={x}, third=[1])",
        "dataclasses.replace(Record({x}), second=4)",
    )
    b.emit(f"{o} = {made.format(x=x.name, n=b.integer())}")
    b.know(o, Kind("record"))
    b.emit(
        b.choice(
            f"{o}.third.append({x.name})", f"{o}.second = 5", f"{o}.second += 1", f"print({o}.second)",
            f"{x.name} = {o}.first + {o}.second",
        )
    )


STATEMENTS = [
    *(
        new_list, new_list, new_numbers, new_tuple, change_list, change_list, change_list, from_list, from_list,
        sorted_list, membership, unpacked, nested, shared,
    ),
    *(deque, change_deque, change_deque, named_tuple, record),
]
