"""The coordination store of a standalone node: SQLite in the data directory.

A commit is on the disk before it is answered: a leader epoch that was acknowledged and
then lost in a power cut would be used twice. All SQL runs on a separate thread, so a slow
disk never blocks the event loop, and transactions run one after the other.

After a disk error the store answers no request any more: a second fsync may succeed for
data that the first one lost. A full disk is no such error; space may become free.

The session is the open store. Ephemeral nodes that a crash left behind are removed when
the file is opened again; the data directory's lock ensures that no other process uses it.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from millstream.cluster.stores.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationFailed,
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
    check_path,
    parent_of,
)
from millstream.cluster.stores.watches import Watches

FILE_NAME: Final = "millstream-coordination.sqlite"

_SCHEMA: Final = """
create table if not exists node (
    path text primary key,
    parent text not null,
    data blob not null,
    version integer not null,
    is_ephemeral integer not null
) without rowid;
create index if not exists node_parent on node (parent);
create table if not exists counter (name text primary key, value integer not null) without rowid;
insert or ignore into counter values ('format', 1), ('zxid', 0);
insert or ignore into node values ('/', '', x'', 0, 0);
"""
_FORMAT: Final = 1
# Errors after which nothing in the file can be trusted.
_LASTING_ERRORS: Final = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
)
_PRIMARY_CODE_MASK: Final = 0xFF
# The size of SQLite's log before it is copied into the file; a few megabytes at most.
_CHECKPOINT_OPERATIONS: Final = 5_000

_Result = TypeVar("_Result")


class EmbeddedStore:
    """A CoordinationStore. Create it with `open_embedded_store`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watches = Watches()
        self._is_open = True
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coordination")
        self._database: sqlite3.Connection | None = None
        self._failure: str | None = None
        self._operations_in_log = 0

    async def open(self) -> None:
        """Raises CoordinationFailed if the file cannot be used."""
        try:
            await self._call(self._open)
        except CoordinationFailed:
            self._is_open = False
            if self._database is not None:
                self._thread.submit(self._database.close)
            self._thread.shutdown(wait=True)
            raise

    async def get(self, path: str, on_change: OnChange | None = None) -> Node:
        node = await self._call(lambda: self._get(path))
        self._watches.add(path, on_change)
        return node

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        found = await self._call(lambda: self._row(path) is not None)
        self._watches.add(path, on_change)
        return found

    async def children(self, path: str, on_change: OnChange | None = None) -> list[str]:
        names = await self._call(lambda: self._children(path))
        self._watches.add_for_children(path, on_change)
        return names

    async def tree(self, path: str) -> dict[str, Node]:
        return await self._call(lambda: self._tree(path))

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        # A cancelled caller must not leave watches unfired for a commit that happened.
        return await asyncio.shield(asyncio.ensure_future(self._commit_and_tell(operations)))

    async def sync(self) -> None:
        """No effect: there are no other writers."""

    def on_end(self, callback: OnChange) -> None:
        """The session is the open file, which ends only by `close`."""

    async def zxid(self) -> int:
        """Transactions since the file was created; never decreases."""
        return await self._call(lambda: self._counter("zxid"))

    async def close(self) -> None:
        if not self._is_open:
            return
        try:
            if self._failure is None:
                await self._call(self._end_session)
        finally:
            self._is_open = False
            self._thread.submit(self._sql().close)
            self._thread.shutdown(wait=True)

    async def _commit_and_tell(self, operations: Sequence[Operation]) -> list[int]:
        versions = await self._call(lambda: self._commit(operations))
        self._watches.fire(operations)
        return versions

    async def _call(self, work: Callable[[], _Result]) -> _Result:
        if not self._is_open:
            raise CoordinationFailed(f"{self._path} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self._guarded(work))

    # Everything below runs on the store's thread.

    def _guarded(self, work: Callable[[], _Result]) -> _Result:
        if self._failure is not None:
            raise CoordinationFailed(self._failure)
        try:
            return work()
        except (sqlite3.Error, OSError) as problem:
            message = f"{self._path}: {problem}"
            if _is_lasting(problem):
                self._failure = message
            raise CoordinationFailed(message) from problem

    def _open(self) -> None:
        is_new = not self._path.exists()
        # Created here first: SQLite would make it readable for everyone.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        # No waiting for a lock: no other process may use it.
        database = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        self._database = database
        database.execute("pragma journal_mode = wal")
        # In WAL mode NORMAL does not sync each commit; a power cut would lose some.
        database.execute("pragma synchronous = full")
        # SQLite's own checkpoints do not report their errors.
        database.execute("pragma wal_autocheckpoint = 0")
        database.execute("pragma locking_mode = exclusive")
        # Checked now, and not when some page of it is needed: the file is small.
        (damage,) = database.execute("pragma quick_check(1)").fetchone()
        if damage != "ok":
            raise CoordinationFailed(f"{self._path} is damaged: {' '.join(damage.split())}")
        database.executescript("begin;" + _SCHEMA + "commit;")
        if self._counter("format") != _FORMAT:
            raise CoordinationFailed(f"{self._path} was written by a newer release")
        if is_new:
            _sync_directory(self._path.parent)
        left_behind = database.execute(
            "select path from node where is_ephemeral order by path desc"
        ).fetchall()
        if left_behind:
            self._commit([Delete(path) for (path,) in left_behind])

    def _end_session(self) -> None:
        mine = self._sql().execute("select path from node where is_ephemeral").fetchall()
        if mine:
            self._commit([Delete(path) for (path,) in mine])
        self._checkpoint()

    def _get(self, path: str) -> Node:
        row = self._row(path)
        if row is None:
            raise NoNode(path)
        return row

    def _children(self, path: str) -> list[str]:
        self._get(path)
        rows = self._sql().execute("select path from node where parent = ? order by path", (path,))
        return [child.rpartition("/")[2] for (child,) in rows]

    def _tree(self, path: str) -> dict[str, Node]:
        # "0" is the character after "/", so this is the range of everything below.
        above = "" if path == "/" else path
        rows = self._sql().execute(
            "select path, data, version from node where path > ? and path < ? order by path",
            (above + "/", above + "0"),
        )
        return {at: Node(data, version) for at, data, version in rows}

    def _commit(self, operations: Sequence[Operation]) -> list[int]:
        database = self._sql()
        database.execute("begin immediate")
        try:
            versions = [self._apply(database, operation) for operation in operations]
            database.execute("update counter set value = value + 1 where name = 'zxid'")
            database.execute("commit")
        except BaseException:
            # A failed commit may have ended the transaction already.
            if database.in_transaction:
                database.execute("rollback")
            raise
        self._operations_in_log += len(operations)
        if self._operations_in_log >= _CHECKPOINT_OPERATIONS:
            self._checkpoint()
        return versions

    def _checkpoint(self) -> None:
        """Copy the log into the file, so that the log starts again from its beginning."""
        try:
            self._sql().execute("pragma wal_checkpoint(truncate)").fetchall()
            self._operations_in_log = 0
        except sqlite3.Error as problem:
            if _is_lasting(problem):
                raise
            # No room for it now. What was committed is in the log anyway.

    def _apply(self, database: sqlite3.Connection, operation: Operation) -> int:
        path = operation.path
        check_path(path)
        if isinstance(operation, Create):
            return self._create(database, operation)
        row = self._row(path)
        if row is None:
            raise NoNode(path, operation)
        if operation.version not in (ANY_VERSION, row.version):
            raise BadVersion(path, operation)
        match operation:
            case Check():
                return operation.version
            case Put():
                database.execute(
                    "update node set data = ?, version = ? where path = ?",
                    (operation.data, row.version + 1, path),
                )
                return row.version + 1
            case Delete():
                children = "select 1 from node where parent = ? limit 1"
                if database.execute(children, (path,)).fetchone():
                    raise NotEmpty(path, operation)
                database.execute("delete from node where path = ?", (path,))
                return -1

    def _create(self, database: sqlite3.Connection, operation: Create) -> int:
        path, parent = operation.path, parent_of(operation.path)
        if self._row(path) is not None:
            raise NodeExists(path, operation)
        holder = database.execute(
            "select is_ephemeral from node where path = ?", (parent,)
        ).fetchone()
        if holder is None or holder[0]:
            raise NoParent(path, operation)
        database.execute(
            "insert into node values (?, ?, ?, 0, ?)",
            (path, parent, operation.data, operation.is_ephemeral),
        )
        return 0

    def _row(self, path: str) -> Node | None:
        row = self._sql().execute("select data, version from node where path = ?", (path,))
        found = row.fetchone()
        return None if found is None else Node(found[0], found[1])

    def _counter(self, name: str) -> int:
        found = self._sql().execute("select value from counter where name = ?", (name,))
        (value,) = found.fetchone()
        assert isinstance(value, int)
        return value

    def _sql(self) -> sqlite3.Connection:
        assert self._database is not None, "the store was not opened"
        return self._database


def _is_lasting(problem: Exception) -> bool:
    if not isinstance(problem, sqlite3.Error):
        return True
    code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
    return code & _PRIMARY_CODE_MASK in _LASTING_ERRORS


async def open_embedded_store(directory: Path) -> EmbeddedStore:
    """The store in a data directory, created if necessary. Raises CoordinationFailed."""
    store = EmbeddedStore(directory / FILE_NAME)
    await store.open()
    return store


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
