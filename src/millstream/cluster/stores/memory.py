"""The coordination store in memory: for tests and the simulator.

Several sessions share one `MemoryTree`, so that tests can simulate expiry and races between
nodes. Nothing here waits, so it is as deterministic as its caller.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.cluster.stores.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NoParent,
    NotEmpty,
    OnChange,
    Operation,
    Put,
    SessionEnded,
    check_path,
    parent_of,
)
from millstream.cluster.stores.watches import Watches


@dataclass(slots=True)
class _Entry:
    data: bytes
    version: int
    session: int | None


class MemoryTree:
    """The shared nodes. `zxid` counts transactions."""

    def __init__(self) -> None:
        self.zxid = 0
        self.watches = Watches()
        self._entries: dict[str, _Entry] = {"/": _Entry(b"", 0, None)}
        self._children: dict[str, set[str]] = {"/": set()}
        self._sessions = 0

    def open_session(self) -> "MemoryStore":
        self._sessions += 1
        return MemoryStore(self, self._sessions)

    def entry(self, path: str) -> _Entry:
        if path not in self._entries:
            raise NoNode(path)
        return self._entries[path]

    def child_names(self, path: str) -> list[str]:
        self.entry(path)
        return sorted(child.rpartition("/")[2] for child in self._children[path])

    def below(self, path: str) -> dict[str, Node]:
        prefix = "/" if path == "/" else path + "/"
        return {
            at: Node(entry.data, entry.version)
            for at, entry in sorted(self._entries.items())
            if at.startswith(prefix) and at != "/"
        }

    def apply(self, operations: Sequence[Operation], session: int) -> list[int]:
        undo: list[tuple[str, _Entry | None]] = []
        versions = []
        try:
            for operation in operations:
                entry = self._entries.get(operation.path)
                undo.append((operation.path, None if entry is None else _copied(entry)))
                versions.append(self._apply_one(operation, session))
        except Exception:
            for path, before in reversed(undo):
                if before is None:
                    self._remove(path)
                else:
                    self._place(path, before)
            raise
        self.zxid += 1
        self.watches.fire(operations)
        return versions

    def end_session(self, session: int) -> None:
        owned = [path for path, entry in self._entries.items() if entry.session == session]
        if owned:
            self.apply([Delete(path) for path in owned], session)

    def _apply_one(self, operation: Operation, session: int) -> int:
        path = operation.path
        check_path(path)
        if isinstance(operation, Create):
            return self._create(operation, session)
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path, operation)
        if operation.version not in (ANY_VERSION, entry.version):
            raise BadVersion(path, operation)
        match operation:
            case Check():
                return operation.version
            case Put():
                entry.data = operation.data
                entry.version += 1
                return entry.version
            case Delete():
                if self._children[path]:
                    raise NotEmpty(path, operation)
                self._remove(path)
                return -1

    def _create(self, operation: Create, session: int) -> int:
        path = operation.path
        if path in self._entries:
            raise NodeExists(path, operation)
        parent = self._entries.get(parent_of(path))
        if parent is None or parent.session is not None:
            raise NoParent(path, operation)
        owner = session if operation.is_ephemeral else None
        self._place(path, _Entry(operation.data, 0, owner))
        return 0

    def _place(self, path: str, entry: _Entry) -> None:
        self._entries[path] = entry
        self._children.setdefault(path, set())
        if path != "/":
            self._children[parent_of(path)].add(path)

    def _remove(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            del self._children[path]
            self._children[parent_of(path)].discard(path)


class MemoryStore:
    """One session on a `MemoryTree`: a CoordinationStore."""

    def __init__(self, tree: MemoryTree, session: int) -> None:
        self._tree = tree
        self.session_timeout_ms = 6_000
        self._session = session
        self._is_open = True
        self._has_expired = False
        self._on_end: list[OnChange] = []

    async def get(self, path: str, on_change: OnChange | None = None) -> Node:
        entry = self._open_tree().entry(path)
        self._tree.watches.add(path, on_change)
        return Node(entry.data, entry.version)

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        try:
            self._open_tree().entry(path)
        except NoNode:
            return False
        finally:
            self._tree.watches.add(path, on_change)
        return True

    async def children(self, path: str, on_change: OnChange | None = None) -> list[str]:
        names = self._open_tree().child_names(path)
        self._tree.watches.add_for_children(path, on_change)
        return names

    async def tree(self, path: str) -> dict[str, Node]:
        return self._open_tree().below(path)

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        return self._open_tree().apply(operations, self._session)

    async def sync(self) -> None:
        self._open_tree()

    def on_end(self, callback: OnChange) -> None:
        if self._has_expired:
            asyncio.get_running_loop().call_soon(callback)
        self._on_end.append(callback)

    async def close(self) -> None:
        self._on_end.clear()
        if self._is_open:
            self._is_open = False
            self._tree.end_session(self._session)

    def expire(self) -> None:
        """End the session as ZooKeeper does for a silent node."""
        if self._is_open:
            self._is_open = False
            self._has_expired = True
            self._tree.end_session(self._session)
            for callback in self._on_end:
                callback()

    def _open_tree(self) -> MemoryTree:
        if not self._is_open:
            raise SessionEnded("the session has ended")
        return self._tree


def _copied(entry: _Entry) -> _Entry:
    return _Entry(entry.data, entry.version, entry.session)
