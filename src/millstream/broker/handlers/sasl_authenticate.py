"""SaslAuthenticate (36), versions 0-2: one step of a login. The next request waits for it."""

from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

HOLDS_NEXT_REQUEST = True


async def handle(
    authentication: Authentication, request: Request, body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    try:
        done = await authentication.authenticate(request.connection, bytes(body.auth_bytes))
    except KafkaError as error:
        return SaslAuthenticateResponse(
            error_code=error.code, error_message=error.message, auth_bytes=b""
        )
    return SaslAuthenticateResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        auth_bytes=done.reply,
        session_lifetime_ms=done.session_lifetime_ms,
    )
