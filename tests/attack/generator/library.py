"""What programs take from the standard library and write as text: enums, named tuples, protocols of generators and
descriptors, exit stacks, dispatch on types, subclasses of built-in types, regular expressions, formatting, copies, and
numbers in arrays of numpy."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import FLOAT, INT, STR, Builder, Kind

KINDS = """
class Mode(enum.Enum):
    TRAIN = 'train'
    EVAL = 'eval'

    @property
    def scale(self):
        return 2 if self is Mode.TRAIN else 3


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Output(typing.NamedTuple):
    first: object
    loss: object = None
    count: int = 0

    def scaled(self, by):
        return self._replace(first=self.first * by)


@dataclasses.dataclass
class Config:
    width: int = 2
    name: str = 'c'
    parts: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.total = self.width * 2

    @property
    def half(self):
        return self.width / 2


class Checked:
    def __set_name__(self, owner, name):
        self.name = '_' + name

    def __get__(self, owner, cls=None):
        return self if owner is None else getattr(owner, self.name, 1)

    def __set__(self, owner, value):
        if isinstance(value, str):
            raise TypeError(f'{self.name} is {value!r}')
        setattr(owner, self.name, value)


class Holder:
    size = Checked()

    @functools.cached_property
    def slow(self):
        print('computed')
        return self.size + 1

    def base(self, a, b):
        return a, b, self.size

    half = functools.partialmethod(base, 1)


class Text(str):
    pass


class Number(int):
    def __add__(self, other):
        return Number(int(self) + int(other))


class Row(list):
    def total(self):
        return sum(self)


class Options(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Own(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


@functools.singledispatch
def area(one):
    return 'object'


@area.register(int)
def _(one):
    return one + 1


@area.register(torch.Tensor)
def _(one):
    return one.dim()


def running():
    total, n, given = 0, 0, None
    for _ in range(100):
        try:
            given = yield total
        except ValueError as e:
            total = str(e)
            continue
        if given is None:
            return n
        total, n = given, n + 1


table = np.array([0.5, 1.5, 2.5, 3.5])
places = np.array([1, 0, 2, 1])
text, number, row, options = Text('alpha beta'), Number(3), Row([1, 2]), Options(a=1)
"""


def definitions(b: Builder) -> None:
    if not any("class Rights" in text for text in b.definitions):
        b.define(KINDS)
        b.changes += [
            lambda: "options['b'] = 2", lambda: "row.append(3)", lambda: "table[0] += 1", lambda: "options.clear()",
            lambda: "globals().update(text=Text(''))", lambda: "globals().update(number=Number(1))",
        ]


def fact(b: Builder) -> None:
    """Something of the library on numbers and text, whose text is told."""
    definitions(b)
    n, x = b.integer(), b.tensor(0).name
    b.let(
        b.choice(
            f"Mode('train').scale + {n}", f"Rights.READ | Rights({n} % 4)", f"Level.HIGH > {n}", "list(Mode)",
            "Mode['EVAL'].value", f"(Rights.WRITE in Rights({n} % 4), ~Rights.READ)",
            f"area({n}), area({x}), area('s')",
            f"Config({n})", f"[Config({n}, parts=[Level.LOW])]", f"Config({n}).half, Config({n}).total",
            f"dataclasses.asdict(Config({n}))", f"dataclasses.replace(Config(), width={n}) == Config({n})",
            f"Output({x}.dim(), count={n})", f"Output({n}).scaled(2)", "Output(1)._asdict(), Output._fields",
            f"'%s %r' % (Config({n}), Mode.TRAIN)", f"f'{{Config({n})}} {{Level({n} % 2 * 4 + 1)!r:>20}}'",
            f"'{{:>6}} {{!r}} {{0}}'.replace('{{0}}', '').format({n}, Config())", f"f'{{{n}:05d}} {{{n} / 3:.3e}}'",
            f"re.sub('[a-z]+', lambda m: m.group().title() * {n}, text)", "re.findall(r'\\w+', text)",
            f"re.subn('a', 'b', text, count={n})", "[m.span() for m in re.finditer('a', text)]", "text % ()",
            "text.partition(' '), text.partition('z')", "text.format(), text.strip(), text.split()", "text + 'z'",
            f"number + {n}", f"{n} * number", "number // 2, -number, f'{number:03d}'", "row.total(), row[0], len(row)",
            f"row * {n} if {n} < 4 else row", "options.a if 'a' in options else None", "getattr(options, 'z', 5)",
            f"Own(a={n}).a", f"vars(Own(b={n}))", f"copy.copy(Config({n}, parts=[1]))", f"copy.deepcopy([Config({n})])",
            f"functools.reduce(lambda a, c: a * c, [1, 2, {n}])", f"list(itertools.accumulate(row, initial={n}))",
            f"sorted([3, {n}, 1], key=functools.cmp_to_key(lambda a, c: c - a))", f"divmod(-7, {n} + 1)",
            f"bisect.bisect([1, 2, 4], {n})", f"heapq.nsmallest(2, [{n}, 3, 1])", f"f'{{[Config({n})]}}'",
            f"operator.itemgetter(0, -1)([{n}, 2])", f"str(pathlib.PurePath('a') / 'b{n}.txt')",
            f"[*'ab', *row][{n} % 4]",
        ),
        Kind("fact"),
    )


def protocol(b: Builder) -> None:
    """Generators that are sent to and thrown into, descriptors, exit stacks."""
    definitions(b)
    x, n, v = b.tensor(1), b.integer(), b.fresh("step")
    b.emit(
        b.choice(
            f"{v} = running(); next({v}); {x.name} = {v}.send({x.name} * 2); print({v}.throw(ValueError('t')))",
            f"{v} = Holder(); {v}.size = {n}; print({v}.slow, {v}.slow, {v}.half({n}))",
            f"{v} = Own(a={n}); {v}.b = 2; {v}['c'] = {v}.a + {v}.b; print({v}, sorted(vars({v})))",
            f"{v} = Output({x.name}, {x.name}.sum(), {n}); {x.name} = {v}.scaled({n} + 1).first",
            f"{v} = Config({n}); {v}.parts.append({n}); print({v}, {v} == Config({n}, 'c', [{n}]))",
            f"{v} = copy.deepcopy({{'a': [{x.name}]}}); {x.name} = {v}['a'][0] + 1",
            f"{v} = [Mode.TRAIN, Level.LOW][{n} % 2]; {x.name} = {x.name} * (2 if {v} is Mode.TRAIN else int({v}))",
        )
    )
    if b.chance(0.4):
        with b.block("with contextlib.ExitStack() as stack:"):
            b.emit(f"stack.callback(print, 'left', {n})")
            b.emit(b.choice("stack.enter_context(contextlib.suppress(KeyError)); {}['k']", "stack.pop_all().close()",
                f"{x.name} = {x.name} + stack.enter_context(contextlib.nullcontext({n}))"))
    if b.chance(0.3):
        with b.block("try:"):
            b.emit("Holder().size = 'text'")
        with b.block("except TypeError as e:"):
            b.emit("print(e)")


def of_array(b: Builder) -> None:
    """Numbers of arrays, by places that may not be assumed, beside tensors and as Python's."""
    definitions(b)
    x, n = b.tensor(1, "f"), b.integer()
    place = b.choice(f"{n} % 4", n, "-1", f"places[{n} % 4]")
    b.let(
        b.choice(
            f"{x.name} * table[{place}]", f"{x.name} + math.sqrt(table[{place}])", f"table[{place}] - {x.name}",
            f"{x.name} * float(table[{place}])", f"{x.name} / (1 + math.exp(-table[{place}]))",
            f"{x.name} + (table[{place}] * 2 + 1)", f"{x.name} + torch.from_numpy(table).sum()",
        ),
        replace(x.kind, fresh=True, dense=True),
    )
    b.let(
        b.choice(
            f"float(table[{place}])", f"math.floor(table[{place}]) + 0.5", f"table[{place}].item()",
            f"float(table[:{n}].sum())",
        ),
        FLOAT,
    )
    if b.chance(0.3):
        b.emit(b.choice(f"print(f'{{table[{place}]:.2f}}')", f"print('%.1f' % table[{place}])", f"table[{place}] += 1"))


def word(b: Builder) -> None:
    definitions(b)
    n = b.integer()
    b.let(
        b.choice(
            f"'abc'[{n} % 3]", f"f'{{{n}}}'", "'-'.join(re.split(' ', text))", f"str(Level.LOW.name).lower()[:{n}]",
            f"'add'.replace('d', 'b', {n})",
        ),
        STR,
    )
    b.let(b.choice("len(text)", f"number * {n}", "sum(row)", "int(Level.HIGH)", f"len('{{}}'.format({n}))"), INT)


STATEMENTS = [fact, fact, fact, protocol, protocol, of_array, of_array, word]
