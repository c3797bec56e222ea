"""Declaring messages: one class per structure, in its newest shape.

    class HeartbeatRequest(Request["HeartbeatResponse"], key=12, versions=(0, 4), flexible_from=4):
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: str | None = since(3, default=None)

The annotations are the wire's types, in the wire's order. `str | None` is a nullable string,
`list[Part]` an array, a class a nested structure. `since` gives a field's versions; without it
a field is in all of them. A message that is read always has all fields: one that is not on the
wire in its version has its default, or else the zero of its type. A field that a version does
not have is not written. So handlers see one shape, whatever version a client speaks.

Type checkers see dataclasses with keyword arguments. At run time a class only remembers its
declarations; `codec` evaluates them when a version is first read or written.

Messages are read-only by convention once built: a default list is shared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    TypeVar,
    dataclass_transform,
    overload,
)

# The wire's numbers, by their codes in `struct`.
Int8 = Annotated[int, "b"]
Int16 = Annotated[int, "h"]
Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]
UInt16 = Annotated[int, "H"]
Float64 = Annotated[float, "d"]
# When read, a view of the frame.
Bytes = Annotated[bytes | memoryview, "bytes"]

# Which operations a client may do: not requested, or unknown.
NO_OPERATIONS: Final = -(1 << 31)
_LATER: Final = 32767
NEVER_FLEXIBLE: Final = _LATER
_T = TypeVar("_T")


class KeptArray(list[_T]):
    """An array that is sent again and again and never changes: its bytes are kept."""

    __slots__ = ("_encoded",)

    def __init__(self, items: Iterable[_T]) -> None:
        super().__init__(items)
        self._encoded: dict[Callable[[bytearray, list[_T]], None], bytes] = {}

    def encoded_by(self, write: Callable[[bytearray, list[_T]], None]) -> bytes:
        """What `write` writes. There is one for each version of an array."""
        found = self._encoded.get(write)
        if found is None:
            out = bytearray()
            write(out, self)
            found = self._encoded[write] = bytes(out)
        return found


class Versions:
    """In which versions a field is on the wire, and how."""

    __slots__ = ("default", "nullable_since", "since", "tag", "until")

    def __init__(
        self,
        since: int,
        default: object,
        *,
        until: int,
        nullable_since: int,
        tag: int | None,
    ) -> None:
        self.since = since
        self.until = until
        self.nullable_since = nullable_since
        self.tag = tag
        self.default = default

    def includes(self, version: int) -> bool:
        return self.since <= version <= self.until


_REQUIRED: Final = object()
ALL_VERSIONS: Final = Versions(0, _REQUIRED, until=_LATER, nullable_since=0, tag=None)


@overload
def since(
    version: int,
    *,
    default: _T,
    until: int = ...,
    nullable_since: int = ...,
    tag: int | None = ...,
) -> _T: ...
@overload
def since(version: int, *, until: int = ..., nullable_since: int = ...) -> Any: ...
def since(
    version: int,
    *,
    default: Any = _REQUIRED,
    until: int = _LATER,
    nullable_since: int = 0,
    tag: int | None = None,
) -> Any:
    """A field of the versions from `version` to `until`.

    A `default` makes it optional in the constructor. A field with a `tag` is on the wire only
    if its value differs from the default. A type with `| None` is nullable from version
    `nullable_since` on.
    """
    return Versions(version, default, until=until, nullable_since=nullable_since, tag=tag)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
class Message:
    """A request, a response, or a structure within one."""

    # Each field's annotation as it is written, in the wire's order.
    declared_fields: ClassVar[dict[str, str]] = {}
    # Of the fields that are not in all versions.
    field_versions: ClassVar[dict[str, Versions]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__dict__
        cls.declared_fields = own.get("__annotations__", {})
        cls.field_versions = {name: v for name, v in own.items() if type(v) is Versions}
        for name, versions in cls.field_versions.items():
            # Class attributes serve as the defaults of instances.
            if versions.default is _REQUIRED:
                delattr(cls, name)
            else:
                setattr(cls, name, versions.default)

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            if not values.keys() <= self.declared_fields.keys():
                unknown = ", ".join(values.keys() - self.declared_fields.keys())
                raise TypeError(f"{type(self).__name__} has no field {unknown}")
            self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and list(self._items()) == list(other._items())

    __hash__ = None  # type: ignore[assignment]  # values may be lists

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._items())
        return f"{type(self).__name__}({shown})"

    def _items(self) -> Iterator[tuple[str, object]]:
        return ((name, getattr(self, name, None)) for name in self.declared_fields)


R_co = TypeVar("R_co", bound=Message, covariant=True)


class Api:
    """One request and its response: its key, and the versions that are read and those listed."""

    __slots__ = (
        "flexible_from",
        "key",
        "max_listed",
        "max_version",
        "min_listed",
        "min_version",
        "name",
        "request",
        "response_tags_from",
    )

    def __init__(
        self,
        request: type[Request[Message]],
        key: int,
        versions: tuple[int, int],
        flexible_from: int,
        listed: tuple[int, int],
        response_tags_from: int,
    ) -> None:
        self.request = request
        self.key = key
        # The name of its module, and of the handler.
        self.name = request.__module__.rpartition(".")[2]
        self.min_version, self.max_version = versions
        self.flexible_from = flexible_from
        # From this version on, tags follow the correlation id of a response.
        self.response_tags_from = response_tags_from
        self.min_listed, self.max_listed = listed

    def __repr__(self) -> str:
        return f"Api({self.name}, {self.key})"

    @property
    def response(self) -> type[Message]:
        found: type[Message] = vars(sys.modules[self.request.__module__])[
            self.request.__name__.removesuffix("Request") + "Response"
        ]
        return found

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


# By key: every API whose file has been imported.
APIS: Final[dict[int, Api]] = {}


class Request(Message, Generic[R_co]):
    """A request; `R_co` is its response, which is declared in the same module, as `XResponse`
    for an `XRequest`."""

    api: ClassVar[Api]

    def __init_subclass__(
        cls,
        *,
        key: int,
        versions: tuple[int, int],
        flexible_from: int = NEVER_FLEXIBLE,
        listed: tuple[int, int] | None = None,
        response_tags_from: int | None = None,
    ) -> None:
        """`listed` are the versions in ApiVersions, if they differ from `versions`;
        `response_tags_from` is for a response whose header is not as flexible as its body."""
        super().__init_subclass__()
        tags_from = flexible_from if response_tags_from is None else response_tags_from
        cls.api = Api(cls, key, versions, flexible_from, listed or versions, tags_from)
        APIS[key] = cls.api

    def __class_getitem__(cls, response: object) -> type[Request[Any]]:
        # Only type checkers need it; building an alias takes longer than the class.
        return cls
