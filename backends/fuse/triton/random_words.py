"""Random words of a whole block. Philox gives four at a time: where four neighbours of a block are at the places of one
counter, it is worked out once for them. Elsewhere each element takes one word of the four."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from framejit.backends.fuse.loop_ir.expr import Expr

if TYPE_CHECKING:
    from framejit.backends.fuse.triton.kernel_body import Body, Key

AT_ONCE: Final = 4
"""Words of a counter."""


def random_words(body: Body, key: Key) -> str | None:
    """The name of what a node `philox` gives, under a mask; None where each element is to be worked out on its own."""
    node, mask = key
    seed, draw, place = node.args
    index = next((operand for operand in (place, *place.args) if operand.op == "index"), None)
    evens, odds = _is(place, "bitand", -2), _is(place, "bitor", 1)
    if (
        index is None
        or not (place is index or evens or odds)
        or body.dims(seed, mask)
        or not body.indices.counts(index.attr, AT_ONCE)
    ):
        return None
    block = body.indices.shape(body.dims(index, mask))
    fours = f"{block[:-1]} // {AT_ONCE}, 2, 2]"
    places = body.lines.name(f"tl.reshape({body.value(index, mask)}, {fours})")
    words = f"philox_words({body.value(seed, mask)}, {body.draw(draw.attr)}, {places}, {evens}, {odds})"
    return body.lines.name(f"tl.reshape({words}, {block})")


def _is(place: Expr, operation: str, number: int) -> bool:
    """Whether a place is what an operation makes of an index and a number."""
    return place.op == operation and place.args[0].op == "index" and place.args[1].attr == number
