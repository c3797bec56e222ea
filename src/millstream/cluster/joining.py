"""The steps by which a node enters a cluster, up to its epoch.

Each can be interrupted and repeated. None of them makes the node alive: that is the last
write, when its logs are open.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from millstream.cluster import level, znodes
from millstream.cluster.stores.store import (
    CoordinationStore,
    Create,
    Node,
    NodeExists,
    NoNode,
    NotApplied,
    Put,
    UnknownOutcome,
)
from millstream.errors import StartError

log = logging.getLogger(__name__)

# How much longer than a session to wait for a former incarnation of this node to expire.
_GRACE_SECONDS: Final = 2.0


class Session(CoordinationStore, Protocol):
    """A coordination store whose sessions time out."""

    session_timeout_ms: int


async def enter_cluster(
    store: Session,
    cluster_id: str | None,
    new_cluster_id: Callable[[], str],
    new_cluster_options: Mapping[str, str],
) -> str:
    """Create what every cluster has, if it is missing. Returns the cluster's id.

    `cluster_id` is the one in the data directory. Raises StartError if the store has
    another.
    """
    if cluster_id is not None and not await store.exists(znodes.CLUSTER_ID):
        raise StartError(
            f"the data directory belongs to cluster {cluster_id}, and ZooKeeper knows"
            " none there: is the path in zookeeper.connect right? A single node's directory"
            " is moved by `millstream cluster adopt`"
        )
    wanted = [(path, b"") for path in znodes.BASE_PATHS]
    if new_cluster_options and not await store.exists(znodes.CLUSTER_ID):
        # Before the id: a start that is interrupted in between sets them again.
        options = znodes.encode_config(dict(new_cluster_options))
        wanted.append((znodes.broker_config_path(None), options))
    wanted += [
        (znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id or new_cluster_id())),
        (znodes.CONTROLLER_EPOCH, b"0"),
    ]
    for path, data in wanted:
        if not await store.exists(path):
            with contextlib.suppress(NodeExists):
                await store.commit([Create(path, data)])
    found = znodes.decode_cluster_id(await store.get(znodes.CLUSTER_ID))
    if cluster_id not in (None, found):
        raise StartError(
            f"the data directory belongs to cluster {cluster_id}, ZooKeeper has cluster {found}"
        )
    return found


async def check_level(store: CoordinationStore) -> None:
    """Raises StartError in a cluster whose formats this version does not know."""
    problem = level.start_problem(await cluster_level(store))
    if problem is not None:
        raise StartError(problem)


async def cluster_level(store: CoordinationStore) -> int:
    try:
        return znodes.decode_level(await store.get(znodes.LEVEL))
    except NoNode:
        return level.LOWEST


async def cluster_secret(store: CoordinationStore, new_secret: Callable[[], bytes]) -> bytes:
    """What nodes prove themselves with to each other; the first node makes it."""
    if not await store.exists(znodes.CLUSTER_SECRET):
        with contextlib.suppress(NodeExists):
            await store.commit([Create(znodes.CLUSTER_SECRET, new_secret().hex().encode())])
    return bytes.fromhex((await store.get(znodes.CLUSTER_SECRET)).data.decode())


async def check_not_older(
    store: Session, broker_id: int, *, epoch: int, controller_epoch: int
) -> None:
    """A store that knows less than this node has seen was restored to an earlier state: its
    decisions could contradict earlier ones. Raises StartError."""
    try:
        found = (await store.get(znodes.epoch_path(broker_id))).version
        found_controller = int((await store.get(znodes.CONTROLLER_EPOCH)).data)
    except NoNode:
        found = found_controller = -1
    if found < epoch or found_controller < controller_epoch:
        raise StartError(
            f"ZooKeeper has gone back in time: it knows epoch {found} of this node and"
            f" {found_controller} of the controller, which were {epoch} and {controller_epoch}"
        )


async def wait_for_predecessor(store: Session, broker_id: int) -> None:
    """Of two nodes with one id the second waits, in case the first is dead. Raises StartError."""
    path = znodes.broker_path(broker_id)
    gone = asyncio.Event()
    if not await store.exists(path, gone.set):
        return
    seconds = store.session_timeout_ms / 1000 + _GRACE_SECONDS
    holder = await _holder(store, broker_id)
    log.warning(
        "node %d is registered already%s; waiting %.0f s for that one to be gone",
        broker_id,
        holder,
        seconds,
    )
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await gone.wait()
    if await store.exists(path):
        raise StartError(
            f"another node has the id {broker_id}{holder}; give this one its own node.id"
        )


async def _holder(store: Session, broker_id: int) -> str:
    with contextlib.suppress(NoNode):
        node = await store.get(znodes.broker_path(broker_id))
        endpoints = znodes.decode_broker(broker_id, node).endpoints
        if endpoints:
            return f" at {endpoints[0].host}:{endpoints[0].port}"
    return ""


async def raise_epoch(store: Session, broker_id: int, token: str, *, is_suspect: bool) -> int:
    """A new incarnation: from here on every write of an older one fails. Raises StartError."""
    path = znodes.epoch_path(broker_id)
    data = znodes.encode_incarnation(token, is_suspect=is_suspect)
    if not await store.exists(path):
        with contextlib.suppress(NodeExists):
            await store.commit([Create(path, data)])
    node = await store.get(path)
    if znodes.decode_incarnation(node).is_suspect and not await _was_handled(
        store, broker_id, node
    ):
        # An interrupted start may have lost data, and this start cannot know.
        data = znodes.encode_incarnation(token, is_suspect=True)
    try:
        (epoch,) = await store.commit([Put(path, data, node.version)])
    except UnknownOutcome:
        await store.sync()
        node = await store.get(path)
        if node.data != data:
            raise
        return node.version
    except NotApplied as problem:
        raise StartError(
            f"another node with the id {broker_id} is starting at this moment"
        ) from problem
    return epoch


async def _was_handled(store: Session, broker_id: int, node: Node) -> bool:
    try:
        handled = await store.get(znodes.handled_path(broker_id))
    except NoNode:
        return False
    return int(handled.data) == node.version
