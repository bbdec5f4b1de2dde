"""Where a graph breaks, why, and what to do: as a report, and as an error under `fullgraph=True`."""
import torch

import framejit


def normalise(x):
    low, *_, high = sorted(x.tolist())
    return (x - low) / (high - low)


def f(x):
    return normalise(torch.tanh(x)) + 1


print(framejit.explain(f)(torch.randn(32)))
print()
try:
    framejit.optimize(f, fullgraph=True)(torch.randn(32))
except framejit.errors.GraphBreakError as error:
    print("with fullgraph=True:", error)
