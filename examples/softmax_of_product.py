"""`softmax(x @ y)` as a function, and as a module that stays what it was."""
import torch

import framejit


@framejit.optimize(fullgraph=True)
def f(x, y):
    return torch.softmax(x @ y, dim=-1)


class Attend(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.keys = torch.nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        return torch.softmax(x @ self.keys, dim=-1)


x = torch.randn(4, 8)
print("function: sums of the rows:", f(x, torch.randn(8, 8)).sum(-1))

model = Attend(8)
fast = framejit.optimize(model)
print("module: same result:", torch.allclose(fast(x), model(x)))
print("module: same class, same names:", isinstance(fast, Attend), list(fast.state_dict()))
print("module: same parameters:", fast.keys is model.keys)
