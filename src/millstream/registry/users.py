"""Basic authentication: who may use the REST API.

Users are in a file of the same form as those of SASL/PLAIN: lines `name=password`, where a password
may be hashed, in the form of a SCRAM-SHA-256 credential. A stranger cannot find out who is in it,
nor guess passwords fast.
"""

import asyncio
import base64
import binascii
import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.clock import Clock, SystemClock
from millstream.errors import StartError
from millstream.security.login_attempts import LoginAttempts
from millstream.security.sasl.plain import (
    PlainLogin,
    StoredPassword,
    decoy_of,
    matches,
    read_users,
)
from millstream.security.sasl.scram import SALT_BYTES

# A client sends its password with every request, and hashing it is slow on purpose.
_REMEMBERED_MAX: Final = 1_000
# Of names and passwords that are being compared; others wait.
_TRIES_AT_ONCE: Final = 4
# Of a name that is invented, to count wrong passwords.
_NAME_CHARACTERS_MAX: Final = 200


class LoginDelayed(Exception):
    """Too many wrong passwords: this one was not compared."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = math.ceil(wait_seconds)
        super().__init__(
            f"Too many wrong passwords: wait {self.wait_seconds} s before you try again"
        )


class Users:
    def __init__(self, users: Mapping[str, StoredPassword], clock: Clock) -> None:
        self._users = users
        self._decoy = decoy_of(users.values(), os.urandom(SALT_BYTES))
        self._attempts = LoginAttempts(clock)
        self._tries = asyncio.Semaphore(_TRIES_AT_ONCE)
        # Digests of headers that were right.
        self._remembered: set[bytes] = set()

    async def has(self, authorization: str, address: str) -> bool:
        """Is this header of a request from `address` right? Raises LoginDelayed."""
        digest = hashlib.sha256(authorization.encode()).digest()
        if digest in self._remembered:
            return True
        login = _read(authorization)
        if login is None:
            return False
        async with self._tries:
            is_right = await self._try(login, address)
        if is_right:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered.add(digest)
        return is_right

    async def _try(self, login: PlainLogin, address: str) -> bool:
        name = login.user[:_NAME_CHARACTERS_MAX]
        # Not before it is this login's turn: those ahead of it may have been wrong.
        wait_seconds = self._attempts.wait_seconds(name, address)
        if wait_seconds > 0:
            raise LoginDelayed(wait_seconds)
        stored = self._users.get(login.user)
        wanted = self._decoy if stored is None else stored
        is_right = await asyncio.to_thread(matches, login, wanted) and stored is not None
        if is_right:
            self._attempts.note_right(name, address)
        else:
            self._attempts.note_wrong(name, address)
        return is_right


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
    return Users(users, SystemClock())


def _read(authorization: str) -> PlainLogin | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return PlainLogin(user, password) if colon else None
