"""The group coordinator of this node: its shards, their logs, their clocks.

Wiring only: which shard a group belongs to, the partition under a shard, one timer per
shard, and the round that forgets old offsets. What groups do is in `coordinators/`.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from millstream.cluster.changes import NewTopic
from millstream.coordinators import admin, offsets
from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.decision import Decision, Env, Ticket
from millstream.coordinators.journal import Decide, Shard, ShardStatus
from millstream.coordinators.settings import GroupSettings, group_settings
from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.records.builder import build_batch
from millstream.records.records import Record, iterate_records
from millstream.replication.partition import Partition
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

log = logging.getLogger(__name__)

R = TypeVar("R")
OFFSETS_TOPIC: Final = "__consumer_offsets"
# Read at a time in a replay: some milliseconds of decoding.
REPLAY_BYTES: Final = 64 << 10
# Old records may be compressed by Kafka; what one batch may become.
_BATCH_BYTES_MAX: Final = 64 << 20


def java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 units; clients and tools count on it."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def partition_for(group_id: str, partitions: int) -> int:
    return (java_hash(group_id) & 0x7FFFFFFF) % partitions


class PartitionPort:
    """A shard's log is a partition of this node."""

    def __init__(self, broker: "Broker", partition: Partition) -> None:
        self._broker = broker
        self._partition = partition

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    def append(self, records: Sequence[KeyValue]) -> int:
        now_ms = self._broker.clock.now_ms()
        batch = build_batch(
            [Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)],
            base_offset=0,
        )
        if len(batch) > self._partition.log.config.max_message_bytes:
            raise KafkaError(KafkaCode.MESSAGE_TOO_LARGE, f"a batch of {len(batch)} bytes")
        appended = self._partition.append_as_coordinator(memoryview(batch), now_ms=now_ms)
        return appended.next_offset

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        return self._broker.durability.wait_if_needed(
            self._partition, next_offset, is_acks_all=True
        )

    def read(self, offset: int) -> tuple[list[KeyValue], int] | None:
        found = self._partition.read(offset, max_bytes=REPLAY_BYTES, at_least_one=True)
        if found is None:
            return None
        data = memoryview(self._partition.log.read_bytes(found))
        records: list[KeyValue] = []
        while len(data) >= HEADER_BYTES:
            batch = BatchView(data)
            if batch.size_bytes > len(data):
                break
            data = data[batch.size_bytes :]
            offset = batch.next_offset
            if not batch.is_control:
                records += [
                    (record.key, record.value)
                    for record in iterate_records(batch, limit_bytes=_BATCH_BYTES_MAX)
                    if record.key is not None
                ]
        return records, offset


class GroupCoordinators:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._shards: list[Shard] = []
        self._timers: dict[Shard, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating = asyncio.Lock()
        self._settings: GroupSettings | None = None
        self._settings_of: object = None

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Begin to replay what is there; until it is read, clients are told to wait."""
        if OFFSETS_TOPIC in self._broker.image.topics:
            self._open_shards()
            self._spawn(self._load(self._shards))
        self._spawn(self._forget_old_offsets())

    def _open_shards(self) -> None:
        for index in sorted(self._broker.partitions.of_topic(OFFSETS_TOPIC)):
            partition = self._broker.partitions.get(OFFSETS_TOPIC, index)
            shard = Shard(
                str(partition.topic_partition), PartitionPort(self._broker, partition), self._env
            )
            shard.on_failure(self._load_again)
            self._shards.append(shard)

    async def _load(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            try:
                await shard.load()
            except (KafkaError, ValueError, OSError) as error:
                log.error("cannot load %s: %s", shard.name, error)
                shard.close()
                continue
            self._arm(shard)

    def _load_again(self, shard: Shard) -> None:
        self._spawn(self._load([shard]))

    async def stop(self) -> None:
        for shard in self._shards:
            shard.close()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the internal topic -----------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the offsets topic when the first group is looked for."""
        async with self._creating:
            if self._shards:
                return
            config = self._broker.config
            replicas = config.int("offsets.topic.replication.factor")
            wanted = NewTopic(
                OFFSETS_TOPIC,
                config.int("offsets.topic.num.partitions"),
                min(replicas, len(self._broker.image.brokers)),
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
                },
            )
            [result] = await self._broker.topics.create([wanted], validate_only=False)
            if result.error is not None:
                log.error("cannot create %s: %s", OFFSETS_TOPIC, result.error)
                raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE, str(result.error))
            self._open_shards()
            # Empty logs are loaded at once: no client need try again.
            await self._load(self._shards)

    @property
    def has_topic(self) -> bool:
        return bool(self._shards) and not self._creating.locked()

    # -- requests ---------------------------------------------------------------------

    @property
    def settings(self) -> GroupSettings:
        config = self._broker.config
        if self._settings is None or self._settings_of is not config:
            self._settings = group_settings(config, nodes=len(self._broker.image.brokers))
            self._settings_of = config
        return self._settings

    def _env(self, ticket: Ticket) -> Env:
        broker = self._broker
        return Env(
            broker.clock.now_ms(),
            int(broker.clock.monotonic() * 1000),
            broker.image,
            broker.topics.version,
            self.settings,
            uuid.uuid4,
            ticket,
        )

    def shard_for(self, group_id: str) -> Shard:
        """Raises KafkaError where this node does not, or not yet, look after the group."""
        if not self._shards:
            raise KafkaError(KafkaCode.NOT_COORDINATOR)
        return self._shards[partition_for(group_id, len(self._shards))]

    def submit(self, group_id: str, decide: "Decide[R]") -> "R | asyncio.Future[R]":
        """The reply, or what will hold it. Raises KafkaError where the answer is one."""
        shard = self.shard_for(group_id)
        answer = shard.submit(group_id, decide)
        self._arm(shard)
        return answer

    def ask(
        self,
        group_id: str,
        decide: "Decide[R]",
        *,
        show: Callable[[R], Struct],
        refuse: Callable[[KafkaError], Struct],
    ) -> Struct | Coroutine[Any, Any, Struct]:
        """What a handler returns: the reply as a message, now or when it is there."""
        try:
            answer = self.submit(group_id, decide)
        except KafkaError as error:
            return refuse(error)
        if isinstance(answer, asyncio.Future):
            return _show_later(answer, show, refuse)
        return show(answer)

    async def active_shards(self) -> list[Shard]:
        """All shards, once what they show is committed. Raises KafkaError while one loads."""
        for shard in self._shards:
            shard.require_active()
        waits = [wait for shard in self._shards if (wait := shard.wait_all()) is not None]
        if waits:
            await asyncio.gather(*waits)
        return self._shards

    def topics_are_gone(self, names: Iterable[str]) -> None:
        """Deleted topics take their committed offsets along."""
        for shard in self._shards:
            if shard.status is not ShardStatus.ACTIVE:
                continue
            for group_id, records in offsets.forget_topics(shard.state, names).items():
                _write(shard, group_id, records)

    # -- time -------------------------------------------------------------------------

    def _arm(self, shard: Shard) -> None:
        """One timer per shard, for its next deadline."""
        next_ms = shard.deadlines.next_at_ms()
        armed = self._timers.get(shard)
        if next_ms is None or (armed is not None and armed[0] <= next_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay = max(next_ms / 1000 - self._broker.clock.monotonic(), 0)
        timer = asyncio.get_running_loop().call_later(delay, self._ring, shard)
        self._timers[shard] = (next_ms, timer)

    def _ring(self, shard: Shard) -> None:
        del self._timers[shard]
        # A loop timer may ring a little early.
        shard.deadlines_are_over(int(self._broker.clock.monotonic() * 1000) + 1)
        self._arm(shard)

    async def _forget_old_offsets(self) -> None:
        while True:
            interval_ms = self._broker.config.int("offsets.retention.check.interval.ms")
            await asyncio.sleep(interval_ms / 1000)
            for shard in self._shards:
                for group_id in list(shard.state.groups):
                    _expire_offsets(shard, group_id)
                await asyncio.sleep(0)


def _write(shard: Shard, group_id: str, records: Sequence[Change]) -> None:
    shard.run(group_id, lambda state, env: Decision(records=list(records)))


def _expire_offsets(shard: Shard, group_id: str) -> None:
    shard.run(group_id, lambda state, env: admin.expire_offsets(state, group_id, env))


async def _show_later(
    answer: "asyncio.Future[R]", show: Callable[[R], Struct], refuse: Callable[[KafkaError], Struct]
) -> Struct:
    try:
        return show(await answer)
    except KafkaError as error:
        return refuse(error)


def gather(
    answers: Sequence[Struct | Coroutine[Any, Any, Struct]],
    combine: Callable[[list[Struct]], Struct],
) -> Struct | Coroutine[Any, Any, Struct]:
    """One answer about several groups, in order; at once if all of them are there."""
    ready = [each for each in answers if isinstance(each, Struct)]
    if len(ready) == len(answers):
        return combine(ready)
    return _gather_later(answers, combine)


async def _gather_later(
    answers: Sequence[Struct | Coroutine[Any, Any, Struct]],
    combine: Callable[[list[Struct]], Struct],
) -> Struct:
    return combine([await _when_ready(answer) for answer in answers])


async def _when_ready(answer: Struct | Coroutine[Any, Any, Struct]) -> Struct:
    if isinstance(answer, Struct):
        return answer
    # A cast: a Struct has any attribute for mypy, so it does not leave the union.
    return await cast("Coroutine[Any, Any, Struct]", answer)
