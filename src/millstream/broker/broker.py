"""One node: wires the rooms together, starts them and stops them in the right order.

Wiring only. `handlers/` says what a request does, `replication/` what a partition does,
and `storage/` what is on the disk.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.network.accept_rate import AcceptRate, AcceptRates
from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Dispatch, Endpoint, Limits, Server
from millstream.broker.node.addresses import Addresses
from millstream.broker.node.adopting import plan_if_needed
from millstream.broker.node.data_directory import DataDirectory, check_member, check_standalone
from millstream.broker.node.log_config import log_config
from millstream.broker.node.standalone import Standalone, begin_alone, open_own_store
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.dispatch import Dispatcher
from millstream.broker.requests.fetch_sessions import FetchSessions
from millstream.broker.requests.limited_dispatch import LimitedDispatcher
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.services import Services
from millstream.broker.requests.timing import RequestTimes, TimedDispatch
from millstream.broker.requests.turns import Turns
from millstream.broker.security.audit import AuditLog
from millstream.broker.security.authorizer import configured_authorizer
from millstream.broker.security.certificates import Certificates
from millstream.broker.security.logins import Logins
from millstream.broker.security.quota_use import ClientQuotas, Windows
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.broker.upkeep.housekeeping import keep_house
from millstream.broker.upkeep.strays import set_strays_aside
from millstream.clock import Clock, SystemClock
from millstream.cluster.metadata import ClusterMetadata
from millstream.cluster.stores.store import CoordinationFailed, CoordinationStore
from millstream.config import BrokerConfig, Listener, insecure_listeners, parse_listeners
from millstream.config.connection_overrides import OVERRIDES, by_address, parse_overrides
from millstream.errors import StartError
from millstream.replication.group_commit import Durability, GroupCommit, PageCacheDurability
from millstream.replication.table import PartitionTable
from millstream.storage.files import OsFileSystem
from millstream.storage.meta import stored_node_id
from millstream.storage.values import LogConfig

if TYPE_CHECKING:
    from millstream.broker.membership.member import OpenSession
    from millstream.cluster.adoption import AdoptionPlan

log = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32


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
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._may_adopt = adopt
        # Opens a session with the cluster's ZooKeeper; None for a standalone node.
        self._open_session = open_session or session_opener(config)
        self._partitions = PartitionTable()
        self._disk = DataDirectory(
            Path(config.list("log.dirs")[0]),
            clock=self._clock,
            partitions=self._partitions,
            new_durability=_durability(dev=dev, is_member=self._open_session is not None),
        )
        self._accept_rate = AcceptRate(
            window_count=config.int("quota.window.num"),
            window_seconds=config.int("quota.window.size.seconds"),
        )
        self._server = Server(self.dispatch, _limits(config), self._accept_rate)
        # Undone in this order if the start fails.
        self._undo: list[Callable[[], Awaitable[None]]] = [self._server.stop]
        self._housekeeping: asyncio.Task[None] | None = None
        self._certificate_watch: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None
        # Set by `start`.
        self._certificates: Certificates
        self._listeners: Sequence[Listener]
        self.addresses: Addresses
        self.node: NodeState
        self.coordination: Coordinators
        self.producer_ids: ProducerIds
        self.topics: Topics
        self.cleaner: Cleaner
        self.logins: Logins
        self.services: Services
        self._dispatcher: Dispatcher
        # Another one while clients have quotas.
        self._untimed: Dispatch
        # The same, except while requests are timed.
        self._dispatch: Dispatch

    @property
    def endpoints(self) -> list[Endpoint]:
        return self._server.endpoints

    @property
    def connections(self) -> Collection[Connection]:
        return self._server.connections

    @property
    def port(self) -> int:
        return self._server.endpoints[0].port

    # -- start ------------------------------------------------------------------------

    async def start(self) -> None:
        """The node serves when this returns. Raises StartError and leaves nothing behind."""
        try:
            await self._start()
        except CoordinationFailed as error:
            await self._undo_start()
            raise StartError(str(error)) from error
        except BaseException:
            await self._undo_start()
            raise

    async def _undo_start(self) -> None:
        for undo in self._undo:
            await undo()
        self._disk.release()

    async def _start(self) -> None:
        if len(self._config.list("log.dirs")) > 1:
            raise StartError("log.dirs: one directory per node; run one node per disk")
        # First: if the port is in use, the disk stays untouched.
        self._bind()
        try:
            plan = self._check_directory()
            node_id = self._choose_node_id()
        except OSError as error:
            problem = f"cannot read data directory {self._disk.path}: {error.strerror}"
            raise StartError(problem) from error
        self._disk.claim(node_id)
        if self._open_session is None:
            await self._begin_alone(node_id, plan)
        else:
            await self._join_cluster(node_id, self._open_session)
        self._disk.on_failure = self.node.cluster.disk_failed
        await self._load_logs()
        set_strays_aside(self.node)
        for topic in self.node.image.topics.values():
            self.topics.open_or_wait(topic)
        self.coordination.start()
        self._server.start()
        loop = asyncio.get_running_loop()
        housekeeping = keep_house(self.node, self.topics, self.coordination.groups_with_offsets)
        self._housekeeping = loop.create_task(housekeeping)
        self.cleaner.start()
        await self.node.cluster.register()
        await self.logins.start()
        self._confirming = loop.create_task(self._disk.confirm_recovery())
        if self._certificates:
            watching = self._certificates.watch(lambda: self.node.config)
            self._certificate_watch = loop.create_task(watching)

    async def _load_logs(self) -> None:
        """Not before the image is known: recovery asks which logs are compacted and may have gaps.

        A member's loop stays free. Thousands of logs take longer than a blocked loop may keep its
        session, and the node would never start.
        """
        load = partial(self._disk.store.load, self._stored_log_config)
        if self._open_session is None:
            load()
            return
        loading = asyncio.get_running_loop().run_in_executor(None, load)
        try:
            await asyncio.shield(loading)
        finally:
            # The caller that cancels the start releases the directory next.
            if not loading.done():
                await asyncio.wait([loading])

    def _bind(self) -> None:
        self._listeners = listeners = parse_listeners(self._config)
        for listener in insecure_listeners(self._config, listeners):
            log.warning(
                "listener %s on %s is open to the network, without encryption",
                listener.name,
                listener.host or "all interfaces",
            )
        self._certificates = Certificates(listeners, self._config)
        for listener in listeners:
            tls = self._certificates.get(listener.name)
            self._server.bind(listener.name, listener.host, listener.port, tls)
        self.addresses = Addresses(
            listeners, self._config, lambda: {e.name: e.port for e in self._server.endpoints}
        )

    def _check_directory(self) -> "AdoptionPlan | None":
        """What to adopt if Kafka wrote the directory. Raises StartError if the directory is not
        one of this kind of node."""
        if self._open_session is not None:
            check_member(self._disk.path)
            return None
        check_standalone(self._disk.path)
        return plan_if_needed(self._disk.path, self._config, is_allowed=self._may_adopt)

    def _choose_node_id(self) -> int:
        """A directory keeps its node id unless the user sets another."""
        if not self._config.is_set("node.id") and not self._config.is_set("broker.id"):
            found = stored_node_id(OsFileSystem(), str(self._disk.path))
            if found is not None:
                return found
        return self._config.int("node.id")

    async def _begin_alone(self, node_id: int, plan: "AdoptionPlan | None") -> None:
        store = await open_own_store(self._disk, plan, broker_id=node_id)
        self._undo.append(store.close)
        metadata = await begin_alone(store, self._disk, self._config, broker_id=node_id)
        self._assemble(node_id, metadata)
        alone = Standalone(self.node, store, self.addresses.advertised)
        alone.forget_topic = self.topics.forget
        self.node.cluster = alone
        self._prepare_logins(await self._own_secret(store))

    async def _own_secret(self, store: CoordinationStore) -> bytes:
        if not any(listener.uses_sasl for listener in self._listeners):
            return b""
        from millstream.cluster.joining import cluster_secret

        return await cluster_secret(store, lambda: os.urandom(_SECRET_BYTES))

    def _prepare_logins(self, secret: bytes) -> None:
        self.logins.prepare(self._listeners, secret, self._dispatcher.dispatch_sasl)
        self._server.on_accepted = self.logins.authentication.begin
        self._server.on_session_ended = self.logins.authentication.end

    async def _join_cluster(self, node_id: int, open_session: "OpenSession") -> None:
        # Imported here: a standalone node does not need it, and has to start fast.
        from millstream.broker.membership.member import Member, join, new_membership
        from millstream.replication.cluster_commit import ClusterCommit

        membership, metadata = new_membership(
            open_session, self._disk, self._config, broker_id=node_id, clock=self._clock
        )
        self._undo.append(membership.leave)
        await join(membership, self._disk)
        self._assemble(node_id, metadata)
        assert isinstance(self._disk.durability, ClusterCommit)
        member = Member(self.node, membership, self.addresses, self._disk.durability)
        self.node.cluster = member
        member.attach(self.topics, self.producer_ids)
        self._undo.insert(1, member.stop)
        self._prepare_logins(membership.secret)
        self.coordination.mirror_session = lambda: membership.store
        # In a cluster, coordinators follow the roles of their partitions from the start.
        coordination = self.coordination
        for shards in (
            coordination.groups.shards,
            coordination.transactions.shards,
            coordination.sharing.coordinator.shards,
        ):
            member.roles.on_role.append(shards.role_changed)
            member.roles.on_created.append(shards.topic_created)

    def _assemble(self, node_id: int, metadata: ClusterMetadata) -> None:
        """Build the rooms, once the options and topics are known."""
        self.node = NodeState(
            node_id=node_id,
            clock=self._clock,
            metadata=metadata,
            disk=self._disk,
            partitions=self._partitions,
        )
        self.producer_ids = ProducerIds(metadata)
        self.coordination = Coordinators(self.node)
        self.topics = Topics(
            self.node,
            ensure_internal=self.coordination.ensure_internal_topic,
            is_in_use=self._server.turns.is_in_use,
        )
        self.topics.on_deleted = self.coordination.topic_deleted
        self.coordination.topics = self.topics
        self.coordination.producer_ids = self.producer_ids
        self.cleaner = Cleaner(self.node)
        self.logins = Logins(self.node)
        self._undo.insert(0, self.logins.stop)
        slots = self._config.int("max.incremental.fetch.session.cache.slots")
        permissions = self._permissions(metadata)
        quotas = self._quotas(metadata)
        self.services = Services(
            turns=Turns(self._server.turns.has_others),
            node=self.node,
            topics=self.topics,
            coordination=self.coordination,
            producer_ids=self.producer_ids,
            admissions=Admissions(self._partitions.generation, permissions),
            fetch_sessions=FetchSessions(slots),
            cleaner=self.cleaner,
            logins=self.logins,
            permissions=permissions,
            quotas=quotas,
        )
        self._dispatcher = Dispatcher(self.services)
        limited = LimitedDispatcher(self._dispatcher, quotas)
        self._server.connection_wait = quotas.connection_wait

        def quotas_changed() -> None:
            self._untimed = limited.dispatch if quotas.are_set else self._dispatcher.dispatch
            self._dispatch = self._untimed
            # Clients that have a quota now lose their shortcuts.
            self._partitions.generation.bump()

        quotas.on_changed = quotas_changed
        quotas_changed()
        self.node.on_config_changed = self._limit_connections
        self._limit_connections()

    def _limit_connections(self) -> None:
        """As the options say, which may change at run time."""
        self._server.limits = _limits(self.node.config)
        is_member = self._open_session is not None
        self._accept_rate.rates = _accept_rates(
            self.node.config,
            [listener.name for listener in self._listeners],
            listener_of_nodes=self.addresses.between_nodes.name if is_member else None,
        )

    async def time_requests(self, times: RequestTimes, seconds: float) -> None:
        """Measure all requests that arrive in this time, and none after it."""
        self._dispatch = TimedDispatch(self._untimed, times, self._clock.monotonic).dispatch
        try:
            await asyncio.sleep(seconds)
        finally:
            self._dispatch = self._untimed

    def _permissions(self, metadata: ClusterMetadata) -> Permissions:
        """What clients may do, as the options and the ACLs say."""
        permissions = Permissions(self._partitions.generation, AuditLog(self._clock.monotonic))
        # A fetch that waits is asked again.
        permissions.on_changed = self._partitions.wake_fetches
        acls = metadata.image.acls
        authorizer = configured_authorizer(self._config, acls)
        if authorizer is not None:
            permissions.use(authorizer)
            acls.listeners.append(permissions.changed)
        return permissions

    def _quotas(self, metadata: ClusterMetadata) -> ClientQuotas:
        size_seconds = self._config.int("quota.window.size.seconds")
        mutation_size_seconds = self._config.int("controller.quota.window.size.seconds")
        return ClientQuotas(
            metadata.image.client_entities,
            self._clock.monotonic,
            windows=Windows(self._config.int("quota.window.num"), size_seconds),
            mutation_windows=Windows(
                self._config.int("controller.quota.window.num"), mutation_size_seconds
            ),
        )

    def _stored_log_config(self, topic: str) -> LogConfig:
        state = self.node.image.topics.get(topic)
        return log_config(self.node.config, {} if state is None else state.overrides)

    # -- stop -------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop cleanly: sync everything, then write the clean marker."""
        await self._cancel(self._certificate_watch, self._housekeeping)
        await self.cleaner.stop()
        await self.node.cluster.hand_over()
        await self.coordination.stop()
        await self.logins.stop()
        await self._server.stop()
        await self.node.cluster.stop()
        await self._disk.durability.stop()
        if self._confirming is not None:
            await self._confirming
        self._disk.close()
        try:
            await self.node.cluster.leave()
        except CoordinationFailed as error:
            log.error("the coordination store was not closed cleanly: %s", error)

    async def abandon(self) -> None:
        """End as if the process had been killed: no other node learns of it, nothing is synced, and
        the next start has to recover. For tests; only the operating system's memory survives."""
        await self._server.stop()
        await self._cancel(self._certificate_watch, self._housekeeping, self._confirming)
        await self.cleaner.stop()
        await self.node.cluster.stop()
        await self.coordination.stop()
        await self.logins.stop()
        await self._disk.durability.stop()
        self._disk.release()
        await self.node.cluster.leave()

    async def _cancel(self, *tasks: "asyncio.Task[None] | None") -> None:
        for task in tasks:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        return self._dispatch(connection, frame)

    def pass_through(self, wrap: Callable[[Dispatch], Dispatch]) -> None:
        """Every request goes through this first. For tests."""
        self._server.dispatch = wrap(self.dispatch)


def _durability(*, dev: bool, is_member: bool) -> Callable[[Callable[[str], None]], Durability]:
    """When acks=all is answered: after the page cache, the disk, or the in-sync replicas."""
    if is_member:
        from millstream.replication.cluster_commit import ClusterCommit

        return lambda on_failure: ClusterCommit(on_failure, dev=dev)
    return PageCacheDurability if dev else GroupCommit


def session_opener(config: BrokerConfig) -> "OpenSession | None":
    """How to reach the cluster in the options; None without one."""
    if config.optional_string("zookeeper.connect") is None:
        return None
    from millstream.cluster.stores.ensemble import ensemble_of

    ensemble = ensemble_of(config)
    assert ensemble is not None
    try:
        from millstream.cluster.stores.zookeeper import open_for_directory
    except ImportError as error:
        raise StartError(
            "zookeeper.connect needs kazoo: pip install 'millstream[zookeeper]'"
        ) from error
    directory = Path(config.list("log.dirs")[0])
    return lambda: open_for_directory(ensemble, directory)


def _accept_rates(
    config: BrokerConfig, listeners: Sequence[str], *, listener_of_nodes: str | None
) -> AcceptRates:
    option = "max.connection.creation.rate"
    own = {name: config.for_listener(name) for name in listeners}
    return AcceptRates(
        node=config.int(option) if config.is_set(option) else None,
        by_listener={name: each.int(option) for name, each in own.items() if each.is_own(option)},
        listener_of_nodes=listener_of_nodes,
    )


def _limits(config: BrokerConfig) -> Limits:
    request_bytes = config.int("queued.max.request.bytes")
    return Limits(
        frame_bytes_max=config.int("socket.request.max.bytes"),
        connections_max=config.int("max.connections"),
        connections_per_ip_max=config.int("max.connections.per.ip"),
        connections_per_ip_overrides=by_address(parse_overrides(config.string(OVERRIDES))),
        idle_seconds_max=config.int("connections.max.idle.ms") / 1000,
        request_bytes_max=request_bytes if request_bytes > 0 else sys.maxsize,
    )
