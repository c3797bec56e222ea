"""OAUTHBEARER (RFC 7628), the messages of the server's side; `jwt_check` checks the token.

A token that is not accepted is answered with a JSON text; the client acknowledges that with
one byte, and only then the authentication fails.
"""

import contextlib
import re
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.outcome import AuthenticationFailed, unescape_name

ACKNOWLEDGED: Final = b"\x01"
# All that a client learns about a token that is not accepted.
REFUSAL: Final = b'{"status":"invalid_token"}'
# A token is some kilobytes. Strangers send the message, and the event loop reads it.
MESSAGE_BYTES_MAX: Final = 64 << 10
PAIRS_MAX: Final = 100

_INITIAL: Final = re.compile(
    rf"n,(?:a=([^\0,]+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01){{1,{PAIRS_MAX}}})\x01"
)
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BearerLogin:
    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "BearerLogin()"


def read_initial(message: bytes) -> BearerLogin:
    """Raises AuthenticationFailed."""
    found = None
    if len(message) <= MESSAGE_BYTES_MAX:
        with contextlib.suppress(UnicodeDecodeError):
            found = _INITIAL.fullmatch(message.decode())
    if found is None:
        raise AuthenticationFailed("Authentication failed: not a message of OAUTHBEARER")
    pairs = [pair.split("=", 1) for pair in found[2].split("\x01") if pair]
    values = [value for key, value in pairs if key == "auth"]
    bearer = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
    if bearer is None:
        raise AuthenticationFailed("Authentication failed: auth= must have one bearer token")
    return BearerLogin(bearer[1], unescape_name(found[1] or ""))
