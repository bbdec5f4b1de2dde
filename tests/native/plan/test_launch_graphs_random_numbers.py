"""Launch graphs that draw random numbers, with a driver that is made up: the plan's numbers."""

from __future__ import annotations

DRAWS = """
aten = torch.ops.aten
drawn = torch.Tensor.bernoulli_
like = ("call", aten.empty_like.default._op, (Value(1),), None, 2)
def mask(slot, of):
    return ("call", aten.bernoulli.p._op, (Value(of), 0.5), {"generator": None}, slot)
"""


def test_random_numbers_are_those_of_the_plan(run):
    run(
        DRAWS
        + """
noise = ("call", aten.rand.default._op, ((N,),), {"device": CPU}, 6)
def made():
    steps = [empty(1), affine(1, 0, 2.0), like, mask(3, 2), ("free", 2), empty(4), affine(4, 3, 3.0), noise, empty(5),
        affine(5, 6, 2.0)]
    return launches(1, 7, steps, [1, 4, 5, 3])
f, eager = made(), made().plan
for i in range(20):
    x = fresh()
    torch.manual_seed(i)
    got = f(x)
    after = torch.rand(3)
    torch.manual_seed(i)
    expected = eager(x)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
    assert got[1].data_ptr() != got[3].data_ptr()
assert f.told == [("captured", "")], f.told
# numbers are not drawn twice where a launch is not to be
for name, value in ("fake_capturing", 1), ("fake_capturing", 0):
    set_number(name, value)
    torch.manual_seed(5)
    got, after = f(x), torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(got, eager(x), rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
"""
    )


def test_keys_of_random_numbers_are_those_of_the_plan(run):
    run(
        """
aten = torch.ops.aten
key = ("call", aten.randint.low._op, (-(1 << 63), (1 << 63) - 1, [1]), {"dtype": torch.int64, "device": CPU}, 2)
f = launches(1, 3, [key, empty(1), affine(1, 0, 2.0)], [1, 2])
seen = set()
for i in range(20):
    x = fresh()
    torch.manual_seed(i)
    got, after = f(x), torch.rand(3)
    torch.manual_seed(i)
    torch.testing.assert_close(got, f.plan(x), rtol=0, atol=0)
    assert torch.equal(after, torch.rand(3))
    seen.add(got[1].item())
assert len(seen) == 20
assert f.told == [("captured", "")], f.told
"""
    )


def test_random_numbers_that_a_library_reads_are_copied(run):
    run(
        DRAWS
        + """
take = library(lambda x, mask: x * mask)
def made():
    return launches(1, 5, [empty(1), affine(1, 0, 2.0), like, mask(3, 2), ("free", 2), call(take, [1, 3], 4)], [4])
f, eager = made(), made().plan
def same(f, eager):
    for i in range(20):
        x = fresh()
        torch.manual_seed(i)
        got = f(x)
        torch.manual_seed(i)
        torch.testing.assert_close(got, eager(x), rtol=0, atol=0)
    assert f.told[-1][0] == "captured", f.told
same(f, eager)
# a kernel writes over them before a library reads and the program sees them
noise = ("call", aten.rand.default._op, ((N,),), {"device": CPU}, 1)
def written():
    return launches(1, 3, [noise, affine(1, 1, 3.0, 1), call(take, [0, 1], 2)], [1, 2])
same(written(), written().plan)
"""
    )
