"""The controller: one node of the cluster keeps every partition led.

The nodes compete for `/controller`. The winner raises the controller epoch in the same
transaction and checks it in every write, so that the writes of a deposed controller fail
and it resigns. `election` decides from the image what to write. A write also checks the
epoch of every node it relies on: if one has restarted in between, the write fails, and the
node is not elected for data that it may have lost.

The work compares the actual state with the desired one, so it can be repeated: a new
controller completes what an old one left half done, without any handover.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.clock import Clock
from millstream.cluster import election, level, znodes
from millstream.cluster.election import Nodes
from millstream.cluster.incomplete_topics import remove_half_made
from millstream.cluster.joining import cluster_level
from millstream.cluster.leader_balance import LeaderBalance, returns
from millstream.cluster.observer import POSTPONED_SECONDS, ImageChange, Observer, log_failure
from millstream.cluster.state import (
    NO_LEADER,
    ClusterImage,
    Incarnation,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import (
    Check,
    CoordinationFailed,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NoNode,
    NotApplied,
    Operation,
    Put,
    SessionEnded,
)
from millstream.config import BrokerConfig, topic_config
from millstream.model import TopicId, TopicPartition

log = logging.getLogger(__name__)

# A transaction of this many is about 60 kB, far below ZooKeeper's megabyte.
PARTITIONS_PER_WRITE: Final = 200
# In flight together: ZooKeeper syncs them together, and no round trip waits for another.
WRITES_AT_ONCE: Final = 20
# Leaderships that return to their preferred replicas together, and the pause after them: clients
# of all these partitions look for their leaders at once.
RETURNS_AT_ONCE: Final = 100
_RETURN_PAUSE_SECONDS: Final = 0.5
# Elections of one write that are logged one by one.
_LOGGED_MAX: Final = 20
_RETRY_SECONDS: Final = 0.2
_CONFLICT_SECONDS: Final = 0.01
# After an error that nobody expected: it may come again at once, with its trace in the log.
_ERROR_SECONDS: Final = 1.0


# Called with the znodes of partitions as they are after a write.
OnWritten = Callable[[Mapping[TopicPartition, Node]], None]


@dataclass(frozen=True, slots=True)
class Policy:
    """`min_isr` of a topic by its options; `is_balanced` recovers without a person.

    `may_elect_uncleanly` prefers any leader to none; `has_elr` lets replicas lead that left an ISR
    which was too small to commit anything.
    """

    min_isr: Callable[[TopicState], int]
    is_balanced: Callable[[], bool]
    may_elect_uncleanly: Callable[[TopicState], bool]
    has_elr: Callable[[], bool]
    leader_balance: Callable[[], LeaderBalance]


def policy_of(config: Callable[[], BrokerConfig]) -> Policy:
    """By the options in force at the moment of each decision."""
    return Policy(
        min_isr=lambda topic: topic_config(config(), topic.overrides).int("min.insync.replicas"),
        is_balanced=lambda: config().string("millstream.recovery.strategy") == "balanced",
        may_elect_uncleanly=lambda topic: topic_config(config(), topic.overrides).boolean(
            "unclean.leader.election.enable"
        ),
        has_elr=lambda: config().boolean("eligible.leader.replicas.enable"),
        leader_balance=lambda: LeaderBalance(
            is_enabled=config().boolean("auto.leader.rebalance.enable"),
            check_seconds=config().int("leader.imbalance.check.interval.seconds"),
            percentage_max=config().int("leader.imbalance.per.broker.percentage"),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Change:
    where: TopicPartition
    topic_id: TopicId
    before: PartitionState
    after: PartitionState
    # The nodes that it relies on, in their epochs at the time of the decision. At the time of
    # the write the image may have a later start, which has lost what the decision relies on.
    trusted: tuple[tuple[int, int], ...]

    @property
    def has_new_replicas(self) -> bool:
        return self.before.replicas != self.after.replicas

    @property
    def has_same_leader(self) -> bool:
        return self.before.leader == self.after.leader


class Deposed(Exception):
    """Another node is the controller now."""


class Controller:
    """Runs on every node of a cluster, and works while this node holds `/controller`."""

    def __init__(
        self,
        store: CoordinationStore,
        observer: Observer,
        *,
        broker_id: int,
        clock: Clock,
        token: str,
        policy: Policy,
        on_written: OnWritten,
    ) -> None:
        """`on_written` is called with states that are committed, for other nodes to know soon."""
        self._on_written = on_written
        self._store = store
        self._observer = observer
        self._broker_id = broker_id
        self._token = token
        # What this session writes when it wins; the token distinguishes it from other sessions.
        self._office = znodes.encode_controller(broker_id, token, clock.now_ms())
        self._policy = policy
        self._is_due = asyncio.Event()
        # Partitions to check; None means all of them.
        self._due: set[TopicPartition] | None = None
        self._task: asyncio.Task[None] | None = None
        # Is it time to compare the leaders with the preferred ones?
        self._is_balance_due = False
        self._balance_timer: asyncio.TimerHandle | None = None
        # The controller epoch of this node's term, and the version to check it by.
        self._epoch = -1
        self._epoch_version = -1
        self._logged_lost: set[TopicPartition] = set()
        # Nodes whose end is being written. They count as dead already.
        self._being_fenced: set[int] = set()

    @property
    def is_controller(self) -> bool:
        return self._epoch_version >= 0

    def start(self) -> None:
        self._observer.listeners.append(self._image_changed)
        self._is_due.set()
        self._compare_leaders_later(self._policy.leader_balance().check_seconds)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(log_failure)

    async def stop(self) -> None:
        with contextlib.suppress(ValueError):
            self._observer.listeners.remove(self._image_changed)
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _image_changed(self, change: ImageChange) -> None:
        if not self.is_controller:
            if change.has_controller:
                self._is_due.set()
            return
        if change.brokers or change.has_incarnations or change.has_broker_configs:
            self._due = None
        elif self._due is not None:
            self._due.update(change.partitions)
            # A change that is told again may name topics that are gone.
            for name in self._image.topics.keys() & {*change.created, *change.configs}:
                count = len(self._image.topics[name].partitions)
                self._due.update(TopicPartition(name, number) for number in range(count))
        self._is_due.set()

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                if not self.is_controller:
                    await self._stand()
                if self.is_controller:
                    await self._supervise()
                if self.is_controller and self._is_balance_due:
                    await self._return_leaders()
            except SessionEnded:
                return
            except Deposed:
                self._resign()
            except (CoordinationFailed, NotApplied) as error:
                # NotApplied: something disappeared between two reads of it.
                log.debug("the controller has to wait: %s", error)
                await self._start_over(_RETRY_SECONDS)
            except Exception:
                # Without this task no partition gets a leader, as the node keeps its office.
                log.exception("the controller's work failed; it is tried again")
                await self._start_over(_ERROR_SECONDS)

    async def _start_over(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        self._due = None
        self._is_due.set()

    @property
    def _image(self) -> ClusterImage:
        return self._observer.image

    # -- becoming the controller ------------------------------------------------------

    async def _stand(self) -> None:
        """Become the controller, unless there is one."""
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        if not await self._store.exists(znodes.CONTROLLER):
            await self._take_office([], node.version, int(node.data) + 1)
        elif (await self._store.get(znodes.CONTROLLER)).data == self._office:
            # The response to this node's own election was lost.
            await self._begin_term(int(node.data), node.version)

    async def depose(
        self, broker_id: int, epoch: int, *, epoch_version: int, broker_epoch: int
    ) -> None:
        """Take over from a controller whose process is dead, without waiting for its session.

        `epoch` is its epoch when its port was found closed, which ends with that: the first
        decision of the new controller replaces it. `epoch_version` was read before its port was
        tried: if another node took over since, this fails, instead of deposing that one.
        `broker_epoch` is this node's.
        """
        if self.is_controller:
            return
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        if node.version != epoch_version or self._image.controller_id != broker_id:
            return
        if not self._is_among_a_minority(broker_id):
            log.warning(
                "the controller, node %d, may be dead; waiting for its session to expire", broker_id
            )
            return
        log.warning("node %d was the controller and is dead: taking over", broker_id)
        guards: list[Operation] = [
            Check(znodes.epoch_path(self._broker_id), broker_epoch),
            self._ending(broker_id, epoch),
            Delete(znodes.CONTROLLER),
        ]
        self._being_fenced.add(broker_id)
        try:
            if await self._take_office(guards, epoch_version, int(node.data) + 1):
                _log_dead(broker_id, epoch)
        except Deposed:
            self._resign()
        finally:
            self._being_fenced.discard(broker_id)
        self._is_due.set()

    async def _take_office(self, guards: list[Operation], version: int, epoch: int) -> bool:
        """False if another node was faster; the watch on that wakes this loop again."""
        try:
            *_, epoch_version = await self._store.commit(
                [
                    *guards,
                    Create(znodes.CONTROLLER, self._office, is_ephemeral=True),
                    Put(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version),
                ]
            )
        except NotApplied:
            return False
        await self._begin_term(epoch, epoch_version)
        return True

    async def _begin_term(self, epoch: int, epoch_version: int) -> None:
        self._epoch, self._epoch_version = epoch, epoch_version
        self._due = None
        log.info("this node is the controller, epoch=%d", epoch)
        # Nothing yet, but the connections are open when there is.
        self._on_written({})
        # The image is as old as the last hint that was followed. Hints arrive in the order of
        # the changes, so all from before this term have arrived.
        await self._observer.refresh()
        await remove_half_made(self._store, self._image, self._commit)

    def _resign(self) -> None:
        log.warning("another node is the controller now")
        self._epoch = self._epoch_version = -1
        self._is_due.set()

    async def _commit(self, operations: Sequence[Operation]) -> list[int]:
        """Raises Deposed, or NotApplied for the other reasons."""
        check = Check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        try:
            return (await self._store.commit([check, *operations]))[1:]
        except NotApplied as problem:
            if problem.operation == check:
                raise Deposed from problem
            raise

    # -- the work ---------------------------------------------------------------------

    async def _supervise(self) -> None:
        while True:
            due, self._due = self._due, set()
            try:
                # A restarted node may be in an ISR that was written just before and is not in the
                # image yet; the hint about it has arrived by now.
                await self._observer.refresh()
                # The decision covers only these. A node that starts in the meantime is next.
                started = dict(self._image.incarnations)
                is_whole = await self._repair(due)
            except BaseException:
                self._due = None
                raise
            if due is None and is_whole:
                await self._note_handled_if_sure(started)
                await self._raise_level()
            if self._due is not None and not self._due:
                return

    async def _repair(self, due: set[TopicPartition] | None) -> bool:
        """Write every change that is due; False if some of it has to be decided again."""
        # Partitions without a leader first: they serve nothing at all.
        changes = sorted(self._decide(due), key=lambda change: change.has_same_leader)
        is_whole = True
        at_once = PARTITIONS_PER_WRITE * WRITES_AT_ONCE
        for start in range(0, len(changes), at_once):
            is_whole = await self._write_all(changes[start : start + at_once]) and is_whole
        await self._recover(due)
        return is_whole

    async def _write_all(self, changes: Sequence[_Change]) -> bool:
        """In parts that are in flight together; False if some has to be decided again."""
        starts = range(0, len(changes), PARTITIONS_PER_WRITE)
        parts = [changes[start : start + PARTITIONS_PER_WRITE] for start in starts]
        outcomes = await asyncio.gather(*map(self._write, parts), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, NotApplied):
                raise outcome
        is_whole = True
        for part, problem in zip(parts, outcomes, strict=True):
            if isinstance(problem, NotApplied):
                await self._look_again(part, problem)
                is_whole = await self._repair_singly(part) and is_whole
        return is_whole

    async def _repair_singly(self, changes: Sequence[_Change]) -> bool:
        """One change that cannot be written must not keep the others without a leader."""
        is_whole = True
        for change in self._decide({change.where for change in changes}):
            try:
                await self._write([change])
            except NotApplied as problem:
                await self._look_again([change], problem)
                self._due = None
                is_whole = False
        if not is_whole:
            await asyncio.sleep(_CONFLICT_SECONDS)
        return is_whole

    async def _look_again(self, changes: Sequence[_Change], problem: NotApplied) -> None:
        """A leader changed an ISR, a node restarted, or a topic was deleted."""
        await self._observer.read_again([change.where for change in changes])
        for name in {change.where.topic for change in changes}:
            if problem.path == znodes.topic_path(name):
                await self._observer.read_topic(name)

    def _decide(self, due: set[TopicPartition] | None) -> list[_Change]:
        nodes = self._nodes()
        has_elr = self._policy.has_elr()
        changes = []
        for topic, numbers in self._places(due):
            wanted = self._policy.min_isr(topic)
            for number in numbers:
                before = topic.partitions[number]
                min_isr = min(wanted, _replicas_outside_moves(before))
                after = election.repaired(before, nodes, min_isr=min_isr) or before
                after = election.arrived(after, nodes) or after
                if after.elr and not has_elr:
                    after = election.without_elr(after)
                where = TopicPartition(topic.name, number)
                if after.leader == NO_LEADER:
                    after = self._with_any_leader(topic, where, before, after, nodes)
                if after is not before:
                    changes.append(self._change(where, topic.topic_id, before, after))
        return changes

    def _with_any_leader(
        self,
        topic: TopicState,
        where: TopicPartition,
        before: PartitionState,
        state: PartitionState,
        nodes: Nodes,
    ) -> PartitionState:
        """Led by a replica that may lack records, where the topic prefers that to no leader."""
        if not self._policy.may_elect_uncleanly(topic):
            return state
        elected = election.uncleanly_elected(state, nodes)
        if elected is None:
            return state
        log_unclean_election(where, before, elected)
        return elected

    def _change(
        self,
        where: TopicPartition,
        topic_id: TopicId,
        before: PartitionState,
        after: PartitionState,
    ) -> _Change:
        brokers = self._image.brokers
        trusted = {*after.isr, after.leader} & brokers.keys()
        epochs = tuple((broker_id, brokers[broker_id].epoch) for broker_id in sorted(trusted))
        return _Change(where, topic_id, before, after, epochs)

    def _places(
        self, due: set[TopicPartition] | None
    ) -> Iterator[tuple[TopicState, Iterable[int]]]:
        topics = self._image.topics
        if due is None:
            for topic in list(topics.values()):
                yield topic, range(len(topic.partitions))
            return
        for where in sorted(due):
            found = topics.get(where.topic)
            if found is not None and where.partition < len(found.partitions):
                yield found, (where.partition,)

    def _nodes(self) -> Nodes:
        image = self._image
        return Nodes(
            live=image.brokers.keys(),
            stopping={broker.id for broker in image.brokers.values() if broker.is_stopping},
            suspects={
                broker_id
                for broker_id, incarnation in image.incarnations.items()
                if incarnation.is_suspect and not self._is_handled(broker_id)
            },
        )

    def _is_handled(self, broker_id: int) -> bool:
        return self._image.handled.get(broker_id) == self._image.incarnations[broker_id].epoch

    async def _write(self, changes: Sequence[_Change]) -> None:
        self._check_topics(changes)
        trusted = {each for change in changes for each in change.trusted}
        operations: list[Operation] = [
            Check(znodes.epoch_path(broker_id), epoch) for broker_id, epoch in sorted(trusted)
        ]
        operations += self._topic_writes(changes)
        puts = []
        for change in changes:
            topic = self._image.topics[change.where.topic]
            state = replace(change.after, writer_token=self._token)
            data = znodes.encode_partition(state, self._epoch, topic.topic_id)
            path = znodes.partition_state_path(topic.name, change.where.partition)
            puts.append(Put(path, data, change.before.version))
        # The watches fire before the commit returns.
        self._observer.postpone([change.where for change in changes])
        versions = (await self._commit([*operations, *puts]))[len(operations) :]
        self._on_written(
            {
                change.where: Node(put.data, version)
                for change, put, version in zip(changes, puts, versions, strict=True)
            }
        )
        written = {
            change.where: replace(change.after, writer_token=self._token, version=version)
            for change, version in zip(changes, versions, strict=True)
        }
        self._observer.enter_states(written)
        _log_leaders([change for change in changes if not change.has_same_leader])

    def _check_topics(self, changes: Sequence[_Change]) -> None:
        """Since the decision, while others were written, a topic may have gone, and another one may
        have its name. Raises NoNode, as the store does where that is not in the image yet."""
        for change in changes:
            topic = self._image.topics.get(change.where.topic)
            if topic is None or topic.topic_id != change.topic_id:
                raise NoNode(znodes.topic_path(change.where.topic))

    def _topic_writes(self, changes: Sequence[_Change]) -> list[Operation]:
        """When a reassignment is complete, the topic's znode gets the new replicas."""
        writes: list[Operation] = []
        for name in sorted({c.where.topic for c in changes if c.has_new_replicas}):
            topic = self._image.topics[name]
            partitions = list(topic.partitions)
            for change in changes:
                if change.where.topic == name:
                    partitions[change.where.partition] = change.after
            data = znodes.encode_topic(TopicState(name, topic.topic_id, partitions))
            writes.append(Put(znodes.topic_path(name), data, self._observer.topic_version(name)))
        return writes

    async def _raise_level(self) -> None:
        """Move to newer formats between nodes, once every node knows them."""
        topics = self._image.topics.values()
        hosts = {
            replica for topic in topics for one in topic.partitions for replica in one.replicas
        }
        known = {broker.id: broker.level for broker in self._image.brokers.values()}
        before = await cluster_level(self._store)
        after = level.raised(before, known=known, needed=hosts)
        if after is None:
            return
        data = znodes.encode_level(after)
        write: Operation = Create(znodes.LEVEL, data)
        if await self._store.exists(znodes.LEVEL):
            write = Put(znodes.LEVEL, data)
        await self._commit([write])
        log.info("every node knows level %d: the cluster is at it from now on", after)

    async def _note_handled_if_sure(self, started: Mapping[int, Incarnation]) -> None:
        """Not while states are not read whose watches have fired: an ISR may have changed."""
        handled = self._image.handled
        if all(handled.get(each) == one.epoch for each, one in started.items()):
            return
        if self._observer.has_postponed:
            asyncio.get_running_loop().call_later(POSTPONED_SECONDS, self._look_at_all)
        else:
            await self._note_handled(started)

    def _look_at_all(self) -> None:
        self._due = None
        self._is_due.set()

    async def _note_handled(self, started: Mapping[int, Incarnation]) -> None:
        """Restarted nodes are in no ISR any more: they may register."""
        for broker_id, incarnation in sorted(started.items()):
            if self._image.handled.get(broker_id) == incarnation.epoch:
                continue
            path, data = znodes.handled_path(broker_id), str(incarnation.epoch).encode()
            operation: Operation = Create(path, data)
            if await self._store.exists(path):
                operation = Put(path, data)
            check = Check(znodes.epoch_path(broker_id), incarnation.epoch)
            try:
                await self._commit([check, operation])
            except NotApplied:
                # It has restarted once more in the meantime.
                self._due = None
                continue
            log.info("node %d is out of every ISR, epoch=%d", broker_id, incarnation.epoch)
            await self._observer.read_incarnations()
        # What they were creating or deleting when they stopped.
        await remove_half_made(self._store, self._image, self._commit)

    # -- preferred leaders --------------------------------------------------------------

    def _compare_leaders_later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._balance_timer = loop.call_later(seconds, self._compare_leaders)

    def _compare_leaders(self) -> None:
        self._is_balance_due = self._policy.leader_balance().is_enabled
        self._is_due.set()
        self._compare_leaders_later(self._policy.leader_balance().check_seconds)

    async def _return_leaders(self) -> None:
        """Return some leaderships to the preferred replicas, and the rest after a pause."""
        self._is_balance_due = False
        limit = self._policy.leader_balance().percentage_max
        found = returns(self._image.topics.values(), self._nodes(), percentage_max=limit)
        if not found:
            return
        topics = self._image.topics
        some = [
            self._change(one.where, topics[one.where.topic].topic_id, one.before, one.after)
            for one in found[:RETURNS_AT_ONCE]
        ]
        log.info(
            "%d partitions are not led by their preferred replicas: returning %d of them",
            len(found),
            len(some),
        )
        try:
            await self._write(some)
        except NotApplied as problem:
            # A leader changed an ISR in this moment. The next check sees it.
            await self._look_again(some, problem)
        if len(found) > len(some):
            asyncio.get_running_loop().call_later(_RETURN_PAUSE_SECONDS, self._return_more)

    def _return_more(self) -> None:
        self._is_balance_due = True
        self._is_due.set()

    # -- when no replica is left ----------------------------------------------------------

    async def _recover(self, due: set[TopicPartition] | None) -> None:
        """Partitions whose every candidate may have lost data."""
        for topic, numbers in self._places(due):
            for number in numbers:
                state = topic.partitions[number]
                awaited = election.awaited_for_recovery(state)
                if awaited:
                    where = TopicPartition(topic.name, number)
                    await self._recover_one(where, topic.topic_id, state, awaited)

    async def _recover_one(
        self,
        where: TopicPartition,
        topic_id: TopicId,
        state: PartitionState,
        awaited: tuple[int, ...],
    ) -> None:
        if not self._policy.is_balanced() or not set(awaited) <= self._image.brokers.keys():
            if where not in self._logged_lost:
                self._logged_lost.add(where)
                log.error("%s has no leader: data may be lost on nodes %s", where, awaited)
            return
        ends = {}
        for broker_id in awaited:
            end = self._image.brokers[broker_id].log_end(where, state.leader_epoch)
            if end is None:
                # It publishes its log ends as soon as it sees that they are needed.
                return
            ends[broker_id] = end
        after = election.recovered(state, ends)
        log.error(
            "%s: possible data loss: no replica is known to be whole, node %d has the longest log",
            where,
            after.leader,
        )
        self._logged_lost.discard(where)
        try:
            await self._write([self._change(where, topic_id, state, after)])
        except NotApplied:
            self._due = None

    # -- fencing ----------------------------------------------------------------------

    async def fence(self, broker_id: int, epoch: int) -> None:
        """A process is dead although its session lives: its epoch ends, and others replace it.

        `epoch` is its epoch when its port was found closed.
        """
        broker = self._image.brokers.get(broker_id)
        if not self.is_controller or broker is None or broker.epoch != epoch:
            return
        if broker_id in self._being_fenced:
            return
        if not self._is_among_a_minority(broker_id):
            log.warning("node %d may be dead; waiting for its session to expire", broker_id)
            return
        # Counted before the write: no other call may come to another conclusion meanwhile.
        self._being_fenced.add(broker_id)
        try:
            await self._end_epoch(broker_id, epoch)
        finally:
            self._being_fenced.discard(broker_id)

    def _is_among_a_minority(self, broker_id: int) -> bool:
        """Whether only a minority of the nodes is dead, with this one.

        If most ports are closed, the problem is more likely on this node.
        """
        registered = self._observer.registered
        dead = registered - self._image.brokers.keys() | self._being_fenced | {broker_id}
        return len(dead) <= (len(registered) - 1) // 2

    def _ending(self, broker_id: int, epoch: int) -> Put:
        """Fails if the node has started again since."""
        data = znodes.encode_incarnation(self._token, is_suspect=False)
        return Put(znodes.epoch_path(broker_id), data, epoch)

    async def _end_epoch(self, broker_id: int, epoch: int) -> None:
        try:
            await self._commit([self._ending(broker_id, epoch)])
        except NotApplied:
            return
        except Deposed:
            self._resign()
            return
        _log_dead(broker_id, epoch)
        await self._observer.read_incarnations()


def _replicas_outside_moves(state: PartitionState) -> int:
    """Without a move, all; during one, as many as before or after it, whichever is fewer. If those
    that a move adds were required in sync, nothing would be committed until they are."""
    return min(len(election.target_replicas(state)), len(election.original_replicas(state)))


def log_unclean_election(
    where: TopicPartition, before: PartitionState, elected: PartitionState
) -> None:
    in_sync = [*before.isr, *before.elr, *before.last_known_elr]
    log.error(
        "%s: unclean election: node %d leads, epoch=%d; %s led before, and in sync last were nodes"
        " %s. Records that the new leader had not fetched are lost",
        where,
        elected.leader,
        elected.leader_epoch,
        "no node" if before.leader == NO_LEADER else f"node {before.leader}",
        in_sync or "unknown",
    )


def _log_dead(broker_id: int, epoch: int) -> None:
    log.warning("node %d is dead: its port refuses, epoch=%d is over", broker_id, epoch)


def _log_leaders(changes: Sequence[_Change]) -> None:
    # The nodes log what they lead; a thousand lines here would delay them.
    level = logging.INFO if len(changes) <= _LOGGED_MAX else logging.DEBUG
    if level is logging.DEBUG:
        log.info("elected leaders of %d partitions", len(changes))
    for change in changes:
        log.log(
            level,
            "%s leader=%d epoch=%d isr=%s",
            change.where,
            change.after.leader,
            change.after.leader_epoch,
            change.after.isr,
        )
