"""Functions that generated kernels call, themselves compiled for the device. Each takes and returns tensors of one
dtype and shape."""
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def nan_max(a, b):
    """The greater; nan if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_min(a, b):
    """The lesser; nan if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def plain_max(a, b):
    """The greater of integers."""
    return tl.maximum(a, b)


@triton.jit
def plain_min(a, b):
    """The lesser of integers."""
    return tl.minimum(a, b)


@triton.jit
def added(a, b):
    """The sum; tl.sum would widen small integers."""
    return a + b


@triton.jit
def multiplied(a, b):
    """The product of two values: what `associative_scan` and `reduce` combine by."""
    return a * b


@triton.jit
def exclusive(a, b):
    """The exclusive or of two values' bits: what a reduction combines by."""
    return a ^ b


@triton.jit
def either(a, b):
    """Bitwise or; logical for 0 and 1."""
    return a | b


@triton.jit
def both(a, b):
    """Bitwise and; logical for 0 and 1."""
    return a & b


@triton.jit
def first_greatest(a, place_a, b, place_b):
    """The greater with its place, the earlier of equals; nan is greater than all."""
    a_nan, b_nan = a != a, b != b
    better = ((a > b) & (b_nan == 0)) | (a_nan & (b_nan == 0))
    equal = (a == b) | (a_nan & b_nan)
    keep = better | (equal & (place_a < place_b))
    return tl.where(keep, a, b), tl.where(keep, place_a, place_b)


@triton.jit
def first_least(a, place_a, b, place_b):
    """The lesser with its place, the earlier of equals; nan is less than all."""
    a_nan, b_nan = a != a, b != b
    better = ((a < b) & (b_nan == 0)) | (a_nan & (b_nan == 0))
    equal = (a == b) | (a_nan & b_nan)
    keep = better | (equal & (place_a < place_b))
    return tl.where(keep, a, b), tl.where(keep, place_a, place_b)


@triton.jit
def last_greatest(a, place_a, b, place_b):
    """The greater with its place, the later of equals; nan is greater than all."""
    a_nan, b_nan = a != a, b != b
    equal = (a == b) | (a_nan & b_nan)
    takes = ((b > a) & (a_nan == 0)) | (b_nan & (a_nan == 0)) | (equal & (place_b > place_a))
    return tl.where(takes, b, a), tl.where(takes, place_b, place_a)


@triton.jit
def last_least(a, place_a, b, place_b):
    """The lesser with its place, the later of equals; nan is less than all."""
    a_nan, b_nan = a != a, b != b
    equal = (a == b) | (a_nan & b_nan)
    takes = ((b < a) & (a_nan == 0)) | (b_nan & (a_nan == 0)) | (equal & (place_b > place_a))
    return tl.where(takes, b, a), tl.where(takes, place_b, place_a)


@triton.jit
def log_added(a, b):
    """log(exp(a) + exp(b)); of two equal infinities it is that one."""
    greatest, least = nan_max(a, b), nan_min(a, b)
    total = greatest + libdevice.log1p(libdevice.exp(least - greatest))
    return tl.where((a == b) & (tl.abs(a) == float("inf")), a, total)


@triton.jit
def integer_floordiv(a, b):
    """Quotient of signed integers, rounded to minus infinity; the machine's rounds to zero."""
    quotient = a // b
    rest = a - quotient * b
    return quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(quotient.dtype)


@triton.jit
def integer_mod(a, b):
    """Remainder of signed integers, of the divisor's sign."""
    rest = a % b
    return rest + tl.where((rest != 0) & ((rest < 0) != (b < 0)), b, rest - rest)


@triton.jit
def float_mod(a, b):
    """Remainder of floats, of the divisor's sign."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def float_floordiv(a, b):
    """Quotient of floats, rounded to minus infinity; from the exact remainder, since a / b may round up to the next
    whole number."""
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1.0, quotient)
    floor = tl.floor(quotient)
    whole = tl.where(quotient - floor > 0.5, floor + 1.0, floor)
    whole = tl.where(quotient == 0.0, libdevice.copysign(quotient - quotient, a / b), whole)
    return tl.where(b == 0.0, a / b, whole)


@triton.jit
def shift_left(a, b, bits: tl.constexpr):
    """a << b, 0 from the width of the dtype on."""
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, b - b), a - a)


@triton.jit
def shift_right(a, b, bits: tl.constexpr):
    """a >> b; what is shifted by the width of the dtype or more is all sign."""
    inside = (b >= 0) & (b < bits)
    return a >> tl.where(inside, b, b - b + (bits - 1))


@triton.jit
def logical_shift_right(a, b, bits: tl.constexpr):
    """a >> b of unsigned integers, 0 from the width of the dtype on."""
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a >> tl.where(inside, b, b - b), a - a)


@triton.jit
def sign_of(a):
    """-1, 0 or 1."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


@triton.jit
def float_sign(a):
    """-1, 0 or 1, and nan of nan."""
    return tl.where(a != a, a, (a > 0).to(a.dtype) - (a < 0).to(a.dtype))


@triton.jit
def exact_sigmoid(a):
    """1 / (1 + exp(-a)), to the last bits of the dtype."""
    return 1.0 / (1.0 + libdevice.exp(-a))


@triton.jit
def quick_reciprocal(a):
    """1 / a of float32 from 1 to infinity, to about 22 bits, in one instruction (a division takes five). Very large `a`
    give 0."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def quick_sigmoid(a):
    """1 / (1 + exp(-a)) of float32, to about 20 bits."""
    return quick_reciprocal(1.0 + tl.exp2(a * -1.4426950408889634))


@triton.jit
def quick_one_plus_tanh(a):
    """1 + tanh(a) of float32, to about 20 bits also where tanh comes near -1."""
    return 2.0 * quick_reciprocal(1.0 + tl.exp2(a * -2.8853900817779268))


@triton.jit
def quick_one_plus_erf(a):
    """1 + erf(a) of float32, to about 11 bits down to a = -3, to 1e-5 below.

    1 + erf(a) = 2 / (1 + 2**-u) for an odd u of a, here a polynomial fitted for the least relative error over -3.2 to
    3.2. Near -1 erf itself, as a number of 24 bits, would be no better.
    """
    square = a * a
    slope = 3.252304326196215 + square * (0.30494720814632537 + square * (
        -0.006327629974506426 + square * (-8.893915296350087e-05 + square * 1.049198896102002e-05)))
    return 2.0 * quick_reciprocal(1.0 + tl.exp2(-a * slope))


@triton.jit
def philox_word(key, draw, place):
    """Word `place` of a draw, as int64; see `random_numbers/operations.py`."""
    first, second, third, fourth = _four_words(key, draw, place >> 2)
    number = place & 3
    return tl.where(number < 2, tl.where(number == 0, first, second), tl.where(number == 2, third, fourth)).to(tl.int64)


@triton.jit
def philox_words(key, draw, places, evens: tl.constexpr, odds: tl.constexpr):
    """The words of a draw at places, in a block whose last two dimensions, two elements each, hold four neighbours from
    a multiple of four on: what one counter gives, which is worked out once. `evens`: at the even place before each, or
    at it; `odds`: at the odd one."""
    pairs, _ = tl.split(places)
    place, _ = tl.split(pairs)
    first, second, third, fourth = _four_words(key, draw, place >> 2)
    even, odd = tl.join(first, third), tl.join(second, fourth)
    if evens:
        words = tl.join(even, even)
    elif odds:
        words = tl.join(odd, odd)
    else:
        words = tl.join(even, odd)
    return words.to(tl.int64)


@triton.jit
def _four_words(key, draw, group):
    """The four words of a counter."""
    low, high = group.to(tl.uint32), (group >> 32).to(tl.uint32)
    zero = low & 0
    return tl.philox(key, low, high, zero | draw.to(tl.uint32), zero)
