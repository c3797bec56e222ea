"""CreateDelegationToken (38), versions 1-3: only for the user who asks."""

from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.principals import principal_text, type_and_name
from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    tokens: Tokens,
    authentication: Authentication,
    permissions: Permissions,
    request: Request,
    body: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse:
    kind, name = type_and_name(request.principal)
    answer = CreateDelegationTokenResponse(
        error_code=KafkaCode.NONE,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
    )
    try:
        authentication.check_own_login(request.connection)
        if body.owner_principal_name and (
            body.owner_principal_type,
            body.owner_principal_name,
        ) != (kind, name):
            raise KafkaError(
                KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "a token is for its requester"
            )
        renewers = [principal_text(each) for each in body.renewers]
        token = await tokens.create(request.principal, renewers, body.max_lifetime_ms)
        permissions.report_change(request, f"delegation token {token.token_id}: created")
        answer.issue_timestamp_ms = token.issued_at_ms
        answer.expiry_timestamp_ms = token.expires_at_ms
        answer.max_timestamp_ms = token.max_at_ms
        answer.token_id, answer.hmac = token.token_id, tokens.hmac_of(token)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
