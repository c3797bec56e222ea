"""CreateDelegationToken (38), versions 1-3: for the user who asks, or another (KIP-373)."""

from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.principals import principal_text, type_and_name
from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.security.operations import FOR_ANOTHER
from millstream.wire.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

HOLDS_NEXT_REQUEST = True
NAMES_FEW = True


async def handle(
    tokens: Tokens,
    authentication: Authentication,
    permissions: Permissions,
    request: Request,
    body: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse:
    requester_type, requester_name = type_and_name(request.principal)
    owner: str = request.principal
    if body.owner_principal_name:
        owner = f"{body.owner_principal_type}:{body.owner_principal_name}"
    owner_type, owner_name = type_and_name(owner)
    answer = CreateDelegationTokenResponse(
        error_code=KafkaCode.NONE,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )
    try:
        authentication.check_own_login(request.connection)
        if owner != request.principal:
            _check_for_another(permissions, request, owner)
        renewers = [principal_text(each) for each in body.renewers]
        token = await tokens.create(owner, request.principal, renewers, body.max_lifetime_ms)
        permissions.report_change(request, f"delegation token {token.token_id}: created")
        answer.issue_timestamp_ms = token.issued_at_ms
        answer.expiry_timestamp_ms = token.expires_at_ms
        answer.max_timestamp_ms = token.max_at_ms
        answer.token_id, answer.hmac = token.token_id, tokens.hmac_of(token)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _check_for_another(permissions: Permissions, request: Request, owner: str) -> None:
    """Raises KafkaError. Without an authorizer, a user could log in as any other."""
    if not owner.startswith("User:"):
        raise KafkaError(KafkaCode.INVALID_PRINCIPAL_TYPE, f"{owner} is not a user")
    if permissions.authorizer is None:
        raise KafkaError(
            KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            "without an authorizer, a token is for its requester",
        )
    permissions.require(request, ResourceType.USER, owner, FOR_ANOTHER)
