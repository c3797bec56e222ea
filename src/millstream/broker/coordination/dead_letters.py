"""Writes the dead letters of share groups, wherever the leader of their partition is.

`coordinators/share/dead_letters.py` decides where they go and what is in them. A letter is
written as with acks=all. A node may write a letter twice, but archives no record before its
letter is safe.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.client.aio import NoAnswer
from millstream.cluster.changes import NewTopic
from millstream.cluster.state import NO_LEADER
from millstream.config import topic_config
from millstream.config.group_config import GroupConfig
from millstream.coordinators.share.dead_letters import (
    Destination,
    Source,
    letters,
    partition_of,
    problem_with,
    with_copy,
)
from millstream.coordinators.share.dead_records import DeadRange
from millstream.errors import KafkaCode, KafkaError
from millstream.records import delivery_times
from millstream.records.batch import HEADER_BYTES, split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, iterate_records
from millstream.records.validation import DECODED_BYTES_MAX
from millstream.replication.partition import Partition
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData

log = logging.getLogger(__name__)

R = TypeVar("R")

_TOPIC: Final = "errors.deadletterqueue.topic.name"
_COPIES: Final = "errors.deadletterqueue.copy.record.enable"
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_ACKS_ALL: Final = -1
# The last version that names topics.
_PRODUCE_VERSION: Final = 12
_SECONDS_MAX: Final = 30.0
_READ_BYTES: Final = 1 << 17
# More than a group usually has under way in a partition.
_AT_ONCE: Final = 2_000
# Letters whose records are in memory at the same time.
_COPIED_BYTES: Final = 8 << 20
# More than the numbers of a record and of a header take.
_RECORD_BYTES: Final = 40
_HEADER_BYTES: Final = 10


class DeadLetters:
    def __init__(self, node: NodeState, topics: Topics) -> None:
        self._node = node
        self._topics = topics
        # By group: letters since the start of the node.
        self.written: dict[str, int] = {}
        # By group: the last problem, which was logged.
        self.problems: dict[str, str] = {}
        # One at a time: threads compete with the loop.
        self._thread = asyncio.Lock()

    async def write(
        self, source: Source, config: GroupConfig, dead: Sequence[DeadRange], partition: Partition
    ) -> None:
        """Returns when the letters of records of `partition` are safe, or when there is nowhere to
        write them. Raises KafkaError if it has to be tried again."""
        name = config.string(_TOPIC)
        if not name:
            return
        destination = self._destination(name)
        problem = problem_with(destination)
        if problem is not None:
            self._complain(source, problem)
            return
        if destination.partitions is None:
            await self._create(name)
            destination = self._destination(name)
        if destination.partitions is None:
            raise KafkaError(KafkaCode.LEADER_NOT_AVAILABLE, f"{name} was just created")
        index = partition_of(source, destination.partitions)
        now_ms = self._node.clock.now_ms()
        plain = (one for each in dead for one in letters(source, each, now_ms=now_ms))
        bytes_max = self._bytes_max(name)
        found = (
            self._copies(plain, partition, bytes_max) if config.boolean(_COPIES) else _plain(plain)
        )
        count = 0
        async for waiting in _batches(found, bytes_max):
            batch = await self._in_thread(partial(_batch, waiting))
            if len(batch) > bytes_max:
                # A single letter, without a copy: no other attempt would do better.
                problem = f"a dead letter is larger than max.message.bytes of {name} ({bytes_max})"
                continue
            await self._append(name, index, batch)
            count += len(waiting)
        self.written[source.group_id] = self.written.get(source.group_id, 0) + count
        if problem is None:
            self.problems.pop(source.group_id, None)
        else:
            self._complain(source, problem)

    def _destination(self, name: str) -> Destination:
        config = self._node.config
        state = self._node.image.topics.get(name)
        topic = None if state is None else topic_config(config, state.overrides)
        return Destination(
            name,
            partitions=None if state is None else len(state.partitions),
            takes_dead_letters=topic is not None and topic.boolean(_ENABLED),
            is_compacted=topic is not None and "compact" in topic.list("cleanup.policy"),
            prefix=config.string("errors.deadletterqueue.topic.name.prefix"),
            may_create=config.boolean("errors.deadletterqueue.auto.create.topics.enable"),
        )

    def _bytes_max(self, name: str) -> int:
        state = self._node.image.topics.get(name)
        overrides = {} if state is None else state.overrides
        return topic_config(self._node.config, overrides).int("max.message.bytes")

    def _complain(self, source: Source, problem: str) -> None:
        if self.problems.get(source.group_id) == problem:
            return
        self.problems[source.group_id] = problem
        log.error(
            "share group %s: records that died are archived without a dead letter, the first"
            " in %s-%d: %s",
            *(source.group_id, source.topic, source.partition, problem),
        )

    async def _create(self, name: str) -> None:
        # The time of a letter is when it was written, whatever the node's default is.
        configs: dict[str, str | None] = {
            _ENABLED: "true",
            "message.timestamp.type": "CreateTime",
        }
        [result] = await self._topics.create([NewTopic(name, configs=configs)], validate_only=False)
        if result.error is not None and result.error.code is not KafkaCode.TOPIC_ALREADY_EXISTS:
            raise result.error
        log.info("created the topic %s for dead letters", name)

    async def _copies(
        self, plain: Iterator[Record], partition: Partition, bytes_max: int
    ) -> AsyncIterator["_Letter"]:
        """The letters with their records, in the same order: those of one range after another."""
        while waiting := list(islice(plain, _AT_ONCE)):
            while waiting:
                found = await self._copies_of_batch(waiting, partition, bytes_max)
                del waiting[: len(found)]
                for letter in found:
                    yield letter

    async def _copies_of_batch(
        self, waiting: Sequence[Record], partition: Partition, bytes_max: int
    ) -> "Sequence[_Letter]":
        """For the first letter, and others whose records are in the same batch. Without their
        records if those cannot be read."""
        offset = waiting[0].offset
        try:
            where = partition.read(offset, max_bytes=_READ_BYTES, at_least_one=True)
            if where is not None:
                data = where.file.read_at(where.position, where.length)
                found, problem = await self._in_thread(partial(_copied, data, waiting, bytes_max))
                if problem is not None:
                    log.warning("no copies of %s: %s", partition.topic_partition, problem)
                return found
        except (KafkaError, ValueError, OSError) as error:
            log.warning("no copy of %s at %d: %s", partition.topic_partition, offset, error)
        return [_Letter(waiting[0], _size_bytes(waiting[0]))]

    async def _in_thread(self, work: Callable[[], R]) -> R:
        """A batch may unpack to much more than the loop has time for."""
        async with self._thread:
            return await asyncio.get_running_loop().run_in_executor(None, work)

    # -- writing ------------------------------------------------------------------------

    async def _append(self, name: str, index: int, batch: bytearray) -> None:
        node = self._node
        leader = node.cluster.other_leader(name, index)
        if leader is not None:
            await self._send(leader, name, index, batch)
            return
        partition = node.partitions.get(name, index)
        partition.require_committed_writes()
        now_ms = node.clock.now_ms()
        appended = partition.append_as_coordinator(memoryview(batch), now_ms=now_ms)
        wait = node.disk.durability.wait_if_needed(
            partition, appended.next_offset, is_acks_all=True
        )
        if wait is not None:
            await wait

    async def _send(self, leader: int, name: str, index: int, batch: bytearray) -> None:
        if leader == NO_LEADER:
            raise KafkaError(KafkaCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader")
        row = ProducePartitionData(index=index, records=bytes(batch))
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=int(_SECONDS_MAX * 1000),
            topic_data=[ProduceTopicData(name=name, partition_data=[row])],
        )
        try:
            answer = await self._node.cluster.peers.ask(
                leader, request, _PRODUCE_VERSION, timeout_seconds=_SECONDS_MAX
            )
        except NoAnswer as error:
            raise KafkaError(KafkaCode.NETWORK_EXCEPTION, str(error)) from error
        for topic in answer.responses:
            for found in topic.partition_responses:
                if found.error_code != KafkaCode.NONE:
                    raise KafkaError(KafkaCode(found.error_code), found.error_message or "")


# -- letters ------------------------------------------------------------------------------


class _Letter(NamedTuple):
    record: Record
    size_bytes: int


async def _plain(found: Iterator[Record]) -> AsyncIterator[_Letter]:
    for letter in found:
        yield _Letter(letter, _size_bytes(letter))


def _copied(
    data: bytes, waiting: Sequence[Record], bytes_max: int
) -> tuple[list[_Letter], str | None]:
    """Letters with their records from the batch in which the first of them was sought: for as many
    as are in it, up to a number of bytes. And why from some record on there are no copies. Raises
    ValueError if there is no batch.

    Records that were deleted meanwhile, or are too large for a letter, are not copied.
    """
    batch = next(split_batches(memoryview(data)), None)
    if batch is None:
        raise ValueError("there is no whole batch")
    records = iterate_records(batch, limit_bytes=DECODED_BYTES_MAX, from_offset=waiting[0].offset)
    record: Record | None = None
    found: list[_Letter] = []
    problem: str | None = None
    left_bytes, last_offset = _COPIED_BYTES, -1
    for letter in waiting:
        if found and (left_bytes <= 0 or not last_offset < letter.offset < batch.next_offset):
            break
        try:
            while record is None or record.offset < letter.offset:
                record = next(records)
        except StopIteration:
            pass
        except ValueError as error:
            # Nothing comes after it.
            problem = str(error)
        copy = letter
        if record is not None and record.offset == letter.offset:
            copy = with_copy(letter, record, left_out=delivery_times.HEADERS)
        size_bytes = _size_bytes(copy)
        if size_bytes + HEADER_BYTES > bytes_max:
            copy, size_bytes = letter, _size_bytes(letter)
        found.append(_Letter(copy, size_bytes))
        left_bytes -= size_bytes
        last_offset = letter.offset
    return found, problem


async def _batches(
    found: AsyncIterator[_Letter], bytes_max: int
) -> AsyncIterator[Sequence[Record]]:
    """As large as the topic takes."""
    waiting: list[Record] = []
    size_bytes = HEADER_BYTES
    async for letter, length in found:
        if waiting and size_bytes + length > bytes_max:
            yield waiting
            waiting, size_bytes = [], HEADER_BYTES
        waiting.append(letter)
        size_bytes += length
    if waiting:
        yield waiting


def _size_bytes(record: Record) -> int:
    """At most so much."""
    headers = sum(
        _HEADER_BYTES + len(name.encode()) + len(value or b"") for name, value in record.headers
    )
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _batch(waiting: Sequence[Record]) -> bytearray:
    records = [
        Record(number, letter.timestamp_ms, letter.key, letter.value, letter.headers)
        for number, letter in enumerate(waiting)
    ]
    return build_batch(records, base_offset=0)
