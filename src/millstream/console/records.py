"""Records of a topic over the protocol: browse, search, follow, produce.

Every function is bounded: a page reads at most a few megabytes and a search stops after two
seconds, says how far it came, and can be continued there. Batches are decoded in a thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from millstream.console.asking import ClusterClient, check
from millstream.console.display import Display
from millstream.console.facts import TopicFacts
from millstream.console.reading import LATEST, offsets_on
from millstream.console.text import (
    LONG_CHARACTERS_MAX,
    SHORT_CHARACTERS_MAX,
    Shown,
    show,
    visible,
)
from millstream.errors import KafkaCode
from millstream.model import Codec, TopicPartition
from millstream.records.batch import BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.compression import decompress
from millstream.records.records import Record, iterate_records
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.produce import (
    ProducePartitionData,
    ProduceRequest,
    ProduceTopicData,
)

PAGE_RECORDS_MAX: Final = 500
# One fetch of a page; a single batch may be larger, and comes whole.
_PAGE_BYTES: Final = 1 << 20
_SEARCH_BYTES: Final = 4 << 20
# Headers of a record in a list, and of one that has a page to itself.
_HEADERS_LISTED: Final = 50
_HEADERS_SHOWN: Final = 1_000
# What `newest_records` keeps of one topic.
_NEWEST_BYTES_MAX: Final = 32 << 20
# Beside what is in them.
_RECORD_BYTES: Final = 200
_HEADER_BYTES: Final = 150
_SEARCH_SECONDS_MAX: Final = 2.0
_SEARCH_HITS_MAX: Final = 50
# What one batch may unpack to here: above the largest record that topics usually take.
_DECODED_BYTES_MAX: Final = 64 << 20
_FETCH_VERSION: Final = 12
_PRODUCE_VERSION: Final = 9
_PRODUCE_SECONDS_MAX: Final = 10
REPEAT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class HeaderRow:
    name: str
    value: Shown


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record as a page shows it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Shown
    value: Shown
    headers: list[HeaderRow]
    # A marker of a transaction, not a record of a producer.
    is_control: bool = False
    # The batch could not be read: this row stands for all of it.
    problem: str | None = None


@dataclass(slots=True)
class Fetched:
    """Batches as they were sent; `next_offset` is behind the last whole one."""

    batches: list[BatchView]
    next_offset: int
    high_watermark: int


async def fetch(
    client: ClusterClient, leader: int, topic: str, partition: int, offset: int, *, max_bytes: int
) -> Fetched:
    """Raises AskFailed."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )
    answer = await client.ask(leader, request, _FETCH_VERSION)
    check(answer.error_code, "fetch")
    [found] = answer.responses[0].partitions
    check(found.error_code, f"{topic}-{partition} at offset {offset}")
    data = memoryview(b"") if found.records is None else memoryview(found.records)
    batches = whole_batches(data)
    next_offset = batches[-1].next_offset if batches else offset
    return Fetched(batches, next_offset, found.high_watermark)


def whole_batches(data: memoryview) -> list[BatchView]:
    """Those that are complete: an answer may end inside a batch."""
    found = []
    try:
        for batch in split_batches(data):
            found.append(batch)
    except ValueError:
        # The rest is the beginning of a batch.
        pass
    return found


def rows_of(
    batch: BatchView, partition: int, *, display: Display, from_offset: int, limit: int
) -> list[RecordRow]:
    """The first records from an offset on. What cannot be read becomes one row that says so."""
    records = iterate_records(batch, limit_bytes=_DECODED_BYTES_MAX, from_offset=from_offset)
    rows: list[RecordRow] = []
    try:
        for record in islice(records, limit):
            row = row_of(
                record,
                partition,
                display=display,
                characters_max=SHORT_CHARACTERS_MAX,
                is_control=batch.is_control,
            )
            rows.append(row)
    except ValueError as problem:
        rows.append(_unreadable(batch, partition, problem))
    return rows


def _unreadable(batch: BatchView, partition: int, problem: ValueError) -> RecordRow:
    nothing = show(None)
    text = f"This batch of {batch.size_bytes:,} bytes cannot be read: {problem}"
    return RecordRow(
        partition, batch.base_offset, batch.max_timestamp_ms, nothing, nothing, [], False, text
    )


def row_at(batch: BatchView, partition: int, offset: int, *, display: Display) -> RecordRow | None:
    """The first record at or after `offset`, with much of its text. Slow: call it in a thread."""
    records = iterate_records(batch, limit_bytes=_DECODED_BYTES_MAX, from_offset=offset)
    try:
        record = next(records, None)
    except ValueError as problem:
        return _unreadable(batch, partition, problem)
    if record is None:
        return None
    return row_of(
        record,
        partition,
        display=display,
        characters_max=LONG_CHARACTERS_MAX,
        is_control=batch.is_control,
    )


def row_of(
    record: Record, partition: int, *, display: Display, characters_max: int, is_control: bool
) -> RecordRow:
    return RecordRow(
        partition,
        record.offset,
        record.timestamp_ms,
        display.show(record.key, characters_max=characters_max),
        display.show(record.value, characters_max=characters_max),
        _header_rows(record.headers, characters_max),
        is_control,
    )


def _header_rows(
    headers: Sequence[tuple[str, bytes | None]], characters_max: int
) -> list[HeaderRow]:
    count = _HEADERS_SHOWN if characters_max > SHORT_CHARACTERS_MAX else _HEADERS_LISTED
    rows = [
        HeaderRow(visible(name[:SHORT_CHARACTERS_MAX]), show(value, characters_max=characters_max))
        for name, value in headers[:count]
    ]
    if len(headers) > count:
        rows.append(HeaderRow(f"and {len(headers) - count:,} more", Shown("", "text", 0)))
    return rows


async def read_forward(
    client: ClusterClient,
    topic: TopicFacts,
    partition: int,
    offset: int,
    *,
    limit: int,
    display: Display,
) -> list[RecordRow]:
    """Up to `limit` records from `offset` on."""
    leader = topic.partitions[partition].leader
    rows: list[RecordRow] = []
    while len(rows) < limit:
        found = await fetch(client, leader, topic.name, partition, offset, max_bytes=_PAGE_BYTES)
        if not found.batches:
            break
        decode = _Decode(found.batches, partition, display, offset, limit - len(rows))
        rows += await asyncio.to_thread(decode)
        offset = found.next_offset
        if offset >= found.high_watermark:
            break
    return rows


@dataclass(frozen=True, slots=True)
class _Decode:
    """The work of a thread: no more rows than the page shows."""

    batches: Sequence[BatchView]
    partition: int
    display: Display
    from_offset: int
    limit: int

    def __call__(self) -> list[RecordRow]:
        rows: list[RecordRow] = []
        for batch in self.batches:
            rows += rows_of(
                batch,
                self.partition,
                display=self.display,
                from_offset=self.from_offset,
                limit=self.limit - len(rows),
            )
            if len(rows) >= self.limit:
                break
        return rows


async def read_newest(
    client: ClusterClient,
    topic: TopicFacts,
    partitions: Iterable[int],
    *,
    limit: int,
    display: Display,
) -> list[RecordRow]:
    """The last records of each partition, newest first."""

    async def of_one(index: int) -> list[RecordRow]:
        one = topic.partitions[index]
        [end] = (await end_offsets(client, topic, [index])).values()
        first = max(one.start_offset, end - limit, 0)
        if one.leader < 0 or end <= first:
            return []
        return await read_forward(client, topic, index, first, limit=limit, display=display)

    # Many partitions have many newest records: ask the first ones only.
    chosen = list(partitions)[:64]
    found = await asyncio.gather(*(of_one(index) for index in chosen))
    rows = [row for each in found for row in each]
    rows.sort(key=lambda row: (-row.timestamp_ms, row.partition, -row.offset))
    return rows[:limit]


async def newest_records(client: ClusterClient, topic: TopicFacts, *, limit: int) -> list[Record]:
    """About the last `limit` records of a topic, oldest first, without markers; fewer if they
    are large."""
    ends = await end_offsets(
        client, topic, [one.index for one in topic.partitions if one.leader >= 0]
    )
    each_limit = max(limit // max(len(ends), 1), 1)
    each_bytes = _NEWEST_BYTES_MAX // max(len(ends), 1)
    found: list[Record] = []
    for index, end in ends.items():
        one = topic.partitions[index]
        offset = max(end - each_limit, one.start_offset, 0)
        left_bytes = each_bytes
        while offset < end and left_bytes > 0:
            got = await fetch(
                client, one.leader, topic.name, index, offset, max_bytes=_SEARCH_BYTES
            )
            if not got.batches:
                break
            read = _RecordsFrom(got.batches, offset, left_bytes)
            records, left_bytes = await asyncio.to_thread(read)
            found += records
            offset = got.next_offset
    found.sort(key=lambda record: record.timestamp_ms)
    return found[-limit:]


@dataclass(frozen=True, slots=True)
class _RecordsFrom:
    """The work of a thread. Compressed batches may be far larger in memory than in the answer."""

    batches: Sequence[BatchView]
    offset: int
    bytes_max: int

    def __call__(self) -> tuple[list[Record], int]:
        """The records, and how many bytes are left for more."""
        records: list[Record] = []
        left_bytes = self.bytes_max
        for batch in self.batches:
            if batch.is_control:
                continue
            for record in _readable(batch, self.offset):
                records.append(record)
                left_bytes -= _size_bytes(record)
                if left_bytes <= 0:
                    return records, left_bytes
        return records, left_bytes


def _size_bytes(record: Record) -> int:
    """What it takes in memory, about."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_BYTES + len(name) + len(value or b"")
    return size


async def end_offsets(
    client: ClusterClient, topic: TopicFacts, partitions: Iterable[int]
) -> dict[int, int]:
    """End offsets now; the sample's may be seconds old."""
    ends = {index: topic.partitions[index].end_offset for index in partitions}
    leaders: dict[int, list[TopicPartition]] = {}
    for index in ends:
        leaders.setdefault(topic.partitions[index].leader, []).append(
            TopicPartition(topic.name, index)
        )
    for leader, places in leaders.items():
        if leader >= 0:
            for where, offset in (await offsets_on(client, leader, places, LATEST)).items():
                ends[where.partition] = offset
    return ends


# -- search ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, and where in a record: anywhere, key, value or headers."""

    needle: str
    where: str = "anywhere"
    is_case_sensitive: bool = False

    def matcher(self) -> Callable[[bytes], bool]:
        needle = self.needle.encode()
        if self.is_case_sensitive:
            return lambda data: needle in data
        lowered = needle.lower()
        # Letters beyond ASCII are compared as they are.
        return lambda data: lowered in data.lower()


@dataclass(slots=True)
class Found:
    """What a search has read; `next_offsets` is where it goes on, empty at the end."""

    rows: list[RecordRow] = field(default_factory=list)
    scanned_records: int = 0
    scanned_bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)


async def search(
    client: ClusterClient,
    topic: TopicFacts,
    start_offsets: Mapping[int, int],
    wanted: Search,
    *,
    display: Display,
    now: Callable[[], float],
) -> Found:
    """Read on from the offsets of each partition until something limits it."""
    ends_at = now() + _SEARCH_SECONDS_MAX
    found = Found(next_offsets=dict(start_offsets))
    for partition, offset in start_offsets.items():
        leader = topic.partitions[partition].leader
        while leader >= 0 and len(found.rows) < _SEARCH_HITS_MAX and now() < ends_at:
            got = await fetch(
                client, leader, topic.name, partition, offset, max_bytes=_SEARCH_BYTES
            )
            if not got.batches:
                del found.next_offsets[partition]
                break
            left = _SEARCH_HITS_MAX - len(found.rows)
            scan = _Scan(got.batches, partition, wanted, display, offset, left)
            rows, scanned, offset = await asyncio.to_thread(scan)
            found.rows += rows
            found.scanned_records += scanned
            found.scanned_bytes += sum(batch.size_bytes for batch in got.batches)
            found.next_offsets[partition] = offset
    return found


@dataclass(frozen=True, slots=True)
class _Scan:
    """The work of a thread: most batches are passed over without decoding a record."""

    batches: Sequence[BatchView]
    partition: int
    wanted: Search
    display: Display
    from_offset: int
    limit: int

    def __call__(self) -> tuple[list[RecordRow], int, int]:
        """Hits, records scanned, and where to go on."""
        rows: list[RecordRow] = []
        scanned = 0
        is_match = self.wanted.matcher()
        next_offset = self.from_offset
        for batch in self.batches:
            if not batch.is_control and _may_contain(batch, is_match):
                for record in _readable(batch, self.from_offset):
                    scanned += 1
                    if _matches(record, self.wanted.where, is_match):
                        row = row_of(
                            record,
                            self.partition,
                            display=self.display,
                            characters_max=SHORT_CHARACTERS_MAX,
                            is_control=False,
                        )
                        rows.append(row)
                        if len(rows) >= self.limit:
                            return rows, scanned, record.offset + 1
            else:
                scanned += max(min(batch.record_count, batch.next_offset - self.from_offset), 0)
            next_offset = batch.next_offset
        return rows, scanned, next_offset


def _may_contain(batch: BatchView, is_match: Callable[[bytes], bool]) -> bool:
    try:
        if batch.codec is Codec.NONE:
            return is_match(bytes(batch.records))
        data = decompress(batch.codec, batch.records, limit_bytes=_DECODED_BYTES_MAX)
        return is_match(bytes(data))
    except ValueError:
        return False


def _readable(batch: BatchView, from_offset: int) -> Iterator[Record]:
    try:
        yield from iterate_records(batch, limit_bytes=_DECODED_BYTES_MAX, from_offset=from_offset)
    except ValueError:
        return


def _matches(record: Record, where: str, is_match: Callable[[bytes], bool]) -> bool:
    if where in ("anywhere", "key") and record.key is not None and is_match(record.key):
        return True
    if where in ("anywhere", "value") and record.value is not None and is_match(record.value):
        return True
    return where in ("anywhere", "headers") and any(
        is_match(name.encode()) or (value is not None and is_match(value))
        for name, value in record.headers
    )


# -- following ------------------------------------------------------------------------


class Tail:
    """New records of a topic, from now on, in the partitions that it has now."""

    def __init__(
        self, client: ClusterClient, topic_name: str, offsets: dict[int, int], display: Display
    ) -> None:
        self.topic_name = topic_name
        self._client = client
        # Where to read on, by partition.
        self._offsets = offsets
        self._display = display

    @classmethod
    async def open(cls, client: ClusterClient, topic: TopicFacts, *, display: Display) -> "Tail":
        indexes = [one.index for one in topic.partitions if one.leader >= 0][:64]
        return cls(client, topic.name, await end_offsets(client, topic, indexes), display)

    async def read(self, topic: TopicFacts, limit: int) -> list[RecordRow]:
        """What came since the last call. What is more than `limit` is skipped: nobody could
        read it. `topic` says who leads the partitions now."""
        followed = [index for index in self._offsets if index < len(topic.partitions)]
        ends = await end_offsets(self._client, topic, followed)
        rows: list[RecordRow] = []
        for index, end in ends.items():
            offset = self._offsets[index]
            if end > offset:
                first = max(offset, end - limit)
                found = await read_forward(
                    self._client, topic, index, first, limit=limit, display=self._display
                )
                self._offsets[index] = max(end, found[-1].offset + 1 if found else 0)
                rows += found
        rows.sort(key=lambda row: row.timestamp_ms)
        return rows[-limit:]


# -- producing ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewRecord:
    key: bytes | None
    # None is a tombstone.
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


async def produce(
    client: ClusterClient,
    topic: TopicFacts,
    partition: int,
    record: NewRecord,
    *,
    repeat: int,
    now_ms: int,
) -> int:
    """Write it `repeat` times, in one batch, and wait for all replicas in sync; the first offset.
    Raises AskFailed."""
    assert 1 <= repeat <= REPEAT_MAX
    records = [
        Record(number, now_ms, record.key, record.value, record.headers) for number in range(repeat)
    ]
    codec = Codec.GZIP if repeat > 1 else Codec.NONE
    batch = bytes(build_batch(records, base_offset=0, codec=codec))
    data = ProduceTopicData(
        name=topic.name, partition_data=[ProducePartitionData(index=partition, records=batch)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=_PRODUCE_SECONDS_MAX * 1000, topic_data=[data])
    leader = topic.partitions[partition].leader
    if leader < 0:
        check(KafkaCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{partition}")
    answer = await client.ask(leader, request, _PRODUCE_VERSION)
    [result] = answer.responses[0].partition_responses
    check(result.error_code, f"{topic.name}-{partition}", result.error_message)
    return result.base_offset
