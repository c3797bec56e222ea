"""The clients of a simulation: producers with and without transactions, groups, readers.

They do what real clients do: look for the leader, repeat what was not answered, give up when they
are fenced. `checks` gets what they know.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.client.aio import NoAnswer
from millstream.cluster.state import NO_LEADER
from millstream.coordinators.classic.protocol import JoinRequest, SyncRequest
from millstream.coordinators.codecs.changes import CommittedOffset
from millstream.coordinators.codecs.embedded import encode_subscription
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.groups.offsets import CommitRequest
from millstream.errors import KafkaCode, KafkaError
from millstream.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.wire.apis.end_txn import EndTxnRequest
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from millstream.wire.offset_commit import OffsetToCommit
from tests.simulation.checks import Transaction
from tests.simulation.store import (
    DATA_PARTITIONS,
    DATA_TOPIC,
    NODES,
    READ_PARTITIONS,
    READ_TOPIC,
    TOPIC_IDS,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

PATIENCE_MS = 400
TRANSACTION_MS = 900
# Transactional ids, and the version of transactions that their clients speak.
PRODUCERS = {"t0": 1, "t1": 2, "t2": 1}
SESSION_MS = 400
REBALANCE_MS = 600
_OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
_TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)
_FENCED = frozenset(
    {
        KafkaCode.PRODUCER_FENCED,
        KafkaCode.INVALID_PRODUCER_EPOCH,
        KafkaCode.INVALID_PRODUCER_ID_MAPPING,
        KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_RETRIABLE = frozenset(
    {
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.NOT_COORDINATOR,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.NOT_ENOUGH_REPLICAS,
        KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaCode.CONCURRENT_TRANSACTIONS,
        KafkaCode.UNSTABLE_OFFSET_COMMIT,
        KafkaCode.NETWORK_EXCEPTION,
    }
)


class Fenced(Exception):
    """Another producer has the id: this one ends."""


class Abort(Exception):
    """The transaction cannot be committed."""


def start_clients(world: "World") -> None:
    for name, version in PRODUCERS.items():
        world.client_loop.create_task(_owners_of(world, name, version))
    world.client_loop.create_task(_write_plainly(world))
    for number in range(3):
        world.client_loop.create_task(_members(world, f"c{number}", _be_classic_member))
        world.client_loop.create_task(_members(world, f"n{number}", _be_new_member))
    world.client_loop.create_task(_read(world))
    world.client_loop.create_task(_audit(world))


async def _pause(world: "World", mean_ms: float) -> None:
    await asyncio.sleep(world.random.expovariate(1 / mean_ms) / 1000)


async def _ask(
    world: "World",
    where: TopicPartition,
    what: str,
    *arguments: object,
    patience_ms: float = PATIENCE_MS,
    is_dropped_late: bool = False,
) -> Any:
    """At the leader, as far as a client knows. Raises KafkaError and NoAnswer."""
    leader = world.store.states[where].leader
    if leader == NO_LEADER or world.random.random() < 0.03:
        leader = world.random.choice(NODES)
    return await world.ask(
        -1,
        leader,
        what,
        *arguments,
        loop=world.client_loop,
        patience_ms=patience_ms,
        is_dropped_late=is_dropped_late,
    )


# -- producers ------------------------------------------------------------------------


async def _owners_of(world: "World", name: str, version: int) -> None:
    """New owners of a transactional id, one after the other, while the one before may live on."""
    while not world.is_closing:
        owner = TransactionalProducer(world, name, version)
        task = world.client_loop.create_task(owner.run())
        await _pause(world, 1_500)
        if world.random.random() < 0.5:
            task.cancel()


class TransactionalProducer:
    def __init__(self, world: "World", name: str, version: int) -> None:
        self._world = world
        self._name = name
        # 1: announces partitions; 2: gets an epoch with every transaction.
        self._version = version
        self.producer = ProducerEpoch(-1, -1)
        self._sequences: dict[int, int] = {}
        # A batch was sent, and it is not known whether it was written.
        self._is_unresolved = False

    async def run(self) -> None:
        world = self._world
        try:
            await self.take_over(None)
            while not world.is_closing:
                await self._transaction()
                await _pause(world, 30)
        except Fenced:
            world.checks.count("fenced")

    async def take_over(self, current: ProducerEpoch | None) -> None:
        sent_ms = self._world._time
        given = await self._insist(
            _TRANSACTIONS, "init_producer", self._name, TRANSACTION_MS, current
        )
        self._take(ProducerEpoch(given.producer_id, given.epoch))
        if current is None:
            self._world.checks.gave_epoch(self._name, self._key, sent_ms)

    def _take(self, producer: ProducerEpoch) -> None:
        if producer != self.producer:
            self.producer, self._sequences = producer, {}

    @property
    def _key(self) -> tuple[int, int]:
        return self.producer.producer_id, self.producer.epoch

    async def _insist(self, where: TopicPartition, what: str, *arguments: object) -> Any:
        """Repeat until it is answered."""
        while True:
            try:
                return await _ask(self._world, where, what, *arguments)
            except NoAnswer:
                pass
            except KafkaError as error:
                if error.code in _FENCED:
                    raise Fenced from error
                if error.code not in _RETRIABLE:
                    raise Abort(error.code.name) from error
            await _pause(self._world, 15)

    async def handled(self, where: TopicPartition, version: int, body: Any) -> Any:
        """As `_insist`, for handlers, whose answers carry the code."""
        while True:
            try:
                answer = await _ask(
                    self._world,
                    where,
                    "handle_transaction",
                    version,
                    body,
                    # Before version 2, nothing tells the end of one transaction from that of the
                    # next: a request that arrives that late ends the wrong one, with Kafka, too.
                    is_dropped_late=self._version == 1 and isinstance(body, EndTxnRequest),
                )
            except (NoAnswer, KafkaError):
                await _pause(self._world, 15)
                continue
            code = _code(answer)
            if code is KafkaCode.NONE:
                return answer
            if code in _FENCED:
                raise Fenced
            if code not in _RETRIABLE:
                raise Abort(code.name)
            await _pause(self._world, 15)

    async def _transaction(self) -> None:
        world, random = self._world, self._world.random
        transaction = world.checks.begins(self._name)
        is_commit = random.random() < 0.7
        try:
            for _ in range(random.randint(1, 4)):
                await self._write(transaction, random.randrange(DATA_PARTITIONS))
                if random.random() < 0.05:
                    # Longer than the coordinator allows.
                    await _pause(world, TRANSACTION_MS)
            if random.random() < 0.5:
                await self._commit_offset(transaction)
        except Abort:
            is_commit = False
        await self._end(transaction, is_commit=is_commit)

    async def _write(self, transaction: Transaction, index: int) -> None:
        where = TopicPartition(DATA_TOPIC, index)
        value = f"{transaction.number}.{len(transaction.values)}".encode()
        sequence = self._sequences.get(index, 0)
        if self._version == 1:
            await self.announce(index)
        self._world.checks.writes(transaction, value)
        data = batch_of(self._world, value, self.producer, sequence, is_transactional=True)
        version = 12 if self._version == 2 else 11
        self._is_unresolved = True
        given = (where, self._name, data, version)
        if self._world.random.random() < 0.15:
            # The application does not wait: it aborts with the batch in flight.
            patience_ms = self._world.random.expovariate(1 / 30)
            try:
                await _ask(self._world, where, "produce", *given, patience_ms=patience_ms)
            except (NoAnswer, KafkaError) as error:
                raise Abort("in flight") from error
        else:
            await self._insist(where, "produce", *given)
        self._is_unresolved = False
        self._sequences[index] = sequence + 1

    async def announce(self, index: int) -> None:
        await self.handled(
            _TRANSACTIONS,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self.producer.producer_id,
                v3_and_below_producer_epoch=self.producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=DATA_TOPIC, partitions=[index])],
            ),
        )

    async def _commit_offset(self, transaction: Transaction) -> None:
        group = f"of-{self._name}"
        producer = self.producer
        if self._version == 1:
            await self.handled(
                _TRANSACTIONS,
                3,
                AddOffsetsToTxnRequest(
                    transactional_id=self._name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    group_id=group,
                ),
            )
        transaction.has_offset = True
        await self.handled(
            _OFFSETS,
            5 if self._version == 2 else 4,
            TxnOffsetCommitRequest(
                transactional_id=self._name,
                group_id=group,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[
                    TxnOffsetCommitTopic(
                        name=READ_TOPIC,
                        partitions=[
                            TxnOffsetCommitPartition(
                                partition_index=0,
                                committed_offset=transaction.number,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            ),
        )

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        transaction.is_commit = is_commit
        world, producer = self._world, self.producer
        sent_ms = world._time
        body = EndTxnRequest(
            transactional_id=self._name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        try:
            answer = await self.handled(_TRANSACTIONS, 5 if self._version == 2 else 4, body)
        except Abort:
            # The outcome is unknown: the coordinator may have aborted it for its time.
            await self._again(producer)
            return
        world.checks.ended(transaction, self._key, sent_ms)
        if self._version == 2:
            self._take(ProducerEpoch(answer.producer_id, answer.producer_epoch))
        elif self._is_unresolved:
            # Sequence numbers start over in a new epoch (KIP-360).
            await self._again(producer)
        self._is_unresolved = False

    async def _again(self, producer: ProducerEpoch) -> None:
        try:
            await self.take_over(producer)
        except Abort:
            raise Fenced from None


def batch_of(
    world: "World", value: bytes, producer: ProducerEpoch, sequence: int, *, is_transactional: bool
) -> bytes:
    record = Record(offset=0, timestamp_ms=world.now_ms, key=None, value=value)
    return bytes(
        build_batch(
            [record],
            base_offset=0,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


async def _write_plainly(world: "World") -> None:
    """An idempotent producer without transactions."""
    where = TopicPartition(DATA_TOPIC, 0)
    producer = ProducerEpoch(1_000_000, 0)
    number = 0
    while not world.is_closing:
        value = f"plain {number}".encode()
        data = batch_of(world, value, producer, number, is_transactional=False)
        world.checks.writes_plainly(value, is_acknowledged=False)
        while True:
            try:
                await _ask(world, where, "produce", where, None, data, 12)
                break
            except (NoAnswer, KafkaError):
                await _pause(world, 15)
        world.checks.writes_plainly(value, is_acknowledged=True)
        number += 1
        await _pause(world, 25)


def _code(answer: Any) -> KafkaCode:
    """The first code in the answer of a handler."""
    for field in ("error_code",):
        if getattr(answer, field, KafkaCode.NONE):
            return KafkaCode(answer.error_code)
    for topic in getattr(answer, "topics", None) or ():
        for partition in topic.partitions:
            if partition.error_code:
                return KafkaCode(partition.error_code)
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for result in topic.results_by_partition:
            if result.partition_error_code:
                return KafkaCode(result.partition_error_code)
    return KafkaCode.NONE


# -- readers --------------------------------------------------------------------------


async def _read(world: "World") -> None:
    while not world.is_closing:
        for index in range(DATA_PARTITIONS):
            where = TopicPartition(DATA_TOPIC, index)
            for node in world.nodes.values():
                partition = node.is_running and node.partitions.find(DATA_TOPIC, index)
                if partition and partition.is_leader and node.broker_epoch >= 0:
                    world.checks.read(where, node.logs[where])
        await _pause(world, 60)


async def _audit(world: "World") -> None:
    """Fetch the offsets of all groups again and again, and once more at the end."""
    is_last = False
    while not is_last:
        is_last = world.is_closing and world._time > world.end_of_clients_ms
        for group in ("classic", "new"):
            await _fetch_offsets(world, group, is_last)
        await _pause(world, 60)
    for name in PRODUCERS:
        found = await _offsets(world, f"of-{name}")
        world.checks.settled_offsets[name] = found.get(0)


async def _fetch_offsets(world: "World", group: str, is_last: bool) -> None:
    sent_ms = world._time
    try:
        found = await _offsets(world, group, tries=None if is_last else 1)
    except (KafkaError, NoAnswer):
        return
    for partition, value in found.items():
        world.checks.fetched(group, partition, value, sent_ms)


async def _offsets(world: "World", group: str, tries: int | None = None) -> dict[int, int | None]:
    while True:
        try:
            [topic], is_current = await _ask(
                world, _OFFSETS, "fetch_offsets", group, READ_TOPIC, list(range(READ_PARTITIONS))
            )
        except (KafkaError, NoAnswer):
            if tries == 1:
                raise
            await _pause(world, 20)
            continue
        if not is_current or any(isinstance(value, KafkaCode) for _, value in topic.partitions):
            if tries == 1:
                return {}
            await _pause(world, 20)
            continue
        return {
            partition: value.offset if isinstance(value, CommittedOffset) else None
            for partition, value in topic.partitions
        }


# -- groups ---------------------------------------------------------------------------


async def _members(world: "World", name: str, be_member: Any) -> None:
    """Members of a group, one after the other."""
    number = 0
    while not world.is_closing:
        number += 1
        task = world.client_loop.create_task(be_member(world, f"{name}-{number}"))
        await _pause(world, 1_500)
        # It dies without a word.
        task.cancel()
        world.checks.forget_member(f"{name}-{number}")
        await _pause(world, 200)


async def _commit(
    world: "World", group: str, member_id: str, generation: int, partition: int
) -> None:
    world.last_commit += 1
    commit = world.checks.commits(group, partition, world.last_commit, generation)
    request = CommitRequest(
        group_id=group,
        member_id=member_id,
        instance_id=None,
        generation=generation,
        topics=[(READ_TOPIC, [OffsetToCommit(partition, commit.value, -1, "")])],
    )
    [[code]] = await _ask(world, _OFFSETS, "commit", request)
    if code is KafkaCode.NONE:
        world.checks.acknowledged(group, partition, commit)


async def _be_classic_member(world: "World", name: str) -> None:
    member_id = ""
    while not world.is_closing:
        try:
            member_id = await _one_generation(world, name, member_id)
        except NoAnswer:
            pass
        except KafkaError as error:
            if error.code in (KafkaCode.UNKNOWN_MEMBER_ID, KafkaCode.FENCED_INSTANCE_ID):
                member_id = ""
        await _pause(world, 10)


async def _one_generation(world: "World", name: str, member_id: str) -> str:
    joined = await _ask(
        world,
        _OFFSETS,
        "join",
        JoinRequest(
            group_id="classic",
            member_id=member_id,
            instance_id=None,
            client_id=name,
            client_host="/",
            protocol_type="consumer",
            protocols=(("range", encode_subscription((READ_TOPIC,))),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        ),
    )
    if joined.code is KafkaCode.MEMBER_ID_REQUIRED:
        return str(joined.member_id)
    if joined.code is not KafkaCode.NONE:
        raise KafkaError(joined.code)
    member_id, generation = joined.member_id, joined.generation
    assignments = {}
    members = [each.member_id for each in joined.members]
    for number, member in enumerate(members):
        assignments[member] = bytes(range(number, READ_PARTITIONS, len(members)))
    answer = await _ask(
        world,
        _OFFSETS,
        "sync",
        "classic",
        SyncRequest(member_id, None, generation, "consumer", "range", assignments),
    )
    if answer.code is not KafkaCode.NONE:
        raise KafkaError(answer.code)
    partitions = list(answer.assignment)
    world.checks.assigned("classic", generation, member_id, partitions)
    while not world.is_closing:
        code = await _ask(world, _OFFSETS, "heartbeat", "classic", member_id, generation)
        if code is not KafkaCode.NONE:
            raise KafkaError(code)
        for partition in partitions:
            await _commit(world, "classic", member_id, generation, partition)
        await _pause(world, 40)
    return str(member_id)


async def _be_new_member(world: "World", name: str) -> None:
    """Of the consumer protocol (KIP-848)."""
    epoch, owned = 0, []
    until_ms = 0.0
    while not world.is_closing:
        is_joining = epoch == 0
        request = HeartbeatRequest(
            group_id="new",
            member_id=name,
            epoch=epoch,
            client_id=name,
            client_host="/",
            rebalance_timeout_ms=REBALANCE_MS,
            topics=(READ_TOPIC,),
            owned={} if is_joining or not owned else {TOPIC_IDS[READ_TOPIC]: tuple(owned)},
        )
        sent_ms = world._time
        try:
            # Nothing tells one join from the next: one that arrives that late makes the member give
            # up what it owns without being told, with Kafka, too.
            answer = await _ask(
                world, _OFFSETS, "consumer_heartbeat", request, is_dropped_late=is_joining
            )
            until_ms = sent_ms + SESSION_MS
            epoch = answer.epoch
            if answer.assignment is not None:
                owned = list(answer.assignment.get(TOPIC_IDS[READ_TOPIC], ()))
            if world._time < until_ms:
                world.checks.holds("new", name, owned, until_ms)
                for partition in owned:
                    await _commit(world, "new", name, epoch, partition)
        except NoAnswer:
            pass
        except KafkaError as error:
            if error.code in (KafkaCode.UNKNOWN_MEMBER_ID, KafkaCode.FENCED_MEMBER_EPOCH):
                epoch, owned = 0, []
                world.checks.forget_member(name)
        if world._time >= until_ms and epoch:
            # Without an answer for a session, it has lost what it owned.
            epoch, owned = 0, []
            world.checks.forget_member(name)
        await _pause(world, 40)
