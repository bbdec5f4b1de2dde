"""Reading and writing tensors through integers, slices, masks, tensors, None and Ellipsis."""
import pytest
import torch

from support import check

X = torch.arange(24.0).reshape(2, 3, 4)

READS = {
    "integers": lambda x: (x[0], x[-1, 1], x[1, 2, 3]),
    "slices": lambda x: (x[:, 1:], x[..., ::2], x[:1, -2:, 1:3], x[..., -1]),
    "none": lambda x: (x[None], x[:, None], x[..., None]),
    "mixed": lambda x: (x[0, :, 1], x[..., 0, :], x[1:, 0, None]),
    "index tensors": lambda x: (
        x[torch.tensor([0, 0])], x[:, torch.tensor([2, 0])], x[torch.tensor([0, 1]), torch.tensor([1, 2])],
    ),
    "lists": lambda x: (x[[0, 1]], x[:, [0, 2]], x[0][[True, False, True]]),
    "slice objects": lambda x: (x[slice(0, 1)], x[(slice(None), 1)], x[(..., slice(1, 3))]),
}


@pytest.mark.parametrize("name", READS)
def test_read(name):
    check(READS[name], X)


def test_boolean_mask_read_has_data_dependent_size():
    check(lambda x: (x[x > 5] * 2, x + 1), X, graphs=range(1, 4), breaks=range(0, 3))


def test_slice_assignment():
    def fn(x):
        y = x.clone()
        y[0] = 1
        y[:, 1] = y[:, 0] * 2
        y[..., -1] += 5
        y[1, 1:3, ::2] = torch.ones(2, 2)
        return y

    check(fn, X)


def test_mask_and_index_assignment():
    def fn(x):
        y = x.clone()
        y[y > 10] = 0.0
        y[torch.tensor([0]), :, torch.tensor([1])] = -1.0
        y[:, [0, 2]] *= 3
        return y

    check(fn, X)


def test_assignment_to_an_argument_is_seen_by_the_caller():
    def fn(x):
        x[0, 0] = 42.0
        return x.sum()

    check(fn, X)


def test_view_and_base_stay_connected():
    def fn(x):
        base = x.clone()
        row = base[0]
        row.mul_(2)
        base[0, 0] = -1
        return base, row

    check(fn, X)


def test_python_index_variables_specialise():
    check(lambda x, i: x[:, i] + i, X, 1, changed=[(X, 2)])


def test_index_out_of_range_is_the_users_error():
    check(lambda x, i: x[i] + 1, X, 0, changed=[(X, 9)])


def test_delete_is_not_supported_by_tensors():
    def fn(x):
        y = x + 1
        del y[0]
        return y

    check(fn, X, raises=TypeError, calls=1)


def test_iteration_over_indices_of_shape():
    def fn(x):
        out = torch.zeros(x.shape[:2])
        for i in range(x.size(0)):
            for j in range(x.size(1)):
                out[i, j] = x[i, j].sum()
        return out

    check(fn, X)
