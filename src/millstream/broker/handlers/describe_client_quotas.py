"""DescribeClientQuotas (48), versions 0-1."""

from collections.abc import Mapping
from typing import Final

from millstream.broker.handlers.alter_client_quotas import CLIENT_ID, IP, USER, check_types
from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.cluster.client_entities import ClientEntity
from millstream.errors import KafkaCode, KafkaError
from millstream.security.quotas import CLIENT_QUOTAS, IP_QUOTAS
from millstream.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaComponent,
    QuotaEntity,
    QuotaValue,
)
from millstream.wire.message import Message

NAMES_FEW = True
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


def handle(
    node: NodeState, request: Request, body: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        check_types(body.components)
        for component in body.components:
            _check_match(component)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        entries=[
            _shown(entity, quotas)
            for entity, options in node.image.client_entities.options.items()
            if (quotas := _quotas(options)) and _is_match(body, _names(entity))
        ],
    )


def refuse(request: Request, body: DescribeClientQuotasRequest, code: KafkaCode) -> Message:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


def _check_match(component: QuotaComponent) -> None:
    if component.match_type not in (_EXACT, _DEFAULT, _ANY):
        problem = f"unknown match type {component.match_type}"
    elif component.match_type == _EXACT and component.match is None:
        problem = "an exact match needs a name"
    elif component.match_type != _EXACT and component.match is not None:
        problem = "only an exact match has a name"
    else:
        return
    raise KafkaError(KafkaCode.INVALID_REQUEST, f"{component.entity_type}: {problem}")


def _quotas(options: Mapping[str, str]) -> dict[str, float]:
    """Without credentials, which are in the same place."""
    known = (*CLIENT_QUOTAS, *IP_QUOTAS)
    return {name: float(options[name]) for name in known if name in options}


def _names(entity: ClientEntity) -> dict[str, str]:
    parts = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name for kind, name in parts.items() if name is not None}


def _is_match(body: DescribeClientQuotasRequest, names: Mapping[str, str]) -> bool:
    for component in body.components:
        name = names.get(component.entity_type)
        if name is None:
            return False
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name:
            return False
    return not body.strict or len(names) == len(body.components)


def _shown(entity: ClientEntity, quotas: Mapping[str, float]) -> DescribedQuotas:
    return DescribedQuotas(
        entity=[
            QuotaEntity(entity_type=kind, entity_name=name or None)
            for kind, name in _names(entity).items()
        ],
        values=[QuotaValue(key=name, value=value) for name, value in quotas.items()],
    )
