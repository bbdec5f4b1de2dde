"""Models' graphs as a GPU has them, forward and backward: each pass leaves a graph that is sound, and kernels can be
written for it. The CPU stands for a GPU, of which nothing is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("triton")
import framejit  # noqa: E402
from framejit.backends.fuse.graph.entrances import Entrance  # noqa: E402
from framejit.backends.fuse.graph.graph import Graph  # noqa: E402
from framejit.backends.fuse.graph.passes.pipeline import run_passes  # noqa: E402
from framejit.backends.fuse.graph.record import record_graph  # noqa: E402
from framejit.backends.fuse.loop_ir.nodes import Kernel  # noqa: E402
from framejit.backends.fuse.lowering.lower_graph import lower_graph  # noqa: E402
from framejit.backends.fuse.lowering.whole import keeps  # noqa: E402
from framejit.backends.fuse.schedule.make_kernels import schedule  # noqa: E402
from framejit.backends.fuse.targets.lookup import standing_in  # noqa: E402
from framejit.backends.fuse.training.assemble import _Assembly  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import triton_source  # noqa: E402
from framejit.config import config  # noqa: E402
from tests.fuse.joint_graphs import AbsentGpu  # noqa: E402

pytestmark = pytest.mark.model
LAYERS = 10
"""So many that they are recorded once."""
IMAGE, TOKENS = (2, 3, 32, 32), (2, 16)
WIDTHS = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "num_hidden_layers": LAYERS}


def of_images(model: Any, config: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    return model(config), {"pixel_values": torch.randn(IMAGE)}


def of_tokens(model: Any, config: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    return model(config), {"input_ids": torch.randint(0, 100, TOKENS), "use_cache": False}


t = transformers
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "vit": lambda: of_images(t.ViTModel, t.ViTConfig(**WIDTHS, image_size=32, patch_size=8)),
    "convnext": lambda: of_images(
        t.ConvNextModel, t.ConvNextConfig(depths=[1, 1, LAYERS, 1], hidden_sizes=[16, 32, 64, 64])
    ),
    "resnet": lambda: of_images(
        t.ResNetModel, t.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 64, 64], depths=[1, 1, LAYERS, 1])
    ),
    "swin": lambda: of_images(
        t.SwinModel, t.SwinConfig(
            image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4
        ),
    ),
    "segformer": lambda: of_images(
        t.SegformerModel, t.SegformerConfig(
            hidden_sizes=[16, 32, 32, 32], num_attention_heads=[1, 2, 2, 2], depths=[1, 1, LAYERS, 1]
        ),
    ),
    "llama": lambda: of_tokens(
        t.LlamaForCausalLM, t.LlamaConfig(**WIDTHS, num_key_value_heads=2, vocab_size=101)
    ),
    "gpt2": lambda: of_tokens(t.GPT2LMHeadModel, t.GPT2Config(n_embd=64, n_head=2, n_layer=LAYERS, vocab_size=100)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("trains", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_written(name: str, trains: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model = model.train(trains).to(dtype).requires_grad_(trains)
    given = {key: value.to(dtype) if key == "pixel_values" else value for key, value in given.items()}
    graphs: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

    def captured(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append((gm, examples))
        return gm.forward

    framejit.optimize(lambda: model(**given)[0].float().square().mean(), backend=captured)()
    halves: list[int] = []

    def written(graph: Graph, *_: Any) -> Any:
        steps = schedule(lower_graph(run_passes(graph, None, ()), False))
        kernels = [step for step in steps if isinstance(step, Kernel)]
        for kernel in kernels:
            if not kernel.is_empty:
                triton_source(kernel)
        halves.append(len(kernels))
        return MagicMock()

    ((gm, examples),) = graphs
    with config.patch(debug=True), standing_in("cpu", AbsentGpu):
        if trains:
            _Assembly(gm, [*map(Entrance.of, examples)], written, None, None, lambda: MagicMock(), examples).made([])
        else:
            written(record_graph(gm, examples, keeps))
    assert len(halves) == (2 if trains else 1) and min(halves) > 5
