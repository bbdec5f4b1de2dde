"""An `if` on the value of a tensor: the graph ends there, and both sides continue compiled."""
import torch

import framejit


@framejit.optimize
def f(x, y):
    y = y * 2
    return y if x.sum() > 0 else -y


y = torch.arange(3.0)
print("positive:", f(torch.ones(3), y))
print("negative:", f(-torch.ones(3), y))
print()
print(framejit.status())
