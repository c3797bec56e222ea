"""Classes with the lazy decorator behave as those with the standard one."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from millstream import lazy_dataclass


def define(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes with either decorator."""

    @dataclass(slots=True)
    class Open:
        kinds: ClassVar[int] = 3
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        hidden: int = field(default=0, repr=False, compare=False)
        d: int = field(kw_only=True, default=4)

    @dataclass(frozen=True, slots=True, order=True)
    class Frozen:
        """Has a docstring."""

        a: int
        b: str = "b"

        def double(self) -> int:
            return self.a * 2

    @dataclass(slots=True)
    class Later(Open):
        e: int = 5
        computed: int = field(init=False, default=7)

        def __post_init__(self) -> None:
            self.computed += self.e

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 42

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    return {each.__name__: each for each in (Open, Frozen, Later, Own, Nothing)}


LAZY = define(lazy_dataclass.dataclass)
STANDARD = define(dataclasses.dataclass)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: list[int] = field(default_factory=list)


@pytest.mark.parametrize("name", sorted(STANDARD))
def test_a_class_looks_the_same(name: str) -> None:
    lazy, standard = LAZY[name], STANDARD[name]
    assert is_dataclass(lazy)
    assert [(one.name, one.type) for one in fields(lazy)] == [
        (one.name, one.type) for one in fields(standard)
    ]
    assert lazy.__slots__ == standard.__slots__
    assert lazy.__match_args__ == standard.__match_args__
    assert lazy.__qualname__ == standard.__qualname__
    assert list(inspect.signature(lazy).parameters) == list(inspect.signature(standard).parameters)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("Open", (1,), {}),
        ("Open", (1, "x", [1]), {"d": 9, "hidden": 2}),
        ("Open", (), {"a": 1, "c": [2]}),
        ("Frozen", (1,), {}),
        ("Frozen", (1, "x"), {}),
        ("Later", (1,), {"e": 6}),
        ("Own", (1,), {}),
        ("Nothing", (), {}),
    ],
)
def test_instances_are_the_same(
    name: str, arguments: tuple[object, ...], keywords: dict[str, object]
) -> None:
    lazy, standard = LAZY[name](*arguments, **keywords), STANDARD[name](*arguments, **keywords)
    assert repr(lazy) == repr(standard)
    assert asdict(lazy) == asdict(standard)
    assert lazy == LAZY[name](*arguments, **keywords)
    assert repr(copy.deepcopy(lazy)) == repr(lazy)


@pytest.mark.parametrize("classes", [LAZY, STANDARD])
def test_what_is_wrong_is_refused(classes: dict[str, Any]) -> None:
    for arguments, keywords in [((), {}), ((1, "b", [], 4, 5), {}), ((1,), {"x": 1})]:
        with pytest.raises(TypeError):
            classes["Open"](*arguments, **keywords)
    with pytest.raises(AttributeError):
        classes["Open"](1).other = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(classes["Open"](1))
    frozen = classes["Frozen"](1)
    with pytest.raises(FrozenInstanceError):
        frozen.a = 2
    with pytest.raises(FrozenInstanceError):
        del frozen.a


@pytest.mark.parametrize("classes", [LAZY, STANDARD])
def test_comparison_hash_and_order(classes: dict[str, Any]) -> None:
    opened, frozen = classes["Open"], classes["Frozen"]
    assert opened(1, hidden=1) == opened(1, hidden=2)
    assert opened(1) != opened(2)
    assert opened(1) != 1
    assert hash(frozen(1)) == hash(frozen(1)) == hash((1, "b"))
    assert sorted([frozen(2), frozen(1, "c"), frozen(1)]) == [frozen(1), frozen(1, "c"), frozen(2)]
    assert frozen(1) <= frozen(1) >= frozen(1)
    assert not frozen(1) > frozen(1)
    with pytest.raises(TypeError):
        assert frozen(1) < 1
    assert classes["Own"](1) == classes["Own"](2)
    assert hash(classes["Own"](1)) == 42


@pytest.mark.parametrize("classes", [LAZY, STANDARD])
def test_a_factory_makes_a_value_for_each(classes: dict[str, Any]) -> None:
    first, second = classes["Open"](1), classes["Open"](1)
    first.c.append(1)
    assert second.c == []


@pytest.mark.parametrize("classes", [LAZY, STANDARD])
def test_replace_and_match(classes: dict[str, Any]) -> None:
    found = replace(classes["Frozen"](1), b="x")
    assert (found.a, found.b, found.double()) == (1, "x", 2)
    frozen = classes["Frozen"]
    match found:
        case frozen(1, text):
            assert text == "x"
        case _:
            raise AssertionError


def test_frozen_instances_can_be_pickled_and_copied() -> None:
    found = Pickled(1, [2])
    assert pickle.loads(pickle.dumps(found)) == found
    copied = copy.deepcopy(found)
    assert copied == found
    assert copied.b is not found.b


def test_a_value_that_contains_itself_is_shown() -> None:
    made = LAZY["Open"](1)
    made.c.append(made)
    assert repr(made).endswith("(a=1, b='b', c=[...], d=4)")


def test_a_subclass_without_a_decorator_uses_the_methods_of_its_base() -> None:
    class Derived(LAZY["Frozen"]):  # type: ignore[misc]
        pass

    derived = Derived(3)
    assert repr(derived).endswith("Derived(a=3, b='b')")
    assert derived == Derived(3)
    assert derived != LAZY["Frozen"](3)


def test_the_standard_decorator_takes_a_lazy_base() -> None:
    @dataclasses.dataclass(slots=True)
    class Derived(LAZY["Open"]):  # type: ignore[misc]
        z: int = 9

    assert [one.name for one in fields(Derived)][-1] == "z"
    assert Derived(1).z == 9


def test_methods_are_compiled_once_and_only_when_used() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Fresh:
        a: int

    assert not inspect.isfunction(vars(Fresh)["__init__"])
    Fresh(1)
    assert inspect.isfunction(vars(Fresh)["__init__"])
    assert not inspect.isfunction(vars(Fresh)["__eq__"])
    assert Fresh(1) == Fresh(1)
    assert inspect.isfunction(vars(Fresh)["__eq__"])
