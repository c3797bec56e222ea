"""What the sender of a request may do: the table of operations, asked for one request.

Handlers name a resource; the API and version of the request say which operation it takes
(`security.operations`). Produce, fetch and commit ask through `admission`, which keeps the
answers until the generation changes.
"""

from collections.abc import Callable
from typing import Final

from millstream.broker.requests.request import Request
from millstream.broker.security.audit import AuditLog, Denial
from millstream.broker.security.authorizer import (
    Authorizer,
    ClientConnection,
    operations_of,
)
from millstream.errors import KafkaCode
from millstream.replication.admission import Generation, Refusal
from millstream.security.acl import CLUSTER_NAME, ResourceType
from millstream.security.authorization import all_operations
from millstream.security.operations import Denied, Rule, find_rule, request_rule

CLUSTER: Final = ResourceType.CLUSTER
_SHOWN: Final = (Denied.REQUEST, Denied.EACH, Denied.HIDDEN)


class Permissions:
    """Without an authorizer everything is allowed."""

    def __init__(self, generation: Generation, audit: AuditLog) -> None:
        self._generation = generation
        self.audit = audit
        self.authorizer: Authorizer | None = None
        # Grows whenever an answer may be another one than before.
        self.version = 0
        # Called when permissions have changed, after the generation is bumped.
        self.on_changed: Callable[[], None] = lambda: None

    def use(self, authorizer: Authorizer | None) -> None:
        self.authorizer = authorizer
        self.changed()

    def changed(self) -> None:
        """Make every decision again, also for requests in progress."""
        self.version += 1
        self._generation.bump()
        self.on_changed()

    # -- for one request --------------------------------------------------------------

    def denial(
        self, request: Request, resource_type: ResourceType, name: str, step: str = ""
    ) -> Refusal | None:
        """Why the request may not use this resource; None if it may."""
        if self.authorizer is None:
            return None
        rule = find_rule(request.header.api_key, request.header.version, resource_type, step)
        return self.denial_of(request.connection, rule, name)

    def allows(
        self, request: Request, resource_type: ResourceType, name: str, step: str = ""
    ) -> bool:
        return self.denial(request, resource_type, name, step) is None

    def require(
        self, request: Request, resource_type: ResourceType, name: str, step: str = ""
    ) -> None:
        """Raises KafkaError."""
        refusal = self.denial(request, resource_type, name, step)
        if refusal is not None:
            raise refusal.error()

    def allows_cluster(self, request: Request, step: str = "") -> bool:
        return self.denial(request, CLUSTER, CLUSTER_NAME, step) is None

    def allows_on_any(self, request: Request, resource_type: ResourceType, step: str = "") -> bool:
        if self.authorizer is None:
            return True
        rule = find_rule(request.header.api_key, request.header.version, resource_type, step)
        client = self.authorizer.client_of(request.connection)
        return self.authorizer.is_allowed_on_any(client, rule.operation, resource_type)

    def request_denial(self, request: Request) -> Refusal | None:
        """For rules about the whole request, before its handler runs."""
        if self.authorizer is None:
            return None
        rule = request_rule(request.header.api_key, request.header.version)
        return None if rule is None else self.denial_of(request.connection, rule, CLUSTER_NAME)

    def operations(self, request: Request, resource_type: ResourceType, name: str) -> int:
        """All operations on the resource that are allowed, as Kafka's bit field."""
        if self.authorizer is None:
            return all_operations(resource_type)
        client = self.authorizer.client_of(request.connection)
        return operations_of(self.authorizer, client, resource_type, name)

    def report_change(self, request: Request, what: str) -> None:
        """Write to the audit log what this request has changed."""
        connection = request.connection
        self.audit.changed(connection.principal, connection.address, what)

    # -- for connections --------------------------------------------------------------

    def denial_of(self, connection: ClientConnection, rule: Rule, name: str) -> Refusal | None:
        if self.authorizer is None:
            return None
        refusal = self.decide(connection, rule, name)
        if refusal is not None and rule.denied in _SHOWN:
            principal, host = connection.principal, connection.address
            self.audit.denied(Denial(principal, host, rule.operation, rule.resource_type, name))
        return refusal

    def decide(self, connection: ClientConnection, rule: Rule, name: str) -> Refusal | None:
        """As `denial_of`, for what may not be used: nothing is written to the audit log."""
        if self.authorizer is None:
            return None
        client = self.authorizer.client_of(connection)
        if self.authorizer.is_allowed(client, rule.operation, rule.resource_type, name):
            return None
        return _REFUSALS[rule.code]


_REFUSALS: Final = {
    code: Refusal(code)
    for code in (
        KafkaCode.TOPIC_AUTHORIZATION_FAILED,
        KafkaCode.GROUP_AUTHORIZATION_FAILED,
        KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
        KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    )
}
