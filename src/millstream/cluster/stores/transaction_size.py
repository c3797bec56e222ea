"""How large a transaction may be. Apart from `zookeeper`, so that callers can split what they write
without importing kazoo."""

from typing import Final

from millstream.cluster.stores.store import Create, Operation, Put

# ZooKeeper drops a connection that sends more than jute.maxbuffer, a megabyte by default.
TRANSACTION_BYTES_MAX: Final = 900_000
_OPERATION_OVERHEAD_BYTES: Final = 100


def size_bytes(operation: Operation) -> int:
    """About what it takes in a transaction."""
    data = operation.data if isinstance(operation, Create | Put) else b""
    return _OPERATION_OVERHEAD_BYTES + len(operation.path) + len(data)
