"""The transaction coordinator of this node, and the markers that end transactions.

Wiring only. `coordinators/transactions/` decides. Here a committed decision becomes markers
in partitions, and committed markers complete the transaction.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.creation_quota import CreationQuota
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.coordination.remote_transactions import ask_coordinator, write_markers
from millstream.broker.coordination.shards import Shards
from millstream.broker.network.client_turns import REST_SECONDS
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.changes import NewTopic
from millstream.cluster.state import NO_LEADER
from millstream.coordinators.codecs.transactions import Change, Partitions, StoredTransaction
from millstream.coordinators.decision import ProducerEpoch, Ticket
from millstream.coordinators.journal import Decide, ShardStatus
from millstream.coordinators.transactions import decisions
from millstream.coordinators.transactions import joint_commit as transaction_groups
from millstream.coordinators.transactions.decisions import EPOCH_PER_TRANSACTION
from millstream.coordinators.transactions.joint_commit import shard_name
from millstream.coordinators.transactions.machine import (
    TRANSACTIONS,
    TransactionShard,
    transaction_settings,
)
from millstream.coordinators.transactions.state import (
    PREPARED,
    Status,
    TransactionEnv,
    TransactionSettings,
    TransactionsState,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.replication.waiting import fail

log = logging.getLogger(__name__)

R = TypeVar("R")
TransactionDecide = Decide[TransactionsState, TransactionEnv, R, Change]
# For each partition: the leader epoch, and how many transactions of a producer have ended.
Markers = list[tuple[int, int]]
# A partition, and those of other nodes by leader and topic.
Place = tuple[str, int]
Others = dict[int, dict[str, list[int]]]
# If a partition cannot write a marker now (a full disk, say), it is retried after this.
MARKER_RETRY_SECONDS: Final = 1.0
# Markers that are written in one iteration of the loop: some milliseconds.
_MARKERS_AT_ONCE: Final = 100


class TransactionCoordinator:
    def __init__(
        self,
        node: NodeState,
        topics: Topics,
        producer_ids: ProducerIds,
        creations: CreationQuota,
        groups: Callable[[], GroupCoordinators],
    ) -> None:
        """`groups` gets the markers of transactions that commit offsets."""
        self._node = node
        self._producer_ids = producer_ids
        self._creations = creations
        self._groups = groups
        self.shards = Shards(node, topics, TRANSACTIONS_TOPIC, self._topic, TRANSACTIONS, self._env)
        self.shards.on_committed = self._write_markers
        self._settings: TransactionSettings | None = None
        self._settings_of: object = None
        # For markers, in this iteration of the loop; and who writes the next part of many.
        self._room = _MARKERS_AT_ONCE
        self._parts = asyncio.Lock()

    def start(self) -> None:
        self.shards.start()
        self.shards.spawn(self._forget_unused())

    async def stop(self) -> None:
        await self.shards.stop()

    async def ensure_topic(self) -> None:
        """Create the topic at the first request for a transactional id."""
        await self.shards.ensure_topic()

    @property
    def has_topic(self) -> bool:
        return self.shards.has_topic

    def _topic(self) -> NewTopic:
        config = self._node.config
        replicas = config.int("transaction.state.log.replication.factor")
        return NewTopic(
            TRANSACTIONS_TOPIC,
            config.int("transaction.state.log.num.partitions"),
            self._node.cluster.internal_replicas(replicas),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
                "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
            },
        )

    def _env(self, ticket: Ticket) -> TransactionEnv:
        node = self._node
        if self._settings is None or self._settings_of is not node.config:
            self._settings = transaction_settings(node.config)
            self._settings_of = node.config
        return TransactionEnv(
            node.clock.now_ms(), node.now_ms(), self._settings, ticket, self._producer_ids.take
        )

    # -- requests ---------------------------------------------------------------------

    def shard_for(self, transactional_id: str) -> TransactionShard:
        return self.shards.shard_for(shard_name(transactional_id))

    def admit(self, transactional_id: str, address: str) -> None:
        """Raises KafkaError where the id is new, and the address has begun too many; where it is
        not here, or not yet, nothing counts."""
        shard = self.shard_for(transactional_id)
        shard.require_active()
        if transactional_id not in shard.state.transactions:
            self._creations.admit(address, transactional_id, now_ms=self._node.now_ms())

    def submit(
        self, transactional_id: str, decide: "TransactionDecide[R]"
    ) -> "R | asyncio.Future[R]":
        """The reply, or a future of it. Raises KafkaError if the answer is an error."""
        return self.shards.submit(shard_name(transactional_id), decide)

    def add(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Partitions,
        *,
        client_version: int,
    ) -> "KafkaCode | asyncio.Future[KafkaCode]":
        """Add partitions to a transaction."""
        return self.submit(
            transactional_id,
            lambda state, env: decisions.add_partitions(
                state,
                transactional_id,
                producer,
                partitions,
                client_version=client_version,
                env=env,
            ),
        )

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Partitions
    ) -> "dict[tuple[str, int], KafkaCode] | asyncio.Future[dict[tuple[str, int], KafkaCode]]":
        return self.submit(
            transactional_id,
            lambda state, env: decisions.verify_partitions(
                state, transactional_id, producer, partitions
            ),
        )

    def _elsewhere(self, transactional_id: str) -> int | None:
        """The node that coordinates the id, if it is not this one."""
        leader = self.shards.other_leader_of(shard_name(transactional_id))
        return None if leader == NO_LEADER else leader

    def add_anywhere(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Partitions
    ) -> "object | asyncio.Future[Any]":
        """As `add`, for the first write to a partition, wherever the coordinator is."""
        coordinator = self._elsewhere(transactional_id)
        if coordinator is None:
            return self.add(
                transactional_id, producer, partitions, client_version=EPOCH_PER_TRANSACTION
            )
        peers = self._node.cluster.peers
        return ask_coordinator(
            peers, coordinator, transactional_id, producer, partitions, is_verified_only=False
        )

    def verify_anywhere(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Partitions
    ) -> "dict[tuple[str, int], KafkaCode] | asyncio.Future[dict[tuple[str, int], KafkaCode]]":
        coordinator = self._elsewhere(transactional_id)
        if coordinator is None:
            return self.verify(transactional_id, producer, partitions)
        peers = self._node.cluster.peers
        return ask_coordinator(
            peers, coordinator, transactional_id, producer, partitions, is_verified_only=True
        )

    def markers(self, producer: ProducerEpoch, partitions: Partitions) -> Markers:
        """What has ended the producer's transactions in partitions of this node, so far."""
        found: Markers = []
        for topic, indexes in partitions.items():
            for index in sorted(indexes):
                partition = self._node.partitions.find(topic, index)
                if partition is not None:
                    known = partition.log.producers.states.get(producer.producer_id)
                    count = 0 if known is None else known.markers
                    found.append((partition.leader_epoch, count))
        return found

    def check_open(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Partitions,
        *,
        before: Markers,
    ) -> None:
        """Raises KafkaError unless partitions are in a transaction that is open at this moment, for
        callers that have waited since they verified it.

        `before` are the `markers` from before they asked. A remote coordinator may have ended the
        transaction after it answered. Then its marker is here: a write after that would open a
        transaction that nothing ends, or become part of the producer's next one. If the partition
        or the coordinator has a new leader, nobody knows yet, and the client asks again.
        """
        if self._elsewhere(transactional_id) is not None:
            _compare_markers(before, self.markers(producer, partitions))
            return
        shard = self.shard_for(transactional_id)
        shard.require_active()
        try:
            found = decisions.verify_partitions(
                shard.state, transactional_id, producer, partitions
            ).reply
        except KafkaError as error:
            raise KafkaError(KafkaCode.TRANSACTION_ABORTABLE) from error
        if found is None or any(code is not KafkaCode.NONE for code in found.values()):
            raise KafkaError(KafkaCode.TRANSACTION_ABORTABLE)

    def check_current(self, transactional_id: str, producer: ProducerEpoch) -> None:
        """Raises KafkaError unless this is the newest producer with the id that this node
        knows."""
        if self._elsewhere(transactional_id) is not None:
            return
        shard = self.shard_for(transactional_id)
        shard.require_active()
        decisions.find(shard.state, transactional_id, producer)

    # -- markers ----------------------------------------------------------------------

    def _write_markers(self, shard: TransactionShard, transactional_id: str) -> None:
        """A transaction was decided, durably: write its markers, then complete it."""
        transaction = shard.state.transactions.get(transactional_id)
        if transaction is None or transaction.status not in PREPARED:
            return
        prepared = transaction.stored
        is_commit = prepared.status is Status.PREPARE_COMMIT
        marker = EndTransactionMarker(
            ControlType.COMMIT if is_commit else ControlType.ABORT, self._epoch_of(shard)
        )
        producer = ProducerEpoch(prepared.producer_id, prepared.producer_epoch)
        others: Others = {}
        places = [(topic, at) for topic, indexes in prepared.partitions.items() for at in indexes]
        here = self._here(places, others)
        if not self._has_room(len(here)):
            ended = _Ended(shard, transactional_id, prepared, marker, producer)
            self.shards.spawn(self._write_in_parts(ended, here, others))
            return
        waits = self._write_here(here, marker, producer)
        waits += self._write_elsewhere(others, marker, producer)
        if waits:
            self.shards.spawn(self._complete_later(shard, transactional_id, prepared, waits))
        else:
            self._complete(shard, transactional_id, prepared)

    def _here(self, places: Iterable[Place], others: Others) -> list[Place]:
        """Those that no other node leads; the rest is added to `others`."""
        here = []
        for topic, index in places:
            if (leader := self._node.cluster.other_leader(topic, index)) is not None:
                others.setdefault(leader, {}).setdefault(topic, []).append(index)
            else:
                here.append((topic, index))
        return here

    def _has_room(self, count: int) -> bool:
        """May so many markers be written in this iteration of the loop?"""
        if count > self._room:
            return False
        if self._room == _MARKERS_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._make_room)
        self._room -= count
        return True

    def _make_room(self) -> None:
        self._room = _MARKERS_AT_ONCE

    async def _write_in_parts(self, ended: "_Ended", here: list[Place], others: Others) -> None:
        """Transactions take turns: hundreds with a thousand partitions may expire together."""
        waits: list[asyncio.Future[None]] = []
        for start in range(0, len(here), _MARKERS_AT_ONCE):
            async with self._parts:
                await asyncio.sleep(REST_SECONDS if len(here) > _MARKERS_AT_ONCE else 0)
                if not ended.is_current():
                    return
                # What has moved meanwhile is not here any more, as if it were deleted.
                part = self._here(here[start : start + _MARKERS_AT_ONCE], others)
                waits += self._write_here(part, ended.marker, ended.producer)
        waits += self._write_elsewhere(others, ended.marker, ended.producer)
        await self._complete_later(ended.shard, ended.transactional_id, ended.prepared, waits)

    def _write_here(
        self, places: Iterable[Place], marker: EndTransactionMarker, producer: ProducerEpoch
    ) -> "list[asyncio.Future[None]]":
        """What to wait for. It fails if a partition cannot take its marker now; the others have
        theirs all the same."""
        waits = []
        for topic, index in places:
            try:
                wait = self.write_marker(topic, index, marker, producer)
            except KafkaError as error:
                if error.code is KafkaCode.INVALID_PRODUCER_EPOCH:
                    # A newer producer has written since: nothing of this one is open.
                    continue
                log.warning("no marker yet for %s-%d: %s", topic, index, error)
                wait = asyncio.get_running_loop().create_future()
                fail(wait, error)
            if wait is not None:
                waits.append(wait)
        return waits

    def _write_elsewhere(
        self,
        others: Others,
        marker: EndTransactionMarker,
        producer: ProducerEpoch,
    ) -> "list[asyncio.Future[None]]":
        peers = self._node.cluster.peers
        return [
            asyncio.ensure_future(write_markers(peers, leader, places, marker, producer))
            for leader, places in others.items()
        ]

    def _epoch_of(self, shard: TransactionShard) -> int:
        index = self.shards.all.index(shard)
        return self._node.partitions.get(TRANSACTIONS_TOPIC, index).leader_epoch

    def write_marker(
        self, topic: str, index: int, marker: EndTransactionMarker, producer: ProducerEpoch
    ) -> "asyncio.Future[None] | None":
        """End a transaction in one partition; what to wait for. Raises KafkaError."""
        node = self._node
        partition = node.partitions.find(topic, index)
        if partition is None:
            if node.image.partition(topic, index) is not None:
                raise KafkaError(
                    KafkaCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline on this node"
                )
            # Deleted, together with the records of the transaction.
            return None
        shards = self._groups().shards.all if topic == OFFSETS_TOPIC else []
        if index < len(shards):
            shards[index].end_transaction(marker, producer)
        else:
            partition.append_marker(
                marker,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                now_ms=node.clock.now_ms(),
            )
        return node.disk.durability.wait_if_needed(
            partition, partition.log.next_offset, is_acks_all=True
        )

    def _complete(
        self, shard: TransactionShard, transactional_id: str, prepared: StoredTransaction
    ) -> None:
        is_written = self.shards.submit_internal(
            shard,
            shard_name(transactional_id),
            lambda state, env: decisions.markers_are_written(
                state, transactional_id, prepared, env
            ),
        )
        if not is_written:
            log.warning("%s cannot be completed yet: too few replicas", transactional_id)
            self.shards.spawn(self._write_markers_later(shard, transactional_id))

    async def _complete_later(
        self,
        shard: TransactionShard,
        transactional_id: str,
        prepared: StoredTransaction,
        waits: "Iterable[asyncio.Future[None]]",
    ) -> None:
        try:
            await asyncio.gather(*waits)
        except KafkaError as error:
            # For a deleted topic the retry skips it; a dead disk has to wait for the next start.
            log.warning("markers of %s are not safe: %s", transactional_id, error)
            self._put_off(shard, transactional_id)
            return
        self._complete(shard, transactional_id, prepared)

    def _put_off(self, shard: TransactionShard, transactional_id: str) -> None:
        self.shards.submit_internal(
            shard,
            shard_name(transactional_id),
            lambda state, env: decisions.answer_waiting(state, transactional_id),
        )
        self.shards.spawn(self._write_markers_later(shard, transactional_id))

    async def _write_markers_later(self, shard: TransactionShard, transactional_id: str) -> None:
        await asyncio.sleep(MARKER_RETRY_SECONDS)
        # If the shard was closed or dropped, another one has read the decision from the log.
        if shard.status is ShardStatus.ACTIVE:
            self._write_markers(shard, transactional_id)

    # -- time -------------------------------------------------------------------------

    async def _forget_unused(self) -> None:
        interval = "transaction.remove.expired.transaction.cleanup.interval.ms"
        while True:
            await asyncio.sleep(self._node.config.int(interval) / 1000)
            for shard in self.shards.all:
                for name in list(shard.state.transactions):
                    self.shards.submit_internal(shard, shard_name(name), _expire(name))
                for group in list(shard.state.batches):
                    self.shards.submit_internal(shard, group, _expire_group(group))
                await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A transaction whose end is decided, and whose markers are being written."""

    shard: TransactionShard
    transactional_id: str
    prepared: StoredTransaction
    marker: EndTransactionMarker
    producer: ProducerEpoch

    def is_current(self) -> bool:
        """If the shard was closed or dropped, another one has read the decision from the log."""
        transaction = self.shard.state.transactions.get(self.transactional_id)
        is_active = self.shard.status is ShardStatus.ACTIVE
        return is_active and transaction is not None and transaction.stored is self.prepared


def _compare_markers(before: Markers, now: Markers) -> None:
    if [epoch for epoch, _ in now] != [epoch for epoch, _ in before]:
        raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE)
    if now != before:
        raise KafkaError(KafkaCode.TRANSACTION_ABORTABLE)


def _expire(name: str) -> "TransactionDecide[None]":
    return lambda state, env: decisions.expire(state, name, env)


def _expire_group(group: str) -> "TransactionDecide[None]":
    return lambda state, env: transaction_groups.expire_group(state, group, env)


async def wait_for(answer: "R | asyncio.Future[R]") -> R:
    return await answer if isinstance(answer, asyncio.Future) else answer


Answer = Coroutine[Any, Any, R]
