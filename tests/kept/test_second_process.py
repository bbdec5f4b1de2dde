"""Real second processes: they find what the first one captured, import no compiler, and give the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from framejit.config import Config, from_environment

pytestmark = pytest.mark.process

TELL = """
import json, sys
print(json.dumps({
    "captured": "framejit.capture.capture" in sys.modules,
    "lowered": "framejit.backends.fuse.lowering.lower_graph" in sys.modules,
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


def run(program: str, folder, seed: str = "random", name: str = "program.py") -> dict[str, object]:
    script = folder / name
    script.write_text(textwrap.dedent(program) + TELL)
    environment = os.environ | {
        "FRAMEJIT_KEEP_CAPTURES": "1", "FRAMEJIT_CACHE_DIR": str(folder / "cache"), "PYTHONHASHSEED": seed,
    }
    made = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout.splitlines()[-1])
    assert told.pop("error") < 1e-5
    return told


NOTHING = {"captured": False, "lowered": False}


def test_a_second_process_captures_nothing(tmp_path):
    assert run(SMALL, tmp_path) == {"captured": True, "lowered": True}
    assert run(SMALL, tmp_path) == NOTHING
    assert run(SMALL, tmp_path, seed="7") == NOTHING


def test_a_second_process_with_another_line_captures(tmp_path):
    assert run(SMALL, tmp_path)["captured"]
    assert run(SMALL.replace("* self.scale", "/ self.scale"), tmp_path)["captured"]
    assert run(SMALL.replace("+ x\n", "- x\n"), tmp_path)["captured"]
    assert run(SMALL, tmp_path, name="moved.py")["captured"]  # lines of other files
    assert run(SMALL, tmp_path) == NOTHING


@pytest.mark.model
@pytest.mark.parametrize("program", [BERT, LLAMA.replace("LAYERS", "2"), LLAMA.replace("LAYERS", "22")])
def test_models_of_transformers(program, tmp_path):
    pytest.importorskip("transformers")
    assert run(program, tmp_path)["captured"]
    assert run(program, tmp_path) == NOTHING


def test_captures_are_kept_unless_that_is_switched_off():
    assert Config().keep_captures
    assert not from_environment({"FRAMEJIT_KEEP_CAPTURES": "0"}).keep_captures
