"""Exceptions that the program raises and those of tensor operations, caught, passed on, and seen by with and
finally."""
from __future__ import annotations

from dataclasses import replace

from tests.attack.generator.builder import Builder, Kind
from tests.attack.generator.control_flow import body, update

ERRORS = (
    "ValueError", "KeyError", "RuntimeError", "IndexError", "TypeError", "Trouble", "ZeroDivisionError",
    "StopIteration", "AttributeError", "LookupError", "Exception",
)
DEFINITIONS = """
class Trouble(ValueError):
    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class Guard:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append('enter')
        return {entered}

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else 'exit')
        return self.swallow


@contextlib.contextmanager
def logged(log, n=1):
    log.append(n)
    try:
        yield n + 1
    except KeyError as e:
        log.append(str(e))
    finally:
        log.append('left')
"""
CONTEXTS = (
    *(
        "Guard({log})", "Guard({log}, swallow=True)", "logged({log}) as number",
        "contextlib.suppress(RuntimeError, KeyError)",
    ),
    "Guard({log}) as one, logged({log}) as two",
)


def definitions(b: Builder) -> None:
    if not any("class Trouble" in text for text in b.definitions):
        b.define(DEFINITIONS.format(entered=b.choice("self", "self.log")))


def failing(b: Builder) -> str:
    """Something that raises, or does for some arguments."""
    x = b.tensor(1)
    return b.choice(
        f"raise {b.choice('ValueError', 'KeyError', 'RuntimeError')}({b.choice('', repr('bad'), b.integer())})",
        f"raise IndexError(f'got {{{b.integer()}}}')",
        "raise Trouble('own', code=3)", "1 // 0", "{}['missing']", "[][1]", f"{x.name}.missing",
        f"{x.name}[100]", f"{x.name} @ torch.ones(17, 3)", f"{x.name}.view(-1, 7)", f"{x.name} + torch.ones(11, 13)",
        f"torch.cat([{x.name}, torch.ones(3, 3, 3, 3)])", f"{x.name}.reshape(5, 7, 11)",
        f"int('x{{}}'.format({b.integer()}))",
        f"{x.name}.sum(9)", f"{x.name}.index_select(0, torch.tensor([50]))", "torch.tensor([1, 2])[torch.tensor([9])]",
        f"{x.name}.squeeze(7)",
        f"{x.name}.copy_(torch.ones(3, 19))", f"if {b.condition()}: raise ValueError(str({b.number()}))",
        f"assert not ({b.condition()}), 'asserted'", f"torch.linalg.inv(torch.zeros(2, 2)) + {b.integer()}",
        "torch.multinomial(-torch.ones(3), 1)",
        f"{x.name}.item()", f"bool({x.name})", "next(iter([]))", "float('nan') and missing_name",
        f"{x.name}.to(torch.int64).bernoulli_(2.0)", f"a, b = {x.name}, 1, 2", f"None + {x.name}",
        f"{x.name}.expand(1, 1)",
        "torch.nn.functional.one_hot(torch.tensor([5]), 3)", f"({x.name} * 1).unflatten(0, (3, 50))",
        "raise StopIteration(3)", f"{x.name}()",
        f"{x.name}.requires_grad_(True).add_(1)", f"[{x.name}].index(4)", "torch.ones(2).sqrt(1)",
        f"torch.arange(6).view(2, 3) @ {x.name}.double()",
        f"{x.name}.half() @ torch.ones(3)", "torch.tensor(5) // torch.tensor(0)",
    )


def caught(b: Builder) -> None:
    definitions(b)
    x, e = b.tensor(1), b.fresh("e")
    with b.block("try:"):
        if b.chance(0.6):
            body(b, 2)
        if b.chance(0.8):
            b.emit(failing(b))
        update(b, x)
    shape = b.rng.random()
    if shape < 0.85:
        kinds = b.rng.sample(ERRORS, 2)
        handler = b.choice(f"({kinds[0]}, {kinds[1]})", kinds[0], "Exception", "Exception", "RuntimeError",
            "(ValueError, LookupError, RuntimeError, ArithmeticError)")
        with b.block(b.choice(f"except {handler} as {e}:", f"except {handler}:")):
            uses = [
                "print('caught', sys.exc_info()[0].__name__)",
                f"{x.name} = {x.name} - 1",
                "print(sys.exc_info()[1].__traceback__.tb_lineno)",
            ]
            if f"as {e}" in b.lines[-1]:
                uses += [
                    f"print(type({e}).__name__, {e})", f"print({e}.args)", f"print(repr({e}.__context__))",
                    f"raise Trouble('again') from {e}", f"kept = {e}", f"{e}.note = 1", f"{e}.add_note('x'); raise",
                ]
            b.emit(b.choice(*uses))
            if b.chance(0.3):
                body(b, 1)
            if b.chance(0.15):
                b.emit(
                    b.choice("raise", "raise ValueError('second')", f"return {x.name}", "raise KeyError('k') from None")
                )
        if b.chance(0.25):
            with b.block("else:"):
                update(b, x)
    if shape >= 0.85 or b.chance(0.3):
        with b.block("finally:"):
            b.emit(b.choice("print('finally')", f"{x.name} = {x.name} * 2", f"print({b.integer()})"))


def within(b: Builder) -> None:
    definitions(b)
    x, log = b.tensor(1), b.fresh("log")
    b.emit(f"{log} = []")
    with b.block(f"with {b.choice(*CONTEXTS).format(log=log)}:"):
        body(b, 2)
        update(b, x)
        if b.chance(0.4):
            b.emit(failing(b))
        if b.chance(0.1):
            b.emit(f"return {x.name} * 2")
    b.know(log, Kind("log"))


def helper_raises(b: Builder) -> None:
    definitions(b)
    name = b.fresh("strict")
    if b.depth > 1:
        return caught(b)
    b.define(
        f"def {name}(x, n):\n    if n > {b.rng.randint(0, 3)}:\n        raise Trouble(f'n is {{n}}', n)\n"
        "    return x * n"
    )
    x = b.tensor(1)
    with b.block("try:"):
        t = b.let(f"{name}({x.name}, {b.integer()})", replace(x.kind, fresh=True), again=0)
    with b.block(f"except {b.choice('Trouble', 'ValueError')} as e:"):
        b.emit(f"{t.name} = {x.name} * e.code")
    b.know(t.name, t.kind)


def uncaught(b: Builder) -> None:
    definitions(b)
    if b.chance(0.6):
        return caught(b)
    with b.block(f"if {b.condition()}:"):
        b.emit(failing(b))


STATEMENTS = [caught, caught, caught, within, within, helper_raises, uncaught]
