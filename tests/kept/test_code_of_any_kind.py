"""Programs whose code or classes are made while they run, changed between two runs: kept captures notice it."""

from __future__ import annotations

import pytest
from kept.processes import Run, one_folder

HEAD = """
import abc, collections.abc, contextlib, copy, enum, functools, operator, sys, types, typing, weakref
import torch
x = torch.arange(6.0).reshape(2, 3)
args = (x,)
"""
CHANGES = {
    "which lambda of a line": (
        "one, two = (lambda x: x + 1.0), (lambda x: x + 2.0)\ndef target(x): return one(x)",
        "return one(x)", "return two(x)",
    ),
    "lambdas of a line that change names": (
        "a, b = (lambda x: x + 1.0), (lambda x: x + 2.0)\none = a\ndef target(x): return one(x)", "one = a", "one = b",
    ),
    "lambdas of one code with other defaults": (
        "steps = [lambda x, n=n: x + n for n in (1.0, 2.0)]\ndef target(x): return steps[0](x)", "steps[0]", "steps[1]",
    ),
    "code made by exec": (
        "space = {}\nexec('def made(x): return x * 2.0', space)\nmade = space['made']\ndef target(x): return made(x)",
        "x * 2.0", "x * 3.0",
    ),
    "globals of code made by exec": (
        "space = {'by': 2.0}\nexec('def made(x): return x * by', space)\nmade = space['made']\n"
        "def target(x): return made(x)", "{'by': 2.0}", "{'by': 3.0}",
    ),
    "code made by eval": (
        "made = eval('lambda x: x * 2.0')\ndef target(x): return made(x)", "x * 2.0", "x * 3.0",
    ),
    "a cell of a cell": (
        "def outer(n):\n    def middle():\n        def inner(x): return x * n\n        return inner\n"
        "    return middle()\n"
        "made = outer(2.0)\ndef target(x): return made(x)", "outer(2.0)", "outer(3.0)",
    ),
    "a function in a cell": (
        "def add(x): return x + 1.0\ndef sub(x): return x - 1.0\ndef wrap(f):\n    return lambda x: f(x)\n"
        "made = wrap(add)\ndef target(x): return made(x)", "wrap(add)", "wrap(sub)",
    ),
    "what functools.wraps hides": (
        "def wrap(f, n):\n    @functools.wraps(f)\n    def wrapper(x): return f(x) * n\n    return wrapper\n"
        "def plain(x): return x + 1.0\nplain = wrap(plain, 2.0)\ndef target(x): return plain(x)", ", 2.0)", ", 4.0)",
    ),
    "a class made by type()": (
        "Made = type('Made', (), {'run': lambda self, x: x * 2.0})\nmade = Made()\ndef target(x): return made.run(x)",
        "x * 2.0", "x * 3.0",
    ),
    "a class attribute of a class made by type()": (
        "Made = type('Made', (), {'by': 2.0})\nmade = Made()\ndef target(x): return x * made.by", "2.0", "3.0",
    ),
    "a base class's method": (
        "class A:\n    def by(self): return 2.0\nclass B(A): pass\nclass C(B): pass\nc = C()\n"
        "def target(x): return x * c.by()", "class C(B): pass", "class C(B):\n    def by(self): return 3.0",
    ),
    "the order of bases": (
        "class A:\n    def by(self): return 2.0\nclass B:\n    def by(self): return 3.0\nclass C(A, B): pass\nc = C()\n"
        "def target(x): return x * c.by()", "(A, B)", "(B, A)",
    ),
    "the bases that an instance check finds": (
        "class A: pass\nclass B: pass\nclass C(A): pass\nc = C()\n"
        "def target(x): return x * (2.0 if isinstance(c, B) else 3.0)", "C(A)", "C(A, B)",
    ),
    "what a class is registered for": (
        "class Own: pass\ncollections.abc.Sized.register(Own)\nown = Own()\n"
        "def target(x): return x * (2.0 if isinstance(own, collections.abc.Sized) else 3.0)",
        "collections.abc.Sized.register", "collections.abc.Hashable.register",
    ),
    "what an abstract class of one's own knows": (
        "class Base(abc.ABC): pass\nclass Own: pass\nBase.register(Own)\n"
        "def target(x): return x * (2.0 if issubclass(Own, Base) else 3.0)",
        "Base.register(Own)", "Base.register(int)",
    ),
    "what an abstract class knows nothing of": (
        "class Base(abc.ABC): pass\nclass Own: pass\nBase.register(int)\nown = Own()\n"
        "def target(x): return x * (2.0 if isinstance(own, Base) else 3.0)",
        "Base.register(int)", "Base.register(Own)",
    ),
    "what a subclass hook says": (
        "class Base(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, other): return True\nclass Own: pass\n"
        "own = Own()\ndef target(x): return x * (2.0 if isinstance(own, Base) else 3.0)", "return True", "return False",
    ),
    "what an instance check says": (
        "class Meta(type):\n    def __instancecheck__(cls, other): return True\nclass Base(metaclass=Meta): pass\n"
        "class Own: pass\nown = Own()\ndef target(x): return x * (2.0 if isinstance(own, Base) else 3.0)",
        "return True", "return False",
    ),
    "a protocol": (
        "@typing.runtime_checkable\nclass Has(typing.Protocol):\n    def run(self): ...\nclass Own:\n"
        "    def run(self): pass\nown = Own()\ndef target(x): return x * (2.0 if isinstance(own, Has) else 3.0)",
        "    def run(self): pass", "    def walk(self): pass",
    ),
    "what a generic function dispatches to": (
        "@functools.singledispatch\ndef by(x): return x\n@by.register(torch.Tensor)\ndef _(x): return x * 2.0\n"
        "def target(x): return by(x)", "x * 2.0", "x * 3.0",
    ),
    "what a generic function has registered": (
        "@functools.singledispatch\ndef by(x): return x\ndef of_tensors(x): return x * 2.0\n"
        "by.register(torch.Tensor, of_tensors)\ndef target(x): return by(x) + 1.0",
        "by.register(torch.Tensor", "by.register(list",
    ),
    "a descriptor": (
        "class By:\n    def __get__(self, obj, cls): return 2.0\nclass Own:\n    by = By()\nown = Own()\n"
        "def target(x): return x * own.by", "return 2.0", "return 3.0",
    ),
    "an attribute that is looked up dynamically": (
        "class Own:\n    def __getattr__(self, name): return 2.0\nown = Own()\ndef target(x): return x * own.by",
        "return 2.0", "return 3.0",
    ),
    "slots": (
        "class Own:\n    __slots__ = ('by',)\n    def __init__(self): self.by = 2.0\nown = Own()\n"
        "def target(x): return x * own.by", "= 2.0", "= 3.0",
    ),
    "the item of a nested container": (
        "table = {'a': [1.0, {'b': (2.0, 3.0)}]}\ndef target(x): return x * table['a'][1]['b'][0]", "(2.0,", "(4.0,",
    ),
    "the default of a dict": (
        "table = collections.defaultdict(lambda: 2.0)\ndef target(x): return x * copy.copy(table)['none']",
        "lambda: 2.0", "lambda: 3.0",
    ),
    "how much a deque holds": (
        "last = collections.deque([1.0, 2.0], maxlen=2)\ndef target(x):\n    last.append(1.0)\n    last.append(2.0)\n"
        "    return x * len(last)", "maxlen=2", "maxlen=4",
    ),
    "flags of an enum": (
        "class F(enum.IntFlag):\n    A = 1\n    B = 2\nf = F.A\n"
        "def target(x): return x * int(f | F.B)", "B = 2", "B = 4",
    ),
    "an alias in an enum": (
        "class F(enum.Enum):\n    A = 1.0\n    B = 2.0\ndef target(x): return x * F['B'].value", "B = 2.0", "B = 1.0",
    ),
    "a named tuple's default": (
        "P = collections.namedtuple('P', 'a b', defaults=(2.0,))\ndef target(x): return x * P(1.0).b",
        "defaults=(2.0,)", "defaults=(3.0,)",
    ),
    "a field's default": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: float = 2.0\ndef target(x): return x * D().a",
        "= 2.0", "= 3.0",
    ),
    "a field's factory": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: list = dataclasses.field(default_factory="
        "lambda: [2.0])\ndef target(x): return x * D().a[0]", "[2.0]", "[3.0]",
    ),
    "a function in a partial in a partial": (
        "def f(x, a, b): return x * a + b\np = functools.partial(functools.partial(f, b=1.0), a=2.0)\n"
        "def target(x): return p(x)", "b=1.0", "b=4.0",
    ),
    "what operator's objects do": (
        "class O: a, b = 2.0, 3.0\nget = operator.attrgetter('a')\ndef target(x): return x * get(O)",
        "attrgetter('a')", "attrgetter('b')",
    ),
    "a generator function": (
        "def numbers():\n    yield 1.0\n    yield 2.0\ndef target(x):\n    for n in numbers():\n        x = x * n\n"
        "    return x", "yield 2.0", "yield 3.0",
    ),
    "a context manager": (
        "n = [1.0]\n@contextlib.contextmanager\ndef on():\n    n[0] = 2.0\n    yield\n    n[0] = 1.0\n"
        "def target(x):\n    with on():\n        return x * n[0]", "n[0] = 2.0", "n[0] = 3.0",
    ),
    "a module's attribute": (
        "space = types.ModuleType('kept_space')\nspace.by = 2.0\ndef target(x): return x * space.by", "= 2.0", "= 3.0",
    ),
    "a module's __getattr__": (
        "space = types.ModuleType('kept_space')\nspace.__getattr__ = lambda name: 2.0\n"
        "def target(x): return x * space.by", "name: 2.0", "name: 3.0",
    ),
    "sys's settings": (
        "sys.kept_setting = 2.0\ndef target(x): return x * sys.kept_setting", "= 2.0", "= 3.0",
    ),
    "a mapping proxy": (
        "table = types.MappingProxyType({'a': 2.0})\ndef target(x): return x * table['a']", "2.0", "3.0",
    ),
    "a bound method of a builtin": (
        "get = {'a': 2.0}.get\ndef target(x): return x * get('a')", "2.0", "3.0",
    ),
    "a bytes constant": (
        "data = b'12'\ndef target(x): return x * int(data)", "b'12'", "b'13'",
    ),
    "the identity of two objects": (
        "a = [1.0]\nb = a\ndef target(x): return x * (2.0 if a is b else 3.0)", "b = a", "b = [1.0]",
    ),
    "a tensor constant of the program": (
        "table = torch.tensor([1, 2])\ndef target(x): return x * int(table.shape[0])", "[1, 2]", "[1, 2, 3]",
    ),
    "an abstract method": (
        "class Base(abc.ABC):\n    @abc.abstractmethod\n    def run(self): ...\nclass Own(Base):\n"
        "    def run(self): ...\ndef target(x):\n    try:\n        Own()\n    except TypeError:\n"
        "        return x * 2.0\n"
        "    return x * 3.0", "    def run(self): ...\ndef", "    def walk(self): ...\ndef",
    ),
    "a pattern of a class": (
        "class P:\n    __match_args__ = ('a', 'b')\n    def __init__(self): self.a, self.b = 2.0, 3.0\np = P()\n"
        "def target(x):\n    match p:\n        case P(n):\n            return x * n", "('a', 'b')", "('b', 'a')",
    ),
    "a hash that is none": (
        "class K:\n    def __hash__(self): return 1\nk = K()\ndef target(x):\n    try:\n"
        "        return x * {k: 2.0}[k]\n"
        "    except TypeError:\n        return x * 3.0", "def __hash__(self): return 1", "__hash__ = None",
    ),
    "a truth that is none": (
        "class K:\n    def __len__(self): return 1\nk = K()\ndef target(x): return x * (2.0 if k else 3.0)",
        "return 1", "return 0",
    ),
    "how many members an enum has": (
        "class F(enum.Enum):\n    A = 1\n    B = 2\ndef target(x): return x * len(F)", "B = 2", "B = 2\n    C = 3",
    ),
    "the order of an enum": (
        "class F(enum.Enum):\n    A = 1\n    B = 2\ndef target(x): return x * [*F][0].value", "A = 1\n    B = 2",
        "B = 2\n    A = 1",
    ),
    "whether an enum has a value": (
        "class F(enum.Enum):\n    A = 1\n    B = 2\ndef target(x):\n    try:\n        return x * F(2).value\n"
        "    except ValueError:\n        return x", "B = 2", "B = 5",
    ),
    "the type of an error that is caught": (
        "class E(Exception): pass\nclass D(E): pass\ndef target(x):\n    try:\n        raise D\n    except E:\n"
        "        return x * 2.0\n    except Exception:\n        return x * 3.0", "class D(E)", "class D(Exception)",
    ),
    "the text of an object": (
        "class T:\n    def __str__(self): return 'ab'\nt = T()\ndef target(x): return x * len(f'{t}')", "'ab'", "'abc'",
    ),
    "an iterator": (
        "class I:\n    def __iter__(self): return iter([1.0, 2.0])\ni = I()\ndef target(x): return x * sum(i)",
        "[1.0, 2.0]", "[1.0, 3.0]",
    ),
    "an index": (
        "class I:\n    def __index__(self): return 1\ni = I()\ndef target(x): return x * [2.0, 3.0, 4.0][i]",
        "return 1", "return 2",
    ),
    "what a weak reference leads to": (
        "class K: by = 2.0\nclass L: by = 3.0\nk, l = K(), L()\nref = weakref.ref(k)\n"
        "def target(x): return x * ref().by",
        "ref(k)", "ref(l)",
    ),
    "a cached function": (
        "@functools.cache\ndef by(n): return n * 2.0\ndef target(x): return x * by(1.0)", "n * 2.0", "n * 3.0",
    ),
    "a type alias": (
        "T = typing.Union[int, float]\ndef target(x): return x * (2.0 if float in typing.get_args(T) else 3.0)",
        "typing.Union[int, float]", "typing.Union[int, str]",
    ),
    "an annotation": (
        "def f(a: 'two'): pass\ndef target(x): return x * len(f.__annotations__['a'])", "'two'", "'three'",
    ),
    "a docstring": (
        "def f():\n    'two'\ndef target(x): return x * len(f.__doc__)", "'two'", "'three'",
    ),
    "an attribute of a function": (
        "def f(): pass\nf.by = 2.0\ndef target(x): return x * f.by", "= 2.0", "= 3.0",
    ),
    "a name of a class": (
        "class A: pass\nclass BB: pass\na = A()\n"
        "def target(x): return x * len(type(a).__name__)", "a = A()", "a = BB()",
    ),
    "what super() finds": (
        "class A:\n    def by(self): return 2.0\nclass B(A):\n    def by(self): return super().by() + 1.0\nb = B()\n"
        "def target(x): return x * b.by()", "return 2.0", "return 3.0",
    ),
    "a version of torch's": (
        "version = type(torch.__version__)('1.5')\ndef target(x): return x * (2.0 if version < '1.13' else 3.0)",
        "1.5", "2.5",
    ),
    "a class that is swapped": (
        "class A:\n    by = 2.0\nclass B:\n    by = 3.0\na = A()\na.__class__ = A\n"
        "def target(x): return x * type(a).by",
        "__class__ = A", "__class__ = B",
    ),
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change):
    body, old, new = CHANGES[change]
    assert old in body
    body = HEAD + "\n" * new.count("\n") + body + "\n"
    assert Run(body).captured
    Run(body.replace(old, new))  # the results are compared with eager's
    Run(body)


NOT_KEPT = {
    "what a generic function dispatches to", "what a generic function has registered", "a cached function",
    "what a subclass hook says", "what operator's objects do", "the text of an object", "a type alias",
}
KEPT = sorted(set(CHANGES) - NOT_KEPT)


@pytest.mark.parametrize("change", KEPT)
def test_the_same_is_found(change):
    body = HEAD + CHANGES[change][0] + "\n"
    Run(body)
    second = Run(body)
    assert not second.captured, second.said


def scripted(x):
    return x * 2.0


def another(x):
    return x * 3.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script_functions():
    body = HEAD + f"""
from {__name__} import scripted, another
by = torch.jit.script(scripted)
def target(x): return by(x) + 1.0
"""
    assert Run(body).captured
    assert Run(body.replace("script(scripted", "script(another ")).captured


def test_the_file_a_notebook_runs_in():
    """Cells of other processes lie in files of other names, and count as other code."""
    body = HEAD + "\nmade = compile('def made(x): return x * 2.0', FILE, 'exec')\nexec(made)\n"
    body += "def target(x): return globals()['made'](x)\n"
    assert Run(body.replace("FILE", "'/tmp/ipykernel_1/1.py'")).captured
    assert not Run(body.replace("FILE", "'/tmp/ipykernel_1/1.py'")).captured
    assert Run(body.replace("FILE", "'/tmp/ipykernel_2/1.py'")).captured


def test_code_whose_constants_no_compiler_makes():
    body = HEAD + """
def f(x): return x * 2.0
f.__code__ = f.__code__.replace(co_consts=tuple([9.0] if c == 2.0 else c for c in f.__code__.co_consts))
def g(x): return x * 3.0
def target(x): return (g if any(type(c) is list for c in f.__code__.co_consts) else f)(x)
"""
    Run(body)
    Run(body.replace("3.0", "4.0"))
