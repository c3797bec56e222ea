"""A client's login: PLAIN, SCRAM and OAUTHBEARER, from Kafka's options.

A login is a conversation without a socket: requests come out, answers go in.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from millstream.errors import KafkaCode
from millstream.security.sasl.jaas import parse_jaas
from millstream.security.sasl.scram import HASHES, ITERATIONS_MIN, salted_password
from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.wire.message import Message, Request

MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")
# A broker that is not what it seems could keep a client computing.
ITERATIONS_ACCEPTED_MAX: Final = 200_000

# Each request that comes out wants its answer sent in.
Login = Generator[Request[Message], Message, None]


class LoginRefused(Exception):
    """Trying again will not help. `option` is the one to look at."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of PLAIN and SCRAM a user name and a password, of OAUTHBEARER a file with a token."""

    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    # Is it a delegation token, with its id and its HMAC?
    is_token: bool = False
    token_file: str = ""


def read_credentials(options: Mapping[str, str]) -> Credentials:
    """From options by Kafka's names. Raises LoginRefused, without any secret."""
    mechanism = options.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise LoginRefused("sasl.mechanism", f"must be one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return Credentials(mechanism, token_file=_token_file(options))
    example = 'ScramLoginModule required username="..." password="...";'
    try:
        found = parse_jaas(options.get("sasl.jaas.config", "")).options
    except ValueError as error:
        raise LoginRefused("sasl.jaas.config", f"{error}. Example: {example}") from None
    if not found.get("username") or not found.get("password"):
        raise LoginRefused("sasl.jaas.config", f"must hold a user name and a password: {example}")
    is_token = found.get("tokenauth", "").lower() == "true"
    return Credentials(mechanism, found["username"], found["password"], is_token)


def _token_file(options: Mapping[str, str]) -> str:
    name = "sasl.oauthbearer.token.endpoint.url"
    url = urlsplit(options.get(name, ""))
    if url.scheme != "file":
        raise LoginRefused(name, "must be a file: URL; the file contains the token")
    return unquote(url.path)


def log_in(credentials: Credentials) -> Login:
    """SASL on a fresh connection. Raises LoginRefused if either side refuses."""
    answer = yield SaslHandshakeRequest(mechanism=credentials.mechanism)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code != KafkaCode.NONE:
        offered = f"; it offers {', '.join(answer.mechanisms)}" if answer.mechanisms else ""
        raise LoginRefused("sasl.mechanism", f"the broker refuses {credentials.mechanism}{offered}")
    if credentials.mechanism == "PLAIN":
        yield from _authenticate(f"\0{credentials.username}\0{credentials.password}".encode())
    elif credentials.mechanism == "OAUTHBEARER":
        yield from _log_in_bearer(credentials)
    else:
        yield from _log_in_scram(credentials)


def _authenticate(token: bytes) -> Generator[Request[Message], Message, bytes]:
    answer = yield SaslAuthenticateRequest(auth_bytes=token)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code != KafkaCode.NONE:
        text = answer.error_message or f"error {answer.error_code}"
        raise LoginRefused("sasl.jaas.config", text)
    return bytes(answer.auth_bytes)


def _log_in_bearer(credentials: Credentials) -> Login:
    option = "sasl.oauthbearer.token.endpoint.url"
    try:
        # Read for every connection: tokens are renewed.
        token = Path(credentials.token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginRefused(option, f"the token cannot be read: {error}") from None
    refusal = yield from _authenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    if refusal:
        # RFC 7628: what follows the broker's refusal is its error.
        yield from _authenticate(b"\x01")
        raise LoginRefused(option, "the broker refuses the token")


def _log_in_scram(credentials: Credentials) -> Login:
    """RFC 5802; the server's signature is checked too, so a false broker learns nothing."""
    name = HASHES[credentials.mechanism]
    username = credentials.username.replace("=", "=3D").replace(",", "=2C")
    nonce = base64.b64encode(os.urandom(18)).decode()
    first_bare = f"n={username},r={nonce}"
    if credentials.is_token:
        first_bare += ",tokenauth=true"
    server_first = yield from _authenticate(f"n,,{first_bare}".encode())
    both_nonces, salt, iterations = _read_server_first(server_first, nonce)
    salted = salted_password(credentials.mechanism, credentials.password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={both_nonces}".encode()
    signed = b",".join((first_bare.encode(), server_first, without_proof))
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    server_final = yield from _authenticate(without_proof + b",p=" + proof)
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(server_final.split(b",")[0], b"v=" + base64.b64encode(expected)):
        raise LoginRefused("sasl.jaas.config", "the broker does not know the password itself")


def _read_server_first(message: bytes, nonce: str) -> tuple[str, bytes, int]:
    """Both nonces, the salt and the iterations. Raises LoginRefused."""
    try:
        fields = dict(part.split("=", 1) for part in message.decode().split(","))
        both_nonces, iterations = fields["r"], int(fields["i"])
        salt = base64.b64decode(fields["s"], validate=True)
    except (ValueError, KeyError):
        raise LoginRefused("sasl.mechanism", "the broker's answer is not SCRAM's") from None
    if not both_nonces.startswith(nonce) or both_nonces == nonce:
        raise LoginRefused("sasl.jaas.config", "the broker answered with a foreign nonce")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_ACCEPTED_MAX:
        raise LoginRefused(
            "sasl.mechanism",
            f"the broker asks for {iterations} iterations; "
            f"{ITERATIONS_MIN} to {ITERATIONS_ACCEPTED_MAX} are accepted",
        )
    return both_nonces, salt, iterations
