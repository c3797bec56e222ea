"""ACLs and filters in the numbers of a request, and as a line of the audit log."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from millstream.errors import KafkaCode, KafkaError
from millstream.replication.admission import Refusal
from millstream.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_binding,
    check_filter,
)

_Number = TypeVar("_Number", bound=IntEnum)
_Wire = TypeVar("_Wire")
_Read = TypeVar("_Read")

# What Kafka answers where there is no authorizer.
DISABLED: Final = Refusal(
    KafkaCode.SECURITY_DISABLED, "No Authorizer is configured; set authorizer.class.name."
)


class WireFilter(Protocol):
    """DescribeAcls and DeleteAcls name their fields alike."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class WireBinding(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def resource_pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def read_filter(wanted: WireFilter) -> BindingFilter:
    """Raises KafkaError."""
    found = BindingFilter(
        _number(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _number(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _number(Operation, wanted.operation),
        _number(Permission, wanted.permission_type),
    )
    check_filter(found)
    return found


def read_binding(wanted: WireBinding) -> Binding:
    """Raises KafkaError."""
    pattern = ResourcePattern(
        _number(ResourceType, wanted.resource_type),
        wanted.resource_name,
        _number(PatternType, wanted.resource_pattern_type),
    )
    entry = Entry(
        wanted.principal,
        wanted.host,
        _number(Operation, wanted.operation),
        _number(Permission, wanted.permission_type),
    )
    binding = Binding(pattern, entry)
    check_binding(binding)
    return binding


def read_each(read: Callable[[_Wire], _Read], wanted: Iterable[_Wire]) -> list[_Read | KafkaError]:
    """What was read, or why it cannot be."""
    found: list[_Read | KafkaError] = []
    for one in wanted:
        try:
            found.append(read(one))
        except KafkaError as error:
            found.append(error.kept())
    return found


def _number(kind: type[_Number], value: int) -> _Number:
    """Numbers of newer versions are unknown."""
    try:
        return kind(value)
    except ValueError:
        return kind(0)


def in_words(binding: Binding) -> str:
    pattern, entry = binding.pattern, binding.entry
    return (
        f"{entry.permission.name} {entry.principal} from {entry.host} {entry.operation.name} on "
        f"{pattern.pattern_type.name} {pattern.resource_type.name} {pattern.name!r}"
    )
