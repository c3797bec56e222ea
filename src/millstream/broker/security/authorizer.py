"""The authorizer in force: what the options say, and the ACLs of the cluster."""

import ipaddress
from functools import lru_cache
from typing import Final, Protocol

from millstream.cluster.acls import StoredAcls
from millstream.config import BrokerConfig
from millstream.errors import StartError
from millstream.model import Principal
from millstream.security.acl import OPERATIONS, Operation, ResourceType
from millstream.security.authorization import (
    Client,
    Rules,
    authorized_operations,
    parse_super_users,
)

# Kafka's names for it: with KRaft, and with ZooKeeper.
CLASSES: Final = frozenset(
    {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    }
)


class ClientConnection(Protocol):
    """What a decision depends on."""

    @property
    def principal(self) -> Principal: ...
    @property
    def address(self) -> str: ...
    @property
    def proved_node_id(self) -> int: ...


class Authorizer(Protocol):
    """Permissions. A change of them bumps the node's generation."""

    @property
    def names_hosts(self) -> bool:
        """Does any decision depend on the client's address?"""
        ...

    def client_of(self, connection: ClientConnection) -> Client: ...

    def is_allowed(
        self, client: Client, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool: ...

    def is_allowed_on_any(
        self, client: Client, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Is there a resource of this type on which the operation could be allowed?"""
        ...


class AclAuthorizer:
    def __init__(self, acls: StoredAcls, rules: Rules) -> None:
        self._acls = acls
        self._rules = rules

    @property
    def names_hosts(self) -> bool:
        return self._acls.index.names_hosts

    def client_of(self, connection: ClientConnection) -> Client:
        host = host_of(connection.address) if self.names_hosts else ""
        return Client(connection.principal, host, connection.proved_node_id >= 0)

    def is_allowed(
        self, client: Client, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if client.is_node and operation is Operation.CLUSTER_ACTION:
            return True
        return self._acls.index.is_allowed(self._rules, client, operation, resource_type, name)

    def is_allowed_on_any(
        self, client: Client, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return self._acls.index.is_allowed_on_any(self._rules, client, operation, resource_type)


def operations_of(
    authorizer: Authorizer, client: Client, resource_type: ResourceType, name: str
) -> int:
    """What the client may do with a resource, as Kafka's bit field."""
    return authorized_operations(
        operation
        for operation in OPERATIONS[resource_type]
        if authorizer.is_allowed(client, operation, resource_type, name)
    )


def configured_authorizer(config: BrokerConfig, acls: StoredAcls) -> AclAuthorizer | None:
    """None without one: everything is allowed. Raises StartError."""
    name = config.string("authorizer.class.name")
    if not name:
        return None
    if name not in CLASSES:
        raise StartError(
            f"authorizer.class.name={name}: Java classes cannot be loaded here; "
            f"use {min(CLASSES, key=len)} or {max(CLASSES, key=len)}, both for Kafka's ACLs"
        )
    try:
        super_users = parse_super_users(config.optional_string("super.users") or "")
    except ValueError as error:
        raise StartError(f"super.users: {error}") from error
    rules = Rules(super_users, config.boolean("allow.everyone.if.no.acl.found"))
    return AclAuthorizer(acls, rules)


@lru_cache(maxsize=4096)
def host_of(address: str) -> str:
    """An IPv4 client of an IPv6 socket is known by its IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
