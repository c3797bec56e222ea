"""Gets a consumer past batches that no client can read.

Earlier versions of a node stored whatever had the right checksum. librdkafka does not report such
a batch, and requests it again and again. So where records are due and none arrive, we look at the
batch ourselves.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo
from millstream.client.blocking import Address
from millstream.model import TopicPartition as Place
from millstream.records.batch import BatchView, split_batches
from millstream.records.columns import is_readable
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer

# Longer than a fetch waits for records.
_SILENCE_SECONDS: Final = 2.0
# The last version that names topics.
_FETCH_VERSION: Final = 12
_FETCH_BYTES: Final = 1 << 20


class UnreadableBatches:
    """Those in the partitions of a consumer.

    `starts` says where it begins to read, where that is known: the library has no position before
    the first record.
    """

    def __init__(self, bootstrap: str, consumer: "Consumer", starts: dict[Place, int]) -> None:
        self._bootstrap = bootstrap
        self._consumer = consumer
        self._starts = starts
        self._heard_at = time.monotonic()

    def heard(self) -> None:
        """Something arrived."""
        self._heard_at = time.monotonic()

    def skip(self) -> dict[Place, int]:
        """After some silence: the partitions that were stuck, and the offsets where they go on."""
        if time.monotonic() - self._heard_at < _SILENCE_SECONDS:
            return {}
        self.heard()
        stuck = dict(self._unfinished())
        if not stuck:
            return {}
        try:
            with Cluster(self._bootstrap) as cluster:
                behind = {place: offset_behind(cluster, place, at) for place, at in stuck.items()}
        except CommandFailed:
            # The library is without a broker, too, and others watch for that.
            return {}
        found = {place: offset for place, offset in behind.items() if offset > stuck[place]}
        for place, offset in found.items():
            self._go_on(place, stuck[place], offset)
        return found

    def _unfinished(self) -> Iterator[tuple[Place, int]]:
        """Partitions with records after the consumer's position, and that position."""
        for each in self._consumer.position(self._consumer.assignment()):
            place = Place(each.topic, each.partition)
            offset = each.offset if each.offset >= 0 else self._starts.get(place, -1)
            known = self._consumer.get_watermark_offsets(each, cached=True)
            if known is not None and 0 <= offset < known[1]:
                yield place, offset

    def _go_on(self, place: Place, stuck_at: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        echo(
            f"millstream: {place}: skipped offsets {stuck_at} to {offset - 1}: their records cannot"
            " be read",
            err=True,
        )
        self._consumer.seek(TopicPartition(place.topic, place.partition, offset))


def offset_behind(cluster: Cluster, place: Place, offset: int) -> int:
    """Where the unreadable batches at an offset end: there, if the batch can be read."""
    while True:
        leader = _leader(cluster, place)
        batches = [] if leader is None else _fetch(cluster, leader, place, offset)
        for batch in batches:
            if not batch.crc_is_valid() or is_readable(batch):
                return offset
            offset = batch.next_offset
        if not batches:
            return offset


def _leader(cluster: Cluster, place: Place) -> Address | None:
    metadata = cluster.metadata(place.topic)
    nodes = {node.node_id: Address(node.host, node.port) for node in metadata.brokers}
    for topic in metadata.topics:
        for one in topic.partitions:
            if one.partition_index == place.partition:
                return nodes.get(one.leader_id)
    return None


def _fetch(cluster: Cluster, leader: Address, place: Place, offset: int) -> list[BatchView]:
    partition = FetchPartition(
        partition=place.partition,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=_FETCH_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = cluster.ask(leader, request, _FETCH_VERSION)
    [found] = [one for topic in answer.responses for one in topic.partitions]
    batches = split_batches(memoryview(bytes(found.records or b"")))
    return [batch for batch in batches if batch.last_offset >= offset]
