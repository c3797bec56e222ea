"""Whether an operation is allowed: Kafka's StandardAuthorizer, as a plain index of ACLs.

The order of the rules:

1. Super users may do everything.
2. A DENY that matches principal, host and operation wins over everything below.
3. An ALLOW that matches, or that implies the operation, allows it.
4. A resource that no ACL names is open to all with `allow.everyone.if.no.acl.found`.
5. Everything else is denied.

`is_allowed` follows them for one resource. `is_allowed_on_any` looks for a resource of a type on
which they would allow an operation, without knowing which resources there are.

An ACL matches a resource if it is literal with its name, literal `*`, or a prefix of the name.
Decisions look up: the literal name, `*`, and one key for each length that a prefix has; then
the entries of the principal and of `User:*`. Other ACLs cost nothing, however many there are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from millstream.lazy_dataclass import dataclass
from millstream.model import Principal
from millstream.security.acl import (
    ANY_HOST,
    ANYONE,
    OPERATIONS,
    WILDCARD,
    Binding,
    BindingFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

# Operations whose ALLOW also allows the key. A DENY implies nothing.
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NONE: Final[frozenset[Operation]] = frozenset()
# Only `*` matches it: an ACL cannot have an empty name.
_NAMED_BY_NO_ACL: Final = ""


class Client(NamedTuple):
    """Who asks. The host is empty while no ACL names one, so that more clients are equal."""

    principal: Principal
    host: str = ""
    is_node: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What the options say."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False


def parse_super_users(text: str) -> frozenset[str]:
    """`User:a;User:b`. Raises ValueError."""
    names = [name.strip() for name in text.split(";") if name.strip()]
    for name in names:
        kind, colon, rest = name.partition(":")
        if not (kind and colon and rest):
            raise ValueError(f"{name!r} is not a principal; write User:name, separated by ;")
    return frozenset(names)


class AclIndex:
    """All ACLs, by resource pattern and principal."""

    def __init__(self) -> None:
        # Invariant: no empty inner dict, and no empty list in one.
        self._by_pattern: dict[ResourcePattern, dict[str, list[Entry]]] = {}
        # How many prefixed patterns of a type have a name of this length.
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        self._entries_with_host = 0
        # Does any decision depend on the client's address?
        self.names_hosts = False

    def __len__(self) -> int:
        return sum(1 for _ in self.bindings())

    def bindings(self) -> Iterator[Binding]:
        for pattern, by_principal in self._by_pattern.items():
            for entries in by_principal.values():
                for entry in entries:
                    yield Binding(pattern, entry)

    def find(self, wanted: BindingFilter) -> list[Binding]:
        return [
            Binding(pattern, entry)
            for pattern, by_principal in self._by_pattern.items()
            if wanted.matches_pattern(pattern)
            for entries in by_principal.values()
            for entry in entries
            if wanted.matches(pattern, entry)
        ]

    def replace(self, pattern: ResourcePattern, entries: Collection[Entry]) -> None:
        """From now on these are all entries of the pattern."""
        self._replace(pattern, entries)
        self.names_hosts = self._entries_with_host > 0

    def _replace(self, pattern: ResourcePattern, entries: Collection[Entry]) -> None:
        present = self._by_pattern.pop(pattern, {})
        for before in present.values():
            self._entries_with_host -= sum(1 for entry in before if entry.host != ANY_HOST)
        if pattern.pattern_type is PatternType.PREFIXED:
            self._count_prefix(pattern, bool(entries) - bool(present))
        if not entries:
            return
        by_principal: dict[str, list[Entry]] = {}
        for entry in entries:
            by_principal.setdefault(entry.principal, []).append(entry)
        self._by_pattern[pattern] = by_principal
        self._entries_with_host += sum(1 for entry in entries if entry.host != ANY_HOST)

    def _count_prefix(self, pattern: ResourcePattern, change: int) -> None:
        lengths = self._prefix_lengths.setdefault(pattern.resource_type, Counter())
        lengths[len(pattern.name)] += change
        if not lengths[len(pattern.name)]:
            del lengths[len(pattern.name)]

    def applying_to(
        self, resource_type: ResourceType, name: str
    ) -> Iterator[dict[str, list[Entry]]]:
        """The entries of every pattern that matches the resource, by principal."""
        prefixed = PatternType.PREFIXED
        patterns = [ResourcePattern(resource_type, name)]
        if name != WILDCARD:
            patterns.append(ResourcePattern(resource_type, WILDCARD))
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                patterns.append(ResourcePattern(resource_type, name[:length], prefixed))
        for pattern in patterns:
            found = self._by_pattern.get(pattern)
            if found is not None:
                yield found

    def is_allowed(
        self,
        rules: Rules,
        client: Client,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if client.principal in rules.super_users:
            return True
        has_acls = is_allowed = False
        implied_by = _IMPLIED_BY.get(operation, _NONE)
        for by_principal in self.applying_to(resource_type, name):
            has_acls = True
            for entry in _entries_of(by_principal, client):
                is_direct = entry.operation in (operation, Operation.ALL)
                if entry.permission is Permission.DENY:
                    if is_direct:
                        return False
                elif is_direct or entry.operation in implied_by:
                    is_allowed = True
        return is_allowed or (not has_acls and rules.allow_if_no_acl)

    def is_allowed_on_any(
        self,
        rules: Rules,
        client: Client,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Is there a resource of this type on which the operation could be allowed? (KIP-679)

        Either on those that no ACL names: rules 1 to 5, asked for such a name. Or by an ALLOW of
        the operation itself that no DENY covers; as in Kafka, one that only implies it is not
        enough there.
        """
        if self.is_allowed(rules, client, operation, resource_type, _NAMED_BY_NO_ACL):
            return True
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for pattern, by_principal in self._by_pattern.items():
            if pattern.resource_type is not resource_type:
                continue
            for entry in _entries_of(by_principal, client):
                if entry.operation in (operation, Operation.ALL):
                    if entry.permission is Permission.DENY:
                        denied.add(pattern)
                    else:
                        allowed.append(pattern)
        if ResourcePattern(resource_type, WILDCARD) in denied:
            return False
        return any(not _is_covered(pattern, denied) for pattern in allowed)


def authorized_operations(
    allowed: Iterable[Operation],
) -> int:
    """The bit field in which Kafka shows operations."""
    return sum(1 << operation for operation in allowed)


def all_operations(resource_type: ResourceType) -> int:
    return authorized_operations(OPERATIONS[resource_type])


def _entries_of(by_principal: dict[str, list[Entry]], client: Client) -> list[Entry]:
    """Those that are about this client, from where it connects."""
    found = by_principal.get(client.principal, [])
    if ANYONE in by_principal and client.principal != ANYONE:
        found = found + by_principal[ANYONE]
    return [entry for entry in found if entry.host == ANY_HOST or entry.is_for_host(client.host)]


def _is_covered(pattern: ResourcePattern, denied: Collection[ResourcePattern]) -> bool:
    """Is everything that the pattern allows denied by another one?"""
    name, resource_type = pattern.name, pattern.resource_type
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any(
        ResourcePattern(resource_type, name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(name) + 1)
    )
