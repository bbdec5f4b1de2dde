"""Writes at computed places, results put into given memory (`out=`), scatters with accumulation, and arithmetic where
dtypes meet, numbers overflow, are nan or infinite, or there are none."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import Builder, Kind


def placed(b: Builder) -> None:
    """Writes into a copy by lists, masks and tensors of places."""
    x, y = b.tensor(1), b.fresh("t")
    n = b.integer()
    b.emit(f"{y} = {x.name}.clone()")
    b.emit(
        b.choice(
            f"{y}[[0, -1]] = {n}", f"{y}[{y} > 0] = {n}", f"{y}[torch.tensor([0, 0])] += 1", f"{y}[..., :1] *= 2",
            f"{y}[None, 0] = {y}[-1]", f"{y}[{n}:] = 0", f"{y}[::2] = {y}[:1]", f"{y}[{y}.isnan()] = 0",
            f"{y}.index_put_((torch.tensor([0, 0]),), {y}[:1], accumulate=True)",
            f"{y}.index_add_(0, torch.tensor([0, 0]), {y}[[0, 0]])", f"{y}.index_fill_(0, torch.tensor([0]), {n})",
            f"{y}.index_copy_(0, torch.tensor([0]), {y}[-1:])", f"{y}.masked_fill_({y} < 0, {n})",
            f"{y}.scatter_(0, torch.zeros_like({y}, dtype=torch.int64), {n})",
            f"{y}.scatter_add_(0, torch.zeros_like({y}, dtype=torch.int64), {y}.clone())",
            f"{y}.scatter_reduce_(0, torch.zeros_like({y}, dtype=torch.int64), {y}.clone(), 'amax')",
            f"{y}.masked_scatter_({y} > 0, {y}.flip(0))", f"{y}.put_(torch.tensor([0, 1]), {y}.flatten()[:2])",
            f"{y}.flatten()[0] = {n}", f"{y}.view(-1)[:{n}] = 1", f"{y}[{y}.argmax() % len({y})] = {n}",
            f"{y}[torch.zeros(len({y}), dtype=torch.bool)] = 5", f"{y}.diagonal().fill_({n}) if {y}.dim() > 1 else 0",
            f"{y}.swapaxes(0, -1)[0] = {n}", f"{y}.copy_({y}.flip(-1))", f"{y}.T[0] = {n}" if len(x.kind.shape) == 2
            else f"{y}.mT[..., 0] = {n}" if len(x.kind.shape) > 2 else f"{y}.zero_()",
        )
    )
    b.know(y, replace(x.kind, fresh=True, dense=True))


def into_given(b: Builder) -> None:
    x = b.tensor(1, "f")
    y = b.fresh("t")
    b.emit(b.choice(f"{y} = torch.empty_like({x.name})", f"{y} = torch.zeros(0)", f"{y} = torch.zeros(2, 1)"))
    b.emit(
        b.choice(
            f"torch.add({x.name}, 1, out={y})", f"torch.mul({x.name}, {x.name}, out={y})",
            f"print(torch.sin({x.name}, out={y}) is {y})", f"torch.clamp({x.name}, -1, 1, out={y})",
            f"torch.cat([{x.name}, {x.name}], out={y})", f"torch.where({x.name} > 0, {x.name}, 0.5, out={y})",
            f"torch.sum({x.name}, 0, out={y})", f"torch.stack([{x.name}], out={y})",
            f"torch.max({x.name}, 0, out=({y}, torch.empty(0, dtype=torch.int64)))",
        )
    )
    b.know(y, Kind("tensor", (b.fresh("?"),), fresh=True))


def meeting(b: Builder) -> None:
    """Arithmetic of several dtypes, and what overflows or divides by zero."""
    x, n = b.tensor(0), b.integer()
    b.let(
        b.choice(
            f"{x.name}.to(torch.int8) * 100", f"{x.name}.to(torch.uint8) - 3", f"{x.name} + torch.tensor({n})",
            f"{x.name}.half() + {x.name}.double()", f"{x.name}.bfloat16() * 1.1", f"{x.name}.bool() + 1",
            f"{x.name}.int() / 2", f"{x.name}.int() // -3", f"{x.name}.int() % -3", f"{x.name}.int() ** 2",
            f"torch.div({x.name}, 2, rounding_mode='floor')", f"torch.fmod({x.name}, -2)", f"{x.name} / 0",
            f"torch.where({x.name} > 0, {x.name}, {n})", f"torch.where({x.name} > 0, 1, 0.5)", f"{x.name} * True",
            f"({x.name} > 0) ^ ({x.name} < 1)", f"{x.name}.long() << 2", f"{x.name}.int() & {n}", f"2 ** {x.name}",
            f"{x.name}.to(torch.complex64) * 1j", f"torch.complex({x.name}.float(), {x.name}.float()).abs()",
            f"{x.name}.float().log()", f"{x.name}.float().sqrt().nan_to_num({n})", f"({x.name} / 0).isinf()",
            f"torch.maximum({x.name}.float() / 0, {x.name}.float())", f"(0 * ({x.name} / 0)).nansum()",
            f"{x.name}.float().softmax(-1) / 0 if {x.name}.dim() else {x.name}", f"{x.name}[None][:0].sum(0)",
            f"torch.cat([{x.name}[None][:0], {x.name}[None]])", f"{x.name}[None][:0] * 2",
            f"{x.name}.int().float() % 0.7", f"-{x.name}.int()",
            f"torch.result_type({x.name}, {n})", f"torch.promote_types({x.name}.dtype, torch.float16)",
            f"{x.name}.to(torch.float64).to(torch.float32) - {x.name}", f"{x.name}.round(decimals=1)"
            if x.kind.dtype == "f" else f"{x.name}.abs()", f"torch.bitwise_not({x.name}.bool())",
            f"3 // ({x.name} + 0.5)",
        ),
        Kind("any"),
    )


def empty(b: Builder) -> None:
    x = b.tensor(1)
    b.let(
        b.choice(
            f"{x.name}[:0].sum()", f"{x.name}[:0].mean()", f"{x.name}[:0].prod(0)", f"{x.name}[:0].any()",
            f"{x.name}[:0]", f"{x.name}[:0].reshape(-1)", f"len({x.name}[:0])",
            "torch.zeros(0, 3) @ torch.ones(3, 2)", f"torch.cat([{x.name}[:0], {x.name}])", f"{x.name}[:0].tolist()",
            f"{x.name}[:0].sort(0)[0]", f"{x.name}[:0].cumsum(0)", f"list({x.name}[:0])", f"{x.name}[:0].std()",
            f"torch.stack([{x.name}[:0]] * 2)", f"{x.name}[:0].nonzero()", f"{x.name}[:0].unique()",
        ),
        Kind("any"),
    )


STATEMENTS = [placed, placed, placed, into_given, meeting, meeting, meeting, empty]
