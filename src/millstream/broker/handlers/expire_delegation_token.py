"""ExpireDelegationToken (40), versions 1-2."""

from millstream.broker.requests.permissions import Permissions
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
    permissions: Permissions,
    request: Request,
    body: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse:
    try:
        authentication.check_own_login(request.connection)
        expiry = await tokens.expire(
            bytes(body.hmac), request.principal, body.expiry_time_period_ms
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code)
    permissions.report_change(request, f"delegation token {expiry.token_id}: expired")
    return ExpireDelegationTokenResponse(
        error_code=KafkaCode.NONE, expiry_timestamp_ms=expiry.at_ms
    )
