"""Basic authentication: who may use the REST API.

Users are in a file of the same form as those of SASL/PLAIN: lines `name=password`, where a password
may be hashed, in the form of a SCRAM-SHA-256 credential. A stranger cannot find out who is in it,
nor guess passwords fast. A client that repeats a wrong password is not guessing: only its first
try counts, or it would keep out everyone at its address.
"""

import asyncio
import base64
import binascii
import hashlib
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.clock import Clock, SystemClock
from millstream.errors import StartError
from millstream.security.login_attempts import LoginAttempts, network_of
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
# Of all users at an address: it may be that of a proxy, so of everyone.
_ADDRESS_SECONDS_MAX: Final = 10.0
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


class _Remembered:
    """Digests; the one that was asked for least lately goes first."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, digest: bytes) -> bool:
        if digest not in self._digests:
            return False
        self._digests.move_to_end(digest)
        return True

    def add(self, digest: bytes) -> None:
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > _REMEMBERED_MAX:
            self._digests.popitem(last=False)


class Users:
    def __init__(self, users: Mapping[str, StoredPassword], clock: Clock) -> None:
        self._users = users
        self._decoy = decoy_of(users.values(), os.urandom(SALT_BYTES))
        self._attempts = LoginAttempts(clock, address_seconds_max=_ADDRESS_SECONDS_MAX)
        self._tries = asyncio.Semaphore(_TRIES_AT_ONCE)
        # Headers that were compared, with the address: these are answered without a delay, so what
        # others have sent must not be among the guesses of a stranger. The users never change.
        self._right = _Remembered()
        self._wrong = _Remembered()
        # From any address.
        self._wrong_anywhere = _Remembered()

    async def has(self, authorization: str, address: str) -> bool:
        """Is this header of a request from `address` right? Raises LoginDelayed."""
        digest = _digest(network_of(address), authorization)
        known = self._known(digest)
        if known is not None:
            return known
        login = _read(authorization)
        if login is None:
            return False
        async with self._tries:
            # The same header may have been ahead of this one.
            known = self._known(digest)
            if known is not None:
                return known
            name = login.user[:_NAME_CHARACTERS_MAX]
            # Not before it is this login's turn: those ahead of it may have been wrong.
            wait_seconds = self._attempts.wait_seconds(name, address)
            if wait_seconds > 0:
                raise LoginDelayed(wait_seconds)
            if await self._is_right(login):
                self._right.add(digest)
                self._attempts.note_right(name, address)
                return True
            if digest not in self._wrong:
                self._wrong.add(digest)
                anywhere = _digest("", authorization)
                self._attempts.note_wrong(name, address, is_known=anywhere in self._wrong_anywhere)
                self._wrong_anywhere.add(anywhere)
            return False

    def _known(self, digest: bytes) -> bool | None:
        if digest in self._right:
            return True
        return False if digest in self._wrong else None

    async def _is_right(self, login: PlainLogin) -> bool:
        stored = self._users.get(login.user)
        wanted = self._decoy if stored is None else stored
        return await asyncio.to_thread(matches, login, wanted) and stored is not None


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


def _digest(network: str, authorization: str) -> bytes:
    return hashlib.sha256(f"{network}\0{authorization}".encode()).digest()


def _read(authorization: str) -> PlainLogin | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return PlainLogin(user, password) if colon else None
