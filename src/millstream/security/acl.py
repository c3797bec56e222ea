"""Access control lists as plain data: resources, entries, and the filters that select them.

Numbers are those of Kafka's protocol. An ACL binding is a resource pattern with one entry:
"on topics that begin with `a`, allow User:b from host c the operation d".
"""

import dataclasses
import ipaddress
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
ANYONE: Final = "User:*"
ANY_HOST: Final = "*"


class _Named(IntEnum):
    @property
    def title(self) -> str:
        """As Kafka writes it in ZooKeeper: `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ResourceType(_Named):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    UNKNOWN = 0
    ANY = 1
    # In filters: everything that applies to a resource of this name.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final = tuple(ResourceType)[2:]
PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)

# What exists for a resource: these are shown as authorised operations, and others never match.
OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    """What an ACL is about; `*` as a literal name means every resource of the type.

    A tuple, because every decision makes some and looks them up.
    """

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


# Without slots, for the cached network.
@dataclasses.dataclass(frozen=True, order=True)
class Entry:
    """Who may or may not do what, and from where: an address, a network (`10.1.0.0/16`, not
    in Kafka), or `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    @cached_property
    def _network(self) -> "ipaddress.IPv4Network | ipaddress.IPv6Network | None":
        return network_of(self.host)

    def is_for_host(self, host: str) -> bool:
        if self.host in (ANY_HOST, host):
            return True
        network = self._network
        if network is None:
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address in network


@dataclass(frozen=True, slots=True)
class Binding:
    pattern: ResourcePattern
    entry: Entry


@dataclass(frozen=True, slots=True)
class BindingFilter:
    """Selects bindings; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, pattern: ResourcePattern, entry: Entry) -> bool:
        return self.matches_pattern(pattern) and self._matches_entry(entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        wanted = self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if wanted is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def _matches_entry(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def network_of(host: str) -> "ipaddress.IPv4Network | ipaddress.IPv6Network | None":
    """The network that a host like `10.1.0.0/16` means; None if it is not one."""
    if "/" not in host:
        return None
    try:
        return ipaddress.ip_network(host)
    except ValueError:
        return None


def check_binding(binding: Binding) -> None:
    """Raises KafkaError if an ACL like this cannot exist."""
    pattern, entry = binding.pattern, binding.entry
    problem = _pattern_problem(pattern) or _entry_problem(entry)
    if problem is not None:
        raise KafkaError(KafkaCode.INVALID_REQUEST, problem)


def check_filter(wanted: BindingFilter) -> None:
    """Raises KafkaError for numbers that this version does not know."""
    for value in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        if value == 0:
            kind = type(value).__name__
            raise KafkaError(KafkaCode.INVALID_REQUEST, f"the filter has an unknown {kind}")


def _pattern_problem(pattern: ResourcePattern) -> str | None:
    if pattern.resource_type not in RESOURCE_TYPES:
        return f"an ACL cannot be about resource type {pattern.resource_type.name}"
    if pattern.pattern_type not in PATTERN_TYPES:
        return f"the pattern type of an ACL is LITERAL or PREFIXED, not {pattern.pattern_type.name}"
    if not pattern.name:
        return "the resource name of an ACL is empty; use * for all resources"
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"the only CLUSTER resource is {CLUSTER_NAME}, not {pattern.name}"
    return None


def _entry_problem(entry: Entry) -> str | None:
    kind, colon, name = entry.principal.partition(":")
    if not (kind and colon and name):
        return f"{entry.principal!r} is not a principal; write User:name, or User:* for everybody"
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"an ACL cannot be for operation {entry.operation.name}"
    if entry.permission not in (Permission.ALLOW, Permission.DENY):
        return f"the permission of an ACL is ALLOW or DENY, not {entry.permission.name}"
    if not entry.host:
        return "the host of an ACL is empty; use * for all hosts"
    if "/" in entry.host and network_of(entry.host) is None:
        return f"{entry.host!r} is not a network like 10.1.0.0/16 (bits after the prefix must be 0)"
    return None
