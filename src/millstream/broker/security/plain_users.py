"""The users of PLAIN on one listener: from its JAAS line, and from a file that may change."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError
from millstream.security.sasl.jaas import LoginModule
from millstream.security.sasl.plain import StoredPassword, decoy_of, read_users
from millstream.security.sasl.scram import SALT_BYTES

log = logging.getLogger(__name__)

_USER_OPTION: Final = "user_"


def users_of(module: LoginModule) -> dict[str, str]:
    """Kafka's `user_<name>="<password>"`."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in module.options.items()
        if name.startswith(_USER_OPTION)
    }


class PlainUsers:
    """A user of the JAAS line comes before one of the file."""

    def __init__(self, own: Mapping[str, str], file: Path | None) -> None:
        self._own = own
        self._file = file
        self._from_file: Mapping[str, StoredPassword] = {}
        self._read_version: tuple[int, int] | None = None
        self._decoy: StoredPassword = ""
        if file is None:
            self._choose_decoy()
        else:
            try:
                self._read(file)
            except (OSError, ValueError) as error:
                raise ConfigError(f"sasl.plain.users.file: {_problem(error)}") from None

    def find(self, user: str) -> StoredPassword | None:
        return self._own.get(user, self._from_file.get(user))

    @property
    def decoy(self) -> StoredPassword:
        """What to compare with if there is no such user: as much work as for most."""
        return self._decoy

    def reload(self) -> bool:
        """Read the file again if it has changed. Did it? A file that cannot be read changes
        nothing."""
        file = self._file
        try:
            if file is None or _version(file) == self._read_version:
                return False
            self._read(file)
        except (OSError, ValueError) as error:
            log.error("sasl.plain.users.file: keeping the users as they are: %s", _problem(error))
            return False
        log.info("sasl.plain.users.file: %d users", len(self._from_file))
        return True

    def _read(self, file: Path) -> None:
        self._read_version = _version(file)
        self._from_file = read_users(file.read_text())
        self._choose_decoy()

    def _choose_decoy(self) -> None:
        stored = [*self._own.values(), *self._from_file.values()]
        self._decoy = decoy_of(stored, os.urandom(SALT_BYTES))


def _version(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_ino


def _problem(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
