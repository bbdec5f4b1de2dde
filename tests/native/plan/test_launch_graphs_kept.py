"""Launch graphs of forwards, with a driver that is made up: memory that is kept for a backward."""

from __future__ import annotations

KEPT = """
native.withhold_symbols({"aoti_torch_empty_strided"})
plus = library(lambda x: x + 1)
half = ("call", view_of, (Value(3), (2,), (1,), 1, None), None, 4)
# what the program sees, what a kernel of ours and what a library keep, and a view of that
def forward():
    steps = [empty(1), affine(1, 0, 2.0), empty(2), affine(2, 1, 3.0), call(plus, [2], 3), half]
    return launches(1, 5, steps, [1, 2, 3, 4], n_seen=1)
def right(x, outs):
    torch.testing.assert_close(outs, (2 * x, 6 * x, 6 * x + 1, (6 * x + 1)[1:3]))
"""


def test_what_is_kept_lies_in_memory_of_the_graph_while_nobody_holds_it(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
assert recorder.alone
n, seen, places = f._launch.graph.launches, [], set()
for i in range(20):
    x = fresh()
    out, *kept = f(x)
    right(x, (out, *kept))
    assert kept[2]._base is kept[1]
    seen.append((out, 2 * x))
    places.add(tuple(tensor.data_ptr() for tensor in kept))
    del kept
assert f._launch.graph.launches == n + 20 and len(places) == 1, (f._launch.graph.launches, places)
sets, copies = number("fake_sets"), number("fake_copies")
f(x)
assert (number("fake_sets"), number("fake_copies")) == (sets + 2, copies)  # where `out` lies
for out, expected in seen:
    torch.testing.assert_close(out, expected)
"""
    )


def test_what_is_kept_and_held_is_not_written(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
n = f._launch.graph.launches
for holds in (lambda outs: outs[1], lambda outs: outs[2], lambda outs: outs[3], lambda outs: outs[2].detach()[1:]):
    x = fresh()
    outs = f(x)
    n += 1
    held, before = holds(outs), holds(outs).clone()
    del outs
    for i in range(5):
        y = fresh()
        right(y, f(y))
        assert f._launch.graph.launches == n and torch.equal(held, before)
    del held
right(x, f(x))
assert f._launch.graph.launches == n + 1 and f.told[-1][0] == "captured"
"""
    )


def test_what_is_kept_is_read_where_it_lies_and_a_backward_waits_for_that(run):
    run(
        KEPT
        + """
f = forward()
take = library(lambda kept, grad: kept * grad)
b = launches(3, 5, [empty(3), affine(3, 0, 2.0), call(take, [1, 2], 4)], [3, 4], forward=f)
held = []                                        # so that memory does not come back
for i in range(30):
    x, grad = fresh(), fresh()
    out, ours, theirs, part = f(x)
    saved = [ours, theirs, grad]
    del ours, theirs, part
    outs = b.consume(saved)
    assert saved == []
    torch.testing.assert_close(outs, (12 * x, (6 * x + 1) * grad))
    held += [x, grad, out, outs]
assert recorder.recorded == 2 and not recorder.alone, recorder.recorded
assert b.told == [("captured", "1 inputs are copied")], b.told
assert {slot for slot, _ in b._launch.fixed} == {1}
"""
    )


def test_what_is_kept_is_launched_on_one_stream(run):
    run(
        KEPT
        + """
f = captured(forward(), fresh())
n, stream = f._launch.graph.launches, ctypes.c_long.in_dll(fake, "fake_stream")
assert n == 1
for stream.value, launched in (0x2000, 0), (0x1000, 1):
    x = fresh()
    right(x, f(x))
    assert f._launch.graph.launches == n + launched
"""
    )


def test_memory_that_a_plan_takes_over_is_its_own_when_captured(run):
    run(
        """
inherit = ("inherit", 1, 0, (N,), (1,), torch.float32, CPU, 4 * N)
f = launches(1, 2, [inherit, affine(1, 0, 2.0)], [1])
for i in range(10):
    x = fresh()
    expected = 2 * x
    given = [x]
    del x
    torch.testing.assert_close(f.consume(given)[0], expected)
assert f.told == [("captured", "")], f.told
"""
    )
