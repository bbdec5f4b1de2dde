"""Views, writes through them, and tensors that share memory in other ways."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import Builder, Kind, NoFit, Var


def view_of(b: Builder, x: Var) -> tuple[str, Kind]:
    """The text of a view of `x`, and what it is."""
    shape, rank, name = x.kind.shape, len(x.kind.shape), x.name
    kind, u = x.kind, b.fresh("?")
    options = [
        (f"{name}[1:]", replace(kind, shape=(f"{shape[0]}-1", *shape[1:]))),
        (f"{name}[:-1]", replace(kind, shape=(f"{shape[0]}-1", *shape[1:]))),
        (f"{name}[::2]", replace(kind, shape=(f"{shape[0]}/2", *shape[1:]))),
        (f"{name}[..., :2]", replace(kind, shape=(*shape[:-1], "2"))),
        (f"{name}[0]", replace(kind, shape=shape[1:])),
        (f"{name}[-1]", replace(kind, shape=shape[1:])),
        (f"{name}.select(-1, 0)", replace(kind, shape=shape[:-1])),
        (f"{name}.narrow(0, 0, 1)", replace(kind, shape=("1", *shape[1:]))),
        (f"{name}.unsqueeze(0)", replace(kind, shape=("1", *shape))),
        (
            f"{name}[:, None]" if rank > 1 else f"{name}[None]",
            replace(kind, shape=(shape[0], "1", *shape[1:]) if rank > 1 else ("1", *shape)),
        ),
        (f"{name}.reshape(-1)", replace(kind, shape=("*".join(shape),))),
        (f"{name}.view(-1)", replace(kind, shape=("*".join(shape),))),
        (f"{name}.flatten()", replace(kind, shape=("*".join(shape),))),
        (f"{name}.expand(2, {', '.join('-1' for _ in shape)})", replace(kind, shape=("2", *shape), dense=False)),
        (f"{name}.detach()", kind),
        (f"{name}.view_as({name})", kind),
        (f"{name}.squeeze()", replace(kind, shape=tuple(s for s in shape if s != "1"))),
        (f"{name}.as_strided((2,), (1,))", replace(kind, shape=("2",))),
        (f"{name}.as_strided((2, 2), (0, 1), 1)", replace(kind, shape=("2", "2"), dense=False)),
        (f"torch.broadcast_to({name}, (3, *{name}.shape))", replace(kind, shape=("3", *shape), dense=False)),
        (f"{name}.unfold(0, 1, 1)", replace(kind, shape=(*shape, "1"))),
        (f"{name}.movedim(0, -1)", replace(kind, shape=(*shape[1:], shape[0]))),
        (f"{name}.chunk(2)[0]", replace(kind, shape=(u, *shape[1:]))),
        (f"{name}.split(1)[-1]", replace(kind, shape=("1", *shape[1:]))),
        (f"{name}.unbind(0)[0]", replace(kind, shape=shape[1:])),
        (f"torch.real({name})", kind),
        (f"{name}.to({name}.dtype)", kind),
        (f"{name}.data", kind),
        (
            f"{name}.diagonal()" if rank > 1 else f"{name}[0:1]",
            replace(kind, shape=(u,) if rank == 2 else (*shape[2:], u) if rank > 1 else ("1",)),
        ),
    ]
    if rank > 1:
        options += [
            (f"{name}.transpose(0, 1)", replace(kind, shape=(shape[1], shape[0], *shape[2:]))),
            (f"{name}.mT", replace(kind, shape=(*shape[:-2], shape[-1], shape[-2]))),
            (f"{name}.permute({', '.join(map(str, reversed(range(rank))))})", replace(kind, shape=shape[::-1])),
            (f"{name}[:, 0]", replace(kind, shape=(shape[0], *shape[2:]))),
            (f"{name}[:, 1:]", replace(kind, shape=(shape[0], f"{shape[1]}-1", *shape[2:]))),
            (f"{name}.view({name}.shape[1], -1)", replace(kind, shape=(shape[1], u))),
        ]
    return b.rng.choice(options)


def view(b: Builder) -> None:
    x = b.tensor(1, "fic")
    text, kind = view_of(b, x)
    b.let(text, kind)


def several_views(b: Builder) -> None:
    """Several views of one operation, each of which may be used or given or neither."""
    x = b.tensor(2, "fic")
    rest = x.kind.shape[1:]
    one, two, text = b.rng.choice([
        ((b.fresh("?"), *rest), (b.fresh("?"), *rest), f"({x.name}.chunk(2) * 2)[:2]"),
        (("1", *rest), ("1", *rest), f"{x.name}.split(1)[:1] * 2"),
        (("1", *rest), (b.fresh("?"), *rest), f"torch.tensor_split({x.name}, [1])"),
        (rest, rest, f"({x.name}[0], {x.name}.unbind()[-1])"),
        (rest, rest, f"({x.name}.unbind() * 2)[:2]"),
    ])
    names = [b.fresh("t"), b.fresh("t")]
    b.emit(f"{', '.join(names)} = {text}")
    for name, shape in zip(names, (one, two)):
        b.know(name, replace(x.kind, shape=shape))


WRITES = (
    "{x}.add_({n})", "{x}.mul_({n})", "{x}.zero_()", "{x}.fill_({n})", "{x}.copy_({y})", "{x}.relu_()", "{x} += {n}",
    "{x} *= 2", "{x}.sub_({y})",
    "{x} -= {y}", "{x}[0] = {n}",
    "{x}[0] += 1", "{x}[..., -1] = {n}", "{x}[:] = {y}", "{x}[1:] *= 2", "{x}.clamp_(-1, 1)", "{x}[{x} > 0] = {n}",
    "{x}.masked_fill_({x} < 0, {n})",
    "{x}.exp_()",
    "{x}.neg_()", "torch.add({x}, 1, out={x})", "{x}.index_fill_(0, torch.tensor([0]), 2.0)", "{x}[[0]] = 0.5",
    "{x}.transpose_(0, -1)", "{x}.unsqueeze_(0)",
    "{x}.squeeze_()",
    "{x}.index_add_(0, torch.tensor([0]), {x}[:1])", "{x}.index_put_((torch.tensor([0]),), torch.tensor(1.0))",
    "{x}.uniform_()", "{x}.normal_()",
    "{x}.bernoulli_(0.5)",
    "{x}.clamp_(min=0).add_(1)", "{x}.data.add_(1)", "{x}.detach().mul_(2)", "{x}.resize_({x}.shape)",
    "{x}.set_({x}.clone())", "{x}.data = {x}.data * 2",
    "torch.relu_({x})",
    "{x}.flatten()[0] = 7", "{x}.t_() if {x}.dim() < 3 else {x}.add_(1)", "{x}.cumsum_(0)", "{x}.addcmul_({x}, {x})",
    "{x}[-1].zero_()", "{x}.round_()",
    "{x}.swapaxes_(0, -1)",
)


def write(b: Builder) -> None:
    found = [v for v in b.all("tensor") if v.kind.shape and v.kind.dtype == "f" and (v.kind.dense or b.chance(0.1))]
    if b.uses_grad and not b.chance(0.1):
        found = [v for v in found if v.kind.fresh]
    x = b.one(found)
    text = b.choice(*WRITES)
    b.emit(text.format(x=x.name, y=b.other(x), n=b.number()))
    if "_(0, -1)" in text or "squeeze_" in text or ".t_" in text:
        b.forget(x.name)
        b.know(x.name, replace(x.kind, shape=tuple(b.fresh("?") for _ in x.kind.shape)))


def write_through_view(b: Builder) -> None:
    found = [v for v in b.all("tensor") if v.kind.shape and v.kind.dtype == "f" and v.kind.dense]
    if b.uses_grad and not b.chance(0.1):
        found = [v for v in found if v.kind.fresh]
    x = b.one(found)
    text, kind = view_of(b, x)
    if not kind.dense and not b.chance(0.1):
        raise NoFit
    v = b.let(text, kind, again=0)
    b.emit(
        b.choice(
            "{v}.add_(1)", "{v} *= 2", "{v}.zero_()", "{v}.copy_({n} + {v})", "{v}[...] = {n}", "{v}.sub_({x}.sum())"
        ).format(v=v.name, n=b.number(), x=x.name)
    )
    if b.chance(0.5):
        b.let(f"{x.name} + 1", replace(x.kind, fresh=True, dense=True))


def metadata(b: Builder) -> None:
    x = b.tensor(0, "fic")
    b.let(
        b.choice(
            "{x}.stride()", "{x}.storage_offset()", "tuple({x}.shape)", "{x}.is_contiguous()", "{x}.dtype",
            "{x}.data_ptr() == {x}.data_ptr()", "{x}._version", "{x}.is_leaf",
            "{x}._base is None", "{x}.untyped_storage().nbytes()", "{x}.element_size()", "list({x}.size())",
            "{x}.nelement()", "str({x}.dtype)", "repr({x}.shape)", "{x}.itemsize",
            "{x}.device.type", "{x}.grad is None", "{x}.ndim", "type({x}.shape)", "{x}.is_floating_point()",
            "torch.result_type({x}, 1.5)", "{x}.is_complex()", "hash({x}) == id({x})",
            "{x}._is_view()", "isinstance({x}, torch.Tensor)", "{x}.layout",
        ).format(x=x.name),
        Kind("fact"),
    )


STATEMENTS = [view, view, view, several_views, write, write, write_through_view, write_through_view, metadata]
