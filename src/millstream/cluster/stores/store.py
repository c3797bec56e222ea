"""The coordination store: a small tree of versioned nodes, modelled on ZooKeeper.

Every write is a transaction of operations that all happen or none. A node's version
counts its changes since it was created; a write that names a version fails unless the
node still has it, which is how two writers detect each other. An ephemeral node
disappears when the session that created it ends. A node with children cannot be deleted,
and a node's parent must exist.

This module is the interface. `embedded`, `memory` and `zookeeper` implement it, and one
conformance suite tests all of them.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from millstream.lazy_dataclass import dataclass

ANY_VERSION: Final = -1
# What only nodes may read, with everything below: the nodes' secret, credentials, tokens.
SECRET_PATHS: Final = ("/cluster/secret", "/config/users", "/delegation_token")
# At the top of a cluster's tree. Not /consumers, where old tools write as well.
TOP_PATHS: Final = (
    "/brokers",
    "/config",
    "/controller",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/latest_producer_id_block",
    "/cluster",
)
# In the data directory of a node that is a member of a cluster.
SESSION_FILE: Final = "millstream-zookeeper-session"


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    is_ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing; fails the transaction unless the node exists in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Put | Delete | Check


class CoordinationFailed(Exception):
    """The store cannot be used: closed, its disk failed, no connection."""


class UnknownOutcome(CoordinationFailed):
    """A transaction was sent and not answered: it happened or it did not.

    Never send it again: `sync`, read, and compare.
    """


class SessionEnded(CoordinationFailed):
    """This session is over, and so are its ephemeral nodes. Open another."""


class NotApplied(Exception):
    """A transaction that did not happen, and the operation that stopped it."""

    def __init__(self, path: str, operation: Operation | None = None) -> None:
        super().__init__(path)
        self.path = path
        self.operation = operation


class NoNode(NotApplied):
    pass


class NodeExists(NotApplied):
    pass


class BadVersion(NotApplied):
    pass


class NotEmpty(NotApplied):
    pass


class NoParent(NoNode):
    """The node could not be created: its parent does not exist."""


# A hint, not a message: called once, on the loop, when what was read may have changed. Read
# again; several changes in between give one hint.
OnChange = Callable[[], None]


class CoordinationStore(Protocol):
    """One session. Every read may set one watch, on what it read."""

    async def get(self, path: str, on_change: OnChange | None = None) -> Node:
        """Raises NoNode, and then sets no watch. The watch is for the data, and for deletion."""
        ...

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        """The watch is for creation too."""
        ...

    async def children(self, path: str, on_change: OnChange | None = None) -> list[str]:
        """Names, sorted, without the path. Raises NoNode. The watch is for the set of them."""
        ...

    async def tree(self, path: str) -> dict[str, Node]:
        """Every node below `path`, by full path; empty if there is none."""
        ...

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All operations or none, durable on return. Returns each node's version afterwards.

        Raises a NotApplied for the first operation that is impossible. Later operations see
        what earlier ones did. A deleted node's version is -1, a checked one's is the one in
        the check.
        """
        ...

    async def sync(self) -> None:
        """Reads after this see everything that was committed anywhere before it."""
        ...

    def on_end(self, callback: OnChange) -> None:
        """Call once, on the loop, when the session has ended without being closed here;
        soon, if it has already ended."""
        ...

    async def close(self) -> None:
        """End the session and its ephemeral nodes."""
        ...


def parent_of(path: str) -> str:
    """The parent's path; that of a top-level node is "/"."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """An invalid path is a bug, never a client's mistake."""
    assert path.startswith("/"), path
    assert path == "/" or not path.endswith("/"), path
    assert "//" not in path, path
    assert "\0" not in path, path
