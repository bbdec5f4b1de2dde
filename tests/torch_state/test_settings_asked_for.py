"""Settings of torch's that captured code asks for: guarded, so that the graph stays one and another setting is seen."""

import pytest
import torch

import framejit


def switch(module, name, values):
    def ask():
        return getattr(module, name)

    def turn(value):
        setattr(module, name, value)

    return ask, turn, values


def functions(ask, turn, values):
    return ask, turn, values


SETTINGS = {
    "tf32 of products": switch(torch.backends.cuda.matmul, "allow_tf32", (False, True)),
    "tf32 of cudnn": switch(torch.backends.cudnn, "allow_tf32", (True, False)),
    "benchmark": switch(torch.backends.cudnn, "benchmark", (False, True)),
    "deterministic": switch(torch.backends.cudnn, "deterministic", (False, True)),
    "reductions": switch(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", (True, False)),
    "filled memory": switch(torch.utils.deterministic, "fill_uninitialized_memory", (True, False)),
    "precision": functions(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest", "high", "medium")
    ),
    "warnings": functions(torch.is_warn_always_enabled, torch.set_warn_always, (False, True)),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_setting(setting):
    ask, turn, values = setting

    def fn(x):
        return x + 1 if ask() == values[0] else x * 3

    before = ask()
    optimized = framejit.optimize(fn, fullgraph=True)
    x = torch.ones(3)
    try:
        for value in (*values, *values):
            turn(value)
            torch.testing.assert_close(optimized(x), fn(x))
    finally:
        turn(before)
    assert len(optimized.entries) == len(values)


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
def test_what_torch_refuses_to_say():
    """The precision, where it was set in the old and the new manner: plain Python raises, and no entry does later."""
    def fn(x):
        return x * len(torch.get_float32_matmul_precision())

    optimized, products = framejit.optimize(fn), torch.backends.mkldnn.matmul
    before, x = products.fp32_precision, torch.ones(3)
    for value in (before, "tf32", before):
        try:
            products.fp32_precision = value
            outcomes = []
            for each in (fn, optimized):
                try:
                    outcomes.append(each(x).tolist())
                except RuntimeError as e:
                    outcomes.append(str(e))
            compiled = framejit.optimize(lambda x: (x @ x).relu())(torch.eye(3, requires_grad=True))
        finally:
            products.fp32_precision = before
        assert outcomes[0] == outcomes[1]
        torch.testing.assert_close(compiled, torch.eye(3))
