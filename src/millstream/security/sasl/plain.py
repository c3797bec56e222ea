"""PLAIN (RFC 4616), the server's side: a name and a password in the clear.

Users come from Kafka's JAAS line or from a file. A password in the file is either written out
or hashed, in the form of a SCRAM-SHA-256 credential.
"""

import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.outcome import AuthenticationFailed, check_authorization_id
from millstream.security.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    decode_credential,
    is_password,
    no_credential,
)

HASHED_WITH: Final = "SCRAM-SHA-256"

# A password as it is stored: written out, or hashed.
StoredPassword = str | ScramCredential


@dataclass(frozen=True, slots=True)
class PlainLogin:
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin({self.user!r})"


def read_plain(message: bytes) -> PlainLogin:
    """Raises AuthenticationFailed."""
    try:
        authorization_id, user, password = message.decode().split("\0", 3)
    except ValueError:
        raise AuthenticationFailed("Authentication failed: not a message of PLAIN") from None
    if not user or not password:
        raise AuthenticationFailed("Authentication failed: no user name or no password")
    check_authorization_id(authorization_id, user)
    return PlainLogin(user, password)


def matches(login: PlainLogin, stored: StoredPassword) -> bool:
    """Slow if the password is hashed: then call it in a thread."""
    if isinstance(stored, ScramCredential):
        return is_password(HASHED_WITH, stored, login.password)
    # Hashes have one length, so the time says nothing about that of the password.
    return hmac.compare_digest(_digest(login.password), _digest(stored))


def decoy_of(stored: Collection[StoredPassword], secret: bytes) -> StoredPassword:
    """What to compare with if there is no such user: as much work as for most. `secret` is
    random."""
    hashed = [one for one in stored if isinstance(one, ScramCredential)]
    if 2 * len(hashed) <= len(stored):
        return secret.hex()
    iterations = max(ITERATIONS_MIN, *(one.iterations for one in hashed))
    return no_credential(HASHED_WITH, "", secret=secret, iterations=iterations)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def read_users(text: str) -> Mapping[str, StoredPassword]:
    """The users of a file: lines `name=password`. Raises ValueError, without a secret."""
    users: dict[str, StoredPassword] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, password = line.partition("=")
        name, password = name.strip(), password.strip()
        if not equals or not name or not password:
            raise ValueError(f"line {number} is not name=password")
        if name in users:
            raise ValueError(f"line {number}: {name} is there twice")
        users[name] = _stored(password)
    return users


def _stored(password: str) -> StoredPassword:
    try:
        return decode_credential(password)
    except ValueError:
        return password
