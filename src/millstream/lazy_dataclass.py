"""`@dataclass(slots=True)` as in `dataclasses`, with methods that are compiled when first used.

Importing a node defines more than a hundred dataclasses. The standard decorator compiles up to
eight methods for each, which takes half a millisecond, and a process uses few of them. This one
only makes the class. The first instance compiles `__init__`, the first comparison `__eq__`, and so
on; from then on the class has the same methods as with the standard decorator, and the same speed.

Type checkers see the standard decorator. `field`, `fields`, `replace` and `asdict` of `dataclasses`
work as usual, and so do subclasses with either decorator.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from reprlib import recursive_repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, get_origin

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, slots: bool, frozen: bool = False, order: bool = False
    ) -> Callable[[type], type]:
        """Only for classes with slots."""
        assert slots
        return lambda cls: _make(cls, is_frozen=frozen, is_ordered=order)


__all__ = ["dataclass"]

_FIELDS: Final = "__dataclass_fields__"
_EMPTY: Final[Mapping[str, object]] = MappingProxyType({})
_ORDER: Final = (("__lt__", "<"), ("__le__", "<="), ("__gt__", ">"), ("__ge__", ">="))


def _make(cls: type, *, is_frozen: bool, is_ordered: bool) -> type:
    own = dict(cls.__dict__)
    names = [name for name, kind in cls.__annotations__.items() if not _is_class_variable(kind)]
    # A slot cannot have a value in the class: `_LazyFields` keeps the defaults.
    defaults = {name: own.pop(name) for name in names if name in own}
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    own["__slots__"] = tuple(name for name in names if name not in inherited)
    own["__qualname__"] = cls.__qualname__
    own.setdefault("__match_args__", _LazyAttribute(_match_args))
    own.setdefault("__init__", _LazyAttribute(_init))
    own.setdefault("__repr__", _LazyAttribute(_repr))
    if "__eq__" not in own:
        own["__eq__"] = _LazyAttribute(partial(_compare, "__eq__", "=="))
        own.setdefault("__hash__", _LazyAttribute(_hash) if is_frozen else None)
    if is_ordered:
        own |= {name: _LazyAttribute(partial(_compare, name, sign)) for name, sign in _ORDER}
    if is_frozen:
        own |= _FROZEN
    own[_FIELDS] = _LazyFields(cls.__annotations__, defaults)
    own["__dataclass_params__"] = _Params(is_frozen)
    return type(cls)(cls.__name__, cls.__bases__, own)


def _is_class_variable(kind: object) -> bool:
    if isinstance(kind, str):
        return kind.startswith(("ClassVar", "typing.ClassVar"))
    return kind is ClassVar or get_origin(kind) is ClassVar


class _Params:
    """What the standard decorator looks for in the bases of a class."""

    __slots__ = ("frozen",)

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen


class _LazyFields:
    """The fields, by name, of the class where this stands."""

    __slots__ = ("_annotations", "_class", "_defaults")

    def __init__(self, annotations: dict[str, Any], defaults: dict[str, object]) -> None:
        self._annotations = annotations
        self._defaults = defaults

    def __set_name__(self, owner: type, name: str) -> None:
        self._class = owner

    def __get__(self, instance: object, owner: type) -> dict[str, "dataclasses.Field[Any]"]:
        found: dict[str, dataclasses.Field[Any]] = {}
        for base in reversed(self._class.__mro__[1:]):
            if _FIELDS in base.__dict__:
                found |= getattr(base, _FIELDS)
        # The standard decorator reads the annotations, and compiles nothing. Without a docstring it
        # would compute a signature for one.
        content = {"__annotations__": self._annotations, "__doc__": "x", **self._defaults}
        content["__module__"] = self._class.__module__
        decorate = dataclasses.dataclass(init=False, repr=False, eq=False)
        found |= getattr(decorate(type(self._class.__name__, (), content)), _FIELDS)
        setattr(self._class, _FIELDS, found)
        return found


class _LazyAttribute:
    """Replaces itself with the attribute that `build` makes for the class where it stands."""

    __slots__ = ("_build", "_class", "_name")

    def __init__(self, build: Callable[[type], Any]) -> None:
        self._build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self._class, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        found = self._build(self._class)
        setattr(self._class, self._name, found)
        return found if instance is None else found.__get__(instance)


def _init(cls: Any) -> Any:
    scope: dict[str, object] = {"_set": object.__setattr__, "_unset": _UNSET}
    parameters: list[str] = []
    keywords: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        parameter = name
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_new_{name}"] = field.default_factory
            parameter = f"{name}=_unset"
            value = f"_new_{name}() if {name} is _unset else {name}"
        if field.init:
            (keywords if field.kw_only else parameters).append(parameter)
        elif parameter == name:
            continue
        else:
            lines.append(f"{parameter}")
        is_frozen = cls.__dataclass_params__.frozen
        lines.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if keywords:
        keywords.insert(0, "*")
    return _compile(cls, "__init__", ["self", *parameters, *keywords], lines or ["pass"], scope)


def _match_args(cls: Any) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(cls) if one.init and not one.kw_only)


def _repr(cls: Any) -> Any:
    shown = ", ".join(
        f"{field.name}={{self.{field.name}!r}}" for field in dataclasses.fields(cls) if field.repr
    )
    line = f'return f"{{self.__class__.__qualname__}}({shown})"'
    return recursive_repr()(_compile(cls, "__repr__", ["self"], [line]))


def _compare(method: str, sign: str, cls: Any) -> Any:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    lines = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_values('self', names)} {sign} {_values('other', names)}",
    ]
    return _compile(cls, method, ["self", "other"], lines)


def _hash(cls: Any) -> Any:
    names = [
        field.name
        for field in dataclasses.fields(cls)
        if (field.compare if field.hash is None else field.hash)
    ]
    return _compile(cls, "__hash__", ["self"], [f"return hash({_values('self', names)})"])


def _values(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{name}, " for name in names) + ")"


def _compile(
    cls: type,
    name: str,
    parameters: list[str],
    lines: list[str],
    scope: Mapping[str, object] = _EMPTY,
) -> Any:
    body = "".join(f"    {line}\n" for line in lines)
    found: dict[str, Any] = {}
    exec(f"def {name}({', '.join(parameters)}):\n{body}", dict(scope), found)
    found[name].__qualname__ = f"{cls.__qualname__}.{name}"
    found[name].__module__ = cls.__module__
    return found[name]


class _Unset:
    """Stands for a value that comes from a factory, in signatures."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET: Final = _Unset()


# -- frozen classes ----------------------------------------------------------------------


def _refuse_setting(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    """For pickle and copy, which cannot set the attributes of a frozen instance."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN: Final = {
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}
