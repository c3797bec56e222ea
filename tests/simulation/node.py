"""One node of the simulation: real partitions, real coordinators, real handlers, over simulated
logs, clocks and connections.

What the broker does around them is done here without sockets: roles from the store's state,
followers' fetches, proposals for the ISR, requests of clients and of other nodes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.creation_quota import CreationQuota
from millstream.broker.coordination.transactions import TransactionCoordinator, wait_for
from millstream.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    txn_offset_commit,
    write_txn_markers,
)
from millstream.broker.requests import verification
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Item, Turns
from millstream.client.aio import NoAnswer
from millstream.config import load_config
from millstream.coordinators.classic.protocol import JoinRequest, SyncRequest
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.decision import Env, ProducerEpoch, Ticket
from millstream.coordinators.groups import offsets, requests
from millstream.coordinators.groups.machine import GROUPS
from millstream.coordinators.groups.offsets import CommitRequest
from millstream.coordinators.transactions.decisions import InitRequest, init_producer
from millstream.errors import KafkaCode, KafkaError
from millstream.model import OFFSETS_TOPIC, TopicPartition
from millstream.records.batch import BatchView
from millstream.replication.admission import WriteTerms
from millstream.replication.following import BackOff, CutBack, FetchAnswer, Ignore, TakeRecords
from millstream.replication.isr import IsrChange
from millstream.replication.isr_proposer import IsrProposer
from millstream.replication.leadership import Divergence
from millstream.replication.node import Node as PartitionsNode
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role
from millstream.replication.table import PartitionTable
from millstream.replication.waiting import fail
from millstream.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from millstream.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from millstream.wire.fetch import FetchPartition, FetchResult
from tests.simulation.log import SimulatedLog
from tests.simulation.store import TOPIC_IDS, Seen, places

if TYPE_CHECKING:
    from tests.simulation.world import World

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
LAG_MS = 250
FETCH_TIMEOUT_MS = 120
LOOK_EVERY_MS = 40
LEASE_MS = 260
CONFIG = load_config(
    sets=[
        "group.min.session.timeout.ms=100",
        "group.consumer.min.session.timeout.ms=100",
        "group.consumer.session.timeout.ms=400",
        "group.consumer.min.heartbeat.interval.ms=10",
        "group.consumer.heartbeat.interval.ms=60",
        "group.initial.rebalance.delay.ms=30",
    ]
)


class Unhurried(Turns):
    """Does not look at the clock: a seed decides everything."""

    async def each(self, request: Request, items: Iterable[Item]) -> AsyncIterator[Item]:
        for item in items:
            yield item


class Permissions:
    """Everyone may do everything."""

    def require(self, *what: object) -> None:
        return None

    def denial(self, *what: object) -> None:
        return None

    def allows_cluster(self, *what: object) -> bool:
        return True


class Clock:
    def __init__(self, world: "World") -> None:
        self._world = world

    def now_ms(self) -> int:
        return 1_000_000 + self._world.now_ms

    def monotonic(self) -> float:
        return self._world.now_ms / 1000


class Durability:
    """When records are safe: as `ClusterCommit` decides it, without its thread."""

    def wait_if_needed(
        self, partition: ReplicatedPartition, next_offset: int, *, is_acks_all: bool
    ) -> "asyncio.Future[None] | None":
        if partition.leader is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            fail(future, KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER))
            return future
        return partition.leader.wait_committed(next_offset)


class ProducerIds:
    def __init__(self, world: "World", node: "Node") -> None:
        self._world = world
        self._node = node
        self._ids: list[int] = []

    async def ensure(self) -> None:
        while not self._ids:
            if self._world.reaches_store(self._node):
                self._ids += self._world.store.take_producer_ids()
            else:
                await asyncio.sleep(0.05)

    def take(self) -> int:
        return self._ids.pop(0)


class Peers:
    def __init__(self, world: "World", node: "Node") -> None:
        self._world = world
        self._node = node

    async def ask(
        self, broker_id: int, request: object, version: int, *, timeout_seconds: float
    ) -> Any:
        if broker_id < 0:
            raise NoAnswer("no leader")
        return await self._world.ask(
            self._node.id, broker_id, "serve_peer", request, version, loop=self._node.loop
        )


class SeededGroups(GroupCoordinators):
    """Ids of members come from the seed, too."""

    world: "World"

    def _env(self, ticket: Ticket) -> Env:
        random = self.world.random
        return replace(super()._env(ticket), new_uuid=lambda: UUID(int=random.getrandbits(128)))


class Node:
    def __init__(self, world: "World", node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.logs = {where: SimulatedLog(where) for where in places()}
        # On the disk: data may be lost, until the controller knows.
        self.is_suspect = False
        self.is_running = False
        # Distinguishes runs of the process: what was begun in an older one never arrives.
        self.run = 0
        self.broker_epoch = -1
        self.loop = world.new_loop()
        self.heard_ms = 0

    # -- life -------------------------------------------------------------------------

    def start(self) -> None:
        world = self.world
        self.is_running = True
        self.run += 1
        self.loop = world.new_loop()
        self.broker_epoch = -1
        self.seen = -1
        self.alive: Mapping[int, int] = {}
        self.asked: dict[TopicPartition, int] = {}
        self.loop.run(self._wire)
        world.begin_registration(self)

    def _wire(self) -> None:
        world = self.world
        self.partitions = PartitionTable()
        for where, log in self.logs.items():
            log.recover(world.random)
            self.partitions.add(self._partition(where, log))
        self.state: Any = SimpleNamespace(
            node_id=self.id,
            clock=Clock(world),
            now_ms=lambda: world.now_ms,
            image=world.store.image(),
            config=CONFIG,
            partitions=self.partitions,
            disk=SimpleNamespace(durability=Durability()),
            cluster=SimpleNamespace(
                other_leader=self._other_leader,
                internal_replicas=lambda wanted: wanted,
                peers=Peers(world, self),
            ),
        )
        self.producer_ids = ProducerIds(world, self)
        topics: Any = SimpleNamespace(version=1)
        quota = CreationQuota()
        self.groups = SeededGroups(self.state, topics, quota, GROUPS)
        self.groups.world = world
        self.transactions = TransactionCoordinator(
            self.state, topics, self.producer_ids, quota, lambda: self.groups
        )
        self.groups.shards.start()
        self.transactions.shards.start()
        self.proposer = IsrProposer(
            self._write_isr,
            alive=lambda: self.alive,
            has_lease=self._has_lease,
            lag_ms_max=lambda: LAG_MS,
            clock=self.state.clock,
        )
        self.loop.call_later(LOOK_EVERY_MS / 1000, self._look_after_isr)

    def _partition(self, where: TopicPartition, log: SimulatedLog) -> ReplicatedPartition:
        return ReplicatedPartition(
            where,
            TOPIC_IDS[where.topic],
            log,  # type: ignore[arg-type]
            high_watermark=log.high_watermark,
            node=PartitionsNode(
                broker_id=self.id,
                generation=self.partitions.generation,
                has_lease=self._has_lease,
                wait_synced=self._wait_synced,
                on_disk_failure=lambda reason: None,
                may_cut=lambda where, offset: True,
                was_cut=lambda where: None,
                on_doubt=lambda where, offset: None,
            ),
        )

    def end(self, *, power: bool) -> None:
        self.is_running = False
        self.run += 1
        self.broker_epoch = -1
        self.loop.is_alive = False
        if power:
            self.is_suspect = True
            for log in self.logs.values():
                log.lose_power(self.world.random)

    def session_is_over(self) -> None:
        """Every role ends; the process registers again."""
        self.broker_epoch = -1
        for partition in self._replicated():
            partition.stand_by()
            self._report(partition)
        self.world.begin_registration(self)

    def _has_lease(self) -> bool:
        return self.world.now_ms - self.heard_ms < LEASE_MS

    def _replicated(self) -> list[ReplicatedPartition]:
        return [each for each in self.partitions if isinstance(each, ReplicatedPartition)]

    def _wait_synced(self, partition: Partition, offset: int) -> "asyncio.Future[None] | None":
        log = self.logs[partition.topic_partition]
        if log.synced_offset >= offset:
            return None
        future = self.loop.create_future()

        def synced() -> None:
            log.sync()
            if not future.done():
                future.set_result(None)

        self.loop.call_later(0.002, synced)
        return future

    # -- roles ------------------------------------------------------------------------

    def registered(self, broker_epoch: int, seen: Seen) -> None:
        self.broker_epoch = broker_epoch
        self.is_suspect = False
        self.heard_ms = self.world.now_ms
        # What was read before may still show a leadership of the incarnation before.
        self.seen = -1
        self.see(seen)

    def see(self, seen: Seen) -> None:
        if seen.number > self.seen:
            self.seen, self.alive = seen.number, seen.alive
        for where, state in seen.states.items():
            held = self.state.image.topics[where.topic].partitions
            if state.version > held[where.partition].version or self.broker_epoch < 0:
                held[where.partition] = state
            if self.broker_epoch >= 0:
                self._give_role(where, Role.of(held[where.partition]))

    def _give_role(self, where: TopicPartition, role: Role) -> None:
        partition = self.partitions.get(where.topic, where.partition)
        assert isinstance(partition, ReplicatedPartition)
        before = (partition.leader_id, partition.leader_epoch)
        is_new_leader = role.leader_id == self.id and before != (self.id, role.leader_epoch)
        if is_new_leader and role.version > partition.role.version:
            self.world.checks.became_leader(self.id, where, self.logs[where], role.leader_epoch)
        partition.apply(role, now_ms=self.world.now_ms)
        if (partition.leader_id, partition.leader_epoch) == before:
            return
        if partition.next_fetch() is not None:
            self._fetch(where)
        self._report(partition)

    def _report(self, partition: ReplicatedPartition) -> None:
        self.groups.shards.role_changed(partition)
        self.transactions.shards.role_changed(partition)

    def _other_leader(self, topic: str, index: int) -> int | None:
        state = self.state.image.partition(topic, index)
        return None if state is None or state.leader == self.id else state.leader

    # -- following --------------------------------------------------------------------

    def _fetch(self, where: TopicPartition) -> None:
        partition = self.partitions.get(where.topic, where.partition)
        assert isinstance(partition, ReplicatedPartition)
        position = partition.next_fetch()
        if position is None:
            return
        number = self.asked[where] = self.asked.get(where, 0) + 1
        log = self.logs[where]
        asked = FetchPartition(
            where.partition,
            position.offset,
            1 << 20,
            position.leader_epoch,
            position.last_epoch,
            log.log_start_offset,
        )
        target = position.leader_id
        self.world.send(
            self.id, target, "answer_fetch", where, self.id, self.broker_epoch, asked, position
        )
        self.loop.call_later(FETCH_TIMEOUT_MS / 1000, self._fetch_again, where, number)

    def _fetch_again(self, where: TopicPartition, number: int) -> None:
        if self.asked.get(where) == number:
            self._fetch(where)

    def take_fetched(
        self, where: TopicPartition, position: Any, answer: FetchAnswer, records: bytes
    ) -> None:
        partition = self.partitions.get(where.topic, where.partition)
        assert isinstance(partition, ReplicatedPartition)
        step = partition.take_fetched(position, answer, memoryview(records))
        if isinstance(step, Ignore):
            return
        # The timer of the request that is answered must not fetch once more.
        self.asked[where] = self.asked.get(where, 0) + 1
        # Most of what a run would do at its end is to ask for records that are not there.
        delay_ms = 60 if self.world.is_settling else 12
        if isinstance(step, BackOff):
            delay_ms = 20
        elif isinstance(step, CutBack) or (isinstance(step, TakeRecords) and records):
            delay_ms = 1
        self.loop.call_later(delay_ms / 1000, self._fetch_again, where, self.asked[where])

    # -- leading ----------------------------------------------------------------------

    def answer_fetch(
        self, where: TopicPartition, follower: int, epoch: int, asked: FetchPartition, position: Any
    ) -> None:
        partition = self.partitions.get(where.topic, where.partition)
        assert isinstance(partition, ReplicatedPartition)
        result = FetchResult(where.partition)
        records = b""
        log = self.logs[where]
        try:
            partition.require_leader().answer(
                follower,
                epoch,
                asked,
                result,
                max_bytes=self.world.batches_per_fetch(),
                now_ms=self.world.now_ms,
            )
            records = b"" if result.records is None else result.records.read()  # type: ignore[attr-defined]
        except KafkaError as error:
            result = FetchResult(where.partition, code=error.code)
        self.world.checks.committed(self.id, where, log, partition.leader_epoch)
        diverging = None
        if result.diverging_offset >= 0:
            diverging = Divergence(result.diverging_epoch, result.diverging_offset)
        answer = FetchAnswer(
            KafkaCode(result.code),
            result.high_watermark,
            result.log_start_offset,
            len(records),
            diverging,
        )
        self.world.send(self.id, follower, "take_fetched", where, position, answer, records)

    def _look_after_isr(self) -> None:
        self.loop.call_later(LOOK_EVERY_MS / 1000, self._look_after_isr)
        if self.broker_epoch < 0:
            return
        for partition in self._replicated():
            self.proposer.look_at(partition)
            where = partition.topic_partition
            if partition.leader is not None:
                log, epoch = self.logs[where], partition.leader_epoch
                self.world.checks.committed(self.id, where, log, epoch)

    async def _write_isr(self, where: TopicPartition, change: IsrChange) -> Role:
        return Role.of(await self.world.change_isr(self, where, change))

    # -- requests ---------------------------------------------------------------------

    async def serve(self, what: str, *arguments: Any) -> object:
        if self.broker_epoch < 0:
            raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        return await getattr(self, what)(*arguments)

    async def serve_peer(self, request: Any, version: int) -> object:
        given = _request(version)
        permissions: Any = Permissions()
        if isinstance(request, WriteTxnMarkersRequest):
            return await write_txn_markers.handle(
                self.state, self.transactions, Unhurried(), permissions, given, request
            )
        assert isinstance(request, AddPartitionsToTxnRequest)
        return await add_partitions_to_txn.handle(
            self.state, self.transactions, Unhurried(), permissions, given, request
        )

    async def produce(
        self, where: TopicPartition, name: str | None, data: bytes, version: int
    ) -> int:
        """The offset after the batch."""
        partition = self.partitions.get(where.topic, where.partition)
        assert isinstance(partition, ReplicatedPartition)
        buffer = memoryview(bytearray(data))
        if name is not None:
            body: Any = SimpleNamespace(
                transactional_id=name,
                topics=[SimpleNamespace(name=where.topic, partitions=[(where.partition, buffer)])],
            )
            found = verification.check_produce(self.state, self.transactions, version, body)
            refused = found if isinstance(found, dict) else await found
            if refused:
                raise next(iter(refused.values()))
        terms: Any = WriteTerms(
            self.partitions.generation.number,
            partition.standing().committed_write,
            None,
            None,  # type: ignore[arg-type]
            False,
        )
        appended = partition.append(BatchView(buffer), terms, now_ms=self.world.now_ms)
        self.world.checks.appended(self.id, where, partition.leader_epoch)
        wait = self.state.disk.durability.wait_if_needed(
            partition, appended.next_offset, is_acks_all=True
        )
        if wait is not None:
            await wait
        return appended.next_offset

    async def init_producer(self, name: str, timeout_ms: int, current: ProducerEpoch | None) -> Any:
        await self.producer_ids.ensure()
        wanted = InitRequest(name, timeout_ms, current)
        return await wait_for(
            self.transactions.submit(name, lambda state, env: init_producer(state, wanted, env))
        )

    async def handle_transaction(self, version: int, body: Any) -> Any:
        """A request of a transactional producer, by the real handler."""
        permissions: Any = Permissions()
        given = _request(version)
        kind = type(body).__name__
        if kind == "EndTxnRequest":
            return await end_txn.handle(
                self.transactions,
                self.producer_ids,
                permissions,
                given,
                body,  # type: ignore[arg-type]
            )
        if kind == "TxnOffsetCommitRequest":
            return await txn_offset_commit.handle(
                self.state, self.groups, self.transactions, Unhurried(), permissions, given, body
            )
        if kind == "AddPartitionsToTxnRequest":
            return await add_partitions_to_txn.handle(
                self.state, self.transactions, Unhurried(), permissions, given, body
            )
        answer = add_offsets_to_txn.handle(self.groups, self.transactions, permissions, given, body)
        return await answer if asyncio.iscoroutine(answer) else answer

    async def join(self, request: JoinRequest) -> Any:
        self.groups.shards.end_what_is_over(request.group_id)
        return await wait_for(
            self.groups.submit(
                request.group_id, lambda state, env: requests.join(state, request, env)
            )
        )

    async def sync(self, group_id: str, request: SyncRequest) -> Any:
        return await wait_for(
            self.groups.submit(
                group_id, lambda state, env: requests.sync(state, group_id, request, env)
            )
        )

    async def heartbeat(self, group_id: str, member_id: str, generation: int) -> Any:
        return await wait_for(
            self.groups.submit(
                group_id,
                lambda state, env: requests.heartbeat(
                    state,
                    group_id,
                    member_id=member_id,
                    instance_id=None,
                    generation=generation,
                    env=env,
                ),
            )
        )

    async def consumer_heartbeat(self, request: HeartbeatRequest) -> Any:
        return await wait_for(
            self.groups.submit(
                request.group_id,
                lambda state, env: requests.consumer_heartbeat(state, request, env),
            )
        )

    async def commit(self, request: CommitRequest) -> Any:
        return await wait_for(
            self.groups.submit(
                request.group_id, lambda state, env: offsets.commit(state, request, env)
            )
        )

    async def fetch_offsets(self, group_id: str, topic: str, partitions: list[int]) -> Any:
        """The offsets, and whether this node still is the coordinator."""
        found = await wait_for(
            self.groups.submit(
                group_id,
                lambda state, env: offsets.fetch(
                    state,
                    group_id,
                    topics=[(topic, partitions)],
                    member_id=None,
                    member_epoch=-1,
                    require_stable=True,
                ),
            )
        )
        is_current = self.world.store.states[OFFSETS].leader == self.id
        self.world.checks.answered(self.id, is_current=is_current, has_lease=self._has_lease())
        return found, is_current


def _request(version: int) -> Any:
    """A request of another node, or of a client: here both may do the same."""
    return SimpleNamespace(
        version=version,
        client_host="/client",
        connection=SimpleNamespace(proved_node_id=1, client="client"),
        is_long=False,
    )
