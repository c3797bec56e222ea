"""The ZooKeeper session of a data directory's last run.

A node that was killed leaves a session that lasts until its timeout. The next start of the same
directory ends it, and so does not wait.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from millstream.cluster.stores.store import SESSION_FILE


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What is needed to resume a session, or to end it for its dead owner."""

    id: int
    password: bytes = field(repr=False)


def read_session(directory: Path) -> SessionKey | None:
    """The session of the directory's last run. None if there was none, or it is unreadable:
    it only saves time."""
    try:
        content = json.loads((directory / SESSION_FILE).read_bytes())
        return SessionKey(int(content["id"]), bytes.fromhex(content["password"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_session(directory: Path, key: SessionKey) -> None:
    """Readable by the owner only: anyone who has it can act as this node."""
    path = directory / SESSION_FILE
    content = json.dumps({"id": key.id, "password": key.password.hex()})
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        # After a power cut the next start would wait for the session to time out.
        file.flush()
        os.fsync(descriptor)
