"""Operations that pass as shapes and dtypes, and raise for the numbers in their tensors: the program sees what plain Python shows it."""
import contextlib
import subprocess
import sys
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import ANY, Pair, check, of_kind, world

X = torch.tensor([1.0, 2.0, 3.0])
GOOD, BAD = torch.tensor([0, 2]), torch.tensor([0, 9])
TABLE = torch.arange(6.0).reshape(3, 2)


def follow(make, *calls, graphs=ANY, **options):
    """Both sides do the calls in order, and then all once more."""
    pair = Pair(make if make.__name__ == "make" else lambda: make, **options)
    for args in (*calls, *calls):
        pair.call(*args)
    pair.expect(graphs=graphs)
    return pair


SEQUENCES = [((X, GOOD), (X, BAD), (X, BAD), (X, BAD), (X, GOOD)), ((X, BAD), (X, GOOD), (X, BAD), (X, GOOD), (X, BAD))]
either_way = pytest.mark.parametrize("calls", SEQUENCES, ids=["good first", "bad first"])


# ---- where the program handles it -------------------------------------------------------------------


@either_way
def test_except_block_gets_message_and_type(calls):
    def fn(x, i):
        try:
            return x[i] * 2
        except IndexError as e:
            return x - 1, type(e), str(e), e.__context__, e.__cause__

    follow(fn, *calls)


@either_way
def test_finally_runs_after_the_effects_before(calls):
    def fn(x, i, log):
        log.append("begun")
        try:
            y = x * 2
            log.append("doubled")
            return y[i]
        finally:
            log.append("done")

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_finally_with_a_return_swallows_it(calls):
    def fn(x, i):
        y = x + 1
        try:
            y = y[i]
        finally:
            return y * 2  # noqa: B012

    follow(fn, *calls)


@either_way
def test_nested_try_blocks(calls):
    def fn(x, i, log):
        try:
            try:
                y = x[i]
            except KeyError:
                log.append("wrong handler")
            finally:
                log.append("inner finally")
        except (LookupError, ValueError) as e:
            log.append(type(e).__name__)
            y = x[:2]
        else:
            log.append("else")
        return y + 1

    follow(fn, *[(*args, []) for args in calls])


class Manager:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, cls, exc, tb):
        self.log.append(("exit", cls, str(exc)))
        return self.swallow


@either_way
@pytest.mark.parametrize("swallow", [True, False])
def test_with_block(calls, swallow):
    def fn(x, i, log, swallow):
        y = x * 3
        with Manager(log, swallow):
            y = y[i]
            log.append("not for all")
        return y + 1

    follow(fn, *[(*args, [], swallow) for args in calls])


@contextlib.contextmanager
def noting(log):
    log.append("enter")
    try:
        yield
    except IndexError as e:
        log.append(str(e))
        raise ValueError("worse") from e
    finally:
        log.append("leave")


@either_way
def test_generator_based_context_manager(calls):
    def fn(x, i, log):
        try:
            with noting(log):
                return x[i] + 1
        except ValueError as e:
            return x, repr(e.__cause__), e.__context__ is e.__cause__

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_suppressed(calls):
    def fn(x, i):
        y = x * 2
        with contextlib.suppress(IndexError):
            y = y[i]
        return y

    follow(fn, *calls)


@either_way
def test_reraised_and_chained(calls):
    def fn(x, i, how):
        try:
            return x[i]
        except IndexError as e:
            if how == "bare":
                raise
            if how == "from":
                raise RuntimeError("lookup") from e
            raise RuntimeError("lookup")  # noqa: B904  the context is what is looked at

    for how in ("bare", "from", "implicit"):
        follow(fn, *[(*args, how) for args in calls])


@either_way
def test_an_exception_handled_outside_is_the_context(calls):
    def fn(x, i):
        try:
            raise KeyError("first")
        except KeyError:
            try:
                return x[i]
            except IndexError as e:
                return x + 1, repr(e.__context__)

    follow(fn, *calls)


def test_no_context_and_no_frames_of_anybody_else():
    import framejit

    def fn(x, i):
        y = x * 2
        return y[i] + 1

    compiled = framejit.optimize(fn)
    for _ in range(4):
        with pytest.raises(IndexError) as caught:
            compiled(X, BAD)
        frames = [(f.name, f.lineno - fn.__code__.co_firstlineno) for f in traceback.extract_tb(caught.value.__traceback__)[1:]]
        assert frames == [("fn", 2)], frames
        assert caught.value.__context__ is None and caught.value.__cause__ is None
        assert sys.exception() is None


def test_a_caller_that_handles_something_is_the_context():
    import framejit

    def fn(x, i):
        return x[i] + 1

    compiled = framejit.optimize(fn)
    for _ in range(3):
        try:
            raise KeyError("outside")
        except KeyError as outside:
            with pytest.raises(IndexError) as caught:
                compiled(X, BAD)
            assert caught.value.__context__ is outside
            assert sys.exception() is outside


# ---- what came before ---------------------------------------------------------------------------------


class Counter:
    def __init__(self):
        self.n, self.seen = 0, {}

    def note(self, name):
        self.n += 1
        self.seen[name] = self.n


@either_way
def test_side_effects_before_are_there_and_later_ones_are_not(calls):
    def make():
        names = world(
            """
            COUNT = 0
            def fn(x, i, log, counter, table):
                global COUNT
                COUNT += 1
                log.append("a")
                counter.note("before")
                table["before"] = x
                y = x + 1
                table.setdefault("list", []).append(y)
                y = y[i]
                counter.note("after")
                log.append("b")
                COUNT += 10
                return y
            """
        )
        return names["fn"], lambda: names["COUNT"]

    follow(make, *[(*args, [], Counter(), {}) for args in calls])


@either_way
def test_in_place_writes_are_done_once(calls):
    def fn(x, i, state):
        state.mul_(2)
        state += 1
        y = x[i]
        state.sub_(0.5)
        return y + state.sum()

    follow(fn, *[(*args, torch.ones(2)) for args in calls])


@either_way
def test_writes_through_views_and_into_modules(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x, i):
            self.steps += 1
            self.seen[:2].add_(x[:2])
            self.seen.view(3)[1:] *= 2
            return x[i] + self.seen.sum()

    def make():
        net = Net()
        return net, net

    follow(make, *calls)


@either_way
def test_the_operation_that_raises_writes_itself(calls):
    def fn(x, i, y):
        y.index_add_(0, i, torch.ones(2))
        return y * 2

    follow(fn, *[(*args, torch.zeros(3)) for args in calls])


@either_way
def test_overwriting_needs_no_copy(calls):
    def fn(x, i, cache):
        cache[1:3] = x[:2]
        cache.index_copy_(0, i, x[:2] + 1)
        return cache + 1

    follow(fn, *[(*args, torch.zeros(3)) for args in calls])


@either_way
def test_overwritten_after_it_was_read(calls):
    def fn(x, i, cache):
        y = cache * 2
        cache.copy_(x)
        return y + x[i].sum()

    follow(fn, *[(*args, torch.arange(3.0)) for args in calls])


@either_way
def test_read_between_two_overwrites(calls):
    def fn(x, i, cache):
        cache[0] = 7.0
        y = cache.sum()
        cache.fill_(2.0)
        cache[1:] = y
        return x[i] + y

    follow(fn, *[(*args, torch.arange(3.0)) for args in calls])


def test_batch_statistics_before_a_loss_with_a_bad_class():
    def make():
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))

        def fn(x, target):
            return F.cross_entropy(net(x), target)

        return fn, net

    x = torch.arange(15.0).reshape(5, 3)
    good, bad = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 7, 0, 1])
    follow(make, (x, good), (x, bad), (x, bad), (x, bad), (x, good), rtol=1e-5, atol=1e-6)


@either_way
def test_versions_are_those_of_plain_python(calls):
    def fn(x, i, y):
        y.add_(1)
        return x[i] + y.sum()

    for backend_calls in (calls, calls[::-1]):
        pair = Pair(lambda: fn)
        for args in backend_calls:
            left, right = torch.ones(2), torch.ones(2)
            for side, y in ((pair.eager, left), (pair.compiled, right)):
                with contextlib.suppress(IndexError):
                    side(*args, y)
            assert left._version == right._version == 1 and left.equal(right)


@either_way
def test_random_numbers_are_drawn_once(calls):
    def fn(x, i):
        y = F.dropout(x, 0.5) + torch.rand(3)
        z = y[i]
        return z + torch.randn(2)

    follow(fn, *calls)


@either_way
def test_random_numbers_after_it_are_not_drawn(calls):
    def fn(x, i):
        try:
            y = x[i]
        except IndexError:
            y = x[:2]
        return y + torch.rand(2)

    follow(fn, *calls)


@either_way
def test_modes_that_were_entered_are_left(calls):
    def fn(x, i, w):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = y[i]
        return z * w, torch.is_grad_enabled()

    follow(fn, *[(*args, torch.ones(2, requires_grad=True)) for args in calls])


@either_way
def test_handled_inside_of_modes(calls):
    def fn(x, i, w):
        try:
            with torch.no_grad(), torch.enable_grad():
                z = x[i] * w
        except IndexError:
            return w * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return z + w, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    follow(fn, *[(*args, torch.ones(2, requires_grad=True)) for args in calls])


@either_way
def test_autocast_is_left(calls):
    def fn(x, i, w):
        try:
            with torch.autocast("cpu", torch.bfloat16):
                y = w @ w
                y = y + x[i].sum()
        except IndexError:
            y = w @ w
        return y, (w @ w).dtype, torch.is_autocast_enabled("cpu")

    follow(fn, *[(*args, torch.eye(3)) for args in calls], rtol=1e-2)
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    assert depth == 1


@either_way
def test_inference_mode_is_left(calls):
    def fn(x, i):
        try:
            with torch.inference_mode():
                y = x[i]
        except IndexError:
            y = x * 2
        return y + 1, torch.is_inference_mode_enabled()

    follow(fn, *calls)
    assert not torch.is_inference_mode_enabled()


# ---- gradients -------------------------------------------------------------------------------------------


@either_way
def test_gradients_flow_once(calls):
    def fn(x, i, w):
        y = x * w
        try:
            y = y[i]
        except IndexError:
            y = y + w
        y.sum().backward()
        return y, w.grad

    follow(fn, *[(*args, torch.ones(3, requires_grad=True)) for args in calls])


@either_way
def test_a_write_that_autograd_records_ends_the_graph_before_what_may_raise(calls):
    def fn(x, i, w):
        y = w * 2
        return inner(y, x, i), y

    def inner(y, x, i):
        y.mul_(3)
        return y[i] + x[i]

    def outer(x, i, w):
        y = w * 2
        graph_break()
        try:
            z = inner(y, x, i)
        except IndexError:
            z = y
        z.sum().backward()
        return z, w.grad

    follow(outer, *[(*args, torch.ones(3, requires_grad=True)) for args in calls])


def graph_break():
    import framejit

    framejit.graph_break()


# ---- in whose frame ---------------------------------------------------------------------------------------


def pick(x, i):
    y = x + 1
    return y[i]


def pick_twice(x, i):
    y = pick(x, GOOD)
    z = pick(x * 2, i)
    return y + z


@either_way
def test_in_inlined_calls(calls):
    def fn(x, i):
        y = x * 2
        return pick_twice(
            y,
            i,
        )

    follow(fn, *calls)


@either_way
def test_handled_by_the_caller_of_an_inlined_function(calls):
    def fn(x, i):
        try:
            return pick_twice(x, i)
        except IndexError as e:
            return x, [f.name for f in traceback.extract_tb(e.__traceback__)], [f.lineno for f in traceback.extract_tb(e.__traceback__)]

    follow(fn, *calls)


@either_way
def test_in_a_loop(calls):
    def fn(x, i, log):
        total = x.sum()
        for n, one in enumerate([GOOD, GOOD, i, GOOD]):
            log.append(n)
            try:
                total = total + x[one].sum()
            except IndexError:
                log.append("missed")
                continue
            log.append("found")
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_uncaught_in_the_third_turn_of_a_loop(calls):
    def fn(x, i, log):
        total = x.sum()
        for n, one in enumerate([GOOD, GOOD, i, GOOD]):
            log.append(n)
            total = total + x[one].sum()
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_in_recursion(calls):
    def down(x, i, n):
        if n == 0:
            return x[i]
        try:
            return down(x + 1, i, n - 1)
        finally:
            x.add_(n)

    def fn(x, i):
        return down(x * 2, i, 3)

    follow(fn, *calls)


@either_way
def test_in_a_method_a_closure_and_a_comprehension(calls):
    class Table:
        def __init__(self, rows):
            self.rows = rows

        def at(self, i):
            return self.rows[i]

    def make():
        scale = torch.tensor(2.0)
        table = Table(TABLE.clone())

        def fn(x, i):
            def scaled(one):
                return table.at(one) * scale

            return [scaled(one) for one in (GOOD, i)]

        return fn

    follow(make, *calls)


@either_way
def test_in_a_generator(calls):
    def rows(x, indices, log):
        try:
            for one in indices:
                log.append("next")
                yield x[one]
        finally:
            log.append("closed")

    def fn(x, i, log):
        total = 0
        try:
            for row in rows(x, [GOOD, i, GOOD], log):
                total = total + row
        except IndexError as e:
            log.append([f.name for f in traceback.extract_tb(e.__traceback__)])
        return total

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_in_a_module_with_hooks(calls):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(3, 2)
            self.log = []

        def forward(self, x, i):
            self.log.append("forward")
            try:
                return self.embed(i) * x[:2]
            except IndexError:
                self.log.append("failed")
                return x

    def make():
        torch.manual_seed(0)
        net = Net()
        net.embed.register_forward_pre_hook(lambda module, args: net.log.append("before"))
        net.embed.register_forward_hook(lambda module, args, output: net.log.append("after"))
        return net, net

    follow(make, *calls)


@either_way
def test_after_a_graph_break(calls):
    def fn(x, i, log):
        y = x + 1
        log.append("one")
        graph_break()
        log.append("two")
        try:
            z = y[i]
        except IndexError:
            log.append("missed")
            graph_break()
            z = y[:2]
        return z * 2

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_before_a_graph_break(calls):
    def fn(x, i, log):
        with Manager(log, True):
            y = x[i]
            graph_break()
            return y * 2
        return x

    follow(fn, *[(*args, []) for args in calls])


@either_way
def test_uncaught_after_a_graph_break_inside_a_call(calls):
    def inner(x, i):
        y = x * 2
        graph_break()
        z = y + 1
        return z[i]

    def fn(x, i):
        y = x + 1
        return inner(y, i) * 2

    follow(fn, *calls)


@either_way
def test_keyword_arguments_defaults_and_rests(calls):
    def fn(x, *more, scale=2.0, **names):
        y = x * scale
        try:
            return y[more[0]], sorted(names), len(more)
        finally:
            names["seen"] = y

    pair = Pair(lambda: fn)
    for _ in range(2):
        for x, i in calls:
            pair.call(x, i, i, scale=3.0, a=1, b=2)


@either_way
def test_variables_that_are_cells(calls):
    def make():
        count = 0

        def fn(x, i):
            nonlocal count
            count += 1
            y = x + count
            z = y[i]
            count += 10
            return z, lambda: (x, count)

        def call(x, i):
            z, both = fn(x, i)
            return z, both()

        return call, lambda: count

    follow(make, *calls)


# ---- kinds of operations --------------------------------------------------------------------------------

SQUARES = torch.tensor([[2.0, 0.0], [0.0, 3.0]])


@pytest.mark.parametrize(
    ("operation", "good", "bad"),
    [
        (lambda x, i: torch.gather(x, 0, i), (X, GOOD), (X, BAD)),
        (lambda x, i: x.scatter(0, i, 1.0), (X, GOOD), (X, BAD)),
        (lambda x, i: x.index_select(0, i), (X, GOOD), (X, BAD)),
        (lambda x, i: x.take(i), (X, GOOD), (X, BAD)),
        (lambda x, i: x.index_put((i,), torch.tensor(1.0)), (X, GOOD), (X, BAD)),
        (lambda w, i: F.embedding(i, w), (TABLE, GOOD), (TABLE, BAD)),
        (lambda x, t: F.nll_loss(x, t), (torch.ones(2, 3), GOOD), (torch.ones(2, 3), BAD)),
        (lambda x, t: F.binary_cross_entropy(x, t), (X / 9, X / 9), (X, X)),
        (lambda a, b: a // b, (torch.tensor([4]), torch.tensor([2])), (torch.tensor([4]), torch.tensor([0]))),
        (lambda a, b: a % b, (torch.tensor([4]), torch.tensor([2])), (torch.tensor([4]), torch.tensor([0]))),
        (lambda a, _: torch.linalg.cholesky(a), (SQUARES, 0), (-SQUARES, 0)),
        (lambda a, _: torch.linalg.inv(a), (SQUARES, 0), (SQUARES * 0, 0)),
        (lambda a, _: torch.linalg.solve(a, torch.ones(2)), (SQUARES, 0), (SQUARES * 0, 0)),
        (lambda p, _: torch.multinomial(p, 2), (X, 0), (-X, 0)),
        (lambda p, _: torch.bernoulli(p), (X / 9, 0), (X, 0)),
    ],
)
def test_operations(operation, good, bad):
    def fn(log, *args):
        log.append("begun")
        try:
            result = operation(*args) + 0
        except RuntimeError as e:
            log.append((type(e), str(e)))
            return args[0] * 1
        except IndexError as e:
            log.append(str(e))
            return args[0] * 2
        log.append("done")
        return result

    follow(fn, ([], *good), ([], *bad), ([], *bad), ([], *bad), ([], *good), rtol=1e-6)


def test_what_always_raises_though_fakes_let_it_pass():
    def fn(x, y):
        y.add_(1)
        try:
            return x ^ x
        except NotImplementedError as e:
            return str(e)

    pair = Pair(lambda: fn)
    for _ in range(4):
        pair.call(X, torch.ones(2))


@pytest.mark.parametrize("write", [lambda y: y.add_(1), lambda y: y.t_(), lambda y: y.unsqueeze_(0)])
def test_a_write_before_what_always_raises(write):
    def fn(x, y):
        write(y)
        return x ^ x

    pair = Pair(lambda: fn)
    for _ in range(4):
        pair.call(X, torch.ones(2, 3))


@either_way
@pytest.mark.parametrize("write", [lambda y: y.t_(), lambda y: y.unsqueeze_(0)])
def test_a_change_of_layout_before_what_may_raise(calls, write):
    def fn(x, i, y):
        write(y)
        return x[i] + y.sum()

    follow(fn, *[(*args, torch.ones(2, 3)) for args in calls])


def test_what_fakes_refuse_raises_eagers_own_message():
    def fn(x, w, log):
        y = x * 2
        log.append("before")
        try:
            return y @ w
        except RuntimeError as e:
            log.append((type(e), str(e)))
            return y

    follow(fn, (torch.ones(2, 2), torch.ones(97, 3), []), (torch.ones(2, 97), torch.ones(97, 3), []))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x @ torch.ones(97, 3),
        lambda x: x + torch.ones(7, 5),
        lambda x: x.view(7),
        lambda x: torch.cat([x, torch.ones(2)]),
        lambda x: F.linear(x, torch.ones(4, 9)),
        lambda x: F.conv2d(x, torch.ones(1, 1, 3, 3)),
        lambda x: x.reshape(3, 3),
        lambda x: x[5],
        lambda x: x.sum(4),
        lambda x: x.permute(0, 0),
        lambda x: F.softmax(x, 3),
        lambda x: x.expand(3, 3),
        lambda x: torch.stack([x, x[0]]),
        lambda x: x.squeeze(9),
        lambda x: x.index_select(0, torch.tensor([[1]])),
        lambda x: x.gather(0, torch.tensor([1])),
        lambda x: x.to(torch.int64) + "a",
        lambda x: F.layer_norm(x, (9,)),
        lambda x: x.masked_fill(torch.ones(9, dtype=torch.bool), 1.0),
        lambda x: torch.einsum("ij,jk->ik", x, torch.ones(5, 5)),
        lambda x: F.cross_entropy(x, torch.zeros(9, dtype=torch.int64)),
    ],
)
def test_messages_of_errors_known_while_capturing(operation, capfd):
    def fn(x):
        y = x * 1
        try:
            return operation(y)
        except Exception as e:
            return type(e), str(e)

    pair = Pair(lambda: fn)
    for _ in range(2):
        pair.call(torch.ones(2, 2))
    assert "fake" not in capfd.readouterr().err


# ---- what is learnt from it -----------------------------------------------------------------------------


def test_graphs_break_at_an_operation_that_raised_twice():
    def fn(x, i):
        y = x * 2 + 1
        try:
            y = y[i]
        except IndexError:
            y = y[:2]
        return y * 3 + 1

    pair = Pair(lambda: fn)
    pair.call(X, GOOD, captures=True)
    pair.call(X, BAD, captures=False)
    pair.call(X, BAD, captures=False)
    assert [e.fields["outcome"].split()[0] for e in of_kind(pair.log, "graph_raised")] == ["the", "from"]
    pair.call(X, BAD, captures=True)
    runs = pair.backend.runs
    for i in (GOOD, BAD, GOOD, BAD):
        pair.call(X, i, captures=i is GOOD if runs == pair.backend.runs else None)
    for i in (GOOD, BAD):
        pair.call(X, i, captures=False)
    assert [reason for _, _, reason in pair.breaks if "raised when a graph ran it" in reason]
    assert len(of_kind(pair.log, "graph_raised")) == 2


def test_one_graph_was_promised_and_stays():
    def fn(x, i):
        y = x * 2
        try:
            return y[i]
        except IndexError:
            return y

    pair = Pair(lambda: fn, fullgraph=True)
    for _ in range(3):
        for i in (GOOD, BAD, BAD, GOOD):
            pair.call(X, i)
    pair.expect(graphs=1, breaks=0)


def test_several_operations_that_raise():
    def fn(x, i, j, log):
        for k in (i, j):
            try:
                x = x[k] + x[k]
            except IndexError:
                log.append("index")
        try:
            x = x // (x * 0).to(torch.int64)
            x = torch.linalg.cholesky(-x.reshape(1, -1).float())
        except RuntimeError as e:
            log.append(str(e)[:10])
        return x

    pair = Pair(lambda: fn)
    for _ in range(3):
        for i in (GOOD, BAD):
            for j in (torch.tensor([0, 1]), torch.tensor([5])):
                pair.call(X, i, j, [])


def test_an_interrupt_is_passed_on_and_nothing_runs_twice():
    import framejit

    runs = []

    def backend(gm, inputs):
        def run(*args):
            runs.append(1)
            raise KeyboardInterrupt

        return run

    def fn(x, log):
        log.append("begun")
        return x + 1

    compiled, log = framejit.optimize(fn, backend=backend), []
    with pytest.raises(KeyboardInterrupt):
        compiled(X, log)
    assert runs == [1] and log == []


def test_memory_that_runs_out_in_a_graph_without_writes_is_the_programs_to_handle():
    import framejit

    def backend(gm, inputs):
        def run(*args):
            raise torch.OutOfMemoryError("no memory")

        return run

    def fn(x):
        return x + 1

    assert framejit.optimize(fn, backend=backend)(X).equal(X + 1)


def test_a_backend_whose_graph_raises_does_not_stop_the_program():
    import framejit

    def backend(gm, inputs):
        def run(*args):
            raise ValueError("broken kernel")

        return run

    def fn(x, log):
        log.append(1)
        return x + 1

    compiled, log = framejit.optimize(fn, backend=backend), []
    for _ in range(5):
        assert compiled(X, log).equal(X + 1)
    assert log == [1] * 5


# ---- under the hook, and verified ------------------------------------------------------------------------


def test_functions_the_hook_captures():
    def make():
        names = world(
            """
            import framejit
            def entry(x, i, log):
                framejit.graph_break()
                found = [*map(lambda n: lookup(x, i, log, n), range(2))]
                return found
            def lookup(x, i, log, n):
                log.append("lookup")
                y = x * 2
                try:
                    return y[i] * 2
                except IndexError as e:
                    log.append(str(e))
                    return x
            """
        )
        return names["entry"]

    pair = Pair(make)
    for i in (GOOD, BAD, BAD, BAD, GOOD):
        pair.call(X, i, [])


PROGRAM = """
import torch

def make(scale):
    def lookup(x, i, log):
        log.append("lookup")
        y = x * scale
        try:
            return y[i] * 2
        except IndexError as e:
            log.append(str(e))
            return x
    return lookup

for scale in (2, 3):
    lookup, log = make(scale), []
    for i in ([0, 2], [0, 9], [0, 9], [0, 9], [1, 1]):
        print(lookup(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(i), log).tolist(), log)

def uncaught(x, i):
    y = x + 1
    return y[i]

uncaught(torch.ones(3), torch.tensor([0]))
uncaught(torch.ones(3), torch.tensor([9]))
"""


def test_a_whole_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    hook = ["-m", "framejit", "run", "--backend", "eager", "--min-graph-size", "0"]
    plain, hooked = (subprocess.run([sys.executable, *how, str(script)], capture_output=True, text=True, timeout=300) for how in ([], hook))
    assert plain.stdout == hooked.stdout
    assert plain.stderr.splitlines()[-1] == hooked.stderr.splitlines()[-1]
    assert [line for line in plain.stderr.splitlines() if "script.py" in line] == [line for line in hooked.stderr.splitlines() if "script.py" in line]


def test_verified_calls():
    def fn(x, i, log):
        log.append("begun")
        y = x * 2
        try:
            return y[i]
        except IndexError:
            log.append("missed")
            return y

    pair = Pair(lambda: fn, verify=1.0)
    for i in (GOOD, BAD, BAD, BAD, GOOD):
        pair.call(X, i, [])


def test_unused_results_that_raise():
    def fn(x, i):
        x[i]
        return x + 1

    follow(fn, (X, GOOD), (X, BAD), (X, BAD), (X, BAD), (X, GOOD))


def test_an_operator_that_hides_what_it_writes_is_not_repeated():
    def fn(x, mean, variance):
        return torch.ops.aten._batch_norm_with_update(x, torch.ones(2), torch.zeros(2), mean, variance, 0.5, 1e-5)[0]

    check(fn, torch.rand(3, 2, 4), torch.zeros(2), torch.ones(2))
