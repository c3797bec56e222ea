"""Basic authentication: who may use the REST API.

Users are in a file of the same form as those of SASL/PLAIN: lines `name=password`, where a password
may be hashed, in the form of a SCRAM-SHA-256 credential.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.errors import StartError
from millstream.security.sasl.plain import PlainLogin, StoredPassword, matches, read_users

# A client sends its password with every request, and hashing it is slow on purpose.
_REMEMBERED_MAX: Final = 1_000


class Users:
    def __init__(self, users: Mapping[str, StoredPassword]) -> None:
        self._users = users
        # Digests of headers that were right.
        self._remembered: set[bytes] = set()

    async def has(self, authorization: str) -> bool:
        """Is this header of a request right?"""
        digest = hashlib.sha256(authorization.encode()).digest()
        if digest in self._remembered:
            return True
        login = _read(authorization)
        if login is None:
            return False
        stored = self._users.get(login.user)
        if stored is None or not await asyncio.to_thread(matches, login, stored):
            return False
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered.add(digest)
        return True


def load_users(file: Path) -> Users:
    """Raises StartError."""
    try:
        users = read_users(file.read_text())
    except OSError as failed:
        raise StartError(f"{file}: {failed.strerror}") from None
    except ValueError as wrong:
        raise StartError(f"{file}: {wrong}") from None
    if not users:
        raise StartError(f"{file} has no users: lines are name=password")
    return Users(users)


def _read(authorization: str) -> PlainLogin | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return PlainLogin(user, password) if colon else None
