"""SaslHandshake (17), versions 0-1: a client chooses how to log in."""

from millstream.broker.requests.request import Request
from millstream.broker.security.authentication import Authentication
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    authentication: Authentication, request: Request, body: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    code = KafkaCode.NONE
    try:
        authentication.choose(request.connection, body.mechanism)
        if request.version == 0:
            authentication.expect_bare_messages(request.connection)
    except KafkaError as error:
        code = error.code
    return SaslHandshakeResponse(
        error_code=code, mechanisms=list(authentication.mechanisms(request.connection))
    )
