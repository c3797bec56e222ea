"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side.

    client-first  n,,n=alice,r=<client nonce>
    server-first  r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final  c=biws,r=<both nonces>,p=<proof>
    server-final  v=<signature>

The server stores neither the password nor what a client needs to log in: only keys from which
it can check a proof. As in Kafka, names are not normalised by SASLprep, and there is no channel
binding.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.outcome import (
    INVALID_CREDENTIALS,
    AuthenticationFailed,
    check_authorization_id,
    unescape_name,
)

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 24
# A message has a name and two nonces. Strangers send it, and the event loop reads it.
MESSAGE_BYTES_MAX: Final = 8 << 10

# A name, in which "," and "=" are escaped (`unescape_name`).
_NAME: Final = r"[^\0,]+"
_EXTENSIONS: Final = r"((?:,[A-Za-z]+=[^\0,]+)*)"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE}){_EXTENSIONS})", re.DOTALL
)
_CLIENT_FINAL: Final = re.compile(
    rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})", re.DOTALL
)
_STORED: Final = re.compile(
    rf"salt=({_BASE64}),stored_key=({_BASE64}),server_key=({_BASE64}),iterations=(\d{{1,9}})"
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Nothing that could reach a log."""
        return f"ScramCredential(iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """`bare` is the message without its header `gs2`."""

    gs2: str
    bare: str
    user: str
    nonce: str
    extensions: dict[str, str]


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow on purpose: call it in a thread."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: str, salted: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """What the server stores for a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", name),
        iterations=iterations,
    )


def new_credential(
    mechanism: str, password: str, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Slow on purpose: call it in a thread."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def is_password(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Slow on purpose: call it in a thread."""
    found = new_credential(
        mechanism, password, salt=credential.salt, iterations=credential.iterations
    )
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def no_credential(mechanism: str, user: str, *, secret: bytes, iterations: int) -> ScramCredential:
    """For a user who does not exist: no proof fits, and the salt is always the same, so that a
    stranger cannot find out who exists."""
    size = hashlib.new(HASHES[mechanism]).digest_size
    text = f"{mechanism}\0{user}".encode()
    return ScramCredential(
        salt=hmac.digest(secret, b"salt\0" + text, "sha256")[:SALT_BYTES],
        # No client key has this hash, as far as anybody knows.
        stored_key=hmac.digest(secret, b"stored\0" + text, "sha512")[:size],
        server_key=hmac.digest(secret, b"server\0" + text, "sha512")[:size],
        iterations=iterations,
    )


def encode_credential(credential: ScramCredential) -> str:
    """Kafka's form in the coordination store."""
    return (
        f"salt={_text(credential.salt)},stored_key={_text(credential.stored_key)},"
        f"server_key={_text(credential.server_key)},iterations={credential.iterations}"
    )


def decode_credential(text: str) -> ScramCredential:
    """Raises ValueError, whose text does not repeat the credential."""
    found = _STORED.fullmatch(text)
    if found is None:
        raise ValueError("not salt=...,stored_key=...,server_key=...,iterations=...")
    salt, stored_key, server_key = (_decode(found[number]) for number in (1, 2, 3))
    return ScramCredential(salt, stored_key, server_key, int(found[4]))


def read_client_first(message: bytes) -> ClientFirst:
    """Raises AuthenticationFailed."""
    found = _match(_CLIENT_FIRST, message)
    if found is None:
        raise AuthenticationFailed("Authentication failed: not the first message of SCRAM")
    gs2, authorization_id, bare, name, nonce, extensions = found.groups()
    user = unescape_name(name)
    check_authorization_id(unescape_name(authorization_id or ""), user)
    pairs = (pair.split("=", 1) for pair in extensions.split(",")[1:])
    return ClientFirst(gs2, bare, user, nonce, dict(pairs))


class ScramExchange:
    """The rest of a conversation whose first message has been read. Used once."""

    def __init__(
        self,
        mechanism: str,
        first: ClientFirst,
        credential: ScramCredential,
        *,
        server_nonce: str,
    ) -> None:
        self._hash = HASHES[mechanism]
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + server_nonce

    def server_first(self) -> bytes:
        credential = self._credential
        return f"r={self._nonce},s={_text(credential.salt)},i={credential.iterations}".encode()

    def server_final(self, client_final: bytes) -> bytes:
        """Checks the client's proof. Raises AuthenticationFailed."""
        found = _match(_CLIENT_FINAL, client_final)
        if found is None:
            raise AuthenticationFailed("Authentication failed: not the last message of SCRAM")
        without_proof, binding, nonce, _, proof = found.groups()
        if _decode_or_fail(binding) != self._first.gs2.encode():
            raise AuthenticationFailed("Authentication failed: wrong channel binding")
        # librdkafka before 2.6.1 puts its own nonce in front a second time.
        if nonce not in (self._nonce, self._first.nonce + self._nonce):
            raise AuthenticationFailed("Authentication failed: wrong nonce")
        signed = b",".join((self._first.bare.encode(), self.server_first(), without_proof.encode()))
        self._check_proof(_decode_or_fail(proof), signed)
        return b"v=" + _text(hmac.digest(self._credential.server_key, signed, self._hash)).encode()

    def _check_proof(self, proof: bytes, signed: bytes) -> None:
        stored_key = self._credential.stored_key
        signature = hmac.digest(stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationFailed(INVALID_CREDENTIALS)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored_key):
            raise AuthenticationFailed(INVALID_CREDENTIALS)


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str] | None:
    return pattern.fullmatch(_utf8(message)) if len(message) <= MESSAGE_BYTES_MAX else None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decode_or_fail(text: str) -> bytes:
    try:
        return _decode(text)
    except binascii.Error:
        raise AuthenticationFailed("Authentication failed: not base64") from None


def _utf8(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("Authentication failed: not UTF-8") from None
