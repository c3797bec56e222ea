"""One node: the parts, put together, started and stopped in the right order.

Wiring only. What a request does is in `handlers/`, what a partition does in
`replication/`, what is on the disk in `storage/`.
"""

import asyncio
import logging
import os
import resource
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.broker.adopting import mark_begun, plan_if_needed, take_over
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.log_config import log_config
from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Endpoint, Limits, Server, is_loopback
from millstream.broker.requests.dispatch import dispatch
from millstream.broker.requests.fetch_sessions import FetchSessions
from millstream.broker.topics import Topics
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.broker.upkeep.housekeeping import keep_house
from millstream.clock import Clock, SystemClock
from millstream.cluster.controller import Controller, start_alone
from millstream.cluster.coordination import SESSION_FILE, CoordinationFailed
from millstream.cluster.embedded import FILE_NAME, EmbeddedStore, open_embedded_store
from millstream.cluster.state import ClusterImage
from millstream.config import BrokerConfig, Listener, inter_broker_listener, parse_listeners
from millstream.errors import LogDirFailed, NoSpace, StartError
from millstream.model import NO_TOPIC_ID, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from millstream.replication.group_commit import Durability, GroupCommit, PageCacheDurability
from millstream.replication.table import PartitionTable
from millstream.storage.files import OsFileSystem
from millstream.storage.meta import stored_node_id
from millstream.storage.store import DESCRIPTOR_LIMIT, LogStore
from millstream.storage.values import LogConfig

if TYPE_CHECKING:
    from millstream.broker.coordination.coordinators import GroupCoordinators
    from millstream.broker.coordination.transactions import TransactionCoordinator
    from millstream.broker.membership.clustering import Clustering, OpenSession
    from millstream.broker.membership.replicas import Replicas
    from millstream.cluster.adoption import AdoptionPlan
    from millstream.cluster.leaders import Leaders
    from millstream.cluster.membership import Membership

log = logging.getLogger(__name__)

_NO_SPACE_TOLD_EVERY_MS: Final = 60_000


class Broker:
    """`dev` answers acks=all from the page cache, without waiting for the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        dev: bool = False,
        adopt: bool = False,
        clock: Clock | None = None,
        open_session: "OpenSession | None" = None,
    ) -> None:
        self._static_config = config
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._may_adopt = adopt
        self.node_id = config.int("node.id")
        self.data_dir = Path(config.list("log.dirs")[0])
        self.disk_failure: str | None = None
        self._no_space_told_ms = -_NO_SPACE_TOLD_EVERY_MS
        # Requests answered, by API key.
        self.requests: dict[int, int] = {}
        self.partitions = PartitionTable()
        # In a cluster only: a node of its own has no other's replicas.
        self.replicas: Replicas | None = None
        self.topics = Topics(self)
        self._is_serving = False
        self.fetch_bytes_max = config.int("fetch.max.bytes")
        self.fetch_sessions = FetchSessions(config.int("max.incremental.fetch.session.cache.slots"))
        # Where the cluster is kept; None for a node of its own.
        self._open_session = open_session or session_opener(config)
        self._clustering: Clustering | None = None
        self.durability: Durability = self._new_durability(dev=dev)
        self.cleaner = Cleaner(self)
        self._checkpointing = asyncio.Lock()
        self._coordination: EmbeddedStore | None = None
        self._listeners: dict[str, Listener] = {}
        self._housekeeping: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None
        self._holds_directory = False
        self._server = Server(self._dispatch, _limits(config))
        self.store: LogStore
        self.controller: Controller
        self.producer_ids: ProducerIds

    def _new_durability(self, *, dev: bool) -> Durability:
        if self._open_session is not None:
            from millstream.replication.cluster_commit import ClusterCommit

            return ClusterCommit(self.fail_disk, dev=dev)
        return PageCacheDurability(self.fail_disk) if dev else GroupCommit(self.fail_disk)

    # Most of what a node imports is for groups and transactions. One that has none starts
    # without, and begins with them when a client asks for the first.

    @cached_property
    def coordinators(self) -> "GroupCoordinators":
        from millstream.broker.coordination.coordinators import GroupCoordinators

        coordinators = GroupCoordinators(self)
        if self._is_serving:
            coordinators.start()
        return coordinators

    @cached_property
    def transactions(self) -> "TransactionCoordinator":
        from millstream.broker.coordination.transactions import TransactionCoordinator

        transactions = TransactionCoordinator(self)
        if self._is_serving:
            transactions.start()
        return transactions

    @property
    def has_groups(self) -> bool:
        """Has anybody asked for a group, now or in an earlier run?"""
        return "coordinators" in vars(self)

    @property
    def has_transactions(self) -> bool:
        return "transactions" in vars(self)

    def _start_coordinators(self) -> None:
        topics, is_member = self.image.topics, self._clustering is not None
        if is_member or self.has_groups or OFFSETS_TOPIC in topics:
            self.coordinators.start()
        if is_member or self.has_transactions or TRANSACTIONS_TOPIC in topics:
            self.transactions.start()
        self._is_serving = True

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def leaders(self) -> "Leaders | None":
        """Elections and reassignments on request, in a cluster."""
        return None if self._clustering is None else self._clustering.leaders

    @property
    def membership(self) -> "Membership | None":
        return None if self._clustering is None else self._clustering.membership

    @property
    def endpoints(self) -> list[Endpoint]:
        return self._server.endpoints

    @property
    def port(self) -> int:
        return self._server.endpoints[0].port

    def advertised(self, listener: str) -> tuple[str, int]:
        """The address that clients of a listener are told."""
        told = self._listeners[listener]
        if told.advertised_port:
            return told.advertised_host, told.advertised_port
        port = next(e.port for e in self._server.endpoints if e.name == listener)
        return told.advertised_host, port

    @property
    def listener_protocols(self) -> dict[str, str]:
        return {name: listener.protocol for name, listener in self._listeners.items()}

    @property
    def inter_broker_listener(self) -> str:
        return inter_broker_listener(self.config, list(self._listeners.values())).name

    # -- start and stop -------------------------------------------------------------

    async def start(self) -> None:
        """Ready to serve when this returns. Raises StartError and leaves nothing behind."""
        try:
            await self._start()
        except CoordinationFailed as error:
            await self._undo_start()
            raise StartError(str(error)) from error
        except BaseException:
            await self._undo_start()
            raise

    async def _undo_start(self) -> None:
        await self._server.stop()
        if self._clustering is not None:
            await self._clustering.stop()
            await self._clustering.leave()
        if self._coordination is not None:
            await self._coordination.close()
        if self._holds_directory:
            self.store.close(clean=False)

    async def _start(self) -> None:
        if len(self.config.list("log.dirs")) > 1:
            raise StartError("log.dirs: one directory per node; run one node per disk")
        # First of all: a port in use must not touch the disk.
        for listener in parse_listeners(self.config):
            self._listeners[listener.name] = listener
            self._server.bind(listener.name, listener.host, listener.port)
            if not is_loopback(listener.host):
                log.warning(
                    "listener %s on %s is open to the network, without authentication",
                    listener.name,
                    listener.host or "all interfaces",
                )
        try:
            plan = None
            self._check_kind_of_directory()
            if self._open_session is None:
                plan = plan_if_needed(self.data_dir, self.config, is_allowed=self._may_adopt)
            self.node_id = self._choose_node_id()
        except OSError as error:
            problem = f"cannot read data directory {self.data_dir}: {error.strerror}"
            raise StartError(problem) from error
        self.store = LogStore.claim(
            self.data_dir,
            file_system=OsFileSystem(),
            cluster_id=None,
            broker_id=self.node_id,
            clock_now_ms=self.clock.now_ms,
            report=log.warning,
            descriptor_limit=_descriptor_limit(),
        )
        self._holds_directory = True
        if self._open_session is not None:
            await self._join_cluster(self._open_session)
        else:
            await self._begin_alone(plan)
        self.reload_config()
        self.producer_ids = ProducerIds(self.controller)
        # Only now: recovery has to know which logs are compacted and may have gaps.
        self.store.load(self._stored_log_config)
        self._put_strays_aside()
        for topic in self.image.topics.values():
            self.topics.open_or_wait(topic)
        self._start_coordinators()
        self._server.start()
        self._housekeeping = asyncio.get_running_loop().create_task(keep_house(self))
        self.cleaner.start()
        if self._clustering is not None:
            await self._clustering.register()
        self._confirming = asyncio.get_running_loop().create_task(self._confirm_recovery())

    async def _join_cluster(self, open_session: "OpenSession") -> None:
        # Not imported by a node of its own, which is to start fast.
        from millstream.broker.membership.clustering import Clustering
        from millstream.replication.cluster_commit import ClusterCommit

        assert isinstance(self.durability, ClusterCommit)
        self._clustering = Clustering(self, open_session, self.durability)
        self.replicas = self._clustering.replicas
        self.controller = Controller(
            self._clustering.publisher,
            self._static_config,
            broker_id=self.node_id,
            random_bytes=os.urandom,
        )
        await self._clustering.join()

    async def _begin_alone(self, plan: "AdoptionPlan | None") -> None:
        self.store.keep_meta()
        if plan is not None:
            mark_begun(self.data_dir)
        self._coordination = await open_embedded_store(self.data_dir)
        if plan is not None:
            await take_over(plan, self._coordination, broker_id=self.node_id)
        alone = await start_alone(
            self._coordination,
            broker_id=self.node_id,
            random_bytes=os.urandom,
            cluster_id=self.store.cluster_id,
        )
        self.controller = Controller(
            alone, self._static_config, broker_id=self.node_id, random_bytes=os.urandom
        )

    async def _confirm_recovery(self) -> None:
        """After a crash: what only the page cache is sure to have goes to the disk, while
        clients are served. Those who asked for acks=all wait for it."""
        confirmation = self.store.confirmation()
        if confirmation is None:
            return
        loop = asyncio.get_running_loop()
        try:
            is_synced = await loop.run_in_executor(None, confirmation.sync)
            self.store.end_confirmation(confirmation, is_synced=is_synced)
            await self.checkpoint()
            if self.disk_failure is None:
                await loop.run_in_executor(None, self.store.name_boot)
        except NoSpace as error:
            log.warning("a crash from here on will count as a power cut: %s", error)
        except (OSError, LogDirFailed) as error:
            self.fail_disk(f"sync failed: {error}")

    def _stored_log_config(self, topic: str) -> LogConfig:
        state = self.image.topics.get(topic)
        return log_config(self.config, {} if state is None else state.overrides)

    def _check_kind_of_directory(self) -> None:
        """A node alone keeps its topics in the directory, a member of a cluster in ZooKeeper."""
        was_member = (self.data_dir / SESSION_FILE).exists()
        if self._open_session is None and was_member:
            raise StartError(
                f"data directory {self.data_dir} is of a node of a cluster: set zookeeper.connect"
            )
        if self._open_session is not None and (self.data_dir / FILE_NAME).exists():
            raise StartError(
                f"data directory {self.data_dir} is of a node that was alone:"
                " `millstream cluster adopt` moves its topics to ZooKeeper"
            )

    def _choose_node_id(self) -> int:
        """A directory keeps its node's number unless the user says otherwise."""
        if not self.config.is_set("node.id") and not self.config.is_set("broker.id"):
            found = stored_node_id(OsFileSystem(), str(self.data_dir))
            if found is not None:
                return found
        return self.config.int("node.id")

    def _put_strays_aside(self) -> None:
        """A crash while a topic was deleted, or a lost database: keep the files, serve none."""
        for where, partition_log in list(self.store.logs.items()):
            topic = self.image.topics.get(where.topic)
            if topic is None or partition_log.topic_id not in (topic.topic_id, NO_TOPIC_ID):
                self.store.put_aside(where)
            elif self.replicas is not None and not self.replicas.has_here(where):
                # Given to other nodes while this one was away.
                self.store.delete(where)

    async def stop(self) -> None:
        """Stop cleanly: everything synced, then the marker that says so."""
        # Who asks for the first group from here on gets nothing that would have to be stopped.
        self._is_serving = False
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.gather(self._housekeeping, return_exceptions=True)
        await self.cleaner.stop()
        if self._clustering is not None:
            await self._clustering.hand_over()
        if self.has_transactions:
            await self.transactions.stop()
        if self.has_groups:
            await self.coordinators.stop()
        await self._server.stop()
        if self._clustering is not None:
            await self._clustering.stop()
        await self.durability.stop()
        if self._confirming is not None:
            await self._confirming
        try:
            self.store.close(clean=self.disk_failure is None)
        except (LogDirFailed, NoSpace) as error:
            log.error("not stopped cleanly, the next start checks the logs: %s", error)
        try:
            if self._clustering is not None:
                await self._clustering.leave()
            if self._coordination is not None:
                await self._coordination.close()
        except CoordinationFailed as error:
            log.error("the coordination store was not closed cleanly: %s", error)

    # -- what the parts ask of the whole ---------------------------------------------

    def _dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        return dispatch(self, connection, frame)

    def reload_config(self) -> None:
        """Apply what was set at run time."""
        self.config = self.controller.effective_config
        self.fetch_bytes_max = self.config.int("fetch.max.bytes")

    def fail_disk(self, reason: str) -> None:
        """The data directory failed: nothing on it is served or acknowledged any more."""
        if self.disk_failure is not None:
            return
        self.disk_failure = reason
        log.error("data directory %s is offline: %s", self.data_dir, reason)
        self.durability.fail(reason)
        for partition in self.partitions:
            partition.go_offline(reason)
        if self._clustering is not None:
            self._clustering.disk_failed()

    def note_no_space(self, error: NoSpace) -> None:
        """An append was refused. Clients try again and again, a person is told now and then."""
        now_ms = self.clock.now_ms()
        if not 0 <= now_ms - self._no_space_told_ms < _NO_SPACE_TOLD_EVERY_MS:
            self._no_space_told_ms = now_ms
            log.error("records are refused until there is room: %s", error.message)
        # If descriptors were short, synced files can be closed.
        self.sync_soon()

    def sync_soon(self) -> None:
        """Sync whatever is not on the disk, though nobody waits for it."""
        for partition in self.partitions:
            if partition.log.synced_offset < partition.log.next_offset:
                self.durability.request(partition)

    async def checkpoint(self) -> None:
        """Write the checkpoint files, off the loop, one writer at a time."""
        async with self._checkpointing:
            if self.disk_failure is not None:
                return
            write = self.store.checkpoints()
            try:
                await asyncio.get_running_loop().run_in_executor(None, write)
            except LogDirFailed as error:
                self.fail_disk(str(error))


def session_opener(config: BrokerConfig) -> "OpenSession | None":
    """How to reach the cluster that the options name, if any."""
    if config.optional_string("zookeeper.connect") is None:
        return None
    from millstream.cluster.ensemble import ensemble_of

    ensemble = ensemble_of(config)
    assert ensemble is not None
    try:
        from millstream.cluster.zookeeper import open_for_directory
    except ImportError as error:
        raise StartError(
            "zookeeper.connect needs kazoo: pip install 'millstream[zookeeper]'"
        ) from error
    directory = Path(config.list("log.dirs")[0])
    return lambda: open_for_directory(ensemble, directory)


def _descriptor_limit() -> int:
    """Files of logs may take two thirds of what the process has, the store's doubled limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTOR_LIMIT if soft < 0 else min(DESCRIPTOR_LIMIT, soft // 3)


def _limits(config: BrokerConfig) -> Limits:
    request_bytes = config.int("queued.max.request.bytes")
    return Limits(
        frame_bytes_max=config.int("socket.request.max.bytes"),
        connections_max=config.int("max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        idle_seconds_max=config.int("connections.max.idle.ms") / 1000,
        request_bytes_max=request_bytes if request_bytes > 0 else sys.maxsize,
    )
