"""Real second processes: they find what the first one captured, import no compiler, and give the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from framejit.config import Config, from_environment

import forked

pytestmark = pytest.mark.process

TELL = """
import json, sys
print(json.dumps({
    "captured": "framejit.capture.capture" in sys.modules,
    "lowered": "framejit.backends.fuse.lowering.lower_graph" in sys.modules,
    "recorded": "framejit.backends.fuse.graph.record" in sys.modules,
    "error": float((got.double() - expected.double()).norm() / expected.double().norm()),
}))
"""
SMALL = """
import torch, framejit
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)
        self.scale = {"names": frozenset(("a", "b")), "by": 2.0}
    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)) + x
        if "a" in self.scale["names"]:
            x = x * self.scale["by"]
        return self.norm(x).softmax(-1)
torch.manual_seed(0)
net = Net().eval()
x = torch.randn(8, 16)
with torch.no_grad():
    expected = net(x)
    optimized = framejit.optimize(net)
    for _ in range(3):
        got = optimized(x)
"""
BERT = """
import torch, framejit, transformers
torch.manual_seed(0)
config = transformers.BertConfig(
    hidden_size=64, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=100
)
net = transformers.BertModel(config).eval()
tokens = torch.arange(32).reshape(2, 16)
with torch.no_grad():
    expected = net(input_ids=tokens)[0]
    optimized = framejit.optimize(net)
    for _ in range(3):
        got = optimized(input_ids=tokens)[0]
"""
LLAMA = """
import torch, framejit, transformers
torch.manual_seed(0)
config = transformers.LlamaConfig(
    hidden_size=64, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=LAYERS,
    vocab_size=100
)
net = transformers.LlamaForCausalLM(config).eval()
tokens = torch.arange(32).reshape(2, 16)
with torch.no_grad():
    expected = net(input_ids=tokens, use_cache=False)[0]
    optimized = framejit.optimize(net)
    for _ in range(3):
        got = optimized(input_ids=tokens, use_cache=False)[0]
"""
TRAINING = """
import copy, torch, framejit
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(0.25), torch.nn.LayerNorm(16))
x, y = torch.randn(8, 16), torch.arange(8)
def loss_of(net, x, y):
    return torch.nn.functional.cross_entropy(net(x), y)
def inputs():
    return x, y
def trained(net, loss_of):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss_of(net, *inputs()).backward()
        optimizer.step()
    return torch.cat([part.detach().flatten() for p in net.parameters() for part in (p, p.grad)])
expected = trained(copy.deepcopy(net), loss_of)
got = trained(net, framejit.optimize(loss_of))
"""
STEP = """
import copy, torch, framejit
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
x, y = torch.randn(8, 16), torch.arange(8)
def step(net, optimizer, x, y):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
def trained(net, step):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(3):
        step(net, optimizer, x, y)
    return torch.cat([part.detach().flatten() for p in net.parameters() for part in (p, p.grad)])
expected = trained(copy.deepcopy(net), step)
got = trained(net, framejit.optimize(step))
"""


SETS = """
import torch, framejit
class Part:
    pass
part, words, numbers = Part(), ["delta", "alpha", "gamma", "beta", "epsilon"], [33, 1, 17, 9, 65]
for word in words:
    setattr(part, word, 1)
def of_words(x):
    return set(words), x + 1
def with_one_gone(x):
    left = set(words)
    left.discard("alpha")
    left.update("xyz")
    return left, left.copy(), x + 1
def of_attributes(x):
    return set(vars(part)), vars(part).keys() - {"beta"}, frozenset(vars(part)), x + 1
def mixed(x):
    return {"a", 1, None, (1, "b"), b"c", str, ...}, {1, 2} | {"s", "t"}, x + 1
def kept(x):
    part.made = {"a", "b", "c", "d", "e", "f", "g"}
    return part.made, {frozenset(("a", "b")), frozenset("c")}, x + 1
def of_numbers(x):
    left = {*numbers, 2.5, True}
    left.discard(33)
    return left, frozenset(numbers) | {2.25}, x + 1
def shown(found):
    return [(list(map(str, some)), [one in some for one in some]) for some in found[:-1]]
x = torch.ones(2)
for name in PROGRAMS:
    plain = shown(globals()[name](x))
    optimized = framejit.optimize(globals()[name])
    assert shown(optimized(x)) == plain, name
got = expected = x
"""


MODELS = ("transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama")
ALL = {"captured": True, "lowered": True, "recorded": True}
NOTHING = dict.fromkeys(ALL, False)
FIRST, SECOND = "1", "2"
"""Seeds of hashes, and so processes that were started apart, which what runs is a fork of."""


def run(
    program: str, folder, seed: str = FIRST, name: str = "program.py", options: tuple[str, ...] | None = None,
    having: tuple[str, ...] = (),
) -> dict[str, object]:
    """What a process tells: one that was started for it with these options of Python's, else a fork of one that has
    torch, and these modules."""
    script = folder / name
    script.write_text(textwrap.dedent(program) + TELL)
    environment = os.environ | {
        "FRAMEJIT_KEEP_CAPTURES": "1", "FRAMEJIT_CACHE_DIR": str(folder / "cache"), "PYTHONHASHSEED": seed,
    }
    if options is None:
        made = forked.run([script], env=environment, timeout=300, having=having)
    else:
        command = [sys.executable, *options, script]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout.splitlines()[-1])
    assert told.pop("error") < 1e-5
    return told


def test_a_second_process_captures_nothing(tmp_path):
    assert run(SMALL, tmp_path) == ALL
    # which writes no bytecode and has hashes without a seed: sys.flags tells, but it changes no capture
    assert run(SMALL, tmp_path, "0", options=("-B", "-q")) == NOTHING
    assert run(SMALL, tmp_path, seed=SECOND) == NOTHING
    assert run(SMALL, tmp_path, options=("-bb",))["captured"]  # comparisons of bytes with text raise there


def test_a_second_process_trains_what_the_first_compiled(tmp_path):
    assert run(TRAINING, tmp_path) == ALL
    assert run(TRAINING, tmp_path, seed=SECOND) == NOTHING
    flipped = TRAINING.replace("y = torch.arange(8)", "y = torch.arange(8).flip(0)")
    assert run(flipped, tmp_path, seed=SECOND) == NOTHING
    assert run(TRAINING.replace("cross_entropy(net(x), y)", "cross_entropy(net(x), y) * 2"), tmp_path)["captured"]
    assert run(TRAINING.replace("0.25", "0.5"), tmp_path)["captured"]


def test_a_second_process_takes_whole_steps_that_the_first_compiled(tmp_path):
    assert run(STEP, tmp_path) == ALL
    assert run(STEP, tmp_path, seed=SECOND) == NOTHING
    assert run(STEP.replace("0.5", "0.25"), tmp_path)["captured"]
    assert run(STEP.replace("optimizer.zero_grad()", "pass"), tmp_path)["captured"]


def test_a_second_process_with_another_line_captures(tmp_path):
    assert run(SMALL, tmp_path)["captured"]
    assert run(SMALL.replace("* self.scale", "/ self.scale"), tmp_path)["captured"]
    assert run(SMALL.replace("+ x\n", "- x\n"), tmp_path)["captured"]
    assert run(SMALL, tmp_path, name="moved.py")["captured"]  # lines of other files
    assert run(SMALL, tmp_path, seed=SECOND) == NOTHING


def test_sets_whose_places_go_by_the_hashes_of_a_process(tmp_path):
    program = SETS.replace("PROGRAMS", "'of_words with_one_gone of_attributes mixed kept'.split()")
    for seed in (FIRST, FIRST, SECOND, "3", "4"):
        run(program, tmp_path, seed=seed)


def test_sets_of_numbers_are_found(tmp_path):
    program = SETS.replace("PROGRAMS", "['of_numbers']")
    assert run(program, tmp_path)["captured"]
    assert run(program, tmp_path, seed=SECOND) == NOTHING


@pytest.mark.model
@pytest.mark.parametrize(
    "program", [BERT, LLAMA.replace("LAYERS", "2"), LLAMA.replace("LAYERS", "22")], ids=["bert", "llama", "22 layers"]
)
def test_models_of_transformers(program, tmp_path):
    pytest.importorskip("transformers")
    assert run(program, tmp_path, having=MODELS)["captured"]
    assert run(program, tmp_path, seed=SECOND, having=MODELS) == NOTHING


def test_captures_are_kept_unless_that_is_switched_off():
    assert Config().keep_captures
    assert not from_environment({"FRAMEJIT_KEEP_CAPTURES": "0"}).keep_captures
