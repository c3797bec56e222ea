"""Idle connections, kept for the next task.

Spark's Python workers are reused from task to task, so a pool at module level saves a
connection and a version exchange per task. A connection that failed is closed, never put back.
"""

import atexit
import os
import time
from dataclasses import field
from typing import Final

from millstream.client.blocking import Address, Connection
from millstream.client.security import Security, SecurityError
from millstream.lazy_dataclass import dataclass
from millstream.spark.failure import SourceError

CLIENT_ID: Final = "millstream-spark"
# Kept per broker and process; a task holds one connection to a broker at a time.
IDLE_MAX: Final = 4
# A broker closes connections after ten quiet minutes; ours are closed earlier.
IDLE_SECONDS_MAX: Final = 240.0


@dataclass(slots=True)
class _Idle:
    process_id: int = 0
    # Each with the time at which it was returned.
    connections: dict[tuple[Address, Security], list[tuple[Connection, float]]] = field(
        default_factory=dict
    )


_idle = _Idle()


@atexit.register
def close_idle() -> None:
    """Close them; a process that ends may have some left."""
    if _idle.process_id == os.getpid():
        for waiting in _idle.connections.values():
            for connection, _ in waiting:
                connection.close()
        _idle.connections = {}


def connect(address: Address, security: Security) -> Connection:
    """An idle connection, or a new one. Return it with `release`, or close it."""
    if _idle.process_id != os.getpid():
        # The sockets of the parent process must not be used after a fork.
        _idle.process_id = os.getpid()
        _idle.connections = {}
    waiting = _idle.connections.get((address, security), [])
    while waiting:
        connection, idle_since = waiting.pop()
        if time.monotonic() - idle_since < IDLE_SECONDS_MAX:
            return connection
        connection.close()
    return _open(address, security)


def _open(address: Address, security: Security) -> Connection:
    try:
        connection = Connection(address, client_id=CLIENT_ID, security=security)
        try:
            # Requested now, so that a broker that requires more security reports it here.
            _ = connection.versions
        except BaseException:
            connection.close()
            raise
    except SecurityError as refused:
        raise SourceError(refused.error_class, str(refused)) from refused
    return connection


def release(connection: Connection) -> None:
    """Keep a connection that has no outstanding response."""
    waiting = _idle.connections.setdefault((connection.address, connection.security), [])
    if len(waiting) >= IDLE_MAX:
        connection.close()
    else:
        waiting.append((connection, time.monotonic()))
