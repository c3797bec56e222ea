"""The shards of one coordinator on this node: their partitions, loads and timers.

Wiring only: which shard a name belongs to, the partition under a shard, one timer per
shard. `coordinators/` decides what groups and transactions do.
`journal` refuses requests while a shard loads.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.cluster.changes import NewTopic
from millstream.cluster.state import NO_LEADER
from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.decision import ProducerEpoch, Ticket
from millstream.coordinators.journal import (
    Decide,
    LoggedBatch,
    Machine,
    Port,
    Shard,
    ShardStatus,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.builder import build_key_values
from millstream.records.control import EndTransactionMarker, read_end_marker
from millstream.records.records import iterate_records
from millstream.replication.partition import Partition
from millstream.wire.message import Message

log = logging.getLogger(__name__)

R = TypeVar("R")
M = TypeVar("M", bound=Message)
S = TypeVar("S")
C = TypeVar("C")
E = TypeVar("E")
_NO_PRODUCER: Final = ProducerEpoch(-1, -1)
_JAVA_INT_MAX: Final = 2**31 - 1
_JAVA_INT_MIN: Final = -(2**31)
# The hashes of longer names are not remembered.
_KNOWN_LENGTH_MAX: Final = 256
# Bytes read at a time in a replay: some milliseconds of decoding.
REPLAY_BYTES: Final = 64 << 10
_RETRY_SECONDS: Final = 0.2
# After a read error, such as too many open files. Each pause is twice as long as the one before.
_RELOAD_SECONDS: Final = 1.0
_RELOAD_SECONDS_MAX: Final = 60.0
# Kafka may have compressed old records; the limit for one decompressed batch.
_BATCH_BYTES_MAX: Final = 64 << 20


def java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 units; clients and tools rely on it."""
    # Clients may invent names of 32 KB.
    return _known_hash(text) if len(text) <= _KNOWN_LENGTH_MAX else _hash(text)


@lru_cache(maxsize=10_000)
def _known_hash(text: str) -> int:
    return _hash(text)


def _hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    # Java's integers are signed.
    return value - (1 << 32) if value > _JAVA_INT_MAX else value


def partition_for(name: str, partitions: int) -> int:
    """Kafka's placement of groups and transactional ids, so that adopted ones are found."""
    number = java_hash(name)
    # Java's smallest integer has no positive counterpart; Kafka uses 0 for it.
    return 0 if number == _JAVA_INT_MIN else abs(number) % partitions


class PartitionPort:
    """A shard's log is a partition of this node."""

    def __init__(self, node: NodeState, partition: Partition) -> None:
        self._node = node
        self._partition = partition
        # In which generation it was found that the node may write here.
        self._writable_in = -1

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def batch_bytes_max(self) -> int:
        return self._partition.log.config.max_message_bytes

    @property
    def has_lease(self) -> bool:
        return self._partition.has_lease

    def append(self, records: Sequence[KeyValue], transaction: ProducerEpoch | None) -> int:
        generation = self._node.partitions.generation.number
        if generation != self._writable_in:
            self._partition.require_committed_writes()
            self._writable_in = generation
        now_ms = self._node.clock.now_ms()
        producer = transaction or _NO_PRODUCER
        batch = build_key_values(
            records,
            timestamp_ms=now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=transaction is not None,
        )
        if len(batch) > self.batch_bytes_max:
            raise KafkaError(KafkaCode.MESSAGE_TOO_LARGE, f"a batch of {len(batch)} bytes")
        if transaction is not None:
            self._partition.log.producers.states.check_epoch(producer.producer_id, producer.epoch)
        appended = self._partition.append_as_coordinator(memoryview(batch), now_ms=now_ms)
        return appended.next_offset

    def append_marker(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        appended = self._partition.append_marker(
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            now_ms=self._node.clock.now_ms(),
        )
        return None if appended is None else appended.next_offset

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        return self._node.disk.durability.wait_if_needed(
            self._partition, next_offset, is_acks_all=True
        )

    def read(self, offset: int) -> tuple[list[LoggedBatch], int] | None:
        self._partition.require_readable()
        found = self._partition.read(offset, max_bytes=REPLAY_BYTES, at_least_one=True)
        if found is None:
            return None
        data = memoryview(found.read())
        batches: list[LoggedBatch] = []
        while len(data) >= HEADER_BYTES:
            batch = BatchView(data)
            if batch.size_bytes > len(data):
                break
            data = data[batch.size_bytes :]
            offset = batch.next_offset
            batches.append(_logged(batch))
        return batches, offset


class Elsewhere:
    """The port of a shard whose partition is on other nodes. It is never used."""

    start_offset = 0
    batch_bytes_max = 0
    has_lease = False

    def append(self, records: Sequence[KeyValue], transaction: ProducerEpoch | None) -> int:
        raise KafkaError(KafkaCode.NOT_COORDINATOR)

    def append_marker(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        raise KafkaError(KafkaCode.NOT_COORDINATOR)

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        raise KafkaError(KafkaCode.NOT_COORDINATOR)

    def read(self, offset: int) -> tuple[list[LoggedBatch], int] | None:
        raise KafkaError(KafkaCode.NOT_COORDINATOR)


def _logged(batch: BatchView) -> LoggedBatch:
    if batch.is_control:
        marker = read_end_marker(batch)
        return LoggedBatch([], batch.producer_id, None if marker is None else marker.type)
    records = [
        (record.key, record.value)
        for record in iterate_records(batch, limit_bytes=_BATCH_BYTES_MAX)
        if record.key is not None
    ]
    return LoggedBatch(records, batch.producer_id if batch.is_transactional else -1)


class Shards(Generic[S, C, E]):
    """One shard per partition of an internal topic."""

    def __init__(
        self,
        node: NodeState,
        topics: Topics,
        topic_name: str,
        topic: Callable[[], NewTopic],
        machine: Machine[S, C, E],
        env: Callable[[Ticket], E],
    ) -> None:
        """`topic` says how the topic is created."""
        self._node = node
        self._topics = topics
        self._topic_name = topic_name
        self._topic = topic
        self._machine = machine
        self._env = env
        self.all: list[Shard[S, C, E]] = []
        self._timers: dict[Shard[S, C, E], tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating = asyncio.Lock()
        # The last logged reason why the topic cannot be created: clients ask many times a second.
        self._logged_problem = ""
        self.on_committed: Callable[[Shard[S, C, E], str], None] = lambda shard, name: None

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Start replaying existing logs; until that is done, clients get a retriable error."""
        if self._topic_name in self._node.image.topics:
            self._open()
            self.spawn(self._load(self.all))

    def _open(self) -> None:
        """Create a shard for each partition. In a cluster, a shard opens when this node leads its
        partition; the others are closed, and clients find them on other nodes."""
        name = self._topic_name
        for index in range(len(self._node.image.topics[name].partitions)):
            partition = self._node.partitions.find(name, index)
            self.all.append(self._shard_of(name, index, partition))

    def _shard_of(self, name: str, index: int, partition: Partition | None) -> Shard[S, C, E]:
        port: Port = Elsewhere() if partition is None else PartitionPort(self._node, partition)
        shard = Shard(f"{name}-{index}", self._machine, port, self._env)
        shard.on_failure(self._load_again)
        shard.on_committed(lambda shard, name: self.on_committed(shard, name))
        if partition is None or not partition.is_leader:
            shard.close()
        return shard

    def leader_of(self, name: str) -> int:
        """The node that coordinates a name; -1 while there is none."""
        other = self.other_leader_of(name)
        return self._node.node_id if other is None else other

    def other_leader_of(self, name: str) -> int | None:
        """The node that coordinates a name, if it is not this one."""
        topic = self._node.image.topics.get(self._topic_name)
        if topic is None:
            return NO_LEADER
        index = partition_for(name, len(topic.partitions))
        return self._node.cluster.other_leader(topic.name, index)

    def topic_created(self, name: str) -> None:
        """Some node of the cluster has created the topic."""
        if name == self._topic_name and not self.all:
            self._open()

    def role_changed(self, partition: Partition) -> None:
        """This node now leads a partition, or no longer does: open or close its shard."""
        where = partition.topic_partition
        if where.topic != self._topic_name:
            return
        self.topic_created(where.topic)
        if where.partition >= len(self.all):
            # A node of a former version has added it. Names stay where they are.
            return
        old = self.all[where.partition]
        old.close()
        _, timer = self._timers.pop(old, (0.0, None))
        if timer is not None:
            timer.cancel()
        shard = self._shard_of(where.topic, where.partition, partition)
        self.all[where.partition] = shard
        if partition.is_leader:
            log.info("coordinating %s", shard.name)
            self.spawn(self._load([shard]))

    async def _load(self, shards: Sequence[Shard[S, C, E]], paused_seconds: float = 0.0) -> None:
        for shard in shards:
            if shard.status is not ShardStatus.LOADING:
                continue
            try:
                await self._until_readable(shard)
                await shard.load()
            except (KafkaError, ValueError, OSError) as error:
                log.error("cannot load %s: %s", shard.name, error)
                if _may_pass(error):
                    # Until then clients get COORDINATOR_LOAD_IN_PROGRESS, and retry.
                    self.spawn(self._load_later(shard, paused_seconds))
                else:
                    shard.close()
                continue
            self._arm(shard)

    async def _load_later(self, shard: Shard[S, C, E], paused_seconds: float) -> None:
        """Nobody else would: while this node leads the partition, its role does not change."""
        seconds = min(2 * paused_seconds or _RELOAD_SECONDS, _RELOAD_SECONDS_MAX)
        await asyncio.sleep(seconds)
        await self._load([shard], seconds)

    async def _until_readable(self, shard: Shard[S, C, E]) -> None:
        """Wait until everything in the log is committed, so that a replay misses nothing: records
        of a former leader, and those of this one from before it dropped the state."""
        name, _, index = shard.name.rpartition("-")
        partition = self._node.partitions.get(name, int(index))
        if not partition.is_replicated:
            return
        wait_if_needed = self._node.disk.durability.wait_if_needed
        end = partition.log.next_offset
        while (wait := wait_if_needed(partition, end, is_acks_all=True)) is not None:
            try:
                await wait
            except KafkaError as error:
                if error.code is not KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    def _load_again(self, shard: Shard[S, C, E]) -> None:
        self.spawn(self._load([shard]))

    async def stop(self) -> None:
        for shard in self.all:
            shard.close()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the internal topic -----------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the topic at the first request for a name."""
        async with self._creating:
            if self.all:
                return
            wanted = self._topic()
            [result] = await self._topics.create([wanted], validate_only=False)
            if result.error is not None and wanted.name not in self._node.image.topics:
                problem = f"cannot create {wanted.name} yet: {result.error}"
                if problem != self._logged_problem:
                    log.warning("%s", problem)
                    self._logged_problem = problem
                raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE, problem)
            if not self.all:
                self._open()
            # Empty logs that this node leads load at once, so no client has to retry.
            # The others load when this node starts to lead them.
            await self._load(self.all)

    @property
    def has_topic(self) -> bool:
        return bool(self.all) and not self._creating.locked()

    # -- requests ---------------------------------------------------------------------

    def shard_for(self, name: str) -> Shard[S, C, E]:
        """The shard of a name. Raises KafkaError where the topic does not exist yet."""
        if not self.all:
            raise KafkaError(KafkaCode.NOT_COORDINATOR)
        return self.all[partition_for(name, len(self.all))]

    def submit(self, name: str, decide: "Decide[S, E, R, C]") -> "R | asyncio.Future[R]":
        """The reply, or a future of it. Raises KafkaError if the answer is an error."""
        return self.submit_to(self.shard_for(name), name, decide)

    def submit_to(
        self, shard: Shard[S, C, E], name: str, decide: "Decide[S, E, R, C]"
    ) -> "R | asyncio.Future[R]":
        answer = shard.submit(name, decide)
        self._arm(shard)
        return answer

    def end_what_is_over(self, name: str) -> None:
        """Act on deadlines that have passed although their timer has not fired yet: requests that
        arrive in the same iteration of the loop are handled before its timers."""
        shard = self.shard_for(name)
        shard.deadlines_are_over(self._node.now_ms())
        self._arm(shard)

    def submit_internal(
        self, shard: Shard[S, C, E], name: str, decide: "Decide[S, E, None, C]"
    ) -> bool:
        """Make a decision that no client asked for, such as an expiry. False if it could not be
        written: the caller may try again."""
        is_written = shard.submit_internal(name, decide)
        self._arm(shard)
        return is_written

    async def active(self) -> list[Shard[S, C, E]]:
        """The shards of this node, once what they show is committed. Raises KafkaError while
        one loads."""
        shards = [shard for index, shard in enumerate(self.all) if self._leads(index)]
        for shard in shards:
            shard.require_active()
        waits = [wait for shard in shards if (wait := shard.wait_all()) is not None]
        if waits:
            await asyncio.gather(*waits)
        return shards

    def _leads(self, index: int) -> bool:
        partition = self._node.partitions.find(self._topic_name, index)
        return partition is not None and partition.is_leader

    # -- time -------------------------------------------------------------------------

    def _arm(self, shard: Shard[S, C, E]) -> None:
        """One timer per shard, for its next deadline."""
        next_ms = shard.deadlines.next_at_ms()
        armed = self._timers.get(shard)
        if next_ms is None or (armed is not None and armed[0] <= next_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay = max(next_ms / 1000 - self._node.clock.monotonic(), 0)
        timer = asyncio.get_running_loop().call_later(delay, self._ring, shard)
        self._timers[shard] = (next_ms, timer)

    def _ring(self, shard: Shard[S, C, E]) -> None:
        del self._timers[shard]
        # A loop timer may fire slightly early.
        shard.deadlines_are_over(self._node.now_ms() + 1)
        self._arm(shard)


def shown(
    answer: "R | asyncio.Future[R]",
    show: Callable[[R], M],
    refuse: Callable[[KafkaError], M],
) -> M | Coroutine[Any, Any, M]:
    """A reply as a message, now or when it is ready."""
    if isinstance(answer, asyncio.Future):
        return _show_later(answer, show, refuse)
    return show(answer)


async def _show_later(
    answer: "asyncio.Future[R]", show: Callable[[R], M], refuse: Callable[[KafkaError], M]
) -> M:
    try:
        return show(await answer)
    except KafkaError as error:
        return refuse(error)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) or (
        isinstance(error, KafkaError) and error.code is KafkaCode.KAFKA_STORAGE_ERROR
    )
