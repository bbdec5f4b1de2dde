"""Each example runs and prints what its first lines promise."""
import re
import sysconfig
from pathlib import Path

import pytest

import forked

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "custom_backend.py": ["call_function[target=torch.abs]", "used as it is by the second call: True"],
    "data_dependent_flow.py": [
        "positive: tensor([0., 2., 4.])", "negative: tensor([-0., -2., -4.])", "compiled in parts",
    ],
    "softmax_of_product.py": ["same result: True", "same class, same names: True ['keys']", "same parameters: True"],
    "reduction_with_gradient.py": ["eager ", "framejit "],
    "hugging_face_model.py": ["1 graph of ", "0 graph breaks", "equal to eager but for rounding: True"],
    "recompile_story.py": [
        "size 3 was expected at dimension 0, got 5",
        "2 was expected, got 3",
        "dtype float32 was expected, got float64",
    ],
    "explained_break.py": [
        "explained_break.py:8, in normalise", ".tolist()", "hint: ", "fullgraph=True, but the graph breaks at",
    ],
}


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model) if n.startswith("hugging") else n for n in SAYS]
)
def test_example(name):
    packages = Path(sysconfig.get_path("purelib"))
    if name.startswith("hugging") and ((packages / "torchvision").exists() or not (packages / "transformers").exists()):
        pytest.skip("needs transformers, and beside it no torchvision that was built for another torch")
    done = forked.run([EXAMPLES / name], timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in SAYS[name]:
        assert part in done.stdout
    losses = [
        [float(number) for number in re.findall(r"\d+\.\d+", line)]
        for line in done.stdout.splitlines()
        if "loss" in line
    ]
    for loss in losses[1:]:
        # sums in another order: the last digit printed may be another
        assert loss == pytest.approx(losses[0], abs=2e-4)
