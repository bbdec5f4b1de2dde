"""Classes whose methods are written when they are first needed are as the standard library makes them."""
from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any, ClassVar

import pytest

from framejit.guards.sources import ArgSource, KeySource, TypedKey
from framejit.late_dataclass import dataclass

MAKERS = pytest.mark.parametrize("make", [dataclass, dataclasses.dataclass], ids=["late", "standard"])


def shapes(make: Any) -> dict[str, type]:
    """The same classes by both."""

    @make
    class Plain:
        number: int
        word: str = "a"
        many: list[int] = dataclasses.field(default_factory=list)
        shared: ClassVar[int] = 7

    @make(frozen=True)
    class Frozen:
        number: int
        hidden: int = dataclasses.field(default=2, repr=False, compare=False)

    @make(frozen=True)
    class Below(Frozen):
        word: str = "b"
        number: int = 5
        last: int = dataclasses.field(default=0, kw_only=True)

    @make(eq=False)
    class Unequal:
        number: int
        twice: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.twice = 2 * self.number

    @make(frozen=True)
    class Own:
        number: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    class Child(Plain):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(3, many=[1])

    return {cls.__name__: cls for cls in (Plain, Frozen, Below, Unequal, Own, Child)}


def told(made: Any) -> Any:
    try:
        hashed = hash(made)
    except TypeError:
        hashed = None
    return repr(made), vars(made), hashed if type(made).__name__ != "Unequal" else None


@pytest.mark.parametrize(
    "name, args, named",
    [
        ("Plain", (1,), {}), ("Plain", (1, "x", [2]), {}), ("Frozen", (1,), {"hidden": 3}), ("Below", (), {"last": 4}),
        ("Below", (1, 2), {"word": "w"}), ("Unequal", (4,), {}), ("Own", (1,), {}), ("Child", (), {}),
    ],
)
def test_the_same(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    late, standard = (shapes(make)[name] for make in (dataclass, dataclasses.dataclass))
    one, other = late(*args, **named), standard(*args, **named)
    assert told(one) == told(other)
    assert (one == late(*args, **named)) is (other == standard(*args, **named))
    assert (one == 1) is (other == 1)
    assert [field.name for field in dataclasses.fields(late)] == [field.name for field in dataclasses.fields(standard)]
    assert late.__match_args__ == standard.__match_args__  # type: ignore[attr-defined]
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert told(copy.copy(one)) == told(one)


@MAKERS
def test_refusals(make: Any) -> None:
    made = shapes(make)
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'number'"):
        made["Plain"]()
    frozen = made["Frozen"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'number'"):
        frozen.number = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'number'"):
        del frozen.number
    with pytest.raises(TypeError, match="unhashable"):
        hash(made["Plain"](1))


@MAKERS
@pytest.mark.parametrize("question", [
    lambda cls: [field.name for field in dataclasses.fields(cls)], lambda cls: cls.__match_args__,
    dataclasses.is_dataclass, lambda cls: cls.word, lambda cls: cls.shared, lambda cls: hasattr(cls, "many"),
    lambda cls: [field.name for field in dataclasses.fields(dataclasses.dataclass(type("Sub", (cls,), {})))],
])
def test_asked_before_there_is_an_instance(make: Any, question: Any) -> None:
    assert question(shapes(make)["Plain"]) == question(shapes(dataclasses.dataclass)["Plain"])


@dataclass(frozen=True)
class Pickled:
    number: int


def test_an_instance_that_nothing_initialised() -> None:
    made = [object.__new__(Pickled) for _ in range(2)]
    for each in made:
        vars(each)["number"] = 3
    assert made[0] == made[1] and hash(made[0]) == hash(made[1]) and repr(made[0]) == "Pickled(number=3)"
    assert pickle.loads(pickle.dumps(made[0])) == made[0]
    assert dataclasses.replace(made[0], number=4) == Pickled(4)


def test_what_a_decorator_puts_in_a_methods_place_stays() -> None:
    def hashed_by_name(cls: Any) -> Any:
        made = dataclass(frozen=True)(cls)
        made.__hash__ = lambda self: hash(type(self).__name__)
        return made

    @hashed_by_name
    class Named:
        number: int

    for _ in range(2):
        assert hash(Named(1)) == hash("Named") and Named(2) == Named(2) != Named(3)


def test_a_source_is_hashed_once() -> None:
    class Counted:
        asked = 0

        def __hash__(self) -> int:
            self.asked += 1
            return 1

    key = Counted()
    source = KeySource(KeySource(ArgSource(0, "x"), TypedKey(key)), TypedKey(2))
    assert {source: 1}[source] == 1 == hash(source) // hash(source) and key.asked == 1


def test_written_once_and_by_many_threads() -> None:
    for _ in range(20):
        cls = shapes(dataclass)["Below"]
        ready, found = threading.Barrier(8), []

        def work() -> None:
            ready.wait()  # noqa: B023
            found.append(cls(1, 2, "w", last=3))  # noqa: B023

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and len({*found}) == 1
    assert cls.__init__.__qualname__.endswith("Below.__init__")
