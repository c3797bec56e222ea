"""Sends the records of dead letters to their topics again, each of them once.

A consumer group keeps, for each partition of the topic of letters, up to where that was done. Its
offsets are committed in the transaction that sends the records: a command that fails has neither
sent nor committed, and of two that run at once one is fenced.
"""

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from millstream.cli.bootstrap import client_settings, explain
from millstream.cli.connection import Cluster, check
from millstream.cli.delayed_acks import Delay
from millstream.cli.failure import CommandFailed
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.group_view import committed_offsets
from millstream.cli.output import counted, echo
from millstream.cli.progress import Progress
from millstream.cli.record_sender import RecordSender, connect_producer
from millstream.cli.record_text import JsonRecord
from millstream.cli.share_letters import Letter, Offsets
from millstream.client.blocking import Address
from millstream.coordinators.share import dead_letters
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.records.batch import BatchView, split_batches
from millstream.records.delivery_times import HEADERS as TIME_HEADERS
from millstream.records.records import Record, iterate_records
from millstream.records.validation import DECODED_BYTES_MAX
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from confluent_kafka import Producer

# Letters of a transaction: they are sent long before it times out.
_AT_ONCE: Final = 1_000
_SECONDS_MAX: Final = 30.0
# The newest that names topics.
_FETCH_VERSION: Final = 12


def retried_group(group_id: str) -> str:
    """The consumer group that keeps how far the letters of a share group were sent again."""
    return f"{group_id}.retried"


def unsent(letters: Iterable[Letter], sent: Offsets) -> list[Letter]:
    """Those that were not sent again yet, the oldest first. Letters of one partition stay in
    order, whatever their times are: what is sent ends at one offset."""
    by_place: dict[TopicPartition, list[Letter]] = {}
    for one in letters:
        if not one.is_before(sent):
            by_place.setdefault(one.place, []).append(one)
    return list(heapq.merge(*by_place.values(), key=lambda one: one.written_ms))


class SendingAgain:
    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._bootstrap = bootstrap
        self._group_id = retried_group(group_id)

    def send(self, found: Sequence[Letter]) -> list[Letter]:
        """The letters whose records were sent."""
        from confluent_kafka import KafkaException

        watch = BrokerWatch(self._bootstrap)
        producer = connect_producer(
            self._bootstrap, watch, "none", "all", transactional_id=self._group_id
        )
        sent: list[Letter] = []
        try:
            # From here on, no other command commits.
            producer.init_transactions(_SECONDS_MAX)
            with Cluster(self._bootstrap) as cluster:
                before = committed_offsets(cluster, self._group_id)
                left = [one for one in found if not one.is_before(before)]
                for first in range(0, len(left), _AT_ONCE):
                    sent += self._send(cluster, producer, watch, left[first : first + _AT_ONCE])
        except KafkaException as failed:
            raise explain(failed.args[0], f"group {self._group_id}") from None
        if len(sent) < len(left):
            gone = counted(len(left) - len(sent), "record")
            echo(
                f"{gone} not sent: deleted meanwhile, and the dead letter has no copy"
                " (errors.deadletterqueue.copy.record.enable)",
                err=True,
            )
        return sent

    def _send(
        self, cluster: Cluster, producer: "Producer", watch: BrokerWatch, found: Sequence[Letter]
    ) -> list[Letter]:
        by_topic: dict[str, list[JsonRecord]] = {}
        sent: list[Letter] = []
        for letter, record in _records(cluster, found):
            if record is not None:
                by_topic.setdefault(letter.where.topic, []).append(record)
                sent.append(letter)
        producer.begin_transaction()
        try:
            for topic, records in by_topic.items():
                delay = Delay(self._bootstrap, topic, is_acks_all=True)
                progress = Progress(quiet=True, plain=False)
                RecordSender(topic, producer, watch, progress, delay).send_all(iter(records))
            self._commit(producer, found)
        except CommandFailed:
            producer.abort_transaction(_SECONDS_MAX)
            raise
        return sent

    def _commit(self, producer: "Producer", found: Sequence[Letter]) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Position

        ends = {one.place: one.letter.offset + 1 for one in found}
        positions = [Position(place.topic, place.partition, end) for place, end in ends.items()]
        # It never joins the group.
        consumer = Consumer({**client_settings(self._bootstrap), "group.id": self._group_id})
        try:
            producer.send_offsets_to_transaction(
                positions, consumer.consumer_group_metadata(), _SECONDS_MAX
            )
            producer.commit_transaction(_SECONDS_MAX)
        finally:
            consumer.close()


def _records(
    cluster: Cluster, found: Sequence[Letter]
) -> Iterator[tuple[Letter, JsonRecord | None]]:
    leaders: dict[str, dict[int, Address]] = {}
    for letter in found:
        topic = letter.where.topic
        if topic not in leaders:
            leaders[topic] = _leaders(cluster, topic)
        yield letter, _record_of(cluster, leaders[topic], letter)


def _leaders(cluster: Cluster, topic: str) -> dict[int, Address]:
    answer = cluster.metadata(topic)
    nodes = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    return {
        row.partition_index: nodes[row.leader_id]
        for found in answer.topics
        for row in found.partitions
        if row.leader_id in nodes
    }


def _record_of(cluster: Cluster, leaders: dict[int, Address], letter: Letter) -> JsonRecord | None:
    """The record that died: from its letter if that is a copy, or else from its topic. None if it
    is gone."""
    if letter.is_copy:
        copy = letter.letter
        return _again(copy.key, copy.value, copy.headers, letter)
    record = _fetch(cluster, leaders, letter)
    if record is None:
        return None
    return _again(record.key, record.value, record.headers, letter)


def _again(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    letter: Letter,
) -> JsonRecord:
    kept = [
        (name, content)
        for name, content in headers
        if not name.startswith(dead_letters.PREFIX) and name not in TIME_HEADERS
    ]
    return JsonRecord(
        key=key,
        value=value,
        headers=kept,
        timestamp_ms=int(time.time() * 1000),
        partition=letter.where.partition,
    )


def _fetch(cluster: Cluster, leaders: dict[int, Address], letter: Letter) -> Record | None:
    where = letter.where
    if where.partition not in leaders:
        raise CommandFailed(f"{where.topic}-{where.partition} has no leader; nothing was sent")
    row = FetchPartition(
        partition=where.partition, fetch_offset=letter.offset, partition_max_bytes=1
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        topics=[FetchTopic(topic=where.topic, partitions=[row])],
    )
    answer = cluster.ask(leaders[where.partition], request, _FETCH_VERSION)
    for topic in answer.responses:
        for found in topic.partitions:
            if found.error_code == KafkaCode.OFFSET_OUT_OF_RANGE:
                return None
            check(found.error_code, f"{where.topic}-{where.partition}")
            for batch in split_batches(memoryview(bytes(found.records or b""))):
                record = _first_from(batch, letter)
                if record is not None and record.offset == letter.offset:
                    return record
    return None


def _first_from(batch: BatchView, letter: Letter) -> Record | None:
    records = iterate_records(batch, limit_bytes=DECODED_BYTES_MAX, from_offset=letter.offset)
    try:
        return next(records, None)
    except ValueError as problem:
        echo(f"{letter.where.topic}-{letter.where.partition} cannot be read: {problem}", err=True)
        return None
