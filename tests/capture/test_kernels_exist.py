"""What `always_works` says of operations, tried on those that torch's own tests know."""
from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from framejit.backends.may_raise import always_works
from tests.fuse.operators.operator_cases import operators


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_what_works_on_fakes_works(dtype, caplog):
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    tried, wrong = 0, []
    for op in operators().values():
        if torch.float32 not in op.dtypes or not always_works(op.op, (torch.zeros(1, dtype=dtype),), {}, None):
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 1):
            given = (sample.input, *sample.args), sample.kwargs
            args, kwargs = tree_map(
                lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.dtype is torch.float32 else t, given
            )
            for function in filter(None, (op.op, op.inplace_variant)):
                mode = FakeTensorMode()
                fakes = tree_map(
                    lambda t, mode=mode: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t, (args, kwargs)
                )
                try:
                    with mode:
                        result = function(*fakes[0], **fakes[1])
                except Exception:
                    continue
                if not always_works(function, args, kwargs, result):
                    continue
                tried += 1
                copies = tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, (args, kwargs))
                try:
                    function(*copies[0], **copies[1])
                except (IndexError, ZeroDivisionError):
                    pass  # for the numbers
                except Exception as e:
                    wrong.append((op.name, function.__name__, str(e)[:80]))
    assert not wrong
    assert tried > (200 if dtype.is_floating_point else 20)
