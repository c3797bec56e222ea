"""ExpireDelegationToken (40), versions 1-2."""

from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    tokens: Tokens,
    authentication: Authentication,
    request: Request,
    body: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse:
    try:
        authentication.check_own_login(request.connection)
        expires_at_ms = await tokens.expire(
            bytes(body.hmac), request.principal, body.expiry_time_period_ms
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code)
    return ExpireDelegationTokenResponse(
        error_code=KafkaCode.NONE, expiry_timestamp_ms=expires_at_ms
    )
