"""`(w * x + b).relu().sum()`: gradients flow through what was compiled."""
import torch

import framejit


def loss(w, x, b):
    return (w * x + b).relu().sum()


fast_loss = framejit.optimize(loss, fullgraph=True)

x = torch.randn(1000)
for name, function in (("eager   ", loss), ("framejit", fast_loss)):
    w, b = torch.full((1000,), 0.5, requires_grad=True), torch.zeros(1000, requires_grad=True)
    value = function(w, x, b)
    value.backward()
    print(f"{name}  loss {value.item():.4f}  gradient of w {w.grad.norm().item():.4f}  of b {b.grad.norm().item():.4f}")
