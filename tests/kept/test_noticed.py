"""A kept capture is used for the same program, and for no other: one kind of assumption after the other is changed
between two runs, and the change is noticed."""

from __future__ import annotations

import os

import pytest
import torch
from kept.processes import Run, loaded, one_folder

import framejit
from framejit.backends.fuse.cache.file_content import content_of
from framejit.kept import surroundings

BASE = """
import os
import torch
import functools, dataclasses, enum, collections
from kept_library import shift, Base

SCALE = 2.0
FLAGS = {"on": True, "names": ["a", "b"]}
class Mode(enum.Enum):
    FAST = 3.0
    SLOW = 4.0
MODE = Mode.FAST
class Meta(type):
    pass
@dataclasses.dataclass
class Config:
    width: float = 3.0
    deep: bool = True
CONFIG = Config()
def add(x, amount=1.0, *, times=2.0):
    return x + amount * times
def maker(rate):
    def inner(x):
        return x * rate
    return inner
held = maker(5.0)
def decorated(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args) + 0.25
    return wrapper
@decorated
def plus(x):
    return x + 0.5
part = functools.partial(add, amount=0.125)
class Helper(Base, metaclass=Meta):
    level = 7.0
    def __init__(self):
        self.own = 1.5
    @property
    def read(self):
        return self.own * 2.0
    @staticmethod
    def fixed(x):
        return x - 3.0
    @classmethod
    def named(cls, x):
        return x - cls.level
    def __add__(self, other):
        return other + 0.75
    def __call__(self, x):
        return x * 1.25
HELPER = Helper()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.0)
        self.register_buffer("offset", torch.full((4,), 0.5))
        self.gain = 1.0
    def forward(self, x):
        y = self.linear(self.drop(x)) + self.offset
        if self.training:
            y = y * 2.0
        y = add(y) * SCALE + held(y) + plus(y) + part(y) + MODE.value * CONFIG.width
        y = HELPER(HELPER.named(HELPER.fixed(HELPER + y))) * HELPER.read * self.gain + shift(y)
        if FLAGS["on"]:
            y = y + len(FLAGS["names"])
        if os.environ.get("KEPT_TEST") == "1":
            y = y - 9.0
        if HELPER:
            y = y + 0.0625
        lowest = min(3.0, 4.0)
        for one, two in ((1.0, 2.0), (3.0, 4.0)):
            y = y + one * two * lowest
        return torch.nn.functional.relu(y) + torch.zeros(4)
net = Net().eval()
with torch.no_grad():
    for p in net.parameters():
        p.fill_(0.25)
x = torch.arange(8.0).reshape(2, 4)
def target(x):
    with torch.no_grad():
        return net(x)
args = (x,)
"""
LIBRARY = """
def shift(x):
    return x - 11.0
class Base:
    def inherited(self):
        return 1.0
"""
CHANGES = {
    "a line of an inlined function": ("return x + amount * times", "return x + amount - times"),
    "a line of a method": ("return x * 1.25", "return x * 1.5"),
    "a line of a module's forward": ("y = y * 2.0", "y = y * 2.0\n        y = y - 1.0"),
    "a constant in a nested tuple": ("(3.0, 4.0)):", "(3.0, 5.0)):"),
    "a global": ("SCALE = 2.0", "SCALE = 3.0"),
    "the type of a global": ("SCALE = 2.0", "SCALE = 2"),
    "the sign of zero": ("SCALE = 2.0", "SCALE = -2.0"),
    "an item of a global": ('"on": True', '"on": False'),
    "the length of a list": ('["a", "b"]', '["a", "b", "c"]'),
    "a closure": ("maker(5.0)", "maker(6.0)"),
    "a default": ("amount=1.0", "amount=1.5"),
    "a keyword default": ("times=2.0", "times=2.5"),
    "a decorator": ("f(*args) + 0.25", "f(*args) + 0.5"),
    "a decorated function": ("return x + 0.5", "return x + 0.25"),
    "a partial": ("amount=0.125", "amount=0.25"),
    "a member of an enum": ("FAST = 3.0", "FAST = 3.5"),
    "which member": ("MODE = Mode.FAST", "MODE = Mode.SLOW"),
    "a dataclass' field": ("width: float = 3.0", "width: float = 3.5"),
    "an instance attribute": ("self.own = 1.5", "self.own = 1.75"),
    "a class attribute": ("level = 7.0", "level = 8.0"),
    "a property": ("return self.own * 2.0", "return self.own * 4.0"),
    "a static method": ("return x - 3.0", "return x - 4.0"),
    "a class method": ("return x - cls.level", "return x + cls.level"),
    "an operator": ("return other + 0.75", "return other + 0.5"),
    "a truth value": ("    level = 7.0", "    level = 7.0\n    def __bool__(self):\n        return False"),
    "a length": ("    level = 7.0", "    level = 7.0\n    def __len__(self):\n        return 0"),
    "an attribute access": (
        "    level = 7.0", "    level = 7.0\n    def __getattribute__(self, name):\n"
        "        return object.__getattribute__(self, name) if name != 'own' else 9.0",
    ),
    "an instance attribute over the class": ("self.own = 1.5", "self.own = 1.5; self.level = 1.0; self.fixed = abs"),
    "a metaclass": (
        "class Meta(type):\n    pass", "class Meta(type):\n    def __call__(cls):\n        made = super().__call__()\n"
        "        made.own = 4.0\n        return made",
    ),
    "a base": ("class Helper(Base,", "class Other(Base):\n    def __bool__(self): return False\nclass Helper(Other,"),
    "a global that hides a builtin": ("SCALE = 2.0", "SCALE = 2.0\ndef min(*values): return 8.0"),
    "a hook": ("net = Net().eval()", "net = Net().eval(); net.register_forward_hook(lambda m, a, out: out + 1.0)"),
    "a hook before": (
        "net = Net().eval()", "net = Net().eval(); net.linear.register_forward_pre_hook(lambda m, a: (a[0] + 1.0,))"
    ),
    "the training flag": ("net = Net().eval()", "net = Net().train()"),
    "the training flag of a part": ("net = Net().eval()", "net = Net().eval(); net.drop.p = 1.0; net.drop.train()"),
    "a module's attribute": ("self.gain = 1.0", "self.gain = 1.5"),
    "a module's class": (
        "self.linear = torch.nn.Linear(4, 4)", "class L(torch.nn.Linear):\n            def forward(self, x):\n"
        "                return super().forward(x) + 1.0\n        self.linear = L(4, 4)",
    ),
    "a parameter that is none": ("torch.nn.Linear(4, 4)", "torch.nn.Linear(4, 4, bias=False)"),
    "dtype": ("args = (x,)", "net.double(); args = (x.double(),)"),
    "a parameter's strides": (
        "x = torch.arange", "net.linear.weight = torch.nn.Parameter(torch.ones(4, 8)[:, ::2]); x = torch.arange"
    ),
    "a parameter that needs no gradient": (
        "x = torch.arange", "net.linear.weight.requires_grad_(False); x = torch.arange"
    ),
    "the argument's size": ("torch.arange(8.0).reshape(2, 4)", "torch.arange(12.0).reshape(3, 4)"),
    "the argument's class": ("args = (x,)", "args = (torch.nn.Parameter(x),)"),
    "the argument's layout": ("args = (x,)", "args = (x.t().contiguous().t(),)"),
    "a function of torch": (
        "net = Net().eval()", "import types\n_t = types.SimpleNamespace(**vars(torch))\n"
        "_t.nn = types.SimpleNamespace(**vars(torch.nn))\n"
        "_t.nn.functional = types.SimpleNamespace(relu=torch.tanh)\nnet = Net().eval()\ntorch = _t",
    ),
    "code that is put in place": (
        "net = Net().eval()",
        "net = Net().eval(); add.__code__ = (lambda x, amount=1.0, *, times=2.0: x - amount).__code__",
    ),
    "a name of its own": ("args = (x,)", "add.__qualname__ = 'other'; args = (x,)"),
}
WITHOUT_OUTCOME = ("a name of its own", "a parameter that needs no gradient")


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


def kept() -> Run:
    first = Run(BASE, LIBRARY)
    assert first.captured and not any(first.said), first.said
    return first


def test_the_same_program_is_not_captured_again():
    first = kept()
    second = Run(BASE, LIBRARY)
    assert not second.captured, second.said
    assert torch.equal(first.result, second.result)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_program_is_noticed(change):
    old, new = CHANGES[change]
    assert BASE.count("\n" + old) <= 1 and old in BASE
    before = BASE.replace(old, "\n" * new.count("\n") + old) if "\n" + old in BASE else BASE  # no line moves
    first = Run(before, LIBRARY)
    assert first.captured and not any(first.said), first.said
    second = Run(BASE.replace(old, new), LIBRARY)  # compares with eager
    assert second.captured
    if change not in WITHOUT_OUTCOME and second.result.shape == first.result.shape:
        assert change in ("the type of a global", "dtype", "the argument's class", "the argument's layout") or (
            not torch.equal(first.result, second.result)
        )
    assert not Run(before, LIBRARY).captured  # what was kept first is there still


def test_a_change_of_a_library_is_noticed():
    first = kept()
    second = Run(BASE, LIBRARY.replace("x - 11.0", "x - 12.0"))
    assert second.captured and not torch.equal(first.result, second.result)


def test_a_class_of_a_library_is_noticed():
    kept()
    changed = LIBRARY.replace("class Base:", "class Base:\n    def __bool__(self): return False")
    assert Run(BASE, changed).captured


def test_the_environment_is_noticed(monkeypatch):
    first = kept()
    monkeypatch.setenv("KEPT_TEST", "1")
    second = Run(BASE, LIBRARY)
    assert second.captured and not torch.equal(first.result, second.result)


@pytest.mark.parametrize("setting, value", [("max_inline_depth", 63), ("min_graph_size", 1), ("dynamic_after", 3)])
def test_settings_are_noticed(setting, value):
    kept()
    with framejit.config.patch(**{setting: value}):
        assert Run(BASE, LIBRARY).captured


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"dynamic": False}, {"backend": "fuse"}])
def test_options_are_noticed(options):
    kept()
    assert Run(BASE, LIBRARY, **options).captured


@pytest.mark.parametrize("name, module", [("__version__", torch), ("__version__", surroundings)])
def test_versions_are_noticed(name, module, monkeypatch):
    kept()
    monkeypatch.setattr(module, name, "0.0.0")
    assert Run(BASE, LIBRARY).captured


def test_framejits_own_files_are_noticed(monkeypatch, tmp_path):
    kept()
    own, another = surroundings._sources, tmp_path / "another.py"
    another.write_text("one = 1")
    monkeypatch.setattr(surroundings, "_sources", lambda: [*own(), str(another)])
    content_of.cache_clear()
    assert Run(BASE, LIBRARY).captured
    assert not Run(BASE, LIBRARY).captured
    another.write_text("one = 2")  # as long as it was
    os.utime(another, ns=(1, 1))
    content_of.cache_clear()
    assert Run(BASE, LIBRARY).captured


def test_modes_of_torch_are_noticed():
    program = """
import torch
def target(x):
    return x + torch.zeros(3)
args = (torch.arange(3),)
"""
    assert Run(program).captured
    torch.set_default_dtype(torch.float64)
    try:
        assert Run(program).captured
    finally:
        torch.set_default_dtype(torch.float32)
    for mode in (torch.inference_mode(), torch.no_grad(), torch.autocast("cpu"), torch.device("meta")):
        with mode:
            assert Run(program).captured
    with torch.overrides.BaseTorchFunctionMode():
        assert Run(program).captured
    assert not Run(program).captured


def test_hooks_of_all_modules_are_noticed():
    kept()
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1.0)
    try:
        assert Run(BASE, LIBRARY).captured
    finally:
        handle.remove()


def test_a_function_of_torch_that_is_replaced_is_noticed(monkeypatch):
    kept()
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.leaky_relu)
    assert Run(BASE, LIBRARY).captured


def test_a_method_of_tensors_that_is_replaced_is_noticed(monkeypatch):
    kept()
    monkeypatch.setattr(torch.Tensor, "__rsub__", lambda self, other: self - other)
    assert Run(BASE, LIBRARY).captured


def test_a_method_of_modules_that_is_replaced_is_noticed(monkeypatch):
    kept()
    own = torch.nn.Linear.forward

    def forward(self, x):
        return own(self, x) + 1.0

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)
    assert Run(BASE, LIBRARY).captured


def test_answers_of_the_machine_are_noticed(monkeypatch):
    program = """
import torch
def target(x):
    return x + (1.0 if torch.cuda.device_count() > 3 else 2.0)
args = (torch.ones(3),)
"""
    assert Run(program).captured
    assert not Run(program).captured
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", 4)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 4)
    assert torch.cuda.device_count() == 4
    assert Run(program).captured


def test_the_order_of_hashes_is_noticed(monkeypatch):
    program = """
import torch
def target(x):
    for name in {"a", "b", "c", "d"}:
        x = x * 2.0 + ord(name)
    return x
args = (torch.ones(3),)
"""
    assert Run(program).captured
    second = Run(program)
    assert not second.captured, second.said
    from framejit.kept import entry_record

    monkeypatch.setattr(entry_record, "PROBE", "another text, as another process would hash it")
    assert Run(program).captured


def test_two_classes_of_one_name_are_told_apart():
    program = """
import torch
class Scale:
    by = 2.0
    def apply(self, x):
        return x * self.by
made = Scale()
def target(x):
    return made.apply(x) + Scale.by
args = (torch.ones(3),)
"""
    assert Run(program).captured
    assert not Run(program).captured
    again = program.replace("def target", """
Old = Scale
class Scale:
    by = 2.0
    def apply(self, x):
        return x * self.by
def target""")
    assert Run(again).captured


def test_a_change_after_the_entry_was_found_is_noticed():
    kept()
    second = Run(BASE, LIBRARY)
    assert not second.captured
    module = second.module
    for change in (
        lambda: setattr(module, "SCALE", 5.0),
        lambda: setattr(module.Helper, "fixed", staticmethod(lambda x: x + 100.0)),
        lambda: setattr(module.net.linear, "weight", torch.nn.Parameter(torch.ones(4, 4))),
        lambda: module.net.train(),
        lambda: module.net.register_forward_hook(lambda m, a, out: out - 3.0),
        lambda: setattr(module.Helper, "__bool__", lambda self: False),
    ):
        change()
        torch.testing.assert_close(second.optimized(*module.args), module.target(*module.args))


def test_a_program_without_its_library_in_sight():
    kept()
    loaded("kept_other", "", "/nowhere/kept_other.py")
    assert Run(BASE.replace("from kept_library import shift, Base", "from kept_library import shift\nclass Base: pass"),
               LIBRARY).captured


def test_a_kernel_that_is_registered_is_noticed():
    program = """
import torch
def target(x):
    return torch.special.bessel_j0(x)
args = (torch.ones(3),)
"""
    assert Run(program).captured
    assert not Run(program).captured
    library = torch.library.Library("aten", "IMPL")
    library.impl("special_bessel_j0", lambda x: x + 1.0, "CPU")
    try:
        assert Run(program).captured
    finally:
        library._destroy()
    assert not Run(program).captured


@pytest.mark.parametrize("line", ["hash(torch.relu)", "len(repr(print_it))", "id(x)"])
def test_what_is_of_one_process_is_not_kept(line):
    program = f"""
import torch
def print_it(): pass
def target(x):
    return x * 0.0 + 0.0 * {line}
args = (torch.ones(3),)
"""
    first = Run(program)
    assert Run(program).captured
    assert any(text.startswith("not kept") for text in first.said)


def test_a_signature_is_noticed():
    program = """
import inspect
import torch
def other(a, b=1): pass
def target(x):
    return x * len(inspect.signature(other).parameters)
args = (torch.ones(3),)
"""
    assert Run(program).captured
    second = Run(program)
    assert not second.captured, second.said
    assert Run(program.replace("b=1", "b=1, c=2")).captured


def test_a_bound_method_in_a_global_is_noticed():
    program = """
import torch
class Scale:
    def __init__(self, by): self.by = by
    def apply(self, x): return x * self.by
bound = Scale(2.0).apply
def target(x):
    return bound(x)
args = (torch.ones(3),)
"""
    assert Run(program).captured
    assert not Run(program).captured
    assert Run(program.replace("Scale(2.0)", "Scale(3.0)")).captured


def test_nothing_of_the_program_runs_to_describe_it():
    program = """
import torch
asked = []
class Meta(type):
    @property
    def __module__(cls):
        asked.append("module")
        return "elsewhere"
class Of(metaclass=Meta):
    def __init__(self): self.n = 2.0
    @property
    def __class__(self):
        asked.append("class")
        return Of
    def __getattr__(self, name):
        asked.append(name)
        raise AttributeError(name)
of = Of()
def target(x):
    return x * of.n
args = (torch.ones(3),)
"""
    for _ in range(2):
        assert not Run(program).module.asked


def test_an_answer_of_torchs_is_asked_for_again():
    program = """
import torch
def target(x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return torch.mm(x, x) * 2.0
args = (torch.ones(3, 3),)
"""
    first = Run(program)
    assert first.captured and not any(first.said), first.said
    assert not Run(program).captured
    with torch.autocast("cpu", torch.float16):
        assert Run(program).captured
    assert not Run(program).captured
