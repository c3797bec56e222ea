"""RenewDelegationToken (39), versions 1-2."""

from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    tokens: Tokens,
    authentication: Authentication,
    request: Request,
    body: RenewDelegationTokenRequest,
) -> RenewDelegationTokenResponse:
    try:
        authentication.check_own_login(request.connection)
        expires_at_ms = await tokens.renew(
            bytes(body.hmac), request.principal, body.renew_period_ms
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code)
    return RenewDelegationTokenResponse(
        error_code=KafkaCode.NONE, expiry_timestamp_ms=expires_at_ms
    )
