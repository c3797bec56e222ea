"""A node's place in the cluster: registered, alive, fenced; its image; its ISR changes.

A node is *fenced* until it is registered, and again when it loses its session or its
epoch: it leads and follows nothing. It comes back on its own, as a new incarnation with a
new broker epoch.

Joining has two halves. After `join` the node has its epoch and an image, and the controller
has taken its former incarnation out of every ISR; it can now open its logs. `register`
makes it alive. docs/cluster.md has the write of each step.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from millstream.clock import Clock
from millstream.cluster import election, joining, znodes
from millstream.cluster.contact import Contact
from millstream.cluster.controller import Controller, OnWritten, Policy
from millstream.cluster.departed import Departed
from millstream.cluster.joining import Session
from millstream.cluster.lease import Lease
from millstream.cluster.observer import ImageChange, Observer, tell
from millstream.cluster.port_watch import PortWatch
from millstream.cluster.state import (
    NO_BROKER_EPOCH,
    BrokerState,
    ClusterImage,
    PartitionState,
)
from millstream.cluster.stores.store import (
    ANY_VERSION,
    Check,
    CoordinationFailed,
    Create,
    NoNode,
    NotApplied,
    Operation,
    Put,
    SessionEnded,
    UnknownOutcome,
)
from millstream.errors import StartError
from millstream.model import TopicPartition

log = logging.getLogger(__name__)

_HEARTBEATS_PER_SESSION: Final = 6
_RETRY_SECONDS: Final = 0.2
_RETRY_SECONDS_MAX: Final = 2.0


class Listener(Protocol):
    """The rest of the node. All calls come on the loop, none from within a call to this class."""

    def image_changed(self, change: ImageChange) -> None: ...

    def fenced(self, reason: str) -> None: ...

    def active(self, broker_epoch: int) -> None: ...


class Outdated(Exception):
    """The ISR is not as proposed: another writer changed the partition, or this node."""


class Membership:
    def __init__(
        self,
        open_session: Callable[[], Awaitable[Session]],
        *,
        broker_id: int,
        clock: Clock,
        new_token: Callable[[], str],
        new_cluster_id: Callable[[], str],
        new_secret: Callable[[], bytes],
        policy: Policy,
        cluster_id: str | None = None,
        new_cluster_options: Mapping[str, str] | None = None,
    ) -> None:
        """`new_cluster_options` are set for all nodes if this one creates the cluster."""
        self.image = ClusterImage()
        self.lease = Lease(clock)
        self.contact = Contact(clock, self.lease)
        self._departed = Departed(self.image, clock)
        self.broker_epoch = NO_BROKER_EPOCH
        self.is_fenced = True
        self._open_session = open_session
        self._broker_id = broker_id
        self._clock = clock
        self._new_token = new_token
        self._new_cluster_id = new_cluster_id
        self._new_secret = new_secret
        # What nodes prove themselves with to each other. Known after `join`.
        self.secret = b""
        self._policy = policy
        self._cluster_id = cluster_id
        self._new_cluster_options = new_cluster_options or {}
        self._listeners: list[Listener] = []
        # To be stopped when the session ends, in reverse order.
        self._ending = contextlib.AsyncExitStack()
        self._rejoining: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._has_left = False
        self._describe: Callable[[], BrokerState] | None = None
        self._self_state: BrokerState | None = None
        self._epoch = NO_BROKER_EPOCH
        self._tokens = 0
        self._session_token = ""
        self._store: Session
        self._observer: Observer
        self._controller: Controller
        self._ports: PortWatch | None = None
        # Called with what this node has written as the controller.
        self.on_states_written: OnWritten = lambda states: None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    @property
    def store(self) -> Session:
        """The current session, for writes of topics and options."""
        return self._store

    @property
    def observer(self) -> Observer:
        return self._observer

    @property
    def is_controller(self) -> bool:
        return self._controller.is_controller

    def why_not_ready(self) -> str | None:
        """What keeps clients from relying on this node; None if nothing does."""
        if self.is_fenced:
            return "the node is fenced: it is not registered in ZooKeeper"
        if self.lease.is_in_doubt():
            return f"ZooKeeper has not answered for {self.lease.silent_seconds():.0f} s"
        return None

    def is_suspect(self, broker_id: int) -> bool:
        """A node that is still in the image, and seems to have died a moment ago."""
        return self._ports is not None and self._ports.is_suspect(broker_id)

    def departed(self) -> list[BrokerState]:
        """Nodes that left the image a moment ago."""
        return self._departed.nodes()

    def guards(self) -> list[Operation]:
        """What every write of this node checks: that its incarnation is current, and alive."""
        return [
            Check(znodes.epoch_path(self._broker_id), self._epoch),
            Check(znodes.broker_path(self._broker_id), ANY_VERSION),
        ]

    def next_token(self) -> str:
        """A token that no other write in the cluster has."""
        self._tokens += 1
        return f"{self._session_token}-{self._tokens}"

    # -- joining ----------------------------------------------------------------------

    async def join(self, *, is_suspect: bool) -> None:
        """Raises StartError if another node has this id, or the cluster is another one."""
        self._store = await self._open_session()
        self._ending.push_async_callback(_close, self._store)
        self._session_token = self._new_token()
        self._observer = Observer(self._store, self.image)
        self._observer.listeners.append(self._image_changed)
        self._controller = Controller(
            self._store,
            self._observer,
            broker_id=self._broker_id,
            clock=self._clock,
            token=self._session_token,
            policy=self._policy,
            on_written=lambda states: self.on_states_written(states),
        )
        self._ending.push_async_callback(self._observer.stop)
        self._ending.push_async_callback(self._controller.stop)
        try:
            await joining.check_not_older(
                self._store,
                self._broker_id,
                epoch=self._epoch,
                controller_epoch=self.image.controller_epoch,
            )
            self._cluster_id = await joining.enter_cluster(
                self._store, self._cluster_id, self._new_cluster_id, self._new_cluster_options
            )
            self.image.cluster_id = self._cluster_id
            await joining.check_level(self._store)
            self.secret = await joining.cluster_secret(self._store, self._new_secret)
            await joining.wait_for_predecessor(self._store, self._broker_id)
            self._epoch = await joining.raise_epoch(
                self._store, self._broker_id, self._session_token, is_suspect=is_suspect
            )
            self._is_ready.clear()
            await self._observer.start()
            self._controller.start()
            self._check_handled()
            await self._until_ready()
        except BaseException:
            await self._end_session()
            raise

    async def register(self, describe: Callable[[], BrokerState]) -> None:
        """Makes the node alive: others may elect it.

        `describe` is called again whenever the node has to register again.
        """
        self._describe = describe
        self._self_state = replace(describe(), epoch=self._epoch)
        data = znodes.encode_broker(self._self_state, self._clock.now_ms())
        path = znodes.broker_path(self._broker_id)
        check = Check(znodes.epoch_path(self._broker_id), self._epoch)
        try:
            await self._store.commit([check, Create(path, data, is_ephemeral=True)])
        except NotApplied as problem:
            raise StartError(
                f"node {self._broker_id} was started elsewhere at the same moment"
            ) from problem
        except UnknownOutcome:
            if not await self._is_registered(data):
                raise
        if not await self._beat():
            raise SessionEnded("the registration was lost at once")
        await self._observer.read_incarnations()
        # No await from here on: either all of it happens, or the session ends before or after.
        self.broker_epoch = self._epoch
        self.is_fenced = False
        ports = self._ports = PortWatch(self.image, self._broker_id, self._port_refuses)
        self._ending.push_async_callback(ports.stop)
        beating = asyncio.get_running_loop().create_task(self._keep_lease())
        self._ending.push_async_callback(_cancel, beating)
        self._observer.listeners.append(ports.image_changed)
        ports.start()
        log.info("node %d is registered, epoch=%d", self._broker_id, self._epoch)
        for listener in self._listeners:
            listener.active(self._epoch)
        self._store.on_end(lambda: self._fence("the ZooKeeper session has ended"))

    async def _is_registered(self, data: bytes) -> bool:
        await self._store.sync()
        try:
            return (await self._store.get(znodes.broker_path(self._broker_id))).data == data
        except NoNode:
            return False

    async def _until_ready(self) -> None:
        """Wait until the controller has seen this start. If there is none yet, there will be."""
        ended = asyncio.Event()
        self._store.on_end(ended.set)
        waiting = [
            asyncio.ensure_future(self._is_ready.wait()),
            asyncio.ensure_future(ended.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if ended.is_set():
            raise SessionEnded("the ZooKeeper session ended while the node was joining")

    # -- being a member -----------------------------------------------------------------

    def _image_changed(self, change: ImageChange) -> None:
        self._departed.image_changed(change)
        if change.has_incarnations:
            self._check_handled()
            self._check_epoch()
        if change.partitions or change.created:
            self._tell_log_ends_if_asked()
        for listener in self._listeners:
            tell(listener.image_changed, change, is_over=lambda: self._has_left)

    def _check_handled(self) -> None:
        if self.image.handled.get(self._broker_id) == self._epoch:
            self._is_ready.set()

    def _check_epoch(self) -> None:
        incarnation = self.image.incarnations.get(self._broker_id)
        if not self.is_fenced and incarnation is not None and incarnation.epoch != self._epoch:
            self._fence("another epoch of this node has begun")

    async def _keep_lease(self) -> None:
        """Send a small request often enough to know how long the session is safe."""
        while True:
            await asyncio.sleep(self._store.session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION)
            with contextlib.suppress(CoordinationFailed):
                if not await self._beat():
                    self._fence("its registration is gone")
                self._observer.poll()
                self._tell_log_ends_if_asked()
            others = self.image.brokers.keys() - {self._broker_id}
            if self.contact.is_lost(others=others):
                self._fence("neither ZooKeeper nor any other node is heard")

    async def _beat(self) -> bool:
        """Renews the lease; False if the node is no longer registered."""
        sent_at = self._clock.monotonic()
        if not await self._store.exists(znodes.broker_path(self._broker_id)):
            return False
        timeout_ms = self._store.session_timeout_ms
        self.lease.renew(sent_at=sent_at, session_timeout_ms=timeout_ms)
        return True

    def _fence(self, reason: str) -> None:
        if self.is_fenced or self._has_left:
            return
        log.error("node %d is fenced: %s", self._broker_id, reason)
        self.is_fenced = True
        self.broker_epoch = NO_BROKER_EPOCH
        self.lease.end()
        for listener in self._listeners:
            try:
                listener.fenced(reason)
            except Exception:
                # Nothing else would bring the node back.
                log.exception("not everything has heard that node %d is fenced", self._broker_id)
        self._rejoining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        assert self._describe is not None
        pause = _RETRY_SECONDS
        while True:
            try:
                await self._end_session()
                # The process has survived, and so has everything it wrote.
                await self.join(is_suspect=False)
                await self.register(self._describe)
                return
            except (CoordinationFailed, StartError, NotApplied) as error:
                log.warning("node %d cannot rejoin yet: %s", self._broker_id, error)
            except Exception:
                # For example, there is no descriptor or thread left now. Nothing else would bring
                # the node back.
                log.exception("node %d cannot rejoin yet", self._broker_id)
            self.is_fenced = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)

    async def _end_session(self) -> None:
        """Stop whatever belongs to the session, in reverse order. No effect without a session."""
        ending, self._ending = self._ending, contextlib.AsyncExitStack()
        await ending.aclose()

    # -- reporting log ends ---------------------------------------------------------------

    def lost_partitions(self) -> list[tuple[TopicPartition, int]]:
        """Partitions that can get a leader only by comparing logs, including this node's; and the
        leader epoch in which they have none."""
        return [
            (TopicPartition(topic.name, number), state.leader_epoch)
            for topic in self.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if self._broker_id in election.awaited_for_recovery(state)
        ]

    def _tell_log_ends_if_asked(self) -> None:
        if self.is_fenced or self._self_state is None or self._telling is not None:
            return
        published = self._self_state
        if all(published.log_end(*lost) is not None for lost in self.lost_partitions()):
            return
        self._telling = asyncio.get_running_loop().create_task(self._tell_log_ends())

    async def _tell_log_ends(self) -> None:
        assert self._describe is not None
        assert self._self_state is not None
        try:
            state = replace(self._self_state, log_ends=self._describe().log_ends)
            data = znodes.encode_broker(state, self._clock.now_ms())
            await self._store.commit(
                [*self.guards(), Put(znodes.broker_path(self._broker_id), data)]
            )
            self._self_state = state
        except (CoordinationFailed, NotApplied) as error:
            log.warning("cannot report the ends of this node's logs yet: %s", error)
        finally:
            self._telling = None

    # -- leaving ----------------------------------------------------------------------

    async def hand_over(self, *, seconds_max: float) -> bool:
        """Ask the controller to give this node's leaderships to others. True when it has.

        A partition without another in-sync replica stays here to the end.
        """
        if self.is_fenced or self._self_state is None:
            return False
        self._self_state = replace(self._self_state, is_stopping=True)
        data = znodes.encode_broker(self._self_state, self._clock.now_ms())
        released = asyncio.Event()

        def look(change: ImageChange) -> None:
            if not self._is_needed():
                released.set()

        try:
            await self._store.commit(
                [*self.guards(), Put(znodes.broker_path(self._broker_id), data)]
            )
            await self._observer.read_incarnations()
            self._observer.listeners.append(look)
            look(ImageChange())
            async with asyncio.timeout(seconds_max):
                await released.wait()
        except (CoordinationFailed, NotApplied, TimeoutError):
            return False
        finally:
            with contextlib.suppress(ValueError):
                self._observer.listeners.remove(look)
        return True

    def _is_needed(self) -> bool:
        """Whether this node is in an ISR whose other members are enough, and stay."""
        me = self._broker_id
        staying = {broker.id for broker in self.image.brokers.values() if not broker.is_stopping}
        return any(
            me in partition.isr and not staying.isdisjoint(partition.isr)
            for topic in self.image.topics.values()
            for partition in topic.partitions
        )

    async def leave(self) -> None:
        """End the session: other nodes see at once that this node is gone."""
        self._has_left = True
        self.is_fenced = True
        self.lease.end()
        for task in (self._rejoining, self._telling):
            if task is not None:
                await _cancel(task)
        await self._end_session()

    # -- for leaders --------------------------------------------------------------------

    async def change_isr(
        self,
        where: TopicPartition,
        state: PartitionState,
        isr: Sequence[int],
        epochs: Mapping[int, int],
    ) -> PartitionState:
        """Write another ISR; `epochs` has the broker epoch that each added replica fetched with.

        Raises Outdated if nothing was written, CoordinationFailed if the session is over.
        """
        topic = self.image.topics.get(where.topic)
        if self.is_fenced or topic is None or state.leader != self._broker_id:
            raise Outdated(str(where))
        token = self.next_token()
        after = replace(election.with_isr(state, isr), writer_token=token)
        if not self._policy.has_elr():
            after = election.without_elr(after)
        data = znodes.encode_partition(after, self.image.controller_epoch, topic.topic_id)
        path = znodes.partition_state_path(where.topic, where.partition)
        added = [replica for replica in after.isr if replica not in state.isr]
        operations = [
            *self.guards(),
            *(Check(znodes.epoch_path(replica), epochs[replica]) for replica in added),
            Put(path, data, state.version),
        ]
        try:
            *_, version = await self._store.commit(operations)
        except NotApplied as problem:
            with contextlib.suppress(CoordinationFailed):
                await self._observer.read_again([where])
            raise Outdated(f"{where}: {problem.path}") from problem
        except UnknownOutcome:
            version = await self._version_if_written(where, path, token)
        except SessionEnded:
            raise
        except CoordinationFailed as problem:
            # It was not sent, or refused. The session may go on, and this leadership with it; the
            # pause is for the leader, which tries again at the next fetch.
            await asyncio.sleep(_RETRY_SECONDS_MAX)
            raise Outdated(f"{where}: {problem}") from problem
        committed = replace(after, version=version)
        self._observer.enter_states({where: committed})
        return committed

    async def _version_if_written(self, where: TopicPartition, path: str, token: str) -> int:
        """Whether a write happened whose response was lost. Waits until that is known."""
        while True:
            try:
                await self._store.sync()
                node = await self._store.get(path)
                if znodes.writer_token(node) == token:
                    return node.version
                # It may have happened, and another may have followed: the leader must have that
                # one before it withdraws its proposal.
                await self._observer.read_again([where])
            except NoNode as problem:
                raise Outdated(path) from problem
            except SessionEnded:
                raise
            except CoordinationFailed:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            raise Outdated(path)

    # -- a closed port ------------------------------------------------------------------

    async def _port_refuses(self, broker_id: int, epoch: int, controller_version: int) -> None:
        """A node's process is dead, whatever its session says."""
        with contextlib.suppress(CoordinationFailed):
            if broker_id == self.image.controller_id:
                await self._controller.depose(
                    broker_id, epoch, epoch_version=controller_version, broker_epoch=self._epoch
                )
            await self._controller.fence(broker_id, epoch)


async def _close(store: Session) -> None:
    with contextlib.suppress(CoordinationFailed):
        await store.close()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
