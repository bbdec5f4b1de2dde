"""Tensor methods, attributes, views, dtype and device queries, reductions, factory functions."""
# ruff: noqa: E501
import pytest
import torch
import torch.nn.functional as F

from support import check

X = torch.arange(1.0, 13.0).reshape(3, 4)

METHODS = {
    "reductions": lambda x: (
        x.sum(), x.mean(0), x.max(), x.max(1), x.std(), x.argmax(), x.all(), x.norm(), x.cumsum(0), x.prod(1),
    ),
    "views": lambda x: (
        x.view(4, 3), x.reshape(-1), x.t(), x.T, x.permute(1, 0), x.unsqueeze(0), x[None], x.flatten(),
        x.expand(2, 3, 4), x.mT,
    ),
    "splits": lambda x: (x.chunk(2, dim=1), x.split(1), x.split([1, 2]), x.unbind(1), torch.tensor_split(x, 2)),
    "joins": lambda x: (torch.cat([x, x]), torch.stack([x, x], -1), torch.hstack([x, x]), torch.cat((x, x * 2), dim=1)),
    "types": lambda x: (
        x.int(), x.half(), x.to(torch.float64), x.bool(), x.type(torch.int64), x.long().float(), x.to("cpu"),
        x.type_as(x.int()),
    ),
    "pointwise": lambda x: (
        x.relu(), x.sigmoid(), x.clamp(2, 5), x.exp().log(), x.pow(2), x.sqrt(), x.masked_fill(x > 5, 0.0),
        x.lerp(x * 2, 0.5),
    ),
    "where": lambda x: (torch.where(x > 5, x, -x), torch.where(x > 5, 1.0, 0.0), x.where(x > 2, torch.zeros(()))),
    "einsum": lambda x: (torch.einsum("ij,kj->ik", x, x), torch.einsum("ij->j", x), torch.einsum("...j,j", x, x[0])),
    "linear algebra": lambda x: (
        x @ x.T, x.mm(x.T), torch.bmm(x[None], x.T[None]), x.matmul(x[0]), torch.outer(x[0], x[1]),
        x.dot if False else x[0].dot(x[1]),
    ),
    "sorting": lambda x: (x.sort(descending=True), x.topk(2), x.argsort(), x.kthvalue(2)),
    "gathering": lambda x: (
        x.gather(1, torch.zeros(3, 1, dtype=torch.long)), x.index_select(0, torch.tensor([2, 0])),
        x.take(torch.tensor([0, 5])), x.roll(1, 0),
    ),
    "functional": lambda x: (
        F.softmax(x, -1), F.gelu(x), F.layer_norm(x, (4,)), F.pad(x, (1, 1)), F.one_hot(x.long() % 3, 3),
        F.normalize(x), F.silu(x),
    ),
    "factories": lambda x: (
        torch.zeros(3), torch.ones_like(x), x.new_zeros(2), torch.arange(5), torch.full((2,), 7.0), torch.eye(2),
        torch.linspace(0, 1, 3), x.new_tensor([1.0]), torch.tensor([1, 2]), torch.empty(2).fill_(1),
    ),
    "comparison": lambda x: (
        x == x, torch.isclose(x, x), x.eq(3), torch.maximum(x, x * 0.5), torch.logical_and(x > 1, x < 5), x.isnan(),
    ),
    "tril and masks": lambda x: (
        torch.tril(x), torch.triu(torch.ones(3, 3), 1).bool(), x.masked_fill(torch.tril(x) == 0, float("-inf")),
    ),
}


def test_a_method_taken_from_its_class_with_keywords():
    cdouble = torch.Tensor.cdouble
    check(lambda x: cdouble(x, memory_format=torch.preserve_format), torch.ones(3), fullgraph=True)


@pytest.mark.parametrize("name", METHODS)
def test_method_family(name):
    check(METHODS[name], X)


def test_metadata_queries_are_constants():
    def fn(x):
        return (
            x + 1, x.shape, x.size(), x.size(0), x.size(-1), x.dim(), x.ndim, x.numel(), x.dtype, x.device,
            x.stride(), x.is_contiguous(), x.requires_grad, x.is_floating_point(), x.element_size(), x.layout,
            x.is_cuda, len(x), x.storage_offset(), x.is_leaf, x.device.type, x.itemsize, x.nbytes,
        )

    check(fn, X, ops=1)


def test_shape_arithmetic_drives_views():
    def fn(x):
        b, n = x.shape
        half = n // 2
        return x.view(b, 2, half).transpose(1, 2).reshape(b * half, -1), x.shape[:-1] + (2, -1), x.shape.numel()

    check(fn, X, changed=[(torch.randn(5, 6),)])


def test_torch_size_methods():
    check(
        lambda x: (
            x + 1, torch.Size([1, 2]), tuple(x.shape), list(x.shape), x.shape == (3, 4), x.shape[1:],
            isinstance(x.shape, tuple), x.shape.count(3),
        ),
        X,
    )


def test_dtype_and_device_objects():
    def fn(x):
        info = torch.finfo(x.dtype)
        return (
            x + info.eps, info.min, torch.iinfo(torch.int8).max, x.dtype.is_floating_point,
            torch.device("cpu") == x.device, torch.promote_types(x.dtype, torch.half),
        )

    check(fn, X)


def test_named_results():
    def fn(x):
        r = x.max(dim=1)
        return r.values + 1, r.indices, r[0], type(r).__name__

    check(fn, X)


def test_out_argument():
    def fn(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    check(fn, X, torch.empty(3, 4))


def test_detach_clone_contiguous_data():
    check(lambda x: (x.detach() * 2, x.clone(), x.t().contiguous(), x.data + 1), X.clone().requires_grad_())


def test_attribute_assignment_on_a_tensor():
    def fn(x):
        y = x + 1
        y.tag = "mine"
        return y * 2, y.tag

    check(fn, X, graphs=range(1, 3), breaks=range(0, 2))


def test_random_numbers_follow_the_seed():
    def fn(x):
        return (
            torch.rand(3) + x.mean(), torch.randn_like(x), F.dropout(x, 0.5, training=True),
            torch.randint(0, 9, (2,)), torch.randperm(4),
        )

    check(fn, X)


def test_manual_seed_inside():
    def fn(x):
        torch.manual_seed(5)
        return x + torch.rand(3, 4)

    check(fn, X, graphs=range(1, 3), breaks=range(0, 2))


def test_complex_and_fft():
    check(
        lambda x: (
            torch.fft.rfft(x),
            torch.view_as_complex(x.reshape(3, 2, 2)).abs(),
            torch.complex(x, x).conj().resolve_conj(),
        ),
        X,
    )


def test_scalar_tensors_and_numbers_mix():
    check(lambda x, s: (x * s, s + 1, s.item if False else s * 2.0, x + torch.tensor(2)), X, torch.tensor(3))


def test_tensor_constant_captured_from_a_list():
    check(lambda x: x + torch.tensor([[1.0, 2.0, 3.0, 4.0]]) + torch.as_tensor(2.5), X)


def test_static_checks_on_types():
    check(lambda x: x + 1 if torch.is_tensor(x) and torch.is_floating_point(x) and not torch.is_complex(x) else x, X)


def test_default_dtype_and_grad_queries():
    check(
        lambda x: (
            x + 1, torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled(),
        ),
        X,
    )


def test_sparse_and_quantised_arguments_do_not_break_the_program():
    check(
        lambda s, x: torch.sparse.mm(s, x) + 1, torch.eye(3).to_sparse(), X, graphs=range(0, 3), breaks=range(0, 3),
        ops=None, calls=1,
    )


def test_empty_and_zero_dimensional():
    check(lambda e, z: (e + 1, e.sum(), z * 2, z.shape, torch.cat([e, e])), torch.empty(0, 3), torch.tensor(1.5))


def test_subclass_parameter_behaves_as_a_tensor():
    check(
        lambda p, x: (p * x, isinstance(p, torch.nn.Parameter), type(p) is torch.nn.Parameter),
        torch.nn.Parameter(X.clone()),
        X,
    )


@pytest.mark.parametrize(
    "operate",
    [
        lambda a, b, out: torch.cat((a, a), out=out),
        lambda a, b, out: torch.cat((a, b), out=out),
        lambda a, b, out: torch.add(a, a, out=out),
        lambda a, b, out: torch.exp(a.transpose(1, 2), out=out),
        lambda a, b, out: torch.bmm(a[0], b[0], out=out),
    ],
)
def test_in_which_order_out_without_elements_is_filled(operate):
    """As a new result would lie, which fakes don't know of all operations."""

    def fn(a, b):
        out = torch.empty(0)
        operate(a, b, out)
        return out.stride(), out.is_contiguous(memory_format=torch.channels_last) if out.dim() == 4 else None, out

    a, b = (torch.rand(2, 3, 4, 4) for _ in range(2))
    check(fn, a.contiguous(memory_format=torch.channels_last), b, graphs=range(9), breaks=range(9))
