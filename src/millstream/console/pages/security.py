"""Users, permissions and quotas of the cluster."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.console.asking import AskFailed, ClusterClient, check
from millstream.console.console import Console
from millstream.console.page import Page, Values
from millstream.errors import KafkaCode
from millstream.security.acl import Operation, PatternType, Permission, ResourceType
from millstream.wire.apis.describe_acls import DescribeAclsRequest
from millstream.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from millstream.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

T = TypeVar("T")

_ANY: Final = 1
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(frozen=True, slots=True)
class UserRow:
    name: str
    mechanisms: list[str]


@dataclass(frozen=True, slots=True)
class AclRow:
    principal: str
    permission: str
    operation: str
    resource_type: str
    resource_name: str
    pattern: str
    host: str


@dataclass(frozen=True, slots=True)
class QuotaRow:
    entity: str
    limits: dict[str, float]


@dataclass(frozen=True, slots=True)
class Security:
    users: list[UserRow]
    acls: list[AclRow]
    quotas: list[QuotaRow]
    # What could not be read, and why.
    notes: list[str]


async def security(console: Console, values: Values) -> Security:
    notes: list[str] = []

    async def read(what: str, ask: Callable[[ClusterClient], Awaitable[list[T]]]) -> list[T]:
        try:
            return await ask(console.client)
        except AskFailed as failed:
            is_off = failed.code == KafkaCode.SECURITY_DISABLED
            why = (
                "no authorizer is configured, so everybody may do everything." if is_off else failed
            )
            notes.append(f"{what}: {why}")
            return []

    return Security(
        await read("Users", _users), await read("ACLs", _acls), await read("Quotas", _quotas), notes
    )


async def _users(client: ClusterClient) -> list[UserRow]:
    answer = await client.ask_any(DescribeUserScramCredentialsRequest(users=None))
    check(answer.error_code, "users", answer.error_message)
    return [
        UserRow(
            one.user,
            [
                f"{_MECHANISMS.get(each.mechanism, 'unknown')}, {each.iterations:,} iterations"
                for each in one.credential_infos
            ],
        )
        for one in sorted(answer.results, key=lambda each: each.user)
    ]


async def _acls(client: ClusterClient) -> list[AclRow]:
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await client.ask_any(request)
    check(answer.error_code, "ACLs", answer.error_message)
    rows = [
        AclRow(
            one.principal,
            Permission(one.permission_type).name.lower(),
            Operation(one.operation).name.lower(),
            ResourceType(resource.resource_type).name.lower(),
            resource.resource_name,
            PatternType(resource.pattern_type).name.lower(),
            one.host,
        )
        for resource in answer.resources
        for one in resource.acls
    ]
    return sorted(rows, key=lambda row: (row.principal, row.resource_type, row.resource_name))


async def _quotas(client: ClusterClient) -> list[QuotaRow]:
    answer = await client.ask_any(DescribeClientQuotasRequest(components=[], strict=False))
    check(answer.error_code, "quotas", answer.error_message)
    return [
        QuotaRow(
            ", ".join(
                f"{each.entity_type} {each.entity_name or '(default)'}" for each in entry.entity
            ),
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or []
    ]


PAGES = (Page("/security", "security.html", security, "Users, ACLs and quotas"),)
