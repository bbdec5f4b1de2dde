"""Functions with a graph break that a rewrite removes, each with arguments to call it with."""
import logging
import warnings
import zlib

import numpy as np
import torch

logger = logging.getLogger(__name__)
X = torch.arange(1.0, 5.0)


def item(x):
    return x / x.max().repeat(17).tolist()[0] + 1


def item_of_an_inner_call(x):
    return item(torch.tanh(x)) * 2


def number_from_int(x):
    return x ** int((x > 0).sum())


def tolist(x):
    return x * sum((x + 1).repeat(17).tolist())


def branch_that_assigns(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    return y * 3


def branch_without_else(x):
    if bool((x > 100).any()):
        x = x.clamp(max=100)
    return x * 2


def branch_that_adds(x):
    y = x.sin()
    if y.sum() > 0:
        y += 1
    return y


def branch_that_returns(x):
    if x.sum().item() > 0 and not x.max() > 100:
        return x + 1, x.sum()
    return x - 1, x.sum()


def conditional_expression(x):
    return (x + 1 if x.sum() > 0 else x - 1) * 2


def branch_with_costly_steps(x):
    y = x * 2
    if y.sum() > 0:
        wide = torch.outer(y, y)
        y = torch.linalg.solve(wide + torch.eye(4), y)
    else:
        y = y - 1
    return y * 3


def branch_that_sets_two_variables(x):
    low, high = x - 1, x + 1
    if x.mean() > 0 and not x.max().item() > 100:
        middle = torch.softmax(low + high, -1)
        high = middle + low
    else:
        low = high.sin()
        high = low + 1
    return low * high


def branch_that_returns_after_steps(x):
    weights = torch.eye(4)
    if x.sum() > 0:
        hidden = torch.tanh(weights @ x)
        return weights @ hidden
    return x - 1


def printing(x):
    y = x * 2
    print("y is", y)
    return y + 1


def logging_a_number(x):
    y = x * 2
    logger.warning("y is %s", y.sum().item())
    return y + 1


def warning_of_something(x):
    y = x * 2
    warnings.warn("this is not a test", stacklevel=1)
    return y + 1


def numpy_functions(x):
    a = (x + 1).detach().numpy()
    b = np.sign(a) * 2
    return torch.from_numpy(np.concatenate([b, b])) + 1


def numbers_gathered_in_a_loop(x):
    losses = []
    for _ in range(3):
        x = x * 2
        losses.append(x.sum().repeat(17).tolist())
    return x, losses


def unsupported_call(x):
    y = x + 1
    scale = zlib.crc32(b"three") % 7
    return y * scale


def sum_of_a_selection(x):
    return x[x > 2].sum() + 1


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y / y.abs().max().repeat(17).tolist()[0]


FUNCTIONS = [
    item,
    item_of_an_inner_call,
    number_from_int,
    tolist,
    branch_that_assigns,
    branch_without_else,
    branch_that_adds,
    branch_that_returns,
    conditional_expression,
    branch_with_costly_steps,
    branch_that_sets_two_variables,
    branch_that_returns_after_steps,
    printing,
    logging_a_number,
    warning_of_something,
    numpy_functions,
    numbers_gathered_in_a_loop,
    unsupported_call,
    sum_of_a_selection,
]
