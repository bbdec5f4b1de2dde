"""A program: compiles many operations, and prints which heavy modules that imported."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

import framejit

HEAVY = ["torch._dynamo", "torch._inductor", "sympy"]
x, v, i = torch.randn(2, 4, 8, 8), torch.randn(4, 8), torch.randint(0, 4, (4,))

OPERATIONS = {
    "arange": lambda: torch.arange(5) + v[0, :5],
    "batch_norm": lambda: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    "broadcast": lambda: v[:, None] + v[0] * 2,
    "clamp": lambda: v.clamp(0, 1),
    "clone": lambda: v.clone().copy_(v).add_(1),
    "conv": lambda: F.conv2d(x, torch.ones(4, 4, 3, 3), padding=1),
    "conv_transpose": lambda: F.conv_transpose2d(x.to(memory_format=torch.channels_last), torch.ones(4, 4, 3, 3)),
    "cross_entropy": lambda: F.cross_entropy(v, i),
    "cumsum": lambda: v.cumsum(0),
    "dropout": lambda: F.dropout(v),
    "einsum": lambda: torch.einsum("ij,kj->ik", v, v),
    "embedding": lambda: F.embedding(i, v),
    "fft": lambda: torch.fft.irfft(torch.fft.rfft(v)),
    "gather": lambda: v.gather(1, i[:, None]).scatter_add(1, i[:, None] * 0, v),
    "grid_sample": lambda: F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False),
    "index": lambda: v[i[:2], i[:2]] + v[:, 1].index_select(0, i[:2]),
    "interpolate": lambda: (
        F.interpolate(x, size=(5, 5), mode="bilinear") + F.interpolate(x, size=(5, 5), mode="bicubic")
    ),
    "layer_norm": lambda: F.layer_norm(v, (8,)) + F.rms_norm(v, (8,)),
    "linalg": lambda: torch.linalg.inv(v[:, :4]) + torch.linalg.svd(v[:, :4])[0],
    "lstm": lambda: nn.LSTM(8, 3)(v),
    "masked_fill": lambda: v.masked_fill(v > 0, 0.0),
    "matmul": lambda: torch.matmul(x, x) + torch.bmm(x[0], x[0]),
    "multihead_attention": lambda: nn.MultiheadAttention(8, 2)(v, v, v),
    "norms": lambda: F.normalize(v) + F.cosine_similarity(v, v)[:, None] + v.norm(),
    "pad": lambda: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pooling": lambda: F.max_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 4) + F.avg_pool2d(x, 2),
    "random": lambda: torch.rand(8) + torch.randn_like(v).bernoulli(0.5),
    "reductions": lambda: v.max(1).values + v.std(1) + v.logsumexp(1) + v.argmax(1) + v.mean(),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "sort": lambda: v.sort().values + v.argsort(),
    "split": lambda: torch.cat([*v.split(2), torch.stack([v[0], v[1]])]),
    "topk": lambda: v.topk(2).values,
    "tril": lambda: v.tril() + v.triu(1),
    "view": lambda: x.permute(0, 2, 3, 1).reshape(2, -1).flatten().view(2, -1).transpose(0, 1).contiguous(),
    "where": lambda: torch.where(v > 0, v, 0.0),
}


def main() -> None:
    if "before" in sys.argv:
        assert torch.compile(lambda x: x.sin(), backend="eager")(v) is not None
    for name, operation in OPERATIONS.items():
        compiled = framejit.optimize(operation, fullgraph=True, backend="eager")
        torch.manual_seed(0)
        expected = operation()
        torch.manual_seed(0)
        if name not in ("lstm", "multihead_attention"):  # their weights are made in the call
            torch.testing.assert_close(compiled(), expected, equal_nan=True)
        else:
            framejit.optimize(operation, backend="eager")()
    print([m for m in HEAVY if m in sys.modules])
    if "after" in sys.argv:
        from framejit.fakes import light_torch

        assert not [m for m in sys.modules.values() if isinstance(m, light_torch.StandIn)]
        graphs = []

        def backend(module, inputs):
            graphs.append(module)
            return module.forward

        for dynamic in (False, True):
            compiled = torch.compile(
                lambda x: F.layer_norm(x, (8,)) + x.clamp(0, 1), backend=backend, fullgraph=True, dynamic=dynamic
            )
            torch.testing.assert_close(compiled(v), F.layer_norm(v, (8,)) + v.clamp(0, 1))
        assert len(graphs) == 2
        # what C++ made torch load early is complete now
        from torch.distributed.tensor import DTensor  # noqa: F401
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        assert GuardOnDataDependentSymNode.__module__ == "torch.fx.experimental.symbolic_shapes"
        for module in [m for n, m in sys.modules.items() if n.startswith("torch.")]:
            assert (
                vars(module).get("GuardOnDataDependentSymNode", GuardOnDataDependentSymNode)
                is GuardOnDataDependentSymNode
            )
        assert not [f for f in sys.meta_path if type(f).__module__.startswith("framejit")]
        torch.testing.assert_close(framejit.optimize(lambda x: x.softmax(-1), backend="eager")(v), v.softmax(-1))


if __name__ == "__main__":
    main()
