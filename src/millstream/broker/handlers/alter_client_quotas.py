"""AlterClientQuotas (49), versions 0-1: each entity gets its own error code."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.cluster.client_entities import DEFAULT_NAME, ClientEntity
from millstream.errors import KafkaCode, KafkaError
from millstream.security.quotas import check_address, checked_quotas
from millstream.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    AlteredQuotas,
    AlteredQuotasResult,
)
from millstream.wire.apis.describe_client_quotas import QuotaComponent
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_KINDS: Final = (USER, CLIENT_ID, IP)


async def handle(
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse:
    results = []
    async for wanted in turns.each(request, body.entries):
        result = AlteredQuotasResult(
            error_code=KafkaCode.NONE, error_message=None, entity=wanted.entity
        )
        try:
            entity = _entity(wanted)
            changes = checked_quotas(
                {one.key: None if one.remove else one.value for one in wanted.ops},
                is_ip=entity.ip is not None,
            )
            if not body.validate_only:
                await node.metadata.alter_client_entity(entity, changes)
                text = ", ".join(f"{name}={value}" for name, value in changes.items())
                permissions.report_change(request, f"quotas of {entity}: {text}")
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterClientQuotasResponse(entries=results)


def refuse(request: Request, body: AlterClientQuotasRequest, code: KafkaCode) -> Message:
    return AlterClientQuotasResponse(
        entries=[
            AlteredQuotasResult(error_code=code, error_message=None, entity=wanted.entity)
            for wanted in body.entries
        ]
    )


def check_types(entity: Iterable[AlteredQuotaEntity | QuotaComponent]) -> None:
    """Raises KafkaError."""
    # The fourth repeats one, or is unknown: more need not be looked at.
    kinds = [one.entity_type for one in islice(entity, len(_KINDS) + 1)]
    for kind in kinds:
        if kind not in _KINDS:
            raise KafkaError(
                KafkaCode.UNSUPPORTED_VERSION,
                f"unknown entity type {kind!r}; use {USER}, {CLIENT_ID} or {IP}",
            )
    if len(set(kinds)) < len(kinds):
        raise KafkaError(KafkaCode.INVALID_REQUEST, "an entity type is named twice")
    if IP in kinds and len(kinds) > 1:
        raise KafkaError(KafkaCode.INVALID_REQUEST, f"{IP} cannot be combined with another type")


def _entity(wanted: AlteredQuotas) -> ClientEntity:
    check_types(wanted.entity)
    names = {one.entity_type: one.entity_name for one in wanted.entity}
    if not names:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "no user, client-id or ip is named")
    if "" in names.values():
        raise KafkaError(KafkaCode.INVALID_REQUEST, "a name is empty; the default has none at all")
    named = {kind: DEFAULT_NAME if name is None else name for kind, name in names.items()}
    if named.get(IP):
        check_address(named[IP])
    return ClientEntity(user=named.get(USER), client_id=named.get(CLIENT_ID), ip=named.get(IP))
