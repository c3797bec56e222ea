"""The coordination store on ZooKeeper, through kazoo; only `kazoo_client` imports it, too.

A store is one ZooKeeper session. When one expires, kazoo would open another on its own;
here that is the end of the store, because everything that was checked under the old session
has to be checked again under a new one.

kazoo works on its own thread. Its results cross to the event loop only in `_cross`, in order, and
no call here blocks the loop.

A request fails at once while there is no connection: kazoo would keep it and send it when
the connection is back, long after its caller has given up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, Permissions

from millstream.cluster.stores.ensemble import Ensemble
from millstream.cluster.stores.kazoo_client import WatchingClient
from millstream.cluster.stores.last_session import SessionKey, read_session, write_session
from millstream.cluster.stores.store import (
    SECRET_PATHS,
    TOP_PATHS,
    BadVersion,
    Check,
    CoordinationFailed,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NoParent,
    NotApplied,
    NotEmpty,
    OnChange,
    Operation,
    Put,
    SessionEnded,
    UnknownOutcome,
    check_path,
)
from millstream.cluster.stores.transaction_size import TRANSACTION_BYTES_MAX, size_bytes
from millstream.cluster.stores.watchdog import Watchdog

log = logging.getLogger(__name__)

# The last of a cluster to be protected, so that it says whether all of it is.
_PROTECTED_LAST: Final = TOP_PATHS[-1]
# Reads of `tree` in flight at once; more only wait in kazoo's queue.
_READS_AT_ONCE: Final = 500
_TELL_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0
_NO_AUTH: Final = (
    "this node has no credential for it, or another one than the nodes that created the cluster."
    " Set millstream.zookeeper.digest, or millstream.zookeeper.sasl.jaas.config, as they have it"
)


async def open_zookeeper(ensemble: Ensemble, *, resume: SessionKey | None = None) -> "ZooKeeper":
    """A connected session, with the root created. Raises CoordinationFailed."""
    store = ZooKeeper(ensemble, resume)
    await store.open()
    return store


async def end_session(ensemble: Ensemble, key: SessionKey) -> None:
    """Close a dead process's session, so that nothing waits for it to expire."""
    try:
        store = await open_zookeeper(ensemble, resume=key)
    except SessionEnded:
        return
    await store.close()


async def open_for_directory(ensemble: Ensemble, directory: Path) -> "ZooKeeper":
    """A session for the node of a data directory, which holds its lock.

    Ends the previous session, of this process or of a dead one, so that nothing has to wait
    until it times out.
    """
    former = read_session(directory)
    if former is not None:
        await end_session(ensemble, former)
    store = await open_zookeeper(ensemble)
    try:
        write_session(directory, store.key)
    except OSError as error:
        # It only saves time at the next start. A member whose disk is full must come back.
        log.warning("cannot keep the ZooKeeper session for the next start: %s", error)
    try:
        await store.protect_older()
    except BaseException:
        await store.close()
        raise
    return store


class ZooKeeper:
    """A CoordinationStore. Create it with `open_zookeeper`."""

    def __init__(self, ensemble: Ensemble, resume: SessionKey | None) -> None:
        self._ensemble = ensemble
        self._root = ensemble.root
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._was_connected = False
        # Whether a request has been answered: kazoo is connected before it has logged in.
        self._was_answered = False
        self._end: CoordinationFailed | None = None
        self._has_expired = False
        self._waiting: set[asyncio.Future[Any]] = set()
        # Calls on their way from kazoo's thread, and whether the loop is about to make them.
        self._crossing: deque[Callable[[], None]] = deque()
        self._is_waking = False
        self._on_end: list[OnChange] = []
        self._stopping: asyncio.Future[None] | None = None
        self.session_timeout_ms = ensemble.session_timeout_ms
        self.key: SessionKey
        # kazoo logs every attempt to reconnect; `_state_changed` logs what matters.
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._client = _client(ensemble, resume, self._granted)
        self._watchdog = Watchdog(self._loop, self._give_up)
        self._is_watched = False
        self._was_given_up = False
        self._client.add_listener(
            lambda state: self._cross(self._state_changed, state, self._client.client_state)
        )

    async def open(self) -> None:
        self._client.start_async()
        seconds = self._ensemble.connect_timeout_ms / 1000
        # Otherwise the person who started the node would see nothing in the meantime.
        telling = self._loop.call_later(
            min(_TELL_SECONDS, seconds / 2),
            lambda: log.warning(
                "no ZooKeeper answers at %s yet; trying for %g s", self._ensemble.hosts, seconds
            ),
        )
        try:
            async with asyncio.timeout(seconds):
                await self._connected.wait()
            if self._end is not None:
                raise self._end
            await self._read("/", self._client.exists_async)
            self._was_answered = True
            self.key = SessionKey(*self._client.client_id)
            await self._make_root()
        except TimeoutError:
            await self._stop()
            raise CoordinationFailed(
                f"no ZooKeeper answers at {self._ensemble.hosts} in {seconds:g} s"
            ) from None
        except BaseException:
            await self._stop()
            raise
        finally:
            telling.cancel()

    @property
    def is_connected(self) -> bool:
        return self._end is None and bool(self._client.connected)

    # -- reads ------------------------------------------------------------------------

    async def get(self, path: str, on_change: OnChange | None = None) -> Node:
        try:
            data, stat = await self._read(
                path, lambda at: self._client.get_async(at, watch=self._watch(on_change))
            )
        except NoNodeError:
            raise NoNode(path) from None
        return Node(data, stat.version)

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        stat = await self._read(
            path, lambda at: self._client.exists_async(at, watch=self._watch(on_change))
        )
        return stat is not None

    async def children(self, path: str, on_change: OnChange | None = None) -> list[str]:
        try:
            names: list[str] = await self._read(
                path, lambda at: self._client.get_children_async(at, watch=self._watch(on_change))
            )
        except NoNodeError:
            raise NoNode(path) from None
        # ZooKeeper's own, which no user's tree has.
        return sorted(name for name in names if (path, name) != ("/", "zookeeper"))

    async def tree(self, path: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        level = [path]
        while level:
            below: list[str] = []
            for start in range(0, len(level), _READS_AT_ONCE):
                part = level[start : start + _READS_AT_ONCE]
                for at, names in zip(
                    part, await asyncio.gather(*map(self._names, part)), strict=True
                ):
                    above = "" if at == "/" else at
                    below.extend(f"{above}/{name}" for name in names)
            for start in range(0, len(below), _READS_AT_ONCE):
                part = below[start : start + _READS_AT_ONCE]
                nodes = await asyncio.gather(*map(self._node, part))
                found.update(
                    (at, node) for at, node in zip(part, nodes, strict=True) if node is not None
                )
            level = below
        return dict(sorted(found.items()))

    async def sync(self) -> None:
        await self._read("/", self._client.sync_async)

    async def _names(self, path: str) -> list[str]:
        try:
            return await self.children(path)
        except NoNode:
            return []

    async def _node(self, path: str) -> Node | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def _read(self, path: str, ask: Callable[[str], Any]) -> Any:
        check_path(path)
        try:
            return await self._answer(lambda: ask(self._full(path)))
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as error:
            raise self._failure(error) from error

    # -- writes -----------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        if not operations:
            return []
        transaction = self._client.transaction()
        size = 0
        for operation in operations:
            check_path(operation.path)
            self._add(transaction, operation)
            size += size_bytes(operation)
        assert size <= TRANSACTION_BYTES_MAX, f"{size} bytes in one transaction"
        # Shielded: a cancelled caller must not leave an unread response.
        return await asyncio.shield(
            asyncio.ensure_future(self._commit(operations, transaction.commit_async))
        )

    async def _commit(self, operations: Sequence[Operation], send: Callable[[], Any]) -> list[int]:
        if not self.is_connected:
            raise self._not_connected()
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                results = await self._answer(send)
        except (KazooException, KazooTimeoutError, TimeoutError) as error:
            if self._end is not None:
                raise self._end from error
            raise UnknownOutcome(f"ZooKeeper did not answer a write: {_text(error)}") from error
        versions = _versions(operations, results)
        if any(isinstance(each, Create) and each.is_ephemeral for each in operations):
            self._watch_the_loop()
        return versions

    def _watch_the_loop(self) -> None:
        """Once others rely on this node. Before that, a start that takes long harms nobody."""
        if not self._is_watched and self._end is None:
            self._is_watched = True
            self._watchdog.start(self.session_timeout_ms)

    def _give_up(self) -> None:
        """On the watchdog's thread."""
        self._was_given_up = True
        self._client.stop()

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._full(operation.path)
        match operation:
            case Create():
                acl = self._acl(operation.path)
                transaction.create(path, operation.data, acl, ephemeral=operation.is_ephemeral)
            case Put():
                transaction.set_data(path, operation.data, version=operation.version)
            case Delete():
                transaction.delete(path, version=operation.version)
            case Check():
                transaction.check(path, version=operation.version)

    def _acl(self, path: str) -> list[ACL] | None:
        """Only nodes write. Everybody reads, as tools do, except what holds secrets."""
        if not self._ensemble.is_protected:
            return None
        if _is_secret(path):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    # -- znodes of before there was a login ----------------------------------------------

    async def protect_older(self) -> None:
        """Protect what nodes without a login have created, as if it were created now.

        It may be interrupted and repeated, and done by several nodes. Nodes that still have no
        login can change nothing afterwards, so it is done only where the options ask for it.
        Raises CoordinationFailed.
        """
        if not self._ensemble.is_protected or not await self._is_open(_PROTECTED_LAST):
            return
        if not self._ensemble.protects_older:
            log.warning(
                "everybody who reaches ZooKeeper can change what this cluster stores there: it was"
                " created without a login. When all nodes have one, set zookeeper.set.acl=true"
            )
            return
        count = 0
        # What strangers can read comes first.
        for top in (*SECRET_PATHS, "/", *TOP_PATHS):
            count += await self._protect(top)
        log.info("protected %d znodes in ZooKeeper that everybody could change", count)

    async def _protect(self, top: str) -> int:
        """`top` last, when everything below is protected. The root is protected alone."""
        if top == "/":
            # Without a path in zookeeper.connect it belongs to everybody who uses ZooKeeper.
            return int(bool(self._root) and await self._protect_one("/"))
        levels = [[top]]
        while levels[-1]:
            levels.append(
                [
                    f"{at}/{name}"
                    for part in _parts(levels[-1])
                    for at, names in zip(
                        part, await asyncio.gather(*map(self._names, part)), strict=True
                    )
                    for name in names
                ]
            )
        return sum(
            [
                protected
                for level in reversed(levels)
                for part in _parts(level)
                for protected in await asyncio.gather(*map(self._protect_one, part))
            ]
        )

    async def _protect_one(self, path: str) -> bool:
        """False if it is protected, or does not exist."""
        if not await self._is_open(path):
            return False
        acl = self._acl(path)
        try:
            await self._read(path, lambda at: self._client.set_acls_async(at, acl))
        except NoNodeError:
            return False
        return True

    async def _is_open(self, path: str) -> bool:
        """May everybody do more than a node that was created now would allow?"""
        try:
            found, _ = await self._read(path, self._client.get_acls_async)
        except NoNodeError:
            return False
        allowed = 0 if _is_secret(path) else Permissions.READ
        return any(each.id.scheme == "world" and each.perms & ~allowed for each in found)

    # -- the session ------------------------------------------------------------------

    def on_end(self, callback: OnChange) -> None:
        if self._has_expired:
            self._loop.call_soon(callback)
        self._on_end.append(callback)

    async def close(self) -> None:
        self._on_end.clear()
        if self._end is None:
            self._finish(SessionEnded("the session was closed"))
        await self._stop()

    async def _stop(self) -> None:
        if self._stopping is None:
            # It waits for kazoo's threads.
            self._stopping = self._loop.run_in_executor(None, _stop, self._client)
        await self._stopping

    def _state_changed(self, state: str, detail: str) -> None:
        if self._end is not None:
            return
        if state == KazooState.CONNECTED:
            if self._was_connected:
                log.info("connected to ZooKeeper again")
            self._was_connected = True
            self._connected.set()
        elif state == KazooState.SUSPENDED:
            log.warning("the connection to ZooKeeper is lost, trying again")
        else:
            self._has_expired = True
            self._finish(self._why_lost(detail))
            self._connected.set()
            for callback in self._on_end:
                callback()
            self._on_end.clear()
            # kazoo would continue with an unwanted new session.
            self._stopping = self._loop.run_in_executor(None, _stop, self._client)

    def _why_lost(self, detail: str) -> CoordinationFailed:
        # Only at the start. Later it is the end of a session, as any other.
        if detail == KeeperState.AUTH_FAILED and not self._was_answered:
            return CoordinationFailed(
                f"ZooKeeper at {self._ensemble.hosts} refused the login: compare "
                "millstream.zookeeper.sasl.jaas.config with the users of its JAAS file"
            )
        if self._was_given_up:
            return SessionEnded("the event loop was blocked, so the ZooKeeper session was given up")
        if detail == KeeperState.EXPIRED_SESSION:
            return SessionEnded("the ZooKeeper session has expired")
        return SessionEnded(f"the ZooKeeper session has ended ({detail})")

    def _finish(self, end: CoordinationFailed) -> None:
        self._end = end
        self._watchdog.stop()
        for future in self._waiting:
            if not future.done():
                future.set_exception(end)

    def _granted(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms

    async def _make_root(self) -> None:
        path = ""
        for part in self._root.split("/")[1:]:
            path += "/" + part
            try:
                await self._answer(lambda at=path: self._client.create_async(at, b""))  # type: ignore[misc]
            except NodeExistsError:
                pass
            except (KazooException, KazooTimeoutError) as error:
                raise self._failure(error) from error

    # -- between kazoo's threads and the loop --------------------------------------------

    async def _answer(self, ask: Callable[[], Any]) -> Any:
        if not self.is_connected:
            raise self._not_connected()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        try:
            ask().rawlink(lambda done: self._cross(_settle, future, done))
            return await future
        finally:
            self._waiting.discard(future)

    def _watch(self, on_change: OnChange | None) -> Callable[[object], None] | None:
        if on_change is None:
            return None
        return lambda event: self._cross(self._changed, on_change)

    def _changed(self, on_change: OnChange) -> None:
        # kazoo fires all watches when a session ends; then there is nothing to read again.
        if self._end is None:
            on_change()

    def _cross(self, function: Callable[..., None], *arguments: object) -> None:
        self._crossing.append(partial(function, *arguments))
        if self._is_waking:
            return
        self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:
            # The loop was closed first; nothing waits any more.
            pass

    def _arrive(self) -> None:
        """All calls that have crossed by now: a failover brings thousands of them."""
        # First: what crosses from here on wakes the loop again.
        self._is_waking = False
        try:
            while self._crossing:
                self._crossing.popleft()()
        finally:
            if self._crossing:
                self._loop.call_soon(self._arrive)

    def _full(self, path: str) -> str:
        if not self._root:
            return path
        return self._root if path == "/" else self._root + path

    def _not_connected(self) -> CoordinationFailed:
        return self._end or CoordinationFailed("no connection to ZooKeeper")

    def _failure(self, error: Exception) -> CoordinationFailed:
        if self._end is not None:
            return self._end
        if isinstance(error, NoAuthError):
            return CoordinationFailed(
                f"ZooKeeper at {self._ensemble.hosts} refused access: {_text(error)}"
            )
        return CoordinationFailed(f"ZooKeeper did not answer: {_text(error)}")


def _is_secret(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in SECRET_PATHS)


def _parts(paths: list[str]) -> Iterator[list[str]]:
    return (paths[at : at + _READS_AT_ONCE] for at in range(0, len(paths), _READS_AT_ONCE))


def _client(
    ensemble: Ensemble, resume: SessionKey | None, granted: Callable[[int], None]
) -> WatchingClient:
    retry = KazooRetry(max_tries=-1, delay=_RETRY_SECONDS, backoff=2, max_delay=_RETRY_SECONDS_MAX)
    return WatchingClient(
        ensemble.hosts,
        on_session_timeout=granted,
        timeout=ensemble.session_timeout_ms / 1000,
        client_id=None if resume is None else (resume.id, resume.password),
        connection_retry=retry,
        auth_data=[("digest", ensemble.digest)] if ensemble.digest else None,
        sasl_options=_sasl_options(ensemble),
        default_acl=CREATOR_ALL_ACL if ensemble.is_protected else None,
        use_ssl=ensemble.is_tls,
        certfile=ensemble.key_file,
        keyfile=ensemble.key_file,
        keyfile_password=ensemble.key_password,
        ca=ensemble.authority_file,
        check_hostname=ensemble.is_host_checked,
    )


def _sasl_options(ensemble: Ensemble) -> dict[str, str] | None:
    if ensemble.sasl is None:
        return None
    return {
        "mechanism": "DIGEST-MD5",
        "username": ensemble.sasl.username,
        "password": ensemble.sasl.password,
    }


def _stop(client: WatchingClient) -> None:
    client.stop()
    # Where the watchdog is stopping it at this moment, that returned at once.
    client.wait_stopped()
    client.close()


def _settle(future: "asyncio.Future[Any]", done: Any) -> None:
    if future.done():
        return
    if done.exception is None:
        future.set_result(done.value)
    else:
        future.set_exception(done.exception)


def _versions(operations: Sequence[Operation], results: Sequence[Any]) -> list[int]:
    """kazoo does not raise when a transaction fails: the errors are among its results."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, RolledBackError | RuntimeInconsistency):
            continue
        if isinstance(result, Exception):
            raise _not_applied(operation, result)
    versions = []
    for operation, result in zip(operations, results, strict=True):
        match operation:
            case Create():
                versions.append(0)
            case Put():
                versions.append(result.version)
            case Delete():
                versions.append(-1)
            case Check():
                versions.append(operation.version)
    return versions


def _not_applied(operation: Operation, error: Exception) -> Exception:
    problem: type[NotApplied]
    match error:
        case NodeExistsError():
            problem = NodeExists
        case BadVersionError():
            problem = BadVersion
        case NotEmptyError():
            problem = NotEmpty
        case NoChildrenForEphemeralsError():
            problem = NoParent
        case NoNodeError():
            problem = NoParent if isinstance(operation, Create) else NoNode
        case _:
            return CoordinationFailed(f"ZooKeeper refused {operation.path}: {_text(error)}")
    return problem(operation.path, operation)


def _text(error: Exception) -> str:
    if isinstance(error, NoAuthError):
        return _NO_AUTH
    return str(error) or type(error).__name__
