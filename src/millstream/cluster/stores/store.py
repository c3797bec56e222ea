"""The coordination store: a small tree of versioned nodes, in ZooKeeper's shape.

Every write is a transaction of operations that all happen or none. A node's version
counts its changes since it was created; a write that names a version fails unless the
node still has it, which is how two writers find out about each other. An ephemeral node
goes when the session that made it ends. A node with children cannot be deleted, and a
node's parent must exist.

This module is the seam: `embedded`, `memory` and ZooKeeper stand behind it, and one
conformance suite holds for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ANY_VERSION: Final = -1
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
    """Changes nothing; fails the transaction unless the node is there in this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Put | Delete | Check


class CoordinationFailed(Exception):
    """The store cannot be used: closed, its disk failed, no connection."""


class UnknownOutcome(CoordinationFailed):
    """A transaction was sent and nobody answered: it happened or it did not.

    Never send it again: `sync`, read, and compare.
    """


class SessionEnded(CoordinationFailed):
    """This session is over, and so are its ephemeral nodes. Another must be opened."""


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
    """The node could not be created: there is nothing above it to hold it."""


# A hint, not a message: called once, on the loop, when what was read may have changed. Read
# again; changes in between are not told apart.
OnChange = Callable[[], None]


class CoordinationStore(Protocol):
    """One session. Every read may leave one watch, where it read."""

    async def get(self, path: str, on_change: OnChange | None = None) -> Node:
        """Raises NoNode, and then leaves no watch. The watch is for the data, and for the end."""
        ...

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        """The watch is for creation too."""
        ...

    async def children(self, path: str, on_change: OnChange | None = None) -> list[str]:
        """Names, sorted, without the path. Raises NoNode. The watch is for the set of them."""
        ...

    async def tree(self, path: str) -> dict[str, Node]:
        """Every node below `path`, by full path; empty where there is none."""
        ...

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All of them or none, durable on return. The version of each node afterwards.

        Raises a NotApplied for the first operation that cannot be. Later operations see
        what earlier ones did. A deleted node's version is -1, a checked one's is what the
        check named.
        """
        ...

    async def sync(self) -> None:
        """Reads after this see everything that was committed anywhere before it."""
        ...

    def on_end(self, callback: OnChange) -> None:
        """Call once, on the loop, when the session has ended without being closed here;
        soon, where it has ended already."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go."""
        ...


def parent_of(path: str) -> str:
    """The path above; that of a top node is "/"."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """A path that is not one is a bug, never a client's mistake."""
    assert path.startswith("/"), path
    assert path == "/" or not path.endswith("/"), path
    assert "//" not in path, path
    assert "\0" not in path, path
