"""Why a function is compiled again: the log names the guard that failed, what it expected and what it met."""
import sys

import torch

import framejit

framejit.set_logs("recompiles", stream=sys.stdout)


@framejit.optimize
def scale(x, factor):
    return x * factor


print("a first size"), scale(torch.ones(3), 2)
print("the same again, nothing to say"), scale(torch.zeros(3), 2)
print("another size"), scale(torch.ones(5), 2)
print("another number"), scale(torch.ones(5), 3)
print("another dtype"), scale(torch.ones(5, dtype=torch.float64), 3)
print("a size seen before, nothing to say"), scale(torch.ones(3), 2)
print()
print(framejit.status())
